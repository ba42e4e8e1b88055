package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/loadgen"
	"github.com/weirhq/weir/rules"
)

// verifyFlags are what weir loadgen verify is told.
type verifyFlags struct{ truth, replay, wait string }

func (a *app) loadgenVerify() *cobra.Command {
	var f verifyFlags
	c := &cobra.Command{
		Use:   "verify --truth FILE",
		Short: "Hold history against the truth of a load; exit code 1 where they differ",
		Long: `Compute from the truth of a load, by an oracle that shares no code with detection, who was over the limit of each rule and
when, and compare that with the hits in history. A rule is judged if one version of it was in force from the beginning of
the load until now. Sources that are not of the load are passed over.

It waits until history has caught up and the episodes are closed: a window, the rule's lateness and a minute after the
last event. Episodes that are not closed when --wait is over are compared as far as they go; a history that has not
caught up by then is a failure.

Exit code 0: at least one rule was judged, and nothing contradicts the oracle. What may differ, docs/loadgen.md says.`,
		Example: `  weir loadgen verify --truth load.truth
  weir loadgen verify --truth load.truth --wait 30m --output json
  weir loadgen verify --truth load.truth --replay monday`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if f.truth == "" {
				return usage.Errorf("--truth is required: the file that weir loadgen --truth wrote")
			}
			wait, err := duration.Parse(f.wait)
			if err != nil {
				return usage.Errorf("--wait: %w", err)
			}
			t, err := readTruth(f.truth)
			if err != nil {
				return err
			}
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			if err := f.fits(t, conf); err != nil {
				return err
			}
			return a.verifyLoad(cmd.Context(), conf, &f, t, wait)
		}),
	}
	c.Flags().StringVar(&f.truth, "truth", "", "file that weir loadgen --truth wrote (required)")
	c.Flags().StringVar(&f.replay, "replay", "", "of a load that was written with --to: the replay that it was ingested as")
	c.Flags().StringVar(&f.wait, "wait", "15m", "wait so long for history to catch up and episodes to close")
	return c
}

func readTruth(path string) (*loadgen.Truth, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--truth: %w", err)
	}
	defer func() { _ = file.Close() }()
	return loadgen.ReadTruth(path, file)
}

// fits holds the command line against what load it was.
func (f *verifyFlags) fits(t *loadgen.Truth, c *config.Config) error {
	switch h := &t.Header; {
	case !h.Live() && f.replay == "":
		return usage.Errorf("the load was written to a file; allowed: --replay NAME of the replay that it was ingested as")
	case h.Live() && f.replay != "":
		return usage.Errorf("--replay: the load was sent to the live stream of namespace %s; allowed: no --replay", h.Namespace)
	case h.Live() && h.Namespace != c.Namespace:
		return usage.Errorf("the load was sent to namespace %s, the configuration names %s; allowed: --namespace %s", h.Namespace, c.Namespace, h.Namespace)
	}
	return nil
}

// verification is one comparison of a load with what is in history of it.
type verification struct {
	*service.Installation
	truth    *loadgen.Truth
	name     string // of the stream
	routing  *rules.Routing
	expected []*loadgen.Expectation
	verdicts []ruleVerdict // of rules that cannot be judged
	say      func(format string, args ...any)
}

// ruleVerdict is what is said of one rule in the end.
type ruleVerdict struct {
	Rule    string `json:"rule"`
	Version int    `json:"version"`
	Verdict string `json:"verdict"` // agrees, differs, not judged
	Reason  string `json:"reason,omitempty"`
	*loadgen.Comparison
}

const (
	verdictAgrees    = "agrees"
	verdictDiffers   = "differs"
	verdictNotJudged = "not judged"
)

func (a *app) verifyLoad(parent context.Context, c *config.Config, f *verifyFlags, t *loadgen.Truth, wait time.Duration) error {
	log := a.quietLogger(c)
	ctx, forget := service.UntilSignal(parent, log)
	defer forget()
	in, err := service.Open(ctx, c, log, service.NewRegistry(readBuildVersion().Version), false)
	if err != nil {
		return err
	}
	defer in.Close()
	v := &verification{Installation: in, truth: t, name: history.Live}
	v.say = func(format string, args ...any) { fmt.Fprintf(a.Stderr, format+"\n", args...) }
	if f.replay != "" {
		v.name = string(ingest.Replay(f.replay))
	}
	if err := in.History.WaitReady(ctx, service.AnswerTimeout); err != nil {
		return err
	}
	if in.Stream, err = in.History.Streams.Find(ctx, v.name); err != nil {
		return err
	}
	if err := v.expect(ctx); err != nil {
		return err
	}
	if err := v.await(ctx, wait); err != nil {
		return err
	}
	verdicts, err := v.judge(ctx)
	if err != nil {
		return err
	}
	return a.showVerdicts(t, verdicts)
}

// expect asks the oracle about every rule that can be judged.
func (v *verification) expect(ctx context.Context) error {
	steady, err := v.steadyRules(ctx)
	if err != nil {
		return err
	}
	partitions := v.truth.Header.Partitions
	if !v.truth.Header.Live() {
		partitions = v.Stream.Partitions.Requests
		if got, want := v.routing.Identity.IP.TrustedProxies.Hops, v.truth.Header.Parameters.Proxies; got != want {
			return fmt.Errorf("the replay took addresses through %d trusted proxies, the load was written for %d: write it with --proxies %d", got, want, got)
		}
	}
	v.say("computing who was over, for %s", terminal.Plural(len(steady), "rule"))
	v.expected, err = v.truth.Expect(steady, &v.routing.Identity, partitions)
	return err
}

// steadyRules are the rules that had one version from the beginning of the load until now. Of the others a verdict is
// kept. An event may be routed long after it was sent, so until now is until it certainly was.
func (v *verification) steadyRules(ctx context.Context) ([]rules.Version, error) {
	newest, err := v.History.Rules.Newest(ctx, v.name)
	if err != nil {
		return nil, err
	}
	first := max(v.truth.Header.Routing, 1)
	if newest < first {
		return nil, fmt.Errorf("stream %s has routing version %d at most, the load began under %d: it is another installation, or was made anew", v.name, newest, first)
	}
	var begun *rules.Routing
	reasons := map[string]string{}
	for n := first; n <= newest; n++ {
		if v.routing, err = v.History.Rules.Routing(ctx, v.name, n); err != nil {
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
	var steady []rules.Version
	for i := range begun.Rules {
		r := begun.Rules[i]
		if reason := reasons[r.ID]; reason != "" {
			v.verdicts = append(v.verdicts, ruleVerdict{Rule: r.ID, Version: r.Number, Verdict: verdictNotJudged, Reason: reason})
			continue
		}
		steady = append(steady, r)
	}
	for i := range v.routing.Rules {
		if r := &v.routing.Rules[i]; begun.Find(r.ID) == nil {
			v.verdicts = append(v.verdicts, ruleVerdict{Rule: r.ID, Version: r.Number, Verdict: verdictNotJudged, Reason: "it is newer than the load's beginning"})
		}
	}
	return steady, nil
}

// sameRules holds the routing version that the load began under against what the truth says of it.
func (v *verification) sameRules(begun *rules.Routing) error {
	if !v.truth.Header.Live() {
		return nil
	}
	same := len(v.truth.Header.Rules) == len(begun.Rules)
	for _, used := range v.truth.Header.Rules {
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
		case now.Number != r.Number:
			reasons[r.ID] = fmt.Sprintf("it was changed since the load began, from version %d to %d", r.Number, now.Number)
		case !later.Identity.Equal(&begun.Identity):
			reasons[r.ID] = "the identity map was changed since the load began"
		}
	}
}

// judge reads history and compares it, rule by rule.
func (v *verification) judge(ctx context.Context) ([]ruleVerdict, error) {
	var judged []ruleVerdict
	for _, x := range v.expected {
		hits, err := v.History.Hits(ctx, history.HitQuery{Stream: v.name, Rule: x.Rule.ID, Since: v.truth.Earliest()})
		if err != nil {
			return nil, err
		}
		found := make([]loadgen.Found, len(hits))
		for i := range hits {
			h := &hits[i]
			found[i] = loadgen.Found{Subject: h.Subject, First: h.First, Last: h.Last, Count: h.Count, Closed: h.Phase == detectors.PhaseClosed}
		}
		c := x.Compare(found)
		said := ruleVerdict{Rule: x.Rule.ID, Version: x.Rule.Number, Verdict: verdictAgrees, Comparison: &c}
		switch {
		case !c.Agrees():
			said.Verdict = verdictDiffers
		case c.Events == 0 && c.Shared > 0:
			said.Verdict, said.Reason = verdictNotJudged, "its key does not tell the load from other traffic"
		case c.Events > 0 && c.Doubted == c.Events:
			said.Verdict, said.Reason = verdictNotJudged, "every event may have been late for it, or is not certain to have been sent"
		}
		judged = append(judged, said)
	}
	return append(judged, v.verdicts...), nil
}
