package route

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// minuteCounts counts the events of one minute of event time.
type minuteCounts struct {
	events, refused, unwatched, good, unjudged int64
	matched                                    map[string]int64 // by rule id
}

func (c *minuteCounts) add(d *minuteCounts) {
	c.events += d.events
	c.refused += d.refused
	c.unwatched += d.unwatched
	c.good += d.good
	c.unjudged += d.unjudged
	for rule, n := range d.matched {
		c.matched[rule] += n
	}
}

// sums is how many numbers the store keeps of c.
func (c *minuteCounts) sums() int { return 1 + len(c.matched) }

// Minutes are of the years that dates have four digits for: whoever claims another time is counted at the end of them.
const (
	firstMinute = traffic.Time(-62_135_596_800_000_000) // 0001-01-01T00:00Z
	lastMinute  = traffic.Time(253_402_300_740_000_000) // 9999-12-31T23:59Z
)

// minuteOf is the beginning of the minute that a time lies in.
func minuteOf(t traffic.Time) traffic.Time {
	past := t % figuresMinute
	if past < 0 {
		past += figuresMinute
	}
	if t < firstMinute {
		return firstMinute
	}
	return min(t-past, lastMinute)
}

// minuteTally counts the events of one minute at a time, by rule index, and moves them into a map by minute when another one begins:
// events mostly come in the order of time.
type minuteTally struct {
	minute  traffic.Time
	now     minuteCounts // without matched
	matched []int64      // by rule index
	touched []int
}

// count adds one event, which could be read.
func (t *minuteTally) count(v *routingVersion, got *reading, into map[traffic.Time]*minuteCounts) {
	if minute := minuteOf(got.time); minute != t.minute {
		t.move(v, into)
		t.minute = minute
	}
	c := &t.now
	c.events++
	switch got.fate {
	case FateRefusal:
		c.refused++
		return
	case FateUnmatched:
		c.unwatched++
	}
	switch got.good {
	case detectors.KnownGood:
		c.good++
	case detectors.NotJudged:
		c.unjudged++
	}
	if t.matched == nil {
		t.matched = make([]int64, len(v.rules))
	}
	for i := range got.watched {
		rule := got.watched[i].rule
		if t.matched[rule] == 0 {
			t.touched = append(t.touched, rule)
		}
		t.matched[rule]++
	}
}

// move adds what was counted to into, and begins anew.
func (t *minuteTally) move(v *routingVersion, into map[traffic.Time]*minuteCounts) {
	if t.now.events == 0 {
		return
	}
	sum := into[t.minute]
	if sum == nil {
		sum = &minuteCounts{matched: map[string]int64{}}
		into[t.minute] = sum
	}
	sum.add(&t.now)
	t.now = minuteCounts{}
	for _, i := range t.touched {
		if !v.rules[i].pending {
			sum.matched[v.rules[i].id] += t.matched[i]
		}
		t.matched[i] = 0
	}
	t.touched = t.touched[:0]
}

// minutes stores how many events this router has seen, by minute of event time and by rule. What a chunk has is counted once it is
// acknowledged. A sum is stored again, greater, until nothing comes to it for a while; events that come later open another part of it.
// While the store is away sums are kept, up to maxOpenSums; what is beyond is counted in Stats.MinutesLeftOut. What a router that is
// killed had counted since its last report is not told.
type minutes struct {
	opt   *Options
	tally *tally

	mu     sync.Mutex
	open   map[traffic.Time]*openMinute
	sums   int          // of all that are open
	stored traffic.Time // when the store took them last; BeforeTime before the first time
}

// openMinute is a sum that grows.
type openMinute struct {
	minuteCounts
	part  int64
	grown traffic.Time // by the router's clock
	dirty bool         // the store does not have all of it
}

const (
	minutesEvery = 10 * time.Second // between two reports of minutes
	minuteStays  = 2 * time.Minute  // how long a sum stays open after it has grown
	manySums     = 20_000           // so many are reported with the next look
	maxOpenSums  = 500_000
)

func newMinutes(opt *Options, tally *tally) *minutes {
	return &minutes{opt: opt, tally: tally, open: map[traffic.Time]*openMinute{}, stored: traffic.BeforeTime}
}

// add takes in what an acknowledged chunk has counted.
func (m *minutes) add(counted map[traffic.Time]*minuteCounts) {
	if m.opt.Figures == nil || len(counted) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, lost := m.opt.Clock(), int64(0)
	for minute, c := range counted {
		sum := m.open[minute]
		if sum == nil {
			if m.sums+c.sums() > maxOpenSums {
				lost += c.events
				continue
			}
			sum = &openMinute{minuteCounts: minuteCounts{matched: map[string]int64{}}, part: int64(now)}
			m.open[minute] = sum
			m.sums++
		}
		before := len(sum.matched)
		sum.add(c)
		m.sums += len(sum.matched) - before
		sum.grown, sum.dirty = now, true
	}
	if lost > 0 {
		m.tally.bump(func(st *Stats) { st.MinutesLeftOut += lost })
	}
}

// due stores the sums every minutesEvery, or as soon as there are many.
func (m *minutes) due(ctx context.Context) error {
	m.mu.Lock()
	since, first, many := m.opt.Clock().Sub(m.stored), m.stored == traffic.BeforeTime, m.sums >= manySums
	m.mu.Unlock()
	if !first && !many && since >= 0 && since < minutesEvery {
		return nil
	}
	return m.store(ctx)
}

// store stores what has grown since it last was, and closes what has not for a while.
func (m *minutes) store(ctx context.Context) error {
	if m.opt.Figures == nil {
		return nil
	}
	rows := m.grown()
	if len(rows) > 0 {
		if err := m.opt.Figures.StoreMinutes(ctx, m.opt.Stream, rows); err != nil {
			return err
		}
	}
	m.settle(rows)
	return nil
}

// grown is a copy of the sums that the store does not have whole.
func (m *minutes) grown() (rows []detectors.RoutedMinute) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.opt.Clock()
	for minute, sum := range m.open {
		if sum.dirty {
			rows = append(rows, detectors.RoutedMinute{
				Router: m.opt.Owner, Part: sum.part, Minute: minute, Seen: now,
				Events: sum.events, Refused: sum.refused, Unwatched: sum.unwatched, Good: sum.good, Unjudged: sum.unjudged, Matched: maps.Clone(sum.matched),
			})
		}
	}
	return rows
}

// settle notes that the store has rows.
func (m *minutes) settle(rows []detectors.RoutedMinute) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rows {
		sum := m.open[rows[i].Minute] // only settle closes sums, and one goroutine stores at a time
		sum.dirty = sum.events > rows[i].Events
	}
	now := m.opt.Clock()
	many := m.sums >= manySums
	for minute, sum := range m.open {
		if !sum.dirty && (many || now.Sub(sum.grown) > minuteStays) {
			delete(m.open, minute)
			m.sums -= sum.sums()
		}
	}
	m.stored = now
}
