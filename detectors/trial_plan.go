package detectors

import (
	"slices"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// tryout says how a rule's block is tried beside the windows of its limit, or of a limit on trial.
type tryout struct {
	of     Kind  // of the version: KindHit, KindCandidate
	blocks bool  // it has a block, of which it can be said what it would have done
	silent bool  // it has a block of which that cannot be said
	same   bool  // the block's key is the rule's, so that one fingerprint names both
	limits []int // that are tried, ascending from the rule's own; that one alone where others have no exact meaning
	own    planned
}

// newTryout is the tryout of windows, nil for those of warnings: of them no block comes.
func newTryout(x *planned) *tryout {
	if x.kind == KindNear {
		return nil
	}
	v := x.version
	t := &tryout{of: x.kind, own: *x, limits: []int{int(x.limit)}}
	t.silent = v.Block != nil && waits(v)
	t.blocks = v.Block != nil && !t.silent
	t.own.kind, t.own.beside, t.own.tries = kindTrial, nil, nil
	if t.blocks {
		t.same = x.key == nil && sameFields(v.Key, v.Block.Key)
		t.limits = t.ladder()
	}
	return t
}

// waits reports whether hits of a rule are told only once its lateness has passed. Which of the requests meanwhile are of the trial's
// windows then depends on what is told later, so such a block is not tried.
func waits(v *rules.Version) bool {
	return v.Algorithm == rules.AlgorithmFirstSeen || v.Algorithm == rules.AlgorithmLeakyBucket && v.Count.Kind() == rules.CountDistinct
}

func sameFields(a, b []traffic.KeyField) bool {
	within := func(a, b []traffic.KeyField) bool {
		return !slices.ContainsFunc(a, func(k traffic.KeyField) bool { return !slices.Contains(b, k) })
	}
	return within(a, b) && within(b, a)
}

// ladder are the limits that are tried. Sliding logs are tried up to the limit up to which they are exact everywhere; a rule whose
// events have several limits, and one that counts values or sums or fills a bucket, by its own alone.
func (t *tryout) ladder() []int {
	v, limit := t.own.version, t.limits[0]
	if v.Count.Kind() != rules.CountEvents || t.own.limits != nil {
		return t.limits
	}
	all := LimitLadder(limit)
	switch v.Algorithm {
	case rules.AlgorithmFixed:
		return all
	case rules.AlgorithmSlidingLog:
		if limit > rules.SlidingExact {
			return t.limits
		}
		return slices.DeleteFunc(all, func(n int) bool { return n > rules.SlidingExact })
	case rules.AlgorithmFirstSeen, rules.AlgorithmSlidingCounter, rules.AlgorithmTokenBucket, rules.AlgorithmLeakyBucket:
		return t.limits
	}
	return all
}

// at is how windows of a step judge: those of the rule's own limit as the rule does, others by their limit alone.
func (t *tryout) at(step, limit int) planned {
	x := t.own
	if step > 0 {
		x.limit, x.steady, x.most, x.burst = int64(limit), int64(limit), int64(limit), int64(limit)
	}
	return x
}

// blockKeys are the keys of the blocks that are tried, each once.
func blockKeys(from []planned) (out [][]traffic.KeyField) {
	for i := range from {
		x := &from[i]
		if x.tries == nil || !x.tries.blocks {
			continue
		}
		key := x.version.Block.Key
		if !slices.ContainsFunc(out, func(k []traffic.KeyField) bool { return sameFields(k, key) }) {
			out = append(out, key)
		}
	}
	return out
}
