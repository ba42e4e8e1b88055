package rulestore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// counts reports whether routing versions have the rule.
func (r *Rule) counts() bool { return !r.Removed && r.Mode != rules.ModeOff }

// raiseKept is how long routing versions name a raise that has ended, for events that come late or are routed late.
const raiseKept = 31 * 24 * time.Hour

// routed are r's versions in a routing version that is published at now: the one that acts, with the limit that it is raised to, and
// the pending one.
func (r *Rule) routed(now time.Time) []rules.Version {
	live := r.Newest.Version
	if up := r.Raised; up != nil && up.Limit > live.Limit && now.Sub(up.Until) < raiseKept {
		live.Raised = &rules.Raise{Limit: up.Limit, Until: traffic.At(up.Until)}
	}
	list := []rules.Version{live}
	if r.Pending != nil {
		list = append(list, r.Pending.Version)
	}
	return list
}

// errNoRouting says that rules cannot take effect yet.
var errNoRouting = errors.New("stream live has no routing version yet: run `weir migrate`")

// publishRules publishes the rules that count now as the live stream's next routing version, whose number it returns.
func (s *Store) publishRules(ctx context.Context, tx pgx.Tx) (int64, error) {
	all, err := loadRules(ctx, tx, "NOT m.removed")
	if err != nil {
		return 0, err
	}
	lists, err := loadAllow(ctx, tx)
	if err != nil {
		return 0, err
	}
	now, err := clock(ctx, tx)
	if err != nil {
		return 0, err
	}
	number, _, err := publish(ctx, s, tx, streams.Live, func(prev *rules.Routing) (rules.Routing, error) {
		if prev == nil {
			return rules.Routing{}, errNoRouting
		}
		next := *prev
		next.Rules = nil
		for i := range all {
			if all[i].counts() {
				next.Rules = append(next.Rules, all[i].routed(now)...)
			}
		}
		next.WithAllow(plainAllow(lists))
		return next, nil
	})
	return number, err
}

// clock is the database's, the one that dates what is stored.
func clock(ctx context.Context, tx pgx.Tx) (now time.Time, err error) {
	err = tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	return now.UTC(), err
}
