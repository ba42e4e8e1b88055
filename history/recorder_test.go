package history_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/traffic"
)

// recordsOf draws the records that one episode may have sent, in the order of sending.
func recordsOf(r *rapid.T, n int) []detectors.Hit {
	h := hitNumber(n)
	var out []detectors.Hit
	for range rapid.IntRange(1, 5).Draw(r, "records") {
		out = append(out, h)
		h.Phase = detectors.PhaseUpdate
		h.Count += rapid.Int64Range(0, 3).Draw(r, "events")
		h.Peak += rapid.IntRange(0, 2).Draw(r, "peak")
		h.Last = h.Last.Add(rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(r, "last"))
		h.First = h.First.Add(-rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(r, "first"))
		h.Seen = h.Seen.Add(time.Second)
		h.Users += rapid.IntRange(0, 1).Draw(r, "users")
		h.Samples = rapid.SampledFrom([][]string{nil, h.Samples, {"a"}, {"a", "b"}, {"é"}}).Draw(r, "samples")
		h.Cut = h.Cut || rapid.Bool().Draw(r, "cut")
	}
	if last := &out[len(out)-1]; rapid.Bool().Draw(r, "ends") {
		last.Phase = rapid.SampledFrom([]detectors.Phase{detectors.PhaseClosed, detectors.PhaseMerged}).Draw(r, "end")
		if last.Phase == detectors.PhaseMerged {
			last.IntoID = fmt.Sprintf("%032x", n+1)
		}
	}
	return out
}

// naiveRow is what an episode's records amount to, read off all of them at once.
func naiveRow(records []detectors.Hit) history.RecordedHit {
	rank := map[detectors.Phase]int{detectors.PhaseOpen: 1, detectors.PhaseUpdate: 2, detectors.PhaseClosed: 3, detectors.PhaseMerged: 4}
	row := history.RecordedHit{Stream: history.Live, Hit: records[0], SeenFirst: records[0].Seen}
	evidence := detectors.Hit{Samples: []string{}}
	for _, h := range records {
		if rank[h.Phase] > rank[row.Phase] {
			row.Phase = h.Phase
		}
		row.Count, row.Peak = max(row.Count, h.Count), max(row.Peak, h.Peak)
		row.First, row.Last = min(row.First, h.First), max(row.Last, h.Last)
		row.Seen, row.SeenFirst = max(row.Seen, h.Seen), min(row.SeenFirst, h.Seen)
		row.Users, row.Cut = max(row.Users, h.Users), row.Cut || h.Cut
		row.IntoID = max(row.IntoID, h.IntoID)
		better := h.Count > evidence.Count || h.Count == evidence.Count && (rank[h.Phase] > rank[evidence.Phase] ||
			h.Phase == evidence.Phase && slices.Compare(h.Samples, evidence.Samples) > 0)
		if len(h.Samples) > 0 && (len(evidence.Samples) == 0 || better) {
			evidence = h
		}
	}
	row.Samples = evidence.Samples
	return row
}

// Whatever the order in which an episode's records are read, how often, and how they fall into batches: the row is the
// same, and it is what a look at all of them says.
func TestRecorderIsOrderFree(t *testing.T) {
	b := newBed(t)
	recorder := b.hitRecorder(t, &letterBox{})
	episode := 0
	rapid.Check(t, func(r *rapid.T) {
		episode += 2
		records := recordsOf(r, episode)
		given := slices.Clone(records)
		for range rapid.IntRange(0, 4).Draw(r, "again") {
			given = append(given, rapid.SampledFrom(records).Draw(r, "twice"))
		}
		given = rapid.Permutation(given).Draw(r, "order")
		for len(given) > 0 {
			n := rapid.IntRange(1, len(given)).Draw(r, "batch")
			if err := recorder.Apply(t.Context(), messages(t, given[:n]...)); err != nil {
				r.Fatal(err)
			}
			given = given[n:]
		}
		device, err := history.ParseSource(fmt.Sprintf("device=tv-%d", episode))
		if err != nil {
			r.Fatal(err)
		}
		rows, err := b.Hits(t.Context(), history.HitQuery{Source: &device, Merged: true})
		if err != nil || len(rows) != 1 {
			r.Fatalf("%d rows, %v", len(rows), err)
		}
		rows[0].Recorded = time.Time{}
		if want := naiveRow(records); !reflect.DeepEqual(rows[0], want) {
			r.Fatalf("\n got %+v\nwant %+v", rows[0], want)
		}
	})
}

func TestDuplicatesCostNoWrite(t *testing.T) {
	b := newBed(t)
	recorder := b.hitRecorder(t, &letterBox{})
	batch := messages(t, hitNumber(1), hitNumber(2))
	version := func() int64 { return b.number(t, "SELECT sum(xmin::text::bigint)::bigint FROM weir.hits") }
	if err := recorder.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	before := version()
	if err := recorder.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if after := version(); after != before {
		t.Error("records read again rewrote their rows")
	}
}

// hostile are values that stores have choked on.
func hostile() map[string]string {
	big := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(big); err != nil { // incompressible, so that no index can shrink it
		return nil
	}
	letters := bytes.Map(func(c rune) rune { return 'a' + c%26 }, big)
	return map[string]string{
		"NUL": "a\x00b", "invalid UTF-8": "a\xff\xfe\xc3(", "lone surrogate": "\xed\xa0\x80", "1 MB": string(letters), "bytes": string(big[:64<<10]),
		"JSON escapes": `{"a":"\u0000\ud800"}`, "deep": strings.Repeat("[", 100_000), "number": "1e999999999", "SQL": `'); DROP TABLE hits; --`, "backslash": `\N\.`,
	}
}

// Every field of a hit takes every hostile value, among good neighbours: the neighbours are stored, and the hostile one
// is stored too or, where PostgreSQL cannot, in the dead letters.
func TestHostileFields(t *testing.T) {
	fields := map[string]func(h *detectors.Hit, s string){
		"id":            func(h *detectors.Hit, s string) { h.ID = s },
		"rule":          func(h *detectors.Hit, s string) { h.Rule = s },
		"subject":       func(h *detectors.Hit, s string) { h.Subject = traffic.Subject(s) },
		"block_subject": func(h *detectors.Hit, s string) { h.BlockSubject = traffic.Subject(s) },
		"user": func(h *detectors.Hit, s string) {
			h.Subject, _ = traffic.MakeSubject(&traffic.Identity{User: s}, []traffic.KeyField{{Field: traffic.FieldUser}})
		},
		"sample":    func(h *detectors.Hit, s string) { h.Samples = []string{s, s} },
		"into":      func(h *detectors.Hit, s string) { h.IntoID = s },
		"phase":     func(h *detectors.Hit, s string) { h.Phase = detectors.Phase(s) },
		"loss":      func(h *detectors.Hit, s string) { h.Kind, h.By, h.Reason = detectors.KindLoss, s, s },
		"release":   func(h *detectors.Hit, s string) { h.Kind, h.By, h.Reason = detectors.KindRelease, s, s },
		"late":      func(h *detectors.Hit, s string) { h.Kind, h.Rule = detectors.KindLate, s },
		"uncounted": func(h *detectors.Hit, s string) { h.Kind, h.Rule, h.Reason = detectors.KindUncounted, s, s },
		"times":     func(h *detectors.Hit, _ string) { h.First, h.Last = traffic.BeforeTime, traffic.EndOfTime },
		"counts":    func(h *detectors.Hit, _ string) { h.Count, h.Limit, h.Source, h.Peak = 1<<63-1, -1<<63, 1<<62, -1 },
	}
	for field, set := range fields {
		t.Run(field, func(t *testing.T) {
			b := newBed(t)
			box := &letterBox{}
			recorder := b.hitRecorder(t, box)
			var batch []detectors.Hit
			n := 0
			for name, value := range hostile() {
				bad := hitNumber(1000 + n)
				set(&bad, value)
				if field == "id" {
					bad.ID = name + value
				}
				batch = append(batch, hitNumber(n), bad)
				n++
			}
			if err := recorder.Apply(t.Context(), messages(t, batch...)); err != nil {
				t.Fatal(err)
			}
			good := b.number(t, "SELECT count(*) FROM weir.hits WHERE id < $1", fmt.Sprintf("%032x", 1000))
			if good < int64(n) {
				t.Errorf("%d of %d good rows are stored", good, n)
			}
			stored := b.number(t, `SELECT (SELECT count(*) FROM weir.hits) + (SELECT count(*) FROM weir.losses)
				+ (SELECT count(*) FROM weir.late_sums) + (SELECT count(*) FROM weir.uncounted_sums) + (SELECT count(*) FROM weir.audit)`)
			if stored+int64(len(box.letters)) != int64(2*n) {
				t.Errorf("%d stored and %d dead letters of %d records", stored, len(box.letters), 2*n)
			}
			free := !slices.Contains([]string{"id", "rule", "late", "into", "phase"}, field)
			for _, l := range box.letters {
				if free || l.Topic != "weir.hits" || l.Stage != "record" || l.Detail == "" {
					t.Errorf("dead letter %s: %s %q", l.Topic, l.Reason, l.Detail)
				}
			}
		})
	}
}

func TestPoisonIsSingledOut(t *testing.T) {
	b := newBed(t)
	box := &letterBox{}
	registry := prometheus.NewRegistry()
	recorder, err := history.NewHitRecorder(b.Store, history.Live, "weir.hits", box, registry)
	if err != nil {
		t.Fatal(err)
	}
	var batch []traffic.Message
	for n := range 100 {
		h := hitNumber(n)
		if n == 0 || n == 41 || n == 42 || n == 99 {
			h.ID = "poison\x00"
		}
		m := message(t, h)
		m.Offset = int64(n)
		batch = append(batch, m)
	}
	batch[7].Value = []byte("not JSON")
	batch[8].Value = nil
	batch[9] = message(t, detectors.Hit{Kind: detectors.KindHit, ID: "x"})
	batch[10] = message(t, detectors.Hit{Format: detectors.HitFormat, ID: "x"})
	if err := recorder.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if rows := b.number(t, "SELECT count(*) FROM weir.hits"); rows != 92 {
		t.Errorf("%d rows, want 92", rows)
	}
	outcomes := counters(t, registry, "weir_record_records_total")
	want := map[string]float64{"stored": 92, "refused": 4, "malformed": 4}
	if !reflect.DeepEqual(outcomes, want) {
		t.Errorf("counted %v, want %v", outcomes, want)
	}
	var refused []int64
	for _, l := range box.letters {
		if l.Reason == "refused" {
			refused = append(refused, l.Offset)
		}
	}
	if !slices.Equal(refused, []int64{0, 41, 42, 99}) {
		t.Errorf("refused offsets %v", refused)
	}
}

func counters(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" {
					out[l.GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
	}
	return out
}

func TestBatchFailsWhole(t *testing.T) {
	b := newBed(t)
	batch := messages(t, hitNumber(1))
	t.Run("no server", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.hitRecorder(t, &letterBox{}).Apply(ctx, batch); err == nil {
			t.Error("a batch that was not stored counts as done")
		}
	})
	t.Run("no dead letters", func(t *testing.T) {
		boom := errors.New("boom")
		poison := append(batch, traffic.Message{Value: []byte("{")})
		if err := b.hitRecorder(t, &letterBox{err: boom}).Apply(t.Context(), poison); !errors.Is(err, boom) {
			t.Errorf("got %v, want the dead letters' own error", err)
		}
	})
	t.Run("schema gone", func(t *testing.T) {
		b.exec(t, "ALTER TABLE weir.hits RENAME TO elsewhere")
		box := &letterBox{}
		if err := b.hitRecorder(t, box).Apply(t.Context(), batch); err == nil || len(box.letters) > 0 {
			t.Errorf("a missing table is no fault of the data: %v, %d dead letters", err, len(box.letters))
		}
	})
}

func TestDecisionRecorder(t *testing.T) {
	b := newBed(t)
	box := &letterBox{}
	registry := prometheus.NewRegistry()
	if _, err := history.NewHitRecorder(b.Store, history.Live, "weir.hits", box, registry); err != nil {
		t.Fatal(err) // both share the registry of a process
	}
	recorder, err := history.NewDecisionRecorder(b.Store, history.Live, "weir.blocks", box, registry)
	if err != nil {
		t.Fatal(err)
	}
	early := blocklist.Decision{Format: blocklist.DecisionFormat, ID: "1", Action: blocklist.ActionWithheld, Reason: "max_lag\x00", Rule: "flood",
		Subject: "ip=192.0.2.7%2F32", Hit: "h", Generation: 2, Since: dawn, Until: traffic.EndOfTime, At: dawn.Add(time.Second)}
	late := early
	late.At, late.Reason = dawn.Add(time.Minute), "never_block"
	plain := blocklist.Decision{Format: blocklist.DecisionFormat, ID: "2", Action: blocklist.ActionReleased, At: dawn}
	poison := plain
	poison.ID = "\x00"
	for _, batch := range [][]blocklist.Decision{{late, plain}, {early, poison}, {late, early, late}} {
		var msgs []traffic.Message
		for _, d := range batch {
			value, err := blocklist.EncodeDecision(&d)
			if err != nil {
				t.Fatal(err)
			}
			msgs = append(msgs, traffic.Message{Value: value})
		}
		if err := recorder.Apply(t.Context(), append(msgs, traffic.Message{Value: []byte("[")})); err != nil {
			t.Fatal(err)
		}
	}
	got, err := b.Decisions(t.Context(), history.DecisionQuery{})
	if err != nil || len(got) != 2 {
		t.Fatalf("%d decisions, %v", len(got), err)
	}
	early.Reason = `max_lag\x00`
	if got[0].Decision != early || got[1].Decision != plain {
		t.Errorf("got %+v and %+v", got[0].Decision, got[1].Decision)
	}
	if len(box.letters) != 4 || box.letters[1].Reason != "malformed" || box.letters[2].Reason != "refused" {
		t.Errorf("dead letters %+v", box.letters)
	}
}
