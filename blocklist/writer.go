package blocklist

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/traffic"
)

// Writer changes the blocks of a Store, and tells gates of changes. Only ENFORCE and the reconciler have one. Its methods may
// be called by several goroutines.
type Writer struct{ store *Store }

// NewWriter makes a Writer of s.
func NewWriter(s *Store) *Writer { return &Writer{s} }

// Raise runs the raise script for each element that its address has room for. All keys must differ, since the scripts may run
// in any order. A raise that is refused, or unreached, has that as its outcome, and the others run all the same.
func (w *Writer) Raise(ctx context.Context, raises []Raise) ([]Outcome, error) {
	out := make([]Outcome, len(raises))
	if err := w.legacyReleases(ctx, raises, out); err != nil {
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
		out[at[i]] = Outcome(text)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i] = cmp.Or(out[i], OutcomeUnreached)
	}
	w.leave(ctx, fresh, func(i int) bool { return !out[i].stands() })
	return out, nil
}

func (w *Writer) raiseCall(r *Raise) call {
	fresh, extended := r.Block, r.Block
	fresh.Extended, extended.Extended = false, true
	return call{
		script: w.store.redis.scripts.raise,
		keys:   []string{w.store.keys.Block(r.Subject, r.Rule), w.store.keys.Tombstone(r.Subject, r.Rule)},
		args: []any{
			encode(&fresh), encode(&extended), r.Block.Until.String(), expiryMS(r.Block.Until),
			r.Block.Generation, r.Block.Hit, r.Block.Since.String(), r.scope(),
		},
	}
}

// legacyReleases sets the outcome of raises that a tombstone of an older weir covers: such a tombstone has a key with long
// values whole, and lasts as long as any. Without a long value, Redis is not asked.
func (w *Writer) legacyReleases(ctx context.Context, raises []Raise, out []Outcome) error {
	var keys []string
	var of []int
	for i := range raises {
		if r := &raises[i]; r.Legacy != "" {
			keys, of = append(keys, w.store.keys.Tombstone(r.Legacy, r.Rule)), append(of, i)
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
		case IsUnreached(err):
			out[i] = OutcomeUnreached
			continue
		case err != nil:
			return fmt.Errorf("%s: releases of an older weir: %w", w.store.redis.address, err)
		}
		t, err := DecodeTombstone([]byte(texts[j]))
		switch b := &raises[i].Block; {
		case err != nil:
			out[i] = outcomeUnreadable
		case t.Covers(b.Hit, b.Since):
			out[i] = OutcomeReleased
		}
	}
	return nil
}

// Release runs the release script for each element; all keys must differ. What is unreached keeps no other from being released.
func (w *Writer) Release(ctx context.Context, releases []Release) ([]Released, error) {
	calls := make([]call, 0, len(releases))
	at := make([]int, 0, len(releases))
	for i := range releases {
		r := &releases[i]
		calls, at = append(calls, w.releaseCall(r, r.Subject)), append(at, i)
		if r.Legacy != "" {
			calls, at = append(calls, w.releaseCall(r, r.Legacy)), append(at, i)
		}
	}
	out := make([]Released, len(releases))
	err := w.store.redis.run(ctx, calls, func(i int, answer any) error {
		got, err := readReleased(answer)
		if err != nil {
			return err
		}
		if r := &out[at[i]]; r.Outcome == "" || r.Hit == "" && got.Hit != "" {
			got.Outcome = cmp.Or(r.Outcome, got.Outcome)
			*r = got
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Outcome = cmp.Or(out[i].Outcome, OutcomeUnreached)
	}
	w.leave(ctx, w.crowdsOf(releases), func(i int) bool { return out[i].Outcome == OutcomeReleased && out[i].Hit != "" })
	return out, nil
}

func readReleased(answer any) (Released, error) {
	parts, ok := answer.([]any)
	if !ok || len(parts) != 3 {
		return Released{}, badAnswer("release", answer)
	}
	var texts [3]string
	for i := range parts {
		if texts[i], ok = parts[i].(string); !ok {
			return Released{}, badAnswer("release", answer)
		}
	}
	r := Released{Outcome: Outcome(texts[0]), Hit: texts[1]}
	if texts[2] != "" {
		if err := r.StoodUntil.UnmarshalText([]byte(texts[2])); err != nil {
			return Released{}, badAnswer("release", answer)
		}
	}
	return r, nil
}

func (w *Writer) releaseCall(r *Release, subject traffic.Subject) call {
	scope := "any"
	if r.Covered {
		scope = "covered"
	}
	return call{
		script: w.store.redis.scripts.release,
		keys:   []string{w.store.keys.Block(subject, r.Rule), w.store.keys.Tombstone(subject, r.Rule)},
		args:   []any{encode(&r.Tombstone), r.Tombstone.Released.String(), expiryMS(r.Tombstone.Until), scope},
	}
}

// AddShapes adds the shapes of blocks that are about to be written to the shapes set. An *unreachedError means that the set's
// master does not answer: then no gate can read the set either.
func (w *Writer) AddShapes(ctx context.Context, subjects []Name) error {
	members := map[string]bool{}
	for _, h := range subjects {
		parsed, err := ParseSubject(h.Subject)
		if err != nil {
			return err
		}
		members[scopeMatch+":"+parsed.Shape().String()] = true
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

// Tell appends changes to a stream, in order. base is the number that a stream without memory starts after: the
// writer's clock in microseconds.
func (w *Writer) Tell(ctx context.Context, stream string, base traffic.Time, deltas []Delta) error {
	keys := []string{
		w.store.keys.Stream(stream), w.store.keys.Last(stream), w.store.keys.Streams(), w.store.keys.Stream(StreamModes), w.store.keys.Last(StreamModes),
	}
	for start := 0; start < len(deltas); start += deltasPerCall {
		args, err := numbering(base, stream, streamLength)
		if err != nil {
			return err
		}
		args = append(args, w.store.marks.old(stream, base), deltaAge.Milliseconds())
		for _, d := range deltas[start:min(start+deltasPerCall, len(deltas))] {
			args = append(args, d.Op, string(d.Subject), d.Rule, d.Value)
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

// Standing is the content of Redis under one block's keys. Members are nil where there is none, or none that this build can
// read: the scripts decide about those.
type Standing struct {
	Block     *Block
	Tombstone *Tombstone
	Err       error // it could not be read
}

// Standing reads what Redis holds under the names given. A master that does not answer spoils its own keys only.
func (w *Writer) Standing(ctx context.Context, names []Name) []Standing {
	keys := make([]string, len(names))
	for i, h := range names {
		keys[i] = w.store.keys.Block(h.Subject, h.Rule)
	}
	out := make([]Standing, len(names))
	errs, err := w.store.redis.spread(ctx, keys, "", defaultTimeout, func(ctx context.Context, at []int) []error {
		pipe := w.store.redis.client.Pipeline()
		cmds := make([]*redis.SliceCmd, len(at))
		for j, i := range at {
			// Both keys lie in one slot, so one command reads them at one moment.
			cmds[j] = pipe.MGet(ctx, keys[i], w.store.keys.Tombstone(names[i].Subject, names[i].Rule))
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
		if out[i].Err = err; err == nil {
			out[i].Err = errs[i]
		}
	}
	return out
}

func (st *Standing) read(values []any) {
	if text, ok := values[0].(string); ok {
		if b, err := DecodeBlock([]byte(text)); err == nil {
			st.Block = &b
		}
	}
	if text, ok := values[1].(string); ok {
		if t, err := DecodeTombstone([]byte(text)); err == nil {
			st.Tombstone = &t
		}
	}
}
