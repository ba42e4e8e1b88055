package detectors

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// ghosts remember keys that were evicted: a tag of each, and how many events went with it, in a fixed part of the budget.
// A key that comes back begins at nothing, so no count is ever too high, but it is known again: it is evicted after keys of
// as few events that never were away. This is the ghost list of ARC (Megiddo and Modha, 2003)
// with the frequencies of TinyLFU (Einziger, Friedman and Manes, 2017), within the budget and part of the state.
//
// A key's bucket has room for ghostWays, the newest first; one more pushes out the oldest. With 1/8 of the budget they are
// 2.1 for each key that the rest holds, so a key that comes back after 1.2 times as many others as the budget holds is known
// with 99.4 %. A key is taken for another with a chance of 4 in 10,000: it is kept longer than it merits, and the other is
// forgotten.
type ghosts struct {
	pages   []*ghostPage // nil: nobody yet
	buckets int
	n       int    // keys remembered
	epoch   uint32 // of the newest snapshot: it shares the pages of older epochs, which are copied before they change
}

type ghostPage struct {
	epoch   uint32
	buckets [pageBuckets]ghostBucket
}

// ghostBucket is a cache line: tags, and four bits for each that say how many events went with the key. Both shift: they
// have no holes, and where the four bits are 0 they end.
type ghostBucket struct {
	tags [ghostWays]uint16
	past [2]uint64
}

const (
	ghostShare  = 8 // one part in so many of the budget
	ghostWays   = 24
	ghostSize   = 2*ghostWays + 16 // bytes of a bucket
	pageBuckets = 256
	mostPast    = 15
)

// newGhosts makes room for what a budget allows.
func newGhosts(budget int64) ghosts { return ghosts{buckets: int(budget / ghostShare / ghostSize)} }

// reserved is how many bytes of the budget the ghosts take.
func (g *ghosts) reserved() int64 { return int64(g.buckets) * ghostSize }

// at is the bucket of a key, to be read.
func (g *ghosts) at(hi uint64) *ghostBucket {
	number := g.number(hi)
	if len(g.pages) == 0 || g.pages[number/pageBuckets] == nil {
		return nil
	}
	return &g.pages[number/pageBuckets].buckets[number%pageBuckets]
}

// number of the bucket of a key: neighbours by fingerprint, which are evicted together, share buckets.
func (g *ghosts) number(hi uint64) int {
	at, _ := bits.Mul64(hi, uint64(g.buckets))
	return int(at)
}

// own is the bucket of a key, to be changed.
func (g *ghosts) own(hi uint64) *ghostBucket {
	number := g.number(hi)
	if len(g.pages) == 0 {
		g.pages = make([]*ghostPage, (g.buckets+pageBuckets-1)/pageBuckets)
	}
	p := &g.pages[number/pageBuckets]
	switch {
	case *p == nil:
		*p = &ghostPage{epoch: g.epoch}
	case (*p).epoch != g.epoch:
		*p = &ghostPage{epoch: g.epoch, buckets: (*p).buckets}
	}
	return &(*p).buckets[number%pageBuckets]
}

// put remembers an evicted key and its number of events, past, at least 1.
func (g *ghosts) put(hi uint64, tag uint16, past int64) {
	if g.buckets == 0 {
		return
	}
	b := g.own(hi)
	if b.pastOf(ghostWays-1) == 0 {
		g.n++
	}
	copy(b.tags[1:], b.tags[:])
	b.tags[0] = tag
	b.past[1] = (b.past[1]<<4 | b.past[0]>>60) & (1<<(4*(ghostWays-16)) - 1)
	b.past[0] = b.past[0]<<4 | uint64(min(past, mostPast))
}

// take is how many events a key had that was evicted and has come back, 0 when it is not known. It is not a ghost any more.
func (g *ghosts) take(hi uint64, tag uint16) uint8 {
	if g.n == 0 {
		return 0
	}
	b := g.at(hi)
	if b == nil {
		return 0
	}
	i := slices.Index(b.tags[:], tag)
	if i < 0 || b.pastOf(i) == 0 { // an empty place has the tag 0
		return 0
	}
	past := b.pastOf(i)
	g.own(hi).remove(i)
	g.n--
	return past
}

// pastOf is the four bits of a tag.
func (b *ghostBucket) pastOf(i int) uint8 { return uint8(b.past[i/16] >> (i % 16 * 4) & mostPast) }

// remove closes the hole that a tag leaves.
func (b *ghostBucket) remove(i int) {
	copy(b.tags[i:], b.tags[i+1:])
	b.tags[ghostWays-1] = 0
	for ; i < ghostWays; i++ {
		next := uint64(0)
		if i+1 < ghostWays {
			next = uint64(b.pastOf(i + 1))
		}
		shift := i % 16 * 4
		b.past[i/16] = b.past[i/16]&^(mostPast<<shift) | next<<shift
	}
}

// clear forgets all.
func (g *ghosts) clear() { g.pages, g.n = nil, 0 }

// share is an unchanging copy for a snapshot. Pages are shared until they change.
func (g *ghosts) share() ghosts {
	shared := *g
	shared.pages = slices.Clone(g.pages)
	g.epoch++
	return shared
}

// ghostWriter writes the ghosts into a snapshot, page by page.
type ghostWriter struct {
	ghosts
	next int // bucket
}

// appendNext writes the next page and reports whether that was the last: the number of buckets, 0 when nothing is
// remembered, and each bucket.
func (w *ghostWriter) appendNext(dst []byte) (out []byte, whole bool) {
	if w.n == 0 {
		return append(dst, 0), true
	}
	if w.next == 0 {
		dst = binary.AppendUvarint(dst, uint64(w.buckets))
	}
	end := min(w.next+pageBuckets, w.buckets)
	var none ghostBucket
	for ; w.next < end; w.next++ {
		if page := w.pages[w.next/pageBuckets]; page != nil {
			dst = page.buckets[w.next%pageBuckets].append(dst)
		} else {
			dst = none.append(dst)
		}
	}
	return dst, end == w.buckets
}

// append writes a bucket: how many it has, their tags, and their four bits, two in a byte.
func (b *ghostBucket) append(dst []byte) []byte {
	n := 0
	for n < ghostWays && b.pastOf(n) > 0 {
		n++
	}
	dst = append(dst, uint8(n))
	for _, tag := range b.tags[:n] {
		dst = binary.BigEndian.AppendUint16(dst, tag)
	}
	for i := 0; i < n; i += 2 {
		dst = append(dst, uint8(b.past[i/16]>>(i%16*4)))
	}
	return dst
}

// restore reads what append wrote. What was written under another budget is read over: its buckets are others.
func (g *ghosts) restore(r *reader) {
	buckets := r.length(1, "buckets of evicted keys")
	for i := 0; i < buckets && r.err == nil; i++ {
		var b ghostBucket
		n := b.restore(r)
		if r.err != nil || n == 0 || buckets != g.buckets {
			continue
		}
		if len(g.pages) == 0 {
			g.pages = make([]*ghostPage, (g.buckets+pageBuckets-1)/pageBuckets)
		}
		page := &g.pages[i/pageBuckets]
		if *page == nil {
			*page = &ghostPage{epoch: g.epoch}
		}
		(*page).buckets[i%pageBuckets] = b
		g.n += n
	}
}

func (b *ghostBucket) restore(r *reader) (n int) {
	if raw := r.take(1); r.err == nil {
		n = int(raw[0])
	}
	if n > ghostWays {
		r.fail("%d evicted keys in a bucket, allowed: up to %d", n, ghostWays)
		return 0
	}
	tags, past := r.take(2*n), r.take((n+1)/2)
	if r.err != nil {
		return 0
	}
	for i := range n {
		b.tags[i] = binary.BigEndian.Uint16(tags[2*i:])
		events := uint64(past[i/2] >> (i % 2 * 4) & mostPast)
		if events == 0 {
			r.fail("an evicted key without events")
		}
		b.past[i/16] |= events << (i % 16 * 4)
	}
	if n%2 == 1 && past[n/2]>>4 != 0 {
		r.fail("events of no evicted key")
	}
	return n
}
