package blocklist

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// scanSize is how many keys one step of a SCAN looks at.
const scanSize = 1000

// cursor is the id of the last entry that has been applied of each delta stream; "" before the first.
type cursor map[string]string

// load makes a table of everything in Redis. The cursor is read first: what changes while the keys are scanned is applied
// once more from the deltas, which does no harm, and nothing falls between.
func (r *Replica) load(ctx context.Context) (*table, cursor, error) {
	at, err := r.o.Store.cursor(ctx)
	if err != nil {
		return nil, nil, err
	}
	known, err := r.o.Store.remembers(ctx)
	if err != nil {
		return nil, nil, err
	}
	modes, err := r.o.Store.Modes(ctx)
	if err != nil {
		return nil, nil, err
	}
	r.touch()
	// At once in what gates ask now, too: reading all the keys takes seconds, and a demotion does not wait for them.
	r.table.Load().setModes(modes...)
	t := newTable()
	t.setModes(modes...)
	err = r.o.Store.scan(ctx, func(h held, tombstone bool, value string) {
		r.touch()
		if tombstone {
			tomb, err := DecodeTombstone([]byte(value))
			r.takeTombstone(t, h, tomb, err)
			return
		}
		b, err := DecodeBlock([]byte(value))
		r.takeBlock(t, h, &b, err)
	}, func() { r.metrics.rejected.WithLabelValues("unreadable").Inc() })
	if err != nil {
		return nil, nil, err
	}
	old := r.table.Load()
	t.inherit(old, r.o.Clock())
	if !known {
		// No marker: Redis was flushed, and the reconciler has not been there yet. It will ask for another load.
		t.inheritBlocks(old, r.o.Clock())
	}
	return t, at, nil
}

// takeBlock puts a block into t unless it may not hold anybody.
func (r *Replica) takeBlock(t *table, h held, b *Block, err error) {
	if err == nil && b.Rule != h.rule {
		err = fmt.Errorf("block of rule %q under the key of rule %q", b.Rule, h.rule)
	}
	w, whoErr := parseWho(h.subject)
	switch {
	case err != nil || whoErr != nil:
		r.metrics.rejected.WithLabelValues("unreadable").Inc()
	case r.never.holds(&w):
		r.metrics.rejected.WithLabelValues("never_block").Inc()
	default:
		t.put(h.subject, &w, b)
	}
}

func (r *Replica) takeTombstone(t *table, h held, tomb Tombstone, err error) {
	w, whoErr := parseWho(h.subject)
	if err != nil || whoErr != nil || tomb.Rule != h.rule {
		r.metrics.rejected.WithLabelValues("unreadable").Inc()
		return
	}
	t.release(h.subject, &w, tomb)
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

// scan visits every block and tombstone of the namespace, one call of visit or unreadable at a time per master.
func (s *Store) scan(ctx context.Context, visit func(h held, tombstone bool, value string), unreadable func()) error {
	return s.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		for _, pattern := range []string{s.keys.tombstonePattern(), s.keys.blockPattern()} {
			var at uint64
			for {
				keys, next, err := node.Scan(ctx, at, pattern, scanSize).Result()
				if err != nil {
					return fmt.Errorf("%s: scan: %w", s.address, err)
				}
				if err := s.values(ctx, keys, visit, unreadable); err != nil {
					return err
				}
				if at = next; at == 0 {
					break
				}
			}
		}
		return nil
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
