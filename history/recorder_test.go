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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/traffic"
)

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
	t.Parallel()
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
			good := b.Number(t, "SELECT count(*) FROM weir.hits_all WHERE id < $1", fmt.Sprintf("%032x", 1000))
			if good < int64(n) {
				t.Errorf("%d of %d good rows are stored", good, n)
			}
			stored := b.Number(t, `SELECT (SELECT count(*) FROM weir.hits_all) + (SELECT count(*) FROM weir.losses)
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
	t.Parallel()
	b := newBed(t)
	box := &letterBox{}
	registry := prometheus.NewRegistry()
	recorder, err := history.NewHitRecorder(b.Store, history.Live, "weir.hits", box, b.days(), registry)
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
	if rows := b.Number(t, "SELECT count(*) FROM weir.hits_all"); rows != 92 {
		t.Errorf("%d rows, want 92", rows)
	}
	want := map[string]float64{"hits": 92, "hits_beside": 0, "late_sums": 0, "uncounted_sums": 0, "rule_minutes": 0,
		"refusals": 0, "running": 0, "losses": 0, "audit": 0}
	if stored := rowsRecorded(t, registry); !reflect.DeepEqual(stored, want) {
		t.Errorf("counted %v, want %v", stored, want)
	}
	if len(box.letters) != 8 {
		t.Errorf("%d dead letters, want 4 that PostgreSQL refuses and 4 that do not decode", len(box.letters))
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

// rowsRecorded is what the metrics say was stored, by table.
func rowsRecorded(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != "weir_history_rows_recorded_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "table" {
					out[l.GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
	}
	return out
}

func TestBatchFailsWhole(t *testing.T) {
	t.Parallel()
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
		b.Run(t, "ALTER TABLE weir.hits RENAME TO elsewhere")
		box := &letterBox{}
		if err := b.hitRecorder(t, box).Apply(t.Context(), batch); err == nil || len(box.letters) > 0 {
			t.Errorf("a missing table is no fault of the data: %v, %d dead letters", err, len(box.letters))
		}
	})
}
