package history_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// bed is a migrated store with a live stream.
type bed struct{ *historytest.Bed }

func newBed(t testing.TB) *bed {
	t.Helper()
	return &bed{historytest.New(t)}
}

// letterBox keeps dead letters.
type letterBox struct {
	letters []traffic.DeadLetter
	err     error
}

var _ history.DeadLetters = (*letterBox)(nil)

func (l *letterBox) Put(_ context.Context, letters []traffic.DeadLetter) error {
	if l.err != nil {
		return l.err
	}
	l.letters = append(l.letters, letters...)
	return nil
}

func (b *bed) hitRecorder(t testing.TB, box *letterBox) *history.HitRecorder {
	t.Helper()
	r, err := history.NewHitRecorder(b.Store, history.Live, "weir.hits", box, b.days(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// days are those of a process whose clock is a month after dawn.
func (b *bed) days() *retention.Days {
	return retention.NewDays(b.Store, 0, func() traffic.Time { return dawn.Add(30 * 24 * time.Hour) })
}

var dawn = traffic.At(time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC))

// hitNumber is an episode of its own.
func hitNumber(n int) detectors.Hit {
	subject := traffic.Subject(fmt.Sprintf("ip=192.0.2.%d%%2F32&device=tv-%d", n%250, n))
	at := dawn.Add(time.Duration(n) * time.Second)
	return detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: fmt.Sprintf("%032x", n), Rule: "flood", RuleVersion: 1, Lineage: 1,
		Phase: detectors.PhaseOpen, Subject: subject, BlockSubject: subject, Limit: 2, WindowMS: 60_000, Count: 1, Peak: 3,
		Opened: at, First: at, Last: at, Seen: at.Add(time.Second), Generation: 1, Source: 2, Offset: int64(n), Keyed: 3, Users: 1, Devices: 1,
		Samples: []string{`{"path":"/v1/guest-tokens"}`},
	}
}

func message(t testing.TB, h detectors.Hit) traffic.Message {
	t.Helper()
	value, err := detectors.EncodeHit(&h)
	if err != nil {
		t.Fatal(err)
	}
	return traffic.Message{Value: value}
}

func messages(t testing.TB, hits ...detectors.Hit) []traffic.Message {
	t.Helper()
	batch := make([]traffic.Message, len(hits))
	for i, h := range hits {
		batch[i] = message(t, h)
		batch[i].Offset = int64(i)
	}
	return batch
}

// record stores hits in a stream.
func (b *bed) record(t testing.TB, stream string, hits ...detectors.Hit) {
	t.Helper()
	box := &letterBox{}
	var days history.Days
	if stream == history.Live {
		days = b.days()
	}
	recorder, err := history.NewHitRecorder(b.Store, stream, "weir.hits", box, days, prometheus.NewRegistry())
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

// offsets are those of the hits that a query finds.
func (b *bed) offsets(t *testing.T, q history.HitQuery) []int64 {
	t.Helper()
	hits, err := b.Hits(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var offsets []int64
	for i := range hits {
		offsets = append(offsets, hits[i].Offset)
	}
	return offsets
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestHitsView(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	h := hitNumber(1)
	h.First, h.Last = traffic.BeforeTime, traffic.EndOfTime
	b.record(t, history.Live, h)
	var phase, ip, device, window, first, last string
	err := b.Conn.QueryRow(t.Context(), `SELECT phase, ip::text, device, window_length::text, first::text, last::text
		FROM weir.hits_v`).Scan(&phase, &ip, &device, &window, &first, &last)
	if err != nil || phase != "open" || ip != "192.0.2.1/32" || device != "tv-1" || window != "00:01:00" || first != "-infinity" || last != "infinity" {
		t.Errorf("%s %s %s %s %s %s, %v", phase, ip, device, window, first, last, err)
	}
	rows, err := b.Hits(t.Context(), history.HitQuery{})
	if err != nil || len(rows) != 1 || rows[0].First != traffic.BeforeTime || rows[0].Last != traffic.EndOfTime {
		t.Errorf("read back %+v, %v", rows, err)
	}
}

// Every example of docs/history.md runs.
func TestDocumentedQueries(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "history.md"))
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t)
	b.Publish(t, rules.Format{Name: "weir"})
	b.Apply(t, historytest.Document("flood"))
	b.record(t, history.Live, hitNumber(1), hitNumber(2))
	b.Run(t, "SET search_path TO weir")
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 5 {
		t.Fatalf("%d examples found", len(blocks))
	}
	for _, block := range blocks {
		b.Run(t, block[1])
	}
}
