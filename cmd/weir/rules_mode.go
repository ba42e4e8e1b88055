package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/dossier"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/cmd/weir/internal/versions"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

func rulesPromote(a *app) *cobra.Command {
	var act actFlags
	var request acts.PromoteRequest
	yes, to := false, ""
	c := &cobra.Command{
		Use:   "promote RULE",
		Short: "Let a rule block, or the pending version of one that blocks",
		Long: `Let a rule block from now on, or with --to canary a share of its block keys that rises by steps (weir rules show RULE has
them). What the evidence says is shown, and what each gate of the rule makes of it; on a terminal you are asked for a yes, a script gives
--yes. A gate that does not pass, or is not measurable, refuses the promotion; --override REASON makes it all the same, and the audit trail
keeps that reason apart. So does a log format that carries no verdict: without it weir's own refusals would feed the rule's windows, and
keep a client blocked for ever. Gates are told at once; where Redis does not answer, weir run tells them when it does. Who is over the limit
at that moment is blocked at once, the worst first.
Where a rule has a pending version, it must be said which one is to block: --version names the one that was looked at, and refuses if
another is pending by now; --pending takes whatever is. A pending version blocks in the place of the one before; its windows go on.`,
		Example: `  weir rules promote guest-token-flood --to canary --reason "two days of shadow, no viewer among the hits"
  weir rules promote guest-token-flood --version 2 --reason "a day beside, the same sources" --yes
  weir rules promote guest-token-flood --reason "attack under way" --override "an hour of shadow is enough today" --yes`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("version") && request.Version < 1 {
				return usage.Errorf("--version: got %d; allowed: a version of the rule, from 1 on", request.Version)
			}
			if request.To = rules.Mode(to); !request.To.Blocks() {
				return usage.Errorf("--to: got %q; allowed: canary, block", to)
			}
			if !yes && !versions.Asks(a.stdin) {
				return usage.Errorf("promote shows the evidence and asks before it acts, and there is no terminal to ask at: give --yes to promote without a question")
			}
			request.Rule, request.Reason = args[0], act.reason
			return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
				return a.promote(ctx, d, desk.Local(act.by), request, yes)
			})
		}),
	}
	c.Flags().StringVar(&to, "to", string(rules.ModeBlock), "canary: begin with a share of the block keys; block: all of them")
	c.Flags().StringVar(&request.Override, "override", "", "why to promote although gates do not pass, or the log format carries no verdict")
	c.Flags().IntVar(&request.Version, "version", 0, "the version that is to block: the one that acts, or the pending one")
	c.Flags().BoolVar(&request.Pending, "pending", false, "the pending version is to block, whatever its number")
	c.Flags().BoolVar(&yes, "yes", false, "promote without a question")
	act.register(c, a.environ)
	act.reasonRequired(c)
	return c
}

// promote shows the evidence, asks where that is wanted, and promotes with what was shown.
func (a *app) promote(ctx context.Context, d *desk.Desk, by access.Actor, request acts.PromoteRequest, yes bool) error {
	shown, err := d.Evidence(ctx, by, acts.EvidenceRequest{Rule: request.Rule, Version: request.Version, Pending: request.Pending})
	if err != nil {
		return desk.Told(err)
	}
	if a.Format != "json" {
		if err := showEvidence(a.Stderr, &shown); err != nil {
			return err
		}
	}
	if !yes {
		question := fmt.Sprintf("promote version %d of rule %s to %s? [y/N] ", shown.Version, shown.Rule, request.To)
		if ok, err := versions.Confirmed(a.stdin, a.Stderr, question); err != nil || !ok {
			return errors.Join(err, errors.New("not promoted"))
		}
	}
	request.Until, request.Dossier = shown.Until, shown.Hash
	done, err := d.Promote(ctx, by, request)
	return sayMode(&a.Output, &done, err)
}

// showEvidence writes what somebody looks at before he says yes.
func showEvidence(w io.Writer, shown *acts.EvidenceShown) error {
	var b strings.Builder
	fmt.Fprintf(&b, "version %d of rule %s, until %s:\n", shown.Version, shown.Rule, terminal.Stamp(shown.Until))
	for _, line := range shown.Summary {
		fmt.Fprintf(&b, "  %s\n", terminal.Cell(line))
	}
	for _, v := range shown.Gates {
		fmt.Fprintf(&b, "  gate %s\n", terminal.Cell(v.String()))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func rulesDemote(a *app) *cobra.Command {
	return a.setsMode(rules.ModeShadow, &cobra.Command{
		Use:   "demote RULE",
		Short: "Stop a rule from blocking; its blocks hold no longer",
		Long: `Put a rule back into shadow. Its blocks hold no longer, at every gate, within a second; it goes on to record hits. Gates are
told by this command, whether or not weir run is running; where Redis does not answer, weir run tells them when it does. A pending version
stays pending.`,
		Example: `  weir rules demote guest-token-flood --reason "a partner is among the hits"`,
	})
}

func rulesDisable(a *app) *cobra.Command {
	return a.setsMode(rules.ModeOff, &cobra.Command{
		Use:   "disable RULE",
		Short: "Let a rule count nothing; its blocks hold no longer",
		Long: `Switch a rule off: it counts and records nothing, and its blocks hold no longer. What it has found stays. weir rules demote lets it count
again, in shadow, in windows that begin empty.`,
		Example: `  weir rules disable guest-token-flood --reason "its path is no more, ticket 4711"`,
	})
}

// setsMode makes c put the rule that it names into a mode, for a reason.
func (a *app) setsMode(mode rules.Mode, c *cobra.Command) *cobra.Command {
	var act actFlags
	c.Args = cobra.ExactArgs(1)
	c.RunE = a.does(func(cmd *cobra.Command, args []string) error {
		return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
			change := acts.ModeRequest{Rule: args[0], Mode: mode, Reason: act.reason}
			done, err := d.SetMode(ctx, desk.Local(act.by), change)
			return sayMode(&a.Output, &done, err)
		})
	})
	act.register(c, a.environ)
	act.reasonRequired(c)
	return c
}

func sayMode(o *terminal.Output, done *acts.ModeDone, err error) error {
	if err != nil {
		return desk.Told(err)
	}
	if o.Format == "json" {
		return o.WriteJSON(done)
	}
	var news error
	for _, line := range done.SinceLooked.News {
		_, err := fmt.Fprintln(o.Stdout, terminal.Cell(line))
		news = errors.Join(news, err)
	}
	return errors.Join(showMode(o.Stdout, &done.ModeSet), news, showPublication(o.Stdout, &done.Publication,
		done.Changed, "the mode is stored; weir run publishes it"))
}

func showMode(w io.Writer, set *rulestore.ModeSet) error {
	if set.Changed {
		promoted := ""
		if set.Replaced != 0 {
			promoted = fmt.Sprintf(", version %d in place of %d", set.Version, set.Replaced)
		}
		if c := set.Canary; c != nil {
			promoted += fmt.Sprintf("; step %d of %d, %s of its block keys, for %s at least", c.Step, len(c.Steps), c.Share, c.Hold)
		}
		_, err := fmt.Fprintf(w, "rule %s: mode %s, generation %d%s\n", set.Rule, set.Mode, set.Generation, promoted)
		return err
	}
	reason := ""
	if set.Reason != "" {
		reason = ": " + terminal.Cell(set.Reason)
	}
	does := map[rules.Mode]string{rules.ModeBlock: "blocks", rules.ModeCanary: "is in canary", rules.ModeShadow: "is in shadow", rules.ModeOff: "is off"}[set.Mode]
	_, err := fmt.Fprintf(w, "rule %s %s already since %s, by %s%s; nothing changed\n", set.Rule, does, terminal.Stamp(set.Since), terminal.Cell(set.By), reason)
	return err
}

// showPublication says whether gates were told. changed is whether the command has changed anything: another process may have been quicker to
// publish that. stored is what to say of the change itself where gates do not know yet.
func showPublication(w io.Writer, p *acts.Publication, changed bool, stored string) error {
	var err error
	for _, line := range p.Overtaken {
		_, failed := fmt.Fprintln(w, terminal.Cell(line))
		err = errors.Join(err, failed)
	}
	if err != nil {
		return err
	}
	switch {
	case !p.Published && !changed:
		_, err = fmt.Fprintf(w, "whether gates know is not known, Redis did not answer (%s): weir run publishes what they lack when it does\n",
			terminal.Cell(p.Unpublished))
	case !p.Published:
		_, err = fmt.Fprintf(w, "gates do not know yet, Redis did not take it (%s): %s when Redis answers\n",
			terminal.Cell(p.Unpublished), stored)
	case p.At == "" && changed: // a server has told them, and not where
		_, err = fmt.Fprintln(w, "published: gates act on it within a second")
	case p.News > 0 || changed:
		_, err = fmt.Fprintf(w, "published to %s: gates act on it within a second\n", p.At)
	}
	return err
}

// versionsHost is what the commands about versions have of a.
func versionsHost(a *app) *versions.Host {
	return &versions.Host{
		Output: &a.Output, Does: a.does, FileFlag: fileFlag, Differs: errSaid,
		Open: func(cmd *cobra.Command, work func(ctx context.Context, in versions.Installation) error) error {
			return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error { return work(ctx, &installation{d, a}) })
		},
		OpenStores: func(cmd *cobra.Command, work func(ctx context.Context, in versions.Stores) error) error {
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				return work(ctx, versions.Stores{Rules: s.Rules, Named: s.named, Environment: func() (rules.Environment, error) { return ruleEnvironment(s.config, nil) }})
			})
		},
		Audited: func(c *cobra.Command, reasonRequired bool) *versions.Act {
			var flags actFlags
			act := &versions.Act{}
			run := c.RunE
			c.RunE = func(cmd *cobra.Command, args []string) error {
				*act = versions.Act{By: flags.by, Reason: flags.reason}
				return run(cmd, args)
			}
			flags.register(c, a.environ)
			if reasonRequired {
				flags.reasonRequired(c)
			}
			return act
		},
	}
}

// installation is a desk as the commands about versions see it.
type installation struct {
	*desk.Desk
	a *app
}

func (in *installation) Files(paths []string) ([]acts.File, error) { return in.a.ruleSources(paths) }

func (in *installation) Carry(apply versions.Apply, dry, yes bool) error {
	return in.a.carry(apply, dry, yes)
}

// modeText is a rule's mode, of a canary with its share.
func modeText(r *rulestore.Rule) string {
	switch {
	case r.Canary != nil:
		return string(r.Mode) + " " + r.Canary.Share.String()
	case r.FellBack() != "":
		return string(r.Mode) + ", fell back"
	}
	return string(r.Mode)
}

// besideText is what a rule has beside its document and mode, as comments in front of the document.
func besideText(r *rulestore.Rule, now time.Time) string {
	var b strings.Builder
	if warm := r.Warm(now); !warm.IsZero() {
		fmt.Fprintf(&b, "# warming: its windows are full at %s\n", terminal.Stamp(warm))
	}
	if c := r.Canary; c != nil {
		fmt.Fprintf(&b, "# canary: step %d of %d, %s of its block keys, since %s; the step lasts until %s at least\n",
			c.Step, len(c.Steps), c.Share, terminal.Stamp(c.Since), terminal.Stamp(c.Due()))
	}
	if why := r.FellBack(); why != "" {
		fmt.Fprintf(&b, "# its canary fell back at %s: %s\n", terminal.Stamp(r.Changed), terminal.Cell(why))
	}
	if up := r.Raised; up.In(now) {
		without := ""
		if up.Limit <= r.Newest.Version.Limit {
			without = fmt.Sprintf(" without effect, since the document's is %d,", r.Newest.Version.Limit)
		}
		fmt.Fprintf(&b, "# limit %d until %s,%s set by %s: %s\n", up.Limit, terminal.Stamp(up.Until), without, terminal.Cell(up.By), terminal.Cell(up.Reason))
	}
	if p := r.Pending; p != nil {
		fmt.Fprintf(&b, "# pending: version %d, of %s, by %s; counted, never enforced\n", p.Version.Number, terminal.Stamp(p.Created), terminal.Cell(p.Author))
		if warm := r.WarmPending(now); !warm.IsZero() {
			fmt.Fprintf(&b, "#   warming: its windows are full at %s\n", terminal.Stamp(warm))
		}
		for _, line := range rules.Diff(&r.Newest.Version.Document, &p.Version.Document) {
			fmt.Fprintf(&b, "#   %s\n", terminal.Cell(line))
		}
	}
	return b.String()
}

// pendingText is a rule's pending version in a word; nothing where there is none.
func pendingText(r *rulestore.Rule, now time.Time) string {
	if r.Pending == nil {
		return ""
	}
	return numberText(r.Pending.Version.Number, r.WarmPending(now))
}

// numberText is a version whose windows are full at a time; zero: they are.
func numberText(number int, full time.Time) string {
	if full.IsZero() {
		return strconv.Itoa(number)
	}
	return strconv.Itoa(number) + " (warming)"
}

// limitText is a rule's limit, with the one to which it is raised for a time. An edit may have set a higher one since.
func limitText(limit int, up *rulestore.Raised, now time.Time) string {
	text := strconv.Itoa(limit)
	switch {
	case !up.In(now):
		return text
	case up.Limit <= limit:
		return fmt.Sprintf("%s (raised to %d until %s, without effect)", text, up.Limit, terminal.Stamp(up.Until))
	}
	return fmt.Sprintf("%s (%d until %s)", text, up.Limit, terminal.Stamp(up.Until))
}

func rulesEvidence(a *app) *cobra.Command {
	return dossier.Command(&dossier.Host{
		Output: &a.Output, Does: a.does,
		Open: func(cmd *cobra.Command, work func(ctx context.Context, in dossier.Installation) error) error {
			if at := a.asked(); at.URL != "" {
				server, err := desk.Open(at)
				if err != nil {
					return err
				}
				return desk.Told(work(cmd.Context(), server))
			}
			return a.withStore(cmd, func(ctx context.Context, s *store) error { return work(ctx, s) })
		},
	})
}

// Gather makes the dossier of a rule.
func (s *store) Gather(ctx context.Context, q evidence.Question) (*evidence.Dossier, error) {
	d, err := service.NewDossiers(s.config, s.Store).Gather(ctx, q)
	return d, s.misnamed(ctx, q.Rule, err)
}
