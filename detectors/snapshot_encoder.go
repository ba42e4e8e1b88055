package detectors

import (
	"container/heap"
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// SnapshotEncoder writes the state of a Partition as it was at BeginSnapshot, piece by piece: folding goes on between them. A
// part of the state that a fold is about to change is written just before it does: up to a thousand neighbouring keys, or
// fewer where they have long logs, so that a fold waits for some tens of microseconds, or for one key with a long log.
//
// The bytes come out in order and may be taken while the rest is not written yet. In memory are the bytes that were not taken,
// and those that folds had written ahead of their turn: at most the encoded state, once. They are one unit: the last four are
// a CRC-32C of all before. Equal states give equal bytes.
type SnapshotEncoder struct {
	p      *Partition // nil when all is written
	out    []byte     // in order, not yet taken
	crc    uint32     // of what was taken
	format int
	parts  []*snapshotPart
	gone   ghostWriter // the evicted keys at BeginSnapshot
	// The events of keys on their way to a limit at BeginSnapshot.
	approaches approachWriter
	goneWhole  bool // gone is written
	at         int  // part that Next writes
	size       int
}

// snapshotPart is one lineage in a snapshot under way.
type snapshotPart struct {
	e       *SnapshotEncoder
	lineage *lineage
	keys    int
	begun   bool   // its number of keys is out
	walked  bool   // no sub-table is left to write
	turn    bool   // the sub-table that is being written is the next in order
	next    uint64 // top bits of the next sub-table; all before are written
	ahead   chunks // written before their turn
	scratch []byte
}

// chunk is the encoded keys of one sub-table, written ahead of its turn; from orders chunks.
type chunk struct {
	from uint64
	b    []byte
}

// chunks is a heap, the least first.
type chunks []chunk

var _ heap.Interface = (*chunks)(nil)

func (c chunks) Len() int           { return len(c) }
func (c chunks) Less(i, j int) bool { return c[i].from < c[j].from }
func (c chunks) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }

func (c *chunks) Push(x any) { *c = append(*c, x.(chunk)) }

func (c *chunks) Pop() any {
	last := len(*c) - 1
	x := (*c)[last]
	(*c)[last] = chunk{}
	*c = (*c)[:last]
	return x
}

// BeginSnapshot starts a snapshot of the state as it is now. The head (sources, lineages, sums of events left out) is written
// at once. A snapshot that is still under way is given up.
func (p *Partition) BeginSnapshot() *SnapshotEncoder {
	if p.snapshot != nil {
		p.snapshot.GiveUp()
	}
	used := lineagesOf(&p.keys, &p.uncounted, p.watermark.at)
	e := &SnapshotEncoder{p: p, format: formatNow(p), gone: ghostWriter{ghosts: p.keys.ledger.gone.share()}, approaches: p.keys.approaches.share()}
	e.out = e.head(used)
	for _, l := range used {
		part := &snapshotPart{e: e, lineage: l, keys: l.cells.n, walked: l.cells.n == 0}
		e.parts = append(e.parts, part)
		if !part.walked {
			l.cells.epoch++
			l.cells.touch, l.cells.heavy = part.capture, part.heavy
		}
	}
	e.size = len(e.out)
	p.snapshot = e
	return e
}

// Next writes about budget bytes more, at least one piece of up to a thousand keys while there is one, and reports whether
// all is written. It must not be called while the partition folds.
func (e *SnapshotEncoder) Next(budget int) (done bool) {
	for enough := len(e.out) + budget; e.p != nil && len(e.out) < enough; {
		if e.at == len(e.parts) {
			if !e.nextTail() {
				continue
			}
			e.detach()
			e.out = binary.BigEndian.AppendUint32(e.out, crc32.Update(e.crc, castagnoli, e.out))
		} else if e.parts[e.at].step() {
			e.at++
		}
	}
	return e.p == nil
}

// nextTail writes some of what comes after the keys, a page of the evicted keys or some events of keys on their way to a limit, and reports
// whether that was the last of it.
func (e *SnapshotEncoder) nextTail() (whole bool) {
	before := len(e.out)
	switch {
	case e.format > 2 && !e.goneWhole:
		e.out, e.goneWhole = e.gone.appendNext(e.out)
		whole = e.goneWhole && e.format <= trialsSnapshotFormat
	case e.format > trialsSnapshotFormat:
		e.out, whole = e.approaches.appendNext(e.out)
	default:
		whole = true
	}
	e.size += len(e.out) - before
	return whole
}

// step writes what is next in order, and reports whether the part is whole.
func (s *snapshotPart) step() (done bool) {
	t := &s.lineage.cells
	switch {
	case !s.begun:
		s.begun = true
		s.e.out = binary.AppendUvarint(s.e.out, uint64(s.keys))
	case len(s.ahead) > 0 && (s.walked || s.ahead[0].from < s.next):
		s.e.out = append(s.e.out, heap.Pop(&s.ahead).(chunk).b...)
	case s.walked:
		return true
	case t.n == 0: // all were changed since, and so written
		s.walked = true
	default:
		s.turn = true
		sub := t.touched(t.sub(s.next), Fingerprint{Hi: s.next})
		s.turn = false
		first, span := t.dirRange(sub)
		s.walked = first+span >= 1<<t.depth
		s.next = uint64(first+span) << (64 - t.depth)
	}
	return false
}

// capture writes a sub-table as it is.
func (s *snapshotPart) capture(sub *subtable) {
	if s.turn { // nothing that comes before it is ahead: all of that is out
		before := len(s.e.out)
		s.e.out = s.lineage.appendSlots(s.e.out, sub, s.e.format)
		s.e.size += len(s.e.out) - before
		return
	}
	s.scratch = s.lineage.appendSlots(s.scratch[:0], sub, s.e.format)
	heap.Push(&s.ahead, chunk{sub.from, slices.Clone(s.scratch)})
	s.e.size += len(s.scratch)
}

// heaviest is how many out-of-slot bytes the keys of a sub-table may have that is written at once.
const heaviest = 256 << 10

// heavy reports whether the keys of a sub-table have more out-of-slot bytes than a fold should wait for.
func (s *snapshotPart) heavy(sub *subtable) bool {
	n := int64(0)
	for i := range sub.slots {
		if sub.slots[i].b&(cellOffender|cellOverflow|cellBlock) == 0 {
			continue
		}
		c, k := s.lineage.contents(&sub.slots[i])
		n += s.lineage.algorithm.outOfSlotBytes(c)
		if k != nil {
			n += k.cost
		}
		if n > heaviest {
			return true
		}
	}
	return false
}

// detach ends the encoder's hold on the partition.
func (e *SnapshotEncoder) detach() {
	for _, part := range e.parts {
		part.lineage.cells.touch, part.lineage.cells.heavy = nil, nil
	}
	e.p.snapshot, e.p, e.parts = nil, nil, nil
}

// GiveUp ends a snapshot that will not be finished. It may be called at any time, more than once.
func (e *SnapshotEncoder) GiveUp() {
	if e.p == nil {
		return
	}
	for _, part := range e.parts {
		for _, sub := range part.lineage.cells.dir {
			sub.epoch = part.lineage.cells.epoch
		}
	}
	e.detach()
	e.out, e.gone, e.approaches = nil, ghostWriter{}, approachWriter{}
}

// Size is how many bytes of keys and head are written so far, in their turn or ahead of it.
func (e *SnapshotEncoder) Size() int { return e.size }

// Written is how many bytes Take would give.
func (e *SnapshotEncoder) Written() int { return len(e.out) }

// Take returns the bytes written since the last call, in order; once Next has reported done, the rest. Later bytes are written
// into the memory of into, which may be nil.
func (e *SnapshotEncoder) Take(into []byte) []byte {
	taken := e.out
	e.crc = crc32.Update(e.crc, castagnoli, taken)
	e.out = into[:0]
	return taken
}
