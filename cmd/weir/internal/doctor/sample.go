package doctor

import (
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// sampled is what a sample of events showed, as routers explain them under a routing version.
type sampled struct {
	routing *rules.Routing
	modes   map[string]rules.ModeState

	events  int // all that were looked at
	refused map[string]int
	example string // why the first of them was refused
	newest  traffic.Time

	good     int // events that could be read
	missing  [traffic.NumFields][traffic.NumMissingReasons]int
	timeless int
	lateness stream.Lateness              // of the rules
	late     int                          // events that came too late for every rule
	future   int                          // later than the broker's clock by more than what is tolerated
	delays   []time.Duration              // from an event's time until Kafka took it; negative: it came from the future. Ascending
	unknown  int                          // events with members that the format does not define
	verdicts int                          // requests that weir itself refused
	byRule   []ruleSample                 // by index of the routing version's rules; of requests that weir did not refuse
	judged   [detectors.KnownGood + 1]int // by what known_good says; of requests that weir did not refuse
	silent   int                          // answered 429 without a verdict, where a rule that blocks matches
	peers    peers
}

// ruleSample is how many of the events a rule matches, and how many of those lack each field of its key.
type ruleSample struct {
	matched int
	budget  int            // conditions of the rule were not judged
	lacking map[string]int // by the field's name
}

// readSample asks what routers make of each message under a routing version, and what of it comes in time where detect.idle_margin
// is this.
func readSample(messages []traffic.Message, routing *rules.Routing, modes map[string]rules.ModeState, idleMargin time.Duration) (*sampled, error) {
	explainer, err := route.NewExplainer(routing, true)
	if err != nil {
		return nil, err
	}
	s := &sampled{
		routing: routing, modes: modes, refused: map[string]int{}, byRule: make([]ruleSample, len(routing.Rules)),
		lateness: stream.LatenessOf(routing.Rules, idleMargin),
	}
	for i := range messages {
		m := &messages[i]
		s.events++
		s.newest = max(s.newest, m.Appended)
		got := explainer.Explain(m)
		if got.Fate == route.FateDead {
			s.refuse(got.Err)
			continue
		}
		s.good++
		s.time(&got, m.Appended)
		for f, reason := range got.Missing {
			s.missing[f][reason]++
		}
		s.peers.note(&got)
		if got.Request.UnknownFields > 0 {
			s.unknown++
		}
		if got.Fate == route.FateRefusal {
			s.verdicts++
			continue
		}
		s.judged[got.Good]++
		s.match(&got)
	}
	slices.Sort(s.delays)
	return s, nil
}

func (s *sampled) time(got *route.Explanation, appended traffic.Time) {
	if got.Timeless {
		s.timeless++
		return
	}
	s.delays = append(s.delays, appended.Sub(got.Told))
	if s.lateness.Late(got.Told, appended) {
		s.late++
	}
	if got.Future {
		s.future++
	}
}

func (s *sampled) match(got *route.Explanation) {
	held := false
	for i := range got.Rules {
		r := &got.Rules[i]
		if s.routing.Rules[r.Index].Pending {
			continue // it holds nobody
		}
		of := &s.byRule[r.Index]
		of.matched++
		if r.TierFault == condition.FaultBudget {
			of.budget++
		}
		for _, k := range r.Lacking {
			if of.lacking == nil {
				of.lacking = map[string]int{}
			}
			of.lacking[k.String()]++
		}
	}
	for i := range got.Turned {
		if got.Turned[i].Fault == condition.FaultBudget {
			s.byRule[got.Turned[i].Index].budget++
		}
	}
	q := got.Request
	asked := rules.Target{Method: q.Method, Path: q.Path, Host: q.Host, Route: q.Route}
	for i := range s.routing.Rules {
		rule := &s.routing.Rules[i]
		if reach := rule.Reach(); s.modes[rule.ID].Mode.Blocks() && reach.Reaches(&asked) {
			held = true
		}
	}
	if held && got.Request.Status == 429 {
		s.silent++
	}
}

func (s *sampled) refuse(err error) {
	reason := format.ReasonMalformed
	if bad := (*format.DecodeError)(nil); errors.As(err, &bad) {
		reason = bad.Reason
	}
	s.refused[reason]++
	if s.example == "" {
		s.example = err.Error()
	}
}

// delay is the delay that so many of a hundred events stay below.
func (s *sampled) delay(percent int) time.Duration {
	if len(s.delays) == 0 {
		return 0
	}
	return s.delays[min(len(s.delays)-1, len(s.delays)*percent/100)]
}

// carry is how many of the readable events have an identity's field.
func (s *sampled) carry(f traffic.Field) int { return s.missing[f][traffic.Present] }

// blocking lists the rules that block, ascending.
func (s *sampled) blocking() []string {
	var out []string
	for id, m := range s.modes {
		if m.Mode.Blocks() {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// inShadow lists the rules in shadow that a promotion would have block, ascending.
func (s *sampled) inShadow() []string {
	var out []string
	for i := range s.routing.Rules {
		v := &s.routing.Rules[i]
		if v.Block != nil && !v.Pending && s.modes[v.ID].Mode == rules.ModeShadow {
			out = append(out, v.ID)
		}
	}
	return out
}

// judgeBudget names the rules whose conditions are not judged of some of the events: together they cost too much for
// those.
func (s *sampled) judgeBudget() []Finding {
	var beyond []string
	most := 0
	for i := range s.byRule {
		if n := s.byRule[i].budget; n > 0 {
			beyond, most = append(beyond, s.routing.Rules[i].ID), max(most, n)
		}
	}
	if len(beyond) == 0 {
		return nil
	}
	return []Finding{warning("conditions", "let match hold fewer requests, or ask less of long texts in when "+
		"(docs/rules.md#when); weir rules explain shows it of one event",
		"of the newest %s, up to %d were beyond what conditions may cost together, and not judged by: %s",
		plural.Of(s.good, "event"), most, terminal.FirstFew(beyond))}
}
