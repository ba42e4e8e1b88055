package blocklist

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// standing is what Redis holds under one block's keys; nil for what is not there, and for what this build cannot read,
// about which the scripts decide.
type standing struct {
	block     *Block
	tombstone *Tombstone
	err       error // it could not be read
}

// standing reads what Redis holds under the names given. A master that does not answer spoils its own keys only.
func (s *Store) standing(ctx context.Context, names []held) []standing {
	keys := make([]string, len(names))
	for i, h := range names {
		keys[i] = s.keys.Block(h.subject, h.rule)
	}
	out := make([]standing, len(names))
	errs, err := s.spread(ctx, keys, "", DefaultTimeout, func(ctx context.Context, at []int) []error {
		pipe := s.client.Pipeline()
		cmds := make([]*redis.SliceCmd, len(at))
		for j, i := range at {
			// Both keys lie in one slot, so one command reads them at one moment.
			cmds[j] = pipe.MGet(ctx, keys[i], s.keys.Tombstone(names[i].subject, names[i].rule))
		}
		_, execErr := pipe.Exec(ctx)
		errs := make([]error, len(at))
		for j, i := range at {
			values, err := cmds[j].Result()
			if err == nil && len(values) != 2 { // the pipeline never got so far
				err = errors.Join(errors.New("no answer"), execErr)
			}
			if errs[j] = err; err == nil {
				out[i].read(values)
			}
		}
		return errs
	})
	for i := range out {
		if out[i].err = err; err == nil {
			out[i].err = errs[i]
		}
	}
	return out
}

func (st *standing) read(values []any) {
	if text, ok := values[0].(string); ok {
		if b, err := DecodeBlock([]byte(text)); err == nil {
			st.block = &b
		}
	}
	if text, ok := values[1].(string); ok {
		if t, err := DecodeTombstone([]byte(text)); err == nil {
			st.tombstone = &t
		}
	}
}

// lacks reports whether the raise script might change anything. It may say so of more than that, never of less: the script
// decides, under what it finds then.
func (st *standing) lacks(b *Block) bool {
	if st.tombstone != nil && st.tombstone.Covers(b.Hit, b.Since) {
		return false
	}
	if st.block == nil || st.block.Generation < b.Generation {
		return true
	}
	return st.block.Generation == b.Generation && st.block.Until < b.Until
}

// lacksRelease is lacks for the release script, of a tombstone that removes only what it covers.
func (st *standing) lacksRelease(t *Tombstone) bool {
	if st.tombstone == nil || st.tombstone.Released < t.Released {
		return true
	}
	return st.block != nil && st.tombstone.Covers(st.block.Hit, st.block.Since)
}
