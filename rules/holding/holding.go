// Package holding decides what a hit does to the block of the client that it names: whether it makes one, lengthens the
// one that stands or leaves it, and until when. ENFORCE does so to the blocks in Redis; the trial of a rule in shadow,
// a backtest and the tests of rules foretell it. All of them ask here, so that what is foretold is what is done.
//
// In words: an episode's block lasts for ttl from its first event over the limit, or with extend: on-hit from its last
// one. Its opening hit and its updates make a block, or lengthen the one that stands. They do neither once the last
// event over the limit is older than max_lag, nor where the block would be over by now. A closing hit brings what the
// episode did since its last update: it makes no block, only lengthens one that stands with extend: on-hit, and may be
// older, since it comes late by nature. No hit shortens a block. A release ends it, and forgives the episodes that had
// begun by then.
package holding

import (
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Terms are what a version of a rule says about its blocks.
type Terms struct {
	TTL    time.Duration
	OnHit  bool          // extend: on-hit; otherwise never
	MaxLag time.Duration // how old the last event over the limit may be
	// Closing is how much older it may be of a closing hit.
	Closing time.Duration
}

// TermsOf reads the terms of a document that has a block.
func TermsOf(d *rules.Document) Terms {
	t := Terms{TTL: d.Block.TTL, OnHit: d.Block.Extend == rules.ExtendOnHit, MaxLag: d.MaxLag}
	// An episode closes a window and the lateness after its last event over the limit.
	t.Closing = d.Window + d.Lateness
	if d.BlocksTuples() {
		// It has a block for each of its tuples. One that is over no more is told of while others go on, but only once
		// a cooldown.
		t.Closing += d.UpdateEvery()
	}
	return t
}

// Phase is where in its episode a hit comes.
type Phase uint8

// The phases.
const (
	Opening Phase = iota // the episode has begun
	Update               // it goes on
	Closing              // it is over
)

// Hit is what decides of a hit.
type Hit struct {
	Phase       Phase
	ID          string       // of the episode; empty where nobody releases
	First, Last traffic.Time // its first event over the limit, and its last one so far
	Generation  int64        // of the rule's mode, which rises when the rule begins to block and when it ends
}

// Until is when the block ends that a hit leads to. It follows from the hit and its rule's version alone, so that a
// replay finds the same.
func (t *Terms) Until(first, last traffic.Time) traffic.Time {
	if t.OnHit {
		return last.Add(t.TTL)
	}
	return first.Add(t.TTL)
}

// Claim is what a hit asks for at some time, whatever stands.
type Claim uint8

// The claims. All but the first two leave everything as it is, and say why.
const (
	Raise    Claim = iota // a block: it makes one, or lengthens what stands
	Lengthen              // a block that stands is to last longer
	TooOld                // the last event over the limit is older than max_lag
	Over                  // the block would be over by now
	RunOut                // the block that the opening hit made has run its time, and updates do not lengthen it
	Nothing               // a closing hit that has nothing to lengthen, or comes too late for it
)

// Claim is what a hit asks for when it comes to ENFORCE at now.
func (t *Terms) Claim(h *Hit, now traffic.Time) Claim {
	age, over := now.Sub(h.Last), t.Until(h.First, h.Last) <= now
	switch {
	case h.Phase == Closing && t.OnHit && !over && age <= t.MaxLag+t.Closing:
		return Lengthen
	case h.Phase == Closing:
		return Nothing
	case h.Phase == Update && !t.OnHit && over:
		return RunOut
	case age > t.MaxLag:
		return TooOld
	case over:
		return Over
	}
	return Raise
}
