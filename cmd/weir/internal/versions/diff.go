package versions

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
)

// UncomparedError is the failure of a command that was told to answer by its exit code, and could not: to scripts that is no
// difference.
type UncomparedError struct{ Err error }

func (e *UncomparedError) Error() string { return e.Err.Error() }

func (e *UncomparedError) Unwrap() error { return e.Err }

func diffCommand(h *Host) *cobra.Command {
	var from []string
	var prune, byCode bool
	c := &cobra.Command{
		Use:   "diff {-f FILE|DIR | RULE VERSION [VERSION]}",
		Short: "Show what documents would change, or how two versions of a rule differ",
		Long: `Show what weir rules apply would do with the documents, and change nothing; or how two versions of a rule differ, the second
being the one that acts unless another is named, and whether it may block more than the first.

With --exit-code the exit code is 0 where there is no difference, 1 where there is one, 3 where the comparison failed, and 2, as always,
where the command line or the configuration is wrong. A stored rule that is not among the documents is a difference with --prune only;
comments, notation and tests are none.`,
		Example: `  weir rules diff -f rules/ --prune
  weir rules diff -f rules/ --prune --exit-code > /dev/null
  weir rules diff guest-token-flood 1
  weir rules diff guest-token-flood 1 3`,
		Args: cobra.MaximumNArgs(3),
	}
	c.RunE = h.Does(func(cmd *cobra.Command, args []string) error {
		if (len(from) > 0) == (len(args) > 0) || len(args) == 1 {
			return usage.Errorf("got %s; allowed: -f with files or directories of rules, or a rule and one or two of its versions", plural.Of(len(args), "argument"))
		}
		differs := false
		err := h.Open(cmd, func(ctx context.Context, in Installation) (err error) {
			if len(from) > 0 {
				differs, err = diffFiles(ctx, h, in, from, prune)
			} else {
				differs, err = diffVersions(ctx, h, in, args)
			}
			return err
		})
		switch {
		case !byCode:
			return err
		case err != nil:
			return &UncomparedError{err}
		case differs:
			return h.Differs
		}
		return nil
	})
	h.FileFlag(c, &from)
	c.Flags().BoolVar(&prune, "prune", false, "with stored rules that are not among the documents as removed")
	c.Flags().BoolVar(&byCode, "exit-code", false, "exit with 1 where there is a difference, with 3 where the comparison failed")
	return c
}

// diffFiles shows what documents would change, and reports whether they would change anything.
func diffFiles(ctx context.Context, h *Host, in Installation, from []string, prune bool) (differs bool, err error) {
	files, err := in.Files(from)
	if err != nil {
		return false, err
	}
	done, err := in.Apply(ctx, desk.Local(""), acts.ApplyRequest{Files: files, Prune: prune, DryRun: true})
	for _, p := range done.Warnings {
		fmt.Fprintf(h.Stderr, "weir: warning: %s\n", p.Error())
	}
	if err != nil {
		return false, Worded(len(files), from, desk.Told(err))
	}
	plan := done.Plan
	differs = plan.Differs()
	if h.Format == "json" {
		return differs, h.WriteJSON(plan)
	}
	text := "no difference\n"
	if differs {
		text = PlanText(plan)
	}
	_, err = io.WriteString(h.Stdout, text)
	return differs, err
}

// difference is how two versions of a rule differ.
type difference struct {
	Rule     string   `json:"rule"`
	From     int      `json:"from"`
	To       int      `json:"to"`
	Diff     []string `json:"diff"`
	Warming  bool     `json:"warming"` // the windows of the one are not those of the other
	MayBlock []string `json:"may_block_more"`
}

// diffVersions shows how two versions differ, and reports whether they do.
func diffVersions(ctx context.Context, h *Host, in Installation, args []string) (differs bool, err error) {
	found, err := in.Rule(ctx, args[0])
	if err != nil {
		return false, desk.Told(err)
	}
	r := found.Rule
	sides := []*rulestore.StoredVersion{nil, &r.Newest}
	for i, text := range args[1:] {
		n, ok := versionNumber(text)
		if sides[i] = find(&r, n); !ok || sides[i] == nil {
			return false, fmt.Errorf("version: got %q, allowed 1 to %d, the versions of rule %s: weir rules show %[3]s", text, r.Versions[0].Version.Number, args[0])
		}
	}
	a, b := &sides[0].Version, &sides[1].Version
	d := difference{
		Rule: args[0], From: a.Number, To: b.Number, Diff: append([]string{}, rules.Diff(&a.Document, &b.Document)...), Warming: a.Lineage != b.Lineage,
		MayBlock: append([]string{}, rules.MayBlockMore(&a.Document, &b.Document)...),
	}
	differs = len(d.Diff) > 0
	if h.Format == "json" {
		return differs, h.WriteJSON(d)
	}
	fmt.Fprintf(h.Stdout, "rule %s, version %d → %d\n", d.Rule, d.From, d.To)
	if !differs {
		_, err := io.WriteString(h.Stdout, "no difference\n")
		return false, err
	}
	if err := lines(h.Stdout, "  ", d.Diff); err != nil {
		return true, err
	}
	return true, lines(h.Stdout, "  may block more: ", d.MayBlock)
}
