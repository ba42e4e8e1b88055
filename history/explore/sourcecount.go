package explore

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/sums"
	"github.com/weirhq/weir/traffic"
)

const (
	// mostHashes is how many hashes are read so that sources are counted and not estimated.
	mostHashes = 1_000_000
	// sampledInAll is about how many hashes are read else, shared out among the rules of all groups: each gets leastSampled at least, and mostSampled at most.
	sampledInAll = 300_000
	leastSampled = 1024
	mostSampled  = 16_384
	// enough different hashes make an estimate, which is off by 2.2 % then (one standard deviation); half as many as are read do as well.
	enough = 2048
)

// groupOfRule is what a rule has in a group.
type groupOfRule struct {
	groupID
	of string
}

// sourceCount counts the different sources of a rule in a group by their hashes: all, or, where a sum does not have all of its own or they are very
// many, as many as there are of the hashes up to a bound, in proportion (a theta sketch; Dasgupta, Lang, Rhodes, Thaler: A Framework for Estimating
// Stream Expression Cardinalities, 2016).
type sourceCount struct {
	fresh []int64 // hashes of the sources of rows
	told  int64   // sources of sums, as each sum tells
	most  int64   // of one sum

	bound int64   // up to which hashes are wanted, and are there
	read  []int64 // from sums; some may lie above the bound
	cut   bool    // a sum has none beyond the bound
}

func (c *sourceCount) add(more *sourceCount) {
	c.fresh, c.told, c.most = append(c.fresh, more.fresh...), c.told+more.told, max(c.most, more.most)
}

// whole reports whether sums have the hashes of all of their sources.
func (c *sourceCount) whole() bool { return c.most <= sums.Hashes }

// begin chooses which hashes are read: all that there are, or about n.
func (c *sourceCount) begin(n int64, all bool) {
	if c.bound = math.MaxInt64; !all && c.told > n {
		c.bound = boundOf(float64(n) / float64(c.told))
	}
}

// more reports whether more hashes must be read, of which there were about n, since sources came in many hours each, and chooses which.
func (c *sourceCount) more(n int64) bool {
	least := min(enough, n/2)
	found := c.found()
	if c.bound == math.MaxInt64 || c.cut || found >= least {
		return false
	}
	c.bound = boundOf(shareOf(c.bound) * 2 * float64(least) / float64(max(found, 1)))
	return true
}

// take takes the hashes of a sum up to the bound, or those that it has up to where it has no more.
func (c *sourceCount) take(hashes []int64, end *int64) {
	c.read = append(c.read, hashes...)
	if end != nil && *end <= c.bound {
		c.bound, c.cut = *end, true
	}
}

// found is how many different hashes there are up to the bound.
func (c *sourceCount) found() int64 {
	all := make([]int64, 0, len(c.read)+len(c.fresh))
	for _, hashes := range [][]int64{c.read, c.fresh} {
		for _, h := range hashes {
			if h <= c.bound {
				all = append(all, h)
			}
		}
	}
	slices.Sort(all)
	return int64(len(slices.Compact(all)))
}

// number is how many sources there are; about: more or less.
func (c *sourceCount) number() (n int64, about bool) {
	n = c.found()
	if c.bound == math.MaxInt64 {
		return n, false
	}
	n = int64(math.Round(float64(n) / shareOf(c.bound)))
	return min(max(n, c.most), c.told+int64(len(c.fresh))), true // as many as one sum tells of, and not more than all tell of
}

// shareOf is the share of all hashes that there could be which a bound does not exceed.
func shareOf(bound int64) float64 { return (float64(bound) - math.MinInt64) / math.Exp2(64) }

// boundOf is the bound that so many of all hashes do not exceed.
func boundOf(share float64) int64 {
	if share >= 1 {
		return math.MaxInt64
	}
	return int64(share*math.Exp2(64) + math.MinInt64)
}

// countSources adds to groups, which may be some of all, how many sources they have.
func (a *grouped) countSources(ctx context.Context, tx pgx.Tx, p plan, groups map[groupID]*GroupRow, sources map[groupOfRule]*sourceCount) error {
	if a.untold {
		return nil
	}
	maps.DeleteFunc(sources, func(of groupOfRule, _ *sourceCount) bool { return groups[of.groupID] == nil })
	if err := count(sources, func(ask map[groupOfRule]*sourceCount) error { return a.readHashes(ctx, tx, p, ask) }); err != nil {
		return err
	}
	for of, c := range sources {
		number, about := c.number()
		r := groups[of.groupID]
		r.Sources, r.SourcesAbout = r.Sources+number, r.SourcesAbout || about
	}
	return nil
}

// count reads as many hashes as are needed to tell numbers. read takes the hashes of sums up to each one's bound, or some beyond it.
func count(sources map[groupOfRule]*sourceCount, read func(ask map[groupOfRule]*sourceCount) error) error {
	ask := map[groupOfRule]*sourceCount{}
	whole := int64(0)
	for of, c := range sources {
		if c.bound = math.MaxInt64; c.told > 0 {
			ask[of] = c
		}
		if c.whole() {
			whole += c.told
		}
	}
	n := min(max(sampledInAll/int64(max(len(ask), 1)), leastSampled), mostSampled)
	for _, c := range ask {
		c.begin(n, c.whole() && whole <= mostHashes)
	}
	for range 2 { // the second time there are enough, or all
		if len(ask) == 0 {
			break
		}
		for _, c := range ask {
			c.read = c.read[:0]
		}
		if err := read(ask); err != nil {
			return err
		}
		maps.DeleteFunc(ask, func(_ groupOfRule, c *sourceCount) bool { return !c.more(n) })
	}
	return nil
}

// readHashes reads the hashes of sums, which lie in order there, up to each one's bound. Of a rule they are read up to the greatest of its bounds, from
// the first of the groups to the last: to look each group up would cost more than the others' hashes do.
func (a *grouped) readHashes(ctx context.Context, tx pgx.Tx, p plan, ask map[groupOfRule]*sourceCount) error {
	var names []string
	var bounds []int64
	places := map[string]int{}
	first, last := traffic.EndOfTime, traffic.BeforeTime
	for of, c := range ask {
		at, known := places[of.of]
		if !known {
			at = len(names)
			places[of.of], names, bounds = at, append(names, of.of), append(bounds, c.bound)
		}
		bounds[at], first, last = max(bounds[at], c.bound), min(first, of.at), max(last, of.at)
	}
	w := a.ofSums(p, []string{})
	at := a.at(w)
	w.Add(at+" BETWEEN ? AND ?", postgres.Timestamp(first), postgres.Timestamp(last))
	rows, err := tx.Query(ctx, `SELECT s.rule, `+at+`, s.hashes[1:width_bucket(bound, s.hashes)], CASE WHEN cardinality(s.hashes) < s.sources THEN s.hashes[cardinality(s.hashes)] END
		FROM hit_sums s JOIN unnest(`+w.Arg(names)+`::text[], `+w.Arg(bounds)+`::bigint[]) AS asked (rule, bound) USING (rule)`+w.String(), w.Args...)
	if err != nil {
		return err
	}
	var of groupOfRule
	var begun traffic.Time
	var hashes []int64
	var end *int64
	_, err = pgx.ForEachRow(rows, []any{&of.of, postgres.ScanTime(&begun), &hashes, &end}, func() error {
		of.groupID = a.idOf(of.of, begun)
		if c := ask[of]; c != nil {
			c.take(hashes, end)
		}
		return nil
	})
	return err
}
