package detectors

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// SnapshotEncoder writes the state of a Partition as it was at BeginSnapshot, in slices: folding goes on between them. A
// part of the state that a fold is about to change is written just before it does: up to a thousand neighbouring keys, or
// fewer where much lies beside them, so that a fold waits for some tens of microseconds, or for one key with a long log.
type SnapshotEncoder struct {
	p     *Partition // nil when all is written
	head  []byte
	parts []*snapshotPart
	gone  ghosts // as they were
	at    int    // part that Next writes
	size  int
}

// snapshotPart is one lineage in a snapshot under way.
type snapshotPart struct {
	e       *SnapshotEncoder
	lineage *lineage
	keys    int
	next    uint64 // top bits of the next sub-table
	done    bool
	chunks  []chunk
	scratch []byte
}

// chunk is the keys of what was one sub-table; from orders chunks.
type chunk struct {
	from uint64
	b    []byte
}

// BeginSnapshot starts a snapshot of the state as it is now. The head (sources, late sums, lineages) is written at once.
// One snapshot is under way at a time: one that was not finished is given up.
func (p *Partition) BeginSnapshot() *SnapshotEncoder {
	if p.write != nil {
		p.write.GiveUp()
	}
	used := p.usedLineages()
	e := &SnapshotEncoder{p: p, head: p.head(used), gone: p.ledger.gone.share()}
	for _, l := range used {
		part := &snapshotPart{e: e, lineage: l, keys: l.cells.n, done: l.cells.n == 0}
		e.parts = append(e.parts, part)
		if !part.done {
			l.cells.epoch++
			l.cells.touch, l.cells.heavy = part.capture, part.heavy
		}
	}
	e.size = len(e.head) + e.gone.size()
	p.write = e
	return e
}

// Next writes about budget bytes more, at least one slice of up to a thousand keys while there is one, and reports whether
// all is written. It must not be called while the partition folds.
func (e *SnapshotEncoder) Next(budget int) (done bool) {
	for enough := e.size + budget; e.p != nil && e.size < enough; {
		if e.at == len(e.parts) {
			e.detach()
			break
		}
		if part := e.parts[e.at]; part.done {
			e.at++
		} else {
			part.step()
		}
	}
	return e.p == nil
}

// step writes the next sub-table, unless a fold has seen to that.
func (s *snapshotPart) step() {
	t := &s.lineage.cells
	if t.n == 0 {
		s.done = true // all were changed since, and so written
		return
	}
	sub := t.touched(t.sub(s.next), Fingerprint{Hi: s.next})
	first, span := t.place(sub)
	if first+span >= 1<<t.depth {
		s.done = true
		return
	}
	s.next = uint64(first+span) << (64 - t.depth)
}

// capture writes a sub-table as it is.
func (s *snapshotPart) capture(sub *subtable) {
	b := s.scratch[:0]
	for i := range sub.slots {
		if sub.slots[i].b != 0 {
			b = s.lineage.appendSlot(b, &sub.slots[i], sub.past[i])
		}
	}
	s.scratch = b
	s.chunks = append(s.chunks, chunk{sub.from, slices.Clone(b)})
	s.e.size += len(b)
}

// heaviest is how many bytes may lie beside the keys of a sub-table that is written at once.
const heaviest = 256 << 10

// heavy reports whether more lies beside the keys of a sub-table than a fold should wait for.
func (s *snapshotPart) heavy(sub *subtable) bool {
	n := int64(0)
	for i := range sub.slots {
		if sub.slots[i].b&(cellKept|cellFar|cellBlock) == 0 {
			continue
		}
		c, k := s.lineage.open(&sub.slots[i])
		n += s.lineage.algorithm.beside(c)
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
		part.lineage = nil
		part.scratch = nil
	}
	e.p.write, e.p = nil, nil
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
	e.parts, e.head, e.gone = nil, nil, ghosts{}
}

// Size is how many bytes are written so far.
func (e *SnapshotEncoder) Size() int { return e.size }

// Append puts the parts together and appends the snapshot to dst. It may be called once Next has reported done, by any
// goroutine: nothing of the partition is touched.
func (e *SnapshotEncoder) Append(dst []byte) []byte {
	start := len(dst)
	dst = append(slices.Grow(dst, e.size+16*len(e.parts)+4), e.head...)
	for _, part := range e.parts {
		dst = binary.AppendUvarint(dst, uint64(part.keys))
		slices.SortFunc(part.chunks, func(a, b chunk) int { return cmp.Compare(a.from, b.from) })
		for _, c := range part.chunks {
			dst = append(dst, c.b...)
		}
	}
	dst = e.gone.append(dst)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}
