// Package historytest gives tests of history, and of the packages below it, a migrated schema with a live stream.
package historytest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/migrations"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// Schema is the name of every test's schema: each test has a database of its own.
const Schema = "weir"

// Bed is a store of a migrated schema with a live stream, and a plain connection beside it.
type Bed struct {
	*history.Store
	URL  string
	Conn *pgx.Conn
}

// Config is the configuration of a test's database.
func Config(url string) postgres.Config {
	return postgres.Config{URL: url, Schema: Schema, Logger: slog.New(slog.DiscardHandler)}
}

// Open opens a store, which the end of the test closes.
func Open(t testing.TB, url string) *history.Store {
	t.Helper()
	s, err := history.Open(t.Context(), Config(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// New makes a bed in a new database.
func New(t testing.TB) *Bed {
	t.Helper()
	return at(t, testbed.PostgresCopy(t, formOf(t, counts()), prepare))
}

// Migrated returns the URL of a new database that has schema as weir migrate makes it, with the tables of the days that
// are ahead, a deployment secret of its own, and nothing in it. An installation's first weir migrate goes on from
// there: what it costs PostgreSQL is paid once for all tests of a day.
func Migrated(t testing.TB, schema string) string {
	t.Helper()
	url := testbed.PostgresCopy(t, formOf(t, retention.DayOf(now())), migrateWithDays)
	if err := take(t.Context(), url, schema); err != nil {
		t.Fatalf("a copy of the migrated schema: %v", err)
	}
	return url
}

// take gives the copied schema the name that a test asks for, and a new secret. Functions hold the name that the schema had.
func take(ctx context.Context, url, schema string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if err := migrations.CheckSchema(schema); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf(`
		ALTER SCHEMA %[1]s RENAME TO %[2]q;
		UPDATE %[2]q.secrets SET value = decode(md5(gen_random_uuid()::text), 'hex');
		DO $$ DECLARE f regprocedure;
		BEGIN
			FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = '%[2]q'::regnamespace AND proconfig IS NOT NULL LOOP
				EXECUTE format('ALTER FUNCTION %%s SET search_path = %[2]q', f);
			END LOOP;
		END $$`, Schema, schema))
	return err
}

// counts are of the live stream's topics.
func counts() streams.PartitionCounts { return streams.PartitionCounts{Requests: 4, Keyed: 8, Hits: 2} }

// formOf names what is made of an empty database: the migrations, and what comes with them.
func formOf(t testing.TB, with any) string {
	t.Helper()
	steps, err := migrations.Steps()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(with)
	for _, step := range steps {
		text += step.Checksum
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// migrate makes the schema in an empty database.
func migrate(url string) error {
	s, err := history.Open(context.Background(), Config(url))
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Migrate(context.Background())
}

// migrateWithDays is migrate with the days' tables, as weir migrate makes them.
func migrateWithDays(url string) error {
	if err := migrate(url); err != nil {
		return err
	}
	ctx := context.Background()
	s, err := history.Open(ctx, Config(url))
	if err != nil {
		return err
	}
	defer s.Close()
	return retention.NewDays(s, 0, now).Ahead(ctx)
}

func now() traffic.Time { return traffic.At(time.Now()) }

// prepare makes the schema and the live stream in an empty database.
func prepare(url string) error {
	if err := migrate(url); err != nil {
		return err
	}
	ctx := context.Background()
	s, err := history.Open(ctx, Config(url))
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Streams.Create(ctx, streams.Live, counts()); err != nil && !errors.Is(err, streams.ErrExists) {
		return err
	}
	return nil
}

// at is the bed in a database that was prepared.
func at(t testing.TB, url string) *Bed {
	t.Helper()
	b := &Bed{URL: url, Store: Open(t, url)}
	conn, err := pgx.Connect(t.Context(), b.URL)
	if err != nil {
		t.Fatal(err)
	}
	b.Conn = conn
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// Run runs SQL beside the store.
func (b *Bed) Run(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := b.Conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Number runs SQL that gives one number.
func (b *Bed) Number(t testing.TB, sql string, args ...any) (n int64) {
	t.Helper()
	if err := b.Conn.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// Routing is a routing version without rules, as weir migrate makes the first one.
func Routing() rules.Routing {
	return rules.Routing{
		RecordFormat: detectors.RecordFormat, SecretID: "s1", Identity: traffic.DefaultIdentityMap(),
		Format: rules.Format{Name: format.Weir, MaxEventBytes: 1 << 20},
	}
}

// Publish gives the live stream another format, in its first routing version or the next one.
func (b *Bed) Publish(t testing.TB, format rules.Format) {
	t.Helper()
	_, _, err := b.Rules.PublishRouting(t.Context(), streams.Live, func(prev *rules.Routing) (rules.Routing, error) {
		next := Routing()
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

// PublishRecordFormat publishes a routing version without rules, for builds that know record format.
func (b *Bed) PublishRecordFormat(t testing.TB, format int) {
	t.Helper()
	_, _, err := b.Rules.PublishRouting(t.Context(), streams.Live, func(*rules.Routing) (rules.Routing, error) {
		next := Routing()
		next.RecordFormat = format
		return next, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Document is a rule of five requests a minute for an address and device.
func Document(id string) rules.Document {
	key := []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}, {Field: traffic.FieldDevice}}
	return rules.Document{
		ID: id, Owner: "identity", Match: rules.Match{Methods: []string{"POST"}, Path: "/v1/guest-tokens"}, Key: key,
		Missing: rules.MissingSkip, Limit: 5, Window: time.Minute, Lateness: time.Minute, MaxLag: time.Minute,
		Block: &rules.Block{Key: key, TTL: 15 * time.Minute, Extend: rules.ExtendOnHit},
	}
}

// Documents are docs as rulestore.Store.Apply takes them.
func Documents(docs ...rules.Document) []rulestore.Document {
	out := make([]rulestore.Document, len(docs))
	for i, d := range docs {
		out[i] = rulestore.Document{Document: d, Source: "id: " + d.ID + "\n"}
	}
	return out
}

// Apply makes the stored rules those of docs.
func (b *Bed) Apply(t testing.TB, docs ...rules.Document) rulestore.Plan {
	t.Helper()
	plan, err := b.Rules.Apply(t.Context(), Documents(docs...), "ann", "test", rulestore.ApplyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
