package evidence

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// readRaised reads when the limit was raised above the document's: sources between the two were over the one and not
// over the other.
func (f *found) readRaised(ctx context.Context, tx pgx.Tx, a *asked) (err error) {
	if a.Role != Acting {
		return nil // a candidate and a pending version have their limits as they are written
	}
	f.raised, err = collect(ctx, tx, "SELECT since, until FROM limit_raises WHERE rule = $1 AND rule_limit > $2 AND since < $3 AND until > $4 AND until > since ORDER BY since",
		scanInterval, a.Rule, a.limit, stamp(a.Until), stamp(a.Since))
	if err != nil {
		return fmt.Errorf("raised limits: %w", err)
	}
	return nil
}

func scanInterval(row pgx.CollectableRow) (i interval, err error) {
	return i, row.Scan(postgres.ScanTime(&i.since), postgres.ScanTime(&i.until))
}

// listed is a version of an allow list from a time on.
type listed struct {
	since traffic.Time
	list  rules.AllowList // without entries where it was removed
}

// readAllowed finds out when a source was let pass that would be counted now: for want of an entry, or since the rule
// names other lists. Now is behind the span, which ends with a whole minute: what was taken off a list since would be
// counted, and was not seen.
func (f *found) readAllowed(ctx context.Context, tx pgx.Tx, a *asked) error {
	var names []string
	for i := range a.acting {
		names = append(names, a.acting[i].Version.Allow...)
	}
	if len(names) == 0 {
		return nil
	}
	versions := map[string][]listed{}
	rows, err := tx.Query(ctx, `SELECT list, created_at, CASE WHEN removed THEN '' ELSE document END
		FROM allow_versions WHERE list = ANY ($1) ORDER BY list, version`, names)
	if err == nil {
		var name, document string
		var v listed
		_, err = pgx.ForEachRow(rows, []any{&name, postgres.ScanTime(&v.since), &document}, func() (err error) {
			if v.list = (rules.AllowList{}); document != "" {
				v.list, err = rules.DecodeAllowList([]byte(document))
			}
			versions[name] = append(versions[name], v)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("allow lists: %w", err)
	}
	f.allowed = a.allowedThen(versions)
	return nil
}

// allowedThen are the times in which an entry let sources pass that no entry does that is listed now.
func (a *asked) allowedThen(versions map[string][]listed) (out []interval) {
	now := rules.AllowList{}
	for _, e := range entriesAt(versions, a.version.Allow, traffic.EndOfTime) {
		if !e.Ends(a.Until) {
			e.Until = 0
			now.Entries = append(now.Entries, e)
		}
	}
	changes := []traffic.Time{a.Since}
	for _, list := range versions {
		for _, v := range list {
			changes = append(changes, v.since)
		}
	}
	for i := range a.acting {
		changes = append(changes, traffic.At(a.acting[i].Acted))
	}
	changes = slices.DeleteFunc(changes, func(t traffic.Time) bool { return t < a.Since || t >= a.Until })
	slices.Sort(changes)
	changes = append(slices.Compact(changes), a.Until)
	for i, since := range changes[:len(changes)-1] {
		then := rules.AllowList{Entries: entriesAt(versions, a.actingAt(since).Version.Allow, since)}
		until := traffic.BeforeTime
		for _, e := range then.Uncovered(&now, since) {
			if e.Until == 0 {
				until = traffic.EndOfTime
			}
			until = max(until, e.Until)
		}
		if until = min(until, changes[i+1]); until > since {
			out = append(out, interval{since, until})
		}
	}
	return out
}

// actingAt is the version that acted at a time, of those of which facts may be; the first one before all of them.
func (a *asked) actingAt(t traffic.Time) *rulestore.StoredVersion {
	at := &a.acting[0]
	for i := range a.acting {
		if traffic.At(a.acting[i].Acted) <= t {
			at = &a.acting[i]
		}
	}
	return at
}

// entriesAt are those of lists as they were at a time.
func entriesAt(versions map[string][]listed, names []string, t traffic.Time) (out []rules.AllowEntry) {
	for _, name := range names {
		var newest *listed
		for i := range versions[name] {
			if v := &versions[name][i]; v.since <= t {
				newest = v
			}
		}
		if newest != nil {
			out = append(out, newest.list.Entries...)
		}
	}
	return out
}

// during reports whether a part of a minute lies in one of spans.
func during(spans []interval, at traffic.Time) bool {
	return slices.ContainsFunc(spans, func(s interval) bool { return s.since < at+minute && at < s.until })
}
