package exactness

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/oracle"
)

// Hit is what history says of one episode.
type Hit struct {
	ID          string
	Source      string // rule/lineage subject, and candidate where its limit was on trial
	Closed      bool
	First, Last time.Time
	Events      int64
	AtLeast     bool // it says that its figures are bounds
	Merged      bool // it was joined to another one, and is none any more
}

// ReadHits reads the episodes of the live stream from history, and those that were joined to others.
func (s *Stream) ReadHits(ctx context.Context) ([]Hit, error) {
	var out []Hit
	err := s.Query(ctx, `SELECT id, rule, lineage, subject, '' AS kind, phase = 3, first, last, events, at_least,
			phase = 4
		FROM {ns}.hits_all WHERE stream = 'live'
		UNION ALL
		SELECT id, rule, lineage, subject, kind, phase = 3, first, last, events, at_least, phase = 4
		FROM {ns}.hits_beside_all WHERE stream = 'live'`,
		func(rows pgx.Rows) error {
			var h Hit
			var rule, subject, kind string
			var lineage int
			err := rows.Scan(&h.ID, &rule, &lineage, &subject, &kind, &h.Closed, &h.First, &h.Last, &h.Events,
				&h.AtLeast, &h.Merged)
			h.Source = sourceName(rule, lineage, subject)
			if kind != "" {
				h.Source += " " + kind
			}
			out = append(out, h)
			return err
		})
	return out, err
}

func sourceName(rule string, lineage int, subject string) string {
	return fmt.Sprintf("%s/%d %s", rule, lineage, subject)
}

// expected is what the oracle says of one source of one rule.
type expected struct {
	episodes []oracle.Episode
	stirred  []stir // of each episode
	inOrder  bool   // all of its events came from one source partition, so counts and bounds are exact
	// events of several partitions came around a promotion: where one episode ends and the next begins is in their
	// order
	free bool
	// events that may be counted too few, and may make other episodes of the same events, where a hit of the source
	// says at_least: see window.spared
	spared int
	// events of a lost routing version are among them: a source has as many as counted without those at least, and as
	// many as counted with them at most, in any number of episodes
	lost *bounds
}

// bounds are of how many events of a source stand in history.
type bounds struct{ least, most int64 }

// trial is what the name of a source has where its limit was on trial.
const trial = " candidate"

// Expectations are what history must say, by rule, lineage and subject.
type Expectations map[string]expected

// Expected runs the oracle of the sliding log over the keyed log after the fence. It takes for granted that no event is
// late: each source partition of the load is in order, and none stalls for long.
func (l *Logs) Expected() Expectations {
	windows := map[string]*window{}
	kept := map[string]*window{} // without the events of lost routing versions
	lose := func(name string, lost bool, e oracle.Event) {
		if kept[name] == nil {
			kept[name] = &window{size: windows[name].size}
		}
		if w := kept[name]; lost {
			w.lost = true
		} else {
			w.events = append(w.events, e)
		}
	}
	feed := func(name string, k *oracle.Keyed, r *rule, limit int, onTrial, lost bool) {
		w, ok := windows[name]
		if !ok {
			w = &window{sources: map[int]bool{}, size: r.Window}
			windows[name] = w
		}
		w.sources[k.Source] = true
		e := oracle.Event{Time: k.Time, Source: k.Source, Offset: k.Offset, Limit: limit, Trial: onTrial}
		w.events = append(w.events, e)
		lose(name, lost, e)
	}
	for q, records := range l.fenced {
		for _, k := range records {
			lost := l.lost[versionOn{k.Version, q}]
			for n, i := range k.Rules {
				if i >= len(l.routings[k.Version].Rules) {
					continue // JudgeRouting has told
				}
				r := &l.routings[k.Version].Rules[i]
				name := sourceName(r.ID, r.Lineage, r.subject(k.IP, k.Device, k.User))
				tier := 0
				if n < len(k.Tiers) {
					tier = k.Tiers[n]
				}
				feed(name, &k, r, r.limitAt(k.Time, tier, r.Limit), r.Pending, lost)
				if r.Candidate != nil && !r.Pending {
					feed(name+besideMark, &k, r, r.limitAt(k.Time, tier, r.Candidate.Limit), true, lost)
				}
			}
		}
	}
	out := Expectations{}
	for name, w := range windows {
		for _, e := range oracle.Sliding(w.events, w.size.Microseconds(), (24 * time.Hour).Microseconds()) {
			source := strings.TrimSuffix(name, besideMark)
			if e.Trial {
				source += trial
			}
			of := out[source]
			of.episodes, of.inOrder, of.spared = append(of.episodes, e), len(w.sources) == 1, w.spared()
			of.stirred = append(of.stirred, w.stirred(&e))
			out[source] = of
		}
		if len(w.sources) > 1 && w.switches() {
			out[name], out[name+trial] = expected{free: true}, expected{free: true}
		}
		if kept[name].lost {
			out[name] = expected{free: true, lost: &bounds{least: kept[name].over(), most: w.over()}}
		}
	}
	return out
}

// window is all that feeds one window of one key.
type window struct {
	events  []oracle.Event
	sources map[int]bool
	size    time.Duration
	lost    bool // events of a lost routing version were left out
}

// over counts the events that are over the limit.
func (w *window) over() (n int64) {
	for _, e := range oracle.Sliding(w.events, w.size.Microseconds(), (24 * time.Hour).Microseconds()) {
		n += e.Count
	}
	return n
}

// switches reports whether the window was on trial at first and then not.
func (w *window) switches() bool {
	return slices.ContainsFunc(w.events, func(e oracle.Event) bool { return e.Trial != w.events[0].Trial })
}

// keptLeast is how many events of a source that is over a sliding log keeps at least.
const keptLeast = 32

// spared counts the events up to one window after each rise of the limit above what the log has kept of a source that was over:
// of those docs/windows.md says that they may be counted too few, and that a hit says so then. A log keeps as many
// events as the greatest limit so far and one.
func (w *window) spared() (n int) {
	events := slices.SortedFunc(slices.Values(w.events), func(a, b oracle.Event) int { return cmp.Compare(a.Time, b.Time) })
	size := w.size.Microseconds()
	kept, over, until, oldest := keptLeast, int64(math.MinInt64), int64(math.MinInt64), 0
	for i, e := range events {
		for events[oldest].Time <= e.Time-size {
			oldest++
		}
		if e.Limit+1 > kept && over > e.Time-size {
			until = e.Time + size
		}
		kept = max(kept, e.Limit+1)
		if i-oldest+1 > e.Limit {
			over = e.Time
		}
		if e.Time <= until {
			n++
		}
	}
	return n
}

// besideMark tells the window of a candidate from that of its rule, whose lineage it has.
const besideMark = " (beside)"

// limitAt is the limit of an event at a time, in a tier, of which 0 is none, where the rule's own would be limit: a candidate differs in
// that alone.
func (r *rule) limitAt(at int64, tier, limit int) int {
	if tier > 0 && tier <= len(r.Tiers) { // JudgeRouting tells of others
		limit = r.Tiers[tier-1].Limit
	}
	if r.Raised != nil && at < r.Raised.Until.UnixMicro() {
		return max(limit, r.Raised.Limit)
	}
	return limit
}

// Count is how many sources' names end so.
func (want Expectations) Count(suffix string) (n int) {
	for name := range want {
		if strings.HasSuffix(name, suffix) {
			n++
		}
	}
	return n
}

// Hits is the verdict over history.
type Hits struct {
	Verdict
	Open     int // episodes that history has not closed: the stream is not at rest yet
	Episodes int // that were expected
	Exact    int // of these, those whose counts and bounds were compared too
	Named    int // events that are missing where weir has told that nobody counts them
}

// Judge compares history with what is expected. Lost and Doubled count events of episodes, and whole episodes that are
// missing; Extra counts episodes that should not be.
func (want Expectations) Judge(got []Hit) Hits {
	var v Hits
	bySource := map[string][]Hit{}
	for _, h := range got {
		if h.Merged {
			continue
		}
		if !h.Closed && want[h.Source].lost == nil { // nobody goes on with what a lost routing version has begun
			v.Open++
			v.wrong("%s is still open", h.Source)
		}
		bySource[h.Source] = append(bySource[h.Source], h)
	}
	for name, hits := range bySource {
		if _, ok := want[name]; !ok {
			v.Extra += len(hits)
			v.wrong("%s: %d episodes that the oracle does not have", name, len(hits))
		}
	}
	for name, w := range want {
		v.Episodes += len(w.episodes)
		hits := bySource[name]
		slices.SortFunc(hits, func(a, b Hit) int { return a.First.Compare(b.First) })
		switch n := len(hits) - len(w.episodes); {
		case w.lost != nil:
			v.lost(name, hits, *w.lost)
		case w.free:
		case w.spared > 0 && (!w.inOrder || slices.ContainsFunc(hits, func(h Hit) bool { return h.AtLeast })):
			v.bound(name, hits, w)
		case !w.inOrder:
			v.each(name, hits, w)
		case n != 0:
			v.Lost += max(0, -n)
			v.Extra += max(0, n)
			v.wrong("%s: %d episodes, the oracle has %d: %s", name, len(hits), len(w.episodes), w.beside(hits))
		default:
			v.Exact += len(hits)
			v.compare(hits, w.episodes)
		}
	}
	return v
}

// bound compares a source of which some events may be counted too few: what history has lies in what the oracle has, and no more is
// missing than may be.
func (v *Hits) bound(name string, hits []Hit, w expected) {
	missing := int64(0)
	for _, e := range w.episodes {
		missing += e.Count
	}
	for _, h := range hits {
		missing -= h.Events
		if !slices.ContainsFunc(w.episodes, func(e oracle.Episode) bool {
			return !w.inOrder || e.First <= h.First.UnixMicro() && h.Last.UnixMicro() <= e.Last
		}) {
			v.Extra++
			v.wrong("%s: an episode from %v to %v that lies in none of the oracle's", name, h.First.UTC(), h.Last.UTC())
		}
	}
	if lost := missing - int64(w.spared); w.inOrder && lost > 0 {
		v.Lost += int(lost)
		v.wrong("%s: %d events too few, of which %d may be, since its limit rose above what was kept of it", name, missing, w.spared)
	}
	if w.inOrder && missing < 0 {
		v.Doubled -= int(missing)
		v.wrong("%s: %d events too many", name, -missing)
	}
}

// lost compares a source of which a routing version was lost.
func (v *Hits) lost(name string, hits []Hit, b bounds) {
	sum := int64(0)
	for _, h := range hits {
		sum += h.Events
	}
	v.Named += int(max(0, b.most-max(sum, b.least)))
	v.Lost += int(max(0, b.least-sum))
	v.Doubled += int(max(0, sum-b.most))
	if sum < b.least || sum > b.most {
		v.wrong("%s: %d events, want %d to %d", name, sum, b.least, b.most)
	}
}

func (v *Hits) compare(hits []Hit, episodes []oracle.Episode) {
	for i, e := range episodes {
		h := &hits[i]
		if h.First.UnixMicro() == e.First && h.Last.UnixMicro() == e.Last && h.Events == e.Count {
			continue
		}
		v.Lost += int(max(0, e.Count-h.Events))
		v.Doubled += int(max(0, h.Events-e.Count))
		v.wrong("%s episode %d: %d events from %v to %v, the oracle says %d from %v to %v", h.Source, i, h.Events,
			h.First.UTC(), h.Last.UTC(), e.Count, time.UnixMicro(e.First).UTC(), time.UnixMicro(e.Last).UTC())
	}
}
