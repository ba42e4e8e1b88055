package exactness

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/oracle"
)

// Hit is what history says of one episode.
type Hit struct {
	Source      string // rule/lineage subject
	Closed      bool
	First, Last time.Time
	Events      int64
}

// ReadHits reads the episodes of the live stream from history. Those that were joined to others are none.
func (s *Stream) ReadHits(ctx context.Context) ([]Hit, error) {
	var out []Hit
	err := s.Query(ctx, `SELECT rule, lineage, subject, phase = 3, first, last, events FROM {ns}.hits WHERE stream = 'live' AND phase <> 4`,
		func(rows pgx.Rows) error {
			var h Hit
			var rule, subject string
			var lineage int
			err := rows.Scan(&rule, &lineage, &subject, &h.Closed, &h.First, &h.Last, &h.Events)
			h.Source = sourceName(rule, lineage, subject)
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
	inOrder  bool // all of its events came from one source partition, so counts and bounds are exact
}

// Expectations are what history must say, by rule, lineage and subject.
type Expectations map[string]expected

// Expected runs the oracle of the sliding log over the keyed log after the fence. It takes for granted that no event is
// late: each source partition of the load is in order, and none stalls for long.
func (l *Logs) Expected() Expectations {
	type window struct {
		events  []oracle.Event
		sources map[int]bool
		size    time.Duration
	}
	windows := map[string]*window{}
	for _, records := range l.fenced {
		for _, k := range records {
			for _, i := range k.Rules {
				if i >= len(l.routings[k.Version].Rules) {
					continue // JudgeRouting has told
				}
				r := &l.routings[k.Version].Rules[i]
				name := sourceName(r.ID, r.Lineage, r.subject(k.IP, k.Device, k.User))
				w, ok := windows[name]
				if !ok {
					w = &window{sources: map[int]bool{}, size: r.Window}
					windows[name] = w
				}
				w.sources[k.Source] = true
				w.events = append(w.events, oracle.Event{Time: k.Time, Source: k.Source, Offset: k.Offset, Limit: r.Limit})
			}
		}
	}
	out := Expectations{}
	for name, w := range windows {
		if e := oracle.Sliding(w.events, w.size.Microseconds(), (24 * time.Hour).Microseconds()); len(e) > 0 {
			out[name] = expected{episodes: e, inOrder: len(w.sources) == 1}
		}
	}
	return out
}

// Hits is the verdict over history.
type Hits struct {
	Verdict
	Open     int // episodes that history has not closed: the stream is not at rest yet
	Episodes int // that were expected
	Exact    int // of these, those whose counts and bounds were compared too
}

// Judge compares history with what is expected. Lost and Doubled count events of episodes, and whole episodes that are
// missing; Extra counts episodes that should not be.
func (want Expectations) Judge(got []Hit) Hits {
	var v Hits
	bySource := map[string][]Hit{}
	for _, h := range got {
		if !h.Closed {
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
		case n != 0:
			v.Lost += max(0, -n)
			v.Extra += max(0, n)
			v.wrong("%s: %d episodes, the oracle has %d", name, len(hits), len(w.episodes))
		case w.inOrder:
			v.Exact += len(hits)
			v.compare(hits, w.episodes)
		}
	}
	return v
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
