package asking

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history/explore"
)

func (p *Program) show() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show one hit with its evidence, and all that was decided about it",
		Long: `Show what history has of one hit: the rule, the source, what was counted, the evidence event by event, what was decided, and what people did.
ID is the id of a hit, the block id that a client was told, or the beginning of either, of 8 digits or more. weir why tells the same of a block, and
whether it holds now.`,
		Example: "  weir history show 0123456789abcdef\n  weir history show 0123456789abcdef --output json",
		Args:    cobra.ExactArgs(1),
		RunE: p.Does([]string{"table", "json"}, func(cmd *cobra.Command, args []string) error {
			id, err := readID(args[0])
			if err != nil {
				return err
			}
			return p.Ask(cmd, func(ctx context.Context, from Answers) error {
				st, err := from.Story(ctx, id)
				if err != nil {
					return err
				}
				if st == nil {
					return fmt.Errorf("no hit in history has an id that begins with %s; weir why %s looks into Redis, too", id, id)
				}
				if p.Format == "json" {
					return p.WriteJSON(newStory(st))
				}
				return p.showHit(st)
			})
		}),
	}
}

func (p *Program) showHit(st *explore.Story) error {
	w := tabwriter.NewWriter(p.Stdout, 0, 8, 2, ' ', 0)
	line := func(name string, texts ...string) {
		for _, text := range texts {
			fmt.Fprintf(w, "%s\t%s\n", name, terminal.Shown(text))
			name = ""
		}
	}
	s := newStory(st)
	line("HIT", s.ID)
	line("BLOCK", s.BlockID)
	line("RULE", s.ruleText())
	line("SOURCE", s.sourceText())
	line("EVIDENCE", s.evidence()...)
	for _, row := range st.Rows {
		if row.ID != st.ID {
			line("ALSO BLOCKS", subject.Text(row.BlockSubject)+", hit "+row.ID)
		}
	}
	line("DECISIONS", s.decided()...)
	line("ACTS", s.acted()...)
	return w.Flush()
}
