package versions

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/internal/plural"
)

func tryCommand(h *Host) *cobra.Command {
	var from []string
	c := &cobra.Command{
		Use:   "try -f FILE|DIR",
		Short: "Show what documents would do, were they applied; changes nothing",
		Long: `Show what documents would do, were they applied: what would change, what their tests say, and what their rules make of
the requests of the last hour, beside the running stages. Nothing is changed, and nobody is blocked.

Of very many requests the latest are tried, and it is said from when on. weir backtest --from-live takes any time,
sweeps limits, and reads any number. The exit code is 1 if a test fails.`,
		Example: "  weir rules try -f rule.yaml\n  weir rules try -f rules/ --output json",
		Args:    cobra.NoArgs,
		RunE: h.Does(func(cmd *cobra.Command, _ []string) error {
			return h.Open(cmd, func(ctx context.Context, in Installation) error {
				files, err := in.Files(from)
				if err != nil {
					return err
				}
				tried, err := in.Try(ctx, desk.Local(""), acts.TryRequest{Files: files})
				for _, p := range tried.Warnings {
					fmt.Fprintf(h.Stderr, "weir: warning: %s\n", p.Error())
				}
				if err != nil {
					return Worded(len(files), from, desk.Told(err))
				}
				return h.showTried(&tried)
			})
		}),
	}
	h.FileFlag(c, &from)
	return c
}

func (h *Host) showTried(t *acts.Tried) error {
	failed := 0
	for i := range t.Tests {
		if !t.Tests[i].OK {
			failed++
		}
	}
	var err error
	if h.Format == "json" {
		err = h.WriteJSON(t)
	} else {
		plan := ""
		if t.Plan != nil {
			plan = PlanText(t.Plan)
		}
		_, err = io.WriteString(h.Stdout, plan+testsText(t, failed)+trafficText(t)+"nothing was changed\n")
	}
	if err == nil && t.Cause != nil {
		fmt.Fprintf(h.Stderr, "weir: %v\n", t.Cause)
	}
	if err == nil && failed > 0 {
		return h.Differs
	}
	return err
}

// testsText is what the tests of the documents say.
func testsText(t *acts.Tried, failed int) string {
	var b strings.Builder
	for i := range t.Tests {
		one := &t.Tests[i]
		if one.OK {
			continue
		}
		fmt.Fprintf(&b, "--- FAIL: %s\n", terminal.Safe(one.Rule+"/"+one.Name))
		for _, line := range strings.Split(strings.TrimRight(one.Diff, "\n"), "\n") {
			fmt.Fprintf(&b, "    %s\n", terminal.Safe(line))
		}
	}
	switch n := plural.Of(len(t.Tests), "test"); {
	case failed > 0:
		fmt.Fprintf(&b, "%d of %s failed\n", failed, n)
	case len(t.Tests) > 0:
		fmt.Fprintf(&b, "%s passed\n", n)
	}
	for _, id := range t.Untested {
		fmt.Fprintf(&b, "%s has no tests\n", id)
	}
	return b.String()
}

// trafficText is what the rules make of the latest requests.
func trafficText(t *acts.Tried) string {
	tr := t.Traffic
	if tr == nil {
		return "not tried on requests: " + terminal.Safe(t.NoTraffic) + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "tried on %s that Kafka took from %s to %s", plural.Of(tr.Events, "request"),
		terminal.Time(tr.Since),
		terminal.Time(tr.Until))
	if tr.Shorter != "" {
		b.WriteString(": " + terminal.Safe(tr.Shorter))
	}
	b.WriteString("\n")
	if tr.Unread > 0 {
		fmt.Fprintf(&b, "%s not read: no events, or not given by Kafka\n", plural.Of(tr.Unread, "record"))
	}
	for i := range tr.Rules {
		r := &tr.Rules[i]
		least := ""
		if r.AtLeast {
			least = "at least "
		}
		fmt.Fprintf(&b, "%s: %s%s over the limit, in %s; it matches %s\n", r.Rule, least, plural.Of(r.Sources,
			"source"),
			plural.Of(r.Episodes, "episode"), plural.Of(r.Matched, "request"))
		if r.Block != nil {
			fmt.Fprintf(&b, "    its block alone would have held %s%s, and refused %s (%s of all)\n", least,
				plural.Of(r.Block.Held, "source"), plural.Of(r.Block.Refused, "request"),
				strconv.FormatFloat(100*r.Block.Share, 'f', 2, 64)+"%")
		}
		for _, s := range r.Top {
			fmt.Fprintf(&b, "    %s: %s over, %d in one window at most\n", terminal.Safe(subject.Text(s.Subject)),
				plural.Of(s.Over, "request"), s.Peak)
		}
		if r.TopCut > 0 {
			fmt.Fprintf(&b, "    and %s more\n", plural.Of(r.TopCut, "source"))
		}
	}
	return b.String()
}
