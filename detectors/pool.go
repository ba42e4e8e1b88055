package detectors

import (
	"math/bits"
)

// pool holds the out-of-slot state of cells, by index.
type pool[T any] struct {
	items []*T
	free  []uint32
}

// take returns an empty T and its index.
func (p *pool[T]) take() (uint32, *T) {
	item := new(T)
	if n := len(p.free); n > 0 {
		index := p.free[n-1]
		p.free = p.free[:n-1]
		p.items[index] = item
		return index, item
	}
	p.items = append(p.items, item)
	return uint32(len(p.items) - 1), item
}

// hold gives an empty cell a T of its own.
func (p *pool[T]) hold(c *cell) *T {
	index, item := p.take()
	*c = overflowCell(index)
	return item
}

// at is the T of a cell.
func (p *pool[T]) at(c *cell) *T { return p.items[c.b&cellIndex] }

// give forgets the T of a cell. After the last one the pool holds no memory.
func (p *pool[T]) give(c *cell) {
	index := uint32(c.b & cellIndex)
	p.items[index] = nil
	p.free = append(p.free, index)
	if len(p.free) == len(p.items) {
		p.items, p.free = nil, nil
	}
}

// roomFor is how many elements a list of n has room for: 4, 6, 8, 12, 16, 24 ..., powers of two and the middle between two.
//
// Out-of-slot lists have exactly that room at any time, so that a key is charged the bytes that it takes, and that charge is a
// function of what it holds: an owner that restored a snapshot must evict the same keys as the one that wrote it.
func roomFor(n int) int {
	if n <= 4 {
		return 4
	}
	top := bits.Len(uint(n - 1))
	if middle := 3 << (top - 2); n <= middle {
		return middle
	}
	return 1 << top
}

// reserve is list with the room of one of n elements, n at least its length.
func reserve[E any](list []E, n int) []E {
	room := roomFor(n)
	if cap(list) == room {
		return list
	}
	out := make([]E, len(list), room)
	copy(out, list)
	return out
}

// fitted is list with the room of its length.
func fitted[E any](list []E) []E { return reserve(list, len(list)) }
