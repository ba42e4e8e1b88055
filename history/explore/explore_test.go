package explore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

var noon = traffic.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))

// letters fails the test: everything here can be stored.
type letters struct{ t testing.TB }

func (l letters) Put(_ context.Context, dead []traffic.DeadLetter) error {
	l.t.Errorf("dead letters: %+v", dead)
	return nil
}

type scene struct {
	*historytest.Bed
	*explore.Explorer
}

func newScene(t testing.TB) *scene {
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	flood, login := historytest.Document("flood"), historytest.Document("login")
	flood.Owner, login.Owner = "media", "identity"
	b.Apply(t, flood, login)
	return &scene{b, explore.New(b.Store)}
}

func (s *scene) record(t testing.TB, stream string, hits ...detectors.Hit) {
	t.Helper()
	var days history.Days
	if stream == history.Live {
		days = retention.NewDays(s.Store, 0, func() traffic.Time { return noon })
	}
	recorder, err := history.NewHitRecorder(s.Store, stream, "weir.hits", letters{t}, days, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]traffic.Message, len(hits))
	for i := range hits {
		if batch[i].Value, err = detectors.EncodeHit(&hits[i]); err != nil {
			t.Fatal(err)
		}
	}
	historytest.Apply(t, recorder, batch)
}

func (s *scene) decide(t testing.TB, decisions ...blocklist.Decision) {
	t.Helper()
	days := retention.NewDays(s.Store, 0, func() traffic.Time { return noon })
	recorder, err := history.NewDecisionRecorder(s.Store, history.Live, "weir.blocks", letters{t}, days, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]traffic.Message, len(decisions))
	for i := range decisions {
		if batch[i].Value, err = blocklist.EncodeDecision(&decisions[i]); err != nil {
			t.Fatal(err)
		}
	}
	historytest.Apply(t, recorder, batch)
}

// hit is a closed episode of a device behind an address.
func hit(n int, rule string, address, device int, first traffic.Time, lasts time.Duration) detectors.Hit {
	subject := traffic.Subject(fmt.Sprintf("ip=192.0.2.%d%%2F32&device=tv-%d", address, device))
	return detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: fmt.Sprintf("%08x%024x", n*7919, n), Rule: rule, RuleVersion: 1, Lineage: 1,
		Phase: detectors.PhaseClosed, Subject: subject, BlockSubject: subject, Limit: 2, WindowMS: 60_000, Count: int64(n%7 + 1), Peak: n%5 + 3,
		Opened: first, First: first, Last: first.Add(lasts), Seen: first, Generation: 1, Offset: int64(n), Refused: int64(n % 3),
		Samples: []string{fmt.Sprintf(`{"time":"2026-11-20T00:00:00Z","path":"/x","ip":"192.0.2.%d","device":"tv-%d","user":"user-%d"}`, address, device, n%4)},
	}
}

// random is as many episodes over 30 days, some with rows for two blocks, some running, some merged.
func random(seed uint64, n int) []detectors.Hit {
	r := rand.New(rand.NewPCG(seed, 1))
	var hits []detectors.Hit
	for i := range n {
		// A day apart for each source at least: the oracle then need not join what runs.
		first := noon.Add(-time.Duration(i)*29*24*time.Hour/time.Duration(n) - time.Duration(r.IntN(3600))*time.Second)
		h := hit(i, []string{"flood", "login"}[r.IntN(2)], i%40, i, first, time.Duration(r.IntN(7200))*time.Second)
		switch r.IntN(10) {
		case 0:
			h.Phase = detectors.PhaseUpdate
		case 1:
			h.Phase, h.IntoID = detectors.PhaseMerged, "x"
		}
		hits = append(hits, h)
		if r.IntN(5) == 0 { // another block of the same episode
			h.ID, h.BlockSubject = fmt.Sprintf("%08x%024x", i*7919+3, n+i), h.BlockSubject+"&user=u"
			hits = append(hits, h)
		}
	}
	return hits
}

// naive are the hits that a filter selects, as one reads its description.
func naive(hits []detectors.Hit, f explore.Filter) []detectors.Hit {
	owner := map[string]string{"flood": "media", "login": "identity"}
	var out []detectors.Hit
	for i := range hits {
		h := &hits[i]
		switch {
		case h.Phase == detectors.PhaseMerged, f.Rule != "" && h.Rule != f.Rule, f.Owner != "" && owner[h.Rule] != f.Owner,
			f.Since != 0 && h.Last < f.Since, f.Until != 0 && h.First >= f.Until,
			f.State == history.StateClosed && h.Phase != detectors.PhaseClosed, f.State == history.StateRunning && h.Phase == detectors.PhaseClosed,
			strings.HasPrefix(f.Source, "192.0.2.") && !strings.Contains(string(h.Subject), "ip="+f.Source+"%2F32&"),
			f.Field == "user", f.Mode != "" && f.Mode != rules.ModeShadow:
			continue
		}
		out = append(out, *h)
	}
	slices.SortFunc(out, func(a, b detectors.Hit) int { return cmp.Or(cmp.Compare(b.Last, a.Last), cmp.Compare(b.ID, a.ID)) })
	return out
}

func filters() []explore.Filter {
	const day = 24 * time.Hour
	return []explore.Filter{
		{}, {Rule: "flood"}, {Owner: "identity"}, {Source: "192.0.2.7"}, {State: history.StateRunning}, {State: history.StateClosed},
		{Since: noon.Add(-7 * day)}, {Until: noon.Add(-20 * day)}, {Since: noon.Add(-9 * day), Until: noon.Add(-8 * day), Rule: "login"},
		{Field: "device"}, {Field: "user"}, {Mode: rules.ModeShadow, Since: noon.Add(-3 * day)}, {Mode: rules.ModeBlock},
	}
}

// Pages of any size give each episode once, in order, and say how many there are.
func TestHits(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	hits := random(1, 400)
	s.record(t, history.Live, hits...)
	s.record(t, "replay/monday", hits[:5]...) // is not among the live ones
	for _, f := range filters() {
		want := naive(hits, f)
		for _, limit := range []int{1000, 37} {
			var got []string
			p := explore.Page{Limit: limit}
			for {
				page, err := s.Hits(t.Context(), f, p)
				if err != nil {
					t.Fatalf("%+v: %v", f, err)
				}
				if page.Total.N != int64(len(want)) || page.Total.More || len(page.Hits) > limit {
					t.Errorf("%+v: %d rows of %s, want %d in all", f, len(page.Hits), page.Total, len(want))
				}
				for i := range page.Hits {
					got = append(got, page.Hits[i].ID)
				}
				if p.Cursor = page.Next; p.Cursor == "" {
					break
				}
			}
			if !slices.EqualFunc(got, want, func(id string, h detectors.Hit) bool { return id == h.ID }) {
				t.Errorf("%+v in pages of %d: %d hits, want %d", f, limit, len(got), len(want))
			}
		}
	}
}

// Sums count each episode once, and are those that one reckons from the hits themselves.
func TestGroups(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	hits := random(2, 400)
	s.record(t, history.Live, hits...)
	refused := refusals(hits, 3)
	for _, r := range refused {
		s.record(t, history.Live, r)
	}
	s.record(t, "replay/monday", refused[0])
	for _, f := range filters() {
		for _, by := range []explore.Group{explore.ByRule, explore.BySource, explore.ByHour, explore.ByDay} {
			want := naiveGroups(naive(hits, f), by, f.Since)
			addRefused(want, hits, refused, f, by)
			got := map[string]explore.GroupRow{}
			p := explore.Page{Limit: 9}
			for {
				page, err := s.Groups(t.Context(), f, by, "", p)
				if err != nil {
					t.Fatalf("%+v by %s: %v", f, by, err)
				}
				if page.Total.N != int64(len(want)) {
					t.Errorf("%+v by %s: %s groups, want %d", f, by, page.Total, len(want))
				}
				for _, r := range page.Rows {
					got[groupKey(r)] = r
				}
				if p.Cursor = page.Next; p.Cursor == "" {
					break
				}
			}
			if len(got) != len(want) {
				t.Errorf("%+v by %s: %d groups, want %d", f, by, len(got), len(want))
			}
			for key, w := range want {
				if got[key] != w {
					t.Errorf("%+v by %s: %+v, want %+v", f, by, got[key], w)
				}
			}
		}
	}
}

func groupKey(r explore.GroupRow) string { return fmt.Sprint(r.Rule, " ", r.Source, " ", r.At) }

func naiveGroups(hits []detectors.Hit, by explore.Group, since traffic.Time) map[string]explore.GroupRow {
	sums, seen := map[string]explore.GroupRow{}, map[string]bool{}
	for _, h := range hits {
		r := explore.GroupRow{First: h.First, Last: h.Last}
		begun := max(h.First, since)
		switch by {
		case explore.ByRule:
			r.Rule = h.Rule
		case explore.BySource:
			r.Rule, r.Source = h.Rule, h.Subject
		case explore.ByHour:
			r.At = traffic.At(begun.Std().Truncate(time.Hour))
		case explore.ByDay:
			r.At = traffic.At(begun.Std().Truncate(24 * time.Hour))
		}
		key := groupKey(r)
		if was, ok := sums[key]; ok {
			r = was
		}
		if episode := fmt.Sprint(key, h.Rule, h.Subject, h.First); !seen[episode] {
			seen[episode] = true
			r.Episodes, r.Events = r.Episodes+1, r.Events+h.Count
			if source := fmt.Sprint("source", key, h.Rule, h.Subject); !seen[source] {
				seen[source] = true
				r.Sources++
			}
		}
		r.WouldRefuse, r.Peak, r.First, r.Last = r.WouldRefuse+h.Refused, max(r.Peak, int64(h.Peak)),
			min(r.First, h.First), max(r.Last, h.Last)
		sums[key] = r
	}
	return sums
}

// refusals are what gates refused by blocks of some hits, long after their episodes, too; some by blocks that nobody
// knows.
func refusals(hits []detectors.Hit, seed uint64) []detectors.Hit {
	r := rand.New(rand.NewPCG(seed, 1))
	var out []detectors.Hit
	for i := range 150 {
		h := &hits[r.IntN(len(hits))]
		at := traffic.At(h.Last.Add(time.Duration(r.IntN(3*24*60)) * time.Minute).Std().Truncate(time.Minute))
		one := detectors.Hit{
			Format: detectors.HitFormat, Kind: detectors.KindRefused, ID: fmt.Sprint("refused-", i), Rule: h.Rule,
			Block: h.ID[:16],
			Count: int64(1 + r.IntN(50)), First: at, Last: at.Add(time.Second), Seen: at.Add(time.Minute), Source: i,
			Keyed: 3,
		}
		switch r.IntN(12) {
		case 0:
			one.Block = "" // too many to be told apart
		case 1:
			one.Block = "0123456789abcdef"
		}
		out = append(out, one)
	}
	return out
}

// addRefused adds to sums what a filter selects of refused, as one reads its description.
func addRefused(sums map[string]explore.GroupRow, hits, refused []detectors.Hit, f explore.Filter, by explore.Group) {
	behind := map[string]*detectors.Hit{}
	for i := range hits {
		behind[hits[i].Rule+" "+hits[i].ID[:16]] = &hits[i]
	}
	own := map[string]bool{}
	for i := range refused {
		one := &refused[i]
		if f.Since != 0 && one.First < f.Since || f.Until != 0 && one.First >= f.Until || f.Mode == rules.ModeBlock {
			continue
		}
		h := behind[one.Rule+" "+one.Block]
		row := explore.GroupRow{First: one.First, Last: one.Last, Refused: history.Figure(one.Count)}
		if of := (explore.Filter{Rule: f.Rule, Owner: f.Owner, Source: f.Source, Field: f.Field,
			State: f.State}); h == nil {
			of.Since, of.Until = 0, 0
			if f.Source != "" || f.Field != "" || f.State != "" || by == explore.BySource ||
				len(naive([]detectors.Hit{*one}, of)) == 0 {
				continue
			}
		} else if behind := *h; true {
			if f.State == "" && behind.Phase == detectors.PhaseMerged {
				behind.Phase = detectors.PhaseClosed // the block of a merged one held all the same
			}
			if len(naive([]detectors.Hit{behind}, of)) == 0 {
				continue
			}
		}
		switch by {
		case explore.ByRule:
			row.Rule = one.Rule
		case explore.BySource:
			row.Rule, row.Source = one.Rule, h.Subject
		case explore.ByHour:
			row.At = traffic.At(one.First.Std().Truncate(time.Hour))
		case explore.ByDay:
			row.At = traffic.At(one.First.Std().Truncate(24 * time.Hour))
		}
		key := groupKey(row)
		was, ok := sums[key]
		switch {
		case !ok:
			own[key] = true
		case own[key]: // nothing but refused requests
			row.First, row.Last, row.Refused = min(was.First, row.First), max(was.Last, row.Last), was.Refused+
				row.Refused
		default:
			was.Refused += row.Refused
			row = was
		}
		sums[key] = row
	}
}

// The rows of an episode that runs may differ in first by less than a window: they are one.
func TestARunningEpisodeIsOne(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	one := hit(1, "flood", 1, 1, noon, time.Minute)
	one.Phase = detectors.PhaseUpdate
	other := one
	other.ID, other.BlockSubject, other.First, other.Count = "ff", one.BlockSubject+"&user=u", noon.Add(30*time.Second), 9
	later := one // more than a window after: another one
	later.ID, later.First, later.Last = "fe", noon.Add(3*time.Minute), noon.Add(4*time.Minute)
	s.record(t, history.Live, one, other, later)
	got, err := s.Groups(t.Context(), explore.Filter{}, explore.ByRule, "", explore.Page{})
	if err != nil || len(got.Rows) != 1 || got.Rows[0].Episodes != 2 || got.Rows[0].Events != 9+one.Count {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTimelineAndStory(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	hits := []detectors.Hit{hit(1, "flood", 1, 1, noon.Add(-time.Hour), time.Minute), hit(2, "login", 1, 1, noon, 0), hit(3, "flood", 2, 1, noon, 0)}
	hits[1].BlockSubject = "ip=192.0.2.1%2F32"
	s.record(t, history.Live, hits...)
	h := &hits[0]
	until := traffic.At(time.Now().Add(time.Hour))
	var decisions []blocklist.Decision
	for i, action := range []blocklist.Action{blocklist.ActionWritten, blocklist.ActionExtended, blocklist.ActionReleased} {
		d := blocklist.Decision{
			Format: blocklist.DecisionFormat, Action: action, Rule: "flood", Subject: h.BlockSubject, Hit: h.ID, Since: h.First, Until: until,
			At: h.First.Add(time.Duration(i) * time.Second), By: "ann",
		}
		d.Identify("r")
		decisions = append(decisions, d)
	}
	s.decide(t, decisions...)
	release, err := blocklist.NewRelease(h.BlockSubject, "flood", "ann", "a mistake", noon)
	if err != nil {
		t.Fatal(err)
	}
	s.record(t, history.Live, release)
	var got []string
	p := explore.Page{Limit: 2}
	for {
		page, err := s.Timeline(t.Context(), "192.0.2.1", explore.Filter{}, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			text := e.What
			switch {
			case e.Hit != nil:
				text += " " + e.Hit.Rule
			case e.Decision != nil:
				text += " " + string(e.Decision.Action)
			case e.Act != nil:
				text += " " + e.Act.Action
			}
			got = append(got, text)
		}
		if p.Cursor = page.Next; p.Cursor == "" {
			break
		}
	}
	want := []string{"act release", "episode login", "episode flood", "decision released", "decision extended", "decision written"}
	if !slices.Equal(got, want) {
		t.Errorf("timeline %q, want %q", got, want)
	}
	st, err := s.Story(t.Context(), h.ID[:16])
	if err != nil || st.Hit == nil || len(st.Decisions) != 3 || len(st.Acts) != 1 || st.Mode != rules.ModeShadow || st.Owner != "media" || len(st.Rows) != 1 {
		t.Errorf("story %+v, %v", st, err)
	}
	if st, err := s.Story(t.Context(), "00000000ffff"); err != nil || st != nil {
		t.Errorf("a hit that is not there: %+v, %v", st, err)
	}
	for source, n := range map[string]int{"ip=192.0.2.1": 1, "192.0.2.0/24": 1, "tv-1": 1, "device=tv-2": 0, string(h.Subject): 1} {
		acts, err := s.Audit(t.Context(), explore.AuditFilter{Source: source, Rule: "flood", Action: "release"}, explore.Page{})
		if err != nil || len(acts.Acts) != n || acts.Total.N != int64(n) {
			t.Errorf("releases of %s: %+v, %v, want %d", source, acts, err, n)
		}
	}
}

func TestPivots(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.record(t, history.Live, hit(1, "flood", 1, 1, noon, 0), hit(2, "login", 1, 2, noon, 0), hit(5, "flood", 1, 2, noon.Add(-time.Hour), 0), hit(6, "flood", 3, 9, noon, 0))
	for source, want := range map[string]string{
		"192.0.2.1":   "device tv-2 2 [flood login]; device tv-1 1 [flood]; user user-1 2 [flood]; user user-2 1 [login]",
		"device=tv-2": "ip 192.0.2.1 2 [flood login]; user user-1 1 [flood]; user user-2 1 [login]",
	} {
		found, err := s.Pivots(t.Context(), source, explore.Filter{})
		var got []string
		for _, p := range found.Of {
			got = append(got, fmt.Sprint(p.Field, " ", p.Value, " ", p.Episodes, " ", p.Rules))
		}
		if text := strings.Join(got, "; "); err != nil || text != want || !found.All {
			t.Errorf("%s: %s, %v; want %s", source, text, err, want)
		}
	}
}

// What nothing can match is refused, with the name that is near.
func TestBadQuestions(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	if err := s.Transact(t.Context(), "", func(tx pgx.Tx) error {
		return audit.Write(t.Context(), tx, audit.Entry{Actor: "ann", Action: "promote", Object: "rule flood", Reason: "x"})
	}); err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]explore.Filter{
		"did you mean flood?":    {Rule: "floood"},
		"did you mean media?":    {Owner: "meda"},
		"did you mean running?":  {State: "runnin"},
		"did you mean device?":   {Field: "devise"},
		"did you mean shadow?":   {Mode: "shadw"},
		"allowed: hit, near":     {Kind: "late"},
		`there is no replay "x"`: {Stream: "replay/x"},
		"is no address":          {Source: "300.1.1.1"},
		"no field of a subject":  {Source: "foo=bar"},
		"a time after since":     {Since: noon, Until: noon},
	} {
		_, err := s.Hits(t.Context(), f, explore.Page{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
		var bad *explore.BadFilterError
		var unknown *explore.UnknownError
		if !errors.As(err, &bad) && !errors.As(err, &unknown) {
			t.Errorf("%+v: %T", f, err)
		}
	}
	for _, p := range []explore.Page{{Limit: -1}, {Limit: 1001}, {Cursor: "x"}, {Cursor: "!!"}} {
		if _, err := s.Hits(t.Context(), explore.Filter{}, p); err == nil {
			t.Errorf("page %+v is taken", p)
		}
	}
	if _, err := s.Audit(t.Context(), explore.AuditFilter{Actor: "annn"}, explore.Page{}); err == nil || !strings.Contains(err.Error(), "did you mean ann?") {
		t.Error(err)
	}
	if _, err := s.Story(t.Context(), "xyz"); err == nil {
		t.Error("xyz is an id")
	}
	if _, err := s.Timeline(t.Context(), "", explore.Filter{}, explore.Page{}); err == nil {
		t.Error("a timeline of nobody")
	}
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 15, 4, 5, 0, time.UTC)
	for text, want := range map[string]string{
		"90m": "2026-11-23T13:34:05Z", "7d": "2026-11-16T15:04:05Z", "today": "2026-11-23T00:00:00Z", "Yesterday": "2026-11-22T00:00:00Z",
		"2026-11-20": "2026-11-20T00:00:00Z", "2026-11-20T13:00": "2026-11-20T13:00:00Z", "2026-11-20 13:00:01": "2026-11-20T13:00:01Z",
		"2026-11-20T13:00:00+02:00": "2026-11-20T11:00:00Z", "now": "2026-11-23T15:04:05Z",
	} {
		got, err := explore.ParseTime("since", text, now)
		if err != nil || got.Std().Format(time.RFC3339) != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"1w", "tomorrow", "2026-13-01", "20", "2026-11-20T25:00", "-5m"} {
		if got, err := explore.ParseTime("since", text, now); err == nil {
			t.Errorf("%s: %s", text, got)
		}
	}
	for _, pair := range [][2]string{{"2026-12-01", ""}, {"1h", "2h"}, {"x", ""}, {"", "x"}} {
		if from, to, err := explore.ParseSpan(pair[0], pair[1], now); err == nil {
			t.Errorf("%q: %s %s", pair, from, to)
		}
	}
}
