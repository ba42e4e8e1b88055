package versions

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/acts"
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
			return in.Carry(func(dry bool, shown *rulestore.Plan) (acts.ApplyDone, error) {
				return in.Rollback(ctx, desk.Local(act.By), acts.RollbackRequest{Rule: args[0], To: to, DryRun: dry, Shown: shown, Reason: act.Reason})
			}, dry, yes)
		})
	})
	c.Flags().IntVar(&to, "to", 0, "the version whose document is to be applied (default: the one before the newest)")
	c.Flags().BoolVar(&dry, "dry-run", false, "show what would change, change nothing")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	act = h.Audited(c, false)
	return c
}
