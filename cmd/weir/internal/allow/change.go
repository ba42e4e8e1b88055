package allow

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

func (p *Program) add() *cobra.Command {
	var until string
	c := &cobra.Command{
		Use:   "add LIST SOURCE…",
		Short: "Let sources pass: the rules that name the list do not count them",
		Long: `Add sources to an allow list, each with the reason, or give those that it has another end or reason. SOURCE is cidr=PREFIX,
user=VALUE, device=VALUE, api_key=VALUE or session=VALUE. What clients merely claim is refused: whoever sends the name would be let pass.
Running stages take the list within two seconds; it needs no promotion, and neither does the entry's end, which is judged by the time of
each event.

An entry says what is not counted. It releases nobody: the blocks that hold such a source now are listed, with the commands that release
them.`,
		Example: `  weir allow add office-egress cidr=192.0.2.0/24 --until 30d --reason "the new office, ticket 4711"
  weir allow add partners cidr=2001:db8:7::/48 --until 2027-01-01T00:00:00Z --reason "migration of the catalogue"`,
		Args: cobra.MinimumNArgs(2),
	}
	var act func() (by, reason string)
	c.RunE = p.Does(func(cmd *cobra.Command, args []string) error {
		by, reason := act()
		length, end, err := usage.End("until", until)
		if err != nil {
			return err
		}
		entries, err := parseSources(args[1:])
		if err != nil {
			return err
		}
		return p.WithDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
			done, err := d.ChangeAllow(ctx, desk.Local(by), acts.AllowRequest{List: args[0], Entries: entries,
				For: length, Until: acts.End(end), Reason: reason})
			if err != nil {
				return desk.Told(err)
			}
			return p.say(&done)
		})
	})
	c.Flags().StringVar(&until, "until", "", "when the entry ends: a duration from now or an RFC 3339 time (default: no end)")
	act = p.Acts(c)
	return c
}

func (p *Program) remove() *cobra.Command {
	c := &cobra.Command{
		Use:   "remove LIST SOURCE…",
		Short: "Take sources off an allow list: the rules that name it count them again",
		Long: `Take sources off an allow list, SOURCE as in weir allow add. The rules that name it count them from now on.

Where such a rule blocks, it may then block them. That is refused for sources that the list let pass when the rule was promoted: demote
it, remove, watch it in shadow, promote it again. What was added since then may be removed, and what ended more than a day ago.`,
		Example: `  weir allow remove office-egress cidr=192.0.2.0/24 --reason "the office has moved"`,
		Args:    cobra.MinimumNArgs(2),
	}
	var act func() (by, reason string)
	c.RunE = p.Does(func(cmd *cobra.Command, args []string) error {
		by, reason := act()
		entries, err := parseSources(args[1:])
		if err != nil {
			return err
		}
		return p.WithDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
			done, err := d.ChangeAllow(ctx, desk.Local(by), acts.AllowRequest{List: args[0], Remove: true,
				Entries: entries, Reason: reason})
			if err != nil {
				return desk.Told(err)
			}
			return p.say(&done)
		})
	})
	act = p.Acts(c)
	return c
}

// parseSources reads words of KIND=VALUE.
func parseSources(words []string) ([]acts.AllowSource, error) {
	kinds := make([]string, 0, len(rules.AllowKinds()))
	for _, k := range rules.AllowKinds() {
		kinds = append(kinds, string(k))
	}
	var out []acts.AllowSource
	for _, w := range words {
		kind, value, ok := strings.Cut(w, "=")
		e := rules.AllowEntry{Kind: rules.AllowKind(kind), Value: value}
		if _, known := e.Kind.Field(); !ok || !known || value == "" {
			hint := ""
			if meant := rules.Nearest(kind, kinds); meant != "" && ok {
				hint = "; did you mean " + meant + "?"
			} else if kind == "ip" {
				hint = "; did you mean cidr?"
			}
			return nil, usage.Errorf("SOURCE: got %q; allowed: KIND=VALUE with a kind of %s%s", w, strings.Join(kinds, ", "), hint)
		}
		out = append(out, acts.AllowSource{Kind: e.Kind, Value: e.Value})
	}
	return out, nil
}

// report is what --output json shows of a change: the blocks that hold all the same with the commands that release them.
type report struct {
	*acts.AllowDone
	Blocks []standing `json:"blocks"`
}

// standing is a block that holds a source which its rule counts no longer.
type standing struct {
	acts.AllowBlock
	Command string `json:"command"`
}

func (p *Program) say(done *acts.AllowDone) error {
	r := report{done, []standing{}}
	for _, b := range done.Blocks {
		r.Blocks = append(r.Blocks, standing{b, "weir blocks release " + b.Rule + " " + subject.Text(b.Subject) + " --reason …"})
	}
	if p.Format == "json" {
		return p.WriteJSON(r)
	}
	var b strings.Builder
	if r.Kind == rulestore.ChangeUnchanged {
		fmt.Fprintf(&b, "allow list %s: version %d says so already; nothing changed\n", r.List, r.Version)
	} else {
		fmt.Fprintf(&b, "allow list %s: version %d, entries: %d; routing version %d\n", r.List, r.Version, r.Entries, r.Routing)
	}
	for _, line := range r.Diff {
		fmt.Fprintf(&b, "  %s\n", terminal.Cell(line))
	}
	if len(r.Rules) == 0 {
		fmt.Fprintf(&b, "no rule names the list, so it has no effect: add allow: [%s] to a rule\n", r.List)
	} else {
		fmt.Fprintf(&b, "named by %s; running stages take it within two seconds\n", strings.Join(r.Rules, ", "))
	}
	if r.Unknown != "" {
		fmt.Fprintf(&b, "whether a block holds such a source is not known: %s\n", terminal.Cell(r.Unknown))
	}
	if len(r.Blocks) > 0 {
		b.WriteString("an entry releases nobody; these blocks hold until they end, or are released:\n")
	}
	if _, err := p.Stdout.Write([]byte(b.String())); err != nil || len(r.Blocks) == 0 {
		return err
	}
	err := terminal.List(p.Output, r.Blocks, []string{"UNTIL", "TO RELEASE IT"}, func(s standing) []string {
		return []string{terminal.Time(s.Until), s.Command}
	})
	if r.BlocksCut {
		_, werr := fmt.Fprintf(p.Stderr, "weir: the first %d; there are more: weir blocks list lists all\n", len(r.Blocks))
		err = errors.Join(err, werr)
	}
	return err
}
