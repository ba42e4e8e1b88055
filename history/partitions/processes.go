package partitions

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/traffic"
)

// Process is a process that runs now, as it tells of itself.
type Process struct {
	Instance string // its name, another one at each start
	Does     string // stages, console, ingest, joined by commas
	Build    string // of the program
	// by store: seconds by which its clock is ahead of the process's, at the least; negative: behind; nil where another
	// build has told so in a way of its own
	Offsets  map[string]float64
	Reported time.Time // by the clock of the database
}

// Announce stores what a process tells of itself, in place of what it told before. What nobody has renewed for a day
// goes.
func (s *Store) Announce(ctx context.Context, p Process) error {
	offsets, err := json.Marshal(p.Offsets)
	if err != nil {
		return fmt.Errorf("announcing process %s: %w", p.Instance, err)
	}
	var batch pgx.Batch
	batch.Queue(`INSERT INTO processes (instance, does, build, offsets, reported_at)
		VALUES ($1, $2, $3, $4, clock_timestamp()) ON CONFLICT (instance) DO UPDATE
		SET does = excluded.does, build = excluded.build, offsets = excluded.offsets, reported_at = clock_timestamp()`,
		traffic.Printable(p.Instance), p.Does, traffic.Printable(p.Build), string(offsets))
	batch.Queue("DELETE FROM processes WHERE reported_at < clock_timestamp() - interval '1 day'")
	if err := s.db.SendBatch(ctx, &batch).Close(); err != nil {
		return s.db.Fail("announcing process "+p.Instance, err)
	}
	return nil
}

// Leave forgets a process that stops.
func (s *Store) Leave(ctx context.Context, instance string) error {
	if _, err := s.db.Exec(ctx, "DELETE FROM processes WHERE instance = $1", traffic.Printable(instance)); err != nil {
		return s.db.Fail("taking leave of process "+instance, err)
	}
	return nil
}

// MostProcesses is how many processes Processes gives at most.
const MostProcesses = 1000

// worst is by how many seconds a process's clock differs from a store's at the most. One that cannot be read may differ
// by any, and counts as the least that is told of.
const worst = `CASE WHEN jsonb_typeof(offsets) = 'object' THEN coalesce((SELECT max(
	CASE WHEN jsonb_typeof(value) = 'number' THEN abs(value::text::numeric) ELSE 1 END)
	FROM jsonb_each(offsets)), 0) ELSE 1 END`

// Processes are those that have told of themselves within the last so long, by the clock of the database: those first
// whose clocks are the furthest from a store's, else ascending by what they do and by instance. Of more than
// MostProcesses the others are left out; of is how many there are.
func (s *Store) Processes(ctx context.Context, within time.Duration) (all []Process, of int, err error) {
	rows, err := s.db.Query(ctx, `SELECT instance, does, build, offsets, reported_at, count(*) OVER () FROM processes
		WHERE reported_at > clock_timestamp() - make_interval(secs => $1)
		ORDER BY `+worst+` DESC, does, instance LIMIT $2`,
		within.Seconds(), MostProcesses)
	if err != nil {
		return nil, 0, s.db.Fail("processes", err)
	}
	all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Process, err error) {
		var offsets []byte
		if err := row.Scan(&p.Instance, &p.Does, &p.Build, &offsets, &p.Reported, &of); err != nil {
			return p, err
		}
		if json.Unmarshal(offsets, &p.Offsets) != nil {
			p.Offsets = nil // one process that cannot be read does not hide the others
		}
		return p, nil
	})
	if err != nil {
		return nil, 0, s.db.Fail("processes", err)
	}
	return all, of, nil
}
