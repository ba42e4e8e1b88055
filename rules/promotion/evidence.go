package promotion

import (
	"fmt"
	"strconv"
)

// Evidence is what a dossier says in figures: what a rule's version would have done, had it blocked for a while. A figure that is nil is
// not measurable, and passes no gate.
type Evidence struct {
	Observed Span  `json:"observed"`      // for how long it was watched, gaps taken off
	Coverage *Part `json:"coverage"`      // of the sources that it would have held, those of which it is known whether they are good
	Good     *Part `json:"known_good"`    // of those of which it is known, the good ones
	Traffic  *Part `json:"traffic_share"` // of all requests of the time, those that its block would have refused
}

// Part is some of all. Of nothing there is no part: it is not measurable.
type Part struct {
	Some int64 `json:"some"`
	All  int64 `json:"all"`
}

// share is p as a number from 0 to 1, false where that is not measurable.
func (p *Part) share() (float64, bool) {
	if p == nil || p.All <= 0 {
		return 0, false
	}
	return float64(p.Some) / float64(p.All), true
}

// Outcome is what became of a gate.
type Outcome string

const (
	Passed        Outcome = "passed"         // as it asks
	Failed        Outcome = "failed"         // more, or less, than it asks
	NotMeasurable Outcome = "not measurable" // which is not to have passed
)

// Verdict is what a gate says of evidence.
type Verdict struct {
	Gate    string  `json:"gate" mask:"-"` // as documents name it: min_shadow
	Allowed string  `json:"allowed" mask:"line"`
	Got     string  `json:"got" mask:"line"` // empty: not measurable
	Outcome Outcome `json:"outcome"`
}

func (v Verdict) String() string {
	if v.Outcome == NotMeasurable {
		return fmt.Sprintf("%s: not measurable, allowed %s", v.Gate, v.Allowed)
	}
	return fmt.Sprintf("%s: %s, got %s, allowed %s", v.Gate, v.Outcome, v.Got, v.Allowed)
}

// Judge asks each gate, in the order of documents. That no known-good source was seen says nothing where too few could be judged.
func (g Gates) Judge(e *Evidence) []Verdict {
	if e == nil {
		e = &Evidence{}
	}
	shadow := Verdict{Gate: "min_shadow", Allowed: "at least " + g.MinShadow.String(), Got: e.Observed.String(), Outcome: outcome(e.Observed >= g.MinShadow)}
	coverage := judge("min_coverage", "at least ", g.MinCoverage, e.Coverage, func(got, bound float64) bool { return got >= bound })
	atMost := func(got, bound float64) bool { return got <= bound }
	good := judge("max_known_good", "at most ", g.MaxKnownGood, e.Good, atMost)
	if coverage.Outcome != Passed && good.Outcome == Passed {
		good.Got, good.Outcome = "", NotMeasurable
	}
	return []Verdict{shadow, good, coverage, judge("max_traffic_share", "at most ", g.MaxTrafficShare, e.Traffic, atMost)}
}

func judge(gate, word string, bound Share, got *Part, passes func(got, bound float64) bool) Verdict {
	v := Verdict{Gate: gate, Allowed: word + bound.String(), Outcome: NotMeasurable}
	if share, ok := got.share(); ok {
		v.Got, v.Outcome = percent(share), outcome(passes(share, float64(bound)/float64(All)))
	}
	return v
}

func outcome(ok bool) Outcome {
	if ok {
		return Passed
	}
	return Failed
}

// percent writes a share with three digits, so that little is not shown as nothing.
func percent(share float64) string { return strconv.FormatFloat(share*100, 'g', 3, 64) + "%" }

// Missed are the verdicts that did not pass.
func Missed(verdicts []Verdict) (missed []Verdict) {
	for _, v := range verdicts {
		if v.Outcome != Passed {
			missed = append(missed, v)
		}
	}
	return missed
}
