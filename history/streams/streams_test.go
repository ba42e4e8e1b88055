package streams_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

func TestStreams(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	ctx := t.Context()
	counts := streams.PartitionCounts{Requests: 1, Keyed: 4, Hits: 1, Budget: 1 << 40}
	live, err := b.Streams.Find(ctx, streams.Live)
	if err != nil {
		t.Fatal(err)
	}
	replay, err := b.Streams.Create(ctx, "replay/monday", counts)
	if err != nil {
		t.Fatal(err)
	}
	if replay.Generation == live.Generation || replay.Partitions != counts {
		t.Errorf("replay %+v beside live %+v", replay, live)
	}
	if _, err := b.Streams.Create(ctx, "replay/monday", counts); !errors.Is(err, streams.ErrExists) {
		t.Errorf("made twice: %v", err)
	}
	for _, bad := range []string{"", "Live", "replay/", "replay/a/b", "replay/.x", "replay/a b", "replay/a.b", "replay/_x", "replay/" + strings.Repeat("x", 81)} {
		if _, err := b.Streams.Create(ctx, bad, counts); err == nil {
			t.Errorf("stream %q was made", bad)
		}
	}
	if live.Partitions.Budget != detectors.DefaultBudget {
		t.Errorf("made without a budget: %d", live.Partitions.Budget)
	}
	if err := b.Streams.SetBudget(ctx, streams.Live, 1<<30, "ann"); err != nil {
		t.Fatal(err)
	}
	if live, err = b.Streams.Find(ctx, streams.Live); err != nil || live.Partitions.Budget != 1<<30 {
		t.Errorf("budget %d, %v", live.Partitions.Budget, err)
	}
	if entries, err := b.Audit.Of(ctx, "stream live", 0); err != nil || len(entries) != 1 || entries[0].Action != "budget" {
		t.Errorf("audit %+v, %v", entries, err)
	}
	if err := b.Streams.SetBudget(ctx, "replay/none", 1<<30, "ann"); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("budget of no stream: %v", err)
	}
	renewed, err := b.Streams.RecreateGeneration(ctx, streams.Live, 12, "ann", "topic was deleted")
	if err != nil || renewed <= replay.Generation {
		t.Errorf("generation after recreation %d, %v; want one above %d", renewed, err, replay.Generation)
	}
	// Any JSON, also what jsonb refuses.
	const summary = `{"file": "a\u0000b", "n": 1e400, "s": "\ud800"}`
	if err := b.Streams.Finish(ctx, "replay/monday", []byte(summary)); err != nil {
		t.Fatal(err)
	}
	all, err := b.Streams.List(ctx)
	if err != nil || len(all) != 2 || all[0].Name != "replay/monday" || string(all[0].Summary) != summary || all[0].Finished.IsZero() {
		t.Errorf("streams %+v, %v", all, err)
	}
	if err := b.Streams.Finish(ctx, "replay/none", []byte("{}")); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("finishing an unknown stream: %v", err)
	}
	if err := b.Streams.Delete(ctx, streams.Live); err == nil {
		t.Error("live was deleted")
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	id, secret, err := b.Streams.Secret(t.Context())
	if err != nil || secret == [16]byte{} {
		t.Fatalf("secret %q: %v", id, err)
	}
	again, err := b.Streams.SecretByID(t.Context(), id)
	if err != nil || again != secret {
		t.Errorf("by id another one: %v", err)
	}
	if _, err := b.Streams.SecretByID(t.Context(), "none"); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("unknown secret: %v", err)
	}
}
