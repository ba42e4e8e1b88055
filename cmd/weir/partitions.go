package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

func partitionsCommand(a *app) *cobra.Command {
	return family("partitions", "See what each partition does, and let one that stopped go on", `  weir partitions list
  weir partitions resume --keyed 12 --accept-gap --reason "broker 3 lost its disk"`,
		partitionsList(a), partitionsResume(a))
}

// partitionRow is one line of weir partitions list.
type partitionRow struct {
	Side      string       `json:"side"`
	Partition int          `json:"partition"`
	State     string       `json:"state"`
	Owner     string       `json:"owner"`
	Offset    int64        `json:"offset"`
	End       int64        `json:"end"`
	Epoch     int64        `json:"epoch,omitempty"`
	Watermark traffic.Time `json:"watermark,omitzero"`
	Reported  time.Time    `json:"reported"`
	Reason    string       `json:"reason,omitempty"`
	// GapSource and GapOffset are what resume would accept; only of a partition that stopped at a gap.
	GapSource *int   `json:"gap_source,omitempty"`
	GapOffset *int64 `json:"gap_offset,omitempty"`
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
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				all, err := s.Partitions.PartitionStates(ctx, history.Live)
				if err != nil {
					return err
				}
				var rows []partitionRow
				for i := range all {
					if r := newPartitionRow(&all[i]); !stopped || r.State != string(ingest.Running) {
						rows = append(rows, r)
					}
				}
				head := []string{"SIDE", "PARTITION", "STATE", "OFFSET", "END", "WATERMARK", "OWNER", "REPORTED", "REASON"}
				return terminal.List(&a.Output, rows, head, func(r partitionRow) []string {
					return []string{
						r.Side, strconv.Itoa(r.Partition), r.State, strconv.FormatInt(r.Offset, 10), strconv.FormatInt(r.End, 10),
						terminal.Time(r.Watermark), r.Owner, terminal.Stamp(r.Reported), terminal.Brief(r.Reason),
					}
				})
			})
		}),
	}
	c.Flags().BoolVar(&stopped, "stopped", false, "only those that are refused or halted")
	return c
}

func newPartitionRow(p *partitions.ReportedPartition) partitionRow {
	r := partitionRow{
		Side: string(p.Side), Partition: p.Partition, State: string(p.State), Owner: p.Owner, Offset: p.Offset, End: p.End,
		Epoch: p.Epoch, Reported: p.Reported, Reason: p.Reason,
	}
	if p.Side == ingest.SideKeyed {
		r.Watermark = p.Watermark
	}
	if stream.GapAcceptable(p) {
		r.GapSource, r.GapOffset = &p.GapSource, &p.GapOffset
	}
	return r
}

func partitionsResume(a *app) *cobra.Command {
	var act actFlags
	var requests, keyed int
	var accept bool
	c := &cobra.Command{
		Use:   "resume (--requests N | --keyed N) --accept-gap --reason TEXT",
		Short: "Let a partition that stopped at a gap go on without what is missing",
		Long: `Accept that what is missing before a partition's gap will not be counted, and let its stage go on. Find out first why it is
missing, or what cannot be read: weir partitions list says where. The acceptance is audited, and a loss record goes into history. Only the gap that
is reported now is accepted; the next one stops the partition again.`,
		Example: `  weir partitions resume --keyed 12 --accept-gap --reason "broker 3 lost its disk"`,
		Args:    cobra.NoArgs,
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
			}
			return a.withStore(cmd, func(ctx context.Context, s *store) error { return acceptGap(ctx, a, s, side, n, act) })
		}),
	}
	c.Flags().IntVar(&requests, "requests", 0, "partition of requests")
	c.Flags().IntVar(&keyed, "keyed", 0, "partition of keyed")
	c.Flags().BoolVar(&accept, "accept-gap", false, "accept that what is missing will not be counted")
	act.register(c, a.environ)
	return c
}

func acceptGap(ctx context.Context, a *app, s *store, side ingest.Side, n int, act actFlags) error {
	all, err := s.Partitions.PartitionStates(ctx, history.Live)
	if err != nil {
		return err
	}
	for i := range all {
		p := &all[i]
		if p.Side != side || p.Partition != n {
			continue
		}
		if p.State == ingest.Running {
			return fmt.Errorf("partition %s/%d is running: there is nothing to accept", side, n)
		}
		if !stream.GapAcceptable(p) {
			return fmt.Errorf("partition %s/%d is %s, and not for a gap that could be accepted: %s", side, n, p.State, p.Reason)
		}
		gap := ingest.Acceptance{
			Side: side, Partition: n, GapSource: p.GapSource, GapOffset: p.GapOffset, By: act.by, Reason: act.reason,
		}
		if err := s.Partitions.Accept(ctx, history.Live, gap); err != nil {
			return err
		}
		if a.Format == "json" {
			return a.WriteJSON(newPartitionRow(p))
		}
		where := fmt.Sprintf("source partition %d", gap.GapSource)
		if gap.GapSource == ingest.GapInKeyed {
			where = "the keyed log"
		}
		_, err := fmt.Fprintf(a.Stdout, "partition %s/%d: gap before offset %d of %s accepted; its stage goes on within seconds\n",
			side, n, gap.GapOffset, where)
		return err
	}
	return fmt.Errorf("no stage has reported partition %s/%d; weir partitions list shows those that were", side, n)
}
