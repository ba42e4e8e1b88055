// Package verify holds what an installation has in history against the truth of a load: it finds the rules that can be
// judged, waits until history has caught up, and compares.
package verify

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/loadgen"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
)

// Rules are the versions that a stream's rules have had.
type Rules interface {
	Newest(ctx context.Context, stream string) (int64, error)
	Routing(ctx context.Context, stream string, number int64) (*rules.Routing, error)
	RuleVersion(ctx context.Context, id string, number int) (*rules.Version, bool, error)
}

// Findings are the hits that RECORD has stored of a stream.
type Findings interface {
	Hits(ctx context.Context, q history.HitQuery) ([]history.RecordedHit, error)
}

// Partitions says how far DETECT has come.
type Partitions interface {
	PartitionStates(ctx context.Context, stream string) ([]partitions.ReportedPartition, error)
}

// Broker says how far RECORD has read.
type Broker interface {
	WaitReady(ctx context.Context) error
	Partitions(ctx context.Context, topic string) (int, error)
	FetchCommits(ctx context.Context, group, topic string, partitions []int) (map[int]ingest.Commit, error)
}

// Bounds gives the ends of a topic's partitions.
type Bounds interface {
	Bounds(ctx context.Context, partitions []int) (map[int]ingest.Bounds, error)
}

var (
	_ Rules      = (*rulestore.Store)(nil)
	_ Findings   = (*history.Store)(nil)
	_ Partitions = (*partitions.Store)(nil)
)

// Options say what is verified. All are required.
type Options struct {
	Truth      *loadgen.Truth
	Stream     streams.Stream
	Rules      Rules
	Findings   Findings
	Partitions Partitions
	Broker     Broker
	Bounds     Bounds // of topic Hits
	Hits       string // the stream's topic of hits
	Record     string // RECORD's group
	// IdleMargin is how far the watermark of an idle stream stays behind the clock, as DETECT has it.
	IdleMargin time.Duration
	// Wait is how long history may take to catch up and episodes to close.
	Wait time.Duration
	Log  *slog.Logger
	Say  func(format string, args ...any) // takes a line about what is going on
}

// Run judges every rule that one version of which was in force from the beginning of the load until now; of the others
// the verdict says why they are not judged. It fails where history has not caught up with the load within Wait, and where
// the stream is not that of the load.
func Run(ctx context.Context, o Options) ([]loadgen.Verdict, error) {
	v := &verification{Options: o}
	if err := v.expect(ctx); err != nil {
		return nil, err
	}
	if err := v.await(ctx); err != nil {
		return nil, err
	}
	return v.judge(ctx)
}

// verification compares a load's truth with the hits in history.
type verification struct {
	Options
	routing  *rules.Routing // the newest
	expected []*loadgen.Expectation
	unjudged []loadgen.Verdict
}

// expect asks the oracle about every rule that can be judged.
func (v *verification) expect(ctx context.Context) error {
	steady, err := v.steadyRules(ctx)
	if err != nil {
		return err
	}
	partitions := v.Truth.Header.Partitions
	if !v.Truth.Header.Live() {
		partitions = v.Stream.Partitions.Requests
		if got, want := v.routing.Identity.IP.TrustedProxies.Hops, v.Truth.Header.Parameters.Proxies; got != want {
			return fmt.Errorf("the replay took addresses through %d trusted proxies, the load was written for %d: write it with --proxies %d", got, want, got)
		}
	}
	v.Say("computing who was over, for %s", plural.Of(len(steady), "rule"))
	v.expected, err = v.Truth.Expect(steady, &v.routing.Identity, partitions)
	return err
}

// steadyRules are the rules that had one version from the beginning of the load until now; the others get a verdict.
// An event may be routed long after it was sent, so only a version that is in force until now was certainly the one
// that counted it.
func (v *verification) steadyRules(ctx context.Context) ([]loadgen.Rule, error) {
	newest, err := v.Rules.Newest(ctx, v.Stream.Name)
	if err != nil {
		return nil, err
	}
	first := max(v.Truth.Header.Routing, 1)
	if newest < first {
		return nil, fmt.Errorf("stream %s has routing version %d at most, the load began under %d: it is another installation, or was made anew",
			v.Stream.Name, newest, first)
	}
	var begun *rules.Routing
	reasons := map[string]string{}
	for n := first; n <= newest; n++ {
		if v.routing, err = v.Rules.Routing(ctx, v.Stream.Name, n); err != nil {
			return nil, err
		}
		if begun == nil {
			begun = v.routing
			if err := v.sameRules(begun); err != nil {
				return nil, err
			}
		}
		compareRules(begun, v.routing, reasons)
	}
	var steady []loadgen.Rule
	for i := range begun.Rules {
		r := begun.Rules[i]
		if r.Pending {
			continue
		}
		if reason := reasons[r.ID]; reason != "" {
			v.unjudged = append(v.unjudged, loadgen.Unjudged(&r, reason))
			continue
		}
		limits, err := v.earlierLimits(ctx, &r)
		if err != nil {
			return nil, err
		}
		steady = append(steady, loadgen.Rule{Version: r, Limits: limits})
	}
	for i := range v.routing.Rules {
		if r := &v.routing.Rules[i]; begun.Find(r.ID) == nil {
			v.unjudged = append(v.unjudged, loadgen.Unjudged(r, "it is newer than the load's beginning"))
		}
	}
	return steady, nil
}

// earlierLimits are the limits of the rule's versions before this one that have counted in the same windows. A replay
// has none.
func (v *verification) earlierLimits(ctx context.Context, r *rules.Version) (limits []int, err error) {
	if !v.Truth.Header.Live() {
		return nil, nil
	}
	for n := r.Number - 1; n >= 1; n-- {
		before, found, err := v.Rules.RuleVersion(ctx, r.ID, n)
		if err != nil {
			return nil, err
		}
		if found && before.Pending {
			continue // it never acted
		}
		if !found || before.Lineage != r.Lineage {
			break
		}
		limits = append(limits, before.Limit)
	}
	return limits, nil
}

// sameRules holds the routing version that the load began under against what the truth says of it.
func (v *verification) sameRules(begun *rules.Routing) error {
	h := &v.Truth.Header
	if !h.Live() {
		return nil
	}
	acting := 0
	for i := range begun.Rules {
		if !begun.Rules[i].Pending {
			acting++
		}
	}
	same := len(h.Rules) == acting
	for _, used := range h.Rules {
		r := begun.Find(used.ID)
		same = same && r != nil && r.Number == used.Version && r.Lineage == used.Lineage
	}
	if !same {
		return fmt.Errorf("routing version %d has other rules than the load began under: it is another installation, or was made anew", begun.Number)
	}
	return nil
}

// compareRules finds reasons why rules of begun cannot be judged, given a later routing version.
func compareRules(begun, later *rules.Routing, reasons map[string]string) {
	for i := range begun.Rules {
		r := &begun.Rules[i]
		now := later.Find(r.ID)
		switch {
		case reasons[r.ID] != "":
		case now == nil:
			reasons[r.ID] = "it was removed or disabled since the load began"
		case r.Raised != nil || now.Raised != nil:
			reasons[r.ID] = "its limit is raised for a time"
		case now.Number != r.Number:
			reasons[r.ID] = fmt.Sprintf("it was changed since the load began, from version %d to %d", r.Number, now.Number)
		case !later.Identity.Equal(&begun.Identity):
			reasons[r.ID] = "the identity map was changed since the load began"
		}
	}
}

// judge reads history and compares it, rule by rule.
func (v *verification) judge(ctx context.Context) ([]loadgen.Verdict, error) {
	var verdicts []loadgen.Verdict
	for _, x := range v.expected {
		hits, err := v.Findings.Hits(ctx, history.HitQuery{Stream: v.Stream.Name, Rule: x.Rule.ID, Since: v.Truth.Earliest()})
		if err != nil {
			return nil, err
		}
		found := make([]loadgen.Found, len(hits))
		for i := range hits {
			h := &hits[i]
			found[i] = loadgen.Found{
				Subject: h.Subject, First: h.First, Last: h.Last, Count: h.Count, Closed: h.Phase == detectors.PhaseClosed, AtLeast: h.AtLeast,
			}
		}
		verdicts = append(verdicts, x.Judge(found))
	}
	return append(verdicts, v.unjudged...), nil
}
