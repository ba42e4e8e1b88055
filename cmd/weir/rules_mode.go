package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

func rulesPromote(a *app) *cobra.Command {
	var act actFlags
	var override bool
	c := &cobra.Command{
		Use:   "promote RULE",
		Short: "Let a rule block",
		Long: `Let a rule block from now on. Look at its hits first: weir history hits --rule RULE. Gates are told at once; where Redis
does not answer, weir run tells them when it does.
A rule whose document has no block is refused, and so is one whose log format carries no verdict: without it weir's own
refusals would feed the rule's windows, and keep a client blocked for ever.`,
		Example: `  weir rules promote guest-token-flood --reason "two days of shadow, no viewer among the hits"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return setMode(a, cmd, promotion(args[0], act.by, act.reason, override))
		}),
	}
	c.Flags().BoolVar(&override, "override", false, "promote although the log format carries no verdict")
	act.register(c, a.environ)
	act.reasonRequired(c)
	return c
}

// promotion asks for a rule to block from now on.
func promotion(rule, by, reason string, override bool) rulestore.ModeChange {
	return rulestore.ModeChange{Rule: rule, Mode: rules.ModeBlock, By: by, Reason: reason, Override: override}
}

func rulesDemote(a *app) *cobra.Command {
	var act actFlags
	c := &cobra.Command{
		Use:   "demote RULE",
		Short: "Stop a rule from blocking; its blocks hold no longer",
		Long: `Put a rule back into shadow. Its blocks hold no longer, at every gate, within a second; it goes on to record hits. Gates are
told by this command, whether or not weir run is running; where Redis does not answer, weir run tells them when it does.`,
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
		_, err := fmt.Fprintf(w, "rule %s: mode %s, generation %d\n", set.Rule, set.Mode, set.Generation)
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
