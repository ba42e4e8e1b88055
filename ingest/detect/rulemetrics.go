package detect

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/ruleseries"
	"github.com/weirhq/weir/rules"
)

// ruleMetrics are the metrics by rule. The rules are those of the newest routing version: what is still counted by older ones
// for a rule that is gone shows nowhere. Events are counted by the partitions and come here in sums.
type ruleMetrics struct {
	set          *ruleseries.Rules
	hits, events *ruleseries.Series[prometheus.Counter]
	uncounted    *ruleseries.Series[prometheus.Counter]
	unwarned     *ruleseries.Series[prometheus.Counter]
	began        *ruleseries.Series[prometheus.Counter]
	episodes     *ruleseries.Series[prometheus.Gauge]

	newest  int64 // of the routing versions followed; only the shelf's goroutine uses it
	present atomic.Pointer[map[string]*ruleSeries]
}

// ruleSeries are the series of one rule.
type ruleSeries struct {
	hits          map[hitLabels]prometheus.Counter
	counted, over prometheus.Counter
	began         prometheus.Counter
	unwarned      prometheus.Counter                         // nil for a rule that does not warn
	uncounted     [detectors.NumUncounted]prometheus.Counter // nil for what only ROUTE finds
	episodes      prometheus.Gauge
}

type hitLabels struct {
	kind  detectors.Kind
	phase detectors.Phase
}

// beside reports whether only some rules have such hits.
func (l hitLabels) beside() bool {
	return l.kind == detectors.KindNear || l.kind == detectors.KindCandidate
}

// hitsOfRules are the kinds and phases of hits that belong to a rule.
func hitsOfRules() []hitLabels {
	return []hitLabels{
		{detectors.KindHit, detectors.PhaseOpen}, {detectors.KindHit, detectors.PhaseUpdate}, {detectors.KindHit, detectors.PhaseClosed},
		{detectors.KindHit, detectors.PhaseMerged}, {detectors.KindLate, ""}, {detectors.KindUncounted, ""},
		{detectors.KindNear, detectors.PhaseOpen}, {detectors.KindNear, detectors.PhaseClosed}, {detectors.KindNear, detectors.PhaseMerged},
		{detectors.KindCandidate, detectors.PhaseOpen}, {detectors.KindCandidate, detectors.PhaseUpdate}, {detectors.KindCandidate, detectors.PhaseClosed},
		{detectors.KindCandidate, detectors.PhaseMerged},
	}
}

// detectsUncounted are the reasons for which DETECT leaves out events. What lacks a field of the key does not come to it.
func detectsUncounted() []detectors.Uncounted {
	return []detectors.Uncounted{detectors.UncountedLate, detectors.UncountedOutOfOrder, detectors.UncountedMissingValue}
}

const (
	outcomeCounted = "counted"
	outcomeOver    = "over"
)

func newRuleMetrics() *ruleMetrics {
	var hits, reasons [][]string
	for _, l := range hitsOfRules() {
		if !l.beside() {
			hits = append(hits, []string{string(l.kind), string(l.phase)})
		}
	}
	for _, reason := range detectsUncounted() {
		reasons = append(reasons, []string{reason.String()})
	}
	set := ruleseries.New()
	m := &ruleMetrics{
		set: set,
		hits: set.Counters(prometheus.CounterOpts{
			Name: "weir_detect_hits_total", Help: "Records of rules that the hits topic has acknowledged, by kind; those of episodes also by their phase.",
		}, []string{"kind", "phase"}, hits...),
		events: set.Counters(prometheus.CounterOpts{
			Name: "weir_detect_rule_events_total",
			Help: "Events that a rule watches: counted in a window; and of those over, which were over the limit when they came, or put an earlier one over it. " +
				"Of what a process that crashed had counted since its newest snapshot, its successor counts the last two minutes again, and all of it where the process had lived for less.",
		}, []string{"outcome"}, []string{outcomeCounted}, []string{outcomeOver}),
		uncounted: set.Counters(ingest.UncountedOpts(ingest.StageDetect), []string{"reason"}, reasons...),
		unwarned: set.Counters(prometheus.CounterOpts{
			Name: "weir_detect_near_left_out_total",
			Help: fmt.Sprintf("Sources near the limit of which no warning was sent: a rule opens up to %d in a keyed partition and minute.", detectors.MaxNearOpenings),
		}, nil),
		began: set.Counters(prometheus.CounterOpts{
			Name: "weir_detect_episodes_total",
			Help: "Episodes that began: a source went over the limit, and its first hit was sent. A block narrower than the rule makes several hits of one episode.",
		}, nil, nil),
		episodes: set.Gauges(prometheus.GaugeOpts{
			Name: "weir_detect_open_episodes",
			Help: "Sources over the limit now: episodes that are open, in the partitions that the process owns. A block narrower than the rule makes several hits of one episode.",
		}, nil, nil),
	}
	m.present.Store(&map[string]*ruleSeries{})
	return m
}

// follow brings the series to the rules of a routing version, unless a newer one was followed.
func (m *ruleMetrics) follow(r *rules.Routing) {
	if r.Number <= m.newest {
		return
	}
	m.newest = r.Number
	var ids []string
	kinds := map[string][]detectors.Kind{} // of each rule, what it may have beside hits over its limit
	for i := range r.Rules {
		v := &r.Rules[i]
		if !v.Pending {
			ids = append(ids, v.ID)
		}
		if v.Near > 0 {
			kinds[v.ID] = append(kinds[v.ID], detectors.KindNear)
		}
		if v.Candidate != nil || v.Pending {
			kinds[v.ID] = append(kinds[v.ID], detectors.KindCandidate)
		}
	}
	m.set.Keep(ids)
	present := make(map[string]*ruleSeries, len(ids))
	for _, id := range ids {
		s := &ruleSeries{
			hits:    map[hitLabels]prometheus.Counter{},
			counted: m.events.Of(id, outcomeCounted), over: m.events.Of(id, outcomeOver), began: m.began.Of(id), episodes: m.episodes.Of(id),
		}
		for _, l := range hitsOfRules() {
			if !l.beside() || slices.Contains(kinds[id], l.kind) {
				s.hits[l] = m.hits.Of(id, string(l.kind), string(l.phase))
			}
		}
		if slices.Contains(kinds[id], detectors.KindNear) {
			s.unwarned = m.unwarned.Of(id)
		}
		for _, reason := range detectsUncounted() {
			s.uncounted[reason] = m.uncounted.Of(id, reason.String())
		}
		present[id] = s
	}
	m.present.Store(&present)
}

func (m *ruleMetrics) of(rule string) *ruleSeries { return (*m.present.Load())[rule] }

// hit shows a hit that the hits topic has acknowledged.
func (m *ruleMetrics) hit(h *detectors.Hit) {
	if s := m.of(h.Rule); s != nil {
		if c := s.hits[hitLabels{h.Kind, h.Phase}]; c != nil {
			c.Inc()
		}
	}
}

// add shows what became of events.
func (m *ruleMetrics) add(rule string, e *detectors.RuleEvents) {
	s := m.of(rule)
	if s == nil {
		return
	}
	s.counted.Add(float64(e.Counted))
	s.over.Add(float64(e.Over))
	s.began.Add(float64(e.Episodes))
	if s.unwarned != nil {
		s.unwarned.Add(float64(e.NearLeftOut))
	}
	for reason, c := range s.uncounted {
		if c != nil {
			c.Add(float64(e.Uncounted[reason]))
		}
	}
}

// open shows how many episodes of each rule are open.
func (m *ruleMetrics) open(episodes map[string]int64) {
	for rule, s := range *m.present.Load() {
		s.episodes.Set(float64(episodes[rule]))
	}
}
