// Package evidence gathers what the owner of a rule decides by: a dossier of what one version of it would have done in a span of time,
// had it blocked. Everything in it comes from rows that the stages have recorded; nothing is counted again, and nothing changes by asking.
package evidence

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weirhq/weir/traffic"
)

// Format is the format of dossiers that this build writes, and the newest that it reads.
const Format = 1

// Role is which of a rule's versions a dossier is about.
type Role string

const (
	Acting    Role = "acting"    // a version that acts, or acted: in shadow, or blocking
	Candidate Role = "candidate" // the limit on trial of the newest such version
	Pending   Role = "pending"   // a version that waits for its promotion, or did
)

// Dossier is what one version of a rule would have done between two times, had it alone blocked. The same rows give the same dossier, byte
// for byte (Document): it says neither when nor by whom it was made.
type Dossier struct {
	Format  int          `json:"format"`
	Stream  string       `json:"stream" mask:"name"`
	Rule    string       `json:"rule" mask:"name"`
	Version int          `json:"version"`
	Role    Role         `json:"role"`
	Since   traffic.Time `json:"since"` // the first minute
	Until   traffic.Time `json:"until"` // the minute after the last one

	Terms     Terms     `json:"terms"`
	Observed  Observed  `json:"observed"`
	Traffic   Traffic   `json:"traffic"`
	Held      Held      `json:"held"`
	KnownGood KnownGood `json:"known_good"`
	Behind    Behind    `json:"behind"`
	Overlap   Overlap   `json:"overlap"`
	Ladder    Ladder    `json:"ladder"`
	// the sources with the most refused requests, then events, at most TopSources
	Top   []Source `json:"top"`
	Notes []string `json:"notes" mask:"line"` // what else to know, in sentences
}

// TopSources is how many sources a dossier shows.
const TopSources = 20

// Terms are those of the version that the figures depend on.
type Terms struct {
	Limit     int    `json:"limit"`
	Window    string `json:"window" mask:"-"`
	Algorithm string `json:"algorithm" mask:"-"`
	Count     string `json:"count" mask:"-"`
	Key       string `json:"key" mask:"-"`
	Block     string `json:"block" mask:"-"` // empty: the version has no block, and holds nobody
	BlockKey  string `json:"block_key,omitempty" mask:"-"`
}

// Observed is how much of the time the version was watched.
type Observed struct {
	Minutes int64 `json:"minutes"` // observed: those of the span without those of gaps
	Span    int64 `json:"span"`    // minutes between Since and Until
	Gaps    []Gap `json:"gaps"`    // ascending; the longest maxGaps of them
	// Missing are the minutes of all gaps, by reason, those with none left out.
	Missing []Missing `json:"missing"`
	Losses  int64     `json:"losses"` // gaps in the log that fell into the span
}

// Hours is Minutes as a duration.
func (o *Observed) Hours() time.Duration { return time.Duration(o.Minutes) * time.Minute }

// GapReason is why a minute does not count as observed.
type GapReason string

const (
	GapBefore    GapReason = "before"    // nothing counted as the version does
	GapOff       GapReason = "off"       // the rule was disabled, or removed
	GapSilent    GapReason = "silent"    // no router told of any event: there was none, or ROUTE was away
	GapWarming   GapReason = "warming"   // windows began empty: they held less than they will
	GapUncounted GapReason = "uncounted" // ROUTE saw requests that the rule watches, and DETECT told of none
	GapLoss      GapReason = "loss"      // a part of the log was lost in it
	GapOther     GapReason = "other"     // another version acted, which counts otherwise
	GapRaised    GapReason = "raised"    // the limit was raised for a time: who was between the two was not over it
	GapAllowed   GapReason = "allowed"   // an allow list let pass whom none does by the end of the span
)

// gapReasons are all reasons, in the order in which dossiers list them.
func gapReasons() []GapReason {
	return []GapReason{GapBefore, GapOff, GapSilent, GapWarming, GapUncounted, GapLoss, GapOther, GapRaised, GapAllowed}
}

// Gap is a span of minutes that were not observed.
type Gap struct {
	Since  traffic.Time `json:"since"`
	Until  traffic.Time `json:"until"`
	Reason GapReason    `json:"reason"`
}

// Missing is how many minutes were not observed for one reason.
type Missing struct {
	Reason  GapReason `json:"reason"`
	Minutes int64     `json:"minutes"`
}

// Traffic is what went by in the span.
type Traffic struct {
	All       Count `json:"all"`        // events of all rules and of none
	Refused   Count `json:"refused"`    // of those, requests that weir had refused already, for whatever rule
	Matched   Count `json:"matched"`    // that the rule watches
	Counted   Count `json:"counted"`    // of those, that fed a window of this version
	WithReach Count `json:"with_reach"` // that a block of this version could refuse: matched ones, and others that its block.match names
}

// Held is what the version's block would have done.
type Held struct {
	Requests       Count `json:"requests"`         // that it would have refused
	Sources        Count `json:"sources"`          // block subjects that it would have held
	Refusing       Count `json:"refusing"`         // of those, that would have been refused a request
	Over           Count `json:"over"`             // sources over the limit, with those whom no block would hold
	Episodes       Count `json:"episodes"`         // times at which one was
	ShareOfAll     Share `json:"share_of_all"`     // of all events
	ShareOfMatched Share `json:"share_of_matched"` // of events that the rule watches
	ShareOfReach   Share `json:"share_of_reach"`   // of requests that its block could refuse
}

// KnownGood is how many of those it would have held are known to be good, by the deployment's expression known_good.
type KnownGood struct {
	Sources  Count `json:"sources"`  // held sources of whom a good event came within 30 days before
	Requests Count `json:"requests"` // that these would have been refused
	// Coverage is the share of held sources that could be judged at all.
	Coverage Share `json:"coverage"`
	// EventCoverage is the share of all events that could be judged.
	EventCoverage Share `json:"event_coverage"`
}

// Behind is who shares what a block would have held.
type Behind struct {
	Users   Crowd `json:"users"`
	Devices Crowd `json:"devices"`
}

// Crowd is how many distinct users, or devices, an episode of a held source has shown: the most of any of its episodes.
type Crowd struct {
	Sources Count    `json:"sources"` // of whom at least one is known
	Most    Count    `json:"most"`    // of one source
	Many    Count    `json:"many"`    // sources with ten or more
	Buckets []Bucket `json:"buckets"`
}

// Bucket counts sources with From to To of something; To 0 is without end.
type Bucket struct {
	From    int64 `json:"from"`
	To      int64 `json:"to"`
	Sources int64 `json:"sources"`
}

// Overlap is what rules that block already held of it.
type Overlap struct {
	Sources  Share        `json:"sources"`  // of held sources, those whom another rule's block held while they were over this limit
	Requests Share        `json:"requests"` // of refused requests, those of these sources
	Rules    []OverlapOne `json:"rules"`    // most sources first
}

// OverlapOne is how many held sources one other rule held as well.
type OverlapOne struct {
	Rule    string `json:"rule" mask:"name"`
	Sources int64  `json:"sources"`
}

// Source is one of those whom the version would have held.
type Source struct {
	Subject   traffic.Subject `json:"subject"`
	Refused   int64           `json:"refused"`
	Episodes  int64           `json:"episodes"`
	Events    int64           `json:"events"` // of its episodes
	Peak      int64           `json:"peak"`
	First     traffic.Time    `json:"first"`
	Last      traffic.Time    `json:"last"`
	Users     int64           `json:"users"`
	Devices   int64           `json:"devices"`
	KnownGood string          `json:"known_good" mask:"-"`   // yes, no, or not judged
	HeldBy    []string        `json:"held_by" mask:"name"`   // other rules
	Hit       string          `json:"hit" mask:"-"`          // its episode with the most refused requests, then events
	Samples   []string        `json:"samples" mask:"sample"` // of that episode, JSON texts of traffic.Sample
}

// Document is d in canonical form: the members in the order of the type, no space, times in UTC to the microsecond, no escape that JSON
// does not ask for.
func (d *Dossier) Document() ([]byte, error) {
	b, err := marshal(d)
	if err != nil {
		return nil, fmt.Errorf("dossier of rule %s: %w", d.Rule, err)
	}
	return b, nil
}

// Hash is the SHA-256 of a document, in hex.
func Hash(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}

// ErrDossier is wrapped by every error of Decode.
var ErrDossier = errors.New("dossier that this build cannot read")

// Decode reads a document. A newer format, or a member that this build does not know, is an error: a figure that is read over would be
// one that nobody asked about.
func Decode(document []byte) (*Dossier, error) {
	dec := json.NewDecoder(bytes.NewReader(document))
	dec.DisallowUnknownFields()
	var d Dossier
	if err := dec.Decode(&d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDossier, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: got more after it, allowed one document", ErrDossier)
	}
	if d.Format < 1 || d.Format > Format {
		return nil, fmt.Errorf("%w: format %d, allowed: 1 to %d", ErrDossier, d.Format, Format)
	}
	return &d, nil
}
