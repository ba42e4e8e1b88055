package versions

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history/rulestore"
)

func rollbackCommand(h *Host) *cobra.Command {
	var to int
	var dry, yes bool
	c := &cobra.Command{
		Use:   "rollback RULE",
		Short: "Apply an older document of a rule as a new version",
		Long: `Apply the document of an older version of a rule again: as an edit like any other, it becomes a new version, and a pending one where it
may block more than the version that blocks. Without --to it is the version before the newest; where a version is pending, that is the one
that acts, and what is pending is withdrawn.`,
		Example: `  weir rules rollback guest-token-flood --reason "the new path was wrong"
  weir rules rollback guest-token-flood --to 3 --dry-run`,
		Args: cobra.ExactArgs(1),
	}
	act := &Act{}
	c.RunE = h.Does(func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("to") && to < 1 {
			return usage.Errorf("--to: got %d; allowed: a version of the rule, from 1 on", to)
		}
		return h.Open(cmd, func(ctx context.Context, in Installation) error {
			r, err := in.Named(ctx, args[0])
			if err != nil {
				return err
			}
			old, err := target(&r, to)
			if err != nil {
				return err
			}
			docs := []rulestore.Document{{Document: old.Version.Document, Source: old.Source}}
			return in.Carry(ctx, docs, *act, rulestore.ApplyOptions{DryRun: dry, Alone: true}, yes)
		})
	})
	c.Flags().IntVar(&to, "to", 0, "the version whose document is to be applied (default: the one before the newest)")
	c.Flags().BoolVar(&dry, "dry-run", false, "show what would change, change nothing")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	act = h.Audited(c, false)
	return c
}

// target is the version to go back to.
func target(r *rulestore.Rule, to int) (*rulestore.StoredVersion, error) {
	id := r.Newest.Version.ID
	switch {
	case r.Removed:
		return nil, fmt.Errorf("rule %s was removed on %s by %s: weir rules apply brings it back", id, r.Changed.Format("2006-01-02"), r.ChangedBy)
	case to != 0:
		if v := find(r, to); v != nil {
			return v, nil
		}
		return nil, fmt.Errorf("version: got %d, allowed 1 to %d, the versions of rule %s: weir rules show %[3]s", to, r.Versions[0].Version.Number, id)
	case r.Pending != nil:
		return &r.Newest, nil
	}
	for i := range r.Versions {
		if v := &r.Versions[i]; v.Version.Number < r.Newest.Version.Number && !v.Version.Pending {
			return v, nil
		}
	}
	return nil, fmt.Errorf("rule %s has one version that ever acted, and none to go back to", id)
}
