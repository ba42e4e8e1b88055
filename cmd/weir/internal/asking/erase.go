package asking

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history/erasure"
	"github.com/weirhq/weir/traffic"
)

func (p *Program) erase() *cobra.Command {
	var dry, yes bool
	c := &cobra.Command{
		Use:   "erase FIELD=VALUE",
		Short: "Take a person out of history",
		Long: `Take one address, device, user, API key or session out of history: its episodes with their evidence, samples of its requests in the episodes
of others, decisions about its blocks, saved views about it, and its name in the audit trail, where a pseudonym stands from then on. That it was
done, by whom and why is audited under the pseudonym, too. All of it is done at once, or nothing.

It says what was erased, what stays, and why. It releases nobody: where blocks hold the source now, it names the command that releases each.
--dry-run says the same, and changes nothing. Through a server it is for admins; the same command again waits for an erasure that goes on there. An address stands for itself, not for the prefixes that hold it.`,
		Example: `  weir history erase user=alice --reason "asked for it, ticket 4711" --dry-run
  weir history erase user=alice --reason "asked for it, ticket 4711" --yes
  weir history erase ip=2001:db8:1::/64 --reason "asked for it, ticket 4712" --yes`,
		Args: cobra.ExactArgs(1),
	}
	var act func() (by, reason string)
	c.RunE = p.Does([]string{"table", "json"}, func(cmd *cobra.Command, args []string) error {
		if !dry && !yes {
			return usage.Errorf("what is erased does not come back: --dry-run says what it would be, --yes erases it")
		}
		by, reason := act()
		done, err := p.Erase(cmd, Erasure{Subject: args[0], By: by, Reason: reason, DryRun: dry, Progress: p.progress()})
		if err != nil {
			return err
		}
		if p.Format == "json" {
			return p.WriteJSON(done)
		}
		_, err = p.Stdout.Write([]byte(about(args[0], done.Subject) + p.erasure(&done)))
		return err
	})
	act = p.Acts(c)
	c.Flags().BoolVar(&dry, "dry-run", false, "only say what would be erased")
	c.Flags().BoolVar(&yes, "yes", false, "erase it")
	return c
}

// Erasure is what is asked to be erased.
type Erasure struct {
	Subject, By, Reason string
	DryRun              bool
	Progress            func(step string) // told what is looked through
}

// progress says on standard error what is looked through: it may take minutes.
func (p *Program) progress() func(string) {
	said := ""
	return func(step string) {
		if step != said {
			fmt.Fprintf(p.Stderr, "weir: looking through %s\n", step)
		}
		said = step
	}
}

// about says who was read from what was typed: a source may be typed as weir writes it, with %3B for a semicolon, and a
// person may be called what looks like that.
func about(typed string, read traffic.Subject) string {
	values, err := read.Values()
	if err != nil || len(values) == 0 { // of a server that does not tell
		return ""
	}
	text := fmt.Sprintf("about %s %q\n", values[0].Field, values[0].Value)
	if _, field, value := traffic.CutSource(typed); field != "" && typed != field+"="+value {
		_, literal, _ := strings.Cut(typed, "=")
		text += fmt.Sprintf("  as %%XX stands for a byte in a source; for %s %q itself type %s\n", field, literal,
			subject.Quoted(traffic.SourceText(field, literal)))
	}
	return text
}

func (p *Program) erasure(done *erasure.Done) string {
	var b strings.Builder
	verb := "erased"
	if done.DryRun {
		verb = "would erase"
	}
	if len(done.Erased) == 0 {
		fmt.Fprintf(&b, "%s nothing: history does not name %s\n", verb, done.Pseudonym)
	}
	for _, e := range done.Erased {
		fmt.Fprintf(&b, "%s %d %s\n", verb, e.N, e.What)
	}
	for _, l := range done.Left {
		what := l.What
		if l.N > 0 {
			what = fmt.Sprintf("%d %s", l.N, what)
		}
		fmt.Fprintf(&b, "left: %s: %s\n", what, l.Why)
	}
	for _, t := range done.Texts {
		fmt.Fprintf(&b, "%s: %s\n", t.Where, terminal.Safe(t.Was))
		fmt.Fprintf(&b, "  would be: %s\n", terminal.Safe(t.Is))
	}
	if done.TextsMore > 0 {
		fmt.Fprintf(&b, "and %d more texts\n", done.TextsMore)
	}
	for _, block := range done.Blocks {
		fmt.Fprintf(&b, "blocked by %s until %s; %s\n", block.Rule, terminal.Time(block.Until), p.Release(block.Rule, block.Subject))
	}
	fmt.Fprintf(&b, "the audit trail calls it %s\n", done.Pseudonym)
	return b.String()
}
