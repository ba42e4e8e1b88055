// Package rules holds rule documents: what to count, when it is too much, and what a block would be. A document never
// blocks anybody; a promotion does (see Mode).
package rules

import (
	"time"

	"github.com/weirhq/weir/traffic"
)

// Document is one rule as its owner wrote it, validated and with defaults filled in.
type Document struct {
	ID      string             `json:"id"`    // [a-z0-9][a-z0-9-]*, at most 64 bytes
	Owner   string             `json:"owner"` // the team that answers for the rule
	Match   Match              `json:"match"`
	Key     []traffic.KeyField `json:"key"` // empty: one window for all that matches
	Missing OnMissing          `json:"on_missing"`
	Limit   int                `json:"limit"`  // fires when the count goes above it; 0 fires on every event
	Window  time.Duration      `json:"window"` // nanoseconds in JSON; 1s to 31d

	// Of these four the zero value is the default, as in all that was stored before they existed. Parse fills defaults in,
	// the stored form leaves them out; whoever acts upon a document asks Counting, Capacity and UpdateEvery.
	Algorithm Algorithm     `json:"algorithm,omitempty"` // default sliding
	Count     Count         `json:"count,omitzero"`      // default events
	Burst     int           `json:"burst,omitempty"`     // token-bucket, leaky-bucket: the capacity; default limit
	Cooldown  time.Duration `json:"cooldown,omitempty"`  // at most one update of a running hit in this time; default 1m

	Lateness time.Duration `json:"lateness"` // default 60s; with fixed the lesser of 60s and the window
	MaxLag   time.Duration `json:"max_lag"`  // default 60s
	Block    *Block        `json:"block,omitempty"`
}

// Match says which requests a rule watches. An absent part matches all.
type Match struct {
	Methods []string `json:"methods,omitempty"` // upper case
	Path    string   `json:"path,omitempty"`    // literal, {param} segments and a trailing *

	// The zero values are the defaults, as in all that was stored before there was a choice.
	PathAs   PathAs   `json:"path_as,omitempty"`   // default normal
	PathCase PathCase `json:"path_case,omitempty"` // default exact
}

// PathAs says in which form a request's path is compared with a rule's.
type PathAs string

const (
	PathNormal PathAs = "normal" // as any common server would read it
	PathRaw    PathAs = "raw"    // byte by byte, up to the first '?'
)

// PathCase says whether ASCII letters of different case are the same in a path.
type PathCase string

const (
	PathCaseExact  PathCase = "exact"  // they differ
	PathCaseIgnore PathCase = "ignore" // they are the same
)

// Algorithm is how a window counts: one of the constants below. The empty one, as in routing versions written before
// there was a choice, is AlgorithmSliding.
type Algorithm string

const (
	AlgorithmFixed          Algorithm = "fixed"           // windows aligned to the clock
	AlgorithmFirstSeen      Algorithm = "first-seen"      // a window opens with the key's first event
	AlgorithmSlidingCounter Algorithm = "sliding-counter" // two counts, the older weighted
	AlgorithmSlidingLog     Algorithm = "sliding-log"     // exact, memory follows the limit
	AlgorithmTokenBucket    Algorithm = "token-bucket"    // limit tokens a window, at most burst saved
	AlgorithmLeakyBucket    Algorithm = "leaky-bucket"    // capacity limit, leaks limit a window
	AlgorithmSliding        Algorithm = "sliding"         // sliding-log for small limits, sliding-counter above
)

// Count is what a window adds up. The zero value counts events.
type Count struct {
	Distinct *traffic.KeyField `json:"distinct,omitempty"` // distinct values of this field; events without it are not counted
	Sum      string            `json:"sum,omitempty"`      // sum of this whole number, such as attrs.cost; events without it are not counted
}

// OnMissing says what becomes of an event that lacks one of the key's fields. Either way it is counted.
type OnMissing string

const (
	MissingSkip  OnMissing = "skip"  // the event feeds no window
	MissingGroup OnMissing = "group" // events without the field share a window, which records but never blocks
)

// Block is what a block would be, were the rule promoted. Its scope is the rule's own match.
type Block struct {
	// Key names the fields whose values are blocked, by default the rule's own key. With fewer fields the block is wider. A
	// field that the rule's key does not have narrows the block: there is one hit for each combination of values among the
	// events over the limit.
	Key    []traffic.KeyField `json:"key"`
	TTL    time.Duration      `json:"ttl"`
	Extend Extend             `json:"extend"`
}

// Extend says what pushes a block's expiry out.
type Extend string

const (
	ExtendNever Extend = "never"  // only the hit that opened the episode counts
	ExtendOnHit Extend = "on-hit" // every over-limit update does
)

// Defaults for what a document leaves out.
const (
	DefaultLateness = 60 * time.Second
	DefaultMaxLag   = 60 * time.Second
	DefaultCooldown = time.Minute
	MinWindow       = time.Second
	MaxWindow       = 31 * 24 * time.Hour
)

// Version is one immutable version of a rule. Lineage counts the window definitions the rule has had: a change of key,
// window, algorithm, count or on_missing starts a new one, and with it cold windows; any other change keeps lineage and
// counts.
type Version struct {
	Document
	Number  int `json:"version"`
	Lineage int `json:"lineage"`
}

// Routing is a routing version: one immutable document that holds everything the records of the keyed log depend on.
// A process that does not know a version, or its record format, must not touch a record that carries it.
type Routing struct {
	Stream       string              `json:"stream"`
	Number       int64               `json:"number"` // from 1, ascending within the stream
	RecordFormat int                 `json:"record_format"`
	SecretID     string              `json:"secret_id"`
	Rules        []Version           `json:"rules"` // ascending by ID; keyed records name rules by their index here
	Identity     traffic.IdentityMap `json:"identity"`
	Format       Format              `json:"format"`
}

// Format is how events of the stream are decoded.
type Format struct {
	Name          string            `json:"name"`          // one of format.Names
	Map           map[string]string `json:"map,omitempty"` // event field → member, for json
	MaxEventBytes int               `json:"max_event_bytes"`
}

// Mode is whether a rule acts. It is not part of a document: promote, demote and disable set it, each audited.
type Mode string

const (
	ModeOff    Mode = "off"    // not even counted
	ModeShadow Mode = "shadow" // counts and records; every rule starts here
	ModeBlock  Mode = "block"  // and blocks
)

// ModeState is a rule's mode as promote and demote left it. Generation rises with every change; a block carries the
// generation it was written under and holds only while that is the newest.
type ModeState struct {
	Rule       string `json:"rule"`
	Mode       Mode   `json:"mode"`
	Generation int64  `json:"generation"`
	Match      Match  `json:"match"` // of the newest version, for gates
	// Promoted is the newest version when the rule began to block: what the promotion was about. 0: not known, or the
	// rule does not block.
	Promoted int `json:"promoted,omitempty"`
	// Newest is the number of the rule's newest version. 0: not known.
	Newest int `json:"newest,omitempty"`
}
