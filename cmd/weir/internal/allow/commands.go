// Package allow has the commands about allow lists: weir allow list, show, add and remove.
package allow

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/traffic"
)

// Program is what the commands take from the program that has them.
type Program struct {
	*terminal.Output
	// Does wraps a command's work: from there on a failure is the work's.
	Does func(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error
	// WithDesk opens where lists are read and changed: the configured installation, or the server that is to be asked.
	WithDesk func(cmd *cobra.Command, work func(context.Context, *desk.Desk) error) error
	// Acts gives a command the flags --by and --reason, which is required, and the function that reads them.
	Acts func(*cobra.Command) func() (by, reason string)
}

// Commands are the subcommands of weir allow.
func Commands(p Program) []*cobra.Command {
	return []*cobra.Command{p.list(), p.show(), p.add(), p.remove()}
}

func (p *Program) list() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the allow lists, and which rules name them",
		Example: "  weir allow list\n  weir allow list --output json",
		Args:    cobra.NoArgs,
		RunE: p.Does(func(cmd *cobra.Command, _ []string) error {
			return p.WithDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
				all, err := d.AllowLists(ctx)
				if err != nil {
					return desk.Told(err)
				}
				now := traffic.At(time.Now())
				head := []string{"LIST", "OWNER", "ENTRIES", "ENDED", "NAMED BY", "VERSION", "CHANGED", "BY"}
				return terminal.List(p.Output, all, head, func(a api.AllowList) []string {
					return []string{
						a.List.ID, terminal.Brief(a.List.Owner), strconv.Itoa(len(a.List.Entries)),
						strconv.Itoa(ended(&a.AllowList,
							now)),
						terminal.FirstFew(a.Rules), strconv.Itoa(a.Version), terminal.Stamp(a.Created), terminal.Brief(a.Author),
					}
				})
			})
		}),
	}
}

// ended counts the entries that are over for events of now.
func ended(a *rulestore.AllowList, now traffic.Time) (n int) {
	for i := range a.List.Entries {
		if a.List.Entries[i].Ends(now) {
			n++
		}
	}
	return n
}

func (p *Program) show() *cobra.Command {
	var version int
	c := &cobra.Command{
		Use:   "show LIST",
		Short: "Show an allow list: its document and its versions",
		Long: `Show an allow list as a document that weir rules apply takes, and its versions. Entries whose end is past stay in the list until
somebody removes them; they let nobody pass. Through a server, who may
not change the list is shown the ends of API keys and sessions alone.`,
		Example: "  weir allow show office-egress\n  weir allow show office-egress --version 1",
		Args:    cobra.ExactArgs(1),
	}
	c.RunE = p.Does(func(cmd *cobra.Command, args []string) error {
		if version < 0 || cmd.Flags().Changed("version") && version == 0 {
			return usage.Errorf("--version: got %d; allowed: a version of the list, from 1 on", version)
		}
		return p.WithDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
			found, err := d.AllowList(ctx, args[0], version)
			if err != nil {
				return desk.Told(err)
			}
			if p.Format == "json" {
				return p.WriteJSON(found)
			}
			return p.sayList(&found)
		})
	})
	c.Flags().IntVar(&version, "version", 0, "its document in this version (default: the newest)")
	return c
}

func (p *Program) sayList(found *api.AllowListAnswer) error {
	state := "named by no rule: it has no effect"
	switch {
	case found.Removed:
		state = "removed"
	case len(found.Rules) > 0:
		state = "named by " + strings.Join(found.Rules, ", ")
	}
	entries := len(found.List.Entries)
	fmt.Fprintf(p.Stdout, "# %s\n# ended: %d of %d entries\n", terminal.Cell(state),
		ended(&found.AllowList.AllowList, traffic.At(time.Now())), entries)
	if found.Hidden > 0 {
		fmt.Fprintf(p.Stdout, "# hidden: the values of %d of %d entries, so this is no document to apply\n",
			found.Hidden,
			entries)
	}
	fmt.Fprintln(p.Stdout, found.List.YAML())
	head := []string{"VERSION", "ENTRIES", "CREATED", "AUTHOR", "REASON"}
	return terminal.List(p.Output, found.Versions, head, func(v rulestore.AllowVersion) []string {
		return []string{strconv.Itoa(v.Version), strconv.Itoa(v.Entries), terminal.Stamp(v.Created),
			terminal.Brief(v.Author),
			terminal.Brief(v.Reason)}
	})
}
