package detectors

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// goodTable remembers the block subjects that the deployment knows to be good, by the newest day of event time that says so.
type goodTable struct {
	most   int // 0: no bound
	days   map[Fingerprint]int64
	perDay map[int64]int
}

const day = 24 * 60 * minute

// goodDays is for how many days a source stays known to be good.
const goodDays = int64(GoodKept / (24 * 60 * 60 * 1e9))

// goodShare is how many bytes of the partition's budget there are for each source that is remembered: one takes some 50 of them.
const goodShare = 2048

func newGoodTable(budget int64) goodTable {
	return goodTable{most: int(max(0, budget) / goodShare), days: map[Fingerprint]int64{}, perDay: map[int64]int{}}
}

// knows reports whether a subject is known to be good at an instant.
func (g *goodTable) knows(print Fingerprint, at traffic.Time) bool {
	on, ok := g.days[print]
	return ok && on >= floorDiv(at, day)-goodDays
}

// put notes that a subject is good on a day, and returns how many others were forgotten for it: those of the oldest day, of which
// it may itself be.
func (g *goodTable) put(print Fingerprint, on int64) (evicted int64) {
	before, known := g.days[print]
	if known && before >= on {
		return 0
	}
	if known {
		g.leave(before)
	}
	g.days[print] = on
	g.perDay[on]++
	if g.most == 0 || len(g.days) <= g.most {
		return 0
	}
	oldest := slices.Min(slices.Collect(maps.Keys(g.perDay)))
	if oldest == on { // all are of one day: who comes later is not remembered
		delete(g.days, print)
		g.leave(on)
		return 1
	}
	maps.DeleteFunc(g.days, func(_ Fingerprint, at int64) bool { return at == oldest })
	evicted = int64(g.perDay[oldest])
	delete(g.perDay, oldest)
	return evicted
}

func (g *goodTable) leave(on int64) {
	if g.perDay[on]--; g.perDay[on] == 0 {
		delete(g.perDay, on)
	}
}

// forget drops the days on which nobody is known to be good any more.
func (g *goodTable) forget(now traffic.Time) {
	oldest := floorDiv(now, day) - goodDays
	if len(g.perDay) == 0 || slices.Min(slices.Collect(maps.Keys(g.perDay))) >= oldest {
		return
	}
	maps.DeleteFunc(g.days, func(_ Fingerprint, on int64) bool { return on < oldest })
	maps.DeleteFunc(g.perDay, func(on int64, _ int) bool { return on < oldest })
}

// ordered are the subjects by their fingerprints.
func (g *goodTable) ordered() []Fingerprint {
	return slices.SortedFunc(maps.Keys(g.days), func(a, b Fingerprint) int { return cmp.Or(cmp.Compare(a.Hi, b.Hi), cmp.Compare(a.Lo, b.Lo)) })
}

// mark notes the subjects of an event that is known to be good.
func (t *trials) mark(k *Keyed, keys [][]traffic.KeyField) {
	on := floorDiv(k.Time, day)
	f := &t.p.fingerprints
	for _, key := range keys {
		print, missing, scratch := f.secret.binaryKey(f.scratch, &k.Identity, key)
		if f.scratch = scratch; missing == 0 {
			t.used = true
			t.p.counts.GoodEvicted += t.good.put(print, on)
		}
	}
}
