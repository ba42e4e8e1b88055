package pages

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history/evidence"
)

// mostTold bounds how much a page holds for its slider; beyond it, the form asks the server.
const mostTold = 4000

// toldLimits is what every limit would have held, for a script: [from, sources, requests] as JSON, ascending, each true up to the next one.
// The figures change at few limits only: at the peaks and beside the limits that were counted. It is empty where that is too much.
func toldLimits(d *evidence.Dossier) (string, error) {
	own := int64(d.Terms.Limit)
	at := []int64{own, own + 1, d.Ladder.Exact + 1}
	for _, b := range d.Ladder.Peaks {
		at = append(at, b.From, b.To)
	}
	for _, s := range d.Ladder.Steps {
		at = append(at, s.Limit, s.Limit+1)
	}
	slices.Sort(at)
	var told [][3]any
	for _, limit := range slices.Compact(at) {
		if limit < own {
			continue
		}
		w := d.At(limit)
		sources, requests := grouped(w.Sources.String()), grouped(w.Requests.String())
		if n := len(told); n > 0 && told[n-1][1] == sources && told[n-1][2] == requests {
			continue
		}
		told = append(told, [3]any{limit, sources, requests})
	}
	if len(told) > mostTold {
		return "", nil
	}
	out, err := json.Marshal(told)
	if err != nil {
		return "", fmt.Errorf("writing what limits would hold: %w", err)
	}
	return string(out), nil
}

// grouped writes the numbers of a figure as pages write numbers.
func grouped(figure string) string {
	return regexp.MustCompile(`\d{4,}`).ReplaceAllStringFunc(figure, func(digits string) string {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return digits
		}
		return shown.Count(n)
	})
}

// Stops are the limits at which the slider stops: those of the chart.
func (v *evidenceView) Stops() string {
	out := make([]string, len(v.Limits))
	for i := range v.Limits {
		out[i] = strconv.Itoa(v.Limits[i].Limit)
	}
	return strings.Join(out, " ")
}

// LastStop is the number of the last one, from 0.
func (v *evidenceView) LastStop() int { return len(v.Limits) - 1 }
