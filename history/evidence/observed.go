package evidence

import (
	"cmp"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// maxGaps bounds the gaps that a dossier lists; their minutes are in Observed.Missing all the same.
const maxGaps = 200

// observed says of each minute of the span whether the version was watched.
func (a *asked) observed(f *found) Observed {
	o := Observed{Span: int64((a.Until - a.Since) / minute), Gaps: []Gap{}, Missing: []Missing{}, Losses: int64(len(f.lost))}
	all, matched, counted := byMinute(f.all), byMinute(f.matched), byMinute(f.counted)
	lost := map[traffic.Time]bool{}
	for _, t := range f.lost {
		lost[t-mod(t)] = true
	}
	explained := f.explained()
	missing := map[GapReason]int64{}
	for at := a.Since; at < a.Until; at += minute {
		_, told := all[at]
		_, seen := counted[at]
		reason := a.gap(at, told, seen, !explained && matched[at] != nil && matched[at].events > 0, lost[at], f.isOff(at))
		if reason == "" || reason == GapUncounted {
			reason = cmp.Or(f.hid(at), reason)
		}
		if reason == "" {
			o.Minutes++
			continue
		}
		missing[reason]++
		if n := len(o.Gaps); n > 0 && o.Gaps[n-1].Reason == reason && o.Gaps[n-1].Until == at {
			o.Gaps[n-1].Until += minute
			continue
		}
		o.Gaps = append(o.Gaps, Gap{at, at + minute, reason})
	}
	for _, reason := range gapReasons() {
		if missing[reason] > 0 {
			o.Missing = append(o.Missing, Missing{reason, missing[reason]})
		}
	}
	o.Gaps = longest(o.Gaps)
	return o
}

// gap is why a minute does not count, the first reason that holds; empty: it counts. What is told of a minute before the version began
// was counted by it all the same: by the time of its events, a log that is read late lies in the past.
func (a *asked) gap(at traffic.Time, told, seen, watched, lost, off bool) GapReason {
	switch {
	case at+minute <= a.begins && !seen:
		return GapBefore
	case off && !seen:
		return GapOff
	case !during(a.spans, at) && !seen:
		return GapOther
	case !told && !seen:
		return GapSilent
	case at >= a.begins-mod(a.begins) && at < a.warm:
		return GapWarming
	case watched && !seen:
		return GapUncounted
	case lost:
		return GapLoss
	}
	return ""
}

// hid is why a minute has hidden sources that would be over the limit by now; empty: it has not.
func (f *found) hid(at traffic.Time) GapReason {
	switch {
	case during(f.raised, at):
		return GapRaised
	case during(f.allowed, at):
		return GapAllowed
	}
	return ""
}

// explained reports whether DETECT has told of all minutes in which the rule watched something, or as many events were left out for a reason
// that is known.
func (f *found) explained() bool {
	counted, unseen := byMinute(f.counted), int64(0)
	for i := range f.matched {
		if m := &f.matched[i]; counted[m.minute] == nil {
			unseen += m.events
		}
	}
	return unseen <= f.leftOut
}

// isOff reports whether the rule was off for the whole of a minute.
func (f *found) isOff(at traffic.Time) bool {
	for _, span := range f.off {
		if span.since <= at && at+minute <= span.until {
			return true
		}
	}
	return false
}

// longest leaves the longest gaps, in order of time.
func longest(gaps []Gap) []Gap {
	if len(gaps) <= maxGaps {
		return gaps
	}
	slices.SortStableFunc(gaps, func(x, y Gap) int { return cmp.Compare(y.Until-y.Since, x.Until-x.Since) })
	gaps = gaps[:maxGaps]
	slices.SortFunc(gaps, func(x, y Gap) int { return cmp.Compare(x.Since, y.Since) })
	return gaps
}

func byMinute(rows []minuteRow) map[traffic.Time]*minuteRow {
	out := make(map[traffic.Time]*minuteRow, len(rows))
	for i := range rows {
		out[rows[i].minute] = &rows[i]
	}
	return out
}

func (o *Observed) missing(reason GapReason) int64 {
	for _, m := range o.Missing {
		if m.Reason == reason {
			return m.Minutes
		}
	}
	return 0
}
