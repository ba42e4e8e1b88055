package report

import (
	"fmt"
	"math"
	"strconv"

	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/plural"
)

// chart shows how high the sources of a rule have come: a bar for each range of greatest counts, and a line where a limit lies.
//
// A log has many sources that came once and a few that came a thousand times, so the length of a bar follows the logarithm of
// its number, which stands beside it.
type chart struct {
	Unit  string // what was counted, in which time
	Rows  []bar
	Share int // every so many-th source was followed, and stands for as many; 0: all were
}

// bar is one range of greatest counts.
type bar struct {
	Limit   string // not empty: no bar but the line of a limit, with what it says
	Range   string // 5 to 8
	Sources int64
	Width   string // of the bar, in percent of the longest
	Above   int64  // sources of this range and all higher ones
	Share   string // of all sources
	Over    bool   // above the least limit of the chart
}

// line is a limit in a chart.
type line struct {
	limit   int
	sources int64 // over it
}

// newChart draws the peaks of found, with lines in ascending order of their limits; nil where there are no peaks.
func newChart(found *backtest.RuleResult, lines []line) *chart {
	if len(found.Peaks) == 0 {
		return nil
	}
	c := &chart{Unit: "number of events within " + duration.Format(found.Version.Window)}
	if found.PeaksShare > 1 {
		c.Share = found.PeaksShare
	}
	if sum := found.Version.Count.Sum; sum != "" {
		c.Unit = "sum of " + sum + " within " + duration.Format(found.Version.Window)
	}
	var all, most int64
	for _, p := range found.Peaks {
		all, most = all+p.Sources, max(most, p.Sources)
	}
	above, next := all, 0
	for _, p := range found.Peaks {
		for ; next < len(lines) && p.From > lines[next].limit; next++ {
			c.Rows = append(c.Rows, lines[next].row())
		}
		c.Rows = append(c.Rows, bar{
			Range: ranged(p), Sources: p.Sources, Width: length(p.Sources, most), Above: above, Share: share(ratio(above, all)),
			Over: len(lines) > 0 && p.From > lines[0].limit,
		})
		above -= p.Sources
	}
	for ; next < len(lines); next++ {
		c.Rows = append(c.Rows, lines[next].row())
	}
	return c
}

func (l line) row() bar {
	return bar{Limit: fmt.Sprintf("limit %d: %s over it", l.limit, plural.Of(l.sources, "source"))}
}

// ranged writes a range of counts.
func ranged(p backtest.PeakBucket) string {
	if p.To == p.From {
		return strconv.Itoa(p.From)
	}
	return fmt.Sprintf("%d to %d", p.From, p.To)
}

// length is a bar's, in percent: 100 for the most, 0 for none. One source is seen beside a million.
func length(n, most int64) string {
	if n == 0 {
		return "0"
	}
	return strconv.FormatFloat(100*math.Log1p(float64(n))/math.Log1p(float64(most)), 'f', 1, 64) + "%"
}

func ratio(n, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
