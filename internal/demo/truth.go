package demo

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/traffic"
)

// Over is an episode of a source over a rule's limit, as the truth has it.
type Over struct {
	Rule, Subject string
	First, Last   traffic.Time // first and last request over the limit
	Count         int64        // requests from the first to the last of them
}

// Truth computes from a gateway's stamps alone who went over which rule, and when; ascending by time.
func Truth(l Ledger) []Over {
	requests := make([]oracle.Request, len(l.Stamps))
	for i := range l.Stamps {
		s := &l.Stamps[i]
		requests[i] = oracle.Request{
			Time: int64(s.Time), Client: s.Client, Device: s.Device, Method: s.Method, Path: s.Path, Refused: s.Refused(),
		}
	}
	var all []Over
	for _, rule := range truthRules() {
		over := rule.Over(requests)
		for _, subject := range slices.Sorted(maps.Keys(over)) {
			for _, e := range over[subject] {
				all = append(all, Over{
					Rule: rule.ID, Subject: subject, First: traffic.Time(e.First), Last: traffic.Time(e.Last), Count: e.Count,
				})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Over) int { return cmp.Compare(a.First, b.First) })
	return all
}

// Recorded is what weir's history says of the run: the live stream's episodes, merged ones left out.
type Recorded struct{ Hits []RecordedHit }

// RecordedHit is one of them.
type RecordedHit struct {
	Rule, Subject string
	ID            string
	First, Last   traffic.Time
	Count         int64
}

// Awaited is how many of the truth's episodes history does not have yet. Recording comes a moment after detection, so
// ask again for some seconds before judging.
func Awaited(l Ledger, r Recorded) int {
	known := map[Over]bool{}
	for _, h := range r.Hits {
		known[Over{Rule: h.Rule, Subject: h.Subject, First: h.First}] = true
	}
	missing := 0
	for _, o := range Truth(l) {
		if !known[Over{Rule: o.Rule, Subject: o.Subject, First: o.First}] {
			missing++
		}
	}
	return missing
}

// phase is what an episode may lead to.
type phase int

const (
	inShadow phase = iota // no block
	blocking
	between // it touches the promotion: either is right
)

// episode is one of the truth's, and what the clients saw of it. Its block is over at until, to the microsecond: while
// a block holds, no request of its source counts, so nothing raises it; and what passed before the block took effect
// is told by a hit that comes when it is over already (docs/demo.md).
type episode struct {
	Over
	phase   phase
	due     traffic.Time // the machine had let the demo run for the allowance
	until   traffic.Time
	refused []*seen // in the order of time
}

// must reports whether the gate's answer to a request had to be no: for each moment at which it may have looked, the
// block was past its allowance and not over, or had been seen in effect before.
func (e *episode) must(s *seen) bool {
	if e.phase != blocking || s.stamp.Checked >= e.until {
		return false
	}
	if s.stamp.Arrived > e.due {
		return true
	}
	return len(e.refused) > 0 && e.refused[0].stamp.Checked < s.stamp.Arrived
}

// untold reports whether the block was over before it had to be seen, and never was: the machine has not let the demo
// run for long enough meanwhile.
func (e *episode) untold() bool {
	return e.phase == blocking && len(e.refused) == 0 && e.due >= e.until
}

// may reports whether it could be no.
func (e *episode) may(s *seen) bool {
	return e.phase != inShadow && s.stamp.Time > e.First && s.stamp.Arrived < e.until
}

// seen is one request of a simulated client: what it was told, and the gateway's stamp.
type seen struct {
	answer *Answer
	stamp  *Stamp
	client *Client
}

// source names a source under a rule.
type source struct{ rule, subject string }

func (o *Over) source() source { return source{o.Rule, o.Subject} }

// episodes gives the truth by source, each with what it may lead to.
func episodes(l Ledger, a *Answers, allowance time.Duration) map[source][]*episode {
	all := map[source][]*episode{}
	for _, o := range Truth(l) {
		e := &episode{Over: o, due: ran(a.Stalls, o.First, allowance), until: o.First.Add(blockFor)}
		switch {
		case a.Promotion == 0 || max(e.until, o.Last.Add(window)) < a.Promotion:
			e.phase = inShadow
		case o.First > a.Promoted:
			e.phase = blocking
		default:
			e.phase = between
		}
		all[o.source()] = append(all[o.source()], e)
	}
	return all
}
