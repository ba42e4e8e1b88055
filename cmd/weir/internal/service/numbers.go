package service

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

// redisPatience is how long a migration waits for Redis, without which it goes on: ENFORCE compares what it could not.
const redisPatience = 3 * time.Second

// CompareNumbers compares the numbers of the rule store with those that Redis names, and with routing, the greatest routing version that
// Kafka's commits name. Where the store has come back older, it goes on above them, and gates are told. lines say what was found.
func CompareNumbers(ctx context.Context, c *config.Config, h *history.Store, routing int64, by string) (lines []string, err error) {
	named := rulestore.Named{Routing: routing}
	redis, err := OpenRedis(c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = redis.Close() }() // nothing is under way any more
	unasked := namedBy(ctx, redis, &named)
	if unasked != nil {
		lines = append(lines, fmt.Sprintf("modes in Redis are not compared with the rule store, weir run with the stage enforce does that: %v", unasked))
	}
	done, err := h.Rules.Overtake(ctx, named, by, audit.Local, "")
	lines = append(lines, done.Lines()...)
	if err != nil || unasked != nil || done.Floor == 0 {
		return lines, err
	}
	modes, err := h.Rules.Modes(ctx)
	if err != nil {
		return lines, err
	}
	_, err = redis.SyncModes(ctx, Now(), append(modes, done.Strangers...))
	return lines, err
}

// namedBy asks Redis for the numbers that it names.
func namedBy(ctx context.Context, redis *blocklist.Store, named *rulestore.Named) error {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	modes, err := redis.Modes(ctx)
	if err != nil {
		return err
	}
	never, err := redis.Never(ctx)
	if err == nil {
		named.Modes, named.Never = modes, never.Revision
	}
	return err
}

// overtake numbers the modes of the rule store above those that Redis has later than it.
func (in *Installation) overtake(ctx context.Context, ahead []rules.ModeState) ([]string, error) {
	done, err := in.lookups.Rules.Overtake(ctx, rulestore.Named{Modes: ahead}, rulestore.ByWeir, "", "")
	return done.Lines(), err
}
