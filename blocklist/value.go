package blocklist

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/holding"
	"github.com/weirhq/weir/traffic"
)

// ValueFormat is the format of block and tombstone values that this build writes, and, as the first one, reads.
const ValueFormat = 1

// The words in values.
const (
	actionBlock   = "block"
	actionRelease = "release"
	scopeMatch    = "match" // the block holds for the requests that its rule matches
)

// Block is the value of a block key, as JSON. Its key expires at Until, rounded up to the millisecond.
type Block struct {
	Format     int          `json:"v"`
	Action     string       `json:"action" mask:"-"` // "block"
	Scope      string       `json:"scope" mask:"-"`  // "match": only requests that the rule matches
	Rule       string       `json:"rule" mask:"name"`
	Generation int64        `json:"generation"`   // the rule's mode generation under which it was written
	Hit        string       `json:"hit" mask:"-"` // id of the episode that set Until
	Since      traffic.Time `json:"since"`        // when that episode opened
	Until      traffic.Time `json:"until"`        // absolute; only ever raised within a generation
	Extended   bool         `json:"extended,omitempty"`
	// By and Reason are of a block that somebody ordered: who, and why.
	By     string `json:"by,omitempty" mask:"name"`
	Reason string `json:"reason,omitempty" mask:"text,By"`
}

// NewBlock is the block that the episode hit, opened at since, leads to by rule under a generation of the rule's mode.
func NewBlock(rule string, generation int64, hit string, since, until traffic.Time) Block {
	return Block{
		Format: ValueFormat, Action: actionBlock, Scope: scopeMatch, Rule: rule, Generation: generation, Hit: hit, Since: since, Until: until,
	}
}

// InForce reports whether a block holds under its rule's mode: one that was written before the rule was last promoted,
// or whose rule does not block any more, holds nobody.
func (b *Block) InForce(mode *rules.ModeState) bool {
	return mode.Mode.Blocks() && b.Generation >= mode.Generation
}

// Tombstone is the value of a tombstone key, as JSON: an operator released the block. It covers the episode Hit and
// every episode that had opened by Released, so that neither their later over events nor a replay block again.
type Tombstone struct {
	Format   int          `json:"v"`
	Action   string       `json:"action" mask:"-"` // "release"
	Rule     string       `json:"rule" mask:"name"`
	Released traffic.Time `json:"released"`                   // append time of the request; only ever raised
	Until    traffic.Time `json:"until"`                      // the tombstone's own expiry
	Hit      string       `json:"hit,omitempty" mask:"-"`     // of the block that was there; empty: nothing was
	Request  string       `json:"request,omitempty" mask:"-"` // id of the release record
	By       string       `json:"by,omitempty" mask:"name"`
	// StoodUntil is when the block that was there would have ended. 0: nothing was there, or an older weir released it.
	StoodUntil traffic.Time `json:"stood_until,omitempty"`
}

// NewTombstone is the tombstone of a release from rule at released by somebody, whose name is cut to maxByBytes.
func NewTombstone(rule, by string, released, until traffic.Time) Tombstone {
	if len(by) > maxByBytes {
		by = by[:maxByBytes]
	}
	return Tombstone{
		Format: ValueFormat, Action: actionRelease, Rule: rule, Released: released, Until: until, By: strings.ToValidUTF8(by, "\uFFFD"),
	}
}

// maxByBytes bounds the name of the releaser in a tombstone; the decision carries it whole.
const maxByBytes = 200

// Stood reports whether there was a block to release. Without one, the release forgives what came before it all the same.
func (t *Tombstone) Stood() bool { return t.Hit != "" }

// Covers reports whether t forgives the episode hit that opened at since.
func (t *Tombstone) Covers(hit string, since traffic.Time) bool {
	return holding.Covers(t.Released, t.Hit, hit, since)
}

// DecodeBlock reads a block key's value.
func DecodeBlock(text []byte) (Block, error) {
	var b Block
	if err := json.Unmarshal(text, &b); err != nil {
		return Block{}, fmt.Errorf("block value: %w", err)
	}
	switch {
	case b.Format != ValueFormat:
		return Block{}, fmt.Errorf("block value: format %d, known: %d", b.Format, ValueFormat)
	case b.Action != actionBlock || b.Scope != scopeMatch:
		return Block{}, fmt.Errorf("block value: action %q with scope %q, known: %q with %q", b.Action, b.Scope, actionBlock, scopeMatch)
	case !ruleID(b.Rule):
		return Block{}, fmt.Errorf("block value: rule %q", b.Rule)
	case !Storable(b.Since) || !Storable(b.Until):
		return Block{}, fmt.Errorf("block value: since %s, until %s", b.Since, b.Until)
	}
	return b, nil
}

// DecodeTombstone reads a tombstone key's value.
func DecodeTombstone(text []byte) (Tombstone, error) {
	var t Tombstone
	if err := json.Unmarshal(text, &t); err != nil {
		return Tombstone{}, fmt.Errorf("tombstone value: %w", err)
	}
	switch {
	case t.Format != ValueFormat:
		return Tombstone{}, fmt.Errorf("tombstone value: format %d, known: %d", t.Format, ValueFormat)
	case t.Action != actionRelease:
		return Tombstone{}, fmt.Errorf("tombstone value: action %q, known: %q", t.Action, actionRelease)
	case !ruleID(t.Rule):
		return Tombstone{}, fmt.Errorf("tombstone value: rule %q", t.Rule)
	case !Storable(t.Released) || !Storable(t.Until):
		return Tombstone{}, fmt.Errorf("tombstone value: released %s, until %s", t.Released, t.Until)
	}
	return t, nil
}

// lastStorable is the last microsecond of the year 9999: beyond it the text of a time is not of fixed length.
const lastStorable traffic.Time = 253402300799_999999

// Storable reports whether t may stand in a value. The scripts compare times as texts, which is right for texts of one
// length only.
func Storable(t traffic.Time) bool { return t > 0 && t <= lastStorable }

// expiryMS is until as Redis takes it, rounded up: a key never goes before its block ends.
func expiryMS(until traffic.Time) int64 { return (int64(until) + 999) / 1000 }

// encode writes a value. Both types hold only numbers, bools and strings, which always encode.
func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}
