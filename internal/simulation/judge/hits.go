package judge

import (
	"cmp"
	"slices"

	"github.com/weirhq/weir/internal/oracle"
)

// Hit is a row of history's hits table.
type Hit struct {
	ID, Rule, Subject  string
	Lineage, Keyed     int
	Closed, Merged     bool
	First, Last, Count int64
}

// LateSum is a row of history's table of late events.
type LateSum struct {
	Rule                   string
	Lineage, Source, Keyed int
	Minute, Count          int64
}

// window names one window of one lineage.
type window struct {
	rule    string
	lineage int
	subject string
}

// arrivals are the events of one window in the order in which they came.
type arrivals struct {
	events []oracle.Event
	window int64
}

// ordered reports whether they came in the order of time, source partition and offset.
func (a *arrivals) ordered() bool {
	return slices.IsSortedFunc(a.events, func(x, y oracle.Event) int {
		return cmp.Or(cmp.Compare(x.Time, y.Time), cmp.Compare(x.Source, y.Source), cmp.Compare(x.Offset, y.Offset))
	})
}

// History judges what RECORD stored: the episodes of every window with their bounds and counts, nothing else, and the
// sums of late events. Where the events of a window came out of order, only whether it was over is asked: docs/DESIGN.md §4
// leaves the edges of such an episode open.
func (s *Stream) History(readings []Reading, rows []Hit, sums []LateSum) Verdict {
	var v Verdict
	windows, late := map[window]*arrivals{}, map[LateSum]int64{}
	for q := range readings {
		for i := range readings[q].accepted {
			s.count(&v, &readings[q].accepted[i], q, windows, late)
		}
	}
	got := map[window][]Hit{}
	for _, row := range rows {
		w := window{row.Rule, row.Lineage, row.Subject}
		got[w] = append(got[w], row)
		switch {
		case windows[w] == nil:
			v.say("hit %s of %v: no event is counted there", row.ID, w)
		case !row.Closed && !row.Merged:
			v.say("hit %s of %v is still open", row.ID, w)
		}
	}
	for w, a := range windows {
		judgeWindow(&v, w, a, got[w], s.Tight)
	}
	judgeLate(&v, late, sums)
	return v
}

func (s *Stream) count(v *Verdict, c *counted, q int, windows map[window]*arrivals, late map[LateSum]int64) {
	e := &s.Requests[c.Source][c.Offset]
	for _, i := range c.Rules {
		r := &s.Versions[c.Version][i]
		if c.late[i] {
			late[LateSum{Rule: r.ID, Lineage: r.Lineage, Source: c.Source, Keyed: q, Minute: c.at - c.at%minute}]++
			continue
		}
		subject, _ := e.subject(r)
		if slices.ContainsFunc(r.Key, func(field string) bool { return e.value(field) == "" }) {
			v.Seen.Grouped++
		}
		w := window{r.ID, r.Lineage, subject}
		if windows[w] == nil {
			windows[w] = &arrivals{window: r.Window}
		}
		windows[w].events = append(windows[w].events, oracle.Event{Time: c.Time, Source: c.Source, Offset: c.Offset, Limit: r.Limit})
	}
}

func judgeWindow(v *Verdict, w window, a *arrivals, rows []Hit, tight bool) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(h Hit) bool { return h.Merged })
	slices.SortFunc(rows, func(x, y Hit) int { return cmp.Compare(x.First, y.First) })
	want := oracle.Sliding(a.events, a.window, maxEpisode)
	if !a.ordered() {
		v.Seen.Disordered++
		if missed := tight && len(rows) == 0; (len(rows) > 0) != (len(want) > 0) && !missed {
			v.say("%v: %d episodes recorded, want %d", w, len(rows), len(want))
		}
		return
	}
	v.Seen.Episodes += len(want)
	got := make([]oracle.Episode, len(rows))
	for i, h := range rows {
		got[i] = oracle.Episode{First: h.First, Last: h.Last, Count: h.Count}
	}
	if tight {
		got = slices.DeleteFunc(got, func(e oracle.Episode) bool { return within(e, want) })
		want = nil // the rest is excused
	}
	if !slices.Equal(got, want) {
		v.say("%v: episodes %v recorded, want %v", w, got, want)
	}
}

// within reports whether an episode is one of those that should be, or a part of one.
func within(e oracle.Episode, want []oracle.Episode) bool {
	return slices.ContainsFunc(want, func(w oracle.Episode) bool { return w.First <= e.First && e.Last <= w.Last && e.Count <= w.Count })
}

func judgeLate(v *Verdict, want map[LateSum]int64, sums []LateSum) {
	got := map[LateSum]int64{}
	for _, sum := range sums {
		n := sum.Count
		sum.Count = 0
		got[sum] += n
	}
	for sum, n := range want {
		v.Seen.Late += int(n)
		if got[sum] != n {
			v.say("late events %+v: %d recorded, want %d", sum, got[sum], n)
		}
	}
	for sum, n := range got {
		if want[sum] == 0 {
			v.say("late events %+v: %d recorded, want none", sum, n)
		}
	}
}
