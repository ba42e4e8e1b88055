package detectors

import (
	"math/bits"
	"sort"
)

// tableLoader fills an empty table with keys that come in order and whose number is known: each sub-table is made once, of
// the size that it needs. By put, each of them would stand behind all that came before it, since a sub-table is laid out
// for keys from everywhere in its range, and be moved whenever it grows.
type tableLoader struct {
	table *table
	depth uint8  // of the sub-tables, unless their keys are crowded
	at    uint64 // the leading depth bits of the keys in batch
	batch []slot // the keys of the sub-table that is next
	past  []uint8
	n     int // keys added
}

// Sub-tables are made for more than half of this up to this many keys in the mean. Of hashes, none then gets more than fit
// into mostSlots, but with a chance below 10^-15.
const loadedMean = 640

// newTableLoader begins to fill t, which is empty, with n keys.
func newTableLoader(t *table, n int) *tableLoader {
	l := &tableLoader{table: t}
	for n>>l.depth > loadedMean {
		l.depth++
	}
	if n > 0 {
		t.dir, t.depth = make([]*subtable, 1<<l.depth), l.depth
		l.batch = make([]slot, 0, min(n, mostSlots))
	}
	return l
}

// add returns the cell of the next key, which is above all before. The caller must fill it before the next call. past is as
// in subtable.
func (l *tableLoader) add(key Fingerprint, past uint8) *cell {
	if at := key.Hi >> (64 - l.depth); at != l.at {
		l.flush(at)
	}
	l.n++
	l.batch = append(l.batch, slot{hi: key.Hi, lo: key.Lo})
	l.past = append(l.past, past)
	return &l.batch[len(l.batch)-1].cell
}

// finish makes the table whole.
func (l *tableLoader) finish() {
	if l.n > 0 {
		l.flush(1 << l.depth)
	}
}

// flush builds all sub-tables before the one whose keys begin with next.
func (l *tableLoader) flush(next uint64) {
	for ; l.at < next; l.at++ {
		l.build(l.batch, l.past, l.depth, l.at<<(64-l.depth))
		l.table.n += len(l.batch)
		l.batch, l.past = l.batch[:0], l.past[:0]
	}
}

// build makes a sub-table of slots whose keys begin with the first depth bits of from, or several, should the keys be
// crowded. It ends, because no more than densityMost keys share the bits that densityCheck looks at, and so many fit anywhere in a
// sub-table of mostSlots.
func (l *tableLoader) build(slots []slot, past []uint8, depth uint8, from uint64) {
	t := l.table
	s := newSubtable(sizeFor(len(slots), leastSlots), depth, from, t.epoch)
	if s.fill(slots, past); len(s.slots) > mostSlots {
		s = newSubtable(mostSlots, depth, from, t.epoch)
		s.fill(slots, past)
	}
	if len(s.slots) > mostSlots || len(slots) > mostSlots*7/8 {
		half := uint64(1) << (63 - depth)
		cut := sort.Search(len(slots), func(i int) bool { return slots[i].hi&half != 0 })
		l.build(slots[:cut], past, depth+1, from)
		l.build(slots[cut:], past[cut:], depth+1, from|half)
		return
	}
	for t.depth < depth {
		t.widen()
	}
	t.link(s)
}

// densityCheck tells the fingerprints of a table from bytes that were made up. A table splits a sub-table, and doubles its
// directory if need be, when more than densityMost keys share the sub-table's leading bits (it has 1024 slots, of which 33
// lie beyond the homes and take keys that are pushed on: it takes more than 33 keys to fill it to the end). Of n hashes, more than
// densityMost share the leading bits.Len(n)+2 with a chance below 2^-140; bytes that say so would split their table without
// end. With those refused, a directory has at most 8n entries.
type densityCheck struct {
	last [densityMost]uint64 // upper words of the last keys, in turn
	n    int
	bits int
	full bool
}

const densityMost = 32

// newDensityCheck begins a check of n keys.
func newDensityCheck(n int) *densityCheck { return &densityCheck{bits: bits.Len(uint(n)) + 2} }

// admit notes the next key, in ascending order. Once one is too many, full stays set.
func (c *densityCheck) admit(key Fingerprint) {
	at := c.n % densityMost
	c.full = c.full || c.n >= densityMost && (key.Hi^c.last[at])>>(64-c.bits) == 0
	c.last[at] = key.Hi
	c.n++
}
