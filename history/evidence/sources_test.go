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
		if f.total != int64(n) || !slices.Equal(f.sources, all[:min(n, most)]) {
			t.Errorf("of %d sources %d were kept of %d that were seen", n, len(f.sources), f.total)
		}
	}
}
