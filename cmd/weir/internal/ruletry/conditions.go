package ruletry

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
)

// clauseAsked is one clause of the match.
type clauseAsked struct {
	route.Clause
	Judged *condition.Judged `json:"judged,omitempty"` // of match.when: what the event makes of each part; nil where it was not asked
}

// tierAsked is one tier, and what an event makes of its condition.
type tierAsked struct {
	Name   string            `json:"name"` // tiers[0]
	When   string            `json:"when"`
	Limit  int               `json:"limit"`
	Judged *condition.Judged `json:"judged,omitempty"` // nil: not asked, since a tier before it holds
}

// goodAsked is what known_good makes of an event.
type goodAsked struct {
	Says   string           `json:"says"` // good, not_good or not_judged
	Judged condition.Judged `json:"judged"`
}

// chooseGood makes known_good that of the configuration, where the command line has none.
func (x *explainer) chooseGood(c *config.Config) error {
	given := config.Expression(x.good)
	if err := given.UnmarshalText([]byte(x.good)); err != nil {
		return usage.Errorf("--known-good: %w", err)
	}
	x.good = string(cmp.Or(given, c.KnownGood))
	return nil
}

// judgeGood takes over what known_good makes of the event, unless weir itself had refused the request. whole has explained it last.
func (x *explained) judgeGood(good string, whole *route.Explainer, got *route.Explanation) error {
	if good == "" || got.Fate == route.FateRefusal {
		return nil
	}
	judged, err := whole.JudgeGood(good)
	if err != nil {
		return err
	}
	x.KnownGood = &goodAsked{got.Good.String(), judged}
	return nil
}

// goodRows are the rows of known_good.
func goodRows(asked *goodAsked) [][]string {
	if asked == nil {
		return nil
	}
	says := map[string]string{
		detectors.KnownGood.String(): "its source is known to be good", detectors.NotGood.String(): "its source is not known to be good",
	}
	return conditionRows("known_good", cmp.Or(says[asked.Says], "it cannot be judged"), &asked.Judged)
}

// judge takes over what the event makes of the rule's conditions. whole has explained it last.
func (x *explained) judge(v *rules.Version, whole *route.Explainer, got *route.Explanation) error {
	if v.Match.When != "" {
		c, err := whenClause(v, whole, got)
		if err != nil {
			return err
		}
		x.Clauses = append(x.Clauses, c)
	}
	if !x.Counts {
		return nil
	}
	held := false
	for i, tier := range v.Tiers {
		asked := tierAsked{Name: fmt.Sprintf("tiers[%d]", i), When: tier.When, Limit: tier.Limit}
		if !held {
			judged, err := whole.Judge(tier.When)
			if err != nil {
				return err
			}
			asked.Judged, held = &judged, judged.Holds
		}
		x.Tiers = append(x.Tiers, asked)
	}
	return nil
}

// whenClause is the condition of the match, which is asked only of events that meet the rest of it.
func whenClause(v *rules.Version, whole *route.Explainer, got *route.Explanation) (clauseAsked, error) {
	c := clauseAsked{Clause: route.Clause{Name: "match.when", Rule: v.Match.When, Got: "not asked, since another clause does not hold"}}
	switch {
	case got.Fate == route.FateRefusal:
		c.Got = "not asked of a request that weir itself had refused"
		return c, nil
	case len(got.Rules)+len(got.Turned) == 0:
		return c, nil
	}
	judged, err := whole.Judge(v.Match.When)
	c.Got, c.Held, c.Judged = answerOf(&judged), judged.Holds, &judged
	return c, err
}

// answerOf is what an event makes of a whole condition, in a sentence.
func answerOf(j *condition.Judged) string {
	switch {
	case j.Holds:
		return "it holds"
	case j.Fault != "":
		return "it cannot be judged: " + j.Fault
	}
	return "it does not hold"
}

// conditionRows are the rows of a condition: the whole of it, and below it each part, under the word that joins it to the others.
func conditionRows(name, got string, j *condition.Judged) [][]string {
	return append([][]string{{name, oneLine(j.Condition), got, verdictOf(j)}}, partRows("when", j, 1)...)
}

// partRows are the rows of a condition's parts; of a comparison its own, with what the event has for the fields that it reads.
func partRows(word string, j *condition.Judged, depth int) [][]string {
	if len(j.Parts) == 0 {
		return [][]string{partRow(word, j, depth)}
	}
	var out [][]string
	for i := range j.Parts {
		part := &j.Parts[i]
		out = append(out, partRow(string(j.Join), part, depth))
		if len(part.Parts) > 0 {
			out = append(out, partRows("", part, depth+1)...)
		}
	}
	return out
}

func partRow(word string, j *condition.Judged, depth int) []string {
	var has []string
	for _, r := range j.Reads {
		text := r.Field + ": " + cmp.Or(r.Value, "missing")
		if r.Cut {
			text += "… (cut)"
		}
		has = append(has, text)
	}
	if j.Fault != "" {
		has = append(has, answerOf(j))
	}
	return []string{strings.Repeat("  ", depth) + word, oneLine(j.Condition), strings.Join(has, ", "), verdictOf(j)}
}

// verdictOf is yes, no, or fault for what cannot be judged.
func verdictOf(j *condition.Judged) string {
	if j.Fault != "" {
		return "fault"
	}
	return yes(j.Holds)
}

// tierRows are the rows of the tiers, each in turn, and the limit that follows.
func tierRows(x *explained) [][]string {
	if len(x.Tiers) == 0 {
		return nil
	}
	var out [][]string
	taken := ""
	for _, t := range x.Tiers {
		switch {
		case t.Judged == nil && taken == "":
			out = append(out, []string{t.Name, oneLine(t.When), "it is not judged: budget", "-"})
			continue
		case t.Judged == nil:
			out = append(out, []string{t.Name, oneLine(t.When), "not asked, since " + taken + " holds", "-"})
			continue
		case t.Judged.Holds:
			taken = t.Name
			out = append(out, conditionRows(t.Name, "it holds: taken", t.Judged)...)
		case t.Judged.Fault != "":
			out = append(out, conditionRows(t.Name, answerOf(t.Judged), t.Judged)...)
		default:
			out = append(out, conditionRows(t.Name, "it does not hold: passed over", t.Judged)...)
		}
	}
	why := fmt.Sprintf("limit %d", x.Limit)
	if x.Unjudged != "" {
		why = fmt.Sprintf("a tier cannot be judged (%s): limit %d, the greatest that the event may have", x.Unjudged, x.Limit)
	}
	return append(out, []string{"tier", cmp.Or(oneLine(x.Tier), "the rule's own limit"), why, "yes"})
}

// oneLine writes a condition of several lines as one.
func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\t", " ").Replace(s) }
