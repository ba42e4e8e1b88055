package blocklist

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/rules"
)

// scanSize is how many keys one step of a SCAN looks at.
const scanSize = 1000

// cursor is the id of the last entry that has been applied of each delta stream; "" before the first.
type cursor map[string]string

// source is what a Replica reads: a Store, but for tests of what a Replica makes of it.
type source interface {
	// cursor reads the newest id of every stream.
	cursor(ctx context.Context) (cursor, error)
	// deltas reads what the streams hold after the ids, and waits up to patience if that is nothing.
	deltas(ctx context.Context, after cursor, patience time.Duration) ([]streamed, error)
	Modes(ctx context.Context) ([]rules.ModeState, error)
	// remembers reports whether the reconciler's marker is there.
	remembers(ctx context.Context) (bool, error)
	// eachNode calls visit at the same time for every node, those that do not answer included.
	eachNode(ctx context.Context, visit func(ctx context.Context, n node)) error
}

// node is a master of a cluster, or the standalone server.
type node interface {
	// slots are those that it has to itself now.
	slots(ctx context.Context) (slotSet, error)
	// scan calls take for each block and tombstone that stands there all the time, tombstones first.
	scan(ctx context.Context, take func(h held, tombstone bool, value string), unreadable func()) error
}

var (
	_ source = (*Store)(nil)
	_ node   = server{}
)

// takeValue puts what a key holds into the table.
func (r *Replica) takeValue(h held, tombstone bool, value string) {
	if tombstone {
		tomb, err := DecodeTombstone([]byte(value))
		r.takeTombstone(h, tomb, err)
		return
	}
	b, err := DecodeBlock([]byte(value))
	r.takeBlock(h, &b, err)
}

func (r *Replica) takeUnreadable() { r.metrics.rejected.WithLabelValues("unreadable").Inc() }

// takeBlock puts a block into the table unless it may not hold anybody.
func (r *Replica) takeBlock(h held, b *Block, err error) {
	if err == nil && b.Rule != h.rule {
		err = fmt.Errorf("block of rule %q under the key of rule %q", b.Rule, h.rule)
	}
	w, whoErr := parseWho(h.subject)
	switch {
	case err != nil || whoErr != nil:
		r.takeUnreadable()
	case r.never.holds(&w):
		r.metrics.rejected.WithLabelValues("never_block").Inc()
	default:
		r.table.put(h.subject, &w, b)
	}
}

func (r *Replica) takeTombstone(h held, tomb Tombstone, err error) {
	w, whoErr := parseWho(h.subject)
	if err != nil || whoErr != nil || tomb.Rule != h.rule {
		r.takeUnreadable()
		return
	}
	r.table.release(h.subject, &w, tomb)
}

// cursor reads the newest id of every stream.
func (s *Store) cursor(ctx context.Context) (cursor, error) {
	names, err := s.client.SMembers(ctx, s.keys.Streams()).Result()
	if err != nil {
		return nil, fmt.Errorf("%s: delta streams: %w", s.address, err)
	}
	at := cursor{streamModes: ""}
	for _, name := range names {
		at[name] = ""
	}
	return at, s.newest(ctx, at)
}

// newest replaces the ids in at by the newest ones.
func (s *Store) newest(ctx context.Context, at cursor) error {
	names := make([]string, 0, len(at))
	keys := make([]string, 0, len(at))
	for name := range at {
		names = append(names, name)
		keys = append(keys, s.keys.Last(name))
	}
	values, err := s.client.MGet(ctx, keys...).Result()
	if err != nil {
		return fmt.Errorf("%s: newest deltas: %w", s.address, err)
	}
	for i, v := range values {
		id, _ := v.(string) // nil when the stream has never been written to
		at[names[i]] = id
	}
	return nil
}

// streamed is what was read of one stream.
type streamed struct {
	stream  string
	entries []redis.XMessage
}

// deltas reads the delta streams, those of modes before the others: their entries are few, and wait for no burst of blocks.
func (s *Store) deltas(ctx context.Context, after cursor, patience time.Duration) ([]streamed, error) {
	names := make(map[string]string, len(after))
	var args, ids []string
	for name, id := range after {
		key := s.keys.Stream(name)
		names[key] = name
		if id == "" {
			id = "0-0"
		}
		args, ids = append(args, key), append(ids, id)
	}
	// A server that swallows requests must not hold up the probe, or the end of Run.
	ctx, cancel := context.WithTimeout(ctx, patience+DefaultTimeout)
	defer cancel()
	answer, err := s.client.XRead(ctx, &redis.XReadArgs{Streams: append(args, ids...), Count: readCount, Block: patience}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: read deltas: %w", s.address, err)
	}
	out := make([]streamed, 0, len(answer))
	for _, x := range answer {
		out = append(out, streamed{names[x.Stream], x.Messages})
		if last := len(out) - 1; names[x.Stream] == streamModes {
			out[0], out[last] = out[last], out[0]
		}
	}
	return out, nil
}

// server is one Redis that holds keys: a master of a cluster, or the only one.
type server struct {
	store  *Store
	client *redis.Client
}

// eachNode visits the masters.
func (s *Store) eachNode(ctx context.Context, visit func(ctx context.Context, n node)) error {
	return s.eachMaster(ctx, func(ctx context.Context, client *redis.Client) error {
		visit(ctx, server{s, client})
		return nil
	})
}

// slots asks the master itself: others hear of a slot that moves later than it does.
func (x server) slots(ctx context.Context) (slotSet, error) {
	if _, cluster := x.store.client.(*redis.ClusterClient); !cluster {
		return allSlots(), nil
	}
	nodes, err := x.client.ClusterNodes(ctx).Result()
	if err != nil {
		return slotSet{}, fmt.Errorf("%s: %w", x.store.address, err)
	}
	own, err := ownSlots(nodes)
	if err != nil {
		return slotSet{}, fmt.Errorf("%s: %w", x.store.address, err)
	}
	return own, nil
}

// scan visits every block and tombstone of the namespace. Tombstones come first: a release that was missed acts before
// anything else is read.
func (x server) scan(ctx context.Context, take func(h held, tombstone bool, value string), unreadable func()) error {
	for _, pattern := range []string{x.store.keys.tombstonePattern(), x.store.keys.blockPattern()} {
		err := x.store.eachKey(ctx, x.client, pattern, func(keys []string) error { return x.store.values(ctx, keys, take, unreadable) })
		if err != nil {
			return err
		}
	}
	return nil
}

// eachKey visits a master's keys of a pattern, those of one step at a time. One that stands there all the time comes at least once.
func (s *Store) eachKey(ctx context.Context, node *redis.Client, pattern string, visit func(keys []string) error) error {
	for at := uint64(0); ; {
		keys, next, err := node.Scan(ctx, at, pattern, scanSize).Result()
		if err != nil {
			return fmt.Errorf("%s: scan: %w", s.address, err)
		}
		if err := visit(keys); err != nil {
			return err
		}
		if at = next; at == 0 {
			return nil
		}
	}
}

// scan visits every block and tombstone of the namespace, one call of visit or unreadable at a time per master.
func (s *Store) scan(ctx context.Context, visit func(h held, tombstone bool, value string), unreadable func()) error {
	return s.eachMaster(ctx, func(ctx context.Context, client *redis.Client) error {
		return server{s, client}.scan(ctx, visit, unreadable)
	})
}

// values reads the values of keys; what expired since the scan is no longer there.
func (s *Store) values(ctx context.Context, keys []string, visit func(h held, tombstone bool, value string), unreadable func()) error {
	if len(keys) == 0 {
		return nil
	}
	pipe := s.client.Pipeline()
	cmds := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		cmds[i] = pipe.Get(ctx, key)
	}
	_, execErr := pipe.Exec(ctx)
	for i, cmd := range cmds {
		value, err := cmd.Result()
		h, tombstone, ours := s.keys.parse(keys[i])
		switch {
		case errors.Is(err, redis.Nil):
		case redis.HasErrorPrefix(err, "WRONGTYPE") || err == nil && !ours:
			unreadable()
		case err != nil:
			return fmt.Errorf("%s: read blocks: %w", s.address, errors.Join(err, execErr))
		default:
			visit(h, tombstone, value)
		}
	}
	return nil
}
