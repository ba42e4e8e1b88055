package pages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/console/standing"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// reading is what one visitor is shown at one time: all sources, events and texts that pages show go through it.
type reading struct {
	*standing.Standing
	visit    access.Visit
	mask     *access.Mask
	now      traffic.Time
	commands shown.Commands
	forms    bool   // people can act here: pages have forms in place of commands
	redis    string // why blocks are missing, or another one's: Redis cannot be asked, holds more, or is not ours
	short    bool   // not all, or nothing, was read of Redis
	cut      bool   // Redis holds more blocks or releases than was read
}

// keepStanding is how long what the stores said is shown to other visitors too: however many there are, and however often
// their pages are brought up to date, Redis is asked about once a second.
const keepStanding = time.Second

// lately is the newest reading of all rules and blocks.
type lately struct {
	mu    sync.Mutex // held while the stores are asked: who comes meanwhile waits for the answer
	at    time.Time
	took  time.Duration
	now   traffic.Time
	found *standing.Standing
	redis string
	short bool // not all, or nothing, was read of Redis
	cut   bool
}

// standing reads the rules and what Redis holds. That Redis does not answer is told, and no error.
func (p *Pages) standing(ctx context.Context) (*reading, error) {
	l := &p.lately
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.found != nil && time.Since(l.at) < max(keepStanding, 4*l.took) {
		return l.reading(), nil
	}
	begun, now := time.Now(), p.o.Clock()
	all, err := p.o.Rules.List(ctx)
	if err != nil {
		return nil, err
	}
	listed, err := p.o.Blocks.List(ctx, now, blocklist.Filter{Tombstones: true})
	l.redis, l.cut = "", listed.Cut
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		l.redis = "Redis does not answer: blocks and releases are not shown."
		p.o.Logger.Warn("console: Redis cannot be asked", "error", err)
	}
	if l.cut {
		l.redis = fmt.Sprintf("Redis holds more blocks or releases than pages read of it, %d: counts are at least "+
			"what is shown, lists and filters are not whole, and who is shown as not held may be held. "+
			"The page of a source or a block asks Redis for it.",
			len(listed.Items))
	}
	l.short = l.redis != ""
	if foreign := p.o.Pulse().Foreign; foreign != "" {
		l.redis = strings.TrimSpace("Redis " + shown.Text(foreign) + ". " + l.redis)
	}
	l.found, l.now, l.at, l.took = standing.At(now, all, listed.Items), now, time.Now(), time.Since(begun)
	return l.reading(), nil
}

// reading is what every visitor is shown of it.
func (l *lately) reading() *reading {
	return &reading{Standing: l.found, now: l.now, redis: l.redis, short: l.short, cut: l.cut}
}

// askRedis asks for what one source has, by one rule or by any, where more stands there than was read.
func askRedis(ctx context.Context, p *Pages, see *reading, of traffic.Subject, rule string) {
	if !see.cut || of == "" {
		return
	}
	found, err := p.o.Blocks.List(ctx, see.now, blocklist.Filter{Rule: rule, Subject: of, Tombstones: true})
	if err != nil { // the page says already that what it shows is not whole
		p.o.Logger.Warn("console: Redis cannot be asked for the blocks of a source", "error", err)
		return
	}
	see.Standing = see.Also(found.Items)
}

// redisProblem is what is wrong with what was read of Redis.
func redisProblem(see *reading) console.Problem {
	if see.cut {
		return console.Problem{Part: "Redis", Detail: "holds more blocks or releases than pages read of it: " +
			"counts are at least what is shown, and lists are not whole"}
	}
	return console.Problem{Part: "Redis", Detail: "does not answer: blocks and releases are not shown"}
}

// read begins a page.
func (p *Pages) read(r *http.Request) (*reading, error) {
	see, err := p.standing(r.Context())
	if err != nil {
		return nil, err
	}
	see.visit, see.mask = access.VisitOf(r.Context()), maskOf(&p.o, r)
	see.commands, see.forms = p.commands, p.o.Acts != nil
	return see, nil
}

// may reports whether the visitor may do an act to what owner owns.
func (r *reading) may(act access.Act, owner string) bool {
	return access.May(r.visit.Actor, act, owner) == nil
}

// said is what somebody wrote, such as a reason, for this visitor; line is what weir wrote, also of what somebody gave.
func (r *reading) said(text, by string) string { return shown.Text(r.mask.TextBy(text, by)) }

func (r *reading) line(text string) string { return shown.Text(r.mask.Line(text)) }

// maskOf is what the visitor of a request is shown.
func maskOf(o *Options, r *http.Request) *access.Mask {
	if mask := access.MaskOf(r.Context()); mask != nil {
		return mask
	}
	return o.Masker.For(access.From(r.Context()))
}

// words is an error for the visitor: what he asked wrongly in his own words.
func words(mask *access.Mask, r *http.Request, err error) string {
	var bad *badRequest
	var none *missing
	if errors.As(err, &bad) || errors.As(err, &none) || errors.As(err, new(*withheld)) {
		return shown.Text(err.Error())
	}
	return shown.Text(acts.Words(mask, access.From(r.Context()), err))
}

// fieldView is one part of a source with the page of everything about it.
type fieldView struct {
	shown.Field
	Href string // empty where there is nothing to find by it
	// Reveal is where the visitor sees what is behind the value; empty: it is no pseudonym, or is not shown to this role.
	Reveal string
}

// sourceView is a source with its page.
type sourceView struct {
	Fields []fieldView
	Label  string // as one text
	Of     string // as addresses name it: for filters
	Href   string // of the page about all its parts together; empty for everything that matches
}

func (r *reading) source(s traffic.Subject) sourceView {
	masked := r.mask.Subject(s)
	v := shown.SourceOf(masked)
	out := sourceView{Label: v.String()}
	values, err := masked.Values()
	for i, f := range v.Fields {
		one := fieldView{Field: f}
		if err == nil && !f.Missing {
			one.Href, one.Reveal = aboutHref(values[i].Field, values[i].Value), r.revealHref(values[i].Field, values[i].Value)
		}
		out.Fields = append(out.Fields, one)
	}
	if len(out.Fields) > 0 && err == nil {
		out.Of = string(masked)
		out.Href = "/sources?of=" + url.QueryEscape(out.Of)
		if len(out.Fields) == 1 {
			out.Href = out.Fields[0].Href
		}
	}
	return out
}

// revealHref is where a visitor who may asks what is behind a pseudonym.
func (r *reading) revealHref(field, value string) string {
	if !r.mask.Masks(field) || access.MayAny(r.visit.Actor, access.Reveal) != nil {
		return ""
	}
	return "/reveal?" + url.Values{"field": {field}, "of": {value}}.Encode()
}

// aboutHref is the page about one value. A single address is looked for as such, and so found in every prefix that holds it.
func aboutHref(field, value string) string {
	if field == traffic.FieldIP.String() {
		if prefix, err := netip.ParsePrefix(value); err == nil && prefix.IsSingleIP() {
			value = prefix.Addr().String()
		}
	}
	return "/sources?of=" + url.QueryEscape(traffic.SourceText(field, value))
}

// eventView is one event of the evidence.
type eventView struct {
	shown.Event
	Who []fieldView // of the identity, those that the event has
}

// askedView is the evidence of an episode.
type askedView struct {
	Events  []eventView // from before the limit, and over it
	Before  int         // of them, from before the limit
	Over    int
	Without string // why there is none from before the limit; empty: there are some, or none at all
}

func askedOf(r *reading, samples []string, fallback traffic.Time) askedView {
	v := askedView{Events: r.events(samples, fallback), Without: traffic.WithoutBefore(samples)}
	for i := range v.Events {
		if v.Events[i].Before {
			v.Before++
		}
	}
	v.Over = len(v.Events) - v.Before
	return v
}

// events makes the samples of an episode readable, in the order of their times.
func (r *reading) events(samples []string, fallback traffic.Time) []eventView {
	out := make([]eventView, 0, len(samples))
	for _, text := range samples {
		var s traffic.Sample
		if err := json.Unmarshal([]byte(r.mask.Sample(text)), &s); err != nil {
			// evidence of another build is shown as it is
			s = traffic.Sample{Time: fallback, Attrs: r.mask.Sample(text)}
		}
		v := eventView{Event: shown.EventOf(&s)}
		for _, f := range []struct{ name, value string }{{"ip", s.IP}, {"device", s.Device}, {"user", s.User}, {"session", s.Session}} {
			if f.value != "" {
				v.Who = append(v.Who, fieldView{shown.Field{Field: f.name, Value: shown.Text(f.value)}, aboutHref(f.name, f.value), r.revealHref(f.name, f.value)})
			}
		}
		if s.APIKey != "" { // only its end is kept: there is nothing to find by it
			v.Who = append(v.Who, fieldView{Field: shown.Field{Field: "api_key", Value: "…" + shown.Text(strings.TrimPrefix(s.APIKey, "…"))}})
		}
		out = append(out, v)
	}
	slices.SortStableFunc(out, func(a, b eventView) int { return int(a.Time - b.Time) })
	return out
}

// outcomeView is what has become of a source.
type outcomeView struct {
	Kind  string // of package standing
	Text  string
	Until traffic.Time // 0: no end
}

func (r *reading) outcome(h *detectors.Hit) outcomeView {
	o := r.Outcome(h)
	v := outcomeView{Kind: o.Kind}
	if o.Until != nil {
		v.Until = *o.Until
	}
	switch o.Kind {
	case standing.Held:
		v.Text = "held " + shown.About(v.Until.Sub(r.now))
	case standing.Would:
		v.Text = "would be held " + shown.About(v.Until.Sub(r.now))
	case standing.Released:
		v.Text = "released"
	default:
		v.Text = "not held"
	}
	return v
}

// episodeView is one episode in a list.
type episodeView struct {
	ID, BlockID string
	Stream      string // empty: live
	Rule        string
	Version     int
	Source      sourceView
	Count       int64
	AtLeast     bool
	Peak        int
	Limit       int
	Window      time.Duration
	First, Last traffic.Time
	Running     bool
	Users       int
	Devices     int
	Grouped     bool
	Cut         bool
	Reset       bool
	Outcome     outcomeView
}

func (r *reading) episode(h *history.RecordedHit) episodeView {
	v := episodeView{
		ID: h.ID, BlockID: blockID(h.ID), Rule: h.Rule, Version: h.RuleVersion, Source: r.source(h.Subject), Count: h.Count, AtLeast: h.AtLeast, Peak: h.Peak,
		Limit: h.Limit, Window: time.Duration(h.WindowMS) * time.Millisecond, First: h.First, Last: h.Last, Running: h.Phase != detectors.PhaseClosed && h.Phase != detectors.PhaseMerged,
		Users: h.Users, Devices: h.Devices, Grouped: h.Grouped, Cut: h.Cut, Reset: h.Reason != "", Outcome: r.outcome(&h.Hit),
	}
	if h.Stream != history.Live {
		v.Stream, v.Outcome, v.Running = shown.Text(h.Stream), outcomeView{Kind: standing.Passed, Text: "a replay holds nobody"}, false
	}
	return v
}

func (r *reading) episodes(hits []history.RecordedHit) []episodeView {
	out := make([]episodeView, len(hits))
	for i := range hits {
		out[i] = r.episode(&hits[i])
	}
	return out
}

// blockID is the beginning of a hit's id, by which a client and its support name a block: see gate.BlockID.
func blockID(hit string) string { return hit[:min(len(hit), 16)] }

// modeWord is a mode as a state.
func modeWord(m rules.Mode) string {
	switch m {
	case rules.ModeBlock:
		return "Blocking"
	case rules.ModeShadow:
		return "In shadow"
	case rules.ModeCanary:
		return "Canary"
	case rules.ModeOff:
		return "Off"
	}
	return string(m)
}
