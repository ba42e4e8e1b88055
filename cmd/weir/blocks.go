package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/allow"
	"github.com/weirhq/weir/cmd/weir/internal/counters"
	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func blocksCommand(a *app) *cobra.Command {
	return family("blocks", "See who is blocked, block, and release", `  weir blocks list
  weir blocks add ip=203.0.113.7 --everything --for 1h --reason "ticket 4711"
  weir blocks release guest-token-flood ip=192.0.2.1 --reason "ticket 4711"`,
		blocksList(a), blocksAdd(a), blocksRelease(a))
}

func allowCommand(a *app) *cobra.Command {
	return family("allow", "Say whom rules do not count: allow lists", `  weir allow list
  weir allow add office-egress cidr=192.0.2.0/24 --until 30d --reason "the new office, ticket 4711"`,
		allow.Commands(allow.Program{
			Output: &a.Output, Does: a.does,
			WithDesk: a.withDesk,
			Acts:     a.acts,
		})...)
}

func countersCommand(a *app) *cobra.Command {
	return family("counters", "See and reset what rules have counted", `  weir counters show guest-token-flood ip=192.0.2.1 device=tv-7
  weir counters reset guest-token-flood ip=192.0.2.1 device=tv-7 --reason "a load test, ticket 4711"`,
		counters.Commands(counters.Program{
			Output: &a.Output, Does: a.does,
			WithCounts: a.withCounts,
			WithDesk:   a.withDesk,
			Acts:       a.acts,
		})...)
}

// withCounts opens who tells what rules have counted: the server that was named, else the process that counts, at its
// own address or at one that is given.
func (a *app) withCounts(cmd *cobra.Command, at string,
	work func(context.Context, desk.Reader, api.Counts) error) error {
	if server := a.asked(); server.URL != "" {
		if at != "" {
			return usage.Errorf("--at: the server knows who counts; leave it out with --server")
		}
		c, err := desk.Open(server)
		if err != nil {
			return err
		}
		return work(cmd.Context(), c, c)
	}
	return a.withStore(cmd, func(ctx context.Context, s *store) error {
		reader := &api.Reader{Rules: s.Rules, History: s.Store, Trail: s.Audit, Clock: service.Now}
		return work(ctx, reader, service.NewCounts(s.Store, at))
	})
}

// acts gives a command the flags that say who does something and why, and the function that reads them.
func (a *app) acts(c *cobra.Command) func() (by, reason string) {
	var act actFlags
	act.register(c, a.environ)
	act.reasonRequired(c)
	return func() (by, reason string) { return act.by, act.reason }
}

func blocksList(a *app) *cobra.Command {
	var filter blocklist.Filter
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List the blocks in Redis",
		Long: `List the blocks in Redis, by source and rule. IN FORCE says whether gates refuse for one: a block whose rule was demoted or
promoted anew since, or whose address is on the never_block list, holds nobody, and expires by itself. BY and REASON are of blocks by hand
(weir blocks add), whose rules are by-hand and by-hand-…. --released lists the releases, too.

SOURCE can be pasted into weir blocks release: where a value holds more than letters, digits and -._:/@ it is the canonical
subject in single quotes, in which a shell finds nothing.`,
		Example: "  weir blocks list\n  weir blocks list --rule guest-token-flood --output json",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usage.Errorf("--limit: got %d; allowed: 0 and more", limit)
			}
			if a.asked().URL != "" {
				return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
					found, err := d.Blocklist(ctx, filter)
					if err == nil && filter.Rule != "" && len(found.Items) == 0 && !rules.IsByHand(filter.Rule) {
						_, err = d.Rule(ctx, filter.Rule)
					}
					if err != nil {
						return desk.Told(err)
					}
					return showBlocks(&a.Output, found, limit)
				})
			}
			c, err := a.config(cmd)
			if err != nil {
				return err
			}
			return a.withRedis(cmd.Context(), c, func(r *blocklist.Store) error {
				found, err := r.List(cmd.Context(), service.Now(), filter)
				if err != nil {
					return err
				}
				found.Foreign = service.Foreign(cmd.Context(), c, r, a.quietLogger(c))
				if filter.Rule != "" && len(found.Items) == 0 && !rules.IsByHand(filter.Rule) {
					if err := ruleInRedis(cmd.Context(), r, filter.Rule); err != nil {
						return err
					}
				}
				return showBlocks(&a.Output, found, limit)
			})
		}),
	}
	c.Flags().StringVar(&filter.Rule, "rule", "", "only this rule")
	c.Flags().BoolVar(&filter.Tombstones, "released", false, "releases, too")
	c.Flags().IntVar(&limit, "limit", 1000, "at most so many; 0 for all")
	return c
}

func showBlocks(o *terminal.Output, found blocklist.Listing, limit int) error {
	items := found.Items
	if limit > 0 && len(items) > limit {
		items = items[:limit]
	}
	shown := make([]shownBlock, len(items))
	for i, l := range items {
		shown[i] = shownBlock{l, duration.Format(l.Remaining.Round(time.Second))}
	}
	err := terminal.List(o, shown, []string{"SOURCE", "RULE", "STATE", "SINCE", "UNTIL", "LEFT", "IN FORCE", "HIT",
		"BY", "REASON"}, blockRow)
	o.Cut("first", len(items), int64(len(found.Items)), math.MaxInt64)
	if found.Foreign != "" {
		fmt.Fprintf(o.Stderr, "weir: Redis %s\n", terminal.Safe(found.Foreign))
	}
	if found.Cut {
		fmt.Fprintln(o.Stderr, "weir: Redis holds more than the server reads: without --server all are listed")
	}
	if found.Unreadable > 0 {
		fmt.Fprintf(o.Stderr, "weir: %s in Redis cannot be read by this build\n", plural.Of(found.Unreadable, "key"))
	}
	return err
}

// shownBlock is a block or a release with what is left of it as durations are written everywhere: 14m59s.
type shownBlock struct {
	blocklist.Listed
	Remaining string `json:"remaining"`
}

func blockRow(l shownBlock) []string {
	if l.Tombstone != nil {
		return []string{subject.Text(l.Subject), l.Rule, "released", terminal.Time(l.Tombstone.Released),
			terminal.Time(l.Tombstone.Until), l.Remaining, "", "", l.Tombstone.By, ""}
	}
	return []string{
		subject.Text(l.Subject), l.Rule, "blocked", terminal.Time(l.Block.Since), terminal.Time(l.Block.Until), l.Remaining, strconv.FormatBool(l.InForce), l.Block.Hit,
		l.Block.By, l.Block.Reason,
	}
}

// releaseFlags are what weir blocks release is told beside rule and source.
type releaseFlags struct {
	actFlags
	wait  time.Duration
	force bool
}

func blocksRelease(a *app) *cobra.Command {
	var f releaseFlags
	c := &cobra.Command{
		Use:   "release RULE SOURCE…|ID",
		Short: "Release a blocked source from a rule",
		Long: `Release a blocked source from a rule: its block goes, at every gate, and no hit from before the release blocks it again. The
release goes to ENFORCE by the hits topic, in order with the hits of the block, and is audited.

SOURCE is what weir blocks list shows: FIELD=VALUE for each field of the rule's block key. An address without its prefix
gets the one of the rule; a value above 64 bytes may be given as it is or as its digest. A subject as JSON output has it
(ip=192.0.2.1%2F32&device=tv-7) is taken as well. ID alone is the block id that the refused client was told, or the HIT of the list, of a block
that stands.

Fields that are not those of the rule's block key are refused, and where nothing is blocked, nothing is released and the exit
code is 1; in both cases the blocks that contain what was named are listed with the commands that release them. --force
releases where no block is seen: no hit from before the release blocks the source.`,
		Example: `  weir blocks release guest-token-flood ip=192.0.2.1 device=tv-7 --reason "ticket 4711"
  weir blocks release login-burst ip=2001:db8::/64 --reason "an office" --output json
  weir blocks release 0123456789abcdef --reason "ticket 4711"`,
		Args: cobra.MinimumNArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
				rule, source, err := released(ctx, d, args)
				if err != nil {
					return err
				}
				done, err := d.Release(ctx, desk.Local(f.by), acts.ReleaseRequest{Rule: rule, Subject: source,
					Force: f.force, Wait: f.wait, Reason: f.reason})
				return sayRelease(&a.Output, &done, f.reason, err)
			})
		}),
	}
	f.register(c, a.environ)
	usage.DurationFlag(c, &f.wait, "wait", 10*time.Second, "how long to wait until ENFORCE has acted; 0: do not wait")
	c.Flags().BoolVar(&f.force, "force", false, "release although no block is seen")
	return c
}

// released reads which block is to be released: a rule and a source, or the id of a block that stands.
func released(ctx context.Context, d *desk.Desk, args []string) (rule string, source traffic.Subject, err error) {
	if len(args) == 1 {
		return standing(ctx, d, args[0])
	}
	if rule = args[0]; rules.IsByHand(rule) {
		source, err = subject.Read(args[1:], traffic.DefaultV4, traffic.DefaultV6)
		return rule, source, err
	}
	found, err := d.Rule(ctx, rule)
	if err != nil {
		return rule, "", desk.Told(err)
	}
	keys := acts.BlockKeys(&found.Rule)
	if len(keys) == 0 {
		return rule, "", fmt.Errorf("rule %s has no block in any version, so it blocks nobody", rule)
	}
	source, err = releasedSubject(keys, args[1:])
	return rule, source, err
}

// standing finds the block that stands with an id, or the beginning of one.
func standing(ctx context.Context, d *desk.Desk, text string) (rule string, source traffic.Subject, err error) {
	id, err := explore.ParseID(text)
	if err != nil {
		return "", "", usage.Errorf("got %q alone; allowed: RULE SOURCE…, or the id of a block that stands, of 8 to 32 hex digits", text)
	}
	found, err := d.Blocklist(ctx, blocklist.Filter{Hit: id})
	if err != nil {
		return "", "", desk.Told(err)
	}
	for i := range found.Items {
		item := &found.Items[i]
		if item.Block == nil || !strings.HasPrefix(item.Block.Hit, id) {
			continue
		}
		if source != "" || found.Cut && len(id) < 16 { // digits of the id that a refused client is told
			return "", "", fmt.Errorf("several blocks have, or may have, an id like %s…; give more of it", id)
		}
		rule, source = item.Rule, item.Subject
	}
	if source == "" {
		if found.Cut {
			return "", "", fmt.Errorf("the server has not read all blocks, and none with id %s: name RULE and SOURCE",
				id)
		}
		return "", "", fmt.Errorf("nothing was blocked: no block that stands has an id that begins with %s, and nothing was released", id)
	}
	return rule, source, nil
}

// releasedSubject reads the words of SOURCE. Their fields decide which of the keys gives an address its prefix length.
func releasedSubject(keys [][]traffic.KeyField, words []string) (source traffic.Subject, err error) {
	for _, k := range keys {
		v4, v6 := prefixLengths(k)
		if source, err = subject.Read(words, v4, v6); err != nil || acts.SameFields(source, k) {
			return source, err
		}
	}
	v4, v6 := prefixLengths(keys[0])
	return subject.Read(words, v4, v6)
}

func prefixLengths(key []traffic.KeyField) (v4, v6 uint8) {
	for _, k := range key {
		if k.Field == traffic.FieldIP {
			return k.V4, k.V6
		}
	}
	return traffic.DefaultV4, traffic.DefaultV6
}

// releaseReport is what weir blocks release says with --output json.
type releaseReport struct {
	*acts.ReleaseDone
	Offers []releaseOffer `json:"offers"`
}

type releaseOffer struct {
	acts.ReleaseOffer
	Command string `json:"command"`
}

// sayRelease reports what became of a release.
func sayRelease(o *terminal.Output, done *acts.ReleaseDone, reason string, err error) error {
	for _, note := range done.Notes {
		fmt.Fprintf(o.Stderr, "weir: %s\n", terminal.Safe(note))
	}
	report := releaseReport{done, []releaseOffer{}}
	for _, offer := range done.Offers {
		report.Offers = append(report.Offers, releaseOffer{offer, releaseCommand(done.Rule, offer.Subject, reason)})
	}
	var nothing *acts.NotBlockedError
	var misshapen *acts.MisshapenError
	switch {
	case errors.As(err, &nothing):
		done.Problem = fmt.Sprintf("nothing was blocked: no block of rule %s stands for %s, and nothing was released (weir blocks list --rule %s lists its blocks; "+
			"--force releases from what is on its way)", done.Rule, subject.Text(done.Subject), done.Rule)
		return report.refuse(o, errors.New(done.Problem))
	case errors.As(err, &misshapen):
		return report.refuse(o, &usage.Error{Err: err})
	case err != nil:
		return desk.Told(err)
	}
	return report.say(o)
}

// releaseCommand is what releases a block, to be pasted.
func releaseCommand(rule string, source traffic.Subject, reason string) string {
	command := "weir blocks release " + rule + " " + subject.Text(source)
	if reason != "" {
		command += " --reason " + subject.Quoted(reason)
	}
	return command
}

// refuse reports why nothing was released, and what could be.
func (r *releaseReport) refuse(o *terminal.Output, cause error) error {
	if o.Format == "json" {
		return errors.Join(o.WriteJSON(r), cause)
	}
	if len(r.Offers) > 0 {
		if err := terminal.List(o, r.Offers, []string{"UNTIL", "IN FORCE", "TO RELEASE IT"},
			func(f releaseOffer) []string {
				return []string{terminal.Time(f.Until), fmt.Sprint(f.InForce), f.Command}
			}); err != nil {
			return err
		}
	}
	if r.OffersCut {
		fmt.Fprintf(o.Stderr, "weir: the first %d; there may be more: weir blocks list --rule %s lists all\n",
			len(r.Offers), r.Rule)
	}
	return cause
}

// say reports what was released.
func (r *releaseReport) say(o *terminal.Output) error {
	if o.Format == "json" {
		return o.WriteJSON(r)
	}
	state := "released"
	if !r.Done {
		state = "to be released"
	}
	text := fmt.Sprintf("%s: %s from rule %s", subject.Text(r.Subject), state, r.Rule)
	switch {
	case r.Problem != "":
		text += "; " + r.Problem
	case r.Until != 0:
		text += ", before the end of its block at " + terminal.Time(r.Until)
	case r.Blocked != nil:
		text += "; nothing was blocked: only hits from before now are forgiven"
	}
	_, err := fmt.Fprintln(o.Stdout, text)
	return err
}
