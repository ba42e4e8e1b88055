package pages

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
)

// canaryView is where a canary stands, and what becomes of it.
type canaryView struct {
	Share       string // of the block keys
	Step, Steps int
	Ladder      []canaryStep
	Since       traffic.Time // of the step
	Due         traffic.Time // when the next one may follow
	Overdue     bool         // that is over: it was not known well enough what the canary does
	Next        string       // what follows
	Falls       []string     // what would put it back into shadow
	Uncompared  string       // what would not, for want of a prediction; empty: nothing
	Hold        string
}

// canaryStep is one of its steps.
type canaryStep struct {
	Share   string
	Over    bool
	Present bool
}

// canary words where a rule in canary stands; nil for all others.
func canary(found *rulestore.Rule, now traffic.Time) *canaryView {
	c := found.Canary
	if c == nil {
		return nil
	}
	v := &canaryView{
		Share: c.Share.String(), Step: c.Step, Steps: len(c.Steps), Since: traffic.At(c.Since),
		Due: traffic.At(c.Due()), Hold: shown.Span(time.Duration(c.Hold)),
		Next: "the rule blocks all sources over the limit",
	}
	v.Overdue = v.Due <= now
	for i, share := range c.Steps {
		v.Ladder = append(v.Ladder, canaryStep{Share: share.String(), Over: i+1 < c.Step, Present: i+1 == c.Step})
	}
	if c.Step < len(c.Steps) {
		v.Next = c.Steps[c.Step].String() + " of them"
	}
	v.Falls, v.Uncompared = fallsBack(&c.Predicted, v.Hold), c.Predicted.Uncompared()
	return v
}

// fallsBack words what puts a canary back into shadow: surely more than its evidence predicted, and that nothing is
// known.
func fallsBack(p *promotion.Prediction, hold string) (out []string) {
	switch {
	case p.KnownGood >= promotion.Unpredicted:
	case p.KnownGood > 0:
		out = append(out, fmt.Sprintf("when surely more than %s of its blocks are on known-good sources, or released by somebody", percent(p.KnownGood)))
	default:
		out = append(out, "when a known-good source is blocked, or somebody releases one")
	}
	if p.Traffic < promotion.Unpredicted {
		out = append(out, fmt.Sprintf("when it surely refuses more than %s of all requests", percent(p.Traffic)))
	}
	return append(out, fmt.Sprintf("when it stays unknown what it does, for %s after the end of a step", hold))
}

// canaryShort is where a canary stands, in a list.
func canaryShort(found *rulestore.Rule) string {
	if found.Canary == nil {
		return ""
	}
	return fmt.Sprintf("%s, step %d of %d", found.Canary.Share, found.Canary.Step, len(found.Canary.Steps))
}

// canaryPlan words how a canary of a version goes on.
func canaryPlan(d *rules.Document) string {
	c := rules.CanaryOf(d)
	out := "block "
	for i, share := range c.Steps {
		if i > 0 {
			out += ", then "
		}
		out += share.String()
	}
	return out + " of them, then all; each step lasts " + shown.Span(time.Duration(c.Hold)) + " at least"
}

// promotions are what a rule may be promoted to: one that blocks has left its canary behind, or has it before it.
func promotions(see *reading, target *rules.Document, chosen string) []choice {
	all := []string{string(rules.ModeBlock), "Block all sources over the limit at once"}
	preset := string(rules.ModeBlock)
	if rule := see.Rules[target.ID]; rule == nil || !rule.Mode.Blocks() {
		preset = string(rules.ModeCanary)
		all = append([]string{preset, "Canary: " + canaryPlan(target)}, all...)
	}
	return choices(orElse(chosen, preset), all...)
}

// gateView is one gate of a promotion, and how it was judged.
type gateView struct{ Name, Allowed, Got, Outcome string }

// judged adds what the promotion of a version would be judged by. A form that was sent names the time of what was
// looked at.
func (p acting) judged(r *http.Request, see *reading, form *actForm, target *rules.Document, version int) error {
	asked := acts.EvidenceRequest{Rule: target.ID, Version: version}
	if text := r.PostFormValue("until"); text != "" {
		until, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return &badRequest{"until", shown.Text(text), "the time that the form had"}
		}
		asked.Until = until
	}
	found, err := p.o.Acts.Evidence(r.Context(), access.From(r.Context()), asked)
	if invalid := (*acts.Invalid)(nil); errors.As(err, &invalid) {
		return &badRequest{invalid.Field, shown.Text(invalid.Got), invalid.Allowed}
	}
	if err != nil {
		return err
	}
	form.Modes = promotions(see, target, r.PostFormValue("to"))
	if form.Evidence, err = lookedAt(r, see, form, version, found.Document()); err != nil {
		return err
	}
	if form.Evidence == nil {
		form.Whom = form.Back + "?evidence=" + strconv.Itoa(version) + "#evidence"
	}
	form.Override, form.Overridable = r.PostFormValue("override"), true
	for _, line := range found.Summary {
		form.Summary = append(form.Summary, see.line(line))
	}
	gates := access.Show(see.mask, found.Gates)
	for i := range gates {
		g := &gates[i]
		form.Gates = append(form.Gates, gateView{Name: gateWords(g.Gate), Allowed: shown.Text(g.Allowed),
			Got: shown.Text(orElse(g.Got, "not measurable")), Outcome: string(g.Outcome)})
	}
	form.Hidden = append(form.Hidden, param{"dossier", see.mask.Hash(found.Hash)},
		param{"until", found.Until.UTC().Format(time.RFC3339Nano)})
	return nil
}

// lookedAt is the evidence by which somebody promotes, whom it would have held among it; nil where there is no
// document. Those who are known to be good come first: they are why one looks.
func lookedAt(r *http.Request, see *reading, form *actForm, version int, document []byte) (*evidenceView, error) {
	if document == nil {
		return nil, nil
	}
	var d evidence.Dossier
	if err := json.Unmarshal(document, &d); err != nil {
		return nil, fmt.Errorf("reading a dossier: %w", err)
	}
	v := &evidenceView{Kept: []param{{"version", strconv.Itoa(version)}}, Path: form.Action}
	var err error
	if v.Chosen, err = number(r.URL.Query(), "limit", d.Terms.Limit, d.Terms.Limit, math.MaxInt32); err != nil {
		return nil, err
	}
	if err := v.fill(see, &d); err != nil {
		return nil, err
	}
	slices.SortStableFunc(v.Top, func(a, b heldView) int { return cmp.Compare(knownFirst(a), knownFirst(b)) })
	if n, known := d.Held.Requests.Known(); known && d.Observed.Minutes > 0 {
		form.Summary = append(form.Summary,
			fmt.Sprintf("It would have refused %s a minute, in the time that was observed.",
				perMinute(n, d.Observed.Minutes)))
	}
	return v, nil
}

func knownFirst(v heldView) int {
	if v.KnownGood == "yes" {
		return 0
	}
	return 1
}

// perMinute words how many come in a minute.
func perMinute(n, minutes int64) string {
	switch each := float64(n) / float64(minutes); {
	case n == 0:
		return "no request"
	case each < 1:
		return "less than one request"
	default:
		return "about " + shown.Count(int64(math.Round(each))) + " requests"
	}
}

// gateWords says what a gate asks for.
func gateWords(gate string) string {
	words := map[string]string{
		"min_shadow": "Time watched in shadow", "max_known_good": "Known good, of those whom it would hold",
		"min_coverage":      "Of those whom it would hold, how many could be judged",
		"max_traffic_share": "Of all requests, those that it would refuse",
	}
	return orElse(words[gate], shown.Text(gate))
}

// gateAnswer is what a gate found, with what it makes of it.
func gateAnswer(v *promotion.Verdict) string {
	if v.Got == "" {
		return string(v.Outcome)
	}
	return fmt.Sprintf("%s (%s)", v.Got, v.Outcome)
}

// gateProblems are the reasons against a promotion, each a sentence.
func gateProblems(mask *access.Mask, e *rulestore.GatesError) (out []string) {
	if e.Verdict != "" {
		out = append(out, shown.Text(mask.Line(e.Verdict))+
			". Without it, weir's own refusals would keep a client blocked.")
	}
	for _, v := range promotion.Missed(access.Show(mask, e.Verdicts)) {
		out = append(out, fmt.Sprintf("%s: found %s, allowed is %s.", gateWords(v.Gate), gateAnswer(&v), v.Allowed))
	}
	return out
}

// promoted is the query of the page that tells of a promotion. It holds numbers alone, since anybody can make a link.
func promoted(to rules.Mode, done *acts.ModeDone) string {
	if !done.Changed {
		return "?did=already"
	}
	q := url.Values{"did": {"promote"}}
	if to == rules.ModeCanary {
		q.Set("did", "canary")
	}
	if g := done.Grown; g.Events > 0 {
		q.Set("sources", strconv.FormatInt(g.Sources, 10))
		q.Set("events", strconv.FormatInt(g.Events, 10))
		q.Set("looked", strconv.FormatInt(g.Since.Unix(), 10))
	}
	return "?" + q.Encode()
}

// grown is the sentence of what had come since somebody looked, as promoted has written it; empty: nothing had.
func grown(q url.Values) string {
	var n [3]int64
	for i, name := range []string{"sources", "events", "looked"} {
		var err error
		if n[i], err = strconv.ParseInt(q.Get(name), 10, 64); err != nil || n[i] < 0 {
			return ""
		}
	}
	if words := (acts.Grown{Sources: n[0], Events: n[1], Since: time.Unix(n[2], 0)}).Words(); words != "" {
		return " " + words + "."
	}
	return ""
}
