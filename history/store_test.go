package history_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/internal/testbed"
)

func TestOpenRefusesBadConfiguration(t *testing.T) {
	const password = "hunter2"
	tests := []struct{ name, url, schema, want string }{
		{"no URL at all", "host=localhost password=" + password, schema, "postgres://USER:PASSWORD"},
		{"unescaped password", "postgres://weir:" + password + "#x@localhost/weir", schema, "percent-encoded"},
		{"bad escape", "postgres://weir:" + password + "%zz@localhost/weir", schema, "percent-encoded"},
		{"bad port", "postgres://weir:" + password + "@localhost:99999/weir", schema, "localhost"},
		{"bad sslmode", "postgres://weir:" + password + "@localhost/weir?sslmode=maybe", schema, "sslmode"},
		{"schema", "postgres://weir:" + password + "@localhost/weir", "no-good", `"no-good"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := history.Open(t.Context(), history.Config{URL: tt.url, Schema: tt.schema, Logger: quiet()})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want something with %q", err, tt.want)
			}
			if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the password is told, or there is more than one line: %q", err)
			}
		})
	}
}

func TestUnreachableIsOneLine(t *testing.T) {
	// A port that was free a moment ago: nobody listens there.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := url.Parse(testbed.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	noDatabase := *good
	noDatabase.Path = "/nobody_made_this"
	tests := []struct{ name, url, address, want string }{
		{"nobody listens", "postgres://weir:hunter2@" + dead + "/weir", dead, "connection refused"},
		{"no such database", noDatabase.String(), good.Host, "create the database"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t, tt.url)
			err := s.WaitReady(t.Context(), 300*time.Millisecond)
			var unreachable *history.UnreachableError
			if !errors.As(err, &unreachable) {
				t.Fatalf("got %v, want UnreachableError", err)
			}
			text := err.Error()
			if !strings.Contains(text, tt.address) || !strings.Contains(text, tt.want) {
				t.Errorf("%q names not both %s and %q", text, tt.address, tt.want)
			}
			if strings.Contains(text, "hunter2") || strings.Contains(text, "\n") {
				t.Errorf("the password is told, or there is more than one line: %q", text)
			}
		})
	}
}

func TestWaitReadyWaitsForMigrate(t *testing.T) {
	s := newStore(t, testbed.Postgres(t))
	if err := s.Ping(t.Context()); !errors.Is(err, history.ErrNotMigrated) {
		t.Fatalf("an empty database: got %v, want ErrNotMigrated", err)
	}
	ready := make(chan error, 1)
	go func() { ready <- s.WaitReady(t.Context(), time.Minute) }()
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
}

func TestStreams(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	counts := history.PartitionCounts{Requests: 1, Keyed: 4, Hits: 1, Budget: 1 << 40}
	live, err := b.Stream(ctx, history.Live)
	if err != nil {
		t.Fatal(err)
	}
	replay, err := b.CreateStream(ctx, "replay/monday", counts)
	if err != nil {
		t.Fatal(err)
	}
	if replay.Generation == live.Generation || replay.Partitions != counts {
		t.Errorf("replay %+v beside live %+v", replay, live)
	}
	if _, err := b.CreateStream(ctx, "replay/monday", counts); !errors.Is(err, history.ErrStreamExists) {
		t.Errorf("made twice: %v", err)
	}
	for _, bad := range []string{"", "Live", "replay/", "replay/a/b", "replay/.x", "replay/a b"} {
		if _, err := b.CreateStream(ctx, bad, counts); err == nil {
			t.Errorf("stream %q was made", bad)
		}
	}
	if live.Partitions.Budget != detectors.DefaultBudget {
		t.Errorf("made without a budget: %d", live.Partitions.Budget)
	}
	if err := b.SetBudget(ctx, history.Live, 1<<30, "ann"); err != nil {
		t.Fatal(err)
	}
	if live, err = b.Stream(ctx, history.Live); err != nil || live.Partitions.Budget != 1<<30 {
		t.Errorf("budget %d, %v", live.Partitions.Budget, err)
	}
	if entries, err := b.Audit(ctx, "stream live", 0); err != nil || len(entries) != 1 || entries[0].Action != "budget" {
		t.Errorf("audit %+v, %v", entries, err)
	}
	if err := b.SetBudget(ctx, "replay/none", 1<<30, "ann"); !errors.Is(err, history.ErrNotFound) {
		t.Errorf("budget of no stream: %v", err)
	}
	renewed, err := b.RecreateGeneration(ctx, history.Live, 12, "ann", "topic was deleted")
	if err != nil || renewed <= replay.Generation {
		t.Errorf("generation after recreation %d, %v; want one above %d", renewed, err, replay.Generation)
	}
	// Any JSON, also what jsonb refuses.
	const summary = `{"file": "a\u0000b", "n": 1e400, "s": "\ud800"}`
	if err := b.FinishStream(ctx, "replay/monday", []byte(summary)); err != nil {
		t.Fatal(err)
	}
	all, err := b.ListStreams(ctx)
	if err != nil || len(all) != 2 || all[0].Name != "replay/monday" || string(all[0].Summary) != summary || all[0].Finished.IsZero() {
		t.Errorf("streams %+v, %v", all, err)
	}
	if err := b.FinishStream(ctx, "replay/none", []byte("{}")); !errors.Is(err, history.ErrNotFound) {
		t.Errorf("finishing an unknown stream: %v", err)
	}
	if err := b.DeleteStream(ctx, history.Live); err == nil {
		t.Error("live was deleted")
	}
}

func TestSecret(t *testing.T) {
	b := newBed(t)
	id, secret, err := b.Secret(t.Context())
	if err != nil || secret == [16]byte{} {
		t.Fatalf("secret %q: %v", id, err)
	}
	again, err := b.SecretByID(t.Context(), id)
	if err != nil || again != secret {
		t.Errorf("by id another one: %v", err)
	}
	if _, err := b.SecretByID(t.Context(), "none"); !errors.Is(err, history.ErrNotFound) {
		t.Errorf("unknown secret: %v", err)
	}
}

// A schema is known by its making: one that is dropped and made again is another, and so is that of somebody else.
func TestOrigin(t *testing.T) {
	url := testbed.Postgres(t)
	s := newStore(t, url)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	exec := func(statement string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	origin := func(want string) string {
		t.Helper()
		got, err := s.Origin(t.Context())
		if err != nil || want != "*" && got != want {
			t.Errorf("origin %q, %v, want %q", got, err, want)
		}
		return got
	}
	exec("DROP SCHEMA IF EXISTS " + s.Schema() + " CASCADE")
	origin("")
	exec("CREATE SCHEMA " + s.Schema())
	origin("")
	exec("CREATE TABLE " + s.Schema() + ".wine (year int)")
	origin("unknown")
	made := map[string]bool{}
	for range 2 {
		exec("DROP SCHEMA " + s.Schema() + " CASCADE")
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := origin("*")
		origin(first)
		made[first] = true
	}
	if len(made) != 2 || made[""] || made["unknown"] {
		t.Errorf("origins %v", made)
	}
}
