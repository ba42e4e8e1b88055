package rulestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// CounterReset asks that what a rule has counted of one source be set back to nothing.
type CounterReset struct {
	Rule    string
	Subject traffic.Subject // of the rule's key, as it is counted (rules.KeyedSubject)
	By      string
	Via     string // as of a ModeChange
	Reason  string
	Check   func(r *Rule) error // as of a ModeChange
}

// CounterResetDone is what became of a CounterReset.
type CounterResetDone struct {
	Rule    string          `json:"rule" mask:"name"`
	Subject traffic.Subject `json:"subject"`
	Routing int64           `json:"routing"` // the routing version that brings it
	At      time.Time       `json:"at"`
}

// ResetCounter publishes a routing version of the live stream that resets a count, audited. It is refused for a rule that counts
// nothing, for a subject that is none of the rule's key or of its pending version's, where rules.MaxResets are in force, and where the
// rule blocks and a reset may lead to more blocking (rules.ResetMayBlockMore). postgres.ErrNotFound is wrapped for an unknown rule.
func (s *Store) ResetCounter(ctx context.Context, c CounterReset) (done CounterResetDone, err error) {
	err = s.db.Transact(ctx, fmt.Sprintf("resetting a count of rule %q", c.Rule), func(tx pgx.Tx) error {
		floor, err := begin(ctx, tx)
		if err != nil {
			return err
		}
		r, err := findRule(ctx, tx, c.Rule)
		if err != nil {
			return err
		}
		if err := r.checked(c.Check); err != nil {
			return err
		}
		keys, err := r.mayReset(c.Subject)
		if err != nil {
			return err
		}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		done = CounterResetDone{Rule: c.Rule, Subject: c.Subject, At: now.Truncate(time.Microsecond)}
		done.Routing, _, err = publish(ctx, s, tx, streams.Live, func(prev *rules.Routing) (rules.Routing, error) {
			return withReset(prev, floor, &done, keys)
		})
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, audit.Entry{Actor: traffic.Printable(c.By), Via: c.Via, Action: "reset-count", Object: "rule " + c.Rule, Reason: traffic.Printable(c.Reason),
			Detail: fmt.Sprintf("%s, in routing version %d", c.Subject.Stored(), done.Routing),
			Before: fmt.Sprintf("counted up to routing version %d", done.Routing-1), After: fmt.Sprintf("nothing counted, from routing version %d", done.Routing)})
	})
	return done, err
}

// mayReset gives the keys of r, its pending version's included, that have the subject; or an error, where it must not be reset.
func (r *Rule) mayReset(subject traffic.Subject) (keys [][]traffic.KeyField, err error) {
	live := &r.Newest.Version
	switch {
	case r.Removed:
		return nil, r.removedError()
	case !r.counts():
		return nil, errors.New("it is off, and counts nothing that could be reset")
	}
	var unfit error
	for _, key := range r.Keys() {
		if _, err := subject.Named(key); err != nil {
			if unfit == nil {
				unfit = err
			}
			continue
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("SOURCE: %w; it counts by %s", unfit, rules.DescribeKey(live.Key))
	}
	if !r.Mode.Blocks() {
		return keys, nil
	}
	if reasons := rules.ResetMayBlockMore(&live.Document); len(reasons) > 0 {
		return nil, fmt.Errorf("it blocks, and after a reset it may block more (%s): demote it first (weir rules demote %s), or release the source (weir blocks release)",
			strings.Join(reasons, "; "), live.ID)
	}
	return keys, nil
}

// Keys are the keys by which r counts: that of the version that acts and, where it is another one, that of the pending version.
func (r *Rule) Keys() [][]traffic.KeyField {
	keys := [][]traffic.KeyField{r.Newest.Version.Key}
	if r.Pending != nil && !slices.Equal(r.Pending.Version.Key, keys[0]) {
		keys = append(keys, r.Pending.Version.Key)
	}
	return keys
}

// withReset is the routing version after prev, above floor, with a reset of the subject under each of keys.
func withReset(prev *rules.Routing, floor int64, done *CounterResetDone, keys [][]traffic.KeyField) (rules.Routing,
	error) {
	if prev == nil {
		return rules.Routing{}, errNoRouting
	}
	next := *prev
	next.KeepResets(traffic.At(done.At))
	for _, key := range keys {
		next.Reset(rules.Reset{Rule: done.Rule, Key: key, Subject: done.Subject, Since: max(prev.Number, floor) + 1,
			At: traffic.At(done.At)})
	}
	if len(next.Resets) > rules.MaxResets {
		oldest := next.Resets[0].At.Std().Add(rules.ResetKept)
		return next, fmt.Errorf("got %d counts reset in the last %d days, allowed %d; the next may be reset on %s. To have a rule begin anew for everybody, edit its window",
			len(next.Resets), int(rules.ResetKept.Hours()/24), rules.MaxResets, oldest.Format("2006-01-02"))
	}
	return next, nil
}
