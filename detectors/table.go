package detectors

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// table holds the cells of one lineage by fingerprint, in order: every walk goes by (Hi, Lo), whatever the order of
// arrival, so all that is done along a walk is a function of the keys alone.
//
// It is a directory of sub-tables by the leading bits of the fingerprint (extendible hashing: Fagin et al., 1979), each an
// ordered linear-probing table (Amble and Knuth, 1974): slots stand in order of fingerprint, each at or after its home.
// Sub-tables grow by about an eighth, one at a time, and split in two at 1024 slots, so nothing pauses and the load is
// between 3/4 and 7/8 at any size, and not below 0.7 after a restore: slots of 32 bytes and two more cost 39 to 46 bytes a
// key. A look-up compares sixteen tags at once and then, nearly always, one slot: it has no branch that depends on how far a
// key stands from its home, so a processor fetches the slots of several look-ups at a time.
//
// Keys are fingerprints under a secret, so nobody can aim at one place of it.
type table struct {
	dir   []*subtable // by the leading depth bits
	depth uint8
	n     int
	epoch uint32 // of the newest snapshot; sub-tables of an older one are still to be written
	// A snapshot under way sets touch, which is called for a sub-table that it has not written yet, before the first change
	// to that; and heavy, which reports whether a sub-table is too much to be written at once.
	touch func(*subtable)
	heavy func(*subtable) bool
}

type slot struct {
	hi, lo uint64
	cell
}

type subtable struct {
	slots []slot
	tags  []uint8 // of each slot, 0 when it is empty, and tagsAhead zeros
	past  []uint8 // of each slot: the events that its key had before it was evicted and came back, as ghosts tells
	n     int32
	home  uint32 // homes are the first slots; the rest takes what is pushed beyond
	epoch uint32
	depth uint8  // how many leading bits its keys share
	from  uint64 // the bits, at the top
}

const (
	leastSlots = 8
	mostSlots  = 1024
)

// slotSizes are what sub-tables may have: the allocator's own sizes, 32 bytes a slot.
func slotSizes() [32]int {
	return [32]int{
		8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 84, 96, 108, 128, 152, 168, 192, 216, 256, 296, 340, 384, 448, 512,
		576, 680, 768, 896, mostSlots,
	}
}

// sizeFor is the size for n keys with room to grow, at least atLeast.
func sizeFor(n, atLeast int) int {
	for _, size := range slotSizes() {
		if size >= atLeast && n*6 <= size*5 {
			return size
		}
	}
	return mostSlots
}

func newSubtable(size int, depth uint8, from uint64, epoch uint32) *subtable {
	return &subtable{
		slots: make([]slot, size), tags: make([]uint8, size+tagsAhead), past: make([]uint8, size),
		home: uint32(size - size/32 - 1), depth: depth, from: from, epoch: epoch,
	}
}

func (t *table) sub(hi uint64) *subtable { return t.dir[hi>>(64-t.depth)] }

// homeOf is where a key would stand if nobody else were there. It rises with the fingerprint.
func (s *subtable) homeOf(hi uint64) int {
	at, _ := bits.Mul64(hi<<s.depth, uint64(s.home))
	return int(at)
}

// tagsAhead is how many tags are compared at once.
const tagsAhead = 16

// tagOf is seven bits of the fingerprint that the key's home does not depend on, and a set bit.
func tagOf(lo uint64) uint8 { return uint8(lo) | 0x80 }

// matches has a bit set for each of the sixteen tags from index at on that may equal tag. The tag after an equal one may be
// taken for equal too: the slot decides.
func (s *subtable) matches(at int, tag uint8) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	pattern := uint64(tag) * ones
	window := s.tags[at : at+16 : at+16]
	a := binary.LittleEndian.Uint64(window) ^ pattern
	b := binary.LittleEndian.Uint64(window[8:]) ^ pattern
	a = (a - ones) &^ a & tops
	b = (b - ones) &^ b & tops
	const gather = 0x0002040810204081 // brings the top bits of eight bytes together, at the top
	return (a>>7*gather>>49&0xff | b>>7*gather>>49&0xff<<8)
}

// seek is the index of a key, or -1 if the table does not have it; find tells where such a key belongs.
func (s *subtable) seek(key Fingerprint) int {
	at := s.homeOf(key.Hi)
	for found := s.matches(at, tagOf(key.Lo)); found != 0; found &= found - 1 {
		i := at + bits.TrailingZeros64(found)
		if i >= len(s.slots) {
			break
		}
		if e := &s.slots[i]; e.lo == key.Lo && e.hi == key.Hi {
			return i
		}
	}
	if s.tags[at+tagsAhead-1] == 0 {
		return -1
	}
	if i, found := s.find(key); found {
		return i
	}
	return -1
}

// holds reports whether a key stands at an index.
func (s *subtable) holds(at int, key Fingerprint) bool {
	if uint(at) >= uint(len(s.slots)) {
		return false
	}
	e := &s.slots[at]
	return e.lo == key.Lo && e.hi == key.Hi && e.b != 0
}

// find is the index of the key, or of the slot before which it belongs.
func (s *subtable) find(key Fingerprint) (at int, found bool) {
	for at = s.homeOf(key.Hi); at < len(s.slots); at++ {
		e := &s.slots[at]
		if e.b == 0 || e.hi > key.Hi {
			return at, false
		}
		if e.hi == key.Hi && e.lo >= key.Lo {
			return at, e.lo == key.Lo
		}
	}
	return at, false
}

// guess is the slot in which a key probably lies, and its index, without a look at it. Look-ups of several keys in a row
// wait for memory together, where updates, each of which branches on what it finds, would wait one after another.
func (t *table) guess(key Fingerprint) (s *slot, at int32) {
	sub := t.sub(key.Hi)
	home := sub.homeOf(key.Hi)
	found := sub.matches(home, tagOf(key.Lo))
	i := min(home+bits.TrailingZeros64(found|1<<15), len(sub.slots)-1)
	return &sub.slots[i], int32(i)
}

// get is the slot of a key, or nil. The caller may change its cell: a snapshot under way has written it before.
func (t *table) get(key Fingerprint) *slot {
	if t.n == 0 {
		return nil
	}
	s := t.sub(key.Hi)
	at := s.seek(key)
	if at < 0 {
		return nil
	}
	if part := t.touched(s, key); part != s { // cut
		s, at = part, part.seek(key)
	}
	return &s.slots[at]
}

// touched makes the sub-table s of a key ready to be changed: a snapshot under way writes it first. A heavy one is split
// before, and only the part with the key is written. It returns the sub-table of the key now.
func (t *table) touched(s *subtable, key Fingerprint) *subtable {
	if s.epoch == t.epoch {
		return s
	}
	for t.n>>s.depth >= leastSlots && t.heavy(s) { // parts have as many keys in the mean, so the directory stays small
		t.split(s)
		s = t.sub(key.Hi)
	}
	t.touch(s)
	s.epoch = t.epoch
	return s
}

// put is the slot of a key, which is added if need be: then fresh is where its past is to be noted, nil otherwise, and the
// caller must fill its empty cell. guess is where in its sub-table the key probably stands; a wrong one costs time only.
func (t *table) put(key Fingerprint, guess int32) (to *slot, fresh *uint8) {
	if t.n == 0 {
		t.dir, t.depth = []*subtable{newSubtable(leastSlots, 0, 0, t.epoch)}, 0
	}
	for {
		s := t.touched(t.sub(key.Hi), key)
		if s.holds(int(guess), key) {
			return &s.slots[guess], nil
		}
		if at := s.seek(key); at >= 0 {
			return &s.slots[at], nil
		}
		at, _ := s.find(key)
		if hole := s.firstEmpty(at); hole >= 0 && int(s.n) < len(s.slots)*7/8 {
			copy(s.slots[at+1:hole+1], s.slots[at:hole])
			copy(s.tags[at+1:hole+1], s.tags[at:hole])
			copy(s.past[at+1:hole+1], s.past[at:hole])
			s.slots[at], s.tags[at], s.past[at] = slot{hi: key.Hi, lo: key.Lo}, tagOf(key.Lo), 0
			s.n++
			t.n++
			return &s.slots[at], &s.past[at]
		}
		t.grow(s)
	}
}

// firstEmpty is the index of the first empty slot from at on, or -1.
func (s *subtable) firstEmpty(at int) int {
	if i := bytes.IndexByte(s.tags[at:len(s.slots)], 0); i >= 0 {
		return at + i
	}
	return -1
}

// remove empties the slot at an index and lets those after it move back towards their homes.
func (s *subtable) remove(at int) {
	next := at + 1
	for next < len(s.slots) && s.slots[next].b != 0 && s.homeOf(s.slots[next].hi) < next {
		next++
	}
	copy(s.slots[at:next-1], s.slots[at+1:next])
	copy(s.tags[at:next-1], s.tags[at+1:next])
	copy(s.past[at:next-1], s.past[at+1:next])
	s.slots[next-1], s.tags[next-1], s.past[next-1] = slot{}, 0, 0
	s.n--
}

// drop forgets a key.
func (t *table) drop(key Fingerprint) {
	if t.get(key) != nil {
		s := t.sub(key.Hi)
		s.remove(s.seek(key))
		t.n--
		t.shrink(s)
	}
}

// keyRange is the keys that a walk visits: in order, from a fingerprint to an upper word, at most limit.
type keyRange struct {
	from  Fingerprint
	to    uint64
	limit int
}

// walk visits the keys of a range in order. Where visit returns true it calls onRemove and deletes the key. It returns how
// many keys it visited and the first key that it did not, or done when there is none.
//
// A visit changes nothing, so a walk under a snapshot has only those sub-tables written in which it deletes. visit may be
// called twice for a key that is deleted.
func (t *table) walk(w keyRange, visit func(s *slot, past uint8) (remove bool), onRemove func(*slot)) (next Fingerprint, visited int, done bool) {
	for t.n > 0 {
		s := t.sub(w.from.Hi)
		n, left, due := t.walkSub(s, w, visit, onRemove)
		visited += n
		w.limit -= n
		if due {
			w.from = left.key()
			t.touched(s, w.from)
			continue
		}
		first, span := t.dirRange(s)
		if left != nil {
			next = left.key()
		}
		t.shrink(s)
		switch {
		case left != nil:
			return next, visited, false
		case t.n == 0 || first+span >= 1<<t.depth:
			return Fingerprint{}, visited, true
		}
		w.from = Fingerprint{Hi: uint64(first+span) << (64 - t.depth)}
		if w.from.Hi > w.to {
			return w.from, visited, false
		}
	}
	return Fingerprint{}, visited, true
}

// walkSub is walk within a sub-table. left is the first slot that was not visited; or, with due, one that is to be deleted
// once the snapshot under way has written the sub-table.
func (t *table) walkSub(s *subtable, w keyRange, visit func(*slot, uint8) bool, onRemove func(*slot)) (visited int, left *slot, due bool) {
	at, _ := s.find(w.from)
	for at < len(s.slots) {
		switch e := &s.slots[at]; {
		case e.b == 0:
			at++
		case visited == w.limit || e.hi > w.to:
			return visited, e, false
		case !visit(e, s.past[at]):
			visited++
			at++
		case s.epoch != t.epoch:
			return visited, e, true
		default:
			visited++
			onRemove(e)
			s.remove(at)
			t.n--
		}
	}
	return visited, nil, false
}

func (s *slot) key() Fingerprint { return Fingerprint{s.hi, s.lo} }
