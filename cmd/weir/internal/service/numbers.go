package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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

// own makes Redis, where this process has one, this installation's; it is an error where it is another one's.
func (in *Installation) own(ctx context.Context) error {
	if in.Redis == nil {
		return nil
	}
	me, err := owner(ctx, in.History, "weir run")
	if err != nil {
		return err
	}
	return blocklist.NewOwnership(in.Redis).Own(ctx, me)
}

// RefuseForeign is an error where Redis is another installation's, as far as the servers answer within a moment.
func (in *Installation) RefuseForeign(ctx context.Context) error {
	return refuseForeign(ctx, in.History, in.Redis)
}

func refuseForeign(ctx context.Context, h *history.Store, r *blocklist.Store) error {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	mine, err := h.Streams.Installation(ctx)
	if err != nil {
		return nil //nolint:nilerr // the console says that PostgreSQL does not answer, and the way out stays open
	}
	err = blocklist.NewOwnership(r).RefuseForeign(ctx, mine)
	if foreign := (*blocklist.ForeignError)(nil); errors.As(err, &foreign) {
		return err
	}
	return nil
}

// Foreign says whose Redis is, where it is another installation's than the configured one; empty also where PostgreSQL
// does not tell within a moment which that is.
func Foreign(ctx context.Context, c *config.Config, r *blocklist.Store, log *slog.Logger) string {
	h, err := OpenHistory(ctx, c, log)
	if err != nil {
		return ""
	}
	defer h.Close()
	if foreign := (*blocklist.ForeignError)(nil); errors.As(refuseForeign(ctx, h, r), &foreign) {
		return foreign.Means()
	}
	return ""
}

// owner is this installation as the owner of a Redis.
func owner(ctx context.Context, h *history.Store, by string) (blocklist.Owner, error) {
	id, err := h.Streams.Installation(ctx)
	host, herr := os.Hostname()
	if herr != nil {
		host = "unknown"
	}
	return blocklist.Owner{Installation: id, Since: Now(), By: by + " on " + host}, err
}

// TakeRedis makes Redis this installation's, whosever it was, and says so.
func TakeRedis(ctx context.Context, c *config.Config, h *history.Store, by string) (line string, err error) {
	redis, err := OpenRedis(c)
	if err != nil {
		return "", err
	}
	defer func() { _ = redis.Close() }() // nothing is under way any more
	me, err := owner(ctx, h, by+", weir migrate --take-redis")
	if err != nil {
		return "", err
	}
	deed := blocklist.NewOwnership(redis)
	was, err := deed.Owner(ctx)
	if err != nil {
		return "", err
	}
	if err := deed.Take(ctx, me); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s belongs to this installation now, %s; before: %q; gates "+
		"that run go on with what they had: give them gate.installation, where it is set, and start them "+
		"again", redis.Place(),
		me.Installation,
		was.Installation), nil
}

// CompareNumbers compares the numbers of the rule store with those that Redis names, and with routing, the greatest
// routing version that Kafka's commits name. A Redis that is another installation's is an error. Where the store has
// come back older, it goes on above them, and gates are told. lines say what was found.
func CompareNumbers(ctx context.Context, c *config.Config, h *history.Store, routing int64,
	by string) (lines []string, err error) {
	named := rulestore.Named{Routing: routing}
	redis, err := OpenRedis(c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = redis.Close() }() // nothing is under way any more
	blocklist.SignModes(redis, h.Streams.ModesSeed)
	blocklist.ActFor(redis, h.Streams.Installation)
	me, err := owner(ctx, h, by+", weir migrate")
	if err != nil {
		return nil, err
	}
	unasked := namedBy(ctx, redis, me, &named)
	if foreign := (*blocklist.ForeignError)(nil); errors.As(unasked, &foreign) {
		return nil, unasked
	}
	if unasked != nil {
		lines = append(lines, fmt.Sprintf("modes in Redis are not compared with the rule store, weir run with the "+
			"stage enforce does that: %v", unasked))
	}
	lost, err := lostNever(ctx, redis, h, unasked)
	if err != nil {
		return lines, err
	}
	done, err := h.Rules.Overtake(ctx, named, by, audit.Local, "")
	lines = append(append(lines, done.Lines()...), lost...)
	if unasked != nil || done.Floor == 0 {
		return lines, err
	}
	modes, unread := h.Rules.Modes(ctx)
	if unread != nil {
		return lines, errors.Join(err, unread)
	}
	_, unsynced := redis.SyncModes(ctx, Now(), append(modes, done.Strangers...))
	return lines, cmp.Or(err, unsynced)
}

// namedBy makes Redis mine, where it is nobody's, and asks it for the numbers that it names.
func namedBy(ctx context.Context, redis *blocklist.Store, me blocklist.Owner, named *rulestore.Named) error {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	if err := blocklist.NewOwnership(redis).Own(ctx, me); err != nil {
		return err
	}
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

// lostNever says which entries of the never-block list Redis has and the rule store has lost, each with the command
// that adds it again: once ENFORCE runs, Redis has what is stored, and nobody knows of them any more. It is asked
// before the store's numbers go above Redis'. unasked is why Redis was not asked; nil: it was.
func lostNever(ctx context.Context, redis *blocklist.Store, h *history.Store, unasked error) ([]string, error) {
	if unasked != nil {
		return nil, nil
	}
	told, err := redis.Never(ctx)
	if err != nil {
		return nil, err
	}
	stored, err := h.Orders.NeverEntries(ctx)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, e := range told.Lost(&stored, Now()) {
		lines = append(lines, fmt.Sprintf("never-block list: Redis has %s, and the rule store has lost it, with who "+
			"added it and why; once weir run with enforce starts, it keeps nobody from being blocked: %s", e.Prefix,
			e.Command()))
	}
	return lines, nil
}

// overtaking numbers the modes of the rule store above those that Redis has later than it, and stops rules that it does
// not know.
func overtaking(store *rulestore.Store) func(context.Context, []rules.ModeState) ([]string, []rules.ModeState, error) {
	repeats := new(rulestore.Repeats)
	return func(ctx context.Context, ahead []rules.ModeState) ([]string, []rules.ModeState, error) {
		done, err := store.Overtake(ctx, rulestore.Named{Modes: ahead, Repeats: repeats}, rulestore.ByWeir, "", "")
		return done.Lines(), done.Strangers, err
	}
}
