package order

import (
	"fmt"
	"sort"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const (
	second = traffic.Time(1_000_000)
	minute = 60 * second
	hour   = 60 * minute
	origin = traffic.Time(1_700_000_000_000_000)
)

// world is what rapid draws: a rule, and the events of few keys in the order in which they come to a keyed partition.
type world struct {
	way      way
	limits   []int // by routing version
	capacity int   // of a bucket; 0: the limit
	window   traffic.Time
	lateness traffic.Time
	budget   int64
	skew     []traffic.Time // by source partition: how long its events are under way
	events   []event
}

type event struct {
	at, arrival traffic.Time
	source, key int
	units       int64
	value       string
	version     int
}

// how says what a property needs of a world.
type how struct {
	inOrder  bool // events come in order of time, by one source partition
	covering bool // the lateness covers the disorder
	tidy     bool // events of one time have one value
	edited   bool // the rule has two limits
	tight    bool // there may be too little memory
}

func drawWorld(t *rapid.T, w way, h how) *world {
	o := &world{way: w, window: rapid.SampledFrom([]traffic.Time{10 * second, second, 7*second + 1, minute, 10 * minute}).Draw(t, "window")}
	limit := rapid.IntRange(0, 6).Draw(t, "limit")
	if w.above {
		limit = rapid.SampledFrom([]int{129, 129, 130, 150}).Draw(t, "limit above")
	}
	o.limits = []int{limit}
	if h.edited {
		// Above the log, this may also bring the limit below it again: which of the two a key is counted in is settled when it comes.
		o.limits = append(o.limits, max(0, limit+rapid.IntRange(-4, 4).Draw(t, "edited by")))
	}
	if w.bucket() && limit > 0 && !h.edited {
		o.capacity = rapid.IntRange(0, 8).Draw(t, "capacity")
	}
	o.skew = []traffic.Time{0}
	if !h.inOrder {
		for p := range rapid.IntRange(0, 3).Draw(t, "further sources") {
			o.skew = append(o.skew, rapid.SampledFrom([]traffic.Time{0, 1, o.window / 8, o.window, 3 * o.window, hour, 6 * hour}).Draw(t, fmt.Sprint("skew ", p+1)))
		}
	}
	if h.tight {
		o.budget = rapid.SampledFrom([]int64{0, 0, 0, 50, 100, 400, 1000, 3000}).Draw(t, "budget")
	}
	o.drawBursts(t, h)
	sort.SliceStable(o.events, func(i, j int) bool { return o.events[i].arrival < o.events[j].arrival })
	if o.lateness = rapid.SampledFrom([]traffic.Time{0, o.window / 16, o.window, 4 * o.window, hour}).Draw(t, "lateness"); h.covering {
		o.lateness = o.disorder()
	}
	return o
}

// drawBursts draws runs of events about as long as the limit, placed against each other where windows begin and end.
func (o *world) drawBursts(t *rapid.T, h how) {
	w, base := o.window, origin-origin%o.window
	at, seed := base+rapid.SampledFrom([]traffic.Time{0, w / 2, w - 1, w - w/16}).Draw(t, "start"), rapid.Uint64().Draw(t, "seed")
	few := max(1, o.limits[0])
	most := 5
	if o.way.above {
		most = 3
	}
	for b := range rapid.IntRange(1, most).Draw(t, "bursts") {
		draw := func(name string) string { return fmt.Sprint(name, " of burst ", b) }
		size := rapid.SampledFrom([]int{1, few/2 + 1, few, few + 1, few + few/3 + 1, 2*few + 2}).Draw(t, draw("size"))
		span := rapid.SampledFrom([]traffic.Time{0, 1, w / 64, w / 2, w - 1, w, w + w/8, 2 * w}).Draw(t, draw("span"))
		disorder := traffic.Time(0)
		if !h.inOrder {
			disorder = rapid.SampledFrom([]traffic.Time{0, 0, 1, w / 16, w, 4 * w}).Draw(t, draw("disorder"))
		}
		newest := rapid.Bool().Draw(t, draw("newest first")) && !h.inOrder
		key, source := rapid.IntRange(0, 1).Draw(t, draw("key")), rapid.IntRange(-1, len(o.skew)-1).Draw(t, draw("source"))
		values, units := rapid.SampledFrom([]int{1, few, few + 1, 3 * few}).Draw(t, draw("values")), rapid.IntRange(1, 3).Draw(t, draw("units"))
		for i := range size {
			r := dice(seed, uint64(b), uint64(i))
			e := event{at: at + span*traffic.Time(i)/traffic.Time(max(1, size-1)), key: key, source: source, units: 1, version: 1 + int(r>>40)%len(o.limits)}
			if source < 0 {
				e.source = int(r>>8) % len(o.skew)
			}
			same := r
			if h.tidy {
				same = dice(seed, uint64(e.at), uint64(key))
			}
			e.value = fmt.Sprint("v", same>>20%uint64(values))
			if !h.tidy && coin(seed, b) { // each value in its turn, so that as many come as there are
				e.value = fmt.Sprint("v", i%values)
			}
			if o.way.count == rules.CountSum {
				e.units = 1 + int64(dice(seed, uint64(e.at), uint64(key))%uint64(units))
			}
			e.arrival = e.at + o.skew[e.source] + traffic.Time(dice(seed, ^uint64(b), uint64(i))%uint64(disorder+1))
			if newest {
				e.arrival = at + span + (at + span - e.at) + o.skew[e.source]
			}
			o.events = append(o.events, e)
		}
		at += span + rapid.SampledFrom([]traffic.Time{0, 1, w / 2, w - span, w - span + 1, w - 1, w, w + 1, 3 * w}).Draw(t, draw("gap"))
	}
}

// coin is thrown once a burst.
func coin(seed uint64, burst int) bool { return dice(seed, uint64(burst), 1<<40)&1 == 0 }

// dice is a number that looks random, of where it is thrown.
func dice(seed, a, b uint64) uint64 {
	x := seed ^ a*0x9e3779b97f4a7c15 ^ b*0xd1b54a32d192ed03
	for range 2 {
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		x ^= x >> 31
	}
	return x
}

// disorder is the most that an event is behind one of its source partition that came before it.
func (o *world) disorder() traffic.Time {
	top, most := map[int]traffic.Time{}, traffic.Time(0)
	for _, e := range o.events {
		if before, ok := top[e.source]; ok {
			most = max(most, before-e.at)
		}
		top[e.source] = max(top[e.source], e.at)
	}
	return most
}

func (o *world) step(e *event) oracle.Step {
	return oracle.Step{Time: int64(e.at), Units: e.units, Value: e.value, Limit: int64(o.limits[e.version-1])}
}

func (o *world) versions() []rules.Version {
	var out []rules.Version
	for i, limit := range o.limits {
		d := o.way.document(limit, o.window, o.lateness)
		d.Burst = o.capacity
		out = append(out, rules.Version{Document: d, Number: i + 1, Lineage: 1})
	}
	return out
}

// String is the story for who reads of a failure.
func (o *world) String() string {
	s := fmt.Sprintf("%s: limits %v, capacity %d, window %d, lateness %d, budget %d, skew %d; events by arrival as key@time-origin(source,units,value,version):",
		o.way, o.limits, o.capacity, o.window, o.lateness, o.budget, o.skew)
	for i, e := range o.events {
		if i == 120 {
			return s + fmt.Sprintf(" and %d more", len(o.events)-i)
		}
		s += fmt.Sprintf(" %d@%d(%d,%d,%s,%d)", e.key, e.at-origin, e.source, e.units, e.value, e.version)
	}
	return s
}
