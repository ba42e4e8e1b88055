package blocklist

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// effect is what one record, or several of one hit, should do to a block, and what it did.
type effect struct {
	held                       // its subject is a stored one
	elder      traffic.Subject // what an older weir calls the subject, where that differs
	ask        *ask            // the newest record
	release    bool
	block      Block
	extendOnly bool
	tombstone  Tombstone
	generation int64 // release: the rule's mode generation

	outcome outcome
}

func newEffect(a *ask) *effect {
	f := &effect{held: held{subject: a.hit.BlockSubject.Stored(), rule: a.hit.Rule}, ask: a}
	if f.subject != a.hit.BlockSubject {
		f.elder = a.hit.BlockSubject
	}
	return f
}

// outcomeDemoted stands where the rule ceased to block while the batch was applied.
const outcomeDemoted outcome = "demoted"

// effect runs what was planned, and once more, under modes read anew, what a newer mode generation stood against. What lies on
// a master that does not answer is passed over, as long as gates can be told of anything at all.
func (e *Enforcer) effect(ctx context.Context, w *work) error {
	if err := e.effectOf(ctx, w); err != nil {
		return err
	}
	if slices.ContainsFunc(w.effects, func(f *effect) bool { return f.outcome == outcomeUnreached }) {
		return e.o.Store.PingStreams(ctx)
	}
	return nil
}

func (e *Enforcer) effectOf(ctx context.Context, w *work) error {
	if err := e.waves(ctx, w.effects); err != nil {
		return err
	}
	isStale := func(f *effect) bool { return f.outcome == outcomeStale }
	if !slices.ContainsFunc(w.effects, isStale) {
		return nil
	}
	e.modes.changed()
	modes, err := e.currentModes(ctx, 0)
	if err != nil {
		return err
	}
	var again []*effect
	for _, f := range w.effects {
		switch mode := modes[f.rule]; {
		case !isStale(f):
		case mode.Mode != rules.ModeBlock:
			f.outcome = outcomeDemoted
		default:
			f.block.Generation = mode.Generation
			again = append(again, f)
		}
	}
	return e.waves(ctx, again)
}

// waves runs effects in their order per key: each wave has every key at most once, and is one pipeline per node.
func (e *Enforcer) waves(ctx context.Context, effects []*effect) error {
	var keys []held
	for _, f := range effects {
		if !f.release {
			keys = append(keys, f.held)
		}
	}
	if err := e.writer.addShapes(ctx, keys); err != nil && !isUnreached(err) {
		return err
	}
	for len(effects) > 0 {
		taken := make(map[held]bool, len(effects))
		var now, later []*effect
		for _, f := range effects {
			if taken[f.held] {
				later = append(later, f)
				continue
			}
			taken[f.held] = true
			now = append(now, f)
		}
		if err := e.wave(ctx, now); err != nil {
			return err
		}
		effects = later
	}
	return nil
}

func (e *Enforcer) wave(ctx context.Context, effects []*effect) error {
	var raises []raise
	var raising []*effect
	var releases []release
	var releasing []*effect
	for _, f := range effects {
		if f.release {
			releases = append(releases, release{held: f.held, elder: f.elder, tombstone: f.tombstone, generation: f.generation})
			releasing = append(releasing, f)
		} else {
			raises = append(raises, raise{held: f.held, elder: f.elder, block: f.block, extendOnly: f.extendOnly})
			raising = append(raising, f)
		}
	}
	outcomes, err := e.writer.raiseAll(ctx, raises)
	if err != nil {
		return fmt.Errorf("raise blocks: %w", err)
	}
	for i, f := range raising {
		f.outcome = outcomes[i]
	}
	answers, err := e.writer.releaseAll(ctx, releases)
	if err != nil {
		return fmt.Errorf("release blocks: %w", err)
	}
	for i, f := range releasing {
		f.outcome, f.tombstone.Hit, f.tombstone.StoodUntil = answers[i].outcome, answers[i].hit, answers[i].stoodUntil
	}
	return nil
}
