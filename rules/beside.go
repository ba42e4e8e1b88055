package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/rules/promotion"
)

// What stands beside a rule's limit and blocks nobody: a warning near it, a limit on trial, and what is asked before the rule may block.

const (
	allowedNear      = "a share of the limit from 0.01 to 0.99, such as 0.8"
	allowedCandidate = "a mapping with the member limit"

	allowedPromote   = "a mapping with the members min_shadow, max_known_good, min_coverage, max_traffic_share"
	allowedMinShadow = "0s to 90d, in units s m h d"
	allowedShare     = "0% to 100%, with at most two decimals"
	allowedCanary    = "a mapping with the members steps, hold"
	allowedSteps     = "a list of 1 to 10 ascending shares above 0% and below 100%, such as [1%, 10%, 50%]"
	allowedHold      = "1s to 7d, in units s m h d"
	sharePattern     = `^(100(\.00?)?|[1-9]?[0-9](\.[0-9][0-9]?)?)%$`
)

// NearCount is the count at which a window with this limit is near it: the share Near of the limit, rounded up, and at
// least 2, since everybody has a first request. 0 where the document has no Near.
func (d *Document) NearCount(limit int) int {
	if d.Near == 0 {
		return 0
	}
	return max(2, (limit*d.Near+99)/100)
}

// beside checks near and candidate.
func (c *checker) beside() {
	if c.Near != 0 {
		got := describeNear(c.Near)
		c.say(c.Near >= 1 && c.Near <= 99, "near", got, allowedNear)
		c.say(!c.Counting().bucket(), "near", got+" with algorithm "+string(c.Counting()), "near with a window; a bucket is full whenever it is used in full")
		if c.Near >= 1 && c.Near <= 99 && c.Limit*c.Near <= 100 {
			c.report(Problem{Field: "near", Got: got + " of limit " + strconv.Itoa(c.Limit),
				Allowed: "a share of the limit above 1: everybody has a first request", needs: "limit"})
		}
	}
	if trial := c.Candidate; trial != nil {
		c.say(trial.Limit >= 0 && trial.Limit <= MaxLimit, "candidate.limit", "the number "+strconv.Itoa(trial.Limit), allowedLimit)
		if trial.Limit == c.Limit {
			c.report(Problem{Field: "candidate.limit", Got: strconv.Itoa(trial.Limit) + ", which is the rule's limit",
				Allowed: "another limit than the rule's", needs: "limit"})
		}
	}
	// A bucket leaks at the rate of its limit: one bucket cannot leak at two.
	c.say(len(c.Tiers) == 0 || !c.Counting().bucket(), "tiers", "tiers with algorithm "+string(c.Counting()), "tiers with a window; a bucket has one rate")
}

// beside names what v has that stands beside a limit, or is no document's: for builds that know of no such thing.
func (v *Version) beside() string {
	var parts []string
	if v.Near != 0 {
		parts = append(parts, "near "+describeNear(v.Near))
	}
	if v.Candidate != nil {
		parts = append(parts, "candidate.limit "+strconv.Itoa(v.Candidate.Limit))
	}
	if v.Pending {
		parts = append(parts, "a pending version")
	}
	if v.Raised != nil {
		parts = append(parts, fmt.Sprintf("a limit raised to %d", v.Raised.Limit))
	}
	return strings.Join(parts, ", ")
}

// describeNear writes a share as a rule does; nothing for none.
func describeNear(percent int) string {
	if percent == 0 {
		return ""
	}
	return strings.TrimRight(fmt.Sprintf("%d.%02d", percent/100, percent%100), "0")
}

func describeCandidate(c *Candidate) string {
	if c == nil {
		return ""
	}
	return strconv.Itoa(c.Limit)
}

func sameCandidate(a, b *Candidate) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// cloneCandidate is c without memory that it shares with another document.
func cloneCandidate(c *Candidate) *Candidate {
	if c == nil {
		return nil
	}
	clone := *c
	return &clone
}

// readNear reads a share: 0.8, or 80%.
func (d *decoder) readNear(field string, n yamlnode.Node) {
	percent, ok, hint := 0, false, ""
	switch value := n.Value(); {
	case n.Tag() != "":
	case n.Kind() == yamlnode.Text && strings.HasSuffix(value, "%"):
		whole := strings.TrimSuffix(value, "%")
		var err error
		percent, err = strconv.Atoi(whole)
		ok = err == nil && strconv.Itoa(percent) == whole
	case n.Kind() == yamlnode.Text:
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			hint = "leave the quotes out"
		}
	case n.Kind() == yamlnode.Integer:
		hint = "a share of the limit, not a count"
	case n.Kind() == yamlnode.Float:
		percent, ok = hundredths(value)
	}
	if !ok || percent < 1 || percent > 99 {
		d.wrong(field, n, allowedNear, hint)
		return
	}
	d.doc.Near = percent
}

// hundredths reads 0.8, 0.80 or .8 as 80; false for what is no number below 1 of at most two decimals.
func hundredths(s string) (int, bool) {
	digits, ok := strings.CutPrefix(strings.TrimPrefix(s, "0"), ".")
	if !ok || len(digits) < 1 || len(digits) > 2 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi((digits + "0")[:2])
	return n, err == nil
}

func candidateSection() section {
	return section{
		prefix: "candidate.",
		members: []member{
			{"limit", allowedLimit, into((*decoder).integer, allowedLimit, func(d *Document) *int { return &d.Candidate.Limit })},
		},
	}
}

func (d *decoder) readCandidate(field string, n yamlnode.Node) {
	d.doc.Candidate = &Candidate{}
	if !d.section(candidateSection(), field, n) {
		d.doc.Candidate = nil
	}
}

func promoteSection() section {
	share := func(name string, of func(*promotion.Gates) *promotion.Share) member {
		return member{name, "", into(aShare, allowedShare, func(d *Document) *promotion.Share { return of(d.Promote) })}
	}
	return section{
		prefix: "promote.",
		members: []member{
			{"min_shadow", "", into(aSpan, allowedMinShadow, func(d *Document) *promotion.Span { return &d.Promote.MinShadow })},
			share("max_known_good", func(g *promotion.Gates) *promotion.Share { return &g.MaxKnownGood }),
			share("min_coverage", func(g *promotion.Gates) *promotion.Share { return &g.MinCoverage }),
			share("max_traffic_share", func(g *promotion.Gates) *promotion.Share { return &g.MaxTrafficShare }),
		},
	}
}

func canarySection() section {
	return section{
		prefix: "canary.",
		members: []member{
			{"steps", "", readSteps},
			{"hold", "", into(aSpan, allowedHold, func(d *Document) *promotion.Span { return &d.Canary.Hold })},
		},
	}
}

func readPromote(d *decoder, field string, n yamlnode.Node) {
	gates := promotion.DefaultGates()
	d.doc.Promote = &gates
	if !d.section(promoteSection(), field, n) {
		d.doc.Promote = nil
	}
}

func readCanary(d *decoder, field string, n yamlnode.Node) {
	canary := promotion.DefaultCanary()
	d.doc.Canary = &canary
	if !d.section(canarySection(), field, n) {
		d.doc.Canary = nil
	}
}

func aSpan(d *decoder, field string, n yamlnode.Node, allowed string) (promotion.Span, bool) {
	v, ok := d.duration(field, n, allowed)
	return promotion.Span(v), ok
}

// aShare reads a percentage. A number without the sign could be one, or a part of 1; nothing is nothing.
func aShare(d *decoder, field string, n yamlnode.Node, allowed string) (promotion.Share, bool) {
	if n.Tag() == "" && n.Kind() == yamlnode.Integer && n.Value() == "0" {
		return 0, true
	}
	if n.Tag() == "" && n.Kind() == yamlnode.Text {
		if share, err := promotion.ParseShare(n.Value()); err == nil {
			return share, true
		}
	}
	hint := ""
	if n.Kind() == yamlnode.Integer || n.Kind() == yamlnode.Float {
		hint = "add the sign: " + n.Value() + "%"
	}
	d.wrong(field, n, allowed, hint)
	return 0, false
}

func readSteps(d *decoder, field string, n yamlnode.Node) {
	if n.Kind() != yamlnode.List {
		d.wrong(field, n, allowedSteps, "")
		return
	}
	if d.tooMany(field, n, promotion.MaxSteps) {
		return
	}
	d.doc.Canary.Steps = nil
	for i, item := range n.Children() {
		at := element(field, i)
		d.nodes[at] = item
		share, ok := aShare(d, at, item, allowedShare)
		d.bad[field] = d.bad[field] || !ok
		d.doc.Canary.Steps = append(d.doc.Canary.Steps, share)
	}
}

// promotion checks promote and canary.
func (c *checker) promotion() {
	if g := c.Promote; g != nil {
		c.say(c.Block != nil, "promote", "promote without block", "promote where there is a block, which is what is promoted")
		c.span("promote.min_shadow", time.Duration(g.MinShadow), 0, promotion.MaxMinShadow, allowedMinShadow)
		share := func(name string, s promotion.Share) {
			c.say(s >= 0 && s <= promotion.All, "promote."+name, s.String(), allowedShare)
		}
		share("max_known_good", g.MaxKnownGood)
		share("min_coverage", g.MinCoverage)
		share("max_traffic_share", g.MaxTrafficShare)
	}
	if canary := c.Canary; canary != nil {
		c.say(c.Block != nil, "canary", "canary without block", "canary where there is a block, of which it is the beginning")
		c.say(promotion.CheckSteps(canary.Steps) == nil, "canary.steps", describeSteps(canary.Steps), allowedSteps)
		c.span("canary.hold", time.Duration(canary.Hold), promotion.MinHold, promotion.MaxHold, allowedHold)
	}
}

// plainPromotion leaves out what is the default, and makes n's own what it shares.
func plainPromotion(n *Document) {
	if g := n.Promote; g != nil {
		own := *g
		if n.Promote = &own; own == promotion.DefaultGates() {
			n.Promote = nil
		}
	}
	if c := n.Canary; c != nil {
		own, plain := promotion.Canary{Steps: slices.Clone(c.Steps), Hold: c.Hold}, promotion.DefaultCanary()
		if n.Canary = &own; own.Equal(&plain) {
			n.Canary = nil
		}
	}
}

// GatesOf are the gates of d.
func GatesOf(d *Document) promotion.Gates {
	if d.Promote != nil {
		return *d.Promote
	}
	return promotion.DefaultGates()
}

// CanaryOf is how a canary of d goes on.
func CanaryOf(d *Document) promotion.Canary {
	if d.Canary != nil {
		return *d.Canary
	}
	return promotion.DefaultCanary()
}

// describePromote and describeCanary write them as a rule does; nothing for the default.
func describePromote(g *promotion.Gates) string {
	if g == nil {
		return ""
	}
	return fmt.Sprintf("{min_shadow: %s, max_known_good: %s, min_coverage: %s, max_traffic_share: %s}", g.MinShadow, g.MaxKnownGood, g.MinCoverage, g.MaxTrafficShare)
}

func describeCanary(c *promotion.Canary) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("{steps: %s, hold: %s}", describeSteps(c.Steps), duration.Format(time.Duration(c.Hold)))
}

func describeSteps(steps []promotion.Share) string {
	parts := make([]string, len(steps))
	for i, s := range steps {
		parts[i] = s.String()
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// promotionShapes are what the members of promote and canary may be.
func promotionShapes() map[string]Schema {
	share := Schema{"oneOf": []any{Schema{"type": "string", "pattern": sharePattern}, Schema{"const": 0}}}
	known := map[string]Schema{
		"promote.min_shadow":        text("For how long the version must have been watched, gaps taken off; default 1d.", allowedMinShadow, Schema{"pattern": durationPattern}),
		"promote.max_known_good":    described(share, "The greatest part of the sources that it would have held, of those of which it is known, that may be good; default 0%.", allowedShare),
		"promote.min_coverage":      described(share, "The least part of the sources that it would have held of which must be known whether they are good; default 50%.", allowedShare),
		"promote.max_traffic_share": described(share, "The greatest part of all requests that it may have refused; default 1%.", allowedShare),
		"canary.steps": described(Schema{"type": "array", "minItems": 1, "maxItems": promotion.MaxSteps, "uniqueItems": true,
			"items": Schema{"type": "string", "pattern": sharePattern}}, "The parts of the block keys that are held, one after the other; default [1%, 10%, 50%].", allowedSteps),
		"canary.hold": span("How long each step lasts at least; default 30m.", allowedHold),
	}
	known["promote"] = described(promoteSection().schema(known), "What a promotion asks of the evidence.", allowedPromote)
	known["canary"] = described(canarySection().schema(known), "How the rule goes on that is promoted to canary.", allowedCanary)
	return known
}
