package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/console/standing"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// hitPage is the whole story of one episode, or of the block that it led to.
type hitPage struct {
	Episode  episodeView
	Blocked  *sourceView // whom a block holds, where that is not the source
	RuleMode string
	Block    *blockView
	Release  *releaseView
	Facts    []figure
	Refused  history.RefusedTotal // by gates, for the episode
	// WouldRefuse is how many requests the block alone would have refused, in shadow and otherwise.
	WouldRefuse int64
	Asked       askedView
	Decisions   []decisionView
	Entries     []entryView // of people, about blocks of this source
	Order       *orderView
	Known       bool // the episode is in history; else only what was decided about it
	Redis       string
	Pass        string  // the form that releases the source and lets it pass; empty: it is not to be had
	Demote      actLink // of the rule; empty where the visitor may not, or the rule refuses nobody
	Command     string  // that tells the same in a terminal
}

// orderView is who ordered a block by hand.
type orderView struct {
	By, Reason   string
	Since, Until traffic.Time
	Back         string
}

func orderOf(r *reading, o *orders.Order) *orderView {
	if o == nil {
		return nil
	}
	r.mask.Know(o)
	return &orderView{
		By: shown.Text(o.By), Reason: r.said(o.Reason, o.By),
		Since: o.Since, Until: o.Until,
		Back: shown.Text(rules.Match(o.Match).Where()),
	}
}

func (p *Pages) hit(w http.ResponseWriter, r *http.Request) error {
	ctx, id := r.Context(), strings.ToLower(r.PathValue("id"))
	see, err := p.read(r)
	if err != nil {
		return err
	}
	if !looksLikeID(id) {
		return &badRequest{"id", shown.Text(id), fmt.Sprintf("%d to %d hex digits, such as the block id that a refused client was told", leastDigits, hitDigits)}
	}
	story, err := p.o.Explorer.Story(ctx, id)
	if err != nil {
		return err
	}
	if story == nil {
		return &missing{"No episode has an id that begins with " + id + ". RECORD may be behind, or history does not go back so far."}
	}
	see.mask.Know(story)
	h := story.Hit
	if h == nil { // what was decided is all that is known
		h = &history.RecordedHit{Stream: history.Live, Hit: detectors.Hit{ID: story.ID, Rule: story.Rule, BlockSubject: story.Subject, Subject: story.Subject}}
	}
	askRedis(ctx, p, see, h.BlockSubject.Stored(), h.Rule)
	v := &hitPage{
		Episode: see.episode(h), Known: story.Hit != nil, Redis: see.redis, Asked: askedOf(see, h.Samples, h.First),
		Decisions: see.decisions(story.Decisions), Refused: story.Refused,
		Order: orderOf(see, story.Order), Command: p.o.Command + " why " + blockID(h.ID),
	}
	if v.Known {
		v.Facts, v.WouldRefuse = facts(h), h.Refused
	}
	for _, act := range story.Acts {
		v.Entries = append(v.Entries, see.entry(&act))
	}
	if rule := see.Rules[h.Rule]; rule != nil {
		v.RuleMode, v.Demote = modeWord(rule.Mode), demotes(see, rule)
	}
	held := h.BlockSubject.Stored()
	if h.BlockSubject != "" && h.BlockSubject != h.Subject.Stored() {
		who := see.source(h.BlockSubject)
		v.Blocked = &who
	}
	name := blocklist.Name{Subject: held, Rule: h.Rule}
	if item := see.Block(name); item != nil {
		one := see.block(name, item)
		v.Block = &one
		if v.Pass, err = p.passAddress(ctx, see, name, one.Release.Href); err != nil {
			return err
		}
	}
	if item := see.Release(name); item != nil {
		one := see.release(name, item)
		v.Release = &one
	}
	return p.show(w, r, &shell{Name: "hit", Title: "Block " + v.Episode.BlockID, Live: v.Episode.Running || v.Episode.Outcome.Kind == standing.Held, Body: v})
}

// passAddress is the form of a release that lets the source pass for some time, too; empty for whoever may not.
func (p *Pages) passAddress(ctx context.Context, see *reading, name blocklist.Name, release string) (string, error) {
	if release == "" {
		return "", nil
	}
	let, err := p.letting(ctx, see, name.Rule, name.Subject)
	if err != nil || !let.offered() {
		return "", err
	}
	return release + "&pass=30d", nil
}

// demotes is how a visitor demotes a rule that refuses somebody; empty where there is nothing to demote, or he may not.
func demotes(r *reading, found *rulestore.Rule) actLink {
	d := &found.Newest.Version.Document
	if !found.Mode.Blocks() || !r.may(access.Demote, d.Owner) {
		return actLink{}
	}
	one := actLink{Title: "Demote " + d.ID, Command: r.commands.Mode(d.ID, found.Mode, 0)}
	if r.forms {
		one.Href = "/rules/" + url.PathEscape(d.ID) + "/demote"
	}
	return one
}

// facts are what is to be known about an episode beside its counts.
func facts(h *history.RecordedHit) []figure {
	out := []figure{
		{"Version of the rule", shown.Count(h.RuleVersion), ""},
		{"First event over", shown.Stamp(h.First) + " UTC", ""},
		{"Last event over", shown.Stamp(h.Last) + " UTC", ""},
		{"Noticed", shown.Stamp(h.SeenFirst) + " UTC", ""},
		{"Opened by", fmt.Sprintf("partition %d, offset %d", h.Source, h.Offset), "of the requests topic"},
	}
	if h.IntoID != "" {
		out = append(out, figure{"Merged into", h.IntoID, "the same excess: the other one goes on"})
	}
	return out
}
