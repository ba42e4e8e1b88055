package replica

import "sync/atomic"

// filter answers "surely not blocked" for nearly every request with one load. It is a Bloom filter of which all bits of a
// key lie in one word (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007): 16 bits of memory
// and 3 set bits per key, about 0.7 % false positives when full. Bits are only ever set; removed keys go with the next
// rebuilding.
type filter struct {
	words    []atomic.Uint64
	mask     uint64
	added    int // keys since it was built, removed ones included
	capacity int
}

const (
	filterKeysPerWord = 4
	filterMinWords    = 1 << 10
)

// newFilter makes a filter with room for keys.
func newFilter(keys int) *filter {
	words := filterMinWords
	for words*filterKeysPerWord < keys {
		words *= 2
	}
	return &filter{words: make([]atomic.Uint64, words), mask: uint64(words - 1), capacity: words * filterKeysPerWord}
}

// has reports false only for a hash that was not added. It is safe beside add.
func (f *filter) has(hash uint64) bool {
	bits := filterBits(hash)
	return f.words[(hash>>32)&f.mask].Load()&bits == bits
}

// add is called by one goroutine at a time.
func (f *filter) add(hash uint64) {
	f.words[(hash>>32)&f.mask].Or(filterBits(hash))
	f.added++
}

// filterBits takes three bit numbers from the hash's low bits; the word is chosen by its high ones.
func filterBits(hash uint64) uint64 {
	return 1<<(hash&63) | 1<<(hash>>6&63) | 1<<(hash>>12&63)
}
