package evidence

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// Of more sources than are kept, in any order, those are kept that go first, in order, and how many there were is known.
func TestSourcesAreKept(t *testing.T) {
	t.Parallel()
	const most = 100
	for n := range 12 * most {
		rnd := rand.New(rand.NewPCG(uint64(n), 1))
		f, other := ranking{most: most}, ranking{most: most}
		var all []sourceRow
		for range n { // few figures, so that nearly all are decided by the subject
			s := sourceRow{refused: rnd.Int64N(3), events: rnd.Int64N(3), subject: traffic.Subject(strconv.FormatInt(rnd.Int64(), 36)), blockable: rnd.IntN(2) == 0}
			all = append(all, s)
			into := &f
			if n%2 == 0 && rnd.IntN(3) == 0 { // another part, which is joined
				into = &other
			}
			into.total++
			into.add(&s)
		}
		other.keep()
		f.keep()
		f.join(&other)
		for range 3 {
			f.order(rnd.IntN(most + 10))
		}
		slices.SortFunc(f.sources[f.ordered:], func(a, b sourceRow) int { return compareSources(&a, &b) })
		slices.SortFunc(all, func(a, b sourceRow) int { return compareSources(&a, &b) })
		if f.total != int64(n) || !slices.EqualFunc(f.sources, all[:min(n, most)],
			func(a, b sourceRow) bool { return compareSources(&a, &b) == 0 }) {
			t.Errorf("of %d sources %d were kept of %d that were seen", n, len(f.sources), f.total)
		}
	}
}

// The first that a block can hold are asked about, however many it cannot hold go before them.
func TestFirstSourcesAreAsked(t *testing.T) {
	t.Parallel()
	for n := range 60 {
		rnd := rand.New(rand.NewPCG(uint64(n), 2))
		r := ranking{most: 1000}
		for range n {
			r.add(&sourceRow{refused: rnd.Int64N(5), subject: traffic.Subject(strconv.FormatInt(rnd.Int64(), 36)), blockable: rnd.IntN(3) == 0})
		}
		all := slices.Clone(r.sources)
		slices.SortFunc(all, func(a, b sourceRow) int { return compareSources(&a, &b) })
		all = slices.DeleteFunc(all, func(s sourceRow) bool { return !s.blockable })
		all = all[:min(len(all), 10)]
		places := r.ask(10)
		if len(places) != len(all) {
			t.Fatalf("%d of %d sources are asked about, want %d", len(places), n, len(all))
		}
		for i, place := range places {
			if s := r.sources[place]; s.subject != all[i].subject || !s.asked {
				t.Errorf("of %d sources the one at place %d is %+v, want %+v", n, i, s, all[i])
			}
		}
	}
}
