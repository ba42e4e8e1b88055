package oracle

import "math/big"

// Bucket pours each step's units into a bucket of so many units that leaks a step's limit a window, evenly. A step that
// does not fit is over and adds nothing. Time never goes back. The count is what the bucket holds and the step, rounded
// up.
func Bucket(steps []Step, capacity, window int64) []Answer {
	var out []Answer
	b := bucketState{level: new(big.Rat)}
	for _, s := range steps {
		b.leak(s.Time, s.Limit, window)
		out = append(out, b.pour(s.Units, capacity))
	}
	return out
}

// BucketDistinct pours each value once in a life of the bucket, as one unit; a life ends after (capacity+1) leaks without
// a new value.
func BucketDistinct(steps []Step, capacity, window int64) []Answer {
	var out []Answer
	b := bucketState{level: new(big.Rat)}
	had := map[string]bool{}
	poured, alive := int64(0), false
	for _, s := range steps {
		// Silence of more than (capacity+1) x window/limit, in whole numbers.
		silence := new(big.Int).Mul(big.NewInt(s.Time-poured), big.NewInt(s.Limit))
		if alive && silence.Cmp(new(big.Int).Mul(big.NewInt(capacity+1), big.NewInt(window))) > 0 {
			b, had, alive = bucketState{level: new(big.Rat)}, map[string]bool{}, false
		}
		b.leak(s.Time, s.Limit, window)
		if had[s.Value] {
			out = append(out, Answer{false, b.whole()})
			continue
		}
		a := b.pour(1, capacity)
		out = append(out, a)
		if !a.Over || !alive {
			poured, alive = b.time, true
		}
		if !a.Over {
			had[s.Value] = true
		}
	}
	return out
}

type bucketState struct {
	level *big.Rat
	time  int64
	begun bool
}

func (b *bucketState) leak(at, limit, window int64) {
	if !b.begun {
		b.time, b.begun = at, true
	}
	if at > b.time {
		gone := new(big.Rat).Mul(big.NewRat(at-b.time, window), big.NewRat(limit, 1))
		b.level.Sub(b.level, gone)
		if b.level.Sign() < 0 {
			b.level.SetInt64(0)
		}
		b.time = at
	}
}

func (b *bucketState) pour(units, capacity int64) Answer {
	after := new(big.Rat).Add(b.level, big.NewRat(units, 1))
	if after.Cmp(big.NewRat(capacity, 1)) > 0 {
		full := bucketState{level: after}
		return Answer{true, full.whole()}
	}
	b.level = after
	return Answer{false, b.whole()}
}

// whole is the level, rounded up.
func (b *bucketState) whole() int64 {
	q, r := new(big.Int).QuoRem(b.level.Num(), b.level.Denom(), new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}
