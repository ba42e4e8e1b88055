package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/loadgen"
	"github.com/weirhq/weir/internal/loadgen/verify"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/traffic"
)

// verifyFlags are what weir loadgen verify is told.
type verifyFlags struct{ truth, replay, wait string }

func loadgenVerify(a *app) *cobra.Command {
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
			t, err := loadgen.OpenTruth(f.truth)
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
			return verifyLoad(cmd.Context(), a, conf, &f, t, wait)
		}),
	}
	c.Flags().StringVar(&f.truth, "truth", "", "file that weir loadgen --truth wrote (required)")
	c.Flags().StringVar(&f.replay, "replay", "", "of a load that was written with --to: the replay that it was ingested as")
	c.Flags().StringVar(&f.wait, "wait", "15m", "wait so long for history to catch up and episodes to close")
	return c
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

func verifyLoad(parent context.Context, a *app, c *config.Config, f *verifyFlags, t *loadgen.Truth, wait time.Duration) error {
	log := a.quietLogger(c)
	ctx, forget := service.UntilSignal(parent, log)
	defer forget()
	in, err := service.Open(ctx, c, log, service.NewRegistry(readBuildVersion().Version, c.Namespace), false)
	if err != nil {
		return err
	}
	defer in.Close()
	name := history.Live
	if f.replay != "" {
		name = string(ingest.Replay(f.replay))
	}
	if err := in.History.WaitReady(ctx, service.AnswerTimeout); err != nil {
		return err
	}
	if in.Stream, err = in.History.Streams.Find(ctx, name); err != nil {
		return err
	}
	hits := ingest.Stream(name).Topics(c.Namespace).Hits
	verdicts, err := verify.Run(ctx, verify.Options{
		Truth: t, Stream: in.Stream, Rules: in.History.Rules, Findings: in.History, Partitions: in.History.Partitions, Broker: in.Kafka, Bounds: in.Kafka.Log(hits),
		Hits: hits, Record: in.Group(ingest.StageRecord), IdleMargin: time.Duration(c.Detect.IdleMargin), Wait: wait, Log: log,
		Say: func(format string, args ...any) { fmt.Fprintf(a.Stderr, format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	return showVerdicts(a, t, verdicts)
}

// verifiedLoad is the answer of weir loadgen verify as JSON.
type verifiedLoad struct {
	Seed     uint64            `json:"seed"`
	Started  traffic.Time      `json:"started"`
	Complete bool              `json:"complete"` // the load came to its own end
	Verified bool              `json:"verified"`
	Rules    []loadgen.Verdict `json:"rules"`
}

// showVerdicts says how each rule did. Its error is the exit code's.
func showVerdicts(a *app, t *loadgen.Truth, verdicts []loadgen.Verdict) error {
	differ, agree := 0, 0
	for _, v := range verdicts {
		switch v.Verdict {
		case loadgen.Differs:
			differ++
		case loadgen.Agrees:
			agree++
		}
	}
	ok := differ == 0 && agree > 0
	if a.Format == "json" {
		h := &t.Header
		err := a.WriteJSON(verifiedLoad{
			Seed: h.Parameters.Seed, Started: h.Started, Complete: t.End != nil && t.End.Complete, Verified: ok, Rules: verdicts,
		})
		if err == nil && !ok {
			err = errSaid
		}
		return err
	}
	head := []string{"RULE", "VERSION", "EVENTS", "OVER", "FOUND", "MISSING", "EXTRA", "EPISODES", "EQUAL", "UNEQUAL", "OPEN", "UNSURE", "VERDICT"}
	if err := terminal.List(&a.Output, verdicts, head, verdictRow); err != nil {
		return err
	}
	for _, v := range verdicts {
		explainVerdict(a, &v)
	}
	return concludeVerdicts(a, t, differ, agree)
}

func verdictRow(v loadgen.Verdict) []string {
	row := []string{v.Rule, strconv.Itoa(v.Version)}
	c := v.Comparison
	if c == nil {
		return append(row, "", "", "", "", "", "", "", "", "", "", v.Verdict)
	}
	equal := fmt.Sprintf("%d of %d", c.Equal, c.Exact)
	return append(row, strconv.FormatInt(c.Events, 10), strconv.Itoa(c.Sources), strconv.Itoa(c.Found), strconv.Itoa(c.Missing), strconv.Itoa(c.Extra),
		strconv.Itoa(c.Episodes), equal, strconv.Itoa(c.Unequal), strconv.Itoa(c.Open), strconv.Itoa(c.Unsure), v.Verdict)
}

// explainVerdict says what the table cannot.
func explainVerdict(a *app, v *loadgen.Verdict) {
	say := func(format string, args ...any) { fmt.Fprintf(a.Stdout, v.Rule+": "+format+"\n", args...) }
	if v.Reason != "" {
		say("not judged: %s", v.Reason)
	}
	c := v.Comparison
	if c == nil {
		return
	}
	if c.Doubted > 0 {
		say("%s may have come too late for it, or are not certain to have been sent: sources that hang on them are unsure", plural.Of(c.Doubted, "event"))
	}
	if c.Shared > 0 {
		say("%s share a window with other traffic and are not judged", plural.Of(c.Shared, "event"))
	}
	if c.Disordered > 0 {
		say("%s are of sources that may be over or not, depending on the order of events, and may be missed: such sources are unsure",
			plural.Of(c.Disordered, "event"))
	}
	if c.Before > 0 {
		say("%s over since before the load and not judged: another load used the same identities", wasWere(c.Before))
	}
	for _, d := range c.Differences {
		say("%s", d)
	}
	if all := c.Missing + c.Extra + c.Unequal; all > len(c.Differences) {
		say("and %s more", plural.Of(all-len(c.Differences), "difference"))
	}
}

func wasWere(sources int) string {
	if sources == 1 {
		return "1 source was"
	}
	return fmt.Sprintf("%d sources were", sources)
}

// concludeVerdicts writes the last line. Its error is the exit code's.
func concludeVerdicts(a *app, t *loadgen.Truth, differ, agree int) error {
	if t.End == nil {
		fmt.Fprintln(a.Stdout, "the load was killed: its last chunk may be in the stream or not")
	}
	switch {
	case differ > 0:
		fmt.Fprintf(a.Stdout, "history differs from the truth on %s\n", plural.Of(differ, "rule"))
		return errSaid
	case agree == 0:
		fmt.Fprintln(a.Stdout, "no rule could be judged")
		return errSaid
	}
	fmt.Fprintf(a.Stdout, "history agrees with the truth on %s\n", plural.Of(agree, "rule"))
	return nil
}
