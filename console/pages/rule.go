package pages

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/bounds"
	"github.com/weirhq/weir/traffic"
)

// Bounds of what a rule's page shows.
const (
	ruleSources = 20
	ruleRunning = 10
	ruleEntries = 30 // of the audit trail
)

// runningWithin is how far back running episodes are looked for: each says at least so often that it goes on.
const runningWithin = 48 * time.Hour

// liveHeader marks a request by which a page is brought up to date.
const liveHeader = "X-Weir-Live"

// rulePage is everything about one rule.
type rulePage struct {
	Did       string // what has just been done, by the form before
	ID, Owner string
	Version   int
	Mode      string // off, shadow, canary or block
	ModeWord  string
	Since     traffic.Time // of the mode
	By        string
	Reason    string
	Removed   bool
	Warm      traffic.Time // until when its windows may hold less than they will; 0: they are full
	Says      sentence
	Pending   *versionView
	Beyond    []string // what it reaches beyond its owner's bounds, a line for each version
	Raised    *raisedView
	Canary    *canaryView // nil: it is in no canary
	FellBack  string      // why its canary fell back; empty: it did not
	Period    period
	Redis     string
	Cut       bool // Held is at least what it holds

	Episodes, Sources, Events int64
	WouldRefuse               int64                // requests, had the block alone been in force
	Refused                   history.RefusedTotal // by gates
	About                     bool                 // Sources is an estimate
	Held                      int
	Would                     int64 // sources that would be held now, at most
	Now                       []episodeView
	Running                   explore.Total
	Uncounted                 []figure
	Wrongly                   history.FalsePositives
	Chart                     template.HTML
	Requests                  *requestsView
	Top                       []topView
	TopTotal                  explore.Total
	LeftOut                   string        // of the period, what history does not have
	Evidence                  *evidenceView // nil: not asked for

	Definition []figure
	YAML       string
	Versions   []versionView
	Entries    []entryView
	Acts       []actLink
}

// sentence words what a rule counts and does.
type sentence struct {
	Limit         string
	Window, Key   string
	Where         string // empty: all requests
	Block, Length string // whom and for how long; empty: the rule names no block
	Would         bool
}

// figure is a number or a text with its name.
type figure struct{ Name, Value, Note string }

// versionView is a version of a rule with what it changed.
type versionView struct {
	Number  int
	State   string
	Created traffic.Time
	By      string
	Reason  string
	Back    string // the form that rolls back to it; empty: it is not to be had
	Against int    // the version that Diff compares it with; 0: it is the first
	Diff    []string
	Warm    traffic.Time
}

type raisedView struct {
	Limit  int
	Until  traffic.Time
	By     string
	Reason string
}

// actLink is something that can be done to a rule: a form, or the command that does it.
type actLink struct {
	Title, Href, Command string
	Chief                bool // it is what the page asks for
}

func (p *Pages) rule(w http.ResponseWriter, r *http.Request) error {
	ctx, id := r.Context(), r.PathValue("rule")
	if rules.IsByHand(id) { // it has no document: all there is are its blocks
		http.Redirect(w, r, "/blocks?rule="+url.QueryEscape(id), http.StatusSeeOther)
		return nil
	}
	see, err := p.read(r)
	if err != nil {
		return err
	}
	span, err := periodOf(r.URL, see.now, "24h")
	if err != nil {
		return err
	}
	found, err := p.o.Rules.Find(ctx, id)
	if err != nil {
		return unknownRule(err, id, see)
	}
	v := see.ruleHead(&found)
	v.Period, v.Redis, v.Cut, v.Did = span, see.redis, see.cut, did(r.URL.Query())
	v.Beyond = beyond(p.o.Bounds, &found)
	evidence := p.evidenceBeside(r, see, &found, span)
	defer evidence.end()
	if err := p.ruleFound(ctx, see, v); err != nil {
		return err
	}
	entries, err := p.o.Explorer.Audit(ctx, explore.AuditFilter{Rule: id}, explore.Page{Limit: ruleEntries})
	if err != nil {
		return err
	}
	v.Entries = see.entries(entries.Acts)
	if v.Evidence, err = evidence.wait(); err != nil {
		return err
	}
	return p.show(w, r, &shell{Name: "rule", Title: id, Active: "overview", Live: span.Open, Body: v})
}

// ruleHead is what the rule store says of a rule.
func (r *reading) ruleHead(found *rulestore.Rule) *rulePage {
	d := &found.Newest.Version.Document
	v := &rulePage{
		ID: d.ID, Owner: shown.Text(d.Owner), Version: found.Newest.Version.Number, Mode: string(found.Mode), ModeWord: modeWord(found.Mode),
		Since: traffic.At(found.Changed), By: shown.Text(found.ChangedBy), Reason: r.said(found.Reason,
			found.ChangedBy), Removed: found.Removed,
		Says: says(d, found.Mode), Definition: definition(d), YAML: found.Newest.Source,
	}
	if v.YAML == "" {
		v.YAML = d.YAML()
	}
	if full := found.Warm(r.now.Std()); !full.IsZero() {
		v.Warm = traffic.At(full)
	}
	if u := found.Raised; u != nil && u.In(r.now.Std()) {
		v.Raised = &raisedView{Limit: u.Limit, Until: traffic.At(u.Until), By: shown.Text(u.By),
			Reason: r.said(u.Reason, u.By)}
	}
	for i := range found.Versions {
		one := r.version(found, &found.Versions[i])
		if r.forms && !found.Removed && one.Number != v.Version && !found.Versions[i].Version.Pending &&
			r.may(access.Rollback, d.Owner) {
			one.Back = fmt.Sprintf("/rules/%s/rollback?to=%d", url.PathEscape(d.ID), one.Number)
		}
		if i+1 < len(found.Versions) {
			before := &found.Versions[i+1].Version
			one.Against, one.Diff = before.Number, diff(&before.Document, &found.Versions[i].Version.Document)
		}
		v.Versions = append(v.Versions, one)
	}
	if found.Pending != nil {
		one := r.version(found, found.Pending)
		one.Against, one.Diff = v.Version, diff(d, &found.Pending.Version.Document)
		if full := found.WarmPending(r.now.Std()); !full.IsZero() {
			one.Warm = traffic.At(full)
		}
		v.Pending = &one
	}
	v.Canary, v.FellBack = canary(found, r.now), r.line(found.FellBack())
	v.Acts = r.actsOn(found)
	return v
}

// beyond says of a rule's versions that act, or are pending, what they reach beyond their owner's bounds.
func beyond(b bounds.Bounds, found *rulestore.Rule) (lines []string) {
	say := func(v *rules.Version) {
		if out := b.Beyond(&v.Document); out != nil {
			lines = append(lines, shown.Text(fmt.Sprintf("Version %d: %s.", v.Number, out)))
		}
	}
	say(&found.Newest.Version)
	if found.Pending != nil {
		say(&found.Pending.Version)
	}
	return lines
}

func (r *reading) version(found *rulestore.Rule, s *rulestore.StoredVersion) versionView {
	return versionView{Number: s.Version.Number, State: found.StateOf(s), Created: traffic.At(s.Created),
		By: shown.Text(s.Author), Reason: r.said(s.Reason, s.Author)}
}

func diff(a, b *rules.Document) []string {
	var out []string
	for _, line := range rules.Diff(a, b) {
		out = append(out, shown.Text(line))
	}
	return out
}

// ruleFound adds what the rule found in the period.
func (p *Pages) ruleFound(ctx context.Context, see *reading, v *rulePage) error {
	f := explore.Filter{Rule: v.ID, Since: v.Period.Since, Until: v.Period.end()}
	all, err := p.o.Explorer.Groups(ctx, f, explore.ByRule, explore.ByEvents, explore.Page{})
	if err != nil {
		return err
	}
	sums := sum(all.Rows)
	v.Episodes, v.Sources, v.Events, v.WouldRefuse, v.About = sums.Episodes, sums.Sources, sums.Events,
		sums.WouldRefuse, sums.SourcesAbout
	now, running, err := p.find.running(ctx, see, explore.Filter{Rule: v.ID, Since: see.now.Add(-runningWithin)}, ruleRunning)
	if err != nil {
		return err
	}
	v.Now, v.Running = now, running
	top, err := p.o.Explorer.Groups(ctx, f, explore.BySource, explore.ByEvents, explore.Page{Limit: ruleSources})
	if err != nil {
		return err
	}
	for i := range top.Rows {
		one := see.groupedSource(&top.Rows[i])
		one.Href = exploreHref(v.ID, &v.Period, "source", one.Source.Of)
		v.Top = append(v.Top, one)
	}
	v.TopTotal, v.LeftOut = top.Total, top.LeftOut.String()
	would, err := p.find.wouldHold(ctx, see.only(v.ID))
	if err != nil {
		return err
	}
	v.Would = would[v.ID]
	for name, b := range see.Blocks {
		if name.Rule == v.ID && b.InForce {
			v.Held++
		}
	}
	if v.Chart, err = p.find.overTime(ctx, f, &v.Period); err != nil {
		return err
	}
	if v.Requests, err = p.find.requests(ctx, f, &v.Period); err != nil {
		return err
	}
	if v.Wrongly, err = p.o.History.FalsePositives(ctx, v.ID, f.Since, f.Until); err != nil {
		return err
	}
	missed, err := p.o.History.NotCounted(ctx, history.Live, v.Period.Since)
	if err != nil {
		return err
	}
	v.Uncounted = uncounted(missed.Figures(v.ID))
	v.Refused, err = p.o.History.RefusedIn(ctx, history.RefusalQuery{Stream: history.Live, Rule: v.ID,
		Since: v.Period.Since, Until: v.Period.end()})
	return err
}

// Blocks reports whether the rule refuses anybody: all, or the share of a canary.
func (v *rulePage) Blocks() bool { return blocks(rules.Mode(v.Mode)) }

// AllHref is the explorer with all sources of the period.
func (v *rulePage) AllHref() string { return exploreHref(v.ID, &v.Period, "by", "source") }

// TopSays is how many sources there are.
func (v *rulePage) TopSays() string { return total(v.TopTotal) }

// only is what is read, with one rule alone.
func (r *reading) only(rule string) *reading {
	one := *r
	s := *r.Standing
	s.Rules = map[string]*rulestore.Rule{}
	if known := r.Rules[rule]; known != nil {
		s.Rules[rule] = known
	}
	one.Standing = &s
	return &one
}

// says words a rule.
func says(d *rules.Document, mode rules.Mode) sentence {
	s := sentence{Limit: shown.Count(d.Limit), Window: shown.Span(d.Window), Key: keyWords(d.Key), Would: !blocks(mode)}
	if where := shown.Text(d.Match.String()); where != "any path" {
		s.Where = where
	}
	if d.Block != nil {
		if s.Block = keyWords(d.Block.Key); s.Block == "" {
			s.Block = "everybody who matches"
		}
		s.Length = shown.Span(d.Block.TTL)
	}
	return s
}

// keyWords names the fields of a key, addresses with their prefixes where these are not the usual ones.
func keyWords(key []traffic.KeyField) string {
	out := ""
	for i, k := range key {
		word := shown.Text(k.String())
		if k.Field == traffic.FieldIP && (k.V4 != traffic.DefaultV4 || k.V6 != traffic.DefaultV6) {
			word = fmt.Sprintf("ip (/%d, /%d)", k.V4, k.V6)
		}
		if i > 0 {
			out += " and "
		}
		out += word
	}
	return out
}

// definition is a rule as a table.
func definition(d *rules.Document) []figure {
	out := []figure{
		{"Watches", shown.Text(d.Match.String()), ""},
		{"Counts per", orElse(keyWords(d.Key), "everything that matches together"), ""},
		{"Limit", shown.Count(d.Limit) + " in " + shown.Span(d.Window), ""},
		{"Algorithm", string(d.Counting()), ""},
		{"Missing field", string(d.Missing), ""},
		{"Lateness", shown.Span(d.Lateness), "events that come later are not counted"},
		{"Longest lag", shown.Span(d.MaxLag), "older evidence does not block"},
	}
	if len(d.Allow) > 0 {
		out = append(out, figure{"Allow lists", joined(d.Allow), "their sources are not counted"})
	}
	if d.Block == nil {
		return append(out, figure{"Block", "none: the rule only records", ""})
	}
	extend := "from its first event"
	if d.Block.Extend == rules.ExtendOnHit {
		extend = "extended while events go on"
	}
	return append(out, figure{"Block", orElse(keyWords(d.Block.Key), "everybody who matches") + " for " + shown.Span(d.Block.TTL), extend})
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// uncounted lists what a rule did not count, reasons with none left out.
func uncounted(f history.Figures) []figure {
	var out []figure
	for _, one := range []struct {
		name  string
		value history.Figure
	}{{"too late", f.Late}, {"out of order", f.OutOfOrder}, {"without a field of the key",
		f.MissingField}, {"without the value that is counted", f.MissingValue},
		{"beyond the budget of conditions", f.Budget}} {
		switch {
		case one.value > 0:
			out = append(out, figure{Name: one.name, Value: shown.Count(int64(one.value))})
		case one.value == history.UnknownFigure:
			out = append(out, figure{Name: one.name, Value: "not known", Note: "a build that did not tell was in force"})
		}
	}
	return out
}
