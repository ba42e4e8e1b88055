package loadgen

import (
	"net/netip"
	"time"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// maxEpisode is where a running episode is cut (docs/DESIGN.md).
const maxEpisode = 24 * time.Hour

// maxAhead is how far other gateways' clocks may be ahead: what is later than Kafka's own time by more is corrected.
const maxAhead = 5 * time.Second

// Expectation is what the oracle says of one rule.
type Expectation struct {
	Rule    *rules.Version
	Fed     int64 // events of the load that the rule counts for sources which are the load's own
	Doubted int64 // of those: perhaps not in the stream, or perhaps late for the rule
	Shared  int64 // events that the rule counts together with other traffic's: not judged

	load     string // what every device, user and session of the load begins with
	earliest traffic.Time
	sources  map[string]*judged // of all sources that are the load's own
}

// judged is the oracle's word on one source.
type judged struct {
	// must is over by what certainly counts, may by all that perhaps does. Without doubt they are the same.
	must, may []oracle.Episode
	doubted   bool
	// exact: one source partition saw all of its events, in the order of time, so that history's episodes must be must.
	exact bool
	// times of all events, ascending; only of a source that may be over and is not exact.
	times []int64
}

// Expect judges all rules over the load's events. The identity map says which fields an event's identity has. All rules
// must use the sliding log, which is the only algorithm.
func (t *Truth) Expect(versions []rules.Version, identities *traffic.IdentityMap, partitions int) ([]*Expectation, error) {
	gathered := make([]*gathering, len(versions))
	for i := range versions {
		gathered[i] = &gathering{
			x:    &Expectation{Rule: &versions[i], load: identityPrefix(t.Header.Parameters.Seed), earliest: t.Earliest()},
			logs: map[string]*log{},
		}
	}
	newest := traffic.BeforeTime
	err := t.Each(func(e *Event, f Fate) {
		at := t.Header.Started.Add(e.Time)
		for _, g := range gathered {
			if watches(&g.x.Rule.Match, &e.Call) {
				g.add(e, at, identities, !f.Certain || t.perhapsLate(at, newest, f.At, g.x.Rule.Lateness))
			}
		}
		newest = max(newest, at)
	})
	if err != nil {
		return nil, err
	}
	all := make([]*Expectation, len(gathered))
	for i, g := range gathered {
		all[i] = g.judge(partitions)
	}
	return all, nil
}

// perhapsLate reports whether an event may have been late for a rule. Late is what lies more than lateness behind the
// newest event of its source partition. In a live stream that may be another's, so the bound is the time at which the
// event was certainly in the stream, and a margin for other clocks.
func (t *Truth) perhapsLate(at, newest, acked traffic.Time, lateness time.Duration) bool {
	if !t.Header.Live() {
		return newest != traffic.BeforeTime && newest.Sub(at) > lateness
	}
	return acked.Sub(at) > lateness-min(maxAhead, lateness/2)
}

// gathering collects the events of one rule.
type gathering struct {
	x    *Expectation
	logs map[string]*log
}

// log is what one source did, in the order of sending.
type log struct {
	events   []oracle.Event
	doubted  map[int]bool // indexes into events
	ip       netip.Addr
	manyIPs  bool
	disorder bool
}

func (g *gathering) add(e *Event, at traffic.Time, identities *traffic.IdentityMap, doubted bool) {
	s := sourceOf(g.x.Rule, e, identities)
	switch {
	case !s.fed:
		return
	case !s.own:
		g.x.Shared++
		return
	}
	g.x.Fed++
	l := g.logs[s.subject]
	if l == nil {
		l = &log{ip: e.IP}
		g.logs[s.subject] = l
	}
	if n := len(l.events); n > 0 && l.events[n-1].Time > int64(at) {
		l.disorder = true
	}
	l.manyIPs = l.manyIPs || l.ip != e.IP
	if doubted {
		g.x.Doubted++
		if l.doubted == nil {
			l.doubted = map[int]bool{}
		}
		l.doubted[len(l.events)] = true
	}
	l.events = append(l.events, oracle.Event{Time: int64(at), Offset: e.Number, Limit: g.x.Rule.Limit})
}

func (g *gathering) judge(partitions int) *Expectation {
	g.x.sources = make(map[string]*judged, len(g.logs))
	for subject, l := range g.logs {
		g.x.sources[subject] = l.judge(g.x.Rule, partitions)
		delete(g.logs, subject) // its events are not needed any more
	}
	return g.x
}

func (l *log) judge(v *rules.Version, partitions int) *judged {
	j := &judged{
		doubted: len(l.doubted) > 0,
		exact:   !l.disorder && (!l.manyIPs || partitions == 1) && len(l.doubted) == 0,
	}
	if len(l.events) <= v.Limit {
		return j // too few in all for any window
	}
	window := v.Window.Microseconds()
	j.may = oracle.Sliding(l.events, window, maxEpisode.Microseconds())
	j.must = j.may
	if j.doubted {
		var certain []oracle.Event
		for i, e := range l.events {
			if !l.doubted[i] {
				certain = append(certain, e)
			}
		}
		j.must = oracle.Sliding(certain, window, maxEpisode.Microseconds())
	}
	if len(j.may) > 0 && !j.exact {
		j.times = sortedTimes(l.events)
	}
	return j
}

// Settled is when the watermark has closed every episode that the load can have on this rule.
func (x *Expectation) Settled() traffic.Time {
	last := traffic.BeforeTime
	for _, j := range x.sources {
		if n := len(j.may); n > 0 {
			last = max(last, traffic.Time(j.may[n-1].Last))
		}
	}
	return last.Add(x.Rule.Window + x.Rule.Lateness)
}
