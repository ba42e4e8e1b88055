package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Lane is what connections are for. Each lane of a DB has its own, so that nobody in one waits for another.
type Lane int

// Lanes. A DB without connections of a lane gives it those of Work.
const (
	// Work is what a process does by itself, and what people change. It is the lane of a context that names none.
	Work Lane = iota
	// Questions is what people and programs ask.
	Questions
	// Evidence is what an act is judged by: it may take long, and no other act may wait for it.
	Evidence
	// Shared is what is read once for everybody who watches.
	Shared
	numLanes
)

func (l Lane) String() string {
	return [numLanes]string{"work", "questions", "evidence", "shared"}[l]
}

// LaneConfig is what a lane gets.
type LaneConfig struct {
	MaxConns int // at least one
	// Timeout is how long PostgreSQL works at one statement before it gives it up; 0: as postgres.url says. Whoever
	// asks should have a context that ends earlier; this one holds where nobody hears of that.
	Timeout time.Duration
}

type laneKey struct{}

// In returns a context whose statements use the connections of a lane.
func In(ctx context.Context, l Lane) context.Context { return context.WithValue(ctx, laneKey{}, l) }

// LaneOf returns the lane that In has set last; Work where it has not.
func LaneOf(ctx context.Context) Lane {
	l, _ := ctx.Value(laneKey{}).(Lane)
	return l
}

// of is the pool from which ctx's statements get connections.
func (db *DB) of(ctx context.Context) *pgxpool.Pool {
	if own := db.lanes[LaneOf(ctx)]; own != nil {
		return own
	}
	return db.pool
}

// openLanes makes the pools of lanes that have connections of their own, after config, that of Work.
func (db *DB) openLanes(ctx context.Context, config *pgxpool.Config, c *Config) error {
	for l, want := range c.Lanes {
		if l <= Work || l >= numLanes || want.MaxConns < 1 {
			return fmt.Errorf("history: lane %d: got %d connections, allowed: at least one, of a lane beside Work",
				int(l), want.MaxConns)
		}
		own := config.Copy()
		own.MaxConns = int32(min(want.MaxConns, mostConns))
		own.ConnConfig.RuntimeParams["application_name"] += " " + l.String()
		if want.Timeout > 0 {
			own.ConnConfig.RuntimeParams["statement_timeout"] = strconv.FormatInt(want.Timeout.Milliseconds(), 10)
		}
		pool, err := pgxpool.NewWithConfig(ctx, own)
		if err != nil {
			return fmt.Errorf("history: %w", err)
		}
		db.lanes[l] = pool
	}
	return nil
}

// InUse is how many connections of a lane are lent out just now, and how many there may be.
func (db *DB) InUse(l Lane) (lent, most int) {
	s := db.of(In(context.Background(), l)).Stat()
	return int(s.AcquiredConns()), int(s.MaxConns())
}

// TimedOut reports whether PostgreSQL gave a statement up: it took longer than its lane allows.
func TimedOut(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "57014" // query_canceled
}
