package stream

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// A migration behind another one takes as long as that does: the time that a server is waited for passes meanwhile, and ends nothing.
func TestAMigrationOutlastsTheWaitForItsServer(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	c := config.Default()
	c.Namespace = historytest.Schema
	m := NewMigration(c, b.Store, nil, "", MigrateOptions{})
	patient, pass := context.WithCancel(t.Context())
	m.patience = func(context.Context) (context.Context, context.CancelFunc) { return patient, pass }

	b.Run(t, "SELECT pg_advisory_lock(hashtextextended($1, 0))", "weir migrate "+c.Namespace)
	done := make(chan error, 1)
	go func() { done <- m.makeSchema(t.Context()) }()
	testbed.Eventually(t, 20*time.Second, func() error {
		select {
		case err := <-done:
			t.Fatalf("%v: it did not wait", err)
		default:
		}
		if b.Number(t, `SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
			WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted`) == 0 {
			return errors.New("nobody waits")
		}
		return nil
	})
	pass()
	b.Run(t, "SELECT pg_advisory_unlock_all()")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if want := []string{"schema weir in PostgreSQL: nothing to do"}; !slices.Equal(m.Done(), want) {
		t.Errorf("it says %q, want %q", m.Done(), want)
	}
}

func TestShorterThanRouted(t *testing.T) {
	routed := func(offsets ...int64) map[int]*ingest.Announcement {
		out := map[int]*ingest.Announcement{}
		for p, o := range offsets {
			out[p] = &ingest.Announcement{Offset: o}
		}
		return out
	}
	for _, tc := range []struct {
		name    string
		log     map[int]ingest.Bounds
		commits map[int]*ingest.Announcement
		want    bool
	}{
		{"as it was", map[int]ingest.Bounds{0: {End: 10}, 1: {End: 20}}, routed(10, 15), false},
		{"made anew and empty", map[int]ingest.Bounds{0: {}, 1: {}}, routed(10, 15), true},
		{"made anew, one partition never used", map[int]ingest.Bounds{0: {End: 3}, 1: {}}, routed(10, 0), true},
		{"one partition lost its end", map[int]ingest.Bounds{0: {End: 5}, 1: {End: 20}}, routed(10, 15), false},
		{"shorter but not from its beginning", map[int]ingest.Bounds{0: {Start: 2, End: 5}, 1: {}}, routed(10, 15), false},
		{"nothing was routed", map[int]ingest.Bounds{0: {}, 1: {}}, routed(0, 0), false},
		{"no commits", map[int]ingest.Bounds{0: {}, 1: {}}, nil, false},
		{"one lost its end, the other its commit", map[int]ingest.Bounds{0: {End: 5}, 1: {End: 20}}, routed(10), false},
		{"one made anew and empty, without a commit", map[int]ingest.Bounds{0: {End: 5}, 1: {}}, routed(10), true},
	} {
		if got := shorterThanRouted(tc.log, tc.commits); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}
