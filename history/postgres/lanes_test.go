package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/internal/testbed"
)

// laned is a database with one connection for each lane.
func laned(t *testing.T, timeout time.Duration) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{
		URL: testbed.Postgres(t), Schema: historytest.Schema, MaxConns: 1,
		Logger: slog.New(slog.DiscardHandler),
		Lanes:  map[postgres.Lane]postgres.LaneConfig{postgres.Questions: {MaxConns: 1, Timeout: timeout}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// TestNoLaneWaitsForAnother takes each lane's only connection, and more wait for it: the other lane answers.
func TestNoLaneWaitsForAnother(t *testing.T) {
	t.Parallel()
	db := laned(t, time.Hour)
	for _, l := range []struct{ taken, free postgres.Lane }{
		{postgres.Questions, postgres.Work}, {postgres.Work, postgres.Questions},
		{postgres.Questions, postgres.Evidence}, // which has none of its own, and so those of Work
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		for range 3 {
			asking.Go(func() {
				if _, err := db.Exec(postgres.In(ctx, l.taken), "SELECT pg_sleep(60)"); ctx.Err() == nil {
					t.Errorf("a question of %v ended with %v", l.taken, err)
				}
			})
		}
		testbed.Eventually(t, 10*time.Second, func() error {
			if lent, most := db.InUse(l.taken); lent < most {
				return errors.New("its connection is free")
			}
			return nil
		})
		within, stop := context.WithTimeout(postgres.In(t.Context(), l.free), 40*time.Second)
		var one int
		if err := db.QueryRow(within, "SELECT 1").Scan(&one); err != nil {
			t.Errorf("while %v is taken, %v gets %v", l.taken, l.free, err)
		}
		stop()
		cancel()
		asking.Wait()
	}
}

func TestAStatementThatTakesLongerThanItsLaneAllowsIsGivenUp(t *testing.T) {
	t.Parallel()
	db := laned(t, 200*time.Millisecond)
	_, err := db.Exec(postgres.In(t.Context(), postgres.Questions), "SELECT pg_sleep(60)")
	if !postgres.TimedOut(err) {
		t.Errorf("got %v, want to hear that it took too long", err)
	}
	if _, err := db.Exec(t.Context(), "SELECT pg_sleep(0.4)"); err != nil {
		t.Errorf("what is no question was given up, too: %v", err)
	}
	var name string
	ctx := postgres.In(t.Context(), postgres.Questions)
	err = db.QueryRow(ctx, "SHOW application_name").Scan(&name)
	if err != nil || name != "weir "+historytest.Schema+" questions" {
		t.Errorf("its connections are called %q (%v)", name, err)
	}
}

func TestOpenRefusesALaneWithoutConnections(t *testing.T) {
	t.Parallel()
	for name, lanes := range map[string]map[postgres.Lane]postgres.LaneConfig{
		"none": {postgres.Questions: {}}, "of Work": {postgres.Work: {MaxConns: 1}}, "unknown": {99: {MaxConns: 1}},
	} {
		_, err := postgres.Open(t.Context(), postgres.Config{
			URL: "postgres://weir@localhost/weir", Schema: historytest.Schema,
			Logger: slog.New(slog.DiscardHandler), Lanes: lanes,
		})
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
