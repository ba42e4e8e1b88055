package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

func (a *app) blocksCommand() *cobra.Command {
	return family("blocks", "See who is blocked, and release them", `  weir blocks list
  weir blocks release guest-token-flood ip=192.0.2.1 --reason "ticket 4711"`,
		a.blocksList(), a.blocksRelease())
}

// withRedis opens Redis for a command.
func (a *app) withRedis(ctx context.Context, c *config, work func(r *blocklist.Store) error) error {
	r, err := openRedis(c)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	if err := waitRedis(ctx, r, askPatience, a.quietLogger(c)); err != nil {
		return err
	}
	return work(r)
}

func (a *app) blocksList() *cobra.Command {
	var filter blocklist.Filter
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List the blocks in Redis",
		Long: `List the blocks in Redis, by source and rule. IN FORCE says whether gates refuse for one: a block whose rule was demoted or
promoted anew since holds nobody, and expires by itself. --released lists the releases, too.`,
		Example: "  weir blocks list\n  weir blocks list --rule guest-token-flood --output json",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			c, err := a.config(cmd)
			if err != nil {
				return err
			}
			if limit < 0 {
				return usagef("--limit: got %d; allowed: 0 and more", limit)
			}
			return a.withRedis(cmd.Context(), c, func(r *blocklist.Store) error {
				found, err := r.List(cmd.Context(), now(), filter)
				if err != nil {
					return err
				}
				return a.showBlocks(found, limit)
			})
		}),
	}
	c.Flags().StringVar(&filter.Rule, "rule", "", "only this rule")
	c.Flags().BoolVar(&filter.Tombstones, "released", false, "releases, too")
	c.Flags().IntVar(&limit, "limit", 1000, "at most so many; 0 for all")
	return c
}

func (a *app) showBlocks(found blocklist.Listing, limit int) error {
	items := found.Items
	more := 0
	if limit > 0 && len(items) > limit {
		more, items = len(items)-limit, items[:limit]
	}
	err := list(a, items, []string{"SOURCE", "RULE", "STATE", "SINCE", "UNTIL", "LEFT", "IN FORCE", "HIT"}, blockRow)
	if more > 0 {
		fmt.Fprintf(a.stderr, "weir: %d more; --limit 0 shows all\n", more)
	}
	if found.Unreadable > 0 {
		fmt.Fprintf(a.stderr, "weir: %s in Redis cannot be read by this build\n", plural(found.Unreadable, "key"))
	}
	return err
}

func blockRow(l blocklist.Listed) []string {
	left := l.Remaining.Round(time.Second).String()
	if l.Tombstone != nil {
		return []string{subject(l.Subject), l.Rule, "released", clock(l.Tombstone.Released), clock(l.Tombstone.Until), left, "", ""}
	}
	return []string{
		subject(l.Subject), l.Rule, "blocked", clock(l.Block.Since), clock(l.Block.Until), left, strconv.FormatBool(l.InForce), l.Block.Hit,
	}
}

func (a *app) blocksRelease() *cobra.Command {
	var act actFlags
	var wait time.Duration
	c := &cobra.Command{
		Use:   "release RULE SOURCE…",
		Short: "Release a blocked source from a rule",
		Long: `Release a blocked source from a rule: its block goes, at every gate, and no hit from before the release blocks it again. The
release goes to ENFORCE by the hits topic, in order with the hits of the block, and is audited.

SOURCE is what weir blocks list shows: FIELD=VALUE for each field of the rule's block key. An address without its prefix
gets the one of the rule. A subject as JSON output has it (ip=192.0.2.1%2F32&device=tv-7) is taken as well.`,
		Example: `  weir blocks release guest-token-flood ip=192.0.2.1 device=tv-7 --reason "ticket 4711"`,
		Args:    cobra.MinimumNArgs(2),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				who, err := a.releasedSubject(ctx, s, args[0], args[1:])
				if err != nil {
					return err
				}
				return a.release(ctx, s, who, args[0], act, wait)
			})
		}),
	}
	act.register(c, a.environ)
	c.Flags().DurationVar(&wait, "wait", 10*time.Second, "how long to wait until ENFORCE has acted; 0: do not wait")
	return c
}

// releasedSubject makes a subject of FIELD=VALUE words, or takes one as it is.
func (a *app) releasedSubject(ctx context.Context, s *store, rule string, words []string) (traffic.Subject, error) {
	if len(words) == 1 && strings.Contains(words[0], "%") {
		who := traffic.Subject(words[0])
		if _, err := who.Values(); err != nil {
			return "", usagef("SOURCE: %w", err)
		}
		return who, nil
	}
	r, err := s.Rule(ctx, rule)
	if err != nil {
		return "", err
	}
	v4, v6 := uint8(traffic.DefaultV4), uint8(traffic.DefaultV6)
	if b := r.Newest.Version.Block; b != nil {
		for _, k := range b.Key {
			if k.Field == traffic.FieldIP {
				v4, v6 = k.V4, k.V6
			}
		}
	}
	return parseSubject(words, v4, v6)
}

// parseSubject reads FIELD=VALUE words. v4 and v6 are the prefix lengths of addresses that come without.
func parseSubject(words []string, v4, v6 uint8) (traffic.Subject, error) {
	var id traffic.Identity
	var key []traffic.KeyField
	seen := map[traffic.Field]bool{}
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		f, known := traffic.ParseField(name)
		if !ok || !known || value == "" || seen[f] {
			return "", usagef("SOURCE: got %q; allowed: FIELD=VALUE, each of ip, device, user, api_key and session once at most", w)
		}
		seen[f] = true
		k := traffic.KeyField{Field: f}
		switch f {
		case traffic.FieldIP:
			addr, bits, err := parseAddress(value)
			if err != nil {
				return "", err
			}
			k.V4, k.V6 = v4, v6
			if bits >= 0 {
				k.V4, k.V6 = uint8(bits), uint8(bits)
			}
			id.IP = addr
		case traffic.FieldDevice:
			id.Device = value
		case traffic.FieldUser:
			id.User = value
		case traffic.FieldAPIKey:
			id.APIKey = value
		case traffic.FieldSession:
			id.Session = value
		}
		key = append(key, k)
	}
	who, _ := traffic.MakeSubject(&id, key)
	return who, nil
}

// parseAddress reads an address or a range; bits is -1 for an address alone.
func parseAddress(text string) (addr netip.Addr, bits int, err error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr(), p.Bits(), nil
	}
	addr, err = netip.ParseAddr(text)
	if err != nil {
		return addr, 0, usagef("SOURCE: got ip=%s; allowed: an address or a range, like 192.0.2.1 or 2001:db8::/64", text)
	}
	return addr.Unmap().WithZone(""), -1, nil
}

// release appends the release to the hits topic and waits until it shows in Redis.
func (a *app) release(ctx context.Context, s *store, who traffic.Subject, rule string, act actFlags, wait time.Duration) error {
	h, err := blocklist.NewRelease(who, rule, act.by, act.reason, now())
	if err != nil {
		return err
	}
	k, err := openKafka(s.config, s.log, nil)
	if err != nil {
		return err
	}
	defer func() { _ = k.Close() }()
	if err := waitKafka(ctx, k, askPatience); err != nil {
		return err
	}
	if err := appendHit(ctx, k, ingest.TopicNames(s.config.Namespace, history.Live).Hits, &h); err != nil {
		return err
	}
	if wait <= 0 {
		return a.sayReleased(who, rule, h.ID, false)
	}
	err = a.withRedis(ctx, s.config, func(r *blocklist.Store) error {
		bounded, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		_, err := r.WaitReleased(bounded, &h)
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the release is in Kafka and will take effect, but ENFORCE has not acted within %s: is weir run --stages enforce running? (%w)", wait, err)
	}
	if err != nil {
		return err
	}
	return a.sayReleased(who, rule, h.ID, true)
}

// appendHit appends one record to the hits topic, where the hits of its block are.
func appendHit(ctx context.Context, k *ingest.Kafka, topic string, h *detectors.Hit) error {
	n, err := k.Partitions(ctx, topic)
	if err != nil {
		return fmt.Errorf("%w: run weir migrate", err)
	}
	value, err := detectors.EncodeHit(h)
	if err != nil {
		return err
	}
	return k.Appender(topic).Append(ctx, []ingest.Batch{{Partition: h.Partition(n), Values: [][]byte{value}}})
}

func (a *app) sayReleased(who traffic.Subject, rule, id string, done bool) error {
	if a.output == "json" {
		return a.json(map[string]any{"subject": who, "rule": rule, "release": id, "done": done})
	}
	state := "released"
	if !done {
		state = "to be released"
	}
	_, err := fmt.Fprintf(a.stdout, "%s: %s from rule %s\n", cell(subject(who)), state, rule)
	return err
}
