package oracle

// TrialRule is a rule of which the block is tried, in seconds. It counts requests by a window that slides.
type TrialRule struct {
	Limit            int
	Window, Lateness int64
	TTL, Cooldown    int64
	OnHit            bool // the block is extended by what comes while its source is over
	Slices           bool // windows are cut into 64 slices, as above a limit of 128
}

// TrialRequest is a request, in order of time.
type TrialRequest struct {
	At             int64
	Key, Subject   string // whom the rule counts, and whom the block holds; empty: the request lacks a field
	Counted, Reach bool   // the rule counts it; the block's scope takes it
	Good           bool   // the deployment knows its source to be good, as of this request
}

// TrialMinute is what a block would have done in one minute.
type TrialMinute struct{ Counted, Reached, Refused, RefusedGood int64 }

// Trial is what a block would have done, in the plainest words: every request that was let through is kept, and every window counted anew.
type Trial struct {
	Minutes map[int64]*TrialMinute // by the minute's first second
	Held    map[string]bool        // subjects that were held at any time
}

type trialEpisode struct {
	key, subject      string
	first, last, sent int64
}

type trialHold struct{ since, until int64 }

// Judge goes through the log once.
func (r *TrialRule) Judge(log []TrialRequest) Trial {
	out := Trial{Minutes: map[int64]*TrialMinute{}, Held: map[string]bool{}}
	let := map[string][]int64{} // times, by key
	var running []trialEpisode
	holds := map[string]trialHold{}
	good := map[string]int64{}
	for _, q := range log {
		running = r.close(q.At, running, holds)
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
		if h, known := holds[q.Subject]; known && q.Reach && q.Subject != "" && h.since <= q.At && q.At < h.until {
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
		if r.within(let[q.Key]) <= r.Limit {
			continue
		}
		at := -1
		for i := range running {
			if running[i].key == q.Key && q.At < running[i].last+r.Window {
				at = i
			}
		}
		tell := true
		if at < 0 {
			at = len(running)
			running = append(running, trialEpisode{key: q.Key, subject: q.Subject, first: q.At, sent: q.At})
		} else if tell = q.At >= running[at].sent+r.Cooldown; tell {
			tell = q.At > running[at].last
			if tell {
				running[at].sent = q.At
			}
		}
		e := &running[at]
		e.last = q.At
		until := e.first + r.TTL
		if r.OnHit {
			until = e.last + r.TTL
		}
		if !tell || until <= q.At || e.subject == "" {
			continue
		}
		out.Held[e.subject] = true
		if h, known := holds[e.subject]; known && h.until > q.At {
			holds[e.subject] = trialHold{h.since, max(h.until, until)}
		} else {
			holds[e.subject] = trialHold{q.At, until}
		}
	}
	return out
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

// close ends the episodes that no request can lengthen any more: a block that stands then lasts from their last request over the limit.
func (r *TrialRule) close(now int64, running []trialEpisode, holds map[string]trialHold) (left []trialEpisode) {
	for _, e := range running {
		if now < e.last+r.Window+r.Lateness {
			left = append(left, e)
			continue
		}
		h := holds[e.subject]
		if r.OnHit && e.subject != "" && h.until > e.last+r.Window+r.Lateness && e.last+r.TTL > h.until {
			holds[e.subject] = trialHold{h.since, e.last + r.TTL}
		}
	}
	return left
}
