package blocklist

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/traffic"
)

// outcome is what the raise or the release script did.
type outcome string

const (
	outcomeWritten      outcome = "written"
	outcomeExtended     outcome = "extended"
	outcomeSame         outcome = "same"          // written before, by the same hit to the same expiry
	outcomeSameExtended outcome = "same_extended" // extended before, likewise
	outcomeUnchanged    outcome = "unchanged"     // the block lasts as long or longer already; release: a later one stands
	outcomeAbsent       outcome = "absent"        // there is no block to extend
	outcomeStale        outcome = "stale"         // a block of a newer mode generation stands
	outcomeReleased     outcome = "released"      // raise: a tombstone covers the hit; release: done
	outcomeUnreadable   outcome = "unreadable"    // the key holds what this build cannot read
	outcomeFull         outcome = "full"          // Redis is at maxmemory, and there is no block to raise
	outcomeCrowded      outcome = "crowded"       // as many blocks of the address as may be are in force
	outcomeUnreached    outcome = "unreached"     // the master of a key does not answer: whether it was done is not known
)

// stands reports whether a raise left a block of its own generation behind, whoever wrote it.
func (o outcome) stands() bool {
	switch o {
	case outcomeWritten, outcomeExtended, outcomeSame, outcomeSameExtended, outcomeUnchanged:
		return true
	}
	return false
}

// raise asks for one block.
type raise struct {
	held
	elder      traffic.Subject // what an older weir calls the subject, where that differs
	block      Block
	extendOnly bool // raise an existing block, write none
}

// scope is what the scripts may do.
func (r *raise) scope() string {
	if r.extendOnly {
		return "extend"
	}
	return "any"
}

// raiseAll runs the raise script for each element that its address has room for; all keys must differ, since their order
// is not kept. What is refused, or unreached, is an outcome, and keeps no other from being raised.
func (s *Store) raiseAll(ctx context.Context, raises []raise) ([]outcome, error) {
	out := make([]outcome, len(raises))
	if err := s.elderReleases(ctx, raises, out); err != nil {
		return nil, err
	}
	fresh, err := s.admit(ctx, raises, out)
	if err != nil {
		return nil, err
	}
	calls := make([]call, 0, len(raises))
	at := make([]int, 0, len(raises))
	for i := range raises {
		if out[i] == "" {
			calls, at = append(calls, s.raiseCall(&raises[i])), append(at, i)
		}
	}
	err = s.run(ctx, calls, func(i int, answer any) error {
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
	s.leave(ctx, fresh, func(i int) bool { return !out[i].stands() })
	return out, nil
}

func (s *Store) raiseCall(r *raise) call {
	fresh, extended := r.block, r.block
	fresh.Extended, extended.Extended = false, true
	return call{
		script: s.scripts.raise,
		keys:   []string{s.keys.Block(r.subject, r.rule), s.keys.Tombstone(r.subject, r.rule)},
		args: []any{
			encode(&fresh), encode(&extended), r.block.Until.String(), expiryMS(r.block.Until),
			r.block.Generation, r.block.Hit, r.block.Since.String(), r.scope(),
		},
	}
}

// elderReleases gives raises that a tombstone of an older weir covers their outcome: it lies under the key with the values
// whole, and lasts for as long as any. Nothing is asked where no value is long.
func (s *Store) elderReleases(ctx context.Context, raises []raise, out []outcome) error {
	var keys []string
	var of []int
	for i := range raises {
		if r := &raises[i]; r.elder != "" {
			keys, of = append(keys, s.keys.Tombstone(r.elder, r.rule)), append(of, i)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	texts, errs, err := s.getEach(ctx, keys)
	if err != nil {
		return fmt.Errorf("%s: releases of an older weir: %w", s.address, err)
	}
	for j, i := range of {
		switch err := errs[j]; {
		case errors.Is(err, redis.Nil):
			continue
		case isUnreached(err):
			out[i] = outcomeUnreached
			continue
		case err != nil:
			return fmt.Errorf("%s: releases of an older weir: %w", s.address, err)
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

// getEach reads keys of any masters. Each has its own error: redis.Nil where nothing is there.
func (s *Store) getEach(ctx context.Context, keys []string) ([]string, []error, error) {
	home, err := s.home(ctx)
	if err != nil {
		return nil, nil, err
	}
	texts := make([]string, len(keys))
	errs, err := s.spread(ctx, keys, home, reachPatience, func(ctx context.Context, at []int) []error {
		pipe := s.client.Pipeline()
		cmds := make([]*redis.StringCmd, len(at))
		for j, i := range at {
			cmds[j] = pipe.Get(ctx, keys[i])
		}
		_, _ = pipe.Exec(ctx) // each answer has its own error
		errs := make([]error, len(at))
		for j, i := range at {
			texts[i], errs[j] = cmds[j].Result()
		}
		return errs
	})
	return texts, errs, err
}

// release asks for one tombstone.
type release struct {
	held
	elder      traffic.Subject // as in raise
	tombstone  Tombstone
	covered    bool  // remove only a block that the tombstone covers: for what is asserted anew
	generation int64 // the rule's mode generation; 0: not known
}

// released is the answer to a release.
type released struct {
	outcome    outcome
	hit        string       // of the block that was there
	stoodUntil traffic.Time // when it would have ended
}

// releaseAll runs the release script for each element; all keys must differ. What is unreached keeps no other from being released.
func (s *Store) releaseAll(ctx context.Context, releases []release) ([]released, error) {
	calls := make([]call, 0, len(releases))
	at := make([]int, 0, len(releases))
	for i := range releases {
		r := &releases[i]
		calls, at = append(calls, s.releaseCall(r, r.subject)), append(at, i)
		if r.elder != "" {
			calls, at = append(calls, s.releaseCall(r, r.elder)), append(at, i)
		}
	}
	out := make([]released, len(releases))
	err := s.run(ctx, calls, func(i int, answer any) error {
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
	s.leave(ctx, s.crowdsOf(releases), func(i int) bool { return out[i].outcome == outcomeReleased && out[i].hit != "" })
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

func (s *Store) releaseCall(r *release, subject traffic.Subject) call {
	scope := "any"
	if r.covered {
		scope = "covered"
	}
	return call{
		script: s.scripts.release,
		keys:   []string{s.keys.Block(subject, r.rule), s.keys.Tombstone(subject, r.rule)},
		args:   []any{encode(&r.tombstone), r.tombstone.Released.String(), expiryMS(r.tombstone.Until), scope},
	}
}

// addShapes names the shapes of what is about to be written. An *unreachedError says that the set's master does not answer: who
// looks blocks up by it cannot read it either.
func (s *Store) addShapes(ctx context.Context, subjects []held) error {
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
	_, errs, err := s.runPart(ctx, []call{{script: s.scripts.shapes, keys: []string{s.keys.Shapes()}, args: args}})
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("%s: set of shapes: %w", s.address, err)
	}
	return nil
}
