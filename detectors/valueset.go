package detectors

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// DistinctExact is how many distinct values a set counts exactly. Beyond, it is a HyperLogLog with a standard error of
// 2.3 %.
const DistinctExact = 256

const (
	sketchBits = 11 // registers as a power of two: 2 KiB, standard error 1.04/sqrt(2048)
	sketchSize = 1 << sketchBits
	sketchTop  = 64 - sketchBits + 1 // greatest value of a register
)

// valueSet counts distinct values by a 64-bit hash of each: exactly up to DistinctExact (two values are taken for one
// with a chance below 2^-48), then by a HyperLogLog sketch (Flajolet et al., 2007) with the estimator of Ertl, "New
// cardinality estimation algorithms for HyperLogLog sketches" (2017), which needs no correction for small counts.
// Nothing is ever taken out.
type valueSet struct {
	exact  []uint64 // ascending
	sketch []uint8  // nil while exact
	n      int64
}

// least is how many values the set holds for certain: of a sketch, five standard errors less than its estimate, which is
// more than there are with a chance below one in a million. What is over is judged by it.
func (s *valueSet) least() int64 { return least(s.n, s.sketch != nil) }

func least(n int64, estimated bool) int64 {
	if !estimated {
		return n
	}
	return max(DistinctExact+1, n-n*115/1000)
}

// add puts v in and reports whether that changed the set.
func (s *valueSet) add(v uint64) bool {
	if s.sketch != nil {
		return s.raise(v)
	}
	at, found := slices.BinarySearch(s.exact, v)
	if found {
		return false
	}
	if len(s.exact) < DistinctExact {
		s.exact = slices.Insert(reserve(s.exact, len(s.exact)+1), at, v)
		s.n = int64(len(s.exact))
		return true
	}
	s.toSketch()
	s.raise(v)
	return true
}

// has reports whether adding v would change nothing.
func (s *valueSet) has(v uint64) bool {
	if s.sketch == nil {
		_, found := slices.BinarySearch(s.exact, v)
		return found
	}
	at, rank := register(v)
	return s.sketch[at] >= rank
}

// register is where v goes, and how high.
func register(v uint64) (at int, rank uint8) {
	return int(v >> (64 - sketchBits)), uint8(min(bits.LeadingZeros64(v<<sketchBits)+1, sketchTop))
}

func (s *valueSet) toSketch() {
	s.sketch = make([]uint8, sketchSize)
	for _, v := range s.exact {
		at, rank := register(v)
		s.sketch[at] = max(s.sketch[at], rank)
	}
	s.exact = nil
	s.n = max(s.n, estimate(s.sketch))
}

func (s *valueSet) raise(v uint64) bool {
	at, rank := register(v)
	if s.sketch[at] >= rank {
		return false
	}
	s.sketch[at] = rank
	s.n = max(s.n, estimate(s.sketch)) // a count never falls
	return true
}

// estimate is Ertl's improved raw estimator. The conversions keep a compiler from fusing operations: every machine must
// come to the same number.
func estimate(sketch []uint8) int64 {
	var counts [sketchTop + 1]float64
	for _, rank := range sketch {
		counts[rank]++
	}
	const m = float64(sketchSize)
	z := float64(m * tau(1-counts[sketchTop]/m))
	for k := sketchTop - 1; k >= 1; k-- {
		z = float64(z+counts[k]) / 2
	}
	z = float64(z + float64(m*sigma(counts[0]/m)))
	return int64(math.Round(float64(m*m) / float64(2*math.Ln2*z)))
}

// sigma and tau are the series of Ertl's paper, for registers that are empty and full.
func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	y, z := 1.0, x
	for last := -1.0; z != last; {
		x = float64(x * x)
		last = z
		z = float64(z + float64(x*y))
		y += y
	}
	return z
}

func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for last := -1.0; z != last; {
		x = math.Sqrt(x)
		last = z
		y /= 2
		z = float64(z - float64(float64((1-x)*(1-x))*y))
	}
	return z / 3
}

// union is how many values are in a, b or both.
func union(a, b *valueSet) int64 {
	if a.sketch == nil && b.sketch == nil {
		both := 0
		for _, v := range a.exact {
			if b.has(v) {
				both++
			}
		}
		return int64(len(a.exact) + len(b.exact) - both)
	}
	var joined [sketchSize]uint8
	for _, s := range []*valueSet{a, b} {
		for i, rank := range s.sketch {
			joined[i] = max(joined[i], rank)
		}
		for _, v := range s.exact {
			at, rank := register(v)
			joined[at] = max(joined[at], rank)
		}
	}
	return max(a.n, b.n, estimate(joined[:]))
}

// bytes is the memory of the set's lists, as a function of what it holds.
func (s *valueSet) bytes() int64 {
	if s.sketch != nil {
		return sketchSize
	}
	if s.n == 0 {
		return 0
	}
	return 8 * int64(roomFor(len(s.exact)))
}

func (s *valueSet) append(dst []byte) []byte {
	if s.sketch != nil {
		dst = binary.AppendUvarint(dst, DistinctExact+1)
		dst = binary.AppendUvarint(dst, uint64(s.n))
		return append(dst, s.sketch...)
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.exact)))
	for _, v := range s.exact {
		dst = binary.BigEndian.AppendUint64(dst, v)
	}
	return dst
}

func (s *valueSet) restore(r *reader) {
	n := r.upTo(DistinctExact+1, "distinct values")
	if n > DistinctExact {
		s.n = r.count()
		s.sketch = slices.Clone(r.take(sketchSize))
		for _, rank := range s.sketch {
			if rank > sketchTop {
				r.fail("register %d of a sketch, allowed: up to %d", rank, sketchTop)
			}
		}
		return
	}
	for ; n > 0 && r.err == nil; n-- {
		v := r.fixed64()
		if k := len(s.exact); k > 0 && s.exact[k-1] >= v {
			r.fail("distinct values are not ascending")
		}
		s.exact = append(s.exact, v)
	}
	s.n = int64(len(s.exact))
	if s.n > 0 {
		s.exact = fitted(s.exact)
	}
}
