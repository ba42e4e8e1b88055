package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weirhq/weir/console/shown"

	"github.com/weirhq/weir/console/standing"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const (
	hitsShown        = 400 // of all rules
	hitsShownPerRule = 40
	topSources       = 3
)

// hitView is one over-limit source: an episode.
type hitView struct {
	ID       string           `json:"id"`
	Rule     string           `json:"rule"`
	Version  int              `json:"rule_version"`
	Phase    string           `json:"phase"` // open, update, closed
	Source   shown.Source     `json:"source"`
	Outcome  standing.Outcome `json:"outcome"`
	Grouped  bool             `json:"grouped,omitempty"` // sources that lack a field of the key, taken together: never blocked
	Cut      bool             `json:"cut,omitempty"`
	Reason   string           `json:"reason,omitempty"` // why it was closed before its time: reset
	Limit    int              `json:"limit"`
	WindowMS int64            `json:"window_ms"`
	Count    int64            `json:"count"`              // events from the first to the last over event
	AtLeast  bool             `json:"at_least,omitempty"` // count, first and last are bounds
	Peak     int              `json:"peak"`               // greatest count that a window was seen to hold
	First    traffic.Time     `json:"first"`
	Last     traffic.Time     `json:"last"`
	Users    int              `json:"users"`   // distinct ones; stops at 64
	Devices  int              `json:"devices"` // distinct ones; stops at 64
	Samples  int              `json:"samples"`
}

// evidenceView is one episode with its evidence.
type evidenceView struct {
	hitView
	BlockSource *shown.Source `json:"block_source,omitempty"` // whom a block holds
	BlockID     string        `json:"block_id"`
	Lineage     int           `json:"lineage"`
	Partition   int           `json:"partition"` // of the requests topic, where the event lies that opened it
	Offset      int64         `json:"offset"`
	Generation  int64         `json:"generation"`
	Events      []shown.Event `json:"events"`
	Commands    []string      `json:"commands"`
}

// hitsView is the section "hits": the newest episodes of each rule, in the order in which they began.
type hitsView struct {
	Stale   *staleView `json:"stale"`
	Minutes int        `json:"minutes"` // how far back
	More    bool       `json:"more"`    // there are more than are listed
	Hits    []hitView  `json:"hits"`
}

func (p *picture) hit(r *history.RecordedHit) hitView {
	h := &r.Hit
	return hitView{
		ID: h.ID, Rule: h.Rule, Version: h.RuleVersion, Phase: string(h.Phase), Source: shown.SourceOf(h.Subject), Outcome: p.Outcome(h),
		Grouped: h.Grouped, Cut: h.Cut, Reason: h.Reason, Limit: h.Limit, WindowMS: h.WindowMS, Count: h.Count, AtLeast: h.AtLeast, Peak: h.Peak,
		First: h.First, Last: h.Last, Users: h.Users, Devices: h.Devices, Samples: len(h.Samples),
	}
}

func (p *picture) hitsView() hitsView {
	v := hitsView{Stale: p.stale(partHistory), Minutes: int(recent.Minutes()), Hits: []hitView{}}
	for _, hits := range p.readings.hits {
		v.More = v.More || len(hits) > hitsShownPerRule
		for i := range first(hits, hitsShownPerRule) {
			v.Hits = append(v.Hits, p.hit(&hits[i]))
		}
	}
	// By where they began, which does not change: a list that shuffles while it is read cannot be read.
	slices.SortFunc(v.Hits, func(a, b hitView) int {
		return cmp.Or(cmp.Compare(b.First, a.First), cmp.Compare(a.ID, b.ID))
	})
	v.More = v.More || len(v.Hits) > hitsShown
	v.Hits = first(v.Hits, hitsShown)
	return v
}

// evidence finds an episode by its id among those that were read last.
func (p *picture) evidence(id string) (evidenceView, bool) {
	for _, hits := range p.readings.hits {
		for i := range hits {
			if hits[i].ID == id {
				return p.evidenceOf(&hits[i]), true
			}
		}
	}
	return evidenceView{}, false
}

func (p *picture) evidenceOf(r *history.RecordedHit) evidenceView {
	h := &r.Hit
	v := evidenceView{
		hitView: p.hit(r), BlockID: blockID(h.ID), Lineage: h.Lineage, Partition: h.Source, Offset: h.Offset,
		Generation: h.Generation, Events: []shown.Event{}, Commands: []string{p.command.Decisions(h.Rule)},
	}
	if h.BlockSubject != "" {
		who := shown.SourceOf(h.BlockSubject)
		v.BlockSource = &who
	}
	for _, text := range h.Samples {
		var s traffic.Sample
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			s = traffic.Sample{Time: h.First, Attrs: text} // evidence of another build is shown as it is
		}
		v.Events = append(v.Events, shown.EventOf(&s))
	}
	if v.Outcome.Kind == standing.Held {
		if release := p.command.Release(h.Rule, h.BlockSubject); release != "" {
			v.Commands = append(v.Commands, release)
		}
	}
	return v
}

// overView is an over-limit source of one rule: its newest episode.
type overView struct {
	Source  shown.Source     `json:"source"`
	Hit     string           `json:"hit"`
	Count   int64            `json:"count"` // of all its episodes
	First   traffic.Time     `json:"first"`
	Last    traffic.Time     `json:"last"`
	Outcome standing.Outcome `json:"outcome"`
}

// ruleView is one rule with what it found.
type ruleView struct {
	ID        string     `json:"id"`
	Owner     string     `json:"owner"`
	Version   int        `json:"version"`
	Mode      string     `json:"mode"`
	Changed   string     `json:"changed"` // when its mode was set, RFC 3339
	ChangedBy string     `json:"changed_by"`
	Reason    string     `json:"reason,omitempty"`
	Methods   []string   `json:"methods"` // none: all
	Path      string     `json:"path"`    // empty: all
	Key       []string   `json:"key"`     // none: one window for all
	Limit     int        `json:"limit"`
	WindowMS  int64      `json:"window_ms"`
	BlockKey  []string   `json:"block_key"`    // none: the rule names no block
	BlockMS   int64      `json:"block_ttl_ms"` // 0: the rule names no block
	Sources   int        `json:"sources"`      // that were over the limit within the period
	Episodes  int        `json:"episodes"`
	Events    int64      `json:"events"`     // in those episodes
	More      bool       `json:"more"`       // the three numbers are only of the newest episodes: there are more
	Holds     int        `json:"holds"`      // blocks in force
	WouldHold int        `json:"would_hold"` // in shadow: whom it would hold now
	Top       []overView `json:"top"`        // the newest over-limit sources
	Command   string     `json:"command"`    // changes the mode
	// Pending is an edit that may block more than the version that acts; null: there is none.
	Pending *pendingView `json:"pending"`
}

// pendingView is a version of a rule that is counted beside the one that acts and never enforced, until it is promoted.
type pendingView struct {
	Version int      `json:"version"`
	Since   string   `json:"since"`             // RFC 3339
	Warming string   `json:"warming,omitempty"` // until when its windows may hold less than they will, RFC 3339; empty: they are full
	By      string   `json:"by"`
	Reason  string   `json:"reason,omitempty"`
	Diff    []string `json:"diff"`    // what it changes, a line a field
	Command string   `json:"command"` // promotes it, and no other one
}

// rulesView is the section "rules".
type rulesView struct {
	Stale   *staleView `json:"stale"`
	Minutes int        `json:"minutes"`
	Rules   []ruleView `json:"rules"`
}

func (p *picture) rulesView() rulesView {
	v := rulesView{Stale: p.stale(partHistory), Minutes: int(recent.Minutes()), Rules: []ruleView{}}
	holds := map[string]int{}
	for key, b := range p.Blocks {
		if b.InForce {
			holds[key.Rule]++
		}
	}
	for i := range p.readings.rules {
		one := p.rule(&p.readings.rules[i])
		one.Holds = holds[one.ID]
		v.Rules = append(v.Rules, one)
	}
	return v
}

func (p *picture) rule(r *rulestore.Rule) ruleView {
	d := &r.Newest.Version.Document
	v := ruleView{
		ID: d.ID, Owner: shown.Text(d.Owner), Version: r.Newest.Version.Number, Mode: string(r.Mode),
		Changed: traffic.At(r.Changed).String(), ChangedBy: shown.Text(r.ChangedBy), Reason: shown.Text(r.Reason),
		Methods: append([]string{}, d.Match.Methods...), Path: shown.Text(watchedPath(&d.Match)), Key: keyWords(d.Key), Limit: d.Limit,
		WindowMS: d.Window.Milliseconds(), BlockKey: []string{}, Top: []overView{}, Command: p.command.Mode(d.ID, r.Mode, r.Newest.Version.Number),
		Pending: p.pending(r),
	}
	if d.Block != nil {
		v.BlockKey, v.BlockMS = keyWords(d.Block.Key), d.Block.TTL.Milliseconds()
	}
	if r.Mode == rules.ModeShadow && d.Block == nil {
		v.Command = "" // there is nothing to promote
	}
	p.count(&v, p.readings.hits[d.ID])
	return v
}

// pending is the pending version of a rule, nil where there is none.
func (p *picture) pending(r *rulestore.Rule) *pendingView {
	if r.Pending == nil {
		return nil
	}
	next := &r.Pending.Version
	v := &pendingView{
		Version: next.Number, Since: traffic.At(r.Pending.Created).String(), By: shown.Text(r.Pending.Author), Reason: shown.Text(r.Pending.Reason), Diff: []string{},
		Command: p.command.Promote(next.ID, next.Number),
	}
	if full := r.WarmPending(p.now.Std()); !full.IsZero() {
		v.Warming = traffic.At(full).String()
	}
	for _, line := range rules.Diff(&r.Newest.Version.Document, &next.Document) {
		v.Diff = append(v.Diff, shown.Text(line))
	}
	return v
}

// watchedPath is what a match asks beside the methods; empty: nothing.
func watchedPath(m *rules.Match) string {
	if where := m.Where(); where != "any path" {
		return where
	}
	return ""
}

// count sums up the episodes of a rule.
func (p *picture) count(v *ruleView, hits []history.RecordedHit) {
	v.More = len(hits) == hitsPerRule
	would := map[traffic.Subject]bool{}
	over := map[traffic.Subject]*overView{}
	var order []*overView
	for i := range hits {
		h := &hits[i].Hit
		v.Episodes++
		v.Events += h.Count
		outcome := p.Outcome(h)
		if outcome.Kind == standing.Would {
			would[h.BlockSubject] = true
		}
		o := over[h.Subject]
		if o == nil { // newest first, so this is the newest episode of its source
			o = &overView{Source: shown.SourceOf(h.Subject), Hit: h.ID, First: h.First, Last: h.Last, Outcome: outcome}
			over[h.Subject], order = o, append(order, o)
		}
		o.Count += h.Count
	}
	v.Sources, v.WouldHold = len(order), len(would)
	slices.SortStableFunc(order, func(a, b *overView) int { return cmp.Compare(b.First, a.First) })
	for _, o := range first(order, topSources) {
		v.Top = append(v.Top, *o)
	}
}

// keyWords names the fields of a key, addresses with their prefixes where these are not the usual ones.
func keyWords(key []traffic.KeyField) []string {
	out := []string{}
	for _, k := range key {
		word := k.String()
		if k.Field == traffic.FieldIP && (k.V4 != traffic.DefaultV4 || k.V6 != traffic.DefaultV6) {
			word = fmt.Sprintf("ip (/%d, /%d)", k.V4, k.V6)
		}
		out = append(out, word)
	}
	return out
}
