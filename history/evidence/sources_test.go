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
	for _, n := range []int{0, 1, maxSources, maxSources + 1, 2*maxSources - 1, 2 * maxSources, 2*maxSources + 1, 5 * maxSources / 2} {
		rnd := rand.New(rand.NewPCG(uint64(n), 1))
		var f found
		var all []sourceRow
		for range n { // few figures, so that nearly all are decided by the subject
			s := sourceRow{refused: rnd.Int64N(3), events: rnd.Int64N(3), subject: traffic.Subject(strconv.FormatInt(rnd.Int64(), 36)), blockable: rnd.IntN(2) == 0}
			all = append(all, s)
			f.addSource(&s)
		}
		f.keepSources()
		slices.SortFunc(all, func(a, b sourceRow) int { return compareSources(&a, &b) })
		if f.total != int64(n) || !slices.Equal(f.sources, all[:min(n, maxSources)]) {
			t.Errorf("of %d sources %d were kept of %d that were seen", n, len(f.sources), f.total)
		}
	}
}
