package simulation

import (
	"math"
	"time"
)

// dice is a source of chance (SplitMix64). Each purpose has dice of its own, so that what one part of the world draws does
// not depend on when another one does.
type dice struct{ state uint64 }

func roll(seed uint64, purpose ...uint64) *dice {
	d := dice{state: seed}
	for _, p := range purpose {
		d.state = d.next() ^ p*0x9e3779b97f4a7c15
	}
	return &d
}

func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// unit is in [0, 1).
func (d *dice) unit() float64 { return float64(d.next()>>11) / (1 << 53) }

// below is in [0, n).
func (d *dice) below(n int) int { return int(d.next() % uint64(n)) }

// span is a duration in [least, least+spread), to the nanosecond: two things that happen at one instant would happen in an
// order that the seed does not say.
func (d *dice) span(least, spread time.Duration) time.Duration {
	return least + time.Duration(d.next()%uint64(spread))
}

// pause is a duration that is usually short and at times long, of the given mean.
func (d *dice) pause(mean time.Duration) time.Duration {
	return time.Duration(-math.Log(1-d.unit())*float64(mean)) + time.Duration(d.below(1000))
}

func (d *dice) shuffle(list []int) {
	for i := len(list) - 1; i > 0; i-- {
		j := d.below(i + 1)
		list[i], list[j] = list[j], list[i]
	}
}
