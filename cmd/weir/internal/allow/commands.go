// Package allow has the commands about allow lists: weir allow list, show, add and remove.
package allow

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/traffic"
)

// Program is what the commands take from the program that has them.
type Program struct {
	*terminal.Output
	// Does wraps a command's work: from there on a failure is the work's.
	Does func(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error
	// WithStore opens the history of the configured installation.
	WithStore func(cmd *cobra.Command, work func(context.Context, *Installation) error) error
	// WithActs opens what changes lists: the configured installation, or the server that is to be asked.
	WithActs func(cmd *cobra.Command, work func(context.Context, acts.Acts) error) error
	// Acts gives a command the flags --by and --reason, which is required, and the function that reads them.
	Acts func(*cobra.Command) func() (by, reason string)
}

// Installation is where the lists are stored.
type Installation struct{ *history.Store }

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
			return p.WithStore(cmd, func(ctx context.Context, in *Installation) error {
				all, err := in.Rules.AllowLists(ctx)
				if err != nil {
					return err
				}
				now := traffic.At(time.Now())
				head := []string{"LIST", "OWNER", "ENTRIES", "ENDED", "NAMED BY", "VERSION", "CHANGED", "BY"}
				return terminal.List(p.Output, all, head, func(a rulestore.AllowList) []string {
					return []string{
						a.List.ID, terminal.Brief(a.List.Owner), strconv.Itoa(len(a.List.Entries)), strconv.Itoa(ended(&a, now)),
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
	return &cobra.Command{
		Use:   "show LIST",
		Short: "Show an allow list: its document and its versions",
		Long: `Show an allow list as a document that weir rules apply takes, and its versions. Entries whose end is past stay in the list until
somebody removes them; they let nobody pass.`,
		Example: "  weir allow show office-egress",
		Args:    cobra.ExactArgs(1),
		RunE: p.Does(func(cmd *cobra.Command, args []string) error {
			return p.WithStore(cmd, func(ctx context.Context, in *Installation) error {
				versions, err := in.Rules.AllowVersions(ctx, args[0])
				if err != nil {
					return in.misnamed(ctx, args[0], err)
				}
				if p.Format == "json" {
					return p.WriteJSON(struct {
						rulestore.AllowList
						Versions []rulestore.AllowList `json:"versions"`
					}{versions[0], versions})
				}
				newest := &versions[0]
				state := "named by no rule: it has no effect"
				switch {
				case newest.Removed:
					state = "removed"
				case len(newest.Rules) > 0:
					state = "named by " + strings.Join(newest.Rules, ", ")
				}
				fmt.Fprintf(p.Stdout, "# %s\n# ended: %d of %d entries\n%s\n", state, ended(newest, traffic.At(time.Now())), len(newest.List.Entries), newest.List.YAML())
				return terminal.List(p.Output, versions, []string{"VERSION", "ENTRIES", "CREATED", "AUTHOR", "REASON"}, func(v rulestore.AllowList) []string {
					return []string{strconv.Itoa(v.Version), strconv.Itoa(len(v.List.Entries)), terminal.Stamp(v.Created), terminal.Brief(v.Author), terminal.Brief(v.Reason)}
				})
			})
		}),
	}
}

// misnamed says of what failed because no list has the name which one was probably meant; any other error stays.
func (in *Installation) misnamed(ctx context.Context, list string, err error) error {
	if !errors.Is(err, postgres.ErrNotFound) {
		return err
	}
	all, lerr := in.Rules.AllowLists(ctx)
	if lerr != nil {
		return errors.Join(err, lerr)
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].List.ID
	}
	if len(names) == 0 {
		return fmt.Errorf("there is no allow list %q, and no other: weir rules apply stores those of documents with kind: allow", list)
	}
	return usage.Unknown("allow list", list, names, "weir allow list shows them")
}
