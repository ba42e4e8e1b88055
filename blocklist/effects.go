package blocklist

import "github.com/weirhq/weir/traffic"

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
