package dashboards_test

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// crowdRules are rules whose block is narrower than what they count, which has a hit for each combination of values; two that
// have no key, and so no block; and one whose window is much shorter than its cooldown.
func crowdRules() []rules.Document {
	ip, device := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}, traffic.KeyField{Field: traffic.FieldDevice}
	narrow := &rules.Block{Key: []traffic.KeyField{ip, device}, TTL: ttl, Extend: rules.ExtendOnHit}
	document := func(id string, window, cooldown time.Duration, block *rules.Block, key ...traffic.KeyField) rules.Document {
		d := historytest.Document(id)
		d.Owner, d.Key, d.Window, d.Cooldown, d.Block = "crowds", key, window, cooldown, block
		return d
	}
	perIP := &rules.Block{Key: []traffic.KeyField{ip}, TTL: ttl, Extend: rules.ExtendOnHit}
	return []rules.Document{
		document("crowd", window, 0, narrow, ip), document("crowd-blocked", window, 0, narrow, ip),
		document("all-logins", window, 0, nil), document("all-traffic", window, 0, nil),
		document("short-window", time.Second, time.Hour, perIP, ip),
	}
}

// crowd makes episodes of them. Each has enough events to be among the top sources.
func (w *world) crowd() {
	for _, rule := range []string{"crowd", "crowd-blocked"} {
		w.tuples(rule, "198.18.0.1", 10, 5038, detectors.PhaseUpdate, time.Hour, 20*time.Second, 0)
		w.tuples(rule, "198.18.0.1", 2, 3009, detectors.PhaseClosed, 4*time.Hour, 3*time.Hour, 0)
		w.tuples(rule, "198.18.0.2", 3, 5040, detectors.PhaseClosed, 3*time.Hour, 2*time.Hour, 0)
	}
	for i := range w.hits {
		h := &w.hits[i]
		d := blocklist.Decision{
			Format: blocklist.DecisionFormat, Rule: h.Rule, Subject: h.BlockSubject.Stored(), Hit: h.ID, Generation: w.modes[h.Rule].Generation,
			Since: h.First, Until: h.Last.Add(ttl), At: h.Last.Add(time.Second),
		}
		switch {
		case h.Rule != "crowd-blocked":
			continue
		case i%3 == 0:
			d.Action = blocklist.ActionWritten
		case i%3 == 1:
			d.Action, d.Reason, d.At = blocklist.ActionWithheld, blocklist.ReasonMaxLag, h.Last.Add(2*time.Second)
		default:
			continue
		}
		d.Identify(h.ID)
		w.decisions = append(w.decisions, d)
	}
	for _, rule := range []string{"crowd", "crowd-blocked"} {
		w.late(rule)
	}
	w.tuples("all-logins", "", 1, 6000, detectors.PhaseClosed, 5*time.Hour, 4*time.Hour, 0)
	w.tuples("all-traffic", "", 1, 6001, detectors.PhaseUpdate, 5*time.Hour, time.Minute, 0)
	w.tuples("all-traffic", "", 1, 6002, detectors.PhaseClosed, 50*time.Hour, 40*time.Hour, 0)
	for i, source := range []string{"203.0.113.200", "10.0.0.5", "100.64.3.4"} {
		w.tuples("short-window", source, 1, 7000+int64(i), detectors.PhaseUpdate, 40*time.Minute, 20*time.Minute, 0)
	}
	w.tuples("short-window", "203.0.113.201", 1, 7010, detectors.PhaseUpdate, 40*time.Minute, 20*time.Minute, 10*time.Minute)
	w.tuples("short-window", "203.0.113.202", 1, 7011, detectors.PhaseClosed, 21*time.Minute, 20*time.Minute, 10*time.Minute)
	w.tuples("short-window", "203.0.113.203", 1, 7012, detectors.PhaseUpdate, 4*time.Hour, 3*time.Hour, 0) // was left open
	// Nobody is to blame for the first event that was over.
	w.hits[len(w.hits)-2].Samples = []string{`{"other":"log"}`}
}

// late makes episodes whose rows begin at different times, since late events moved the beginning while they ran, and others that only look
// like parts of one.
func (w *world) late(rule string) {
	tuple := func(ip, device string, events int64, phase detectors.Phase, began, ended time.Duration) *detectors.Hit {
		w.tuples(rule, ip, 1, events, phase, began, ended, 0)
		h := &w.hits[len(w.hits)-1]
		h.BlockSubject += traffic.Subject("&device=" + device)
		return h
	}
	const moved, apart = "198.18.0.3", "198.18.0.4"
	// Each late event brought another device, and was less than a window older than what was known.
	whole := 64 * time.Minute
	for _, h := range []*detectors.Hit{
		tuple(moved, "tv-0", 6100, detectors.PhaseUpdate, 50*time.Minute, 20*time.Second),
		tuple(moved, "tv-1", 6101, detectors.PhaseOpen, 55*time.Minute, 55*time.Minute),
		tuple(moved, "tv-2", 6103, detectors.PhaseOpen, whole, whole),
	} {
		w.retold[h.ID] = traffic.At(w.now.Add(-whole))
	}
	// The key was evicted, and its episode closed before its time; the next one was cut after a day, and told anew at once.
	tuple(moved, "tv-0", 400, detectors.PhaseClosed, 3*time.Hour, 2*time.Hour)
	tuple(moved, "tv-0", 300, detectors.PhaseClosed, 115*time.Minute, whole+time.Minute)
	// Evicted likewise, before late events that found nothing of it.
	tuple(moved, "tv-9", 200, detectors.PhaseClosed, 57*time.Minute, 56*time.Minute)
	// A window apart is apart.
	tuple(apart, "tv-0", 3500, detectors.PhaseUpdate, 56*time.Minute, 46*time.Minute)
	tuple(apart, "tv-0", 3501, detectors.PhaseUpdate, 46*time.Minute-window, 20*time.Second)
}

// tuples makes the hits of one episode: one for each block, each with all of its events, and a last event of its own. Reports were
// seen lag late.
func (w *world) tuples(rule, ip string, blocks int, events int64, phase detectors.Phase, began, ended, lag time.Duration) {
	first, last := w.now.Add(-began), w.now.Add(-ended)
	subject := traffic.Subject("")
	if ip != "" {
		subject = traffic.Subject("ip=" + ip + "%2F32")
	}
	for i := range blocks {
		n := len(w.hits)
		own := last.Add(-time.Duration(i) * 3 * time.Second)
		h := detectors.Hit{
			Format: detectors.HitFormat, Kind: detectors.KindHit, ID: fmt.Sprintf("%032x", n+1), Rule: rule, RuleVersion: 1, Lineage: 1, Phase: phase,
			Subject: subject, BlockSubject: subject, Limit: 5, WindowMS: w.document(rule).Window.Milliseconds(), Count: events, Peak: 50,
			First: traffic.At(first), Last: traffic.At(own), Seen: traffic.At(own.Add(lag)), Generation: 1, Offset: int64(n), Users: 1, Devices: blocks,
			Samples: []string{`{"method":"POST","path":"/v1/crowd","status":201}`},
		}
		if phase == detectors.PhaseClosed {
			h.Seen = h.Seen.Add(closing)
		}
		if blocks > 1 {
			h.BlockSubject += traffic.Subject(fmt.Sprintf("&device=tv-%d", i))
		}
		if blocks == 10 && i == 4 {
			h.BlockSubject = ""
		}
		w.hits = append(w.hits, h)
	}
}

// closing is how long after the last over event of an episode it is seen to be closed.
const closing = 2 * time.Minute

// seenFirst is when the opening of an episode was seen, as late as all reports about it.
func seenFirst(h *detectors.Hit) traffic.Time {
	lag := h.Seen.Sub(h.Last)
	if h.Phase == detectors.PhaseClosed {
		lag -= closing
	}
	return h.First.Add(lag)
}
