package evidence

import (
	"fmt"
	"time"
)

// Figures are those that gates and a canary's fall-back ask for. A gate that asks for one which is not measurable is not passed.
type Figures struct {
	Observed     time.Duration `json:"observed_ns"`   // min_shadow
	Sources      Count         `json:"sources"`       // that would have been held
	Requests     Count         `json:"requests"`      // that would have been refused
	KnownGood    Count         `json:"known_good"`    // max_known_good: held sources that are known to be good
	KnownShare   Share         `json:"known_share"`   // the same, of all held sources that could be judged
	Coverage     Share         `json:"coverage"`      // min_coverage: held sources that could be judged
	TrafficShare Share         `json:"traffic_share"` // max_traffic_share: refused requests, of all events
}

// Figures are those of d.
func (d *Dossier) Figures() Figures {
	f := Figures{
		Observed: d.Observed.Hours(), Sources: d.Held.Sources, Requests: d.Held.Requests, KnownGood: d.KnownGood.Sources,
		Coverage: d.KnownGood.Coverage, TrafficShare: d.Held.ShareOfAll,
	}
	f.KnownShare = shareOf(d.goodOfJudged(), f.Coverage.Part, "of the sources that would have been held none could be judged")
	return f
}

// goodOfJudged are the known-good ones of the sources that could be judged: exact even where others could not be, of whom nothing is known.
func (d *Dossier) goodOfJudged() Count {
	good := d.KnownGood.Sources
	if good.State == Bounded && good.Reason != apart && d.Held.Sources.Side != AtLeast {
		return measured(good.Value)
	}
	return good
}

// Summary is what a promotion shows before it asks: few lines, each a figure with what it is.
func (d *Dossier) Summary() []string {
	hours := fmt.Sprintf("observed %s of %s", hoursText(d.Observed.Minutes), hoursText(d.Observed.Span))
	for _, m := range d.Observed.Missing {
		hours += fmt.Sprintf(", %s %s", m.Reason, hoursText(m.Minutes))
	}
	return []string{
		hours,
		"would have refused: " + d.Held.Requests.String() + " requests",
		"of all traffic: " + d.Held.ShareOfAll.String(),
		"would have held: " + d.Held.Sources.String() + " sources",
		"known-good sources among them: " + d.KnownGood.Sources.String(),
		"could be judged known-good or not: " + d.KnownGood.Coverage.String(),
		"most users behind one: " + d.Behind.Users.Most.String(),
		"already held by other rules: " + d.Overlap.Sources.String(),
	}
}

// hoursText is 90 as 1.5 h, and what is below an hour in minutes.
func hoursText(minutes int64) string {
	if minutes < 60 {
		return fmt.Sprintf("%d min", minutes)
	}
	return fmt.Sprintf("%.1f h", float64(minutes)/60)
}
