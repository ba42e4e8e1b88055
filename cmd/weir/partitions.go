package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/ingest"
)

func partitionsCommand(a *app) *cobra.Command {
	return family("partitions", "See what each partition does, and let one that stopped go on", `  weir partitions list
  weir partitions resume --keyed 12 --accept-gap --reason "broker 3 lost its disk"`,
		partitionsList(a), partitionsResume(a))
}

func partitionsList(a *app) *cobra.Command {
	var stopped bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the partitions as the stages last reported them",
		Long: `List the partitions of requests (ROUTE) and of keyed (DETECT) as their owners last reported them. One that is refused or
halted says why; nothing of it is lost meanwhile, it waits in Kafka. refused: its commit cannot be trusted. halted: it stands
at its offset, since what comes there cannot be read, or a record before it is missing. One that nobody leads, or that
waits for a routing version, goes on by itself.`,
		Example: "  weir partitions list\n  weir partitions list --stopped",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
				all, err := d.Partitions(ctx, desk.Local(""))
				if err != nil {
					return desk.Told(err)
				}
				rows := slices.DeleteFunc(all, func(p acts.Partition) bool { return stopped && p.Running() })
				head := []string{"SIDE", "PARTITION", "STATE", "OFFSET", "END", "WATERMARK", "OWNER", "REPORTED", "REASON"}
				return terminal.List(&a.Output, rows, head, func(r acts.Partition) []string {
					return []string{
						string(r.Side), strconv.Itoa(r.Partition), string(r.State),
						strconv.FormatInt(r.Offset, 10), strconv.FormatInt(r.End, 10),
						terminal.Time(r.Watermark), r.Owner, terminal.Stamp(r.Reported), terminal.Brief(r.Reason),
					}
				})
			})
		}),
	}
	c.Flags().BoolVar(&stopped, "stopped", false, "only those that are refused or halted")
	return c
}

func partitionsResume(a *app) *cobra.Command {
	var act actFlags
	var requests, keyed, source int
	var offset int64
	var accept bool
	c := &cobra.Command{
		Use:   "resume (--requests N | --keyed N) --accept-gap --reason TEXT",
		Short: "Let a partition that stopped at a gap go on without what is missing",
		Long: `Accept that what is missing before a partition's gap will not be counted, and let its stage go on. Find out first why it is
missing, or what cannot be read: weir partitions list says where. The acceptance is audited, and a loss record goes into history. Only the gap that
is reported now is accepted; the next one stops the partition again. --gap-source and --gap-offset, as weir partitions list
--output json has them, refuse to accept another gap than that one.`,
		Example: `  weir partitions resume --keyed 12 --accept-gap --reason "broker 3 lost its disk"
  weir partitions resume --requests 3 --gap-source 3 --gap-offset 4711 --accept-gap --reason "a tool moved its commit"`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			side, n := ingest.SideRequests, requests
			if cmd.Flags().Changed("keyed") {
				side, n = ingest.SideKeyed, keyed
			}
			switch {
			case cmd.Flags().Changed("keyed") == cmd.Flags().Changed("requests"):
				return usage.Errorf("allowed: one of --requests N and --keyed N")
			case !accept:
				return usage.Errorf("--accept-gap is required: it says that what is missing will not be counted")
			case act.reason == "":
				return usage.Errorf("--reason is required: the acceptance is audited")
			case cmd.Flags().Changed("gap-source") != cmd.Flags().Changed("gap-offset"):
				return usage.Errorf("allowed: --gap-source and --gap-offset together, or neither")
			}
			r := acts.ResumeRequest{Side: side, Partition: n, Reason: act.reason}
			if cmd.Flags().Changed("gap-source") {
				r.GapSource, r.GapOffset = &source, &offset
			}
			return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
				return acceptGap(ctx, a, d, act.by,
					r)
			})
		}),
	}
	c.Flags().IntVar(&requests, "requests", 0, "partition of requests")
	c.Flags().IntVar(&keyed, "keyed", 0, "partition of keyed")
	c.Flags().IntVar(&source, "gap-source", 0,
		"only if the gap is of this source partition (-1: of the keyed log; -2: that log was made anew)")
	c.Flags().Int64Var(&offset, "gap-offset", 0, "only if this is the first offset after the gap")
	c.Flags().BoolVar(&accept, "accept-gap", false, "accept that what is missing will not be counted")
	act.register(c, a.environ)
	return c
}

// acceptGap accepts the gap that r names or, where it names none, the one that is reported now.
func acceptGap(ctx context.Context, a *app, d *desk.Desk, by string, r acts.ResumeRequest) error {
	if r.GapSource == nil {
		all, err := d.Partitions(ctx, desk.Local(by))
		if err != nil {
			return desk.Told(err)
		}
		p, err := acts.Resumable(all, r.Side, r.Partition)
		if err != nil {
			return notResumed(r.Side, err)
		}
		r.GapSource, r.GapOffset = p.GapSource, p.GapOffset
	}
	done, err := d.ResumePartition(ctx, desk.Local(by), r)
	if err != nil {
		return notResumed(r.Side, err)
	}
	if a.Format == "json" {
		return a.WriteJSON(done)
	}
	what, news := fmt.Sprintf("gap before offset %d of source partition %d", *r.GapOffset, *r.GapSource), "accepted"
	switch *r.GapSource {
	case ingest.GapInKeyed:
		what = fmt.Sprintf("gap before offset %d of the keyed log", *r.GapOffset)
	case ingest.KeyedAnew:
		what = fmt.Sprintf("loss of what the keyed log held behind offset %d", *r.GapOffset)
	}
	if done.Again {
		news = "had been accepted before"
	}
	_, err = fmt.Fprintf(a.Stdout, "partition %s: %s %s; its stage, where it runs, goes on within seconds\n",
		done.Name(), what, news)
	return err
}

// notResumed words why a partition was not let go on.
func notResumed(side ingest.Side, err error) error {
	if invalid := (*acts.Invalid)(nil); errors.As(err, &invalid) && invalid.Field == "partition" {
		return usage.Errorf("--%s: got %s; allowed: %s", side, invalid.Got, invalid.Allowed)
	}
	return desk.Told(err)
}
