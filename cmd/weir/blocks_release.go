package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

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

// releasedSubject reads the words of SOURCE for a rule.
func (a *app) releasedSubject(ctx context.Context, s *store, rule string, words []string) (traffic.Subject, error) {
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
	return readSubject(words, v4, v6)
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
	_, err := fmt.Fprintf(a.stdout, "%s: %s from rule %s\n", subject(who), state, rule)
	return err
}
