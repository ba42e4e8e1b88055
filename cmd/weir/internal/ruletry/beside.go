package ruletry

import (
	"slices"
	"strings"

	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// beside is the rule that is explained with all others of the documents: conditions have a budget together, so that
// whether one is judged follows from the others.
type beside struct {
	rule  int
	whole *route.Explainer // nil: the rule has no condition
}

// newBeside makes it of a routing version that has the rule alone.
func newBeside(alone *rules.Routing, docs []rules.Document, at int) (*beside, error) {
	if docs[at].Match.When == "" && len(docs[at].Tiers) == 0 {
		return &beside{}, nil
	}
	all := *alone
	all.Rules = make([]rules.Version, len(docs))
	for i := range docs {
		all.Rules[i], _ = rules.NextVersion(nil, docs[i])
	}
	// As routing versions have them: the order decides among rules that cost the same.
	slices.SortFunc(all.Rules, func(a, b rules.Version) int { return strings.Compare(a.ID, b.ID) })
	rule := slices.IndexFunc(all.Rules, func(v rules.Version) bool { return v.ID == docs[at].ID })
	whole, err := route.NewFileExplainer(&all)
	return &beside{rule, whole}, err
}

// fits reports whether the rule's conditions are judged of an event.
func (b *beside) fits(line []byte, now traffic.Time) bool {
	if b.whole == nil {
		return true
	}
	got := b.whole.Explain(&traffic.Message{Value: line, Appended: now})
	return !slices.ContainsFunc(got.Turned, func(t route.TurnedAway) bool {
		return t.Index == b.rule && t.Fault == condition.FaultBudget
	}) && !slices.ContainsFunc(got.Rules, func(r route.ExplainedRule) bool {
		return r.Index == b.rule && r.TierFault == condition.FaultBudget
	})
}

// whyBeyond is why an event is not counted of which match.when was not judged.
const whyBeyond = "match.when is not judged: the conditions of all rules cost more for this event than they may (budget)"

// beyond takes back what the rule's conditions make of an event of which they are not judged.
func (x *explained) beyond(v *rules.Version) {
	const said = "it is not judged: budget"
	for i := range x.Clauses {
		if c := &x.Clauses[i]; c.Name == "match.when" && c.Judged != nil {
			c.Got, c.Held, c.Judged = said, false, nil
			x.Watched, x.Counts, x.unjudged = false, false, true
			x.Subject, x.Block, x.Value, x.Allowed, x.Tiers = "", "", "", nil, nil
			x.Tier, x.tier, x.Limit, x.Unjudged = "", 0, v.Limit, ""
		}
	}
	if len(v.Tiers) == 0 || !x.Counts {
		return
	}
	may := rules.TierSet(0).With(0)
	for i := range v.Tiers {
		may = may.With(i + 1)
	}
	for i := range x.Tiers {
		x.Tiers[i].Judged = nil
	}
	x.Unjudged, x.tier, x.Tier, x.Limit = condition.FaultBudget.String(), v.Greatest(may), "", v.Limit
	if x.tier > 0 {
		x.Tier, x.Limit = v.Tiers[x.tier-1].When, v.Tiers[x.tier-1].Limit
	}
}
