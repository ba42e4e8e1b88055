package pages

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// explorer answers questions about the hits of a scene.
type explorer struct{ *scene }

var _ Explorer = explorer{}

func (s explorer) found(f explore.Filter) []history.RecordedHit {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []history.RecordedHit
	for _, h := range s.hits {
		open := h.Phase != detectors.PhaseClosed
		switch {
		case f.Rule != "" && h.Rule != f.Rule, h.Last < f.Since, f.Until != 0 && h.First >= f.Until, f.State == history.StateRunning && !open:
		case f.Source != "" && !strings.Contains(string(h.Subject), "203.0.113.7%"):
		default:
			out = append(out, h)
		}
	}
	slices.SortStableFunc(out, func(a, b history.RecordedHit) int { return cmp.Compare(b.Last, a.Last) })
	return out
}

func (s explorer) Hits(_ context.Context, f explore.Filter, p explore.Page) (explore.Hits, error) {
	all := s.found(f)
	limit := cmp.Or(p.Limit, explore.DefaultLimit)
	out := explore.Hits{Hits: all[:min(len(all), limit)], Total: explore.Total{N: int64(len(all))}, LeftOut: s.left}
	if len(all) > limit {
		out.Next = "more"
	}
	return out, s.away["history"]
}

func (s explorer) Groups(_ context.Context, f explore.Filter, by explore.Group, _ explore.Order, p explore.Page) (explore.Groups, error) {
	type key struct {
		rule    string
		subject traffic.Subject
		at      traffic.Time
	}
	rows := map[key]*explore.GroupRow{}
	sources := map[key]map[traffic.Subject]bool{}
	for _, h := range s.found(f) {
		k := key{rule: h.Rule}
		switch by {
		case explore.BySource:
			k.subject = h.Subject
		case explore.ByHour:
			k = key{at: traffic.At(h.First.Std().UTC().Truncate(time.Hour))}
		case explore.ByDay:
			k = key{at: traffic.At(h.First.Std().UTC().Truncate(24 * time.Hour))}
		}
		g := rows[k]
		if g == nil {
			g = &explore.GroupRow{Rule: k.rule, Source: k.subject, At: k.at, First: h.First}
			rows[k], sources[k] = g, map[traffic.Subject]bool{}
		}
		sources[k][h.Subject] = true
		g.Episodes++
		g.Events += h.Count
		g.WouldRefuse += h.Count / 2
		if s.refused[h.Rule].Events > 0 {
			g.Refused += history.Figure(h.Count / 3)
		}
		g.Peak = max(g.Peak, int64(h.Peak))
		g.First, g.Last = min(g.First, h.First), max(g.Last, h.Last)
	}
	var all []explore.GroupRow
	for k, g := range rows {
		g.Sources = int64(len(sources[k]))
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b explore.GroupRow) int {
		return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(b.Events, a.Events), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Rule, b.Rule))
	})
	limit := cmp.Or(p.Limit, explore.DefaultLimit)
	return explore.Groups{Rows: all[:min(len(all), limit)], Total: explore.Total{N: int64(len(all))}, LeftOut: s.left}, s.away["history"]
}

func (s explorer) Began(_ context.Context, f explore.Filter, step time.Duration) ([]explore.Began, error) {
	var out []explore.Began
	for _, h := range s.found(f) {
		out = append(out, explore.Began{At: traffic.At(h.First.Std().UTC().Truncate(step)), Episodes: 1})
	}
	return out, s.away["history"]
}

// Requests has one request refused for each episode of a rule that blocks, in the second half of the time asked about,
// and two that would have been refused for all others.
func (s explorer) Requests(_ context.Context, f explore.Filter, step time.Duration) (explore.Requests, error) {
	modes := map[string]rules.Mode{}
	for _, r := range s.rules {
		modes[r.Newest.Version.ID] = r.Mode
	}
	promoted := f.Since.Add(s.now.Sub(f.Since) / 2)
	steps := map[traffic.Time]explore.RequestStep{}
	for _, h := range s.found(f) {
		at := traffic.At(h.First.Std().UTC().Truncate(step))
		one := steps[at]
		one.At = at
		if modes[h.Rule].Blocks() && h.First >= promoted {
			one.Refused++
		} else {
			one.WouldRefuse += 2
		}
		steps[at] = one
	}
	var out explore.Requests
	for _, one := range steps {
		out.Steps = append(out.Steps, one)
	}
	if f.Source != "" {
		out.WouldUntold = true
		for i := range out.Steps {
			out.Steps[i].WouldRefuse = 0
		}
	}
	return out, s.away["history"]
}

func (s explorer) Pivots(context.Context, string, explore.Filter) (explore.Pivots, error) {
	return explore.Pivots{Read: 40, Of: []explore.Pivot{
		{Field: "device", Value: "tv\u202e7-neila\x00\xff", Episodes: 12}, {Field: "device", Value: "living-room-4411", Episodes: 3},
		{Field: "user", Value: "u1234567", Episodes: 2}, {Field: "user", Value: "u7654321", Episodes: 1},
	}}, s.away["history"]
}

func (s explorer) Behind(_ context.Context, _ string, since traffic.Time) (explore.Behind, error) {
	return explore.Behind{
		Since: since, Episodes: 3, Events: 900, Last: sceneTime(), Rules: []string{"login-stuffing"}, Good: 1,
		Judged: 3,
		With:   []explore.SeenAs{{Field: "user", Values: 7, Top: []string{"ann", "ben"}}},
	}, nil
}

func (s explorer) Story(_ context.Context, id string) (*explore.Story, error) {
	for i := range s.hits {
		if h := &s.hits[i]; strings.HasPrefix(h.ID, id) {
			story := &explore.Story{ID: h.ID, Rule: h.Rule, Subject: h.BlockSubject, Hit: h}
			for _, d := range s.decisions {
				if d.Hit == h.ID {
					story.Decisions = append(story.Decisions, d)
				}
			}
			return story, s.away["history"]
		}
	}
	return nil, s.away["history"]
}

func (s explorer) Audit(_ context.Context, f explore.AuditFilter, _ explore.Page) (explore.Acts, error) {
	var out explore.Acts
	for i, e := range s.entries {
		if (f.Rule == "" || strings.Contains(e.Object, f.Rule)) && (f.Actor == "" || e.Actor == f.Actor) {
			out.Acts = append(out.Acts, audit.Numbered{Seq: int64(i), Entry: e})
		}
	}
	out.Total.N = int64(len(out.Acts))
	return out, s.away["history"]
}

// Gather makes a dossier of the episodes of the scene.
func (s *scene) Gather(_ context.Context, q evidence.Question) (*evidence.Dossier, error) {
	if q.Rule == "partner-burst" {
		return nil, errors.New("took too long")
	}
	r, err := ruleStore{s}.Find(context.Background(), q.Rule)
	if err != nil {
		return nil, err
	}
	terms := evidence.Terms{Limit: r.Newest.Version.Limit, Block: "15m"}
	known := func(n int64) evidence.Count { return evidence.Count{State: evidence.Measured, Value: n} }
	share := func(part, whole int64) evidence.Share {
		return evidence.Share{State: evidence.Measured, Value: float64(part) / float64(whole), Part: part, Whole: whole}
	}
	none := evidence.Count{State: evidence.NotMeasurable, Reason: "no known_good expression is configured"}
	d := &evidence.Dossier{
		Format: evidence.Format, Stream: "live", Rule: q.Rule, Version: 3, Role: evidence.Acting, Since: q.Since, Until: q.Until, Terms: terms,
		Observed: evidence.Observed{Minutes: 9800, Span: 10080, Missing: []evidence.Missing{{Reason: evidence.GapSilent, Minutes: 260}, {Reason: evidence.GapWarming, Minutes: 20}}},
		Held:     evidence.Held{Sources: known(221), Requests: known(16079), ShareOfAll: share(16079, 41_234_567), ShareOfMatched: share(16079, 1_200_345)},
		KnownGood: evidence.KnownGood{
			Sources: none, Coverage: evidence.Share{State: evidence.NotMeasurable, Reason: "no known_good expression is configured"},
		},
		Behind:  evidence.Behind{Users: evidence.Crowd{Most: known(3)}, Devices: evidence.Crowd{Most: known(9)}},
		Overlap: evidence.Overlap{Sources: share(12, 221), Rules: []evidence.OverlapOne{{Rule: "login-stuffing", Sources: 12}}},
		Notes:   []string{"Replays are not part of it."},
	}
	peaks := map[int64]int64{}
	for _, h := range (explorer{s}).found(explore.Filter{Rule: q.Rule, Since: q.Since}) {
		peaks[int64(h.Peak)]++
		if len(d.Top) < 5 {
			d.Top = append(d.Top, evidence.Source{
				Subject: h.Subject, Refused: h.Count, Episodes: 1, Events: h.Count, Peak: int64(h.Peak), First: h.First, Last: h.Last, Users: 2, Devices: 1, KnownGood: "not judged", Hit: h.ID, Samples: h.Samples,
			})
		}
	}
	for _, at := range slices.Sorted(maps.Keys(peaks)) {
		d.Ladder.Peaks = append(d.Ladder.Peaks, evidence.Bucket{From: at, To: at, Sources: peaks[at]})
	}
	d.Ladder.Steps, d.Ladder.Exact = []evidence.Step{{Limit: int64(terms.Limit), Requests: 16079}, {Limit: int64(terms.Limit) * 2, Requests: 4000}}, 128
	return d, s.away["evidence"]
}

var _ Evidence = (*scene)(nil)
