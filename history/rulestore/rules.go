// Package rulestore keeps rules in PostgreSQL: their immutable versions, their modes, and the routing versions that are made of
// them. Every change is audited, and heard by the stages that watch.
package rulestore

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Store is the rules and routing versions of one installation. It is safe for concurrent use.
type Store struct{ db *postgres.DB }

// New returns the store in db.
func New(db *postgres.DB) *Store { return &Store{db} }

// The topics on which changes are told.

func routingTopic() postgres.Topic {
	return postgres.Topic{Name: "routing", Fingerprint: `
		SELECT count(*), mod(coalesce(sum(number), 0), 9223372036854775807)::bigint FROM routing_versions`}
}

func modesTopic() postgres.Topic {
	return postgres.Topic{Name: "modes", Fingerprint: `
		SELECT (SELECT mod(10000 * coalesce(sum(generation), 0)
				+ coalesce(sum(canary_step) FILTER (WHERE mode = 'canary'), 0), 9223372036854775807)::bigint
			FROM rule_modes),
		(SELECT count(*) FROM rule_versions) + (SELECT count(*) + count(ended_at) FROM pending_versions)`}
}

// WatchRoutings calls onChange when routing versions of any stream have been published, see postgres.DB.Watch.
func (s *Store) WatchRoutings(ctx context.Context, onChange func()) {
	s.db.Watch(ctx, routingTopic(), onChange)
}

// WatchModes calls onChange when rules have another mode or a new version, see postgres.DB.Watch.
func (s *Store) WatchModes(ctx context.Context, onChange func()) {
	s.db.Watch(ctx, modesTopic(), onChange)
}

// Rule is a stored rule: the version that acts, its mode, and what was set beside both.
type Rule struct {
	// Newest is the newest version that acts, or acted: the live one. What is pending is in Pending alone.
	Newest     StoredVersion `json:"newest"`
	Mode       rules.Mode    `json:"mode"`
	Generation int64         `json:"generation"`
	Changed    time.Time     `json:"changed"` // when the mode was set last, by whom and why
	ChangedBy  string        `json:"changed_by" mask:"name"`
	Reason     string        `json:"reason,omitempty" mask:"text,ChangedBy"`
	// Canary is where a rule in canary stands; nil for every other mode.
	Canary *Canary `json:"canary,omitempty"`
	// Since is when the lineage of Newest began. Its windows are warming until one window has passed from then.
	Since time.Time `json:"lineage_since"`
	// Pending is an edit that may block more than Newest does: counted beside it, never enforced, until it is promoted or another
	// document takes its place.
	Pending *StoredVersion `json:"pending,omitempty"`
	// Raised is the higher limit that Newest has for a time, also when that is over.
	Raised *Raised `json:"raised,omitempty"`
	// Promoted is the number of the version that was the newest when the mode was set last.
	Promoted int `json:"-"`
	// Removed says that `rules apply --prune` removed the rule. Its versions and history stay.
	Removed bool `json:"removed,omitempty"`
	// Versions are all versions, newest first, with those that were pending. Only Find fills it in.
	Versions []StoredVersion `json:"versions,omitempty"`

	used rules.Used
	fell bool // its canary has put it into its mode
}

// StoredVersion is one immutable version of a rule with its origin.
type StoredVersion struct {
	Version rules.Version `json:"document"`
	// Source is the YAML that it was read from, with comments and tests. Of many rules at once only Sources fills it in: it may be long.
	Source  string    `json:"source,omitempty" mask:"-"`
	Hash    string    `json:"hash" mask:"-"` // SHA-256 of the stored document, hex
	Created time.Time `json:"created"`
	Author  string    `json:"author" mask:"name"`
	Reason  string    `json:"reason,omitempty" mask:"text,Author"`
	// Acted is when it began to act: of a version that was pending, when it was promoted or adopted; zero: it never
	// did. Only Find fills it in, in Versions.
	Acted time.Time `json:"-"`
	// Ended says what became of a version that was pending and acted never; empty for all others.
	Ended Outcome `json:"ended,omitempty"`
}

// MarshalJSON writes v as commands show it: the document's durations are as in documents, see rules.Shown.
func (v StoredVersion) MarshalJSON() ([]byte, error) {
	type plain StoredVersion
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // whoever embeds the JSON escapes what has to be: conditions are full of && and <
	err := enc.Encode(struct {
		Version rules.Shown `json:"document"`
		plain
	}{v.Version.Shown(), plain(v)})
	return b.Bytes(), err
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (v *StoredVersion) UnmarshalJSON(b []byte) error {
	type plain StoredVersion
	var read struct {
		Version rules.Shown `json:"document"`
		plain
	}
	if err := json.Unmarshal(b, &read); err != nil {
		return err
	}
	*v = StoredVersion(read.plain)
	var err error
	v.Version, err = read.Version.Plain()
	return err
}

const (
	versionColumns = "v.version, v.lineage, v.document, v.source, v.hash, v.created_at, v.author, v.reason"
	withoutSource  = "v.version, v.lineage, v.document, '', v.hash, v.created_at, v.author, v.reason"
)

// scanVersion reads versionColumns, or withoutSource, into v, and the columns after them into more.
func scanVersion(row pgx.CollectableRow, more ...any) (v StoredVersion, err error) {
	var number, lineage int
	var document string
	var hash []byte
	targets := []any{&number, &lineage, &document, &v.Source, &hash, &v.Created, &v.Author, &v.Reason}
	if err := row.Scan(append(targets, more...)...); err != nil {
		return v, err
	}
	v.Version.Document, err = rules.DecodeDocument([]byte(document))
	if err != nil {
		return v, fmt.Errorf("version %d: %w", number, err)
	}
	v.Version.Number, v.Version.Lineage = number, lineage
	v.Hash, v.Created = hex.EncodeToString(hash), v.Created.UTC()
	return v, nil
}

// loadRules reads the rules that the condition selects, removed ones included, ascending by id. It does not fill in Versions and sources:
// stages read all rules again and again.
func loadRules(ctx context.Context, q postgres.Querier, where string, args ...any) ([]Rule, error) {
	rows, err := q.Query(ctx, "SELECT "+withoutSource+`, m.mode, m.generation, m.changed_at, m.changed_by, m.reason, m.removed,
			m.mode = 'shadow' AND m.fell_generation IS NOT DISTINCT FROM m.generation,
			(SELECT coalesce(max(p.version), 0) FROM rule_versions p WHERE p.rule = m.rule AND p.created_at <= m.changed_at),
			(SELECT min(f.created_at) FROM rule_versions f WHERE f.rule = m.rule AND f.lineage = v.lineage),
			greatest(v.version, q.version), greatest((SELECT max(l.lineage) FROM rule_versions l WHERE l.rule = m.rule), q.lineage), `+canaryColumns+`
		FROM rule_modes m
		JOIN LATERAL (SELECT * FROM rule_versions w WHERE w.rule = m.rule ORDER BY w.version DESC LIMIT 1) v ON true
		LEFT JOIN LATERAL (SELECT max(o.version) AS version, max(o.lineage) AS lineage FROM pending_versions o WHERE o.rule = m.rule) q ON true
		WHERE `+where+" ORDER BY m.rule", args...)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Rule, err error) {
		var canary canaryRow
		r.Newest, err = scanVersion(row, append([]any{&r.Mode, &r.Generation, &r.Changed, &r.ChangedBy, &r.Reason,
			&r.Removed, &r.fell, &r.Promoted,
			&r.Since, &r.used.Number, &r.used.Lineage}, canary.targets()...)...)
		r.Changed, r.Since = r.Changed.UTC(), r.Since.UTC()
		if err == nil && r.Mode == rules.ModeCanary {
			if r.Canary, err = canary.canary(); err != nil {
				err = fmt.Errorf("rule %q: %w", r.Newest.Version.ID, err)
			}
		}
		return r, err
	})
	if err != nil {
		return nil, err
	}
	if err := addPending(ctx, q, all, where, args...); err != nil {
		return nil, err
	}
	return all, addRaised(ctx, q, all, where, args...)
}

// List returns all rules that have not been removed, ascending by id.
func (s *Store) List(ctx context.Context) ([]Rule, error) {
	all, err := loadRules(ctx, s.db, "NOT m.removed")
	if err != nil {
		return nil, s.db.Fail("listing rules", err)
	}
	return all, nil
}

// Find returns one rule with all its versions, also a removed one. postgres.ErrNotFound is wrapped where there is none.
func (s *Store) Find(ctx context.Context, id string) (Rule, error) {
	r, err := findRule(ctx, s.db, id)
	if err != nil {
		return Rule{}, s.db.Fail(fmt.Sprintf("reading rule %q", id), err)
	}
	if r.Versions, err = versionsOf(ctx, s.db, id, 0); err != nil {
		return Rule{}, s.db.Fail(fmt.Sprintf("reading the versions of rule %q", id), err)
	}
	one := []Rule{r}
	err = s.Sources(ctx, one)
	return one[0], err
}

func findRule(ctx context.Context, q postgres.Querier, id string) (Rule, error) {
	found, err := loadRules(ctx, q, "m.rule = $1", traffic.Printable(id))
	if err != nil {
		return Rule{}, err
	}
	if len(found) == 0 {
		return Rule{}, postgres.ErrNotFound
	}
	return found[0], nil
}

// Modes returns the modes of all rules that have not been removed, ascending by id, with the match of the newest version.
func (s *Store) Modes(ctx context.Context) ([]rules.ModeState, error) {
	all, err := loadRules(ctx, s.db, "NOT m.removed")
	if err != nil {
		return nil, s.db.Fail("reading the modes of rules", err)
	}
	modes := make([]rules.ModeState, len(all))
	for i := range all {
		modes[i] = all[i].modeState()
	}
	return modes, nil
}

func (r *Rule) modeState() rules.ModeState {
	state := rules.ModeState{
		Rule: r.Newest.Version.ID, Mode: r.Mode, Generation: r.Generation, Match: rules.Held(r.Newest.Version.Reach()),
		Newest: r.Newest.Version.Number,
	}
	if r.Mode.Blocks() {
		state.Promoted = r.Promoted
	}
	if r.Canary != nil {
		state.Share = int(r.Canary.Share)
	}
	return state
}

// Label is a rule without its documents.
type Label struct {
	Rule    string
	Mode    rules.Mode
	Pending bool // it has a pending version
	Removed bool
}

// Labels are the rules whose ids begin with prefix, removed ones included, ascending by id. It reads no document, so that ten thousand take
// some milliseconds.
func (s *Store) Labels(ctx context.Context, prefix string) ([]Label, error) {
	const doing = "listing the labels of rules"
	rows, err := s.db.Query(ctx, `SELECT m.rule, m.mode, m.removed, EXISTS (SELECT FROM pending_versions p WHERE p.rule = m.rule AND p.ended_at IS NULL
			AND p.version > (SELECT max(v.version) FROM rule_versions v WHERE v.rule = m.rule))
		FROM rule_modes m WHERE starts_with(m.rule, $1) ORDER BY m.rule`, traffic.Printable(prefix))
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Label, err error) {
		err = row.Scan(&l.Rule, &l.Mode, &l.Removed, &l.Pending)
		return l, err
	})
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	return all, nil
}

// Names are the ids of the rules that a stream has or had, ascending: removed rules are among them, since their history stays.
// A replay has the rules of its newest routing version.
func (s *Store) Names(ctx context.Context, stream string) ([]string, error) {
	const doing = "listing the names of rules"
	if stream == streams.Live {
		rows, err := s.db.Query(ctx, "SELECT rule FROM rule_modes ORDER BY rule")
		if err != nil {
			return nil, s.db.Fail(doing, err)
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, s.db.Fail(doing, err)
		}
		return names, nil
	}
	routing, err := newestRouting(ctx, s.db, stream)
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	var names []string
	if routing != nil {
		for i := range routing.Rules {
			names = append(names, routing.Rules[i].ID)
		}
	}
	slices.Sort(names)
	return names, nil
}
