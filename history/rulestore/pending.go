package rulestore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Outcome is what became of a pending version.
type Outcome string

const (
	OutcomePromoted  Outcome = "promoted"  // it acts, or acted: a promotion made it the live one
	OutcomeAdopted   Outcome = "adopted"   // it was applied again while its rule did not block, and acts
	OutcomeReplaced  Outcome = "replaced"  // another document was applied
	OutcomeWithdrawn Outcome = "withdrawn" // the document of the live version was applied again
	OutcomeRemoved   Outcome = "removed"   // its rule was
)

// addPending gives each of all its pending version. One that is older than the newest version was left by a build that knows of none,
// and is none any more.
func addPending(ctx context.Context, q postgres.Querier, all []Rule, where string, args ...any) error {
	rows, err := q.Query(ctx, "SELECT "+withoutSource+`, v.rule FROM pending_versions v JOIN rule_modes m ON m.rule = v.rule
		WHERE v.ended_at IS NULL AND `+where, args...)
	if err != nil {
		return err
	}
	pending := map[string]*StoredVersion{}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (none struct{}, err error) {
		var rule string
		v, err := scanVersion(row, &rule)
		v.Version.Pending = true
		pending[rule] = &v
		return none, err
	})
	if err != nil {
		return err
	}
	for i := range all {
		live := &all[i].Newest.Version
		if p := pending[live.ID]; p != nil && p.Version.Number > live.Number {
			all[i].Pending = p
		}
	}
	return nil
}

// allVersions are the versions that act or acted, and those that are pending, or were and never acted, each once.
const allVersions = `(
		SELECT a.rule, a.version, a.lineage, a.document,
			coalesce((SELECT t.source FROM rule_texts t WHERE t.rule = a.rule AND t.version = a.version
				ORDER BY t.number DESC LIMIT 1), a.source) AS source,
			a.hash, a.created_at, a.author, a.reason,
			false AS pending, '' AS outcome,
			coalesce(p.ended_at, a.created_at) AS acted_at
		FROM rule_versions a LEFT JOIN pending_versions p ON p.rule = a.rule AND p.version = a.version
		UNION ALL
		SELECT p.rule, p.version, p.lineage, p.document,
			coalesce((SELECT t.source FROM rule_texts t WHERE t.rule = p.rule AND t.version = p.version
				ORDER BY t.number DESC LIMIT 1), p.source),
			p.hash, p.created_at, p.author, p.reason, true, coalesce(p.outcome, ''), NULL FROM pending_versions p
		WHERE coalesce(p.outcome, '') NOT IN ('promoted', 'adopted')) v`

// versionsOf are the versions of a rule, newest first: all, or the one with a number.
func versionsOf(ctx context.Context, q postgres.Querier, rule string, number int) ([]StoredVersion, error) {
	rows, err := q.Query(ctx, "SELECT "+versionColumns+", v.pending, v.outcome, v.acted_at FROM "+allVersions+`
		WHERE v.rule = $1 AND $2::bigint IN (0, v.version) ORDER BY v.version DESC, v.pending`, traffic.Printable(rule), number)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (StoredVersion, error) {
		var pending bool
		var outcome Outcome
		var acted *time.Time
		v, err := scanVersion(row, &pending, &outcome, &acted)
		if v.Version.Pending, v.Ended = pending, outcome; acted != nil {
			v.Acted = acted.UTC()
		}
		return v, err
	})
}

// RuleVersion returns one version of a rule, false where there is none. One that is pending, or was and never acted, says so.
func (s *Store) RuleVersion(ctx context.Context, id string, number int) (*rules.Version, bool, error) {
	found, err := versionsOf(ctx, s.db, id, max(number, 1)) // no version has another
	if err != nil {
		return nil, false, s.db.Fail(fmt.Sprintf("reading version %d of rule %q", number, id), err)
	}
	if len(found) == 0 || number < 1 {
		return nil, false, nil
	}
	return &found[0].Version, true, nil
}

// endPending ends a rule's pending version, if it has one.
func endPending(b *batch, rule string, outcome Outcome) {
	b.queue("UPDATE pending_versions SET ended_at = clock_timestamp(), outcome = $2 WHERE rule = $1 AND ended_at IS NULL",
		rule, string(outcome))
}

// act makes a rule's pending version its newest one. It keeps number, lineage and author, and with the lineage its windows.
func (r *Rule) act(b *batch, outcome Outcome) {
	v := r.Pending
	b.queue(`INSERT INTO rule_versions (rule, version, lineage, document, source, hash, author, reason, created_at)
		SELECT rule, version, lineage, document, source, hash, author, reason, created_at FROM pending_versions
		WHERE rule = $1 AND version = $2 AND ended_at IS NULL`, v.Version.ID, v.Version.Number)
	endPending(b, v.Version.ID, outcome)
	live := *v
	live.Version.Pending = false
	r.Newest, r.Pending, r.Since = live, nil, v.Created
}

// Warm is when the windows of a version of r are full that began when its lineage did, and the time is not past now; zero where it is, and
// where nothing counts.
func (r *Rule) Warm(now time.Time) time.Time { return r.warm(r.Since, &r.Newest, now) }

// WarmPending is Warm of the pending version.
func (r *Rule) WarmPending(now time.Time) time.Time { return r.warm(r.Pending.Created, r.Pending, now) }

func (r *Rule) warm(since time.Time, v *StoredVersion, now time.Time) time.Time {
	if full := since.Add(v.Version.Window); r.counts() && full.After(now) {
		return full
	}
	return time.Time{}
}

// StateOf says in a word what a version of r is or was: block, shadow or off as the rule's mode, pending, what became of it when it was
// pending, or superseded.
func (r *Rule) StateOf(v *StoredVersion) string {
	switch {
	case v.Ended != "":
		return string(v.Ended)
	case v.Version.Pending:
		return "pending"
	case v.Version.Number == r.Newest.Version.Number:
		return string(r.Mode)
	}
	return "superseded"
}
