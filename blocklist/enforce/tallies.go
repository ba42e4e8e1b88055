package enforce

import (
	"container/heap"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// tallyKey names a tally. A rule in canary has two.
type tallyKey struct {
	rule  string
	would bool // the blocks would be in force, if the rule blocked, or if its canary had a greater share
}

// ruleLife is a rule under one generation of its mode: with the next one, its blocks hold nobody.
type ruleLife struct {
	mode       rules.Mode
	generation int64
	share      int          // of a canary
	since      traffic.Time // when this process learned of it
}

// tallied is the mode under which blocks of the rule are counted; false where none can be.
func (l ruleLife) tallied(would bool) (rules.Mode, bool) {
	switch {
	case !would:
		return l.mode, l.mode.Blocks()
	case l.mode == rules.ModeShadow, l.mode == rules.ModeCanary:
		return rules.ModeShadow, true
	}
	return "", false
}

// goesOn reports whether the blocks that were counted go on to be in force: of a canary whose share has risen, or that blocks by now. Those
// that would be are counted anew: some are by now.
func (l ruleLife) goesOn(before ruleLife, would bool) bool {
	same := l.generation == before.generation
	if would {
		return same && l.mode == before.mode && l.share == before.share
	}
	return same && l.mode.Blocks() && before.mode.Blocks()
}

// endsAt is when the block of a subject ends, at the earliest.
type endsAt struct {
	until traffic.Time
	hash  uint64
}

// endings is a heap, the earliest first.
type endings []endsAt

var _ heap.Interface = (*endings)(nil)

func (q endings) Len() int           { return len(q) }
func (q endings) Less(i, j int) bool { return q[i].until < q[j].until }
func (q endings) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *endings) Push(x any) {
	if e, ok := x.(endsAt); ok {
		*q = append(*q, e)
	}
}

// Pop implements heap.Interface.
func (q *endings) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
