package loadgen

import (
	"fmt"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// What docs/windows.md says of sizes.
const (
	exactLimit   = 128 // greatest limit at which sliding is exact
	windowSlices = 64  // of a window of sliding above exactLimit
	exactValues  = 256 // distinct values up to which a set is exact; above, it is an estimate
	certainLimit = 192 // a set of more than exactValues values is over such a limit by any estimate
)

// method is how the windows of one rule are judged: by which definitions of the oracle, and what their answers are worth.
type method struct {
	definition oracle.Definition
	// exact: where a source's events came in order, history's episodes are those of definition.
	exact bool
	// anyOrder: a source that is over by certain is in history in whatever order its events came, and without one of them none
	// is over that was not.
	anyOrder bool
	// certain is what history cannot miss: definition, or less where that is not exact.
	certain oracle.Definition
	// within: certain counts only so long after the beginning of a window of the clock; 0: all the time.
	within int64
	// possible are definitions of which one must be over where history says so, whatever is missing, late or out of order.
	possible []oracle.Definition
	// limit is the rule's; greatest the greatest that its lineage has had, by which windows may be judged that late events fill.
	limit, greatest int64
}

// methodOf chooses the method for a rule; without one, the reason is told.
func methodOf(r *Rule) (m method, reason string) {
	distinct := r.Count.Distinct
	if !traffic.IdentityKey(r.Key) || len(r.Count.Tuple) > 0 || distinct != nil && !distinct.OfIdentity() {
		return method{}, "a load is judged by identities: there is no oracle for a key or count of other fields"
	}
	if w := &r.Match; len(w.Paths)+len(w.Except)+len(w.Hosts)+len(w.Routes)+len(w.Statuses) > 0 {
		return method{}, "there is no oracle for a match by more than method and path"
	}
	if r.Match.When != "" || len(r.Tiers) > 0 {
		return method{}, "there is no oracle for conditions"
	}
	if len(r.Allow) > 0 {
		return method{}, "there is no oracle for allow lists"
	}
	m.limit = int64(r.Limit)
	m.greatest = m.limit
	for _, before := range r.Limits {
		m.greatest = max(m.greatest, int64(before))
	}
	d := oracle.Definition{
		Algorithm: string(r.Counting()), Distinct: r.Count.Kind() == rules.CountDistinct, Window: r.Window.Microseconds(), Capacity: int64(r.Capacity()),
	}
	m.definition, m.certain, m.possible, m.exact = d, d, []oracle.Definition{d}, true
	switch r.Counting() {
	case rules.AlgorithmFixed, rules.AlgorithmSlidingLog:
		m.anyOrder = true
	case rules.AlgorithmSliding:
		m.anyOrder = true
		if m.greatest > exactLimit {
			m.sliced()
		}
	case rules.AlgorithmFirstSeen, rules.AlgorithmSlidingCounter, rules.AlgorithmTokenBucket, rules.AlgorithmLeakyBucket:
	default:
		return method{}, fmt.Sprintf("there is no oracle for algorithm %s", r.Counting())
	}
	return m, ""
}

// sliced makes m the method of sliding above exactLimit: history is over by the window at most, and at least by a window
// that is shorter by one slice. Of distinct values there are two sets that rotate with the clock: at most the window or
// the sets weighed are over, at least what came within one window of the clock less a slice.
func (m *method) sliced() {
	m.exact = false
	shorter := m.definition.Window - (m.definition.Window+windowSlices-1)/windowSlices
	if !m.definition.Distinct {
		m.certain.Window = shorter
		return
	}
	m.anyOrder = false
	m.certain.Algorithm, m.within = string(rules.AlgorithmFixed), shorter
	rotating := m.definition
	rotating.Algorithm = string(rules.AlgorithmSlidingCounter)
	m.possible = append(m.possible, rotating)
}

// needs is how many events a source has to have at least to be over.
func (m *method) needs() int {
	least := m.limit
	if c := m.definition.Capacity; c > 0 {
		least = c
	}
	return int(least) + 1
}

// bucket reports whether values are remembered longer than for a window.
func (m *method) bucket() bool { return m.definition.Capacity > 0 }

// judge is the oracle's word on one source, whose events reached DETECT in the order of their times, or not.
func (m *method) judge(l *log, ordered bool) *judged {
	many := m.definition.Distinct && len(l.values) > exactValues
	j := &judged{
		exact: m.exact && ordered && len(l.doubted) == 0 && (!many || !m.bucket() && m.limit <= certainLimit),
	}
	if len(l.steps) < m.needs() {
		return j // too few in all for any window
	}
	if j.exact {
		j.must = m.definition.Episodes(m.definition.Judge(l.steps), maxEpisode.Microseconds())
		if n := len(j.must); n > 0 {
			j.perhaps, j.earliest, j.latest = true, j.must[0].First, j.must[n-1].Last
		}
		return j
	}
	for _, d := range m.possible {
		if over := oracle.NewTruth(d, l.steps).OverTimes(); len(over) > 0 {
			j.include(over[0], over[len(over)-1])
		}
	}
	if !j.perhaps {
		return j
	}
	j.times = sortedTimes(l.steps)
	if m.anyOrder || ordered && len(l.doubted) == 0 {
		j.must = m.sure(l, ordered, many)
	}
	return j
}

// sure gives episodes that history cannot miss altogether: by the events that certainly count, the greatest limit that may
// have been applied, and the lowest estimate of many values.
func (m *method) sure(l *log, ordered, many bool) []oracle.PeakedEpisode {
	if many && m.bucket() {
		return nil // a new value may be taken for one that was poured
	}
	limit := m.limit
	if !ordered {
		limit = m.greatest
	}
	if many && limit > certainLimit {
		limit += limit / 4
	}
	steps := make([]oracle.Step, 0, len(l.steps))
	for i, s := range l.steps {
		if !l.doubted[i] {
			s.Limit = limit
			steps = append(steps, s)
		}
	}
	answers := m.certain.Judge(steps)
	for i := range answers {
		if a := &answers[i]; m.within > 0 && modulo(a.Time, m.certain.Window) >= m.within {
			a.Over = false
		}
	}
	return m.certain.Episodes(answers, maxEpisode.Microseconds())
}

// modulo is t less the last multiple of n at or before it.
func modulo(t, n int64) int64 { return ((t % n) + n) % n }
