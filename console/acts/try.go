package acts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// TryOver is how far back requests are tried: long enough for the windows of most rules, and short enough to wait for.
const TryOver = time.Hour

// maxTried bounds the rules that are tried on requests together: each has windows of its own.
const maxTried = 20

// TryRequest asks what documents would do, were they applied.
type TryRequest struct {
	Files []File `json:"files"`
}

// Tried is what documents would do, were they applied. Nothing has been.
type Tried struct {
	*rulestore.Plan
	// Warnings tell what is probably not meant in the documents.
	Warnings []rules.Problem `json:"warnings,omitempty"`
	Tests    []RuleTest      `json:"tests"`
	Untested []string        `json:"untested,omitempty" mask:"name"` // rules without a test
	// Traffic is what the rules make of the latest requests; nil where NoTraffic says why they were not tried on any.
	Traffic   *TrafficTried `json:"traffic,omitempty"`
	NoTraffic string        `json:"no_traffic,omitempty" mask:"line"`

	Cause error `json:"-"` // behind NoTraffic, for who may be told of servers; nil: NoTraffic says it all
}

// RuleTest is one test of a document that was run.
type RuleTest struct {
	Rule string `json:"rule" mask:"name"`
	Name string `json:"name" mask:"-"`
	Line int    `json:"line"` // of its file
	OK   bool   `json:"ok"`
	Diff string `json:"diff,omitempty" mask:"-"` // what was expected (-) and what came (+)
}

// TrafficTried is what rules make of the requests that Kafka took in a period.
type TrafficTried struct {
	Since   traffic.Time `json:"since"`                         // by append time
	Until   traffic.Time `json:"until"`                         // by append time
	Shorter string       `json:"shorter,omitempty" mask:"line"` // why it is less than TryOver
	Events  int64        `json:"events"`
	// Unread counts what is not among Events: what is no event, and the stretches that Kafka did not give.
	Unread int64       `json:"unread"`
	Rules  []RuleTried `json:"rules"` // ascending by id
}

// RuleTried is what one rule makes of them, in shadow and by its block alone.
type RuleTried struct {
	Rule     string `json:"rule" mask:"name"`
	Matched  int64  `json:"matched"`
	Counted  int64  `json:"counted"`
	Sources  int64  `json:"sources"` // over the limit
	Episodes int64  `json:"episodes"`
	Over     int64  `json:"over"` // events in those episodes
	// AtLeast: there were more sources than could be kept, so that all figures of the rule are lower bounds.
	AtLeast bool          `json:"at_least,omitempty"`
	Top     []SourceTried `json:"top"`     // the worst first
	TopCut  int64         `json:"top_cut"` // sources that are not among Top
	Block   *BlockTried   `json:"block,omitempty"`
}

// SourceTried is one source over a rule's limit.
type SourceTried struct {
	Subject  traffic.Subject `json:"subject"`
	Episodes int64           `json:"episodes"`
	Over     int64           `json:"over"`
	Peak     int             `json:"peak"`
}

// BlockTried is what the rule's block alone would have done.
type BlockTried struct {
	Held    int64   `json:"held"`    // distinct sources
	Refused int64   `json:"refused"` // requests
	Share   float64 `json:"share"`   // of all requests, those refused
}

// Trials try documents that nothing is wrong with.
type Trials interface {
	// Tests runs the tests that documents have. Their rules may name lists, and those of the files take the place of
	// those of the same id; untested are the rules without a test.
	Tests(ctx context.Context, files []File, lists []rules.AllowList) (all []RuleTest, untested []string, err error)
	// Traffic runs rules over the requests that Kafka took within the last time, at most, and takes nothing from any
	// stage. Rules may name lists, as those of Tests. An *UntriedError is why it is not done.
	Traffic(ctx context.Context, set *rules.Set, lists []rules.AllowList, over time.Duration) (TrafficTried, error)
}

// UntriedError is why rules were not tried on requests; its text is for everybody.
type UntriedError struct{ Why string }

func (e *UntriedError) Error() string { return e.Why }

// Try tells what documents would do, were they applied: what would change, what their tests say, and what they make of
// the latest requests. It changes nothing. Who may not apply them may not try them. Who is shown pseudonyms finds out
// by conditions who is behind one: such a trial is audited before requests are looked at.
func (s *Service) Try(ctx context.Context, actor access.Actor, r TryRequest) (Tried, error) {
	if err := access.MayAny(actor, access.Apply); err != nil {
		return Tried{}, err
	}
	lists, err := s.o.Rules.AllowLists(ctx)
	if err != nil {
		return Tried{}, err
	}
	names, stored := make([]string, len(lists)), make([]rules.AllowList, len(lists))
	for i := range lists {
		names[i], stored[i] = lists[i].List.ID, lists[i].List
	}
	set, warnings, err := s.o.Documents.Read(r.Files, names)
	out := Tried{Warnings: warnings, Tests: []RuleTest{}}
	if err == nil {
		err = s.o.Masking.mayList(actor, set)
	}
	if err != nil {
		return out, err
	}
	planned, err := s.carry(ctx, actor, access.Apply, rulestore.WithSources(set), "", rulestore.ApplyOptions{
		DryRun: true, Alone: true, AllowLists: set.AllowLists})
	if err != nil {
		return out, err
	}
	out.Plan = planned.Plan
	if s.o.Trials == nil {
		out.NoTraffic = "this process tries no rules"
		return out, nil
	}
	if out.Tests, out.Untested, err = s.o.Trials.Tests(ctx, r.Files, stored); err != nil {
		return out, err
	}
	if err := s.o.Masking.tries(ctx, actor, r.Files, set); err != nil {
		s.o.Logger.Warn("a trial cannot be audited", "error", err)
		out.NoTraffic = "it cannot be written down just now who tries it, and so it is tried on no requests"
		out.Cause = err
		return out, nil
	}
	err = tryTraffic(ctx, &s.o, set, stored, &out)
	return out, err
}

// tryTraffic runs the rules of a set over the latest requests. That there are none to be had is told, and no error.
func tryTraffic(ctx context.Context, o *Options, set *rules.Set, stored []rules.AllowList, out *Tried) error {
	switch n := len(set.Rules); {
	case n == 0:
		out.NoTraffic = "there is no rule among the documents"
		return nil
	case n > maxTried:
		out.NoTraffic = fmt.Sprintf("got %d rules; at most %d are tried on requests at once, and weir backtest "+
			"tries any number",
			n, maxTried)
		return nil
	}
	tried, err := o.Trials.Traffic(ctx, set, stored, TryOver)
	var untried *UntriedError
	switch {
	case err == nil:
		out.Traffic = &tried
	case errors.As(err, &untried):
		out.NoTraffic = untried.Why
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		o.Logger.Warn("rules cannot be tried on requests", "error", err)
		out.NoTraffic, out.Cause = "the requests cannot be read just now", err
	}
	return nil
}
