// Package orders is what people order beside what rules do: blocks by hand. Each is a row in PostgreSQL, written with
// its entry of the audit trail, which ENFORCE carries out.
package orders

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Bounds of the orders that have not ended, released ones included.
const (
	MaxOrders  = 10_000
	MaxMatches = 100 // different ones: each is a rule that every gate knows
)

// TooManyError says that as many orders, or matches of orders, have not ended as may be. Nothing was ordered.
type TooManyError struct {
	What string
	Most int
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("%d %s have not ended, which is the most: let some end, or block by a rule", e.Most, e.What)
}

// Order is a block that somebody has ordered.
type Order struct {
	ID      string          `json:"id" mask:"-"`      // of its hit; refused clients are told the first 16 digits
	Rule    string          `json:"rule" mask:"name"` // rules.ByHand, or one of the same match
	Subject traffic.Subject `json:"subject"`
	Match   rules.Held      `json:"match"` // the requests that are held; empty: all
	Since   traffic.Time    `json:"since"`
	Until   traffic.Time    `json:"until"`
	By      string          `json:"by" mask:"name"`
	Via     string          `json:"via" mask:"-"`
	Reason  string          `json:"reason" mask:"text,By"`
	// Outcome is what came of it: written, or the reason why ENFORCE has not written it; empty: it has not tried. Done:
	// it tries no more.
	Outcome string `json:"outcome,omitempty" mask:"-"`
	Done    bool   `json:"done"`
}

// Store is the orders of one installation. It is safe for concurrent use.
type Store struct{ db *postgres.DB }

// New returns the orders in db.
func New(db *postgres.DB) *Store { return &Store{db} }

func topic() postgres.Topic {
	return postgres.Topic{Name: "orders",
		Fingerprint: "SELECT count(*), coalesce(max(extract(epoch FROM since) * 1e6), 0)::bigint FROM block_orders"}
}

// Watch calls onChange when something has been ordered, see postgres.DB.Watch.
func (s *Store) Watch(ctx context.Context, onChange func()) { s.db.Watch(ctx, topic(), onChange) }

// Add stores an order of so long, from the database's now on, with its entry of the audit trail. It gives the order its
// id, and both times. *TooManyError says that there is no room.
func (s *Store) Add(ctx context.Context, o Order, length time.Duration) (Order, error) {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return o, fmt.Errorf("ordering a block: %w", err)
	}
	match, err := json.Marshal(o.Match)
	if err != nil {
		return o, fmt.Errorf("ordering a block: %w", err)
	}
	o.ID, o.By, o.Via, o.Reason = hex.EncodeToString(id[:]), traffic.Printable(o.By), traffic.Printable(o.Via),
		traffic.Printable(o.Reason)
	in := inColumns(o.Subject)
	err = s.db.Transact(ctx, "ordering a block", func(tx pgx.Tx) error {
		if err := room(ctx, tx, o.Rule); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `INSERT INTO block_orders (id, rule, subject, ip, device, user_id, api_key, session, match, until, ordered_by, via, reason)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, now() + $10, $11, $12, $13) RETURNING since, until`,
			o.ID, o.Rule, string(o.Subject), in.ip, in.values[traffic.FieldDevice], in.values[traffic.FieldUser],
			in.values[traffic.FieldAPIKey],
			in.values[traffic.FieldSession], string(match), length, o.By, o.Via,
			o.Reason).Scan(postgres.ScanTime(&o.Since), postgres.ScanTime(&o.Until))
		if err != nil {
			return err
		}
		until := "block until " + o.Until.Std().UTC().Format(time.RFC3339)
		err = audit.Write(ctx, tx, audit.Entry{
			Actor: o.By, Via: o.Via, Action: "block", Object: "block " + o.Rule + " " + string(o.Subject),
			Reason: o.Reason,
			Detail: "block id " + o.ID[:16] + ", holds " + rules.Match(o.Match).String(), Before: audit.None,
			After: until,
		})
		if err != nil {
			return err
		}
		return s.db.Notify(ctx, tx, topic(), o.ID)
	})
	return o, err
}

// room refuses an order where as many as may be have not ended. Orders are stored one after the other, so that none
// gets past it.
func room(ctx context.Context, tx pgx.Tx, rule string) error {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('weir orders ' || current_schema(), 0))"); err != nil {
		return err
	}
	var orders, matches int
	err := tx.QueryRow(ctx, "SELECT count(*), count(DISTINCT rule) FILTER (WHERE rule <> $1) FROM block_orders WHERE until > now()", rule).Scan(&orders, &matches)
	switch {
	case err != nil:
		return err
	case orders >= MaxOrders:
		return &TooManyError{What: "blocks by hand", Most: MaxOrders}
	case matches >= MaxMatches:
		return &TooManyError{What: "matches of blocks by hand", Most: MaxMatches}
	}
	return nil
}

// columns are the parts of a subject that rows have by themselves.
type columns struct {
	ip     *netip.Prefix
	values [traffic.NumFields]*string
}

func inColumns(s traffic.Subject) (c columns) {
	values, err := s.Values()
	if err != nil {
		return c
	}
	for _, v := range values {
		field, known := traffic.ParseField(v.Field)
		if !known || v.Missing {
			continue
		}
		if p, err := netip.ParsePrefix(v.Value); field == traffic.FieldIP && err == nil {
			p = p.Masked()
			c.ip = &p
		}
		text := traffic.Printable(v.Value)
		c.values[field] = &text
	}
	return c
}

const orderColumns = "id, rule, subject, match, since, until, ordered_by, via, reason, outcome, done_at IS NOT NULL"

func scan(row pgx.CollectableRow) (o Order, err error) {
	var match string
	err = row.Scan(&o.ID, &o.Rule, &o.Subject, &match, postgres.ScanTime(&o.Since), postgres.ScanTime(&o.Until), &o.By,
		&o.Via, &o.Reason, &o.Outcome, &o.Done)
	if err == nil {
		err = json.Unmarshal([]byte(match), &o.Match)
	}
	return o, err
}

func (s *Store) read(ctx context.Context, doing, where string, args ...any) ([]Order, error) {
	rows, err := s.db.Query(ctx, "SELECT "+orderColumns+" FROM block_orders WHERE "+where, args...)
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	return all, nil
}

// Find returns the orders whose id begins with prefix, hex digits: at most limit, by id.
func (s *Store) Find(ctx context.Context, prefix string, limit int) ([]Order, error) {
	return s.read(ctx, "finding an order", "id >= $1 AND id < $1 || 'g' ORDER BY id LIMIT $2",
		traffic.Printable(prefix), limit)
}

// Due is enforce.Orders'.
func (s *Store) Due(ctx context.Context, most int) ([]blocklist.Order, error) {
	all, err := s.read(ctx, "reading orders that are due",
		"done_at IS NULL AND until > now() ORDER BY since, id LIMIT $1", most)
	out := make([]blocklist.Order, len(all))
	for i := range all {
		o := &all[i]
		out[i] = blocklist.Order{ID: o.ID, Name: blocklist.Name{Subject: o.Subject, Rule: o.Rule}, Since: o.Since,
			Until: o.Until, By: o.By, Reason: o.Reason}
	}
	return out, err
}

// Settle is enforce.Orders'. What was settled for good stays.
func (s *Store) Settle(ctx context.Context, id, outcome string, last bool) error {
	_, err := s.db.Exec(ctx, `UPDATE block_orders SET outcome = $2, done_at = CASE WHEN $3 THEN now() END
		WHERE id = $1 AND done_at IS NULL AND (outcome <> $2 OR $3)`, id, outcome, last)
	if err != nil {
		return s.db.Fail("settling an order", err)
	}
	return nil
}

// Modes are those of the rules of all orders that have not ended, ascending by rule: they block, for as long as there
// is one.
func (s *Store) Modes(ctx context.Context) ([]rules.ModeState, error) {
	const doing = "reading the rules of orders"
	rows, err := s.db.Query(ctx, "SELECT rule, min(match) FROM block_orders WHERE until > now() GROUP BY rule ORDER BY rule")
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	modes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m rules.ModeState, err error) {
		var match string
		m = rules.ModeState{Mode: rules.ModeBlock, Generation: 1}
		if err = row.Scan(&m.Rule, &match); err == nil {
			err = json.Unmarshal([]byte(match), &m.Match)
		}
		return m, err
	})
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	return modes, nil
}
