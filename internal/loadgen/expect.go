package loadgen

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// maxEpisode is where a running episode is cut (docs/DESIGN.md §4).
const maxEpisode = 24 * time.Hour

// maxAhead is how far other gateways' clocks may be ahead: what is later than Kafka's own time by more is corrected.
const maxAhead = 5 * time.Second

// Rule is a rule that is to be judged.
type Rule struct {
	rules.Version
	Limits []int // of the earlier versions of its lineage, whose windows may still be there
}

// Expectation is what the oracle says of one rule.
type Expectation struct {
	Rule       *rules.Version
	Fed        int64 // events of the load that the rule counts for sources which are the load's own
	Doubted    int64 // of those: perhaps not in the stream, or perhaps late for the rule
	Disordered int64 // of those: of sources that may be over or not, depending on the order in which their events came
	Shared     int64 // events that the rule counts together with other traffic's: not judged
	Valueless  int64 // events that lack what the rule adds up or counts distinct values of: counted by nobody

	reason   string // why there is no oracle for the rule; empty: there is
	method   method
	load     string // what every device, user and session of the load begins with
	earliest traffic.Time
	sources  map[string]*judged // of all sources that are the load's own
}

// judged is the oracle's word on one source.
type judged struct {
	// must are episodes by what certainly counts: where there is one, history has the source.
	must []oracle.PeakedEpisode
	// perhaps: the source may be over by what perhaps counts, at no time before earliest or after latest. Where must has
	// an episode, it may.
	perhaps          bool
	earliest, latest int64
	// exact: history's episodes must be those of must.
	exact bool
	// times of all events, ascending; only of a source that may be over and is not exact.
	times []int64
}

// include notes that the source may be over from one time to another.
func (j *judged) include(from, to int64) {
	if !j.perhaps {
		j.perhaps, j.earliest, j.latest = true, from, to
		return
	}
	j.earliest, j.latest = min(j.earliest, from), max(j.latest, to)
}

// Expect judges all rules over the load's events, each by the oracle of its algorithm and of what it counts. The identity
// map says which fields an event's identity has.
func (t *Truth) Expect(judge []Rule, identities *traffic.IdentityMap, partitions int) ([]*Expectation, error) {
	gathered := make([]*gathering, len(judge))
	for i := range judge {
		g := &gathering{
			x:    &Expectation{Rule: &judge[i].Version, load: identityPrefix(t.Header.Parameters.Seed), earliest: t.Earliest()},
			logs: map[string]*log{},
		}
		g.x.method, g.x.reason = methodOf(&judge[i])
		gathered[i] = g
	}
	newest := traffic.BeforeTime
	err := t.Each(func(e *Event, f Fate) {
		at := t.Header.Started.Add(e.Time)
		for _, g := range gathered {
			if g.x.reason == "" && watches(&g.x.Rule.Match, &e.Call) {
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
	steps    []oracle.Step
	doubted  map[int]bool      // indexes into steps
	values   map[string]string // each distinct value once, where the rule counts those
	ip       netip.Addr
	manyIPs  bool
	disorder bool
}

func (g *gathering) add(e *Event, at traffic.Time, identities *traffic.IdentityMap, doubted bool) {
	s := sourceOf(g.x.Rule, e, identities)
	value, carried := countedOf(&g.x.Rule.Count, e, identities)
	switch {
	case !s.fed:
		return
	case !carried:
		g.x.Valueless++
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
	if n := len(l.steps); n > 0 && l.steps[n-1].Time > int64(at) {
		l.disorder = true
	}
	l.manyIPs = l.manyIPs || l.ip != e.IP
	if doubted {
		g.x.Doubted++
		if l.doubted == nil {
			l.doubted = map[int]bool{}
		}
		l.doubted[len(l.steps)] = true
	}
	l.steps = append(l.steps, oracle.Step{Time: int64(at), Units: 1, Value: l.once(value), Limit: int64(g.x.Rule.Limit)})
}

// once gives the string under which a value was seen first, so that it is held once.
func (l *log) once(value string) string {
	if value == "" {
		return ""
	}
	held, ok := l.values[value]
	if !ok {
		if l.values == nil {
			l.values = map[string]string{}
		}
		l.values[value] = value
		held = value
	}
	return held
}

func (g *gathering) judge(partitions int) *Expectation {
	x := g.x
	x.sources = make(map[string]*judged, len(g.logs))
	for subject, l := range g.logs {
		ordered := !l.disorder && (!l.manyIPs || partitions == 1)
		if !x.method.anyOrder && (!ordered || len(l.doubted) > 0) {
			x.Disordered += int64(len(l.steps))
		}
		x.sources[subject] = x.method.judge(l, ordered)
		delete(g.logs, subject) // its events are not needed any more
	}
	return x
}

// Settled is when the watermark has closed every episode that the load can have on this rule.
func (x *Expectation) Settled() traffic.Time {
	last := traffic.BeforeTime
	for _, j := range x.sources {
		if j.perhaps {
			last = max(last, traffic.Time(j.latest))
		}
	}
	return last.Add(x.Rule.Window + x.Rule.Lateness)
}

func sortedTimes(steps []oracle.Step) []int64 {
	times := make([]int64, len(steps))
	for i := range steps {
		times[i] = steps[i].Time
	}
	slices.Sort(times)
	return times
}
