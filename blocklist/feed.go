package blocklist

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Feed is what an in-process copy of the blocks reads: all keys, and the delta streams with their changes. Its methods may be called
// by several goroutines.
type Feed struct{ store *Store }

// NewFeed makes a Feed of s.
func NewFeed(s *Store) *Feed { return &Feed{s} }

// Cursor is the id of the last entry that has been applied of each delta stream; "" before the first.
type Cursor map[string]string

// Cursor reads the newest id of every stream.
func (f *Feed) Cursor(ctx context.Context) (Cursor, error) {
	names, err := f.store.redis.client.SMembers(ctx, f.store.keys.Streams()).Result()
	if err != nil {
		return nil, fmt.Errorf("%s: delta streams: %w", f.store.redis.address, err)
	}
	at := Cursor{StreamModes: ""}
	for _, name := range names {
		at[name] = ""
	}
	return at, f.newest(ctx, at)
}

// newest replaces the ids in at by the newest ones.
func (f *Feed) newest(ctx context.Context, at Cursor) error {
	names := make([]string, 0, len(at))
	keys := make([]string, 0, len(at))
	for name := range at {
		names = append(names, name)
		keys = append(keys, f.store.keys.Last(name))
	}
	values, err := f.store.redis.client.MGet(ctx, keys...).Result()
	if err != nil {
		return fmt.Errorf("%s: newest deltas: %w", f.store.redis.address, err)
	}
	for i, v := range values {
		id, _ := v.(string) // nil when the stream has never been written to
		at[names[i]] = id
	}
	return nil
}

// DeltasPerRead is how many entries of one stream Deltas gives at most, which bounds for how long modes wait behind blocks.
const DeltasPerRead = 500

// Streamed is what was read of one stream.
type Streamed struct {
	Stream  string
	Entries []redis.XMessage
}

// Deltas reads the delta streams, those of modes before the others: their entries are few, and wait for no burst of blocks.
func (f *Feed) Deltas(ctx context.Context, after Cursor, timeout time.Duration) ([]Streamed, error) {
	names := make(map[string]string, len(after))
	var args, ids []string
	for name, id := range after {
		key := f.store.keys.Stream(name)
		names[key] = name
		if id == "" {
			id = "0-0"
		}
		args, ids = append(args, key), append(ids, id)
	}
	// A server that swallows requests must not hold up the probe, or the end of Run.
	ctx, cancel := context.WithTimeout(ctx, timeout+defaultTimeout)
	defer cancel()
	answer, err := f.store.redis.client.XRead(ctx, &redis.XReadArgs{Streams: append(args, ids...), Count: DeltasPerRead, Block: timeout}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: read deltas: %w", f.store.redis.address, err)
	}
	out := make([]Streamed, 0, len(answer))
	for _, x := range answer {
		out = append(out, Streamed{names[x.Stream], x.Messages})
		if last := len(out) - 1; names[x.Stream] == StreamModes {
			out[0], out[last] = out[last], out[0]
		}
	}
	return out, nil
}

// EachNode calls visit at the same time for every master of the cluster, masters that do not answer included, or for the server.
func (f *Feed) EachNode(ctx context.Context, visit func(ctx context.Context, n *Node)) error {
	return f.store.redis.eachMaster(ctx, func(ctx context.Context, client *redis.Client) error {
		visit(ctx, &Node{f.store, client})
		return nil
	})
}

// Node is one Redis server that holds keys: a master of a cluster, or the only one.
type Node struct {
	store  *Store
	client *redis.Client
}

// Address is what an operator reads about where the servers are.
func (n *Node) Address() string { return n.store.redis.address }

// ClusterNodes is the node's own answer to CLUSTER NODES: of a slot that moves, the other nodes learn later. cluster is false
// where there is none.
func (n *Node) ClusterNodes(ctx context.Context) (text string, cluster bool, err error) {
	if _, cluster := n.store.redis.client.(*redis.ClusterClient); !cluster {
		return "", false, nil
	}
	text, err = n.client.ClusterNodes(ctx).Result()
	if err != nil {
		return "", true, fmt.Errorf("%s: %w", n.store.redis.address, err)
	}
	return text, true, nil
}

// Scan visits every tombstone and then every block of the namespace: a release that was missed takes effect before any block is
// read.
func (n *Node) Scan(ctx context.Context, take func(h Name, tombstone bool, value string), unreadable func()) error {
	for _, pattern := range []string{n.store.keys.tombstonePattern(), n.store.keys.blockPattern()} {
		err := n.store.redis.eachKey(ctx, n.client, pattern, func(keys []string) error { return n.store.values(ctx, keys, take, unreadable) })
		if err != nil {
			return err
		}
	}
	return nil
}

// scanSize is how many keys one step of a SCAN looks at.
const scanSize = 1000

// values reads the values of keys; what expired since the scan is no longer there.
func (s *Store) values(ctx context.Context, keys []string, visit func(h Name, tombstone bool, value string), unreadable func()) error {
	if len(keys) == 0 {
		return nil
	}
	pipe := s.redis.client.Pipeline()
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
			return fmt.Errorf("%s: read blocks: %w", s.redis.address, errors.Join(err, execErr))
		default:
			visit(h, tombstone, value)
		}
	}
	return nil
}
