package history_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
)

// What gates refused is summed up by rule, block and minute, however often RECORD is given it, and a block is named
// with whom it held.
func TestWhatGatesRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	h := hitNumber(1)
	block := h.ID[:16]
	sum := func(n int, rule, block string, minute int, count, known int64) detectors.Hit {
		at := dawn.Add(time.Duration(minute) * time.Minute)
		return detectors.Hit{Format: detectors.HitFormat, Kind: detectors.KindRefused, ID: fmt.Sprint("refused-", n),
			Rule: rule, Block: block,
			Count: count, Known: known, First: at, Last: at.Add(time.Duration(n) * time.Second),
			Seen: at.Add(time.Minute), Source: n, Keyed: 3}
	}
	first, again, later := sum(1, h.Rule, block, 0, 5, 1), sum(2, h.Rule, block, 0, 7, 0), sum(3, h.Rule, block, 1, 2,
		2)
	unknown, several, other := sum(4, h.Rule, "00000000ffffffff", 1, 3, 0), sum(5, h.Rule, "", 2, 100, 0),
		sum(6, "other", block, 2, 9, 0)
	b.record(t, history.Live, h, first, again, first)
	b.record(t, history.Live, again, later, unknown, several, other)
	b.record(t, "replay/monday", sum(7, h.Rule, block, 0, 1000, 0))

	told := func(q history.RefusalQuery) (out []string) {
		t.Helper()
		rows, err := b.Refused(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			minute := int64(r.Minute.Std().Sub(dawn.Std()) / time.Minute)
			out = append(out, fmt.Sprint(minute, " ", r.Rule, " ", r.Block, ": ", r.Events, ", ", r.Known, " good, ",
				r.Subject, " ", r.Hit, " up to ", r.Latest.Std().Sub(dawn.Std())))
		}
		return out
	}
	held := string(h.BlockSubject) + " " + h.ID
	all := []string{
		"2 " + h.Rule + " : 100, 0 good,   up to 2m5s",
		"2 other " + block + ": 9, 0 good,   up to 2m6s", // no hit of that rule
		"1 " + h.Rule + " " + block + ": 2, 2 good, " + held + " up to 1m3s",
		"1 " + h.Rule + " 00000000ffffffff: 3, 0 good,   up to 1m4s",
		"0 " + h.Rule + " " + block + ": 12, 1 good, " + held + " up to 2s",
	}
	if got := told(history.RefusalQuery{Stream: history.Live}); !slices.Equal(got, all) {
		t.Errorf("got\n%q, want\n%q", got, all)
	}
	q := history.RefusalQuery{Stream: history.Live, Rule: h.Rule, Since: dawn, Until: dawn.Add(2 * time.Minute)}
	if got := told(q); !slices.Equal(got, all[2:]) {
		t.Errorf("of a rule, in a time: got\n%q, want\n%q", got, all[2:])
	}
	if n, err := b.CountRefused(t.Context(), q); err != nil || n != 3 {
		t.Errorf("%d sums, %v", n, err)
	}
	if sum, err := b.RefusedIn(t.Context(), q); err != nil || sum != (history.RefusedTotal{Events: 17, Known: 3,
		Blocks: 2, Latest: dawn.Add(64 * time.Second)}) {
		t.Errorf("in all %+v, %v", sum, err)
	}
	if sum, err := b.RefusedIn(t.Context(), history.RefusalQuery{Stream: history.Live, Rule: h.Rule,
		Blocks: []string{block, "none"}}); err != nil || sum.Events != 14 || sum.Blocks != 1 {
		t.Errorf("by a block %+v, %v", sum, err)
	}
	var paged []string
	next := history.RefusalQuery{Stream: history.Live, Limit: 2}
	for range 4 {
		rows, err := b.Refused(t.Context(), next)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			break
		}
		for i := range rows {
			paged = append(paged, fmt.Sprint(rows[i].Minute, rows[i].Rule, rows[i].Block))
			next.After = rows[i].Place()
		}
	}
	if len(paged) != len(all) || len(slices.Compact(slices.Clone(paged))) != len(all) {
		t.Errorf("page by page: %q", paged)
	}
	if sum, err := b.RefusedIn(t.Context(), history.RefusalQuery{Stream: history.Live, Rule: "nobody"}); err != nil ||
		sum != (history.RefusedTotal{Untold: true}) {
		t.Errorf("of a rule that has none: %+v, %v", sum, err)
	}
}

// Whoever writes to the log chooses the names of rules and blocks: each sum is on one page, and a block that is cut
// names nobody.
func TestRefusalsWithNamesThatSomebodyChose(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	h := hitNumber(1)
	b.record(t, history.Live, h)
	names := [][2]string{{"p", "q/r"}, {"p/q", "r"}, {h.Rule, h.ID[:5]}, {h.Rule, h.ID[:15]}, {h.Rule, h.ID},
		{"-", ""}, {"", "-"}}
	for i, name := range names {
		b.record(t, history.Live, detectors.Hit{
			Format: detectors.HitFormat, Kind: detectors.KindRefused, ID: fmt.Sprint("refused-", i), Rule: name[0],
			Block: name[1], Count: 1, First: dawn, Last: dawn, Seen: dawn, Keyed: 3,
		})
	}
	seen, q := map[[2]string]bool{}, history.RefusalQuery{Stream: history.Live, Limit: 1}
	for range len(names) + 1 {
		rows, err := b.Refused(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			if rows[i].Subject != "" || rows[i].Hit != "" {
				t.Errorf("%s %s names %s", rows[i].Rule, rows[i].Block, rows[i].Subject)
			}
			seen[[2]string{rows[i].Rule, rows[i].Block}], q.After = true, rows[i].Place()
		}
	}
	if len(seen) != len(names) {
		t.Errorf("one a page: %v", seen)
	}
}
