// Package evidenceoracle says in the plainest words what a rule would have done to a log of requests, had it blocked. It judges dossiers, so it
// shares nothing with what makes them: not the windows, not the blocks, not the sums. It knows logs in order of time, the sliding window over
// requests, their bytes or distinct values of a field, and keys of plain fields.
package evidenceoracle

import (
	"maps"
	"slices"
)

// Rule is a rule as the oracle knows it. Times are in microseconds.
type Rule struct {
	Limit    int
	Window   int64
	Lateness int64
	Cooldown int64 // the least time between two updates of a hit
	TTL      int64
	OnHit    bool     // extend: on-hit
	Key      []string // names of fields
	Block    []string
	Distinct string // the field whose values are counted; empty: requests are, or
	Bytes    bool   // their bytes
}

// Request is one event of the log.
type Request struct {
	At      int64
	Fields  map[string]string // ip, device, user
	Watched bool              // the rule's match takes it
	Reached bool              // its block would
	Ours    bool              // weir has refused it already: it feeds nothing
	Good    int               // 0 not judged, 1 not good, 2 good
	Bytes   int
}

// Held is one block of another rule.
type Held struct {
	Rule         string
	Fields       map[string]string
	Since, Until int64
}

// Source is one who was over the limit.
type Source struct {
	Name           string // of its block; empty: it lacks a field of the block's key
	Fields         map[string]string
	Episodes       int
	Events         int // of its episodes, from the first over event to the last
	Peak           int
	First, Last    int64
	Refused        int // requests that its block would have refused
	Good           bool
	Judged         bool
	Users, Devices int // distinct ones among the over events of one episode, the most of any
	HeldBy         []string
}

// Truth is what was asked of one span.
type Truth struct {
	All, Ours, Unjudged, Matched, Counted, Reached int
	Refused, RefusedGood                           int
	Sources                                        map[string]*Source // by Name
}

// A source stays known to be good for so many days.
const (
	day      = 24 * 3600 * 1_000_000
	goodDays = 30
)

// Judge reads a log once. Figures of requests are of those since <= At < until; sources are those with an episode that lies in the span, at
// least with a part.
func (r Rule) Judge(log []Request, others []Held, since, until int64) Truth {
	truth := Truth{Sources: map[string]*Source{}}
	refused := r.Refusals(log)
	for i, q := range log {
		if q.At < since || q.At >= until {
			continue
		}
		truth.All++
		if q.Ours {
			truth.Ours++
		}
		if q.Good == 0 && !q.Ours {
			truth.Unjudged++
		}
		if q.Watched && !q.Ours {
			truth.Matched++
		}
		if r.counts(&q) {
			truth.Counted++
		}
		if r.reaches(&q) {
			truth.Reached++
		}
		if refused[i] {
			truth.Refused++
			if r.knownGood(log[:i+1], name(&q, r.Block), q.At+1, q.At) {
				truth.RefusedGood++
			}
		}
	}
	for _, e := range r.episodes(log) {
		if e.last < since || e.first >= until {
			continue
		}
		truth.add(&r, &e, log, others)
	}
	for i, q := range log {
		if s := truth.Sources[name(&q, r.Block)]; s != nil && refused[i] && q.At >= since && q.At < until {
			s.Refused++
		}
	}
	return truth
}

// Blockable are the sources whom a block can hold.
func (t *Truth) Blockable() []*Source {
	var out []*Source
	for _, n := range slices.Sorted(maps.Keys(t.Sources)) {
		if n != "" {
			out = append(out, t.Sources[n])
		}
	}
	return out
}

// counts reports whether the request feeds a window.
func (r *Rule) counts(q *Request) bool {
	return q.Watched && !q.Ours && name(q, r.Key) != "" && (r.Distinct == "" || q.Fields[r.Distinct] != "") && (!r.Bytes || q.Bytes > 0)
}

// reaches reports whether a block could refuse the request.
func (r *Rule) reaches(q *Request) bool {
	return q.Reached && !q.Ours && (name(q, r.Block) != "" || name(q, r.Key) != "")
}

// name is a source: the values of fields; empty where one is missing.
func name(q *Request, fields []string) string {
	text := ""
	for _, f := range fields {
		if q.Fields[f] == "" {
			return ""
		}
		text += f + "=" + q.Fields[f] + ";"
	}
	return text
}

// Name is the source of values under fields.
func Name(values map[string]string, fields []string) string {
	return name(&Request{Fields: values}, fields)
}

// knownGood reports whether a source is known to be good by requests before a time: on the day of at, or up to 30 days before it.
func (r *Rule) knownGood(log []Request, source string, before, at int64) bool {
	for i := range log {
		q := &log[i]
		if q.Good == 2 && !q.Ours && name(q, r.Block) == source && q.At < before && q.At/day >= at/day-goodDays {
			return true
		}
	}
	return false
}

func (t *Truth) add(r *Rule, e *episode, log []Request, others []Held) {
	s := t.Sources[e.block]
	if s == nil {
		s = &Source{Name: e.block, Fields: e.fields, First: e.first, Last: e.last}
		t.Sources[e.block] = s
	}
	s.Episodes++
	s.Events += e.events
	s.Peak = max(s.Peak, e.peak)
	s.First, s.Last = min(s.First, e.first), max(s.Last, e.last)
	s.Users, s.Devices = max(s.Users, len(e.users)), max(s.Devices, len(e.devices))
	good := e.good == 2 || r.knownGood(log, e.block, e.last+r.Window+r.Lateness, e.last)
	s.Good, s.Judged = s.Good || good, s.Judged || good || e.good == 1
	for _, h := range others {
		if h.Since <= s.Last && h.Until > s.First && holds(h.Fields, e.fields) && !slices.Contains(s.HeldBy, h.Rule) {
			s.HeldBy = append(s.HeldBy, h.Rule)
		}
	}
	slices.Sort(s.HeldBy)
}

// holds reports whether a block on some values holds a source whole.
func holds(block, source map[string]string) bool {
	for f, v := range block {
		if source[f] != v {
			return false
		}
	}
	return len(block) > 0
}

// episode is one time at which a source of the rule's key was over the limit.
type episode struct {
	block          string
	fields         map[string]string // of the block
	first, last    int64
	events, peak   int
	good           int // the most that an over event says
	from           int // how many requests of the source came before first
	users, devices map[string]bool
}

// episodes are those that shadow records: nobody is held.
func (r *Rule) episodes(log []Request) []episode {
	var out []episode
	counted := map[string][]*Request{}
	running := map[string]int{} // index into out, by source
	for i := range log {
		q := &log[i]
		if !r.counts(q) {
			continue
		}
		source := name(q, r.Key)
		counted[source] = append(counted[source], q)
		count := r.within(counted[source], q.At)
		if count <= r.Limit {
			continue
		}
		at, known := running[source]
		if !known || q.At >= out[at].last+r.Window {
			fields := map[string]string{}
			for _, f := range r.Block {
				fields[f] = q.Fields[f]
			}
			out = append(out, episode{block: name(q, r.Block), fields: fields, first: q.At, from: len(counted[source]) - 1, users: map[string]bool{}, devices: map[string]bool{}})
			at = len(out) - 1
			running[source] = at
		}
		e := &out[at]
		e.good = max(e.good, q.Good)
		e.last, e.peak, e.events = q.At, max(e.peak, count), len(counted[source])-e.from
		for values, field := range map[*map[string]bool]string{&e.users: "user", &e.devices: "device"} {
			if v := q.Fields[field]; v != "" {
				(*values)[v] = true
			}
		}
	}
	return out
}

// within is what the window that ends at an instant holds.
func (r *Rule) within(counted []*Request, end int64) (n int) {
	values := map[string]bool{}
	for _, q := range counted {
		switch {
		case q.At <= end-r.Window || q.At > end:
		case r.Bytes:
			n += q.Bytes
		case r.Distinct != "":
			values[q.Fields[r.Distinct]] = true
		default:
			n++
		}
	}
	return n + len(values)
}
