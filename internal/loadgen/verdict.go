package loadgen

import (
	"fmt"

	"github.com/weirhq/weir/rules"
)

// Verdict is what is said of one rule in the end.
type Verdict struct {
	Rule    string `json:"rule"`
	Version int    `json:"version"`
	Verdict string `json:"verdict"` // Agrees, Differs or NotJudged
	Reason  string `json:"reason,omitempty"`
	*Comparison
}

// The verdicts. A rule of which the oracle can say nothing, or of which nothing was sent, is not judged: that nothing
// contradicts it is no agreement.
const (
	Agrees    = "agrees"
	Differs   = "differs"
	NotJudged = "not judged"
)

// Unjudged is the verdict on a rule that was not compared.
func Unjudged(v *rules.Version, reason string) Verdict {
	return Verdict{Rule: v.ID, Version: v.Number, Verdict: NotJudged, Reason: reason}
}

// Judge compares what history has found with what is expected.
func (x *Expectation) Judge(found []Found) Verdict {
	if x.reason != "" {
		return Unjudged(x.Rule, x.reason)
	}
	c := x.Compare(found)
	v := Verdict{Rule: x.Rule.ID, Version: x.Rule.Number, Verdict: Agrees, Comparison: &c}
	if !c.Agrees() {
		v.Verdict = Differs
	} else if v.Reason = x.idle(&c); v.Reason != "" {
		v.Verdict = NotJudged
	}
	return v
}

// idle says why an agreement is none; empty when it is one.
func (x *Expectation) idle(c *Comparison) string {
	count := &x.Rule.Count
	switch {
	case c.Events > 0 && c.Doubted == c.Events:
		return "every event may have been late for it, or is not certain to have been sent"
	case c.Sources == 0 && c.Unsure > 0 && c.Disordered > 0:
		return fmt.Sprintf("%s depends on the order in which events come, which is not known of any source that may be over", x.Rule.Counting())
	case c.Sources == 0 && c.Unsure > 0:
		return "of every source that may be over it is not certain that it must be"
	case c.Events > 0:
		return ""
	case c.Shared > 0:
		return "its key does not tell the load from other traffic"
	case x.Valueless > 0 && count.Sum != "":
		return fmt.Sprintf("no event of a load carries %s, which it adds up", count.Sum)
	case x.Valueless > 0 && count.Distinct != nil:
		return fmt.Sprintf("no event of the load carries the %s that it counts", count.Distinct.Field)
	}
	return "it counts no event of the load"
}
