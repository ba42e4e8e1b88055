package oracle

// unitBucket holds capacity units and loses limit units a window, evenly, in whole numbers: it is measured in units of
// 1/window. A step that does not fit is over and adds nothing. Seen from the other side it is a token bucket, and the
// generic cell rate algorithm.
type unitBucket struct {
	Definition
	level, at int64
}

func (b *unitBucket) room(s Step) int64 {
	if b.Capacity > 0 {
		return b.Capacity
	}
	return s.Limit
}

func (b *unitBucket) leak(s Step) {
	if s.Limit > 0 && s.Time-b.at > b.level/s.Limit {
		b.level = 0
	} else {
		b.level -= (s.Time - b.at) * s.Limit
	}
	b.at = s.Time
}

func (b *unitBucket) add(s Step) Answer {
	if b.level == 0 {
		b.at = s.Time
	}
	b.leak(s)
	after := b.level + s.Units*b.Window
	over := after > b.room(s)*b.Window
	if !over {
		b.level = after
	}
	return Answer{over, (after + b.Window - 1) / b.Window}
}

// valueBucket pours each value once in a life, as one unit. A life ends after capacity+1 leaks in which no value was poured.
// A value that does not fit is over and is not remembered; one that the bucket has had is never over.
type valueBucket struct {
	Definition
	bucket unitBucket
	had    map[string]bool
	poured int64
}

func (b *valueBucket) add(s Step) Answer {
	b.bucket.Definition, s.Units = b.Definition, 1
	if b.had != nil && (s.Time-b.poured)*s.Limit > (b.bucket.room(s)+1)*b.Window {
		b.had, b.bucket.level = nil, 0
	}
	if b.had[s.Value] {
		b.bucket.leak(s)
		return Answer{false, (b.bucket.level + b.Window - 1) / b.Window}
	}
	a := b.bucket.add(s)
	if !a.Over {
		if b.had == nil {
			b.had = map[string]bool{}
		}
		b.had[s.Value], b.poured = true, s.Time
	}
	return a
}
