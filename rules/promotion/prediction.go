package promotion

import (
	"fmt"
	"math"
	"strings"
)

// Prediction is what a dossier leads one to expect of a canary. A figure that the dossier could not measure is
// Unpredicted.
type Prediction struct {
	KnownGood float64 `json:"known_good"` // part of the sources held that are known to be good
	Traffic   float64 `json:"traffic"`    // part of all requests that the whole rule refuses
}

// Unpredicted is a part that nothing exceeds: with what is not known nothing is compared.
const Unpredicted = 1.0

// Predict is what e leads one to expect, and no less than the gates allow: half an hour differs from a week. A figure
// of which the gate did not pass is predicted as it was seen: whoever has overridden the gate has seen it.
func (g Gates) Predict(e *Evidence) Prediction {
	if e == nil {
		e = &Evidence{}
	}
	return Prediction{KnownGood: predict(g.MaxKnownGood, e.Good), Traffic: predict(g.MaxTrafficShare, e.Traffic)}
}

func predict(allowed Share, seen *Part) float64 {
	share, ok := seen.share()
	if !ok {
		return Unpredicted
	}
	return max(float64(allowed)/float64(All), share)
}

// Uncompared says which figures of a canary nothing is compared with, for people; empty: none.
func (p Prediction) Uncompared() string {
	var out []string
	if p.KnownGood >= Unpredicted {
		out = append(out, "known-good sources and releases")
	}
	if p.Traffic >= Unpredicted {
		out = append(out, "the share of traffic")
	}
	if out == nil {
		return ""
	}
	return strings.Join(out, " and ") + ": not compared, since the evidence could not predict it"
}

// Observed is what a canary has done: since it began or, of Traffic, since its second whole minute. What is nil is not
// measurable.
type Observed struct {
	Blocks   *int64 `json:"blocks"`     // that it wrote
	Good     *int64 `json:"known_good"` // of these, those of known-good sources
	Released *int64 `json:"released"`   // of these, those that people released
	Traffic  *Part  `json:"traffic"`    // of all requests, those that its blocks refused
}

const (
	// LeastRequests is from how many requests on the share of traffic is judged.
	LeastRequests = 200
	// tolerance is how many times what was predicted is as predicted: no hour is like another.
	tolerance = 1.25
	// sigmas are those of a two-sided interval of 99 %.
	sigmas = 2.5758293035489004
)

// Exceeded says what is surely more than was predicted, for people; empty where nothing is: the lower end of the 99 %
// interval of a share lies above tolerance times the prediction. A release counts as a known-good source does: a person
// says that it is one. The share of traffic is what its own blocks refused, compared with the whole rule's: a tenth of
// the sources may make most of the requests.
func (p Prediction) Exceeded(o *Observed) string {
	blocks := value(o.Blocks)
	if low := Least(value(o.Good), blocks); low > tolerance*p.KnownGood {
		return fmt.Sprintf("known-good sources: %d of %d blocks, %s at least, predicted %s", value(o.Good), blocks,
			percent(low), percent(p.KnownGood))
	}
	if low := Least(value(o.Released), blocks); low > tolerance*p.KnownGood {
		return fmt.Sprintf("releases: %d of %d blocks, %s at least, predicted %s", value(o.Released), blocks,
			percent(low), percent(p.KnownGood))
	}
	if t := o.Traffic; t != nil && t.All >= LeastRequests {
		if low := Least(t.Some, t.All); low > tolerance*p.Traffic {
			return fmt.Sprintf("share of traffic: %d of %d requests refused, %s at least, predicted %s", t.Some, t.All,
				percent(low), percent(p.Traffic))
		}
	}
	return ""
}

// Least is the lower end of the 99 % interval of the share of which some of n were seen, 0 where none was (E. B.
// Wilson, Probable inference, the law of succession, and statistical inference, 1927).
func Least(some, n int64) float64 {
	if some <= 0 || n <= 0 {
		return 0
	}
	size := float64(n)
	seen := min(1, float64(some)/size)
	const square = sigmas * sigmas
	middle := seen + square/(2*size)
	spread := sigmas * math.Sqrt(seen*(1-seen)/size+square/(4*size*size))
	return max(0, (middle-spread)/(1+square/size))
}

// Measurable reports whether enough is known for a canary to go on: what it did to whom. The share of traffic is not
// asked for, as it depends on gateways that log their own refusals.
func (o *Observed) Measurable() bool { return o.Blocks != nil && o.Good != nil && o.Released != nil }

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
