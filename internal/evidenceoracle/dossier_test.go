package evidenceoracle_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/internal/evidenceoracle"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// What real windows and RECORD have made of a log is what the log says: figure by figure, source by source, and for ten limits, each of which
// holds what a backtest of a rule with that limit holds.
func TestDossiersAreThoseOfTheOracle(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	rapid.Check(t, func(rt *rapid.T) {
		sc := drawScene(rt, 150, in.begin())
		sc.idle = rapid.Bool().Draw(rt, "idle")
		in.watch(rt, sc)
		others := sc.drawOthers(rt)
		sc.decide(t, in.bed, others)

		from, to := sc.span()
		d := in.gather(rt, from, to.Add(time.Minute))
		sc.compare(rt, d, others)
		sc.compareLimits(rt, d)
		// A part of the log: what is told by the minute.
		cut := from.Add(time.Duration(rapid.IntRange(1, int(to.Sub(from)/time.Minute)+1).Draw(rt, "cut")) * time.Minute)
		truth := sc.rule.Judge(sc.log, others, int64(from), int64(cut))
		sc.compareRequests(rt, in.gather(rt, from, cut), &truth)
	})
}

// A dossier of a time that is over stays what it is while the log goes on: what is told of an episode afterwards is
// none of its evidence.
func TestADossierOfATimeStays(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	rapid.Check(t, func(rt *rapid.T) {
		sc := drawScene(rt, 150, in.begin())
		sc.idle, sc.ticks = rapid.Bool().Draw(rt, "idle"), true
		hits := in.apply(rt, sc)
		sc.decide(t, in.bed, nil)
		from, _ := sc.span()
		recorder := in.daily(rt, sc)
		said := map[traffic.Time]string{}
		ask := func(until traffic.Time) {
			if until <= from {
				return
			}
			document, err := in.gather(rt, from, until).Document()
			if err != nil {
				rt.Fatal(err)
			}
			if before, ok := said[until]; ok && before != string(document) {
				rt.Fatalf("the dossier until %s was\n%s\nand is\n%s", until, before, document)
			}
			said[until] = string(document)
		}
		// What happened in a minute is told within two more.
		settled := func(seen traffic.Time) traffic.Time {
			return traffic.At(seen.Std().Truncate(time.Minute).Add(-2 * time.Minute))
		}
		for len(hits) > 0 {
			minute := hits[0].Seen.Std().Truncate(time.Minute)
			n := slices.IndexFunc(hits, func(h detectors.Hit) bool { return h.Seen.Std().Truncate(time.Minute).After(minute) })
			if n < 0 {
				n = len(hits)
			}
			ask(settled(hits[0].Seen))
			some := rapid.IntRange(1, n).Draw(rt, "of a batch")
			record(rt, recorder, hits[:some])
			hits = hits[some:]
		}
		for until := range said {
			ask(until)
		}
	})
}

// installation is what watches the logs of a test, one after the other.
type installation struct {
	t        *testing.T
	bed      *historytest.Bed
	recorder *history.HitRecorder
	store    *evidence.Store
	logs     int
}

func newInstallation(t *testing.T) *installation {
	bed := historytest.New(t)
	bed.Publish(t, historytest.Routing().Format)
	recorder, err := history.NewHitRecorder(bed.Store, streams.Live, "hits", refusing{t}, nil, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return &installation{t: t, bed: bed, recorder: recorder, store: evidence.New(bed.DB, bed.Rules)}
}

// daily is a recorder as weir run has one, which keeps how far episodes were: at the time of a scene.
func (in *installation) daily(t rapid.TB, sc *scene) *history.HitRecorder {
	_, to := sc.span()
	days := retention.NewDays(in.bed.Store, 0, func() traffic.Time { return to })
	recorder, err := history.NewHitRecorder(in.bed.Store, streams.Live, "hits", refusing{in.t}, days,
		prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return recorder
}

// begin is where the next log begins. Each has two days of its own, so that nothing of another is in its dossier; once they are used up, all
// is forgotten, so that no number of logs reaches the present: a backtest refuses what is yet to come.
func (in *installation) begin() time.Time {
	const most = 100
	if in.logs > 0 && in.logs%most == 0 {
		in.bed.Run(in.t, "TRUNCATE weir.hits_by_day, weir.hits_beside_by_day, weir.hits_left_out, weir.hit_counts, weir.hit_points, weir.rule_minutes")
	}
	in.logs++
	return time.Date(2025, 2, 1, 12, 0, 0, 0, time.UTC).AddDate(0, 0, in.logs%most*2)
}

// watch applies the scene's rule and lets the stages see its log.
func (in *installation) watch(t rapid.TB, sc *scene) { record(t, in.recorder, in.apply(t, sc)) }

// apply applies the scene's rule, and gives what DETECT tells of its log.
func (in *installation) apply(t rapid.TB, sc *scene) []detectors.Hit {
	if _, err := in.bed.Rules.Apply(in.t.Context(), historytest.Documents(sc.document(t)), "ann", "", rulestore.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	in.bed.Run(in.t, "ALTER TABLE weir.rule_versions DISABLE TRIGGER rule_versions_stay")
	in.bed.Run(in.t, "UPDATE weir.rule_versions SET created_at = '2025-01-01'")
	rule, err := in.bed.Rules.Find(in.t.Context(), "flood")
	if err != nil {
		t.Fatal(err)
	}
	sc.route(t, in.bed)
	return sc.fold(t, &rule.Newest.Version, int64(in.logs))
}

// gather asks for the dossier of a span.
func (in *installation) gather(t rapid.TB, since, until traffic.Time) *evidence.Dossier {
	d, err := in.store.Gather(in.t.Context(), evidence.Question{Rule: "flood", Since: since, Until: until})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// fold gives the log to the windows of one keyed partition, as a router writes it, and ends it. Before each request comes a tick, as routers
// send them every second: a partition of the requests that does not tick is not waited for, and then its episodes close late.
func (sc *scene) fold(t rapid.TB, v *rules.Version, generation int64) []detectors.Hit {
	routing := historytest.Routing()
	routing.Stream, routing.Number, routing.Identity, routing.Rules = streams.Live, 1, vouching(), []rules.Version{*v}
	p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: generation, Budget: detectors.DefaultBudget})
	p.Learn(detectors.NewPlan(&routing))
	if sc.second != nil {
		edited := routing
		edited.Number, edited.Rules = 2, []rules.Version{*sc.second}
		p.Learn(detectors.NewPlan(&edited))
	}
	var hits []detectors.Hit
	var err error
	prev, progress := detectors.NoOffset, traffic.BeforeTime
	for i, q := range sc.log {
		tick := func(at traffic.Time) {
			k := detectors.Keyed{Kind: detectors.KeyedTick, Generation: generation, Offset: int64(i), Prev: prev,
				Time: progress, Idle: sc.idle, Clock: at - 1}
			if hits, err = p.Fold(at, &k, hits); err != nil {
				t.Fatal(err)
			}
		}
		if sc.ticks && i > 0 {
			for at := traffic.Time(sc.log[i-1].At).Add(10 * time.Second); at < traffic.Time(q.At); at = at.Add(10 * time.Second) {
				tick(at)
			}
		}
		tick(traffic.Time(q.At))
		progress = max(progress, traffic.Time(q.At))
		k := detectors.Keyed{Kind: detectors.KeyedEvent, Generation: generation, Offset: int64(i), Prev: prev, Time: traffic.Time(q.At), Progress: progress, Version: 1,
			Good: detectors.Good(q.Good), Identity: identityOf(&q)}
		if sc.second != nil && i >= sc.from {
			k.Version = 2
		}
		full := evidenceoracle.Name(q.Fields, sc.rule.Key) != ""
		switch {
		case q.Ours:
			continue
		case q.Watched && full:
			k.Rules = []int{0}
			if !q.Reached {
				k.Beyond = []int{0}
			}
		case q.Reached && (full || evidenceoracle.Name(q.Fields, sc.rule.Block) != ""):
			k.Reached = []int{0}
		case q.Good == 2:
			k.Prev = detectors.NoOffset
		default:
			continue
		}
		if !k.Hint() {
			prev = int64(i)
		}
		if hits, err = p.Fold(traffic.Time(q.At), &k, hits); err != nil {
			t.Fatal(err)
		}
	}
	end := detectors.Keyed{Kind: detectors.KeyedTick, Generation: generation, Offset: int64(len(sc.log)), Prev: prev, Time: traffic.EndOfTime}
	if hits, err = p.Fold(progress.Add(time.Minute), &end, hits); err != nil {
		t.Fatal(err)
	}
	return hits
}

func identityOf(q *evidenceoracle.Request) traffic.Identity {
	return traffic.Identity{IP: netip.MustParseAddr(q.Fields["ip"]), Device: q.Fields["device"], User: q.Fields["user"]}
}

// refusing fails the test for each record that RECORD refuses.
type refusing struct{ t *testing.T }

func (r refusing) Put(_ context.Context, letters []traffic.DeadLetter) error {
	for _, l := range letters {
		r.t.Errorf("refused: %+v", l)
	}
	return nil
}

// record gives hits to RECORD, twice, since a record may come so.
func record(t rapid.TB, recorder *history.HitRecorder, hits []detectors.Hit) {
	batch := make([]traffic.Message, len(hits))
	for i := range hits {
		value, err := detectors.EncodeHit(&hits[i])
		if err != nil {
			t.Fatal(err)
		}
		batch[i] = traffic.Message{Offset: int64(i), Value: value}
	}
	for range 2 {
		if err := recorder.Apply(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
	}
}

// route stores what ROUTE tells of the log by the minute: of two routers, which took turns.
func (sc *scene) route(t rapid.TB, bed *historytest.Bed) {
	b := new(pgx.Batch)
	for _, table := range []string{"event_minutes", "rule_event_minutes", "uncounted_sums"} {
		b.Queue("DELETE FROM " + table)
	}
	for i, q := range sc.log {
		at, router := traffic.Time(q.At).Std().Truncate(time.Minute), fmt.Sprint("r", i%2)
		b.Queue(`INSERT INTO event_minutes (stream, router, part, minute, events, refused, unwatched, good, unjudged, seen) VALUES ('live', $1, $2, $3, 1, $4, 0, $5, $6, $3)`,
			router, i, at, one(q.Ours), one(q.Good == 2), one(q.Good == 0 && !q.Ours))
		if !q.Watched || q.Ours {
			continue
		}
		b.Queue(`INSERT INTO rule_event_minutes (stream, router, part, rule, minute, matched, seen) VALUES ('live', $1, $2, 'flood', $3, 1, $3)`, router, i, at)
		if evidenceoracle.Name(q.Fields, sc.rule.Key) == "" {
			b.Queue(`INSERT INTO uncounted_sums (stream, id, rule, reason, minute, seen, events) VALUES ('live', $1, 'flood', 'missing_field', $2, $2, 1)`, fmt.Sprint(i), at)
		}
	}
	if err := bed.SendBatch(context.Background(), b).Close(); err != nil {
		t.Fatal(err)
	}
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// drawOthers draws blocks of other rules.
func (sc *scene) drawOthers(t *rapid.T) (out []evidenceoracle.Held) {
	for range rapid.IntRange(0, 4).Draw(t, "others") {
		q := rapid.SampledFrom(sc.log).Draw(t, "whom")
		since := q.At - second*rapid.Int64Range(0, 100).Draw(t, "since")
		h := evidenceoracle.Held{Rule: rapid.SampledFrom([]string{"one", "two"}).Draw(t, "other"), Since: since, Until: since + second*rapid.Int64Range(1, 500).Draw(t, "lasts"),
			Fields: map[string]string{}}
		for _, f := range rapid.SampledFrom([][]string{{"ip"}, {"device"}, {"ip", "device"}, {"ip", "user"}}).Draw(t, "fields") {
			if v := q.Fields[f]; v != "" {
				h.Fields[f] = v
			}
		}
		if len(h.Fields) > 0 {
			out = append(out, h)
		}
	}
	return out
}

// decide stores them as ENFORCE's decisions.
func (sc *scene) decide(t *testing.T, bed *historytest.Bed, others []evidenceoracle.Held) {
	bed.Run(t, "DELETE FROM weir.block_decisions")
	for i, h := range others {
		since := traffic.Time(h.Since).Std()
		bed.Run(t, `INSERT INTO weir.block_decisions (stream, id, action, reason, rule, subject, hit, generation, since, until, at, decided_by)
			VALUES ('live', $1, 'written', '', $2, $3, 'h', 1, $4, $5, $4, 'x')`, fmt.Sprint(i), h.Rule, subjectOf(h.Fields), since, traffic.Time(h.Until).Std())
	}
}

// subjectOf is how weir writes a source.
func subjectOf(fields map[string]string) string {
	var parts []string
	for _, f := range []string{"ip", "device", "user"} {
		switch v := fields[f]; {
		case v == "":
		case f == "ip":
			parts = append(parts, "ip="+v+"%2F32")
		default:
			parts = append(parts, f+"="+v)
		}
	}
	return strings.Join(parts, "&")
}

// figure compares one that is to be known.
func figure(t rapid.TB, what string, got evidence.Count, want int) {
	t.Helper()
	if n, known := got.Known(); !known || int(n) != want {
		t.Fatalf("%s: %+v, want %d", what, got, want)
	}
}

// compareRequests compares what is told by the minute.
func (sc *scene) compareRequests(t rapid.TB, d *evidence.Dossier, truth *evidenceoracle.Truth) {
	t.Helper()
	if truth.All > 0 {
		figure(t, "all", d.Traffic.All, truth.All)
		figure(t, "refused by weir", d.Traffic.Refused, truth.Ours)
		figure(t, "matched", d.Traffic.Matched, truth.Matched)
		if got := d.KnownGood.EventCoverage; got.Part != int64(truth.All-truth.Ours-truth.Unjudged) || got.Whole != int64(truth.All-truth.Ours) {
			t.Fatalf("events judged: %+v, want %d of %d", got, truth.All-truth.Ours-truth.Unjudged, truth.All-truth.Ours)
		}
	}
	if truth.Matched+truth.Reached == 0 {
		return // nothing is told, and so nothing is known
	}
	figure(t, "counted", d.Traffic.Counted, truth.Counted)
	figure(t, "reached", d.Traffic.WithReach, truth.Reached)
	figure(t, "requests", d.Held.Requests, truth.Refused)
	if d.Held.Requests.State != evidence.Measured {
		t.Fatalf("requests: %+v, want them measured", d.Held.Requests)
	}
	if got := d.Held.ShareOfAll; got.Part != int64(truth.Refused) || got.Whole != int64(truth.All) {
		t.Fatalf("share %+v, want %d of %d", got, truth.Refused, truth.All)
	}
	if n, known := d.KnownGood.Requests.Known(); known && int(n) != truth.RefusedGood {
		t.Fatalf("requests of known-good sources: %+v, want %d", d.KnownGood.Requests, truth.RefusedGood)
	}
}

// compare compares everything of the whole log.
func (sc *scene) compare(t rapid.TB, d *evidence.Dossier, others []evidenceoracle.Held) {
	t.Helper()
	truth := sc.rule.Judge(sc.log, others, int64(d.Since), int64(d.Until))
	sc.compareRequests(t, d, &truth)
	if truth.Matched+truth.Reached == 0 {
		return
	}
	episodes, good, judged, held, users, devices := 0, 0, 0, 0, 0, 0
	for _, s := range truth.Sources {
		episodes += s.Episodes
	}
	for _, s := range truth.Blockable() {
		good, judged, held = good+one(s.Good), judged+one(s.Judged), held+one(len(s.HeldBy) > 0)
		users, devices = max(users, s.Users), max(devices, s.Devices)
	}
	figure(t, "sources", d.Held.Sources, len(truth.Blockable()))
	figure(t, "over", d.Held.Over, len(truth.Sources))
	figure(t, "episodes", d.Held.Episodes, episodes)
	if n, known := d.KnownGood.Sources.Known(); known && int(n) != good || known != (judged > 0 || len(truth.Blockable()) == 0) {
		t.Fatalf("known-good sources %+v, want %d of %d judged", d.KnownGood.Sources, good, judged)
	}
	if got := d.KnownGood.Coverage; int(got.Part) != judged || int(got.Whole) != len(truth.Blockable()) {
		t.Fatalf("coverage %+v, want %d of %d", got, judged, len(truth.Blockable()))
	}
	if got := d.Overlap.Sources; int(got.Part) != held {
		t.Fatalf("overlap %+v, want %d", d.Overlap, held)
	}
	if n, known := d.Behind.Users.Most.Known(); int(n) != users || known != (users > 0) {
		t.Fatalf("users %+v, want %d", d.Behind.Users, users)
	}
	if n, known := d.Behind.Devices.Most.Known(); known && int(n) != devices || known && slices.Contains(sc.rule.Block, "device") {
		t.Fatalf("devices %+v, want %d", d.Behind.Devices, devices)
	}
	sc.compareSources(t, d, &truth)
}

// compareSources compares each of them; all fit into the dossier's list.
func (sc *scene) compareSources(t rapid.TB, d *evidence.Dossier, truth *evidenceoracle.Truth) {
	if len(d.Top) != len(truth.Sources) {
		t.Fatalf("%d sources are listed, want %d: %+v", len(d.Top), len(truth.Sources), d.Top)
	}
	bySubject := map[string]*evidence.Source{}
	for i := range d.Top {
		bySubject[string(d.Top[i].Subject)] = &d.Top[i]
	}
	for _, want := range truth.Blockable() {
		got, listed := bySubject[subjectOf(want.Fields)]
		if !listed {
			t.Fatalf("%s is not listed: %+v", want.Name, d.Top)
		}
		plain := fmt.Sprint(got.Refused, got.Episodes, got.Events, got.Peak, got.First, got.Last, got.Users, got.Devices, got.KnownGood, got.HeldBy)
		known := map[[2]bool]string{{true, true}: "yes", {false, true}: "no", {false, false}: "not judged"}[[2]bool{want.Good, want.Judged}]
		if w := fmt.Sprint(want.Refused, want.Episodes, want.Events, want.Peak, traffic.Time(want.First), traffic.Time(want.Last), want.Users, want.Devices, known, want.HeldBy); plain != w {
			t.Fatalf("%s: %s, want %s", want.Name, plain, w)
		}
	}
}

// compareLimits asks about ten limits: what the dossier says of each is what the oracle finds with it, and a backtest of a rule that has it.
func (sc *scene) compareLimits(t rapid.TB, d *evidence.Dossier) {
	t.Helper()
	if _, known := d.Held.Requests.Known(); !known {
		return
	}
	var limits []int
	for i := range 10 {
		limits = append(limits, sc.rule.Limit+i)
	}
	tried := sc.backtest(t, limits)
	for i, limit := range limits {
		r := sc.rule
		r.Limit = limit
		truth, would, b := r.Judge(sc.log, nil, int64(d.Since), int64(d.Until)), d.At(int64(limit)), tried.Rules[i].Block
		figure(t, fmt.Sprint("sources at ", limit), would.Sources, len(truth.Blockable()))
		if slices.Equal(r.Key, r.Block) && int(b.Held) != len(truth.Blockable()) {
			t.Fatalf("limit %d: a backtest holds %d, the oracle %d", limit, b.Held, len(truth.Blockable()))
		}
		if would.Requests.State == evidence.Measured {
			figure(t, fmt.Sprint("requests at ", limit), would.Requests, truth.Refused)
			figure(t, fmt.Sprint("requests at ", limit), would.Requests, int(b.Refused))
		}
	}
}
