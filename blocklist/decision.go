package blocklist

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// StreamLive is the only stream whose hits may block: a replay never writes live blocks. It is ingest.Live, of a package that users
// of the blocklist need not build.
const StreamLive = "live"

// DecisionFormat is the format of decisions that this build writes, and, as the first one, reads.
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
	Format int `json:"v"`
	// deterministic: hash of action, rule, subject, hit and until (withheld: reason; released: id of the request)
	ID     string `json:"id" mask:"-"`
	Action Action `json:"action"`
	// Reason says why: withheld: max_lag, never_block, released, …; released, or By is set: somebody's words
	Reason     string          `json:"reason,omitempty" mask:"text,By"`
	Rule       string          `json:"rule" mask:"name"`
	Subject    traffic.Subject `json:"subject"`                // the block's identity
	Hit        string          `json:"hit,omitempty" mask:"-"` // released: of the block that was there
	Generation int64           `json:"generation,omitempty"`   // the rule's mode generation
	Since      traffic.Time    `json:"since,omitempty"`        // when the episode opened; released: when
	Until      traffic.Time    `json:"until,omitempty"`        // absolute expiry; released: of the tombstone
	At         traffic.Time    `json:"at"`                     // when ENFORCE decided, its own clock
	// By is, of a release, who; else who ordered the block, empty: a rule's hit led to it
	By string `json:"by,omitempty" mask:"name"`
}

// Reasons of withheld decisions.
const (
	ReasonFull        = "full"             // Redis has no memory for another block
	ReasonCrowded     = "crowded"          // as many blocks of the address as may be are in force
	ReasonUnreachable = "unreachable"      // the master of the block's key, or of its address's count, does not answer
	ReasonMaxLag      = "max_lag"          // the evidence is older than the rule's max_lag
	ReasonNeverBlock  = "never_block"      // the never-block list holds the subject
	ReasonReleased    = "released"         // a tombstone covers the hit
	ReasonExpired     = "expired"          // the block would be over already
	ReasonStale       = "stale_generation" // a block of a newer mode generation stands
	ReasonUnreadable  = "unreadable_key"   // the key holds what this build cannot read
	ReasonOldVersion  = "old_version"      // the episode opened under a version that would block more than the one that was promoted
	ReasonUnlearned   = "unknown_version"  // what the rule's version says cannot be learned while the rule store is away
	ReasonNoSpec      = "no_block_spec"    // the rule's version does not exist or has no block
	ReasonCanary      = "canary"           // the rule is in canary, and the subject not within its share
)

// Identify gives d its ID. The same hit leads to the same IDs however often it is applied, so that the blocks topic may
// hold a decision twice and history keeps it once. A withheld decision is the same for all updates of a hit.
func (d *Decision) Identify(request string) {
	until := d.Until.String()
	if d.Action == ActionWithheld {
		until = ""
	}
	sum := sha256.New()
	for _, part := range []string{
		string(d.Action), d.Rule, string(d.Subject), d.Hit, strconv.FormatInt(d.Generation, 10), request, until, d.WithheldReason(),
	} {
		_, _ = sum.Write([]byte(part)) // a hash never fails
		_, _ = sum.Write([]byte{0})    // no part contains NUL: ids, a subject and texts of times
	}
	d.ID = hex.EncodeToString(sum.Sum(nil)[:16])
}

// WithheldReason is the reason of a withheld decision, one of a fixed list; "" for all others.
func (d *Decision) WithheldReason() string {
	if d.Action == ActionWithheld {
		return d.Reason
	}
	return "" // the operator's words, which may be any
}

// EncodeDecision writes d as the JSON value of a record on the blocks topic.
func EncodeDecision(d *Decision) ([]byte, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("decision %s: %w", d.ID, err)
	}
	return text, nil
}

// DecodeDecision reads a record of the blocks topic. A newer format gives *detectors.UnknownFormatError. Unknown members are
// ignored; actions that this build does not know are the reader's to keep as they are.
func DecodeDecision(text []byte) (Decision, error) {
	var d Decision
	err := json.Unmarshal(text, &d)
	head := struct {
		Format int `json:"v"`
	}{d.Format}
	if (err == nil || json.Unmarshal(text, &head) == nil) && head.Format > DecisionFormat {
		return Decision{}, &detectors.UnknownFormatError{What: "decision", Got: fmt.Sprint(head.Format), Known: fmt.Sprint(DecisionFormat)}
	}
	if err != nil {
		return Decision{}, fmt.Errorf("decision: %w", err)
	}
	if d.Format != DecisionFormat {
		return Decision{}, fmt.Errorf("decision: format %d, known: %d", d.Format, DecisionFormat)
	}
	if d.ID == "" || d.Action == "" {
		return Decision{}, fmt.Errorf("decision: id %q and action %q, neither may be empty", d.ID, d.Action)
	}
	return d, nil
}

// ActiveQuery asks for a page of the decisions that hold.
type ActiveQuery struct {
	Released bool      // the releases; without it, what was written or extended
	After    *Decision // the last one of the page before; nil: from the beginning
	Limit    int
}
