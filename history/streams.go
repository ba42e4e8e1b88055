package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// ErrStreamExists is wrapped by CreateStream where the name is taken.
var ErrStreamExists = errors.New("stream exists")

// PartitionCounts are the partition counts of a stream's topics, fixed when it is made, and what one partition may hold.
type PartitionCounts struct {
	// Requests is how many partitions the requests topic had when the generation began. Others may be added to it.
	Requests int `json:"requests"`
	Keyed    int `json:"keyed"`
	Hits     int `json:"hits"`
	// Budget is how many bytes the windows of one keyed partition may take; a stream that is made with 0 gets
	// detectors.DefaultBudget. SetBudget changes it.
	Budget int64 `json:"budget"`
}

// Stream is one stream: the live one, or a replay.
type Stream struct {
	Name       string          `json:"name"`
	Generation int64           `json:"generation"` // which life of the requests topic, never reused
	Partitions PartitionCounts `json:"partitions"`
	Created    time.Time       `json:"created"`
	Finished   time.Time       `json:"finished,omitzero"`
	Summary    json.RawMessage `json:"summary,omitempty"` // what FinishStream was given
}

var streamPattern = regexp.MustCompile(`^(live|replay/[A-Za-z0-9][A-Za-z0-9._-]{0,99})$`)

// CheckStream says whether name can be that of a stream in history: live, or replay/NAME. It takes more than
// ingest.Stream.Check, by which new streams are named: older builds took names with dots, and of up to 100 characters.
func CheckStream(name string) error {
	if !streamPattern.MatchString(name) {
		return fmt.Errorf("stream %q: allowed are live and replay/NAME, NAME of up to 100 letters, digits, dots, _ and -", name)
	}
	return nil
}

// CreateStream makes a stream with a generation of its own. ErrStreamExists is wrapped where the name is taken.
func (s *Store) CreateStream(ctx context.Context, name string, n PartitionCounts) (Stream, error) {
	if err := ingest.Stream(name).Check(); err != nil {
		return Stream{}, err
	}
	doing := "creating stream " + name
	if n.Budget == 0 {
		n.Budget = detectors.DefaultBudget
	}
	rows, err := s.pool.Query(ctx, `INSERT INTO streams (name, requests_partitions, keyed_partitions, hits_partitions, keyed_budget)
		VALUES ($1, $2, $3, $4, $5) RETURNING `+streamColumns, name, n.Requests, n.Keyed, n.Hits, n.Budget)
	if err != nil {
		return Stream{}, s.fail(doing, err)
	}
	made, err := pgx.CollectExactlyOneRow(rows, scanStream)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "23505" && refused.ConstraintName == "streams_pkey" {
		return Stream{}, s.fail(doing, ErrStreamExists)
	}
	if err != nil {
		return Stream{}, s.fail(doing, err)
	}
	return made, nil
}

const streamColumns = `name, generation, requests_partitions, keyed_partitions, hits_partitions, keyed_budget, created_at, finished_at, summary::text`

func scanStream(row pgx.CollectableRow) (Stream, error) {
	var st Stream
	var finished *time.Time
	var summary *string
	err := row.Scan(&st.Name, &st.Generation, &st.Partitions.Requests, &st.Partitions.Keyed, &st.Partitions.Hits,
		&st.Partitions.Budget, &st.Created, &finished, &summary)
	st.Created, st.Finished = st.Created.UTC(), timeOrZero(finished)
	if summary != nil {
		st.Summary = json.RawMessage(*summary)
	}
	return st, err
}

// Stream finds a stream by its name; ErrNotFound is wrapped where there is none.
func (s *Store) Stream(ctx context.Context, name string) (Stream, error) {
	doing := "looking up stream " + name
	rows, err := s.pool.Query(ctx, "SELECT "+streamColumns+" FROM streams WHERE name = $1", name)
	if err != nil {
		return Stream{}, s.fail(doing, err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, scanStream)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Stream{}, s.fail(doing, err)
	}
	return found, nil
}

// ListStreams returns all streams, oldest first.
func (s *Store) ListStreams(ctx context.Context) ([]Stream, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+streamColumns+" FROM streams ORDER BY generation")
	if err != nil {
		return nil, s.fail("listing streams", err)
	}
	all, err := pgx.CollectRows(rows, scanStream)
	if err != nil {
		return nil, s.fail("listing streams", err)
	}
	return all, nil
}

// RecreateGeneration gives a stream whose requests topic was made anew another generation, so that the offsets of the
// new topic are not taken for those of the old one. requests is how many partitions the new one has. What operators accepted
// of the old one's gaps is forgotten.
func (s *Store) RecreateGeneration(ctx context.Context, name string, requests int, by, reason string) (generation int64, err error) {
	err = s.transact(ctx, "renewing the generation of stream "+name, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `UPDATE streams SET generation = nextval('stream_generation'), requests_partitions = $2
			WHERE name = $1 RETURNING generation`, name, requests).Scan(&generation)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM gap_acceptances WHERE stream = $1", name); err != nil {
			return err
		}
		return writeAudit(ctx, tx, AuditEntry{Actor: by, Action: "recreate", Object: "stream " + name, Reason: reason,
			Detail: fmt.Sprintf("generation %d", generation)})
	})
	return generation, err
}

// SetBudget changes how many bytes the windows of one keyed partition may take. It takes effect where a process starts;
// from then on other keys may be evicted than before, so it is audited.
func (s *Store) SetBudget(ctx context.Context, name string, budget int64, by string) error {
	return s.transact(ctx, "changing the budget of stream "+name, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "UPDATE streams SET keyed_budget = $2 WHERE name = $1", name, budget)
		if err == nil && tag.RowsAffected() == 0 {
			err = ErrNotFound
		}
		if err != nil {
			return err
		}
		return writeAudit(ctx, tx, AuditEntry{Actor: by, Action: "budget", Object: "stream " + name,
			Detail: fmt.Sprintf("%d bytes a keyed partition", budget)})
	})
}

// FinishStream marks a stream as ended and keeps its summary, any JSON text.
func (s *Store) FinishStream(ctx context.Context, name string, summary json.RawMessage) error {
	tag, err := s.pool.Exec(ctx, "UPDATE streams SET finished_at = now(), summary = $2::json WHERE name = $1", name, string(summary))
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return s.fail("finishing stream "+name, err)
	}
	return nil
}

// DeleteStream removes a replay with all its rows, also when it has left only some of them. The live stream is refused.
func (s *Store) DeleteStream(ctx context.Context, name string) error {
	if name == Live {
		return errors.New("history: the live stream cannot be deleted, only replays")
	}
	return s.transact(ctx, "deleting stream "+name, func(tx pgx.Tx) error {
		for _, table := range []string{"hits", "late_sums", "uncounted_sums", "losses", "block_decisions", "checkpoints", "checkpoint_pieces",
			"partition_owners", "partition_states", "gap_acceptances"} {
			if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE stream = $1", name); err != nil {
				return fmt.Errorf("%s: %w", table, err)
			}
		}
		_, err := tx.Exec(ctx, "DELETE FROM streams WHERE name = $1", name) // takes its routing versions along
		return err
	})
}

// Secret returns the newest deployment secret and its id, which routing versions name.
func (s *Store) Secret(ctx context.Context) (id string, secret detectors.Secret, err error) {
	err = s.pool.QueryRow(ctx, "SELECT id FROM secrets ORDER BY created_at DESC, id DESC LIMIT 1").Scan(&id)
	if err != nil {
		return "", secret, s.fail("finding the deployment secret", noRows(err))
	}
	secret, err = s.SecretByID(ctx, id)
	return id, secret, err
}

// SecretByID returns the deployment secret that a routing version names; ErrNotFound is wrapped where there is none.
func (s *Store) SecretByID(ctx context.Context, id string) (secret detectors.Secret, err error) {
	var value []byte
	err = s.pool.QueryRow(ctx, "SELECT value FROM secrets WHERE id = $1", traffic.Printable(id)).Scan(&value)
	if err != nil {
		return secret, s.fail("reading the deployment secret", noRows(err))
	}
	if copy(secret[:], value) != len(secret) {
		return secret, s.fail("reading the deployment secret", fmt.Errorf("%d bytes, want %d", len(value), len(secret)))
	}
	return secret, nil
}

// noRows gives the driver's "no rows" the name that callers know.
func noRows(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	return err
}
