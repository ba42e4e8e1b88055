package route

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// Explainer reads single events as routers read them under one routing version, and tells what they decide and why. It
// writes nothing. It is not safe for concurrent use.
type Explainer struct {
	version *routingVersion
	reader  eventRouter
	rules   []ExplainedRule // memory of Explain
	turned  []TurnedAway    // the same

	language *condition.Language // nil before the first Judge
	parts    map[parted]*condition.Parts
	event    condition.Event
}

// parted is a condition that was taken apart: a text may be a known_good and a rule's condition, too.
type parted struct {
	expr string
	good bool
}

// NewExplainer makes an Explainer for a routing version of the live stream, or of a replay. It returns an error for a
// version that this build could not route by.
func NewExplainer(r *rules.Routing, live bool) (*Explainer, error) {
	// One keyed partition and no secret: where records would go is not told.
	opt := &Options{Live: live, SecretID: r.SecretID, KeyedPartitions: 1}
	v, err := compile(r, opt)
	if err != nil {
		return nil, err
	}
	return &Explainer{version: v, reader: eventRouter{live: live, targets: newTargeter(nil, 1)}}, nil
}

// NewFileExplainer makes an Explainer for events of files, as NewReader reads them: of any format, and times stand.
func NewFileExplainer(r *rules.Routing) (*Explainer, error) {
	e, err := NewExplainer(r, true)
	if err != nil {
		return nil, err
	}
	e.reader.live = false
	return e, nil
}

// Explanation is what routers make of one event. It is valid until the next call of Explain.
type Explanation struct {
	Fate Fate
	Err  error // with FateDead: why it cannot be used, often a *format.DecodeError

	// Request is the event as it was decoded, with the time that routing decided on; nothing for FateDead.
	Request  *traffic.Request
	Told     traffic.Time // the time that the event itself gives; with Timeless 0
	Timeless bool         // it gives none, and has got the append time
	Future   bool         // its time was too far ahead of the append time, and was replaced by that: see FutureTolerance
	Identity *traffic.Identity
	Missing  *traffic.Missing // which parts of the identity it lacks, and why; with FateDead and FateEndMark nil
	// Rules are those that watch the event, ascending by index; there are none unless Fate is FateKeyless or FateRouted.
	Rules []ExplainedRule
	// Turned are the rules whose match the event meets but for match.when.
	Turned []TurnedAway
	// Good is what known_good says of it.
	Good detectors.Good
}

// TurnedAway is a rule whose match.when keeps an event from it.
type TurnedAway struct {
	Index int             // into the routing version's rules
	Fault condition.Fault // Fine: match.when does not hold; else why it could not be judged
}

// ExplainedRule says what one rule that watches an event does with it.
type ExplainedRule struct {
	Index   int                // into the routing version's rules
	Lacking []traffic.KeyField // fields of the rule's key that the event lacks
	Counts  bool               // the event feeds the rule's windows
	// Why says why not: "missing" where a field of the key is missing and the rule skips such events, else the reason that
	// metrics have as a label, such as distinct_missing; "allowed" with Allowed. Empty with Counts.
	Why string
	// Allowed is the allow list that lets the event pass, and Entry its entry for it that ends last; empty and nil for none.
	Allowed string
	Entry   *rules.AllowEntry
	// Tier says by which limit the event is judged: 0 for the rule's own, n for its n-th tier's. 0 for one that does not count.
	Tier int
	// TierFault says why the condition of a tier could not be judged, so that Tier is that of the greatest limit that the event
	// may have; Fine: all that were asked could.
	TierFault condition.Fault
}

// Explain reads one event. Nothing that came before it counts: no event is behind another one's time.
func (e *Explainer) Explain(m *traffic.Message) Explanation {
	got := e.reader.read(e.version, m, traffic.BeforeTime)
	out := Explanation{Fate: got.fate, Err: got.err, Good: got.good}
	if got.fate == FateDead {
		return out
	}
	out.Request = &e.reader.request
	if got.fate == FateEndMark {
		return out
	}
	out.Told, out.Timeless, out.Future = got.told, got.timeless, got.future
	out.Identity, out.Missing = &got.identity, &got.missing
	e.rules = e.rules[:0]
	for i := range got.watched {
		e.rules = append(e.rules, e.explain(&got.watched[i]))
	}
	out.Rules = e.rules
	e.turned = e.turned[:0]
	for _, t := range got.turned {
		e.turned = append(e.turned, TurnedAway{t.rule, t.fault})
	}
	out.Turned = e.turned
	return out
}

func (e *Explainer) explain(w *watching) ExplainedRule {
	out := ExplainedRule{Index: w.rule, Counts: w.counts(), Tier: w.tier, TierFault: w.fault}
	for i, k := range e.version.rules[w.rule].key {
		if w.lacking&(1<<i) != 0 {
			out.Lacking = append(out.Lacking, k)
		}
	}
	switch {
	case w.allowed >= 0:
		list, got := e.version.allow[w.allowed], &e.reader.out
		out.Why, out.Allowed, out.Entry = "allowed", list.id, list.entry(&got.identity, got.time)
	case w.skipped:
		out.Why = "missing"
	case !out.Counts:
		out.Why = w.why.String()
	}
	return out
}

// Judge judges the event that was explained last by a condition of the version, match.when or that of a tier, part by part. The
// event must have an identity. The error is that of a condition that does not compile.
func (e *Explainer) Judge(expr string) (condition.Judged, error) {
	return e.judge(expr, false)
}

// JudgeGood is Judge for a known_good.
func (e *Explainer) JudgeGood(expr string) (condition.Judged, error) {
	return e.judge(expr, true)
}

func (e *Explainer) judge(expr string, good bool) (condition.Judged, error) {
	if e.language == nil {
		var err error
		if e.language, err = condition.New(); err != nil {
			return condition.Judged{}, err
		}
		e.parts = map[parted]*condition.Parts{}
	}
	name := parted{expr, good}
	if e.parts[name] == nil {
		take := e.language.Parts
		if good {
			take = e.language.StrictParts
		}
		var err error
		if e.parts[name], err = take(expr); err != nil {
			return condition.Judged{}, err
		}
	}
	e.event.Reset(&e.reader.request, &e.reader.out.identity)
	return e.parts[name].Judge(&e.event), nil
}

// Identifier derives identities as routers do under a routing version.
func Identifier(r *rules.Routing) (*traffic.Identifier, error) {
	if r.RecordFormat < rules.ReadingRecordFormat {
		return r.Identity.Compile(traffic.FieldsAsIs())
	}
	return r.Identity.Compile()
}

// Clause is one condition of a rule's match, and what an event has for it.
type Clause struct {
	Name string `json:"name"` // as in documents: match.path
	Rule string `json:"rule"` // what the rule asks for
	Got  string `json:"event"`
	Held bool   `json:"held"`
}

// clause is how one member of a match is asked alone.
type clause struct {
	name  string
	rule  func(*rules.Match) string // empty: the rule does not ask for it
	got   func(*traffic.Request) string
	alone func(rules.Match) rules.Match // the match that asks for nothing else
}

// clauses are the members of a match, the cheap ones first.
func clauses() []clause {
	list := func(of func(*rules.Match) []string) func(*rules.Match) string {
		return func(m *rules.Match) string { return strings.Join(of(m), ", ") }
	}
	return []clause{
		{
			"match.method", list(func(m *rules.Match) []string { return m.Methods }),
			func(q *traffic.Request) string { return q.Method },
			func(m rules.Match) rules.Match { return rules.Match{Methods: m.Methods} },
		},
		{
			"match.path", pathText,
			func(q *traffic.Request) string { return q.Path },
			func(m rules.Match) rules.Match {
				return rules.Match{Path: m.Path, Paths: m.Paths, PathAs: m.PathAs, PathCase: m.PathCase}
			},
		},
		{
			"match.except", list(func(m *rules.Match) []string { return m.Except }),
			func(q *traffic.Request) string { return q.Path },
			func(m rules.Match) rules.Match {
				return rules.Match{Except: m.Except, PathAs: m.PathAs, PathCase: m.PathCase}
			},
		},
		{
			"match.host", list(func(m *rules.Match) []string { return m.Hosts }),
			func(q *traffic.Request) string { return q.Host },
			func(m rules.Match) rules.Match { return rules.Match{Hosts: m.Hosts} },
		},
		{
			"match.route", list(func(m *rules.Match) []string { return m.Routes }),
			func(q *traffic.Request) string { return q.Route },
			func(m rules.Match) rules.Match { return rules.Match{Routes: m.Routes} },
		},
		{
			"match.status", list(func(m *rules.Match) []string { return m.Statuses }),
			func(q *traffic.Request) string {
				if q.Status == 0 {
					return ""
				}
				return strconv.Itoa(q.Status)
			},
			func(m rules.Match) rules.Match { return rules.Match{Statuses: m.Statuses} },
		},
	}
}

// pathText is a path with how it is compared, where that is not the default.
func pathText(m *rules.Match) string {
	text := m.Path
	if len(m.Paths) > 0 {
		text = strings.Join(m.Paths, ", ")
	}
	if text == "" {
		return ""
	}
	if as := cmp.Or(m.PathAs, rules.PathNormal); as != rules.PathNormal {
		text += " (path_as: " + string(as) + ")"
	}
	if how := cmp.Or(m.PathCase, rules.PathCaseExact); how != rules.PathCaseExact {
		text += " (path_case: " + string(how) + ")"
	}
	return text
}

// Clauses asks each part of a match alone, as the index of rules does, and gives those that the match has. A rule watches the
// request if all of them hold; a match without any watches every request.
func Clauses(m *rules.Match, q *traffic.Request) []Clause {
	target := rules.Target{Method: q.Method, Path: q.Path, Host: q.Host, Route: q.Route, Status: q.Status}
	var out []Clause
	for _, c := range clauses() {
		want := c.rule(m)
		if want == "" {
			continue
		}
		index := rules.NewIndex([]rules.Version{{Document: rules.Document{Match: c.alone(*m)}}})
		out = append(out, Clause{Name: c.name, Rule: want, Got: c.got(q), Held: len(index.Match(nil, &target)) > 0})
	}
	return out
}
