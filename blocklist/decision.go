package blocklist

import (
	"github.com/weirhq/weir/traffic"
)

// DecisionFormat is the format of decisions that this build writes. It reads DecisionFormat and the one before it.
const DecisionFormat = 1

// Action is what ENFORCE decided.
type Action string

const (
	ActionWritten  Action = "written"  // a new block
	ActionExtended Action = "extended" // the expiry of a block was raised
	ActionWithheld Action = "withheld" // a hit that would have blocked, and did not; see Reason
	ActionReleased Action = "released" // a tombstone took the block's place
)

// Decision is one record of the blocks topic, as JSON: everything that ENFORCE did or chose not to do to a block.
type Decision struct {
	Format     int             `json:"v"`
	ID         string          `json:"id"` // deterministic: hash of action, rule, subject, hit and until (withheld: reason; released: id of the request)
	Action     Action          `json:"action"`
	Reason     string          `json:"reason,omitempty"` // withheld: max_lag, never_block, released, …; released: the operator's words
	Rule       string          `json:"rule"`
	Subject    traffic.Subject `json:"subject"`              // the block's identity
	Hit        string          `json:"hit,omitempty"`        // released: of the block that was there
	Generation int64           `json:"generation,omitempty"` // the rule's mode generation
	Since      traffic.Time    `json:"since,omitempty"`      // when the episode opened; released: when
	Until      traffic.Time    `json:"until,omitempty"`      // absolute expiry; released: of the tombstone
	At         traffic.Time    `json:"at"`                   // when ENFORCE decided, its own clock
	By         string          `json:"by,omitempty"`         // released: who
}
