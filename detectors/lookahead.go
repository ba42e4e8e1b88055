package detectors

import (
	"math/bits"

	"github.com/weirhq/weir/traffic"
)

// lookAhead is how many keys are looked up together, at most.
const lookAhead = 32

// Record is one record of the keyed log and when it was appended.
type Record struct {
	Appended traffic.Time
	Keyed    Keyed
}

// FoldAll folds records in order, as Fold does one by one, and appends what they caused to out. It stops at the first
// error and returns how many records were folded before it. It is faster than Fold: the memory that a few dozen records
// will need is asked for together, before the first of them is folded.
func (p *Partition) FoldAll(records []Record, out []Hit) (folded int, hits []Hit, err error) {
	for folded < len(records) {
		group := records[folded:min(folded+lookAhead, len(records))]
		p.foresee(group)
		for i := range group {
			p.keys = append(p.keys[:0], p.foreseen[p.starts[i]:p.starts[i+1]]...)
			p.primed = true
			out, err = p.Fold(group[i].Appended, &group[i].Keyed, out)
			p.primed = false
			if err != nil {
				return folded, out, err
			}
			folded++
		}
	}
	return folded, out, nil
}

// foresee computes the keys of records, and loads what their windows lie in.
func (p *Partition) foresee(records []Record) {
	p.foreseen, p.starts, p.refs = p.foreseen[:0], append(p.starts[:0], 0), p.refs[:0]
	for i := range records {
		k := &records[i].Keyed
		p.keys = p.keys[:0]
		bindings := p.routings[k.Version]
		for _, r := range k.Rules {
			if k.Kind != KeyedEvent || r >= len(bindings) || bindings[r].lineage.form == keyText {
				continue
			}
			key, _ := p.key(k, &bindings[r])
			if cells := &bindings[r].lineage.cells; cells.n > 0 {
				p.refs = append(p.refs, cells.peek(key))
			}
		}
		p.foreseen = append(p.foreseen, p.keys...)
		p.starts = append(p.starts, len(p.foreseen))
	}
	for _, b := range p.refs {
		if b&(cellKept|cellFar|cellBlock) == cellBlock {
			p.peeked += p.ledger.arena.peek(uint32(b&cellIndex), uint32(b>>32&0xffff))
		}
	}
}

// peek loads the slot of a key without using it, and returns the second word of its cell. Look-ups of several keys in a
// row wait for memory together, where updates, each of which branches on what it finds, would wait one after another.
func (t *table) peek(key Fingerprint) uint64 {
	s := t.sub(key.Hi)
	at := s.homeOf(key.Hi)
	found := s.matches(at, tagOf(key.Lo))
	return s.slots[min(at+bits.TrailingZeros64(found|1<<15), len(s.slots)-1)].b
}

// peek loads the first and the last of n words at a ref, should there be such a place: the ref may be none. What is
// loaded has no meaning; it is returned so that the loads are made.
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
