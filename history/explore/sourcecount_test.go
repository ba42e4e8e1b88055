package explore

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/weirhq/weir/history/sums"
)

// hours are the hashes of the sources of a rule in each hour.
type hours [][]int64

// newHours has so many hours with so many of all sources each.
func newHours(rnd *rand.Rand, n, each, all int) hours {
	pool := make([]int64, all)
	for i := range pool {
		pool[i] = int64(rnd.Uint64())
	}
	out := make(hours, n)
	for i := range out {
		for range each {
			at := rnd.IntN(len(pool))
			out[i] = append(out[i], pool[at])
			if each == all {
				out[i][len(out[i])-1] = pool[len(out[i])-1]
			}
		}
		slices.Sort(out[i])
		out[i] = slices.Compact(out[i])
	}
	return out
}

func (h hours) different() int64 {
	all := slices.Concat(h...)
	slices.Sort(all)
	return int64(len(slices.Compact(all)))
}

// told is what the sums of the hours say before their hashes are read, of which the last hours have none and are read from rows.
func (h hours) told(fresh int) *sourceCount {
	c := &sourceCount{}
	for _, hashes := range h[:len(h)-fresh] {
		c.add(&sourceCount{told: int64(len(hashes)), most: int64(len(hashes))})
	}
	for _, hashes := range h[len(h)-fresh:] {
		c.add(&sourceCount{fresh: hashes})
	}
	return c
}

// read gives the hashes that the sums have up to a bound.
func (h hours) read(c *sourceCount, fresh int, bound int64) (read int) {
	for _, hashes := range h[:len(h)-fresh] {
		kept := hashes[:min(len(hashes), sums.Hashes)]
		var end *int64
		if len(kept) < len(hashes) {
			end = &kept[len(kept)-1]
		}
		upTo, found := slices.BinarySearch(kept, bound)
		if found {
			upTo++
		}
		c.take(kept[:upTo], end)
		read += upTo
	}
	return read
}

// However sources are spread over hours, their number is counted or about right, and not more is read than is said.
func TestCount(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		hours, each, all int
		fresh            int
		rules            int // so many of the kind at once
		exact            bool
		off              float64 // at most, a share
		most             int     // hashes that are read at most of each, about
	}{
		"one small hour":                     {hours: 1, each: 200, all: 1000, exact: true, rules: 1, most: 200},
		"one hour of as many as it keeps":    {hours: 1, each: 256, all: 256, exact: true, rules: 1, most: 256},
		"one great hour":                     {hours: 1, each: 10_000, all: 1 << 30, off: 0.25, rules: 1, most: 256},
		"many small hours":                   {hours: 700, each: 250, all: 1 << 30, exact: true, rules: 1, most: 700 * 250},
		"many small hours of many rules":     {hours: 300, each: 250, all: 1 << 20, off: 0.1, rules: 20, most: 3 * mostSampled},
		"few who are always there":           {hours: 300, each: 250, all: 250, exact: true, rules: 20, most: 300 * 300},
		"many who are always there":          {hours: 300, each: 5000, all: 5000, off: 0.25, rules: 5, most: 300 * 256},
		"great hours that have nothing else": {hours: 300, each: 3000, all: 1 << 30, off: 0.1, rules: 20, most: 2 * mostSampled},
		"half of them from rows":             {hours: 40, each: 1500, all: 5000, fresh: 20, off: 0.25, rules: 3, most: 2 * mostSampled},
		"all from rows":                      {hours: 5, each: 1500, all: 5000, fresh: 5, exact: true, rules: 1},
		"very many groups":                   {hours: 24, each: 2000, all: 1 << 30, off: 0.2, rules: 600, most: 3 * leastSampled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(7, uint64(len(name))))
			kinds := make([]hours, min(of.rules, 20)) // of more there are copies
			for i := range kinds {
				kinds[i] = newHours(rnd, of.hours, of.each, min(of.all, of.hours*of.each*8))
			}
			sources, which := map[groupOfRule]*sourceCount{}, map[*sourceCount]hours{}
			for i := range of.rules {
				c := kinds[i%len(kinds)].told(of.fresh)
				sources[groupOfRule{of: strconv.Itoa(i)}], which[c] = c, kinds[i%len(kinds)]
			}
			read := 0
			err := count(sources, func(ask map[groupOfRule]*sourceCount) error {
				for _, c := range ask {
					beyond := c.bound // another group of the rule may want more
					if rnd.IntN(2) == 0 && beyond < math.MaxInt64-math.MaxInt64/8 {
						beyond += math.MaxInt64 / 64
					}
					which[c].read(c, of.fresh, beyond)
					read += len(c.read)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if each := read / of.rules; float64(each) > 1.7*float64(of.most) {
				t.Errorf("%d hashes of each are read, want about %d at most", each, of.most)
			}
			for _, c := range sources {
				got, about := c.number()
				want := which[c].different()
				if about == of.exact || of.exact && got != want || math.Abs(float64(got-want)) > of.off*float64(want) {
					t.Errorf("%d, estimated: %t; want %d, estimated: %t", got, about, want, !of.exact)
				}
			}
		})
	}
}

// An estimate is neither less than the sources of one hour nor more than those of all together.
func TestEstimatesAreBounded(t *testing.T) {
	t.Parallel()
	c := sourceCount{told: 900, most: 400, bound: boundOf(0.01), fresh: make([]int64, 10)}
	c.fresh[0] = math.MaxInt64
	if n, about := c.number(); n != 400 || !about {
		t.Errorf("%d, estimated: %t; want as many as one hour has", n, about)
	}
	c.read = []int64{math.MinInt64 + 1, math.MinInt64 + 2, math.MinInt64 + 3, math.MinInt64 + 4, math.MinInt64 + 5, math.MinInt64 + 6, math.MinInt64 + 7, math.MinInt64 + 8, math.MinInt64 + 9, math.MinInt64 + 10}
	if n, _ := c.number(); n != 910 {
		t.Errorf("%d, want as many as all have together", n)
	}
}
