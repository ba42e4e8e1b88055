package detectors

import (
	"math/bits"

	"github.com/weirhq/weir/traffic"
)

// lookAhead is how many keys are looked up together, at most.
const lookAhead = 64

// Record is one record of the keyed log and when it was appended.
type Record struct {
	Appended traffic.Time
	Keyed    Keyed
}

// foreseen is what is known of an event's key under one of its rules before the event is folded. A key of form keyText is
// not.
type foreseen struct {
	print   Fingerprint
	missing int32
	known   bool
	at      int32 // where in its sub-table the key probably stands
}

// forecast is of the records that are folded next: for each of the rules of each, what is foreseen.
type forecast struct {
	rules  []foreseen
	ends   []int // in rules, of each record
	spots  []*slot
	loaded uint64
}

// FoldAll folds records in order, as Fold does one by one, and appends what they caused to out. It stops at the first
// error and returns how many records were folded before it. It is faster than Fold: the memory that a few dozen records
// will need is asked for together, before the first of them is folded.
func (p *Partition) FoldAll(records []Record, out []Hit) (folded int, hits []Hit, err error) {
	for folded < len(records) {
		group := records[folded:min(folded+lookAhead, len(records))]
		p.foresee(group)
		start := 0
		for i := range group {
			p.known, start = p.forecast.rules[start:p.forecast.ends[i]], p.forecast.ends[i]
			out, err = p.Fold(group[i].Appended, &group[i].Keyed, out)
			p.known = nil
			if err != nil {
				return folded, out, err
			}
			folded++
		}
	}
	return folded, out, nil
}

// foresee computes the keys of records, and loads what their windows lie in: first the places of all of them, then the
// slots, then the blocks of logs, so that within each of the three steps nothing waits for anything.
func (p *Partition) foresee(records []Record) {
	f := &p.forecast
	f.rules, f.ends, f.spots = f.rules[:0], f.ends[:0], f.spots[:0]
	for i := range records {
		k := &records[i].Keyed
		p.keys = p.keys[:0]
		bindings := p.routings[k.Version]
		for _, r := range k.Rules {
			if k.Kind != KeyedEvent || r >= len(bindings) || bindings[r].lineage.form == keyText {
				f.rules = append(f.rules, foreseen{})
				continue
			}
			key, missing := p.key(k, &bindings[r])
			x := foreseen{print: key, missing: int32(missing), known: true}
			if cells := &bindings[r].lineage.cells; cells.n > 0 {
				var s *slot
				s, x.at = cells.spot(key)
				f.spots = append(f.spots, s)
			}
			f.rules = append(f.rules, x)
		}
		f.ends = append(f.ends, len(f.rules))
	}
	f.loaded += p.ledger.peek(f.spots)
}

// peek loads slots, and then what they refer to. What is loaded has no meaning; it is returned so that the loads are made.
func (l *ledger) peek(spots []*slot) (sum uint64) {
	for _, s := range spots {
		sum += s.b
	}
	for _, s := range spots {
		if s.b&(cellKept|cellFar|cellBlock) == cellBlock {
			sum += l.arena.peek(uint32(s.b&cellIndex), uint32(s.b>>32&0xffff))
		}
	}
	return sum
}

// spot is the slot in which a key probably lies, and its index, without a look at it. Look-ups of several keys in a row
// wait for memory together, where updates, each of which branches on what it finds, would wait one after another.
func (t *table) spot(key Fingerprint) (s *slot, at int32) {
	sub := t.sub(key.Hi)
	home := sub.homeOf(key.Hi)
	found := sub.matches(home, tagOf(key.Lo))
	i := min(home+bits.TrailingZeros64(found|1<<15), len(sub.slots)-1)
	return &sub.slots[i], int32(i)
}

// peek loads the first and the last of n words at a ref, should there be such a place: the ref may be none.
func (a *arena) peek(ref, n uint32) uint64 {
	if ref/pageWords >= uint32(len(a.pages)) {
		return 0
	}
	words, at := a.pages[ref/pageWords].words, ref%pageWords
	if words == nil { // a spare page
		return 0
	}
	return words[at] + words[min(at+max(n, 1), pageWords)-1]
}
