package versions

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history/audit"
)

func historyCommand(h *Host) *cobra.Command {
	limit := 0
	c := &cobra.Command{
		Use:   "history RULE",
		Short: "Show what was done to a rule: versions, modes, limits; by whom and why",
		Long: `Show what was done to a rule, the newest first: documents applied, promotions and demotions, raised limits; when, by whom and why. The
history of a rule that was removed stays.`,
		Example: "  weir rules history guest-token-flood\n  weir rules history guest-token-flood --output json",
		Args:    cobra.ExactArgs(1),
	}
	c.RunE = h.Does(func(cmd *cobra.Command, args []string) error {
		if limit < 0 {
			return usage.Errorf("--limit: got %d; allowed: 0 and more", limit)
		}
		return h.Open(cmd, func(ctx context.Context, in Installation) error {
			entries, err := in.RuleTrail(ctx, args[0], limit)
			if err != nil {
				return desk.Told(err)
			}
			head := slices.Concat([]string{"AT", "ACTION", "BY"}, h.ChangeHead(), []string{"REASON", "WHAT"})
			return terminal.List(h.Output, entries, head, func(e audit.Entry) []string {
				return slices.Concat([]string{terminal.Stamp(e.At), e.Action, terminal.Brief(e.Actor)}, h.ChangeCells(e.Change(), e.Before, e.After, e.Via),
					[]string{terminal.Brief(e.Reason), terminal.Brief(e.Detail)})
			})
		})
	})
	c.Flags().IntVar(&limit, "limit", 100, "at most so many entries; 0: all")
	return c
}
