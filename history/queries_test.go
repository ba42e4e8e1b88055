package history_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// record stores hits in a stream.
func (b *bed) record(t testing.TB, stream string, hits ...detectors.Hit) {
	t.Helper()
	box := &letterBox{}
	recorder, err := history.NewHitRecorder(b.Store, stream, "weir.hits", box, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := recorder.Apply(t.Context(), messages(t, hits...)); err != nil {
		t.Fatal(err)
	}
	if len(box.letters) > 0 {
		t.Fatalf("dead letters: %+v", box.letters)
	}
}

func subject(id traffic.Identity, v4, v6 uint8, fields ...traffic.Field) traffic.Subject {
	var key []traffic.KeyField
	for _, f := range fields {
		k := traffic.KeyField{Field: f}
		if f == traffic.FieldIP {
			k.V4, k.V6 = v4, v6
		}
		key = append(key, k)
	}
	s, _ := traffic.MakeSubject(&id, key)
	return s
}

func TestHitsBySource(t *testing.T) {
	b := newBed(t)
	subjects := []traffic.Subject{
		0: subject(traffic.Identity{IP: addr("192.0.2.1")}, 32, 64, traffic.FieldIP),
		1: subject(traffic.Identity{IP: addr("192.0.2.9")}, 24, 64, traffic.FieldIP),
		2: subject(traffic.Identity{IP: addr("2001:db8::1"), Device: "tv"}, 32, 64, traffic.FieldIP, traffic.FieldDevice),
		3: subject(traffic.Identity{User: "192.0.2.1"}, 0, 0, traffic.FieldUser),
		4: subject(traffic.Identity{Session: "a=b\x00"}, 0, 0, traffic.FieldSession),
		5: subject(traffic.Identity{}, 32, 64, traffic.FieldIP), // missing: ip without a value
		6: "",
		7: subject(traffic.Identity{Device: strings.Repeat("tv ", 30)}, 0, 0, traffic.FieldDevice),
		8: subject(traffic.Identity{Device: strings.Repeat("tv ", 30)}, 0, 0, traffic.FieldDevice).Stored(),
	}
	var hits []detectors.Hit
	for n, s := range subjects {
		h := hitNumber(n)
		h.Subject = s
		hits = append(hits, h)
	}
	b.record(t, history.Live, hits...)
	tests := []struct {
		source string
		want   []int64 // offsets
	}{
		{"ip=192.0.2.1", []int64{1, 0}},
		{"192.0.2.1", []int64{3, 1, 0}},
		{"::ffff:192.0.2.1", []int64{1, 0}},
		{"ip=192.0.2.0/24", []int64{1, 0}},
		{"192.0.2.0/25", []int64{0}},
		{"2001:db8::ffff", []int64{2}},
		{"2001:db8:1::1", nil},
		{"tv", []int64{2}},
		{"device=tv", []int64{2}},
		{"user=tv", nil},
		{"user=192.0.2.1", []int64{3}},
		{"session=a=b\x00", []int64{4}},
		{"session=a%3Db%00", []int64{4}},
		{"ip=192.0.2.1%2F32", []int64{0}},
		{"device=" + strings.Repeat("tv ", 30), []int64{8, 7}}, // a block's subject holds the digest
		{"device=" + strings.Repeat("tv%20", 30), []int64{8, 7}},
		{strings.Repeat("tv ", 30), []int64{8, 7}},
		{string(subject(traffic.Identity{Device: strings.Repeat("tv ", 30)}, 0, 0, traffic.FieldDevice).Stored()), []int64{8}},
		{"00:1b:44:11:3a:b7", nil},
		{"user=192.0.2.1&session=x", nil},
	}
	for _, tt := range tests {
		source, err := history.ParseSource(tt.source)
		if err != nil {
			t.Errorf("%q: %v", tt.source, err)
			continue
		}
		got, err := b.Hits(t.Context(), history.HitQuery{Source: &source})
		if err != nil {
			t.Fatal(err)
		}
		var offsets []int64
		for _, h := range got {
			offsets = append(offsets, h.Offset)
		}
		if !slices.Equal(offsets, tt.want) {
			t.Errorf("source %q finds %v, want %v", tt.source, offsets, tt.want)
		}
	}
	for _, bad := range []string{
		"", "ip=tv", "ip=", "user=", "a=b\x00", "foo=bar", "devcie=tv", "300.1.1.1", "192.0.2.0/33", "192.0.2.1/", "2001:db8::/129", "2001:db8:::1",
	} {
		if _, err := history.ParseSource(bad); err == nil {
			t.Errorf("source %q was taken", bad)
		}
	}
}

func TestHitsByRuleTimeAndStream(t *testing.T) {
	b := newBed(t)
	var hits []detectors.Hit
	for n := range 6 {
		h := hitNumber(n)
		h.Rule = []string{"even", "odd"}[n%2]
		hits = append(hits, h)
	}
	hits[5].Phase = detectors.PhaseMerged
	b.record(t, history.Live, hits...)
	b.record(t, "replay/monday", hits[:2]...)
	tests := []struct {
		name  string
		query history.HitQuery
		want  string
	}{
		{"all", history.HitQuery{}, "[4 3 2 1 1 0 0]"},
		{"live", history.HitQuery{Stream: "live"}, "[4 3 2 1 0]"},
		{"merged too", history.HitQuery{Stream: "live", Merged: true}, "[5 4 3 2 1 0]"},
		{"rule", history.HitQuery{Stream: "live", Rule: "even"}, "[4 2 0]"},
		{"replay", history.HitQuery{Stream: "replay/monday"}, "[1 0]"},
		{"since", history.HitQuery{Stream: "live", Since: hits[3].First}, "[4 3]"},
		{"until", history.HitQuery{Stream: "live", Until: hits[3].First}, "[2 1 0]"},
		{"limit", history.HitQuery{Stream: "live", Limit: 2}, "[4 3]"},
	}
	for _, tt := range tests {
		got, err := b.Hits(t.Context(), tt.query)
		if err != nil {
			t.Fatal(err)
		}
		var offsets []int64
		for _, h := range got {
			offsets = append(offsets, h.Offset)
		}
		if fmt.Sprint(offsets) != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, offsets, tt.want)
		}
	}
	if err := b.DeleteStream(t.Context(), "replay/monday"); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Hits(t.Context(), history.HitQuery{}); err != nil || len(got) != 5 {
		t.Errorf("after deleting the replay %d hits, %v; want those of live", len(got), err)
	}
}

func TestSummaryLateAndLosses(t *testing.T) {
	b := newBed(t)
	hits := []detectors.Hit{hitNumber(0), hitNumber(1), hitNumber(2), hitNumber(3)}
	hits[1].Subject = hits[0].Subject
	hits[2].Count, hits[2].Phase = 40, detectors.PhaseClosed
	hits[3].Phase = detectors.PhaseMerged
	late := func(n int, rule string, events int64) detectors.Hit {
		return detectors.Hit{Format: detectors.HitFormat, Kind: detectors.KindLate, ID: fmt.Sprint("late-", n), Rule: rule, Lineage: 1,
			Count: events, First: dawn.Add(time.Duration(n) * time.Minute), Last: dawn, Seen: dawn, Source: n, Keyed: 3}
	}
	loss := detectors.Hit{Format: detectors.HitFormat, Kind: detectors.KindLoss, ID: "loss", Generation: 1, Source: -1, Offset: 20, Keyed: 3,
		Count: 10, First: traffic.BeforeTime, Seen: dawn, Reason: "retention"}
	b.record(t, history.Live, append(hits, late(0, "flood", 5), late(1, "flood", 6), late(1, "flood", 7), late(2, "other", 1), loss, loss)...)

	summary, err := b.Summary(t.Context(), history.Live)
	want := []history.RuleSummary{{Rule: "flood", Episodes: 3, Sources: 2, Events: 42, Late: 12}, {Rule: "other", Late: 1}}
	if err != nil || !reflect.DeepEqual(summary, want) {
		t.Errorf("summary %+v, %v; want %+v", summary, err, want)
	}
	sums, err := b.Late(t.Context(), history.LateQuery{Rule: "flood", Since: dawn.Add(time.Second)})
	wantLate := []history.LateSum{{Stream: "live", Rule: "flood", Lineage: 1, Source: 1, Keyed: 3, Minute: dawn.Add(time.Minute), Latest: dawn, Events: 7}}
	if err != nil || !reflect.DeepEqual(sums, wantLate) {
		t.Errorf("late %+v, %v; want %+v", sums, err, wantLate)
	}
	losses, err := b.Losses(t.Context(), history.Live)
	wantLoss := []history.Loss{{Stream: "live", ID: "loss", Generation: 1, Source: -1, Offset: 20, Keyed: 3, Offsets: 10,
		Watermark: traffic.BeforeTime, Seen: dawn, Reason: "retention"}}
	if err != nil || !reflect.DeepEqual(losses, wantLoss) {
		t.Errorf("losses %+v, %v; want %+v", losses, err, wantLoss)
	}
}

// publishFormat publishes a routing version of the live stream with a record format.
func (b *bed) publishFormat(t testing.TB, format int) {
	t.Helper()
	_, _, err := b.PublishRouting(t.Context(), history.Live, func(*rules.Routing) (rules.Routing, error) {
		return rules.Routing{
			RecordFormat: format, SecretID: "s1", Identity: traffic.DefaultIdentityMap(), Format: rules.Format{Name: "weir", MaxEventBytes: 1 << 20},
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhatRulesDidNotCount(t *testing.T) {
	b := newBed(t)
	sum := func(n int, kind detectors.Kind, reason string, minute int, events int64) detectors.Hit {
		return detectors.Hit{Format: detectors.HitFormat, Kind: kind, ID: fmt.Sprint("sum-", n), Rule: "flood", Lineage: 1, Reason: reason,
			Count: events, First: dawn.Add(time.Duration(minute) * time.Minute), Last: dawn, Seen: dawn, Source: n, Keyed: 3}
	}
	late, early := sum(0, detectors.KindLate, "", 0, 5), sum(1, detectors.KindUncounted, "out_of_order", 1, 7)
	greater := early
	greater.Count = 9
	b.record(t, history.Live, late, greater, early, late)
	b.record(t, history.Live, early, sum(2, detectors.KindUncounted, "out_of_order", 2, 1))
	routed := []detectors.RoutedUncounted{
		{Router: "a", Rule: "flood", Reason: detectors.UncountedMissingField, Minute: dawn.Add(2 * time.Minute), Seen: dawn, Events: 40},
		{Router: "b", Rule: "flood", Reason: detectors.UncountedMissingField, Minute: dawn.Add(2 * time.Minute), Seen: dawn, Events: 2},
		{Router: "b", Rule: "other", Reason: detectors.UncountedMissingValue, Minute: dawn.Add(2 * time.Minute), Seen: dawn, Events: 3},
	}
	for _, events := range []int64{40, 44, 41} {
		routed[0].Events = events
		if err := b.StoreUncounted(t.Context(), history.Live, routed); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.StoreUncounted(t.Context(), "replay/monday", routed); err != nil {
		t.Fatal(err)
	}
	figures := func(stream string, since traffic.Time, rule string) history.Figures {
		t.Helper()
		n, err := b.NotCounted(t.Context(), stream, since)
		if err != nil {
			t.Fatal(err)
		}
		return n.Figures(rule)
	}
	unknown := history.UnknownFigures()
	unknown.Late = 5
	if got := figures(history.Live, 0, "flood"); got != unknown {
		t.Errorf("without a routing version %v, want %v", got, unknown)
	}
	b.publishFormat(t, rules.UncountedRecordFormat-1)
	began := traffic.At(time.Now())
	if got := figures(history.Live, 0, "flood"); got != unknown {
		t.Errorf("while processes may be there that do not tell %v, want %v", got, unknown)
	}
	b.publishFormat(t, rules.UncountedRecordFormat)
	if got := figures(history.Live, began, "flood").OutOfOrder; got != history.UnknownFigure {
		t.Errorf("in a time of which they were there a part: %v", got)
	}
	b.exec(t, "DELETE FROM weir.routing_versions WHERE number = 1")
	for _, tt := range []struct {
		since traffic.Time
		rule  string
		want  history.Figures
	}{
		{0, "flood", history.Figures{Late: 5, OutOfOrder: 10, MissingField: 46}},
		{dawn.Add(2 * time.Minute), "flood", history.Figures{OutOfOrder: 1, MissingField: 46}},
		{0, "other", history.Figures{MissingValue: 3}},
		{0, "none", history.Figures{}},
	} {
		if got := figures(history.Live, tt.since, tt.rule); got != tt.want {
			t.Errorf("%s since %v: %v, want %v", tt.rule, tt.since, got, tt.want)
		}
	}
	rows, err := b.Uncounted(t.Context(), history.UncountedQuery{Stream: history.Live, Rule: "flood", Since: dawn.Add(time.Minute)})
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprint(r.Reason, " ", r.Events, " ", r.Source != nil))
	}
	want := []string{"missing_field 2 false", "missing_field 44 false", "out_of_order 1 true", "out_of_order 9 true"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if rows, err = b.Uncounted(t.Context(), history.UncountedQuery{Reason: "late"}); err != nil || len(rows) != 1 || rows[0].Events != 5 {
		t.Errorf("late ones: %+v, %v", rows, err)
	}
	if err := b.DeleteStream(t.Context(), "replay/monday"); err != nil {
		t.Fatal(err)
	}
	if rows, err = b.Uncounted(t.Context(), history.UncountedQuery{Stream: "replay/monday"}); err != nil || len(rows) > 0 {
		t.Errorf("a replay that was deleted has left %+v, %v", rows, err)
	}
}

// What is not known is null, so that nobody takes it for 0.
func TestUnknownFiguresAreNull(t *testing.T) {
	f := history.UnknownFigures()
	f.Late = 3
	raw, err := json.Marshal(f)
	if want := `{"late":3,"out_of_order":null,"missing_field":null,"missing_value":null}`; err != nil || string(raw) != want {
		t.Fatalf("%s, %v; want %s", raw, err, want)
	}
	var again history.Figures
	if err := json.Unmarshal(raw, &again); err != nil || again != f {
		t.Errorf("read back %v, %v", again, err)
	}
}

func TestReleaseIsAuditedOnce(t *testing.T) {
	b := newBed(t)
	release := detectors.Hit{Format: detectors.HitFormat, Kind: detectors.KindRelease, ID: "r1", Rule: "flood", BlockSubject: "device=tv",
		By: "bob", Reason: "a school"}
	b.record(t, history.Live, release)
	b.record(t, history.Live, release, release)
	got, err := b.Audit(t.Context(), "block flood device=tv", 0)
	if err != nil || len(got) != 1 || got[0].Actor != "bob" || got[0].Action != "release" || got[0].Reason != "a school" {
		t.Errorf("audit %+v, %v", got, err)
	}
}

func TestActiveBlocks(t *testing.T) {
	b := newBed(t)
	recorder, err := history.NewDecisionRecorder(b.Store, history.Live, "weir.blocks", &letterBox{}, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	now := traffic.At(time.Now())
	n := 0
	var batch []traffic.Message
	decide := func(action blocklist.Action, who traffic.Subject, hit string, generation int64, at, until time.Duration) {
		n++
		value, err := blocklist.EncodeDecision(&blocklist.Decision{Format: blocklist.DecisionFormat, ID: fmt.Sprint(n), Action: action,
			Rule: "flood", Subject: who, Hit: hit, Generation: generation, At: now.Add(at), Until: now.Add(until)})
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, traffic.Message{Value: value})
	}
	const hour = time.Hour
	decide(blocklist.ActionWritten, "device=a", "h1", 1, -3*hour, hour)
	decide(blocklist.ActionExtended, "device=a", "h1", 1, -2*hour, 2*hour)
	decide(blocklist.ActionWritten, "device=a", "h2", 1, -hour, hour)
	decide(blocklist.ActionWritten, "device=b", "h3", 1, -3*hour, -hour) // expired
	decide(blocklist.ActionWithheld, "device=b", "h3", 1, -2*hour, hour)
	decide(blocklist.ActionWritten, "device=c", "h4", 1, -3*hour, hour)
	decide(blocklist.ActionReleased, "device=c", "h4", 1, -2*hour, 24*hour)
	decide(blocklist.ActionWritten, "device=d", "h5", 1, -3*hour, 5*hour)
	decide(blocklist.ActionWritten, "device=d", "h5", 3, -hour, hour)
	decide(blocklist.ActionReleased, "device=e", "", 1, -30*hour, -hour) // the tombstone is gone
	if err := recorder.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	read := func(released bool, limit int) []string {
		t.Helper()
		var got []string
		q := blocklist.ActiveQuery{Released: released, Limit: limit}
		for {
			page, err := b.ActiveBlocks(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) > limit {
				t.Fatalf("%d decisions in a page of %d", len(page), limit)
			}
			for i := range page {
				d := &page[i]
				got = append(got, fmt.Sprintf("%s %s %s/%d %s", d.Action, d.Subject, d.Hit, d.Generation, d.Until.Sub(now)))
				q.After = d
			}
			if len(page) < limit {
				return got
			}
		}
	}
	blocks := []string{
		"written device=d h5/1 5h0m0s", "extended device=a h1/1 2h0m0s", "written device=d h5/3 1h0m0s",
		"written device=c h4/1 1h0m0s", "written device=a h2/1 1h0m0s", "written device=a h1/1 1h0m0s",
	}
	for limit := 1; limit < 8; limit++ {
		if got := read(false, limit); !slices.Equal(got, blocks) {
			t.Errorf("blocks in pages of %d\n got %q\nwant %q", limit, got, blocks)
		}
		if got, want := read(true, limit), []string{"released device=c h4/1 24h0m0s"}; !slices.Equal(got, want) {
			t.Errorf("releases in pages of %d: got %q, want %q", limit, got, want)
		}
	}
}

// The reconciler never holds all blocks at once: it gets each of them, and none twice, in pages.
func TestActiveBlocksComeInPages(t *testing.T) {
	b := newBed(t)
	b.exec(t, `INSERT INTO `+b.Schema()+`.block_decisions
			(stream, id, action, reason, rule, subject, hit, generation, since, until, at, decided_by)
		SELECT 'live', md5(i::text), 'written', '', 'flood', 'device=tv-' || i, md5('h' || i), 1, now(),
			now() + (i / 1000 - 15) * interval '1 hour', now(), '' FROM generate_series(1, 20000) i`)
	seen := map[traffic.Subject]bool{}
	q := blocklist.ActiveQuery{Limit: 300} // less than end at one moment
	for {
		page, err := b.ActiveBlocks(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page {
			if seen[page[i].Subject] {
				t.Fatalf("%s is in two pages", page[i].Subject)
			}
			seen[page[i].Subject] = true
			q.After = &page[i]
		}
		if len(page) < q.Limit {
			break
		}
	}
	if len(seen) != 4001 { // those of 16000 and up: the others have ended
		t.Errorf("%d blocks in all pages, want 4001", len(seen))
	}
}
