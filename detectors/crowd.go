package detectors

import "math/bits"

// crowd tells the fingerprints of a table from bytes that were made up. A table splits a sub-table, and doubles its
// directory if need be, when more than crowdMost keys share the sub-table's leading bits (it has 1024 slots, of which 33
// take what is pushed beyond the homes: to fill them up to the end takes more keys than those 33). Of n hashes, more than
// crowdMost share the leading bits.Len(n)+2 with a chance below 2^-140; bytes that say so would split their table without
// end. With those refused, a directory has at most 8n entries.
type crowd struct {
	last [crowdMost]uint64 // upper words of the last keys, in turn
	n    int
	bits int
	full bool
}

const crowdMost = 32

// newCrowd begins a check of n keys.
func newCrowd(n int) *crowd { return &crowd{bits: bits.Len(uint(n)) + 2} }

// admit notes the next key, in ascending order, and whether it is one too many.
func (c *crowd) admit(key Fingerprint) {
	at := c.n % crowdMost
	c.full = c.full || c.n >= crowdMost && (key.Hi^c.last[at])>>(64-c.bits) == 0
	c.last[at] = key.Hi
	c.n++
}
