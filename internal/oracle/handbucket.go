package oracle

// HandBucket is a bucket with a hole that is filled by hand, step by step, as other limiters' cases are written, in whole
// numbers: it holds Burst units and loses Limit units in a Window, evenly. A unit that finds no room leaves nothing. Seen
// from the other side it is a token bucket: what is free are the tokens.
//
// Values, where Add is given one, count once in the bucket's life: a bucket that has been left alone for as long as it
// takes to lose Burst+1 units is a new one. Its clock never goes back: what comes late is of the newest time.
type HandBucket struct {
	Limit, Burst int64
	Window       int64 // in the unit of Add's times

	level  int64 // units × Window
	at     int64 // when level was right
	begun  bool
	values map[string]bool
}

// Add pours units at a time. It reports whether they found no room, and how many whole units are free afterwards.
func (b *HandBucket) Add(at, units int64, value *string) (over bool, free int64) {
	if !b.begun {
		b.at, b.begun = at, true
	}
	at = max(at, b.at)
	silence := at - b.at
	if b.at = at; b.Limit > 0 {
		if silence >= roundUp((b.Burst+1)*b.Window, b.Limit) {
			b.values = nil
		}
		if silence >= roundUp(b.level, b.Limit) {
			b.level = 0
		} else {
			b.level -= silence * b.Limit
		}
	}
	if value != nil {
		if b.values[*value] {
			units = 0
		} else if b.values == nil {
			b.values = map[string]bool{}
		}
		b.values[*value] = true
	}
	if b.level+units*b.Window > b.Burst*b.Window {
		over = true
	} else {
		b.level += units * b.Window
	}
	return over, (b.Burst*b.Window - b.level) / b.Window
}

func roundUp(a, b int64) int64 { return (a + b - 1) / b }
