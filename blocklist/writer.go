package blocklist

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/traffic"
)

// Writer changes the blocks of a Store, and tells gates of changes. It is ENFORCE's and the reconciler's: nothing else decides
// about blocks. Its methods may be called by several goroutines.
type Writer struct{ store *Store }

// NewWriter makes a Writer of s.
func NewWriter(s *Store) *Writer { return &Writer{s} }

// raiseAll runs the raise script for each element that its address has room for; all keys must differ, since their order
// is not kept. What is refused, or unreached, is an outcome, and keeps no other from being raised.
func (w *Writer) raiseAll(ctx context.Context, raises []raise) ([]outcome, error) {
	out := make([]outcome, len(raises))
	if err := w.elderReleases(ctx, raises, out); err != nil {
		return nil, err
	}
	fresh, err := w.admit(ctx, raises, out)
	if err != nil {
		return nil, err
	}
	calls := make([]call, 0, len(raises))
	at := make([]int, 0, len(raises))
	for i := range raises {
		if out[i] == "" {
			calls, at = append(calls, w.raiseCall(&raises[i])), append(at, i)
		}
	}
	err = w.store.redis.run(ctx, calls, func(i int, answer any) error {
		text, ok := answer.(string)
		if !ok {
			return badAnswer("raise", answer)
		}
		out[at[i]] = outcome(text)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i] = cmp.Or(out[i], outcomeUnreached)
	}
	w.leave(ctx, fresh, func(i int) bool { return !out[i].stands() })
	return out, nil
}

func (w *Writer) raiseCall(r *raise) call {
	fresh, extended := r.block, r.block
	fresh.Extended, extended.Extended = false, true
	return call{
		script: w.store.redis.scripts.raise,
		keys:   []string{w.store.keys.Block(r.subject, r.rule), w.store.keys.Tombstone(r.subject, r.rule)},
		args: []any{
			encode(&fresh), encode(&extended), r.block.Until.String(), expiryMS(r.block.Until),
			r.block.Generation, r.block.Hit, r.block.Since.String(), r.scope(),
		},
	}
}

// elderReleases gives raises that a tombstone of an older weir covers their outcome: it lies under the key with the values
// whole, and lasts for as long as any. Nothing is asked where no value is long.
func (w *Writer) elderReleases(ctx context.Context, raises []raise, out []outcome) error {
	var keys []string
	var of []int
	for i := range raises {
		if r := &raises[i]; r.elder != "" {
			keys, of = append(keys, w.store.keys.Tombstone(r.elder, r.rule)), append(of, i)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	texts, errs, err := w.store.redis.getEach(ctx, keys)
	if err != nil {
		return fmt.Errorf("%s: releases of an older weir: %w", w.store.redis.address, err)
	}
	for j, i := range of {
		switch err := errs[j]; {
		case errors.Is(err, redis.Nil):
			continue
		case isUnreached(err):
			out[i] = outcomeUnreached
			continue
		case err != nil:
			return fmt.Errorf("%s: releases of an older weir: %w", w.store.redis.address, err)
		}
		t, err := DecodeTombstone([]byte(texts[j]))
		switch b := &raises[i].block; {
		case err != nil:
			out[i] = outcomeUnreadable
		case t.Covers(b.Hit, b.Since):
			out[i] = outcomeReleased
		}
	}
	return nil
}

// releaseAll runs the release script for each element; all keys must differ. What is unreached keeps no other from being released.
func (w *Writer) releaseAll(ctx context.Context, releases []release) ([]released, error) {
	calls := make([]call, 0, len(releases))
	at := make([]int, 0, len(releases))
	for i := range releases {
		r := &releases[i]
		calls, at = append(calls, w.releaseCall(r, r.subject)), append(at, i)
		if r.elder != "" {
			calls, at = append(calls, w.releaseCall(r, r.elder)), append(at, i)
		}
	}
	out := make([]released, len(releases))
	err := w.store.redis.run(ctx, calls, func(i int, answer any) error {
		got, err := readReleased(answer)
		if err != nil {
			return err
		}
		if r := &out[at[i]]; r.outcome == "" || r.hit == "" && got.hit != "" {
			got.outcome = cmp.Or(r.outcome, got.outcome)
			*r = got
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].outcome = cmp.Or(out[i].outcome, outcomeUnreached)
	}
	w.leave(ctx, w.crowdsOf(releases), func(i int) bool { return out[i].outcome == outcomeReleased && out[i].hit != "" })
	return out, nil
}

func readReleased(answer any) (released, error) {
	parts, ok := answer.([]any)
	if !ok || len(parts) != 3 {
		return released{}, badAnswer("release", answer)
	}
	var texts [3]string
	for i := range parts {
		if texts[i], ok = parts[i].(string); !ok {
			return released{}, badAnswer("release", answer)
		}
	}
	r := released{outcome: outcome(texts[0]), hit: texts[1]}
	if texts[2] != "" {
		if err := r.stoodUntil.UnmarshalText([]byte(texts[2])); err != nil {
			return released{}, badAnswer("release", answer)
		}
	}
	return r, nil
}

func (w *Writer) releaseCall(r *release, subject traffic.Subject) call {
	scope := "any"
	if r.covered {
		scope = "covered"
	}
	return call{
		script: w.store.redis.scripts.release,
		keys:   []string{w.store.keys.Block(subject, r.rule), w.store.keys.Tombstone(subject, r.rule)},
		args:   []any{encode(&r.tombstone), r.tombstone.Released.String(), expiryMS(r.tombstone.Until), scope},
	}
}

// addShapes names the shapes of what is about to be written. An *unreachedError says that the set's master does not answer: who
// looks blocks up by it cannot read it either.
func (w *Writer) addShapes(ctx context.Context, subjects []held) error {
	members := map[string]bool{}
	for _, h := range subjects {
		who, err := parseWho(h.subject)
		if err != nil {
			return err
		}
		members[scopeMatch+":"+who.shape().String()] = true
	}
	if len(members) == 0 {
		return nil
	}
	args := make([]any, 0, len(members))
	for m := range members {
		args = append(args, m)
	}
	_, errs, err := w.store.redis.runPart(ctx, []call{{script: w.store.redis.scripts.shapes, keys: []string{w.store.keys.Shapes()}, args: args}})
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("%s: set of shapes: %w", w.store.redis.address, err)
	}
	return nil
}

// appendDeltas appends changes to a stream, in order. base is the number that a stream without memory starts after: the
// writer's clock in microseconds.
func (w *Writer) appendDeltas(ctx context.Context, stream string, base traffic.Time, deltas []delta) error {
	keys := []string{
		w.store.keys.Stream(stream), w.store.keys.Last(stream), w.store.keys.Streams(), w.store.keys.Stream(streamModes), w.store.keys.Last(streamModes),
	}
	for start := 0; start < len(deltas); start += deltasPerCall {
		args, err := numbering(base, stream, streamLength)
		if err != nil {
			return err
		}
		args = append(args, w.store.marks.old(stream, base), deltaAge.Milliseconds())
		for _, d := range deltas[start:min(start+deltasPerCall, len(deltas))] {
			args = append(args, d.op, string(d.subject), d.rule, d.value)
		}
		// One call after the other: their order is the stream's.
		err = w.store.redis.run(ctx, []call{{script: w.store.redis.scripts.delta, keys: keys, args: args}}, func(_ int, answer any) error {
			id, ok := answer.(string)
			if !ok {
				return badAnswer("delta", answer)
			}
			w.store.marks.note(stream, base, id)
			return nil
		})
		if err != nil {
			return fmt.Errorf("delta stream %s: %w", stream, err)
		}
	}
	return nil
}

// standing is what Redis holds under one block's keys; nil for what is not there, and for what this build cannot read,
// about which the scripts decide.
type standing struct {
	block     *Block
	tombstone *Tombstone
	err       error // it could not be read
}

// standing reads what Redis holds under the names given. A master that does not answer spoils its own keys only.
func (w *Writer) standing(ctx context.Context, names []held) []standing {
	keys := make([]string, len(names))
	for i, h := range names {
		keys[i] = w.store.keys.Block(h.subject, h.rule)
	}
	out := make([]standing, len(names))
	errs, err := w.store.redis.spread(ctx, keys, "", DefaultTimeout, func(ctx context.Context, at []int) []error {
		pipe := w.store.redis.client.Pipeline()
		cmds := make([]*redis.SliceCmd, len(at))
		for j, i := range at {
			// Both keys lie in one slot, so one command reads them at one moment.
			cmds[j] = pipe.MGet(ctx, keys[i], w.store.keys.Tombstone(names[i].subject, names[i].rule))
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
