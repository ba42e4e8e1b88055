package enforce

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// effect is what one record, or several of one hit, should do to a block, and what it did.
type effect struct {
	blocklist.Name                 // its subject is a stored one
	legacy         traffic.Subject // what an older weir calls the subject, where that differs
	record         *hitRecord      // the newest record
	asked          *hitRecord      // the opening hit or update of the earliest evidence: its source has waited longest; nil: there is none
	release        bool
	block          blocklist.Block
	extendOnly     bool
	tombstone      blocklist.Tombstone
	generation     int64            // release: the rule's mode generation
	ordered        *blocklist.Order // what somebody ordered; nil: a record led to it
	refused        string           // of an order: why it is not carried out; empty: it is

	outcome blocklist.Outcome
	raised  traffic.Time // when Redis had answered
}

func newEffect(r *hitRecord) *effect {
	f := &effect{Name: blocklist.Name{Subject: r.hit.BlockSubject.Stored(), Rule: r.hit.Rule}, record: r}
	if r.hit.Phase == detectors.PhaseOpen || r.hit.Phase == detectors.PhaseUpdate {
		f.asked = r
	}
	if f.Subject != r.hit.BlockSubject {
		f.legacy = r.hit.BlockSubject
	}
	return f
}

// outcomeDemoted stands where the rule ceased to block while the batch was applied.
const outcomeDemoted blocklist.Outcome = "demoted"

// effect runs the scripts of the planned effects. Effects that a newer mode generation refused are planned once more, under
// modes read anew. Keys whose master does not answer are passed over, as long as gates can be told of anything at all.
func (e *Enforcer) effect(ctx context.Context, s *batchState) error {
	if err := e.effectOf(ctx, s); err != nil {
		return err
	}
	if slices.ContainsFunc(s.effects, func(f *effect) bool { return f.outcome == blocklist.OutcomeUnreached }) {
		return e.o.Store.PingStreams(ctx)
	}
	return nil
}

func (e *Enforcer) effectOf(ctx context.Context, s *batchState) error {
	if err := e.runInPipelines(ctx, s.effects); err != nil {
		return err
	}
	isStale := func(f *effect) bool { return f.outcome == blocklist.OutcomeStale }
	if !slices.ContainsFunc(s.effects, isStale) {
		return nil
	}
	e.modes.changed()
	modes, err := e.currentModes(ctx, 0)
	if err != nil {
		return err
	}
	var again []*effect
	for _, f := range s.effects {
		switch mode := modes[f.Rule]; {
		case !isStale(f):
		case !e.within(&mode, f.Name):
			f.outcome = outcomeDemoted
		default:
			f.block.Generation = mode.Generation
			again = append(again, f)
		}
	}
	return e.runInPipelines(ctx, again)
}

// runInPipelines runs effects in their order per key: each pipeline (one per node) has every key at most once.
func (e *Enforcer) runInPipelines(ctx context.Context, effects []*effect) error {
	var keys []blocklist.Name
	for _, f := range effects {
		if !f.release {
			keys = append(keys, f.Name)
		}
	}
	if err := e.writer.AddShapes(ctx, keys); err != nil && !blocklist.IsUnreached(err) {
		return err
	}
	for len(effects) > 0 {
		taken := make(map[blocklist.Name]bool, len(effects))
		var now, later []*effect
		for _, f := range effects {
			if taken[f.Name] {
				later = append(later, f)
				continue
			}
			taken[f.Name] = true
			now = append(now, f)
		}
		if err := e.runPipeline(ctx, now); err != nil {
			return err
		}
		effects = later
	}
	return nil
}

func (e *Enforcer) runPipeline(ctx context.Context, effects []*effect) error {
	var raises []blocklist.Raise
	var raising []*effect
	var releases []blocklist.Release
	var releasing []*effect
	for _, f := range effects {
		if f.release {
			releases = append(releases, blocklist.Release{Name: f.Name, Legacy: f.legacy, Tombstone: f.tombstone, Generation: f.generation})
			releasing = append(releasing, f)
		} else {
			raises = append(raises, blocklist.Raise{Name: f.Name, Legacy: f.legacy, Block: f.block, ExtendOnly: f.extendOnly})
			raising = append(raising, f)
		}
	}
	outcomes, err := e.writer.Raise(ctx, raises)
	if err != nil {
		return fmt.Errorf("raise blocks: %w", err)
	}
	now := e.o.Clock()
	for i, f := range raising {
		f.outcome, f.raised = outcomes[i], now
	}
	answers, err := e.writer.Release(ctx, releases)
	if err != nil {
		return fmt.Errorf("release blocks: %w", err)
	}
	for i, f := range releasing {
		f.outcome, f.tombstone.Hit, f.tombstone.StoodUntil = answers[i].Outcome, answers[i].Hit, answers[i].StoodUntil
	}
	return nil
}
