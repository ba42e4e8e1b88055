package pages

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Bounds of what a source's page shows.
const (
	sourceEpisodes  = 50
	sourceDecisions = 50
	pivotsShown     = 8 // values of each field
)

// sourcePage is everything about an address, a device, a user, a key, or several of them together.
type sourcePage struct {
	Did       string // what has just been done, by the form before
	Of        string // as the address names it, for reading
	Given     string // as the address names it
	Source    sourceView
	Any       bool // the text is looked for in every field
	Period    period
	Redis     string
	Blocks    []blockView // the newest
	BlocksAll int
	Release   []releaseView

	Episodes     explore.Total
	LeftOut      string // of the period, what history does not have, of whatever sources
	Events       int64
	WouldRefuse  int64                // requests that the rules' blocks alone would have refused
	Refused      history.RefusedTotal // by gates, by blocks of the source
	Running      int
	Chart        template.HTML
	Requests     *requestsView
	Rules        []option // that it was over the limit of, with how often
	List         []episodeView
	Newest       string    // id of the newest episode that has evidence; empty: none has
	Asked        askedView // its evidence
	All          string    // the explorer with all of them; empty: these are all
	Decisions    []decisionView
	DecisionsCut bool
	Pivots       []pivotView
	PivotsOf     int  // newest episodes that were looked at
	PivotsAll    bool // these are all
	Entries      []entryView
	Erase        string // the form that takes the source out of history; empty: it is not to be had
	Resets       []actLink
	Block        string // the form that blocks the source by hand; empty likewise
}

// pivotView is the values of one field that the evidence has beside the source.
type pivotView struct {
	Field  string
	Values []pivotValue
	More   int
}

type pivotValue struct {
	Value, Href string
	Episodes    int64 // in which it was seen
}

func (p *Pages) source(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	see, err := p.read(r)
	if err != nil {
		return err
	}
	span, err := periodOf(r.URL, see.now, "7d")
	if err != nil {
		return err
	}
	of := r.URL.Query().Get("of")
	wanted, plain, subject, err := see.sourceAsked(of)
	if err != nil {
		return err
	}
	v := &sourcePage{Did: did(r.URL.Query()), Given: of, Of: shown.Text(of), Period: span, Redis: see.redis, Any: subject == ""}
	if v.Any {
		v.Source = sourceView{Label: v.Of, Fields: []fieldView{{Field: shown.Field{Field: "any field", Value: v.Of}}}}
	} else {
		v.Source = see.source(subject)
		askRedis(ctx, p, see, subject.Stored(), "")
		v.Blocks, v.BlocksAll, v.Release = listing{see}.of(subject)
		v.Erase, v.Block = eraseAddress(see, subject, of), blockAddress(see, subject, of)
	}
	if err := p.sourceFound(ctx, see, v, plain, &wanted); err != nil {
		return err
	}
	return p.show(w, r, &shell{Name: "source", Title: v.Source.Label, Live: span.Open, Body: v})
}

// sourceAsked reads `of`: FIELD=VALUE, a canonical subject, or a value of any field, with pseudonyms for those who see no other. subject
// is what is known of it as one; empty for a value of any field.
func (r *reading) sourceAsked(of string) (wanted history.Source, plain string, subject traffic.Subject, err error) {
	refused := func(err error) (history.Source, string, traffic.Subject, error) {
		return history.Source{}, "", "", &badRequest{"of", shown.Text(of), "FIELD=VALUE, such as ip=203.0.113.9 or device=tv-7, a subject, or a value: " + err.Error()}
	}
	plain = of
	subject, name, value := traffic.CutSource(of)
	switch {
	case subject != "":
		if subject, err = r.mask.ResolveSubject(subject); err != nil {
			return refused(err)
		}
		plain = string(subject)
	case name != "":
		if value, err = r.mask.Resolve(name, value); err != nil {
			return refused(err)
		}
		plain = traffic.SourceText(name, value)
		if _, known := traffic.ParseKeyField(name); known {
			subject = traffic.SubjectOf([]traffic.SubjectValue{{Field: name, Value: value}})
		}
	case r.mask.Any():
		return refused(fmt.Errorf("the role %s names values by their field", r.visit.Actor.Role))
	}
	if wanted, err = history.ParseSource(plain); err != nil {
		if plain != of { // the error has what the pseudonym stands for
			err = errors.New("what the pseudonym stands for is no source")
		}
		return refused(err)
	}
	if keyed, err := rules.KeyedSubject(subject); err == nil {
		subject = keyed // as ROUTE and gates read what was typed
	}
	return wanted, plain, subject, nil
}

// filterSource is the source of a filter, with what pseudonyms stand for; empty for none.
func (r *reading) filterSource(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	_, plain, _, err := r.sourceAsked(text)
	return plain, err
}

// holdsAll reports whether a block's subject has all the values of another one: an address in a prefix, all else alike.
func holdsAll(block, part traffic.Subject) bool {
	have, err := block.Values()
	if err != nil {
		return false
	}
	want, err := part.Values()
	if err != nil || len(want) == 0 {
		return false
	}
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h traffic.SubjectValue) bool { return h.Field == w.Field && sameValue(&h, &w) }) {
			return false
		}
	}
	return true
}

func sameValue(have, want *traffic.SubjectValue) bool {
	if have.Missing || want.Missing {
		return have.Missing == want.Missing
	}
	if have.Value == want.Value || string(traffic.AppendStoredValue(nil, want.Value)) == have.Value {
		return true
	}
	if have.Field != traffic.FieldIP.String() {
		return false
	}
	a, aok := prefixOf(have.Value)
	b, bok := prefixOf(want.Value)
	return aok && bok && a.Overlaps(b)
}

func prefixOf(text string) (netip.Prefix, bool) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address, address.BitLen()), true
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix, err == nil
}

func (p *Pages) sourceFound(ctx context.Context, see *reading, v *sourcePage, plain string, wanted *history.Source) error {
	f := explore.Filter{Source: plain, Since: v.Period.Since, Until: v.Period.end()}
	found, err := p.o.Explorer.Hits(ctx, f, explore.Page{Limit: sourceEpisodes})
	if err != nil {
		return err
	}
	v.Episodes, v.LeftOut = found.Total, found.LeftOut.OfAnyone()
	v.List, v.Resets = see.episodes(found.Hits), resets(see, found.Hits)
	for i := range found.Hits {
		if h := &found.Hits[i]; len(h.Samples) > 0 {
			v.Newest, v.Asked = h.ID, askedOf(see, h.Samples, h.First)
			break
		}
	}
	for i := range v.List {
		if v.List[i].Running {
			v.Running++
		}
	}
	if found.Next != "" {
		v.All = with(&url.URL{Path: "/explore"}, "source", v.Given, "since", v.Period.Choice, "until", v.Period.End, "by", "episode")
	}
	byRule, err := p.find.allRules(ctx, f)
	if err != nil {
		return err
	}
	counts := map[string]int64{}
	for id, g := range byRule {
		if g.Episodes > 0 {
			counts[id] = g.Episodes
		}
		v.Events, v.WouldRefuse = v.Events+g.Events, v.WouldRefuse+g.WouldRefuse
	}
	q := history.RefusalQuery{Stream: history.Live, Source: wanted, Since: f.Since, Until: f.Until}
	if v.Refused, err = p.o.History.RefusedIn(ctx, q); err != nil {
		return err
	}
	if v.Requests, err = p.find.requests(ctx, f, &v.Period); err != nil {
		return err
	}
	for _, id := range sortedByCount(counts) {
		v.Rules = append(v.Rules, option{Text: fmt.Sprintf("%s (%s)", id, shown.Count(counts[id])), Href: "/rules/" + url.PathEscape(id)})
	}
	if v.Chart, err = p.find.overTime(ctx, f, &v.Period); err != nil {
		return err
	}
	seen, err := p.o.Explorer.Pivots(ctx, plain, f)
	if err != nil {
		return err
	}
	v.Pivots, v.PivotsOf, v.PivotsAll = see.pivots(&seen), seen.Read, seen.All
	decided, err := p.o.History.Decisions(ctx, history.DecisionQuery{Stream: history.Live, Source: wanted, Since: v.Period.Since, Limit: sourceDecisions + 1})
	if err != nil {
		return err
	}
	if v.DecisionsCut = len(decided) > sourceDecisions; v.DecisionsCut {
		decided = decided[:sourceDecisions]
	}
	v.Decisions = see.decisions(decided)
	done, err := p.o.Explorer.Audit(ctx, explore.AuditFilter{Source: plain, Since: v.Period.Since, Until: v.Period.end()}, explore.Page{Limit: ruleEntries})
	if err != nil {
		return err
	}
	v.Entries = see.entries(done.Acts)
	return nil
}

func sortedByCount(of map[string]int64) []string {
	var ids []string
	for id := range of {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int {
		if of[a] != of[b] {
			return int(of[b] - of[a])
		}
		return strings.Compare(a, b)
	})
	return ids
}

// pivots are the other identities of a source, by field, those with the most episodes first.
func (r *reading) pivots(seen *explore.Pivots) []pivotView {
	byField := map[string]*pivotView{}
	for i := range seen.Of {
		one := &seen.Of[i]
		v := byField[one.Field]
		if v == nil {
			v = &pivotView{Field: shown.Text(one.Field)}
			byField[one.Field] = v
		}
		if len(v.Values) == pivotsShown {
			v.More++
			continue
		}
		value := r.mask.Value(one.Field, one.Value)
		v.Values = append(v.Values, pivotValue{Value: shown.Text(value), Href: aboutHref(one.Field, value), Episodes: one.Episodes})
	}
	var out []pivotView
	for _, field := range traffic.FieldNames() {
		if v := byField[field]; v != nil {
			out = append(out, *v)
		}
	}
	return out
}

// decisionView is one decision on a block.
type decisionView struct {
	At     traffic.Time
	Action string
	Reason string
	Rule   string
	Source sourceView
	Until  traffic.Time
	By     string
	Hit    string
}

// withheldWords say why nothing was blocked; a reason that this build does not know stays as it is.
func withheldWords(reason string) string {
	words := map[string]string{
		blocklist.ReasonFull: "Redis has no memory for another block", blocklist.ReasonCrowded: "as many blocks of the address as may be are in force",
		blocklist.ReasonUnreachable: "Redis did not answer", blocklist.ReasonMaxLag: "the evidence was older than the rule allows (max_lag)",
		blocklist.ReasonNeverBlock: "on the never-block list", blocklist.ReasonReleased: "released before", blocklist.ReasonExpired: "the block would have been over already",
		blocklist.ReasonStale: "the rule's mode was changed since", blocklist.ReasonUnreadable: "what stands in Redis cannot be read",
		blocklist.ReasonOldVersion: "begun under a version that would block more", blocklist.ReasonUnlearned: "the rule store did not answer",
		blocklist.ReasonNoSpec: "the version names no block", blocklist.ReasonCanary: "not within the share of the canary",
	}[reason]
	return orElse(words, reason)
}

func (r *reading) decisions(all []history.RecordedDecision) []decisionView {
	r.mask.Know(all)
	out := make([]decisionView, len(all))
	for i := range all {
		d := &all[i]
		out[i] = decisionView{
			At: d.At, Action: shown.Text(string(d.Action)), Reason: r.said(withheldWords(d.Reason), d.By),
			Rule: d.Rule, Source: r.source(d.Subject),
			Until: d.Until, By: shown.Text(d.By), Hit: d.Hit,
		}
		if d.By != "" && d.Action != blocklist.ActionWithheld {
			out[i].Reason = r.said(d.Reason, d.By)
		}
	}
	return out
}
