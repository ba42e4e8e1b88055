package oracle

import (
	"cmp"
	"slices"
)

// TrialRule is a rule of which the block is tried, in seconds. It counts requests by a window that slides.
type TrialRule struct {
	Limit            int
	Window, Lateness int64
	TTL, Cooldown    int64
	MaxLag           int64
	OnHit            bool  // the block is extended by what comes while its source is over
	Tuples           bool  // one episode has several subjects
	Slices           bool  // windows are cut into 64 slices, as above a limit of 128
	Idle             int64 // how long after an episode is over that is told where no request comes
}

// TrialRequest is a request, in order of time.
type TrialRequest struct {
	At             int64
	Key, Subject   string     // whom the rule counts, and whom the block holds; empty: the request lacks a field
	Counted, Reach bool       // the rule counts it; the block's scope takes it
	Good           bool       // the deployment knows its source to be good, as of this request
	Rule           *TrialRule // the rule as it is from then on, of which only what it says of blocks may be new; nil: as before
}

// TrialMinute is what a block would have done in one minute.
type TrialMinute struct{ Counted, Reached, Refused, RefusedGood int64 }

// Trial is what a block would have done, in the plainest words: every request that was let through is kept, and every window counted anew.
type Trial struct {
	Minutes map[int64]*TrialMinute // by the minute's first second
	Blocks  map[string]*Blocks     // by subject
}

type trialEpisode struct {
	key         string
	first, last int64
	subjects    []string // of which something is known, in their order
	of          map[string]*trialTarget
}

// trialTarget is one subject of an episode: its newest request over the limit, and the episode's when it was told last.
type trialTarget struct{ last, sent int64 }

// Judge goes through the log once.
func (r *TrialRule) Judge(log []TrialRequest) Trial {
	out := Trial{Minutes: map[int64]*TrialMinute{}, Blocks: map[string]*Blocks{}}
	let := map[string][]int64{} // times, by key
	var running []*trialEpisode
	good := map[string]int64{}
	for _, q := range log {
		running = r.close(q.At, running, out.Blocks)
		if q.Rule != nil {
			r = q.Rule
		}
		if q.Good {
			good[q.Subject] = q.At / 86400
		}
		m := out.Minutes[q.At-q.At%60]
		if m == nil {
			m = &TrialMinute{}
			out.Minutes[q.At-q.At%60] = m
		}
		if q.Counted && q.Key != "" {
			m.Counted++
		}
		if q.Reach && (q.Subject != "" || q.Key != "" && q.Counted) {
			m.Reached++
		}
		if q.Reach && q.Subject != "" && out.Blocks[q.Subject].holds(q.At) {
			m.Refused++
			if day, known := good[q.Subject]; known && q.At/86400-day <= 30 {
				m.RefusedGood++
			}
			continue
		}
		if !q.Counted || q.Key == "" {
			continue
		}
		let[q.Key] = append(let[q.Key], q.At)
		if r.within(let[q.Key]) > r.Limit {
			running = r.over(q, running, out.Blocks)
		}
	}
	return out
}

// holds reports whether the newest block holds a request.
func (b *Blocks) holds(at int64) bool {
	if b == nil || len(b.Spans) == 0 {
		return false
	}
	s := &b.Spans[len(b.Spans)-1]
	return s.Begin <= at && at < s.Until
}

// over takes a request over the limit.
func (r *TrialRule) over(q TrialRequest, running []*trialEpisode, blocks map[string]*Blocks) []*trialEpisode {
	var e *trialEpisode
	for _, x := range running {
		if x.key == q.Key && q.At < x.last+r.Window {
			e = x
		}
	}
	if e == nil {
		e = &trialEpisode{key: q.Key, first: q.At, of: map[string]*trialTarget{}}
		running = append(running, e)
	}
	e.last = q.At
	t := e.of[q.Subject]
	if t == nil {
		t = &trialTarget{last: q.At, sent: q.At}
		e.of[q.Subject] = t
		e.subjects = append(e.subjects, q.Subject)
		r.tell("open", q.At, q.Subject, e, blocks)
	}
	t.last = q.At
	for _, subject := range e.subjects { // also those that were over before
		if t := e.of[subject]; t.last > t.sent && e.last >= t.sent+r.Cooldown {
			t.sent = e.last
			r.tell("update", q.At, subject, e, blocks)
		}
	}
	return running
}

func (r *TrialRule) tell(what string, at int64, subject string, e *trialEpisode, blocks map[string]*Blocks) {
	if subject == "" {
		return
	}
	if blocks[subject] == nil {
		blocks[subject] = &Blocks{}
	}
	blocks[subject].Take(BlockRecord{At: at, What: what, First: e.first, Last: e.of[subject].last, Rule: BlockRule{
		TTL: r.TTL, MaxLag: r.MaxLag, OnHit: r.OnHit, Window: r.Window, Lateness: r.Lateness, Cooldown: r.Cooldown, Tuples: r.Tuples,
	}})
}

// within counts what of a key's requests that were let through lies in the window of the last one.
func (r *TrialRule) within(let []int64) (n int) {
	last := let[len(let)-1]
	for i := len(let) - 1; i >= 0 && let[i] > last-r.Window; i-- {
		if r.Slices {
			width := max(1, r.Window*1e6/64) // microseconds
			if last*1e6/width-let[i]*1e6/width >= r.Window*1e6/width {
				continue
			}
		}
		n++
	}
	return n
}

// close ends the episodes that no request can lengthen any more, in the order in which that is so.
func (r *TrialRule) close(now int64, running []*trialEpisode, blocks map[string]*Blocks) (left []*trialEpisode) {
	slices.SortStableFunc(running, func(a, b *trialEpisode) int { return cmp.Compare(a.last, b.last) })
	for _, e := range running {
		over := e.last + r.Window + r.Lateness
		if now < over {
			left = append(left, e)
			continue
		}
		for _, subject := range e.subjects {
			r.tell("closed", min(now, over+r.Idle), subject, e, blocks)
		}
	}
	return left
}
