package evidence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// MaxSpan bounds a dossier's time.
const MaxSpan = 100 * 24 * time.Hour

// Question is what a dossier is asked about.
type Question struct {
	Rule string
	Role Role // empty: Acting, or with Version the version's own
	// Version is a number of one; 0: the newest of the role.
	Version int
	// Since and Until are cut to whole minutes; the minute of Until is left out.
	Since, Until traffic.Time
	// NeverBlock says of a block's subject that nobody ever is held by it. nil: all may be.
	NeverBlock func(traffic.Subject) bool
}

// Store makes dossiers from the rows of one installation. It is safe for concurrent use.
type Store struct {
	db    *postgres.DB
	rules *rulestore.Store
	// second is had by the one dossier that reads on two connections.
	second sync.Mutex
}

// New returns the dossiers of db.
func New(db *postgres.DB, rules *rulestore.Store) *Store { return &Store{db: db, rules: rules} }

// ErrNoVersion is wrapped where the rule has no version as it was asked for; the error says what it has.
var ErrNoVersion = errors.New("no such version")

const minute = traffic.Time(time.Minute / time.Microsecond)

// Gather makes the dossier of a version of a rule in the live stream. postgres.ErrNotFound is wrapped where there is no such rule,
// ErrNoVersion where it has no such version. A span without any data is no error: its figures are not measurable, and say so.
func (s *Store) Gather(ctx context.Context, q Question) (*Dossier, error) {
	if q.Since -= mod(q.Since); q.Until-mod(q.Until) <= q.Since || q.Until.Sub(q.Since) > MaxSpan {
		return nil, fmt.Errorf("evidence: got %s to %s, allowed at least a minute and at most %d days", q.Since, q.Until, MaxSpan/(24*time.Hour))
	}
	q.Until -= mod(q.Until)
	r, err := s.rules.Find(ctx, q.Rule)
	if err != nil {
		return nil, err
	}
	subject, err := choose(&r, &q)
	if err != nil {
		return nil, fmt.Errorf("rule %s: %w", q.Rule, err)
	}
	found, err := s.read(ctx, subject)
	if err != nil {
		return nil, err
	}
	return subject.dossier(found), nil
}

func mod(t traffic.Time) traffic.Time { return ((t % minute) + minute) % minute }

// asked is a question with the version that it is about.
type asked struct {
	*Question
	facts
	stream  string
	version rules.Version
	limit   int
	begins  traffic.Time // when something first counted as the version does
	warm    traffic.Time // when its windows were full
}

// choose finds the version.
func choose(r *rulestore.Rule, q *Question) (*asked, error) {
	v := &r.Newest
	role := q.Role
	switch {
	case q.Version != 0:
		if v = numbered(r, q.Version); v == nil {
			return nil, fmt.Errorf("%w: got %d, allowed 1 to %d", ErrNoVersion, q.Version, r.Versions[0].Version.Number)
		}
		if role == "" && v.Version.Pending {
			role = Pending
		}
	case role == Pending:
		if v = r.Pending; v == nil {
			return nil, fmt.Errorf("%w: no version is pending; version %d acts", ErrNoVersion, r.Newest.Version.Number)
		}
	}
	if o := numbered(r, v.Version.Number); o != nil {
		v = o // which knows when it began to act
	}
	a := &asked{Question: q, stream: streams.Live, version: v.Version, limit: v.Version.Limit}
	if role == "" {
		role = Acting
	}
	q.Role = role
	switch {
	case role == Candidate && v.Version.Candidate == nil:
		return nil, fmt.Errorf("%w: version %d has no candidate", ErrNoVersion, v.Version.Number)
	case role == Candidate:
		a.limit = v.Version.Candidate.Limit
	}
	a.facts = factsOf(r, v, role)
	a.begins = a.spans[0].since
	a.warm = traffic.At(lineageSince(r, v)).Add(v.Version.Window)
	return a, nil
}

func numbered(r *rulestore.Rule, number int) *rulestore.StoredVersion {
	for i := range r.Versions {
		if r.Versions[i].Version.Number == number {
			return &r.Versions[i]
		}
	}
	return nil
}

// lineageSince is when the first version of v's lineage was applied.
func lineageSince(r *rulestore.Rule, v *rulestore.StoredVersion) time.Time {
	since := v.Created
	for i := range r.Versions {
		if o := &r.Versions[i]; o.Version.Lineage == v.Version.Lineage && o.Created.Before(since) {
			since = o.Created
		}
	}
	return since
}

// end is the end of the span, or where other versions count before it, for good, when they began to.
func (a *asked) end() traffic.Time { return min(a.Until, a.spans[len(a.spans)-1].until) }

// told is the kind of the minutes and episodes that tell of the version: those of a limit on trial are of a kind of their own.
func (a *asked) told() detectors.Kind {
	if a.Role == Acting {
		return detectors.KindHit
	}
	return detectors.KindCandidate
}
