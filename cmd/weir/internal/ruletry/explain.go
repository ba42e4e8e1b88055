package ruletry

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// maxEvents bounds the events that are explained at once; backtest is for logs.
const maxEvents = 1000

// explainer is what weir rules explain is told.
type explainer struct {
	from             []string
	events           string
	format, fieldMap string
	good             string // known_good; empty: the configuration's
}

// explained is what a rule makes of one event.
type explained struct {
	Line    int             `json:"line"`
	Time    traffic.Time    `json:"time,omitzero"`
	Method  string          `json:"method,omitempty"`
	Path    string          `json:"path,omitempty"`
	Clauses []clauseAsked   `json:"clauses"`
	Watched bool            `json:"watched"` // all clauses held
	Key     []keyPart       `json:"key"`
	Allowed *letPass        `json:"allowed,omitempty"` // by an allow list: it is not counted
	Subject traffic.Subject `json:"subject,omitempty"`
	Block   traffic.Subject `json:"block_subject,omitempty"` // whom a block would hold
	Counts  bool            `json:"counted"`
	Why     string          `json:"why,omitempty"` // it is not counted
	Units   int64           `json:"units"`         // how much it adds; of a rule that counts distinct values 1
	Value   string          `json:"value,omitempty"`
	Count   *int            `json:"count,omitempty"` // within the window, with this event; none for buckets, and behind mostCounted
	Tier    string          `json:"tier,omitempty"`  // the condition of the tier whose limit counts
	Tiers   []tierAsked     `json:"tiers,omitempty"` // each in turn, of an event that is counted
	// Unjudged is why the condition of a tier could not be judged, so that the greatest limit counts which the event may have.
	Unjudged string `json:"tier_unjudged,omitempty"`
	// KnownGood is what known_good makes of the event; nil where there is none, or it is not asked.
	KnownGood *goodAsked       `json:"known_good,omitempty"`
	Limit     int              `json:"limit"`
	Over      bool             `json:"over"`
	Verdict   string           `json:"verdict"`
	record    *detectors.Keyed // nil: it feeds no window
	tier      int
	dead      bool // it cannot be read
	unjudged  bool // match.when was not judged: see beside
}

// keyPart is one field of the rule's key, and what the event has for it.
type keyPart struct {
	Field   string `json:"field"`
	Chosen  string `json:"chosen,omitempty"` // of a fallback: the field that the event has
	Value   string `json:"value,omitempty"`
	Missing string `json:"missing,omitempty"` // why it is
}

// letPass is the allow list that lets an event pass, and its entry for it.
type letPass struct {
	List   string       `json:"list"`
	Source string       `json:"source"` // of keys and sessions the end only
	Reason string       `json:"reason"`
	Until  traffic.Time `json:"until,omitzero"`
}

func (x *explainer) run(h *Host, c *config.Config, rule string) error {
	lines, err := x.prepare(h, c)
	if err != nil {
		return err
	}
	conditions, err := condition.New()
	if err != nil {
		return err
	}
	set, err := h.Documents(x.from, rules.Environment{Identity: c.Identity, Conditions: conditions, Format: c.EventFormat(), AllowLists: []string{}})
	if err != nil {
		return err
	}
	docs := set.Rules
	at := slices.IndexFunc(docs, func(d rules.Document) bool { return d.ID == rule })
	if at < 0 {
		var known []string
		for i := range docs {
			known = append(known, docs[i].ID)
		}
		return usage.Unknown("rule", rule, known, "")
	}
	if err := x.chooseGood(c); err != nil {
		return err
	}
	v, _ := rules.NextVersion(nil, docs[at])
	routing := &rules.Routing{
		Stream: "explain", Number: 1, RecordFormat: detectors.RecordFormat, SecretID: "explain", Rules: []rules.Version{v}, Identity: c.Identity,
		Format: rules.Format{Name: x.format, Map: x.fields(c), MaxEventBytes: c.Events.MaxEventBytes}, KnownGood: x.good,
	}
	routing.WithAllow(set.AllowLists)
	beside, err := newBeside(routing, docs, at)
	if err != nil {
		return err
	}
	all, err := explainAll(routing, beside, lines)
	if err != nil {
		return err
	}
	if err := showExplained(h.Output, &v, all); err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(x explained) bool { return !x.dead }) {
		return errors.New("not one event could be read")
	}
	return nil
}

// prepare checks the command line and reads the events.
func (x *explainer) prepare(h *Host, c *config.Config) ([][]byte, error) {
	switch {
	case x.events == "":
		return nil, usage.Errorf("--event is required: a file of events, one a line, or - for standard input")
	case x.format == "" && c.Origins.Has("events.format"):
		x.format = c.Events.Format
	case x.format == "":
		x.format = format.Weir
	}
	if err := onlyOneStdin(x.events, x.from); err != nil {
		return nil, err
	}
	if !slices.Contains(config.LineFormats(), x.format) {
		return nil, usage.OneOf("format", x.format, config.LineFormats()...)
	}
	if x.fieldMap != "" {
		if _, err := format.ParseFieldMap(x.fieldMap); err != nil {
			return nil, usage.Errorf("--%w", err)
		}
	}
	if _, err := format.NewDecoder(x.format, x.fields(c), c.Events.MaxEventBytes); err != nil {
		return nil, usage.Errorf("--format, --map: %w", err)
	}
	from := h.Stdin()
	if x.events != "-" {
		f, err := os.Open(x.events)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // it is only read
		from = f
	}
	return readEvents(from, c.Events.MaxEventBytes)
}

// fields is --map, else the configuration's where the format is its own.
func (x *explainer) fields(c *config.Config) map[string]string {
	if x.fieldMap == "" {
		if x.format == c.Events.Format {
			return c.Events.Map
		}
		return nil
	}
	fields, _ := format.ParseFieldMap(x.fieldMap) // prepare has seen that it can be read
	return fields
}

// readEvents cuts what is read into events: one that is a JSON document over several lines, or one a line.
func readEvents(r io.Reader, most int) ([][]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, int64(maxEvents*(most+1))+1))
	if err != nil {
		return nil, err
	}
	if whole := bytes.TrimSpace(text); json.Valid(whole) && len(whole) > 0 {
		var one bytes.Buffer
		if err := json.Compact(&one, whole); err != nil {
			return nil, err
		}
		return [][]byte{one.Bytes()}, nil
	}
	lines := bytes.Split(bytes.TrimRight(text, "\r\n"), []byte{'\n'})
	switch {
	case len(lines) > maxEvents:
		return nil, fmt.Errorf("--event: got more than %d lines; allowed: as many at most; for logs there is weir backtest", maxEvents)
	case len(bytes.TrimSpace(text)) == 0:
		return nil, errors.New("--event: got nothing; allowed: an event a line")
	}
	for i := range lines {
		lines[i] = bytes.TrimSuffix(lines[i], []byte{'\r'})
	}
	return lines, nil
}

// explainAll explains events in their order to the only rule of a routing version.
func explainAll(r *rules.Routing, all *beside, lines [][]byte) ([]explained, error) {
	whole, err := route.NewFileExplainer(r)
	if err != nil {
		return nil, err
	}
	reader, err := route.NewReader(r, nil, 1)
	if err != nil {
		return nil, err
	}
	v, extras := &r.Rules[0], r.Extras()
	now := traffic.Time(time.Now().UnixMicro())
	out := make([]explained, 0, len(lines))
	for i, line := range lines {
		x := explained{Line: i + 1, Limit: v.Limit, Clauses: []clauseAsked{}, Key: []keyPart{}}
		got := whole.Explain(&traffic.Message{Value: line, Appended: now})
		x.dead = got.Err != nil
		if got.Err == nil && got.Identity != nil {
			x.read(v, &got, extras.Of(0, got.Request))
			if err := x.judge(v, whole, &got); err != nil {
				return nil, err
			}
			if err := x.judgeGood(r.KnownGood, whole, &got); err != nil {
				return nil, err
			}
			fits := all.fits(line, now)
			if !fits {
				x.beyond(v)
			}
			if x.Counts {
				x.keep(reader.Read(line), got.Request.Time)
			}
		}
		if x.Why = why(&got, &x); x.unjudged {
			x.Why = whyBeyond
		}
		out = append(out, x)
	}
	return out, countAll(v, out)
}

// read takes over what routers make of the event. extra has what it has beside its identity.
func (x *explained) read(v *rules.Version, got *route.Explanation, extra traffic.Extra) {
	q := got.Request
	x.Time, x.Method, x.Path = q.Time, q.Method, q.Path
	for _, c := range route.Clauses(&v.Match, q) {
		x.Clauses = append(x.Clauses, clauseAsked{Clause: c})
	}
	x.Watched = len(got.Rules) > 0
	for _, k := range v.Key {
		x.Key = append(x.Key, partOf(k, got, extra))
	}
	if len(got.Rules) == 0 {
		return
	}
	x.Counts, x.Why = got.Rules[0].Counts, got.Rules[0].Why
	if n := got.Rules[0].Tier; n > 0 {
		x.Tier, x.Limit = v.Tiers[n-1].When, v.Tiers[n-1].Limit
		x.tier = n
	}
	if fault := got.Rules[0].TierFault; fault != condition.Fine {
		x.Unjudged = fault.String()
	}
	if list, e := got.Rules[0].Allowed, got.Rules[0].Entry; list != "" && e != nil {
		x.Allowed = &letPass{list, e.Source(), e.Reason, e.Until}
	}
	x.Subject, _ = traffic.MakeSubjectOf(got.Identity, extra, v.Key)
	if v.Block != nil && x.Counts {
		if subject, missing := traffic.MakeSubject(got.Identity, v.Block.Key); missing == 0 {
			x.Block = subject
		}
	}
	x.Value = counted(v.Count, got, extra)
}

// partOf is what an event has for one field of a key.
func partOf(k traffic.KeyField, got *route.Explanation, extra traffic.Extra) keyPart {
	part := keyPart{Field: k.String()}
	chosen, ok := got.Identity.Choose(extra, k)
	switch {
	case ok:
		part.Value, _ = got.Identity.ValueOf(extra, chosen)
		if k.Field == traffic.FieldFallback {
			part.Chosen = chosen.String()
		}
	case k.OfIdentity():
		part.Missing = got.Missing[k.Field].String()
	default:
		part.Missing = "missing"
	}
	return part
}

// text is the part's value, of a fallback under the name of the field that it is of.
func (p *keyPart) text() string {
	if p.Chosen != "" {
		return p.Chosen + ": " + p.Value
	}
	return p.Value
}

// counted is the value that a rule counts which counts different ones; of a combination each with its name.
func counted(c rules.Count, got *route.Explanation, extra traffic.Extra) string {
	if c.Distinct != nil {
		part := partOf(*c.Distinct, got, extra)
		return part.text()
	}
	var texts []string
	for _, k := range c.Tuple {
		part := partOf(k, got, extra)
		texts = append(texts, cmp.Or(part.Chosen, part.Field)+": "+part.Value)
	}
	return strings.Join(texts, ", ")
}

// keep makes the record that routers would write.
func (x *explained) keep(got *route.Reading, at traffic.Time) {
	if len(got.Targets) == 0 {
		x.Counts = false
		return
	}
	t := &got.Targets[0]
	x.Units = 1
	if t.Units != nil {
		x.Units = t.Units[0]
	}
	x.record = &detectors.Keyed{
		Kind: detectors.KeyedEvent, Generation: 1, Time: at, Version: 1, Identity: *got.Identity, Rules: []int{0}, Units: []int64{x.Units}, Tiers: []int{x.tier}, Extra: slices.Clone(t.Extra),
	}
}

// why says what keeps an event from being counted, before any window.
func why(got *route.Explanation, x *explained) string {
	switch {
	case got.Err != nil:
		return "it cannot be read: " + got.Err.Error()
	case got.Fate == route.FateEndMark:
		return "it is the end of a replay"
	case got.Fate == route.FateRefusal:
		return "weir itself had refused it: such requests feed no window"
	case !x.Watched:
		return "the match does not hold"
	}
	return x.Why
}
