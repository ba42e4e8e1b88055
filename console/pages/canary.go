package pages

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/console/shown"
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
		Share: c.Share.String(), Step: c.Step, Steps: len(c.Steps), Since: traffic.At(c.Since), Due: traffic.At(c.Due()), Hold: shown.Span(time.Duration(c.Hold)),
		Next: "the rule blocks all sources over the limit",
	}
	v.Overdue = v.Due <= now
	for i, share := range c.Steps {
		v.Ladder = append(v.Ladder, canaryStep{Share: share.String(), Over: i+1 < c.Step, Present: i+1 == c.Step})
	}
	if c.Step < len(c.Steps) {
		v.Next = c.Steps[c.Step].String() + " of them"
	}
	v.Falls = fallsBack(&c.Predicted, v.Hold)
	return v
}

// fallsBack words what puts a canary back into shadow: more than its evidence predicted, and that nothing is known.
func fallsBack(p *promotion.Prediction, hold string) []string {
	good := "when a known-good source is blocked, or somebody releases one"
	if p.KnownGood > 0 {
		good = fmt.Sprintf("when more than %s of its blocks are on known-good sources, or released by somebody", percent(p.KnownGood))
	}
	return []string{
		good,
		fmt.Sprintf("when more than %s of all requests are refused", percent(p.Traffic)),
		fmt.Sprintf("when it stays unknown what it does, for %s after the end of a step", hold),
	}
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
