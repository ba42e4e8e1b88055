// Package rules holds rule documents: what to count, when it is too much, and what a block would be. A document never
// blocks anybody; a promotion does (see Mode).
package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
)

// Document is one rule as its owner wrote it, validated and with defaults filled in.
type Document struct {
	ID      string             `json:"id" mask:"name"`    // [a-z0-9][a-z0-9-]*, at most 64 bytes
	Owner   string             `json:"owner" mask:"name"` // the team that answers for the rule
	Match   Match              `json:"match"`
	Key     []traffic.KeyField `json:"key"` // empty: one window for all that matches
	Missing OnMissing          `json:"on_missing"`
	Limit   int                `json:"limit"`  // fires when the count goes above it; 0 fires on every event
	Window  time.Duration      `json:"window"` // nanoseconds in JSON; 1s to 31d

	// Of these four the zero value is the default, as in all that was stored before they existed. ParseFiles fills defaults in,
	// the stored form leaves them out; whoever acts upon a document asks Counting, Capacity and UpdateEvery.
	Algorithm Algorithm     `json:"algorithm,omitempty"` // default sliding
	Count     Count         `json:"count,omitzero"`      // default events
	Burst     int           `json:"burst,omitempty"`     // token-bucket, leaky-bucket: the capacity; default limit
	Cooldown  time.Duration `json:"cooldown,omitempty"`  // at most one update of a running hit in this time; default 1m

	Lateness time.Duration `json:"lateness"` // default 60s; with fixed the lesser of 60s and the window
	MaxLag   time.Duration `json:"max_lag"`  // default 60s
	Block    *Block        `json:"block,omitempty"`

	// Near is the share of the limit, in percent, from which a source is warned about: 1 to 99; 0 for never.
	Near int `json:"near,omitempty"`
	// Candidate is a second limit that is counted beside the first and never enforced; nil for none.
	Candidate *Candidate `json:"candidate,omitempty"`
	// Tiers give some events a limit of their own: the first whose When holds. Events of no tier have Limit.
	Tiers []Tier `json:"tiers,omitempty"`
	// Allow names the allow lists whose sources the rule does not count, ascending.
	Allow []string `json:"allow,omitempty" mask:"name"`

	// Promote is what a promotion asks of the evidence; nil for promotion.DefaultGates.
	Promote *promotion.Gates `json:"promote,omitempty"`
	// Canary is how the rule goes on that is promoted to canary; nil for promotion.DefaultCanary.
	Canary *promotion.Canary `json:"canary,omitempty"`
}

// Candidate is a limit on trial.
type Candidate struct {
	Limit int `json:"limit"`
}

// Tier is a limit for the events for which a condition holds.
type Tier struct {
	When  string `json:"when" mask:"-"` // as Match.When
	Limit int    `json:"limit"`
}

// Match says which requests a rule watches. An absent part matches all.
type Match struct {
	Methods []string `json:"methods,omitempty" mask:"-"` // upper case
	// Path is made of literal segments, {param} or * for any one, and at the end * for all that follows or *.php for how the last one
	// ends.
	Path string `json:"path,omitempty" mask:"-"`

	// The zero values are the defaults, as in all that was stored before there was a choice.
	PathAs   PathAs   `json:"path_as,omitempty"`   // default normal
	PathCase PathCase `json:"path_case,omitempty"` // default exact

	Paths  []string `json:"paths,omitempty" mask:"-"`  // two or more paths instead of Path, ascending
	Except []string `json:"except,omitempty" mask:"-"` // paths that are left out, ascending; compared as Path is
	// lower case: exact, or *.example.com for all below it; ascending
	Hosts    []string `json:"hosts,omitempty" mask:"-"`
	Routes   []string `json:"routes,omitempty" mask:"-"`   // the gateway's own names of routes, ascending
	Statuses []string `json:"statuses,omitempty" mask:"-"` // 401, or 4xx for a class; ascending
	When     string   `json:"when,omitempty" mask:"-"`     // a condition in CEL on the event, as it was written
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
	// distinct values of this field; events without it are not counted
	Distinct *traffic.KeyField `json:"distinct,omitempty"`
	// sum of this whole number: attrs.NAME, bytes or latency_ms; events without it are not counted
	Sum string `json:"sum,omitempty" mask:"-"`
	// Tuple is Distinct for combinations of two or more fields' values; events that lack one of them are not counted.
	Tuple []traffic.KeyField `json:"tuple,omitempty"`
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
	// Match is what a block holds back, where that is not the request part of the rule's match; nil for that.
	Match *Match `json:"match,omitempty"`
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
	// Pending says that the version waits for its promotion: it is counted beside the live one, in a lineage of its own, and
	// never enforced. Routing versions only.
	Pending bool `json:"pending,omitempty"`
	// Raised is a limit for a time, above the document's; nil for none. Routing versions only.
	Raised *Raise `json:"raised,omitempty"`
}

// Raise lifts the limits of a rule, those of its tiers included, to at least Limit for events before Until.
type Raise struct {
	Limit int          `json:"limit"`
	Until traffic.Time `json:"until"` // event time; the limits hold as written from here on
}

// Routing is a routing version: one immutable document that holds everything the records of the keyed log depend on.
// A process that does not know a version, or its record format, must not touch a record that carries it.
type Routing struct {
	Stream       string              `json:"stream"`
	Number       int64               `json:"number"` // from 1, ascending within the stream
	RecordFormat int                 `json:"record_format"`
	SecretID     string              `json:"secret_id"`
	Rules        []Version           `json:"rules"` // ascending by ID, a pending version after the live one; keyed records name rules by their index here
	Identity     traffic.IdentityMap `json:"identity"`
	Format       Format              `json:"format"`
	// KnownGood is a condition as Match.When that holds for events of sources which the deployment knows to be good; empty: nobody is known.
	KnownGood string `json:"known_good,omitempty"`
	// Allow are the allow lists that Rules name, ascending by id; see WithAllow.
	Allow []AllowList `json:"allow,omitempty"`
	// Resets are the counts that operators have set back to nothing, ascending by Since; at most MaxResets.
	Resets []Reset `json:"resets,omitempty"`
	// Lost says that the rule store does not have this version any more, since it came back older. No rule of it is
	// known.
	Lost bool `json:"-"`
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
	ModeCanary Mode = "canary" // and blocks a share of its block keys, which rises by steps
	ModeBlock  Mode = "block"  // and blocks
)

// Blocks reports whether a rule of this mode has anybody refused: all that it says of edits of rules that block is said of both.
func (m Mode) Blocks() bool { return m == ModeBlock || m == ModeCanary }

// Reach is what a block of d holds back: block.match, or the part of d.Match that a request has before it is answered, which a gate
// can ask about. It is the zero Match, every request, where d has no block and matches everything.
func (d *Document) Reach() Match {
	if d.Block != nil && d.Block.Match != nil {
		return *d.Block.Match
	}
	return d.Match.requestPart()
}

// HoldsApart reports whether a block of d may hold requests that d does not watch, or not hold some that it does.
func (d *Document) HoldsApart() bool {
	return d.Block != nil && (d.Block.Match != nil || len(d.Match.Statuses) > 0 || d.Match.When != "")
}

// BlocksTuples reports whether the block's key tells sources apart that the rule's key does not: one episode may have several blocks.
func (d *Document) BlocksTuples() bool {
	return d.Block != nil && slices.ContainsFunc(d.Block.Key, func(b traffic.KeyField) bool {
		return !slices.ContainsFunc(d.Key, func(k traffic.KeyField) bool { return k.Field == b.Field })
	})
}

// requestPart is m without what is known of answers and events only.
func (m Match) requestPart() Match {
	m.Statuses, m.When = nil, ""
	return m
}

// usesLanguage reports whether builds before LanguageRecordFormat do not know all that m asks.
func (m *Match) usesLanguage() bool {
	return len(m.Paths)+len(m.Except)+len(m.Hosts)+len(m.Routes)+len(m.Statuses) > 0 || m.When != "" ||
		slices.ContainsFunc(m.paths(), hasNewStar)
}

// hasNewStar reports whether a pattern has a * that builds before LanguageRecordFormat take for itself: elsewhere than at the end.
func hasNewStar(pattern string) bool {
	for i := 0; i+1 < len(pattern); i++ {
		if pattern[i] == '*' {
			return true
		}
	}
	return false
}

// ModeState is a rule's mode as promote and demote left it. Generation rises with every change; a block carries the
// generation it was written under and holds only while that is the newest.
type ModeState struct {
	Rule       string `json:"rule" mask:"name"`
	Mode       Mode   `json:"mode"`
	Generation int64  `json:"generation"`
	// Match is what a block of the newest version that acts holds back: its Reach, for gates; never a pending one's.
	Match Held `json:"match"`
	// Promoted is the newest version when the rule began to block: what the promotion was about. 0: not known, or the
	// rule does not block.
	Promoted int `json:"promoted,omitempty"`
	// Newest is the number of the rule's newest version that acts. 0: not known.
	Newest int `json:"newest,omitempty"`
	// Share is the part of the rule's block keys that ENFORCE may block in ModeCanary, in hundredths of a percent. It rises within a
	// generation. 0: nobody, as where a build wrote the entry that knows no canary; and in every other mode.
	Share int `json:"share,omitempty"`
}

// MostGiven is beyond all numbers that weir gives, which are seconds and a count of changes. What is greater than that
// is nobody's: it is no later than anything else, and what the rule store has replaces it. So whoever may write to
// Redis cannot put a mode there for good.
const MostGiven = 1 << 40

// Given reports whether weir may have given the numbers of s.
func (s *ModeState) Given() bool { return s.Generation <= MostGiven && int64(s.Newest) <= MostGiven }

// Outruns reports whether s, as Redis has it, is later than o, as the rule store has it: both of numbers that weir
// gives.
func (s *ModeState) Outruns(o *ModeState) bool { return s.Given() && o.Given() && s.After(o) }

// Holds reports whether ENFORCE may block a key of the rule that lies at side, see promotion.Side.
func (s *ModeState) Holds(side func() promotion.Share) bool {
	return s.Mode == ModeBlock || s.Mode == ModeCanary && side() < promotion.Share(s.Share)
}

// After reports whether s is of a later moment than o, a state of the same rule: of a later generation; or of the
// same with a newer version, or further on with blocking, since within a generation a canary only goes on.
func (s *ModeState) After(o *ModeState) bool {
	switch {
	case s.Generation != o.Generation:
		return s.Generation > o.Generation
	case s.Newest != o.Newest:
		return s.Newest > o.Newest
	}
	return s.Mode.Blocks() && o.Mode.Blocks() && s.reached() > o.reached()
}

// reached is how far a rule has come with blocking. A state without the share was written by a build that knows of
// none.
func (s *ModeState) reached() promotion.Share {
	if s.Mode == ModeBlock {
		return promotion.All
	}
	return promotion.Share(s.Share)
}

// ByHand is the rule of the blocks that people order, of those that hold every request; no document may have its name.
// Those that hold what a match describes are of rules whose names begin with ByHand and a dash: gates hold a block by
// its rule's match.
const ByHand = "by-hand"

// IsByHand reports whether id is reserved for blocks that people order.
func IsByHand(id string) bool { return id == ByHand || strings.HasPrefix(id, ByHand+"-") }

// ByHandOf is the mode of the rule of blocks that people order to hold what m describes: the same for the same m,
// always in force, and of one generation for ever.
func ByHandOf(m Match) (ModeState, error) {
	state := ModeState{Rule: ByHand, Mode: ModeBlock, Generation: 1, Match: Held(m)}
	if isEverything(&m) {
		return state, nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return state, fmt.Errorf("match of a block by hand: %w", err)
	}
	sum := sha256.Sum256(text)
	state.Rule += "-" + hex.EncodeToString(sum[:8])
	return state, nil
}

// isEverything reports whether m names nothing, and so is every request.
func isEverything(m *Match) bool {
	return len(m.Methods)+len(m.paths())+len(m.Except)+len(m.Hosts)+len(m.Routes)+len(m.Statuses) == 0 && m.When == ""
}

// Held is a Reach as it is told to gates.
type Held Match

// Reaches is Match.Reaches.
func (h *Held) Reaches(t *Target) bool { return (*Match)(h).Reaches(t) }

// noRequest is a match of no request, in any build: no method is empty, and no path has what begins its query.
func noRequest() Match { return Match{Methods: []string{""}, Path: "?"} }

// MarshalJSON writes h so that no gate holds more than h. Gates of builds before LanguageRecordFormat, and those of others that keep
// to the contract, read methods and path, and pass over members that they do not know. Where these are not all that is
// asked, they say what no request is, and what a block holds stands in a member of its own.
func (h Held) MarshalJSON() ([]byte, error) {
	m := Match(h)
	if len(m.Paths)+len(m.Except)+len(m.Hosts)+len(m.Routes) == 0 {
		return json.Marshal(m)
	}
	return json.Marshal(struct {
		Match
		Reach Match `json:"reach"`
	}{noRequest(), m})
}

// UnmarshalJSON reads what MarshalJSON wrote, and what builds before it did. It passes over no member that it does not know: that
// would be to hold more than is asked. Such a match holds nothing.
func (h *Held) UnmarshalJSON(b []byte) error {
	var in struct {
		Match
		Reach *json.RawMessage `json:"reach"`
	}
	if !json.Valid(b) {
		return errors.New("no JSON")
	}
	err := decodeStrictly(b, &in)
	m := in.Match
	if err == nil && in.Reach != nil {
		m = Match{}
		err = decodeStrictly(*in.Reach, &m)
	}
	if err != nil || len(m.Statuses) > 0 || m.When != "" {
		m = noRequest()
	}
	*h = Held(m)
	return nil
}
