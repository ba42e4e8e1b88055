package blocklist

import "github.com/weirhq/weir/traffic"

// Outcome is what the raise or the release script did.
type Outcome string

const (
	// OutcomeWritten means that this raise wrote the block.
	OutcomeWritten Outcome = "written"
	// OutcomeExtended means that a block stood and its expiry was raised.
	OutcomeExtended     Outcome = "extended"
	OutcomeSame         Outcome = "same"          // written before, by the same hit to the same expiry
	OutcomeSameExtended Outcome = "same_extended" // extended before, likewise
	OutcomeUnchanged    Outcome = "unchanged"     // the block lasts as long or longer already; release: a later one stands
	OutcomeAbsent       Outcome = "absent"        // there is no block to extend
	OutcomeStale        Outcome = "stale"         // a block of a newer mode generation stands
	OutcomeReleased     Outcome = "released"      // raise: a tombstone covers the hit; release: done
	outcomeUnreadable   Outcome = "unreadable"    // the key holds what this build cannot read
	OutcomeFull         Outcome = "full"          // Redis is at maxmemory, and there is no block to raise
	OutcomeCrowded      Outcome = "crowded"       // as many blocks of the address as may be are in force
	OutcomeUnreached    Outcome = "unreached"     // the master of a key does not answer: whether it was done is not known
)

// stands reports whether a raise left a block of its own generation behind, whoever wrote it.
func (o Outcome) stands() bool {
	switch o {
	case OutcomeWritten, OutcomeExtended, OutcomeSame, OutcomeSameExtended, OutcomeUnchanged:
		return true
	}
	return false
}

// Raise asks for one block.
type Raise struct {
	Name
	Legacy     traffic.Subject // what an older weir calls the subject, where that differs
	Block      Block
	ExtendOnly bool // raise an existing block, write none
}

// scope is what the scripts may do.
func (r *Raise) scope() string {
	if r.ExtendOnly {
		return "extend"
	}
	return "any"
}

// Release asks for one tombstone.
type Release struct {
	Name
	Legacy     traffic.Subject // as in Raise
	Tombstone  Tombstone
	Covered    bool  // remove only a block that the tombstone covers: for what is asserted anew
	Generation int64 // the rule's mode generation; 0: not known
}

// Released is the answer to a Release.
type Released struct {
	Outcome    Outcome
	Hit        string       // of the block that was there
	StoodUntil traffic.Time // when it would have ended
}
