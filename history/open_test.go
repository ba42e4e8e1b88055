package history_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

const schema = "weir"

// bed is a migrated store with a live stream, and a plain connection beside it.
type bed struct {
	*history.Store
	url  string
	conn *pgx.Conn
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newStore(t testing.TB, url string) *history.Store {
	t.Helper()
	s, err := history.Open(t.Context(), history.Config{URL: url, Schema: schema, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func newBed(t testing.TB) *bed {
	t.Helper()
	b := &bed{url: testbed.Postgres(t)}
	b.Store = newStore(t, b.url)
	if err := b.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.CreateStream(t.Context(), history.Live, history.PartitionCounts{Requests: 4, Keyed: 8, Hits: 2}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), b.url)
	if err != nil {
		t.Fatal(err)
	}
	b.conn = conn
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// exec runs SQL beside the store.
func (b *bed) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := b.conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// number runs SQL that gives one number.
func (b *bed) number(t testing.TB, sql string, args ...any) (n int64) {
	t.Helper()
	if err := b.conn.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// routing is a routing version without rules, as weir migrate makes the first one.
func routing() rules.Routing {
	return rules.Routing{
		RecordFormat: detectors.RecordFormat, SecretID: "s1", Identity: traffic.DefaultIdentityMap(),
		Format: rules.Format{Name: format.Weir, MaxEventBytes: 1 << 20},
	}
}

// publish gives the live stream a routing version without rules.
func (b *bed) publish(t testing.TB, format rules.Format) {
	t.Helper()
	_, _, err := b.PublishRouting(t.Context(), history.Live, func(prev *rules.Routing) (rules.Routing, error) {
		next := routing()
		if prev != nil {
			next = *prev
		}
		next.Format = format
		next.Format.MaxEventBytes = 1 << 20
		return next, nil
	})
	if err != nil {
		t.Fatal(err)
	}
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
	r, err := history.NewHitRecorder(b.Store, history.Live, "weir.hits", box, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var dawn = traffic.At(time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC))

// hitNumber is an episode of its own.
func hitNumber(n int) detectors.Hit {
	subject := traffic.Subject(fmt.Sprintf("ip=192.0.2.%d%%2F32&device=tv-%d", n%250, n))
	at := dawn.Add(time.Duration(n) * time.Second)
	return detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: fmt.Sprintf("%032x", n), Rule: "flood", RuleVersion: 1, Lineage: 1,
		Phase: detectors.PhaseOpen, Subject: subject, BlockSubject: subject, Limit: 2, WindowMS: 60_000, Count: 1, Peak: 3,
		First: at, Last: at, Seen: at.Add(time.Second), Generation: 1, Source: 2, Offset: int64(n), Keyed: 3, Users: 1, Devices: 1,
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
