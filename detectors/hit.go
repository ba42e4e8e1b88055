package detectors

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/weirhq/weir/rules/holding"
	"github.com/weirhq/weir/traffic"
)

// HitFormat is the format of hits that this build writes and reads. A new kind, or a member that changes what others mean,
// is written only for records of a format that allows it (see rules.UncountedRecordFormat).
const HitFormat = 1

// Kind is the kind of a record on the hits topic. The name attempt is reserved.
type Kind string

const (
	KindHit       Kind = "hit"       // an episode of one source over one rule's limit
	KindNear      Kind = "near"      // an episode of one source near one rule's limit: open and closed only, nobody to block
	KindCandidate Kind = "candidate" // an episode over a limit on trial, of a candidate or a pending version: never enforced
	KindLate      Kind = "late"      // late events, summed per rule, source partition and minute
	KindUncounted Kind = "uncounted" // events left out for another reason, summed likewise; Reason is an Uncounted
	// KindStatistics is a sum over one minute of event time of what a rule counted, and of what its block would have done. A minute
	// may have several, each of other events, so that they add up.
	KindStatistics Kind = "statistics"
	// KindRunning is how far an episode is that runs, told about once a second for boards: of a hit that was sent under the same id,
	// in its phase. Nobody is blocked for it, and what it says the hits of the episode will say again.
	KindRunning Kind = "running"
	// KindRefused is a sum over one minute of event time of the requests that gates refused by one block. A minute may
	// have several, each of other requests, so that they add up.
	KindRefused Kind = "refused"
	KindLoss    Kind = "loss"    // a gap that an operator accepted, or that retention made
	KindRelease Kind = "release" // an operator releases a block; written by the CLI, acted on by ENFORCE
)

// Phase is how far an episode is.
type Phase string

const (
	PhaseOpen   Phase = "open"   // the first over event
	PhaseUpdate Phase = "update" // still over, at most once per cooldown
	PhaseClosed Phase = "closed" // a window has passed since the last over event; counts are final
	PhaseMerged Phase = "merged" // a late event joined this episode to another one; it is no offence
)

// Hit is one record of the hits topic, as JSON. Members that a kind does not use are absent.
//
// ID is deterministic: the same keyed log gives the same IDs, so a consumer that has seen an ID has seen the offence.
// Counts and bounds of one ID only grow (First only falls), which makes an upsert with greatest() order-free.
type Hit struct {
	Format      int    `json:"v"`
	Kind        Kind   `json:"kind"`
	ID          string `json:"id" mask:"-"` // 32 hex digits
	Rule        string `json:"rule,omitempty" mask:"name"`
	RuleVersion int    `json:"rule_version,omitempty"`
	Lineage     int    `json:"lineage,omitempty"`
	Phase       Phase  `json:"phase,omitempty"`

	Subject      traffic.Subject `json:"subject,omitempty"`       // the rule's key
	BlockSubject traffic.Subject `json:"block_subject,omitempty"` // who a block would hold; empty: no block is possible
	Grouped      bool            `json:"grouped,omitempty"`       // a field of the key is missing: recorded, never blocking

	// Opened is the time of the event at whose arrival this hit was opened: it never changes. 0: the record format of the stream was
	// below rules.EvidenceRecordFormat then.
	Opened   traffic.Time `json:"opened,omitempty"`
	Limit    int          `json:"limit"` // of the source's events; near: the one that it is near to; statistics: the rule's own
	WindowMS int64        `json:"window_ms,omitempty"`
	Count    int64        `json:"count"` // events from the first to the last over event; late, uncounted, statistics: events
	// AtLeast says that Count may be too low, and First and Last not those of the events in order of time: an event came so
	// late that the state it needed was trimmed, or is not kept by the algorithm; or the limit rose above what was kept
	// of it.
	AtLeast bool `json:"at_least,omitempty"`
	// Peak is the greatest number that the algorithm has seen one window of the episode hold; for buckets, the greatest
	// level in events, rounded up, the event that did not fit included. A lower bound: nothing is counted that a window
	// does not hold, but of a source that is over no more is kept than needed.
	Peak  int          `json:"peak,omitempty"`
	First traffic.Time `json:"first"`         // time of the first over event; late, uncounted, statistics: start of the minute
	Last  traffic.Time `json:"last"`          // time of the last over event; late, uncounted, statistics: the latest event's time
	Seen  traffic.Time `json:"seen"`          // append time of the keyed record that caused this hit
	Cut   bool         `json:"cut,omitempty"` // closed because it had lasted MaxEpisode

	Generation int64  `json:"g"`
	Source     int    `json:"p"` // of the event at whose arrival the episode was first seen
	Offset     int64  `json:"o"`
	Keyed      int    `json:"keyed"`                   // keyed partition
	IntoID     string `json:"into,omitempty" mask:"-"` // merged: the episode that goes on
	// Place and Nth are where the hit comes in the order of all that its keyed partition has caused: the place of the keyed record in the log
	// (its offset + 1), and the hit's among those of the record, from 1. The same hit has the same, however often it is sent. 0: a build
	// before did not tell, or it is no record's.
	Place int64 `json:"at,omitempty"`
	Nth   int   `json:"nth,omitempty"`

	Users   int      `json:"users,omitempty"`                 // distinct users seen, saturating at MaxDistinct
	Devices int      `json:"devices,omitempty"`               // distinct devices seen, saturating at MaxDistinct
	Samples []string `json:"samples,omitempty" mask:"sample"` // JSON texts of traffic.Sample, the first few over events

	Good    Good  `json:"known_good,omitempty"` // what the deployment knows of the block subject, by its events of GoodKept
	Refused int64 `json:"refused,omitempty"`    // requests that the rule's block would have refused from this episode on; may rise after the closing
	// Block is, of refused, the id of the block as gates name it; empty: those of a rule that are too many to be told apart
	Block string `json:"block,omitempty" mask:"-"`
	Known int64  `json:"known,omitempty"` // refused: of Count, requests that known_good holds for
	Trial *Trial `json:"trial,omitempty"` // statistics: what the rule's block would have done

	By string `json:"by,omitempty" mask:"name"` // release, loss: who
	// release: how who releases came; absent: a build before did not tell
	Via string `json:"via,omitempty" mask:"-"`
	// release: what who releases found to stand, in words for the audit trail; absent as Via
	Found string `json:"found,omitempty" mask:"line"`
	// release, loss, uncounted: why; of an episode ReasonReset, or nothing
	Reason string `json:"reason,omitempty" mask:"text,By"`
}

// place notes which keyed record caused the hit, as the n-th from 0.
func (h *Hit) place(record int64, n int) {
	if record > 0 {
		h.Place, h.Nth = record, n+1
	}
}

// Offends reports whether h may have an effect on a block, if its rule has one: it is of an episode, of somebody who
// can be named. What it does is said by package holding.
func (h *Hit) Offends() bool {
	return h.Phase != PhaseMerged && h.BlockSubject != "" && !h.Grouped
}

// Holding is what decides of h, under a generation of its rule's mode.
func (h *Hit) Holding(generation int64) holding.Hit {
	out := holding.Hit{Phase: holding.Opening, ID: h.ID, First: h.First, Last: h.Last, Generation: generation}
	switch h.Phase {
	case PhaseUpdate:
		out.Phase = holding.Update
	case PhaseClosed:
		out.Phase = holding.Closing
	}
	return out
}

// ReasonReset is the reason of a hit that closed because an operator reset what its key had counted. Readers pass over a reason that they do
// not know: such a hit is closed like any other.
const ReasonReset = "reset"

// What a loss has as its source partition where it is of the keyed log: records of any may have been in it.
const (
	GapInKeyed = -1 // up to Offset
	KeyedAnew  = -2 // from Offset on, of a log that was made anew or lost its end
)

// MaxDistinct is where Hit.Users and Hit.Devices saturate.
const MaxDistinct = 64

// ErrHit is wrapped by every error of DecodeHit.
var ErrHit = errors.New("hit record")

// EncodeHit writes h as the JSON value of a record on the hits topic. The same hit gives the same bytes.
func EncodeHit(h *Hit) ([]byte, error) {
	b, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrHit, h.ID, err)
	}
	return b, nil
}

// knownKinds are the kinds of hits that this build writes, and that its readers know what to do with.
func knownKinds() []Kind {
	return append(episodeKinds(), KindLate, KindUncounted, KindStatistics, KindRunning, KindRefused, KindLoss,
		KindRelease)
}

// episodeKinds are the kinds whose hits tell of episodes. Snapshots write their indexes.
func episodeKinds() []Kind { return []Kind{KindHit, KindNear, KindCandidate} }

// Episode reports whether hits of this kind tell of episodes, in phases. Those of KindNear and KindCandidate are told apart from
// KindHit: nothing comes of them. They are written under rules.LanguageRecordFormat and later only.
func (k Kind) Episode() bool { return slices.Contains(episodeKinds(), k) }

// DecodeHit reads a record of the hits topic. One of a newer format, or of a kind that a newer build has brought, gives
// *UnknownFormatError: a reader that goes past such a record loses it. Any other fault gives an error that wraps ErrHit.
// Unknown members are ignored: a member that changes the meaning of others raises the format.
func DecodeHit(b []byte) (Hit, error) {
	if h, ok := readHit(b); ok && h.Format == HitFormat && h.ID != "" && h.Kind != "" {
		return h, nil
	}
	var h Hit
	err := json.Unmarshal(b, &h)
	if newer := newerHit(b, &h, err); newer != nil {
		return Hit{}, newer
	}
	switch {
	case err != nil:
		return Hit{}, fmt.Errorf("%w: %w", ErrHit, err)
	case h.Format != HitFormat:
		return Hit{}, fmt.Errorf("%w: format %d, allowed: %d", ErrHit, h.Format, HitFormat)
	case h.Kind == "" || h.ID == "":
		return Hit{}, fmt.Errorf("%w: kind %q and id %q, neither may be empty", ErrHit, h.Kind, h.ID)
	case h.Good > KnownGood:
		return Hit{}, fmt.Errorf("%w: known_good %d, allowed: %d to %d", ErrHit, h.Good, NotJudged, KnownGood)
	}
	if err := h.checkTrial(); err != nil {
		return Hit{}, fmt.Errorf("%w: %w", ErrHit, err)
	}
	return h, nil
}

// newerHit tells a hit of a newer build from a damaged one, by the members that every format has. err is what decoding
// the whole of it as h has met: the members of a newer hit may have other types.
func newerHit(b []byte, h *Hit, err error) error {
	head := struct {
		Format int  `json:"v"`
		Kind   Kind `json:"kind"`
	}{h.Format, h.Kind}
	if err != nil && json.Unmarshal(b, &head) != nil {
		return nil
	}
	switch {
	case head.Format > HitFormat:
		return &UnknownFormatError{What: "hit", Got: fmt.Sprint(head.Format), Known: fmt.Sprint(HitFormat)}
	case head.Format == HitFormat && head.Kind != "" && !slices.Contains(knownKinds(), head.Kind):
		return &UnknownFormatError{What: "hit", Got: fmt.Sprintf("%d kind %.40q", head.Format, head.Kind), Known: fmt.Sprintf("kinds %q", knownKinds())}
	}
	return nil
}

// Partition is the partition of the hits topic, of n, that h belongs to: FNV-1a over the block subject, or over the
// subject where no block is possible. All offences of one block identity meet in one partition, whatever the rule, and so
// does its release, also where that names the block as it is stored.
func (h *Hit) Partition(n int) int {
	s := h.BlockSubject
	if s == "" {
		s = h.Subject
	}
	if s == "" {
		s = traffic.Subject(h.Block)
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(s.Stored())) // a hash never fails
	return int(sum.Sum64() % uint64(n))
}
