package dashboards_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

const (
	window = 10 * time.Minute
	ttl    = 30 * time.Minute
)

// uncounted is a sum of events that login-burst did not count.
type uncounted struct {
	reason string
	minute time.Time
	events int64
}

// world is a history of nine days, and what is in it: every answer of a board can be counted again.
type world struct {
	*historytest.Bed
	now       time.Time
	rules     []rules.Document // quiet finds nobody
	modes     map[string]rules.ModeState
	hits      []detectors.Hit
	retold    map[string]traffic.Time // of hits told before a late event moved the beginning of their episode: when it began
	decisions []blocklist.Decision
	uncounted []uncounted
	refused   []refused
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Bed: historytest.New(t), now: time.Now().UTC().Truncate(time.Microsecond), modes: map[string]rules.ModeState{}, retold: map[string]traffic.Time{}}
	w.Publish(t, rules.Format{Name: "weir"})
	for _, r := range []struct {
		id, owner string
		extend    rules.Extend
	}{
		{"catalogue-scrape", "catalogue", rules.ExtendNever}, {"guest-token-flood", "identity", rules.ExtendOnHit},
		{"login-burst", "identity", rules.ExtendOnHit}, {"search-flood", "search o'clock", rules.ExtendNever}, {"quiet", "catalogue", rules.ExtendNever},
	} {
		d := historytest.Document(r.id)
		d.Owner, d.Window, d.Block = r.owner, window, &rules.Block{Key: d.Key, TTL: ttl, Extend: r.extend}
		w.rules = append(w.rules, d)
	}
	w.rules = append(w.rules, crowdRules()...)
	w.Apply(t, w.rules...)
	for _, blocking := range []string{"login-burst", "search-flood", "crowd-blocked"} {
		if _, err := w.Rules.SetMode(t.Context(), rulestore.ModeChange{Rule: blocking, Mode: rules.ModeBlock, By: "ann", Reason: "a week in shadow", Override: "tests"}); err != nil {
			t.Fatal(err)
		}
	}
	modes, err := w.Rules.Modes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modes {
		w.modes[m.Rule] = m
	}
	w.happen(rand.New(rand.NewPCG(12, 7)))
	w.crowd()
	w.refuse()
	w.record(t)
	// However long all of that took, it was done before the time that the boards look back from.
	w.Run(t, "UPDATE weir.audit SET at = least(at, $1)", w.now)
	w.Run(t, "ALTER TABLE weir.rule_versions DISABLE TRIGGER rule_versions_stay")
	w.Run(t, "UPDATE weir.rule_versions SET created_at = least(created_at, $1)", w.now)
	return w
}

// refused is what gates refused by one block in one minute.
type refused struct {
	rule, block, subject string
	minute               time.Time
	n, good              int64
}

// refuse has gates refuse by the blocks of some of the episodes, after these, and what blocks would have refused of
// all.
func (w *world) refuse() {
	for i := range w.hits {
		h := &w.hits[i]
		h.Refused = int64(i % 7)
		if w.modes[h.Rule].Mode != rules.ModeBlock || i%3 > 0 {
			continue
		}
		minute := h.Last.Std().Add(time.Duration(i%90) * time.Minute).Truncate(time.Minute)
		if minute.After(w.now.Add(-time.Minute)) {
			minute = w.now.Add(-2 * time.Minute).Truncate(time.Minute)
		}
		w.refused = append(w.refused, refused{h.Rule, h.ID[:min(16, len(h.ID))], string(h.Subject), minute,
			int64(2 + i%11), int64(i % 5 / 4)})
	}
}

// happen makes episodes of the first four rules, and decisions about those of the two that block.
func (w *world) happen(random *rand.Rand) {
	for n := range 500 {
		d := w.rules[n%4]
		ago := time.Duration(random.Int64N(int64(9 * 24 * time.Hour)))
		if n%3 == 0 {
			ago = time.Duration(random.Int64N(int64(5 * time.Hour)))
		}
		lasted := time.Duration(random.Int64N(int64(3 * time.Hour)))
		last := w.now.Add(-ago)
		phase := detectors.PhaseClosed
		switch {
		case n%10 < 3: // is over now
			last, phase = w.now.Add(-time.Duration(random.IntN(30))*time.Second), detectors.PhaseUpdate
		case n%50 == 10: // was left open: a window has passed since
			last, phase = w.now.Add(-2*time.Hour), detectors.PhaseOpen
		case n%50 == 11:
			phase = detectors.PhaseMerged
		}
		if at := w.now.Sub(last); at > window-3*time.Minute && at < ttl+3*time.Minute {
			last = w.now.Add(-ttl - 10*time.Minute) // no bound is crossed while the test runs
		}
		first := last.Add(-lasted)
		if at := w.now.Sub(first); at > ttl-3*time.Minute && at < ttl+3*time.Minute {
			first = first.Add(-10 * time.Minute)
		}
		made := episode(random, n, d.ID, phase, first, last)
		if running := func(h detectors.Hit) bool { return h.Phase == detectors.PhaseOpen || h.Phase == detectors.PhaseUpdate }; running(made) &&
			slices.ContainsFunc(w.hits, func(h detectors.Hit) bool { return running(h) && h.Rule == made.Rule && h.Subject == made.Subject }) {
			made.Phase, made.Seen = detectors.PhaseClosed, made.Seen.Add(closing) // a source has one episode at a time
		}
		w.hits = append(w.hits, made)
		if h := &w.hits[n]; w.modes[d.ID].Mode == rules.ModeBlock && !h.Grouped && phase != detectors.PhaseMerged {
			w.decide(random, h, d.Block)
		}
	}
}

func episode(random *rand.Rand, n int, rule string, phase detectors.Phase, first, last time.Time) detectors.Hit {
	who := random.IntN(120)
	subject := traffic.Subject(fmt.Sprintf("ip=203.0.%d.%d%%2F32&device=tv-%d", 110+who%5, who, who))
	switch who % 6 {
	case 0:
		subject = traffic.Subject(fmt.Sprintf("ip=2001%%3Adb8%%3A%d%%3A%d%%3A%%3A%%2F64&device=tv-%d", who%4, who, who))
	case 1:
		subject = traffic.Subject(fmt.Sprintf("ip=198.51.100.%d%%2F32&api_key=key-of-somebody-%04d", who, who))
	case 2: // blocks keep a digest of it
		subject = traffic.Subject(fmt.Sprintf("ip=203.0.%d.%d%%2F32&device=%s", 110+who%5, who, longDevice(who)))
	case 3:
		subject = traffic.Subject(fmt.Sprintf("ip=203.0.%d.%d%%2F32&device=%%22tv%%22-o%%27clock-%d", 110+who%5, who, who))
	}
	at := traffic.At(first)
	h := detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: fmt.Sprintf("%032x", n+1), Rule: rule, RuleVersion: 1, Lineage: 1, Phase: phase,
		Subject: subject, BlockSubject: subject, Limit: 5, WindowMS: window.Milliseconds(), Count: 1 + random.Int64N(500), Peak: 6 + random.IntN(90),
		First: at, Last: traffic.At(last), Seen: traffic.At(last), Generation: 1, Offset: int64(n), Users: 1, Devices: 1,
	}
	if n%17 == 0 {
		h.Grouped = true
	}
	if n%34 == 0 {
		h.BlockSubject = ""
	}
	if phase == detectors.PhaseClosed {
		h.Seen = h.Seen.Add(closing)
	}
	if phase == detectors.PhaseMerged {
		h.IntoID = fmt.Sprintf("%032x", n)
	}
	for i := range 1 + n%3 {
		request := traffic.Request{Time: at.Add(time.Duration(i) * time.Second), Method: "POST", Path: fmt.Sprintf("/v1/%s/%d", rule, n%4), Status: 201 + n%2, UserAgent: "tv/7 'quoted'"}
		h.Samples = append(h.Samples, string(traffic.AppendSample(nil, &request, &traffic.Identity{Device: "tv"})))
	}
	return h
}

// longDevice is the name of a device that is longer than blocks keep.
func longDevice(n int) string {
	return fmt.Sprintf("settop-%s-%d", strings.Repeat("0123456789-", 8), n)
}

// decide makes the decisions about an episode of a rule that blocks: written and extended, or withheld; some are released.
func (w *world) decide(random *rand.Rand, h *detectors.Hit, block *rules.Block) {
	former := int64(0)
	if random.IntN(6) == 0 {
		former = 1 // decided before the rule was promoted anew
	}
	add := func(d blocklist.Decision) {
		d.Format, d.Rule, d.Subject, d.Hit, d.Generation = blocklist.DecisionFormat, h.Rule, h.BlockSubject.Stored(), h.ID, w.modes[h.Rule].Generation-former
		d.Identify(h.ID)
		w.decisions = append(w.decisions, d)
	}
	if random.IntN(7) == 0 {
		add(blocklist.Decision{Action: blocklist.ActionWithheld, Reason: blocklist.ReasonMaxLag, Since: h.First, Until: h.First.Add(block.TTL), At: h.First.Add(2 * time.Minute)})
		return
	}
	add(blocklist.Decision{Action: blocklist.ActionWritten, Since: h.First, Until: h.First.Add(block.TTL), At: h.First.Add(time.Second)})
	if block.Extend == rules.ExtendOnHit && h.Last > h.First {
		add(blocklist.Decision{Action: blocklist.ActionExtended, Since: h.First, Until: h.Last.Add(block.TTL), At: h.Last.Add(time.Second)})
	}
	if random.IntN(6) == 0 {
		released := h.Last.Add(2 * time.Second)
		add(blocklist.Decision{Action: blocklist.ActionReleased, Reason: "a partner's own load test", By: "bob", Since: released, Until: released.Add(24 * time.Hour), At: released})
	}
}

// record gives everything to the recorders of history, in any order, each episode in two records.
func (w *world) record(t *testing.T) {
	t.Helper()
	var hits, decided []traffic.Message
	add := func(h detectors.Hit) {
		value, err := detectors.EncodeHit(&h)
		if err != nil {
			t.Fatal(err)
		}
		hits = append(hits, traffic.Message{Value: value})
	}
	for i := range w.hits {
		add(w.hits[i])
		opening := w.hits[i]
		opening.Phase, opening.Last, opening.Count, opening.Peak, opening.Samples, opening.IntoID = detectors.PhaseOpen, opening.First, 1, 6, nil, ""
		opening.Seen = seenFirst(&w.hits[i])
		add(opening)
	}
	for i := range 40 {
		minute := w.now.Add(-time.Duration(i) * 10 * time.Minute).Truncate(time.Minute)
		left := detectors.Hit{
			Format: detectors.HitFormat, Kind: detectors.KindLate, ID: fmt.Sprintf("late-%d", i), Rule: "login-burst", Lineage: 1, Count: int64(i),
			First: traffic.At(minute), Last: traffic.At(minute), Seen: traffic.At(minute), Generation: 1,
		}
		if i%2 == 0 {
			left.Kind, left.Reason = detectors.KindUncounted, detectors.UncountedOutOfOrder.String()
		}
		w.uncounted = append(w.uncounted, uncounted{cmp.Or(left.Reason, "late"), minute, left.Count})
		add(left)
	}
	for i, r := range w.refused {
		add(detectors.Hit{Format: detectors.HitFormat, Kind: detectors.KindRefused, ID: fmt.Sprint("refused-", i),
			Rule: r.rule, Block: r.block, Count: r.n, Known: r.good,
			First: traffic.At(r.minute), Last: traffic.At(r.minute), Seen: traffic.At(r.minute)})
	}
	for i := range w.decisions {
		value, err := blocklist.EncodeDecision(&w.decisions[i])
		if err != nil {
			t.Fatal(err)
		}
		decided = append(decided, traffic.Message{Value: value})
	}
	box := letters{t}
	registry := prometheus.NewRegistry()
	days := retention.NewDays(w.Store, 0, func() traffic.Time { return traffic.At(w.now) })
	hitRecorder, err := history.NewHitRecorder(w.Store, history.Live, "weir.hits", box, days, registry)
	if err != nil {
		t.Fatal(err)
	}
	decisionRecorder, err := history.NewDecisionRecorder(w.Store, history.Live, "weir.blocks", box, days, registry)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	random.Shuffle(len(hits), func(i, j int) { hits[i], hits[j] = hits[j], hits[i] })
	for batch := range slices.Chunk(hits, 200) {
		if err := hitRecorder.Apply(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := decisionRecorder.Apply(t.Context(), decided); err != nil {
		t.Fatal(err)
	}
}

// letters fails the test: everything here can be stored.
type letters struct{ t *testing.T }

var _ history.DeadLetters = letters{}

func (l letters) Put(_ context.Context, dead []traffic.DeadLetter) error {
	l.t.Errorf("dead letters: %+v", dead)
	return nil
}

// asReader connects as the role of dashboards.
func (w *world) asReader(t *testing.T) *pgx.Conn {
	t.Helper()
	return reader(t, w.URL)
}

func reader(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := conn.Exec(t.Context(), "SET SESSION AUTHORIZATION weir_read"); err != nil {
		t.Fatal(err)
	}
	return conn
}

// view is grafana with the variables of a board chosen as they are at first, all rules and no source; what Prometheus knows is the
// rules that there are. The time range is the one shown at first, or the same ago.
func (w *world) view(t *testing.T, conn *pgx.Conn, b sqlBoard, ago time.Duration) *grafana {
	t.Helper()
	back := 6 * time.Hour
	if b.uid == "weir-history" {
		back = 7 * day
	}
	to := w.now.Add(time.Second - ago)
	g := &grafana{from: to.Add(-back), to: to, interval: time.Minute, variables: map[string][]string{
		"console": {"http://127.0.0.1:9466"}, "source": {""},
	}}
	for i := range w.rules {
		g.variables["rule"] = append(g.variables["rule"], w.rules[i].ID)
	}
	for _, v := range b.variables {
		rows, err := conn.Query(t.Context(), g.expand(t, v.text))
		if err != nil {
			t.Fatalf("%s: variable %s: %v", b.uid, v.name, err)
		}
		if g.variables[v.name], err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			t.Fatalf("%s: variable %s: %v", b.uid, v.name, err)
		}
	}
	if b.uid == "weir-rule" {
		g.variables["rule"] = []string{"login-burst"}
	}
	return g
}
