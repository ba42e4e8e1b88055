package history_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/traffic"
)

// told is an episode as a test made it, and its rows.
type told struct {
	rule, subject string
	first         traffic.Time
	events        int64
	day           string
}

// makeEpisodes records closed episodes of many sources around midnights, some with rows for several blocks, some of those opened on the next
// day, some of a build that does not tell when; merged ones are among them.
func (b *bed) makeEpisodes(t *testing.T) []told {
	r := rand.New(rand.NewPCG(7, 8))
	var hits, old []detectors.Hit
	var want []told
	for n := range 300 {
		h := hitNumber(n)
		h.Rule = []string{"flood", "login"}[n%2]
		h.Phase, h.Count, h.Peak, h.Refused = detectors.PhaseClosed, int64(1+r.IntN(9)), r.IntN(50), int64(r.IntN(5))
		h.First = dawn.Add(time.Duration(r.IntN(10*24*60)) * time.Minute)
		if n%4 == 0 { // before a midnight
			h.First = traffic.At(h.First.Std().Truncate(24 * time.Hour).Add(24*time.Hour - time.Duration(1+r.IntN(600))*time.Second))
		}
		h.Last, h.Opened = h.First.Add(20*time.Minute), h.First
		if n%7 == 0 {
			h.Phase, h.IntoID = detectors.PhaseMerged, "x"
			hits = append(hits, h)
			continue
		}
		want = append(want, told{h.Rule, string(h.Subject), h.First, h.Count, h.First.Std().Format(time.DateOnly)})
		if n%11 == 0 { // a late event moved its beginning over midnight: the only row has the next day
			h.Opened = traffic.At(h.First.Std().Truncate(24 * time.Hour).Add(24 * time.Hour))
			h.Last = max(h.Last, h.Opened)
			want[len(want)-1].day = h.Opened.Std().Format(time.DateOnly)
		}
		if n%13 == 0 && n%11 != 0 {
			h.Opened = 0
			old = append(old, h)
			continue
		}
		hits = append(hits, h)
		for tuple := range r.IntN(4) {
			other := h
			other.ID, other.BlockSubject = fmt.Sprintf("%030x%02x", n, tuple+100), h.BlockSubject+traffic.Subject(fmt.Sprintf("&user=u%d", tuple))
			other.Opened, other.Refused = h.Opened.Add(time.Duration(r.IntN(15))*time.Minute), 0
			hits = append(hits, other)
		}
	}
	r.Shuffle(len(hits), func(i, j int) { hits[i], hits[j] = hits[j], hits[i] })
	b.record(t, history.Live, hits...)
	b.record(t, history.Live, old...)
	b.record(t, "replay/monday", hits[:20]...)
	return want
}

// Views of episodes and their sums need no condition but one on the day, and count each episode once, on one day.
func TestEpisodesCountOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	want := b.makeEpisodes(t)
	rows, err := b.Conn.Query(t.Context(), "SELECT rule, subject, (extract(epoch FROM first) * 1000000)::bigint, events, day::text FROM weir.episodes_v")
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e told, err error) {
		return e, row.Scan(&e.rule, &e.subject, &e.first, &e.events, &e.day)
	})
	if err != nil {
		t.Fatal(err)
	}
	order := func(a, b told) int {
		return cmp.Or(strings.Compare(a.subject, b.subject), cmp.Compare(a.first, b.first))
	}
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if !slices.Equal(got, want) {
		t.Fatalf("%d episodes, want %d", len(got), len(want))
	}
	for view, key := range map[string]func(told) string{
		"SELECT rule || ' ' || day, episodes, events, sources FROM weir.rule_days_v WHERE day >= '2026-11-04'": func(e told) string { return e.rule + " " + e.day },
		"SELECT rule || ' ' || day || ' ' || to_char(hour AT TIME ZONE 'UTC', 'HH24'), episodes, events, sources FROM weir.rule_hours_v WHERE day >= '2026-11-04'": func(e told) string {
			hour := "00"
			if e.first.Std().Format(time.DateOnly) == e.day {
				hour = e.first.Std().Format("15")
			}
			return e.rule + " " + e.day + " " + hour
		},
		"SELECT rule || ' ' || subject || ' ' || day, episodes, events, 1 FROM weir.source_days_v WHERE day >= '2026-11-04'": func(e told) string { return e.rule + " " + e.subject + " " + e.day },
		"SELECT rule || ' ' || subject || ' ' || day, sum(episodes)::bigint, sum(events)::bigint, 1 FROM weir.source_hours_v WHERE day >= '2026-11-04' GROUP BY 1": func(e told) string {
			return e.rule + " " + e.subject + " " + e.day
		},
	} {
		sums := map[string][3]int64{}
		for _, e := range want {
			if e.day >= "2026-11-04" { // each source has one episode
				s := sums[key(e)]
				sums[key(e)] = [3]int64{s[0] + 1, s[1] + e.events, s[2] + 1}
			}
		}
		rows, err := b.Conn.Query(t.Context(), view)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		var k string
		var sum [3]int64
		if _, err := pgx.ForEachRow(rows, []any{&k, &sum[0], &sum[1], &sum[2]}, func() error {
			n++
			if strings.Contains(view, "source_") {
				sum[2] = sums[k][2]
			}
			if sum != sums[k] {
				t.Errorf("%s: %v, want %v", k, sum, sums[k])
			}
			return nil
		}); err != nil || n != len(sums) {
			t.Errorf("%s: %d rows, want %d; %v", view, n, len(sums), err)
		}
	}
}

// A running episode is one, although its rows differ in first until each was told of again.
func TestARunningEpisodeCountsOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	now := traffic.At(time.Now())
	var hits []detectors.Hit
	for n, first := range []time.Duration{-10 * time.Minute, -9*time.Minute - 30*time.Second, -time.Minute} {
		h := hitNumber(n)
		h.Subject, h.Phase = "ip=192.0.2.1%2F32", detectors.PhaseUpdate
		h.First = now.Add(first)
		h.Last, h.Count, h.Opened = h.First.Add(time.Minute), int64(10+n), 0
		hits = append(hits, h)
	}
	b.record(t, history.Live, hits...)
	var episodes, events, running int64
	err := b.Conn.QueryRow(t.Context(), "SELECT count(*), sum(events)::bigint, count(*) FILTER (WHERE running) FROM weir.episodes_v").Scan(&episodes, &events, &running)
	if err != nil || episodes != 2 || events != 11+12 || running != 2 {
		t.Errorf("%d episodes, %d running, %d events; %v", episodes, running, events, err)
	}
}
