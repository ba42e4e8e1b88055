package backtest

import (
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Result is what a run has found.
type Result struct {
	Lines       int64            `json:"lines"`
	Events      int64            `json:"events"`             // that were in time and read well
	LeftOut     int64            `json:"left_out"`           // before Since, or from Until on
	OwnRefusals int64            `json:"own_refusals"`       // of Events, requests that weir itself had refused: they feed no window
	Refused     map[string]int64 `json:"refused"`            // lines, and files that broke off, by reason: that of format.DecodeError, or of ingest/archive
	Examples    []string         `json:"examples"`           // the first few of those: "file:line: reason: detail"
	Broken      []archive.Break  `json:"broken,omitempty"`   // files that were not read to their end; they are among Refused, too
	GivenUp     []string         `json:"given_up,omitempty"` // files whose rest was not read, since of their first 10,000 lines none could be
	Gaps        []Gap            `json:"gaps,omitempty"`     // of a live topic: what could not be read
	TooLate     int64            `json:"too_late"`           // behind what --reorder had let go, counted all the same
	Forced      int64            `json:"forced"`             // let go early since the reorder buffer was full
	First       traffic.Time     `json:"first,omitzero"`
	Last        traffic.Time     `json:"last,omitzero"`
	Took        time.Duration    `json:"took_ns"`
	Evicted     int64            `json:"evicted"` // keys forgotten for the budget's sake, in the windows of shadow or those under a block: figures are then lower bounds
	Rules       []RuleResult     `json:"rules"`   // one per rule, with a sweep one per rule and value, in order
}

// RuleResult is what one rule would have done, or one value of a sweep.
type RuleResult struct {
	Rule    string        `json:"rule"`
	Version rules.Version `json:"version"`         // as it was counted, the swept value included
	Swept   string        `json:"swept,omitempty"` // "limit=10"; empty without a sweep
	// Untried are the fields of the rule that a sweep leaves out, which tries other limits itself: near, candidate.
	Untried []string `json:"untried,omitempty"`

	Matched   int64            `json:"matched"`
	Counted   int64            `json:"counted"`   // of those, fed a window
	Uncounted map[string]int64 `json:"uncounted"` // the others by reason, as detectors.Uncounted says it
	// Allowed are those that are neither: by allow list, the events of sources that it lets pass.
	Allowed map[string]int64 `json:"allowed,omitempty"`
	// Unjudged are the events on which match.when, or the condition of a tier, could not be judged. Those of match.when are not
	// among Matched.
	Unjudged route.Unjudged `json:"unjudged,omitzero"`

	Sources  int64        `json:"sources"` // with an episode
	Episodes int64        `json:"episodes"`
	Over     int64        `json:"over"` // events in those episodes, from the first to the last over the limit
	First    traffic.Time `json:"first,omitzero"`
	Last     traffic.Time `json:"last,omitzero"`

	Top    []Source `json:"top"`
	TopCut int64    `json:"top_cut"` // sources that are not listed

	// Peaks is the distribution, over all sources, of the greatest count within a window; nil for a rule that counts
	// distinct values. Where there are very many sources, every PeaksShare-th is followed and stands for as many.
	Peaks      []PeakBucket `json:"peaks,omitempty"`
	PeaksShare int          `json:"peaks_share,omitempty"`

	Block *BlockResult `json:"block,omitempty"` // nil where the rule has no block

	Near      *BesideResult `json:"near,omitempty"`      // sources near the limit; nil where the rule has no near, and in a sweep
	Candidate *BesideResult `json:"candidate,omitempty"` // sources over the candidate's limit; nil where the rule has none, and in a sweep

	// Hits are the final episodes, in order of (First, Subject, ID). Of a rule with very many the first are kept, see HitsCut.
	Hits    func(yield func(detectors.Hit) bool) `json:"-"`
	HitsCut int64                                `json:"hits_cut,omitempty"` // episodes that Hits does not give
}

// BesideResult is what was found beside a rule's limit, of which nothing comes.
type BesideResult struct {
	Sources  int64 `json:"sources"`
	Episodes int64 `json:"episodes"`
	Over     int64 `json:"over"` // events in those episodes
	// LeftOut are further warnings, beyond detectors.MaxNearOpenings a keyed partition and minute.
	LeftOut int64 `json:"left_out,omitempty"`
}

// Source is one subject over a rule's limit.
type Source struct {
	Subject  traffic.Subject `json:"subject"`
	Episodes int64           `json:"episodes"`
	Over     int64           `json:"over"`
	Peak     int             `json:"peak"`
	First    traffic.Time    `json:"first"`
	Last     traffic.Time    `json:"last"`
	Samples  []string        `json:"samples,omitempty"` // JSON texts of traffic.Sample, of its first episode; where very many sources are over, of one that was kept
}

// PeakBucket counts the sources whose greatest count within a window was From to To. Buckets ascend without gaps, and each
// limit that was tried ends one; there the numbers are exact, within they are of windows up to an eighth longer.
type PeakBucket struct {
	From    int   `json:"from"`
	To      int   `json:"to"`
	Sources int64 `json:"sources"`
}

// BlockResult is what the rule's block would have done, had this rule alone blocked: requests that are refused feed no
// window.
type BlockResult struct {
	Refused        int64        `json:"refused"`
	Held           int64        `json:"held"`    // distinct block subjects
	Offered        int64        `json:"offered"` // requests that the block would hold, of its subjects
	ShareOfAll     float64      `json:"share_of_all"`
	ShareOfMatched float64      `json:"share_of_matched"` // of the requests that the rule watches, those refused
	FirstRefused   traffic.Time `json:"first_refused,omitzero"`
}
