// Package streams is the register of streams in PostgreSQL, the live one and replays: their generations and partition counts,
// and the deployment secret under which all of them make keys into fingerprints.
package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// Live is ingest.Live as rows have it.
const Live = string(ingest.Live)

// ErrExists is wrapped by Create where the name is taken.
var ErrExists = errors.New("stream exists")

// PartitionCounts are the partition counts of a stream's topics, fixed when it is made, and the memory of a keyed partition.
type PartitionCounts struct {
	// Requests is the number that the requests topic had when the generation began. Partitions may have been added since.
	Requests int `json:"requests"`
	Keyed    int `json:"keyed"`
	Hits     int `json:"hits"`
	// Budget bounds the windows of one keyed partition, in bytes. A stream that is made with 0 gets detectors.DefaultBudget;
	// SetBudget changes it.
	Budget int64 `json:"budget"`
}

// Stream is what the register has of one stream.
type Stream struct {
	Name       string          `json:"name" mask:"name"`
	Generation int64           `json:"generation"` // numbers the lives of requests topics; never used again
	Partitions PartitionCounts `json:"partitions"`
	Created    time.Time       `json:"created"`
	Finished   time.Time       `json:"finished,omitzero"`
	Summary    json.RawMessage `json:"summary,omitempty"` // what Finish was given
}

// Store is the register of one installation. It is safe for concurrent use.
type Store struct{ db *postgres.DB }

// New returns the register in db.
func New(db *postgres.DB) *Store { return &Store{db} }

// Create makes a stream with a generation of its own. ErrExists is wrapped where the name is taken.
func (s *Store) Create(ctx context.Context, name string, n PartitionCounts) (Stream, error) {
	if err := ingest.Stream(name).Check(); err != nil {
		return Stream{}, err
	}
	doing := "creating stream " + name
	if n.Budget == 0 {
		n.Budget = detectors.DefaultBudget
	}
	rows, err := s.db.Query(ctx, `WITH begun AS (
			INSERT INTO read_positions (stream, stage, partition, next_offset) VALUES ($1, $6, 0, 0)
			ON CONFLICT DO NOTHING)
		INSERT INTO streams (name, requests_partitions, keyed_partitions, hits_partitions, keyed_budget)
		VALUES ($1, $2, $3, $4, $5) RETURNING `+streamColumns, name, n.Requests, n.Keyed, n.Hits, n.Budget, begun)
	if err != nil {
		return Stream{}, s.db.Fail(doing, err)
	}
	made, err := pgx.CollectExactlyOneRow(rows, scanStream)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "23505" && refused.ConstraintName == "streams_pkey" {
		return Stream{}, s.db.Fail(doing, ErrExists)
	}
	if err != nil {
		return Stream{}, s.db.Fail(doing, err)
	}
	return made, nil
}

const streamColumns = `name, generation, requests_partitions, keyed_partitions, hits_partitions, keyed_budget, created_at, finished_at, summary::text`

// timeOrZero reads a timestamptz that may be NULL.
func timeOrZero(v *time.Time) time.Time {
	if v == nil {
		return time.Time{}
	}
	return v.UTC()
}

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

// Find returns a stream by its name; postgres.ErrNotFound is wrapped where there is none.
func (s *Store) Find(ctx context.Context, name string) (Stream, error) {
	doing := "looking up stream " + name
	rows, err := s.db.Query(ctx, "SELECT "+streamColumns+" FROM streams WHERE name = $1", name)
	if err != nil {
		return Stream{}, s.db.Fail(doing, err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, scanStream)
	if errors.Is(err, pgx.ErrNoRows) {
		err = postgres.ErrNotFound
	}
	if err != nil {
		return Stream{}, s.db.Fail(doing, err)
	}
	return found, nil
}

// List returns all streams, oldest first.
func (s *Store) List(ctx context.Context) ([]Stream, error) {
	rows, err := s.db.Query(ctx, "SELECT "+streamColumns+" FROM streams ORDER BY generation")
	if err != nil {
		return nil, s.db.Fail("listing streams", err)
	}
	all, err := pgx.CollectRows(rows, scanStream)
	if err != nil {
		return nil, s.db.Fail("listing streams", err)
	}
	return all, nil
}

// RecreateGeneration gives a stream another generation after its requests topic was made anew, so that offsets of the new topic
// are not taken for offsets of the old one. requests is the number of the new topic's partitions. Accepted gaps of the old topic
// are forgotten.
func (s *Store) RecreateGeneration(ctx context.Context, name string, requests int, by, reason string) (generation int64, err error) {
	err = s.db.Transact(ctx, "renewing the generation of stream "+name, func(tx pgx.Tx) error {
		var was int64
		var had int
		err := tx.QueryRow(ctx, `WITH old AS (SELECT generation, requests_partitions FROM streams WHERE name = $1 FOR UPDATE)
			UPDATE streams s SET generation = nextval('stream_generation'), requests_partitions = $2 FROM old
			WHERE s.name = $1 RETURNING s.generation, old.generation, old.requests_partitions`, name, requests).Scan(&generation, &was, &had)
		if errors.Is(err, pgx.ErrNoRows) {
			return postgres.ErrNotFound
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM gap_acceptances WHERE stream = $1", name); err != nil {
			return err
		}
		return audit.Write(ctx, tx, audit.Entry{Actor: by, Via: audit.Local, Action: "recreate", Object: "stream " + name, Reason: reason,
			Detail: fmt.Sprintf("generation %d", generation), Before: generationOf(was, had), After: generationOf(generation, requests)})
	})
	return generation, err
}

func generationOf(generation int64, requests int) string {
	return fmt.Sprintf("generation %d%spartitions of requests: %d", generation, audit.Part, requests)
}

// SetBudget changes PartitionCounts.Budget. The new one takes effect in processes that start afterwards; other keys may then be
// evicted than before, so the change is audited.
func (s *Store) SetBudget(ctx context.Context, name string, budget int64, by string) error {
	return s.db.Transact(ctx, "changing the budget of stream "+name, func(tx pgx.Tx) error {
		var was int64
		err := tx.QueryRow(ctx, `WITH old AS (SELECT keyed_budget FROM streams WHERE name = $1 FOR UPDATE)
			UPDATE streams s SET keyed_budget = $2 FROM old WHERE s.name = $1 RETURNING old.keyed_budget`, name, budget).Scan(&was)
		if errors.Is(err, pgx.ErrNoRows) {
			return postgres.ErrNotFound
		}
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, audit.Entry{Actor: by, Via: audit.Local, Action: "budget", Object: "stream " + name,
			Detail: budgetOf(budget), Before: budgetOf(was), After: budgetOf(budget)})
	})
}

func budgetOf(bytes int64) string { return fmt.Sprintf("%d bytes a keyed partition", bytes) }

// Finish marks a stream as ended and stores its summary, any JSON text.
func (s *Store) Finish(ctx context.Context, name string, summary json.RawMessage) error {
	tag, err := s.db.Exec(ctx, "UPDATE streams SET finished_at = now(), summary = $2::json WHERE name = $1", name, string(summary))
	if err == nil && tag.RowsAffected() == 0 {
		err = postgres.ErrNotFound
	}
	if err != nil {
		return s.db.Fail("finishing stream "+name, err)
	}
	return nil
}

// Delete removes a replay with all its rows, also where an earlier Delete removed only some. It refuses the live stream.
func (s *Store) Delete(ctx context.Context, name string) error {
	if name == Live {
		return errors.New("history: the live stream cannot be deleted, only replays")
	}
	return s.db.Transact(ctx, "deleting stream "+name, func(tx pgx.Tx) error {
		for _, table := range []string{"hits", "hits_beside", "late_sums", "uncounted_sums", "rule_minutes",
			"event_minutes", "rule_event_minutes", "refusals", "losses", "block_decisions",
			"checkpoints", "checkpoint_pieces",
			"partition_owners", "partition_states", "gap_acceptances"} {
			if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE stream = $1", name); err != nil {
				return fmt.Errorf("%s: %w", table, err)
			}
		}
		_, err := tx.Exec(ctx, "DELETE FROM streams WHERE name = $1", name) // takes its routing versions along
		return err
	})
}

// Lock makes writers of a stream's rules and routing versions wait for each other until the transaction ends.
// postgres.ErrNotFound is wrapped where the register has no such stream.
func Lock(ctx context.Context, tx pgx.Tx, name string) error {
	var found string
	err := tx.QueryRow(ctx, "SELECT name FROM streams WHERE name = $1 FOR UPDATE", name).Scan(&found)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("stream %s: %w; `weir migrate` makes live, `weir ingest` a replay", name, postgres.ErrNotFound)
	}
	return err
}

// Installation names this installation, for what it may share with others: a Redis. It is no secret.
func (s *Store) Installation(ctx context.Context) (id string, err error) {
	if err = s.db.QueryRow(ctx, "SELECT installation FROM rule_numbers").Scan(&id); err != nil {
		return "", s.db.Fail("reading the installation's name", err)
	}
	return id, nil
}

// ModesSeed is the seed of the key with which modes are signed for gates. Whoever publishes none has no business
// with it.
func (s *Store) ModesSeed(ctx context.Context) (seed []byte, err error) {
	if err = s.db.QueryRow(ctx, "SELECT seed FROM mode_keys").Scan(&seed); err != nil {
		return nil, s.db.Fail("reading the key of modes", postgres.NoRows(err))
	}
	return seed, nil
}

// Secret returns the newest deployment secret and its id, by which routing versions name it.
func (s *Store) Secret(ctx context.Context) (id string, secret detectors.Secret, err error) {
	err = s.db.QueryRow(ctx, "SELECT id FROM secrets ORDER BY created_at DESC, id DESC LIMIT 1").Scan(&id)
	if err != nil {
		return "", secret, s.db.Fail("finding the deployment secret", postgres.NoRows(err))
	}
	secret, err = s.SecretByID(ctx, id)
	return id, secret, err
}

// SecretByID returns the deployment secret that a routing version names; postgres.ErrNotFound is wrapped where there is none.
func (s *Store) SecretByID(ctx context.Context, id string) (secret detectors.Secret, err error) {
	var value []byte
	err = s.db.QueryRow(ctx, "SELECT value FROM secrets WHERE id = $1", traffic.Printable(id)).Scan(&value)
	if err != nil {
		return secret, s.db.Fail("reading the deployment secret", postgres.NoRows(err))
	}
	if copy(secret[:], value) != len(secret) {
		return secret, s.db.Fail("reading the deployment secret", fmt.Errorf("%d bytes, want %d", len(value), len(secret)))
	}
	return secret, nil
}
