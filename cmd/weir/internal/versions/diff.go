package versions

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
)

func diffCommand(h *Host) *cobra.Command {
	var from []string
	var prune bool
	c := &cobra.Command{
		Use:   "diff {-f FILE|DIR | RULE VERSION [VERSION]}",
		Short: "Show what documents would change, or how two versions of a rule differ",
		Long: `Show what weir rules apply would do with the documents, and change nothing; or how two versions of a rule differ, the second
being the one that acts unless another is named, and whether it may block more than the first.`,
		Example: `  weir rules diff -f rules/ --prune
  weir rules diff guest-token-flood 1
  weir rules diff guest-token-flood 1 3`,
		Args: cobra.MaximumNArgs(3),
	}
	c.RunE = h.Does(func(cmd *cobra.Command, args []string) error {
		if (len(from) > 0) == (len(args) > 0) || len(args) == 1 {
			return usage.Errorf("got %s; allowed: -f with files or directories of rules, or a rule and one or two of its versions", plural.Of(len(args), "argument"))
		}
		return h.Open(cmd, func(ctx context.Context, in Installation) error {
			if len(from) > 0 {
				return diffFiles(ctx, h, in, from, prune)
			}
			return diffVersions(ctx, h, in, args)
		})
	})
	h.FileFlag(c, &from)
	h.Completed(c)
	c.Flags().BoolVar(&prune, "prune", false, "with stored rules that are not among the documents as removed")
	return c
}

func diffFiles(ctx context.Context, h *Host, in Installation, from []string, prune bool) error {
	set, err := in.Read(ctx, from)
	if err != nil {
		return err
	}
	opts := rulestore.ApplyOptions{Prune: prune, DryRun: true, AllowLists: set.AllowLists}
	plan, err := in.Store().Apply(ctx, rulestore.WithSources(set), "", "", opts)
	if err != nil {
		return err
	}
	if h.Format == "json" {
		return h.WriteJSON(plan)
	}
	if !plan.Changed() {
		_, err = io.WriteString(h.Stdout, "no difference\n")
		return err
	}
	_, err = io.WriteString(h.Stdout, PlanText(&plan))
	return err
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

func diffVersions(ctx context.Context, h *Host, in Installation, args []string) error {
	r, err := in.Named(ctx, args[0])
	if err != nil {
		return err
	}
	sides := []*rulestore.StoredVersion{nil, &r.Newest}
	for i, text := range args[1:] {
		n, ok := versionNumber(text)
		if sides[i] = find(&r, n); !ok || sides[i] == nil {
			return fmt.Errorf("version: got %q, allowed 1 to %d, the versions of rule %s: weir rules show %[3]s", text, r.Versions[0].Version.Number, args[0])
		}
	}
	a, b := &sides[0].Version, &sides[1].Version
	d := difference{
		Rule: args[0], From: a.Number, To: b.Number, Diff: append([]string{}, rules.Diff(&a.Document, &b.Document)...), Warming: a.Lineage != b.Lineage,
		MayBlock: append([]string{}, rules.MayBlockMore(&a.Document, &b.Document)...),
	}
	if h.Format == "json" {
		return h.WriteJSON(d)
	}
	fmt.Fprintf(h.Stdout, "rule %s, version %d → %d\n", d.Rule, d.From, d.To)
	if len(d.Diff) == 0 {
		_, err := io.WriteString(h.Stdout, "no difference\n")
		return err
	}
	if err := lines(h.Stdout, "  ", d.Diff); err != nil {
		return err
	}
	return lines(h.Stdout, "  may block more: ", d.MayBlock)
}
