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

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/cmd/weir/internal/versions"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

func rulesPromote(a *app) *cobra.Command {
	var act actFlags
	change := rulestore.ModeChange{Mode: rules.ModeBlock}
	c := &cobra.Command{
		Use:   "promote RULE",
		Short: "Let a rule block, or the pending version of one that blocks",
		Long: `Let a rule block from now on. Look at its hits first: weir history hits --rule RULE. Gates are told at once; where Redis
does not answer, weir run tells them when it does.
Where a rule has a pending version, it must be said which one is to block: --version names the one that was looked at, and refuses if
another is pending by now; --pending takes whatever is. A pending version blocks in the place of the one before; its windows go on.
A rule whose document has no block is refused, and so is one whose log format carries no verdict: without it weir's own
refusals would feed the rule's windows, and keep a client blocked for ever.`,
		Example: `  weir rules promote guest-token-flood --reason "two days of shadow, no viewer among the hits"
  weir rules promote guest-token-flood --version 2 --reason "a day beside, the same sources"`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("version") && change.Version < 1 {
				return usage.Errorf("--version: got %d; allowed: a version of the rule, from 1 on", change.Version)
			}
			change.Rule, change.By, change.Reason = args[0], act.by, act.reason
			return setMode(a, cmd, change)
		}),
	}
	c.Flags().BoolVar(&change.Override, "override", false, "promote although the log format carries no verdict")
	c.Flags().IntVar(&change.Version, "version", 0, "the version that is to block: the one that acts, or the pending one")
	c.Flags().BoolVar(&change.Pending, "pending", false, "the pending version is to block, whatever its number")
	act.register(c, a.environ)
	act.reasonRequired(c)
	return c
}

func rulesDemote(a *app) *cobra.Command {
	var act actFlags
	c := &cobra.Command{
		Use:   "demote RULE",
		Short: "Stop a rule from blocking; its blocks hold no longer",
		Long: `Put a rule back into shadow. Its blocks hold no longer, at every gate, within a second; it goes on to record hits. Gates are
told by this command, whether or not weir run is running; where Redis does not answer, weir run tells them when it does. A pending version
stays pending.`,
		Example: `  weir rules demote guest-token-flood --reason "a partner is among the hits"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return setMode(a, cmd, rulestore.ModeChange{Rule: args[0], Mode: rules.ModeShadow, By: act.by, Reason: act.reason})
		}),
	}
	act.register(c, a.environ)
	act.reasonRequired(c)
	return c
}

func setMode(a *app, cmd *cobra.Command, change rulestore.ModeChange) error {
	return a.withStore(cmd, func(ctx context.Context, s *store) error {
		set, err := s.Rules.SetMode(ctx, change)
		if err != nil {
			return s.misnamed(ctx, change.Rule, err)
		}
		p := s.publishModes(ctx) // also when nothing changed: whoever asks again may do so because gates were not told
		if a.Format == "json" {
			return a.WriteJSON(struct {
				rulestore.ModeSet
				publication
			}{set, p})
		}
		return errors.Join(showMode(a.Stdout, &set), p.show(a.Stdout, set.Changed, "the mode is stored; weir run publishes it"))
	})
}

func showMode(w io.Writer, set *rulestore.ModeSet) error {
	if set.Changed {
		promoted := ""
		if set.Replaced != 0 {
			promoted = fmt.Sprintf(", version %d in place of %d", set.Version, set.Replaced)
		}
		_, err := fmt.Fprintf(w, "rule %s: mode %s, generation %d%s\n", set.Rule, set.Mode, set.Generation, promoted)
		return err
	}
	reason := ""
	if set.Reason != "" {
		reason = ": " + terminal.Cell(set.Reason)
	}
	does := map[rules.Mode]string{rules.ModeBlock: "blocks", rules.ModeShadow: "is in shadow", rules.ModeOff: "is off"}[set.Mode]
	_, err := fmt.Fprintf(w, "rule %s %s already since %s, by %s%s; nothing changed\n", set.Rule, does, terminal.Stamp(set.Since), terminal.Cell(set.By), reason)
	return err
}

// publishTimeout bounds how long a command that has changed a rule waits for Redis to take it. The change is stored by
// then, and weir run publishes what nobody else could.
const publishTimeout = 5 * time.Second

// publishAnswerTimeout bounds each answer of a server meanwhile: the first node of a cluster that is asked where the modes are
// may hang, and a demotion is to take effect within a second.
const publishAnswerTimeout = 500 * time.Millisecond

// publication is whether gates have been told of the modes that a command has left in the rule store.
type publication struct {
	Published   bool   `json:"published"`
	Unpublished string `json:"unpublished,omitempty"` // why not

	news int // modes that Redis did not know yet
	at   string
}

// publishModes makes the stored modes known to all gates, so that a promotion or demotion takes effect without any other
// process. A Redis that does not take them is no failure of the command: users who may change rules may lack access to Redis.
func (s *store) publishModes(ctx context.Context) publication {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	p := publication{}
	err := func() error {
		server, err := service.RedisServer(&s.config.Redis)
		if err != nil {
			return err
		}
		server.Timeout = publishAnswerTimeout
		redis, err := blocklist.Connect(server, s.config.Namespace)
		if err != nil {
			return err
		}
		defer func() { _ = redis.Close() }() // nothing is under way any more
		p.at = redis.Address()
		modes, err := s.Rules.Modes(ctx)
		if err != nil {
			return err
		}
		p.news, err = redis.SyncModes(ctx, service.Now(), modes)
		return err
	}()
	p.Published = err == nil
	if err != nil {
		p.Unpublished = err.Error()
	}
	return p
}

// show says what became of it. changed is whether the command has changed anything: another process may have been quicker to
// publish that. stored is what to say of the change itself where gates do not know yet.
func (p *publication) show(w io.Writer, changed bool, stored string) error {
	var err error
	switch {
	case !p.Published && !changed:
		_, err = fmt.Fprintf(w, "whether gates know is not known, Redis did not answer (%s): weir run publishes what they lack when it does\n",
			terminal.Cell(p.Unpublished))
	case !p.Published:
		_, err = fmt.Fprintf(w, "gates do not know yet, Redis did not take it (%s): %s when Redis answers\n",
			terminal.Cell(p.Unpublished), stored)
	case p.news > 0 || changed:
		_, err = fmt.Fprintf(w, "published to %s: gates act on it within a second\n", p.at)
	}
	return err
}

// versionsHost is what the commands about versions have of a.
func versionsHost(a *app) *versions.Host {
	return &versions.Host{
		Output: &a.Output, Does: a.does, FileFlag: fileFlag, Differs: errSaid,
		Open: func(cmd *cobra.Command, work func(ctx context.Context, in versions.Installation) error) error {
			return a.withStore(cmd, func(ctx context.Context, s *store) error { return work(ctx, &installation{a, s}) })
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

// installation is a store as the commands about versions see it.
type installation struct {
	a *app
	s *store
}

func (in *installation) Store() *rulestore.Store { return in.s.Rules }

func (in *installation) Trail() *audit.Trail { return in.s.Audit }

func (in *installation) Named(ctx context.Context, rule string) (rulestore.Rule, error) {
	return in.s.named(ctx, rule)
}

func (in *installation) Read(ctx context.Context, paths []string) (*rules.Set, error) {
	stored, err := in.s.allowNames(ctx)
	if err != nil {
		return nil, err
	}
	return ruleFiles(in.a, paths, in.s.config, in.s.config.EventFormat(), stored)
}

func (in *installation) Environment() (rules.Environment, error) {
	return ruleEnvironment(in.s.config, nil)
}

func (in *installation) Carry(ctx context.Context, docs []rulestore.Document, act versions.Act, opts rulestore.ApplyOptions, yes bool) error {
	return in.a.carry(ctx, in.s, docs, act, opts, yes)
}

// besideText is what a rule has beside its document and mode, as comments in front of the document.
func besideText(r *rulestore.Rule, now time.Time) string {
	var b strings.Builder
	if warm := r.Warm(now); !warm.IsZero() {
		fmt.Fprintf(&b, "# warming: its windows are full at %s\n", terminal.Stamp(warm))
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
