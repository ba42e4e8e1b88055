package exactness

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/oracle"
)

// stir is what the order in which the events of an episode came may have done to it.
//
// A sliding log of a source that is over keeps its newest events, and drops the others once the newest of all is over.
// What comes later and lies among those is judged by what is left (docs/windows.md).
type stir int

const (
	calm   stir = iota // nothing: it has one hit
	mixed              // parts of it may not have been seen: one hit or more
	hidden             // all of it may not have been seen: any number of hits
)

// stirred says what may have become of an episode. An event that is over, and is not seen to be, has in its window one
// that was dropped and one that came later. What was kept then is newer than what was dropped, so more events than are
// kept had come, all of the episode's windows or newer. Where nothing of the episode was seen, the newest of them is
// of a later one.
//
// Where it was seen in parts, these are a window apart. A part that was lost between them by less disorder than a
// window would be told as wrong all the same: that needs more than any load does, and else a quiet run would be judged
// less strictly.
func (w *window) stirred(e *oracle.Episode) (found stir) {
	size, kept := w.size.Microseconds(), w.kept()
	newest, newer := int64(math.MinInt64), 0
	for i := range w.events {
		at := w.events[i].Time
		if at <= e.First-size {
			continue
		}
		switch {
		case at > e.Last || newer <= kept:
		case newest >= e.Last+size:
			return hidden
		case newest >= at+size:
			found = mixed
		}
		newest, newer = max(newest, at), newer+1
	}
	return found
}

// kept is how many events a log of the source keeps at least.
func (w *window) kept() int {
	least := math.MaxInt - 1
	for i := range w.events {
		least = min(least, w.events[i].Limit)
	}
	return max(keptLeast, least+1)
}

// each compares a source whose events came through several partitions: every hit lies within an episode, and every
// episode has one, but for those that were stirred. What these lack shows in another hit of the source, which says
// that it is a bound.
func (v *Hits) each(name string, hits []Hit, w expected) {
	lost, extra, bound := 0, 0, false
	found := make([]int, len(w.episodes))
	for i := range hits {
		bound = bound || hits[i].AtLeast
		if at := w.around(&hits[i]); at >= 0 {
			found[at]++
		} else {
			extra++
		}
	}
	for i, n := range found {
		if n == 0 && (w.stirred[i] < hidden || !bound) {
			lost++
		}
		if n > 1 && (w.stirred[i] < mixed || !bound) {
			extra += n - 1
		}
	}
	if lost+extra > 0 {
		v.Lost += lost
		v.Extra += extra
		v.wrong("%s: %d episodes, the oracle has %d: %s", name, len(hits), len(w.episodes), w.beside(hits))
	}
}

// around is the episode that a hit lies in, -1 where there is none.
func (w *expected) around(h *Hit) int {
	return slices.IndexFunc(w.episodes, func(e oracle.Episode) bool {
		return e.First <= h.First.UnixMicro() && h.Last.UnixMicro() <= e.Last
	})
}

// listed bounds how many hits and episodes of one source are told.
const listed = 40

// beside tells of the hits of a source and of the oracle's episodes, so that a failure explains itself when the stream
// is gone.
func (w *expected) beside(hits []Hit) string {
	var text strings.Builder
	text.WriteString("hits")
	for i := range hits[:min(len(hits), listed)] {
		h := &hits[i]
		tell(&text, h.First, h.Last, h.Events)
		if h.AtLeast {
			text.WriteString(" at_least")
		}
	}
	text.WriteString(" | oracle")
	for i := range w.episodes[:min(len(w.episodes), listed)] {
		e := &w.episodes[i]
		tell(&text, time.UnixMicro(e.First), time.UnixMicro(e.Last), e.Count)
		text.WriteString([...]string{calm: "", mixed: " mixed", hidden: " hidden"}[w.stirred[i]])
	}
	return text.String()
}

func tell(text *strings.Builder, first, last time.Time, events int64) {
	const clock = "15:04:05.000000"
	fmt.Fprintf(text, " %s..%s %d", first.UTC().Format(clock), last.UTC().Format(clock), events)
}
