package detectors

import (
	"errors"
	"slices"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Look is what a partition has counted of one key of a rule, as JSON. Taking it changes nothing.
type Look struct {
	Rule    string          `json:"rule" mask:"name"`
	Subject traffic.Subject `json:"subject"`
	Routing int64           `json:"routing"` // the routing version that says what is counted
	// AsOf is the newest event time that the partition has seen, for which Windows count; Watermark is the time before which it expects
	// no event any more. Absent before the first event.
	AsOf      traffic.Time `json:"as_of,omitzero"`
	Watermark traffic.Time `json:"watermark,omitzero"`
	// Reset is the routing version of a reset of this key that the partition has not come to; 0: there is none.
	Reset   int64        `json:"reset_waits,omitempty"`
	Windows []LookWindow `json:"windows"`
}

// LookWindow is the count against one limit.
type LookWindow struct {
	Of       string     `json:"of" mask:"-"` // limit, near, candidate or pending
	Version  int        `json:"version"`
	Limit    int64      `json:"limit"` // of events of no tier, as of AsOf
	Tiers    []LookTier `json:"tiers,omitempty"`
	WindowMS int64      `json:"window_ms"`
	// From and To bound what Count is of, both event times, From excluded for windows that slide: absent for buckets, and for windows
	// that each key opens by itself.
	From traffic.Time `json:"from,omitzero"`
	To   traffic.Time `json:"to,omitzero"`
	// Held is false where nothing is counted of the key: it never came, or what came is over.
	Held  bool  `json:"held"`
	Count int64 `json:"count"` // events, units or values in the window; of a bucket its level, rounded up
	// AtLeast says that Count may be too low: of a key that is over, logs keep what they need.
	AtLeast  bool          `json:"at_least,omitempty"`
	Episodes []LookEpisode `json:"episodes,omitempty"`
}

// LookTier is the limit of the events of one tier.
type LookTier struct {
	When  string `json:"when" mask:"-"`
	Limit int64  `json:"limit"`
}

// LookEpisode is a running episode.
type LookEpisode struct {
	First traffic.Time `json:"first"`
	Last  traffic.Time `json:"last"`
	Count int64        `json:"count"`
	Hits  []string     `json:"hits" mask:"-"` // ids of its hits that were told
}

// ErrLook says that a routing version has no rule of the name with a key that the subject is of.
var ErrLook = errors.New("no such rule, or no source of its key")

// LookAt reads what p has counted of the key that subject names, by the rule's live and pending versions in a routing version. The error
// is ErrLook where that has no such rule, or none of its keys such a subject.
func LookAt(p *Partition, r *rules.Routing, rule string, subject traffic.Subject) (Look, error) {
	out := Look{Rule: rule, Subject: subject, Routing: r.Number, Watermark: known(p.watermark.at), AsOf: p.watermark.newest(), Windows: []LookWindow{}}
	for i := range r.Rules {
		v := &r.Rules[i]
		if v.ID != rule {
			continue
		}
		print, err := p.cfg.Secret.named(subject, v.Key)
		if err != nil {
			continue
		}
		l := looker{keys: &p.keys, secret: &p.cfg.Secret, key: keyReset{subject: subject, print: print}, asOf: out.AsOf}
		out.Windows = append(out.Windows, l.windows(v)...)
	}
	for i := range r.Resets {
		if x := &r.Resets[i]; x.Rule == rule && x.Subject == subject && x.Since > p.resets {
			out.Reset = x.Since
		}
	}
	if len(out.Windows) == 0 {
		return out, ErrLook
	}
	return out, nil
}

// looker reads the windows of one key.
type looker struct {
	keys   *keyspace
	secret *Secret
	key    keyReset
	asOf   traffic.Time
}

// windows are those of a version's limit and of what stands beside it.
func (x *looker) windows(v *rules.Version) []LookWindow {
	name := "limit"
	if v.Pending {
		name = "pending"
	}
	out := []LookWindow{x.window(v, roleMain, name)}
	if v.Near > 0 && !v.Pending {
		out = append(out, x.window(v, roleNear, "near"))
	}
	if v.Candidate != nil && !v.Pending {
		out = append(out, x.window(v, roleCandidate, "candidate"))
	}
	return out
}

func (x *looker) window(v *rules.Version, purpose role, name string) LookWindow {
	empty := newLineageOf(v.ID, v.Lineage, purpose, &x.keys.ledger)
	b := plan(v, purpose)
	w := LookWindow{Of: name, Version: v.Number, Limit: b.limit, WindowMS: v.Window.Milliseconds()}
	if b.limits != nil {
		w.Limit = b.limits.at(0, x.asOf)
		for i, t := range v.Tiers {
			w.Tiers = append(w.Tiers, LookTier{t.When, b.limits.at(i+1, x.asOf)})
		}
	}
	w.From, w.To = lookInterval(kindOf(v, b.steady), traffic.Time(v.Window.Microseconds()), x.asOf)
	l := x.keys.lineages[empty.id]
	if l == nil {
		return w
	}
	s := l.cells.peek(x.key.in(l, x.secret))
	if s == nil {
		return w
	}
	c, held := l.contents(s)
	w.Held, w.Count = true, l.algorithm.countAt(c, x.asOf, w.Limit)
	if held != nil {
		w.AtLeast = w.Count > w.Limit && held.trimmed.time != traffic.BeforeTime
		for _, ep := range held.episodes {
			if ep.certain() {
				w.Episodes = append(w.Episodes, ep.look())
			}
		}
	}
	return w
}

func (ep *episode) look() LookEpisode {
	e := LookEpisode{First: ep.first.time, Last: ep.last.time, Count: ep.count, Hits: []string{}}
	for _, t := range ep.targets {
		if t.sent != traffic.BeforeTime {
			e.Hits = append(e.Hits, t.id)
		}
	}
	return e
}

// lookInterval is what a window that an instant falls into spans, where the key has no say in that.
func lookInterval(k kind, window, at traffic.Time) (from, to traffic.Time) {
	switch {
	case at == 0:
		return 0, 0
	case k.algorithm == kindFixed:
		n := floorDiv(at, window)
		return startOf(n, window), startOf(n+1, window)
	case slices.Contains([]uint8{kindSlidingLog, kindSlices, kindSlidingCounter}, k.algorithm):
		return earlier(at, window), at
	}
	return 0, 0
}

// newest is the greatest progress of all source partitions; 0 where none has shown any.
func (w *watermark) newest() (at traffic.Time) {
	for i := range w.sources {
		at = max(at, known(w.sources[i].time))
	}
	return at
}

// known is a time, or 0 where it is none of an event.
func known(at traffic.Time) traffic.Time {
	if at == traffic.BeforeTime || at == traffic.EndOfTime {
		return 0
	}
	return at
}

// peek is the slot of a key, or nil. The caller must not change it: a snapshot under way may still have to write it.
func (t *table) peek(key Fingerprint) *slot {
	if t.n == 0 {
		return nil
	}
	s := t.sub(key.Hi)
	at := s.seek(key)
	if at < 0 {
		return nil
	}
	return &s.slots[at]
}
