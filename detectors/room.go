package detectors

import "math/bits"

// roomFor is how many elements a list of n has room for: 4, 6, 8, 12, 16, 24 ..., powers of two and the middle between two.
//
// Lists that lie beside a key have exactly that room at any time, so what a key is charged is what it takes and still is
// a function of what it holds: an owner that restored a snapshot must evict the same keys as the one that wrote it.
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
