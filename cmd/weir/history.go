package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/traffic"
)

func historyCommand(a *app) *cobra.Command {
	return family("history", "Ask what happened: hits, late events, block decisions, replays", `  weir history hits --since 24h --rule guest-token-flood
  weir history decisions --source ip=192.0.2.1`,
		historyHits(a), historyLate(a), historyUncounted(a), historyDecisions(a), historyReplays(a))
}

// lookFlags select rows of history.
type lookFlags struct {
	since, rule, source, replay string
	limit                       int
}

func (f *lookFlags) register(c *cobra.Command, withSource bool) {
	flags := c.Flags()
	flags.StringVar(&f.since, "since", "", "not before: a duration back from now (24h, 7d) or an RFC 3339 time")
	flags.StringVar(&f.rule, "rule", "", "only this rule")
	flags.StringVar(&f.replay, "replay", "", "of this replay instead of the live stream")
	flags.IntVar(&f.limit, "limit", 100, "at most so many, the newest; 0 for all")
	if withSource {
		flags.StringVar(&f.source, "source", "", "only this source: 192.0.2.1, 192.0.2.0/24, user=alice, a value of any field, or a canonical subject")
	}
}

// looked is lookFlags, understood.
type looked struct {
	stream string
	rule   string
	since  traffic.Time
	source *history.Source
}

func (f *lookFlags) parse(now time.Time) (looked, error) {
	l := looked{stream: history.Live, rule: f.rule}
	if f.limit < 0 {
		return l, usage.Errorf("--limit: got %d; allowed: 0 and more", f.limit)
	}
	if f.replay != "" {
		l.stream = string(ingest.Replay(f.replay))
		if err := ingest.Stream(l.stream).Check(); err != nil {
			return l, usage.Errorf("--replay: %w", err)
		}
	}
	since, err := parseTime("since", f.since, now)
	if err != nil {
		return l, err
	}
	l.since = since
	if f.source != "" {
		s, err := history.ParseSource(f.source)
		if err != nil {
			return l, usage.Errorf("--source: %w", err)
		}
		l.source = &s
	}
	return l, nil
}

// parseTime reads a flag that is a duration back from now, or a time; 0 for none.
func parseTime(flag, text string, now time.Time) (traffic.Time, error) {
	if text == "" {
		return 0, nil
	}
	if d, err := duration.Parse(text); err == nil {
		return traffic.At(now).Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, usage.Errorf("--%s: got %q; allowed: a duration like 90m, 24h or 7d, or a time like 2026-01-31T12:00:00Z", flag, text)
	}
	if t.After(now) {
		return 0, usage.Errorf("--%s: got %s, which lies ahead of now, %s; allowed: a time before", flag, text, now.UTC().Format(time.RFC3339))
	}
	return traffic.At(t), nil
}

// check turns the name of a replay, and of a rule, that is not there into an error; an empty list would look like "no hits".
func (l looked) check(ctx context.Context, s *store) error {
	if l.stream != history.Live {
		if err := s.knownReplay(ctx, l.stream); err != nil {
			return err
		}
	}
	if l.rule == "" {
		return nil
	}
	return s.knownRule(ctx, l.stream, l.rule)
}

// listNewest writes rows of a query with a limit, and says how many it has left out.
func listNewest[T any](a *app, rows []T, limit int, count func() (int64, error), head []string, row func(T) []string) error {
	if err := terminal.List(&a.Output, rows, head, row); err != nil || limit == 0 || len(rows) < limit {
		return err
	}
	total, err := count()
	if err != nil {
		return err
	}
	a.Cut("newest", len(rows), total, history.CountCap)
	return nil
}

func historyHits(a *app) *cobra.Command {
	var f lookFlags
	var merged bool
	var kind string
	c := &cobra.Command{
		Use:   "hits",
		Short: "List hits: who was over which rule's limit, when and how far",
		Long: `List episodes of sources over a rule's limit, the newest first. An event is over when more than the rule's limit lie in its
window; an episode goes from the first over event to the last one, and EVENTS counts all between them, both included.
The table shows sources as they are known to the rule; --output json has the evidence, too.

Listed are those over the limit. --kind near lists who came near it (a rule's near), --kind candidate who was over a limit on trial (its
candidate's, or that of a pending version); nothing comes of either.`,
		Example: `  weir history hits --since 24h --rule guest-token-flood
  weir history hits --kind candidate --rule guest-token-flood
  weir history hits --source 192.0.2.1 --output json
  weir history hits --replay monday`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			l, err := f.parse(time.Now())
			if err != nil {
				return err
			}
			if err := usage.OneOf("kind", kind, episodeKinds()...); err != nil {
				return err
			}
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				if err := l.check(ctx, s); err != nil {
					return err
				}
				q := history.HitQuery{Kind: detectors.Kind(kind), Stream: l.stream, Rule: f.rule, Source: l.source, Since: l.since, Merged: merged, Limit: f.limit}
				hits, err := s.Hits(ctx, q)
				if err != nil {
					return err
				}
				count := func() (int64, error) { return s.CountHits(ctx, q) }
				return listNewest(a, hits, f.limit, count, []string{"RULE", "SOURCE", "EVENTS", "PEAK", "LIMIT", "WINDOW", "FIRST", "LAST", "PHASE", "ID"}, hitRow)
			})
		}),
	}
	f.register(c, true)
	c.Flags().BoolVar(&merged, "merged", false, "also episodes that a late event joined to another one")
	c.Flags().StringVar(&kind, "kind", string(detectors.KindHit), "episodes of this kind: "+strings.Join(episodeKinds(), ", "))
	return c
}

func episodeKinds() []string {
	return []string{string(detectors.KindHit), string(detectors.KindNear), string(detectors.KindCandidate)}
}

func hitRow(h history.RecordedHit) []string {
	phase := string(h.Phase)
	if h.Grouped {
		phase += ", grouped"
	}
	if h.Reason != "" {
		phase += ", " + terminal.Brief(h.Reason) // why it was closed
	}
	events := strconv.FormatInt(h.Count, 10)
	if h.AtLeast {
		events = "≥" + events // some came late, and met what is not kept any more
	}
	return []string{
		h.Rule, subject.Text(h.Subject), events, strconv.Itoa(h.Peak), strconv.Itoa(h.Limit),
		duration.Format(time.Duration(h.WindowMS) * time.Millisecond), terminal.Time(h.First), terminal.Time(h.Last), phase, h.ID,
	}
}

func historyLate(a *app) *cobra.Command {
	var f lookFlags
	c := &cobra.Command{
		Use:   "late",
		Short: "List how many events came too late to count",
		Long: `List the sums of late events, by rule, source partition and minute. A late event lay further behind the newest one of its
source partition than its rule's lateness allows; it is recorded here and counted nowhere else.`,
		Example: "  weir history late --since 24h",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			l, err := f.parse(time.Now())
			if err != nil {
				return err
			}
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				if err := l.check(ctx, s); err != nil {
					return err
				}
				q := history.LateQuery{Stream: l.stream, Rule: f.rule, Since: l.since, Limit: f.limit}
				sums, err := s.Late(ctx, q)
				if err != nil {
					return err
				}
				count := func() (int64, error) { return s.CountLate(ctx, q) }
				return listNewest(a, sums, f.limit, count, []string{"MINUTE", "RULE", "EVENTS", "LATEST", "PARTITION"}, func(s history.LateSum) []string {
					return []string{terminal.Time(s.Minute), s.Rule, strconv.FormatInt(s.Events, 10), terminal.Time(s.Latest), strconv.Itoa(s.Source)}
				})
			})
		}),
	}
	f.register(c, false)
	return c
}

func historyDecisions(a *app) *cobra.Command {
	var f lookFlags
	var action string
	c := &cobra.Command{
		Use:   "decisions",
		Short: "List what was decided about blocks: written, extended, withheld, released",
		Example: `  weir history decisions --since 1h
  weir history decisions --source ip=192.0.2.1 --action withheld`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			l, err := f.parse(time.Now())
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("action") {
				if err := usage.OneOf("action", action, decisionActions()...); err != nil {
					return err
				}
			}
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				if err := l.check(ctx, s); err != nil {
					return err
				}
				q := history.DecisionQuery{
					Stream: l.stream, Rule: f.rule, Source: l.source, Action: blocklist.Action(action), Since: l.since, Limit: f.limit,
				}
				all, err := s.Decisions(ctx, q)
				if err != nil {
					return err
				}
				count := func() (int64, error) { return s.CountDecisions(ctx, q) }
				return listNewest(a, all, f.limit, count, []string{"AT", "ACTION", "REASON", "RULE", "SOURCE", "UNTIL", "BY", "HIT"}, decisionRow)
			})
		}),
	}
	f.register(c, true)
	c.Flags().StringVar(&action, "action", "", "only written, extended, withheld or released")
	return c
}

// decisionActions are what history decisions --action may be.
func decisionActions() []string {
	return []string{string(blocklist.ActionWritten), string(blocklist.ActionExtended), string(blocklist.ActionWithheld), string(blocklist.ActionReleased)}
}

func decisionRow(d history.RecordedDecision) []string {
	return []string{
		terminal.Time(d.At), string(d.Action), terminal.Brief(d.Reason), d.Rule, subject.Text(d.Subject), terminal.Time(d.Until), terminal.Brief(d.By), d.Hit,
	}
}

func historyReplays(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "replays",
		Short:   "List the replays that were made with weir ingest",
		Example: "  weir history replays\n  weir history replays --output json",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				all, err := s.Streams.List(ctx)
				if err != nil {
					return err
				}
				var replays []streams.Stream
				for _, st := range all {
					if st.Name != history.Live {
						replays = append(replays, st)
					}
				}
				return terminal.List(&a.Output, replays, []string{"REPLAY", "CREATED", "FINISHED"}, func(st streams.Stream) []string {
					return []string{replayName(st.Name), terminal.Stamp(st.Created), terminal.Stamp(st.Finished)}
				})
			})
		}),
	}
}

func uncountedReasons() []detectors.Uncounted {
	return []detectors.Uncounted{
		detectors.UncountedLate, detectors.UncountedOutOfOrder, detectors.UncountedMissingField, detectors.UncountedMissingValue,
	}
}

// uncountedHead are columns for what a rule did not count, by reason.
func uncountedHead() []string {
	var head []string
	for _, reason := range uncountedReasons() {
		head = append(head, strings.ToUpper(strings.ReplaceAll(reason.String(), "_", " ")))
	}
	return head
}

func uncountedCells(f *history.Figures) []string {
	var cells []string
	for _, reason := range uncountedReasons() {
		cells = append(cells, f.Of(reason).String())
	}
	return cells
}

func historyUncounted(a *app) *cobra.Command {
	var f lookFlags
	var reason string
	c := &cobra.Command{
		Use:   "uncounted",
		Short: "List how many events rules did not count, and why",
		Long: `List the sums of events that a rule watches and did not count, by rule, reason and minute of arrival. The reasons:
late (further behind the newest event of the source partition than the rule's lateness allows), out_of_order (on time, but older than
what the algorithm's memory can place), missing_field (without a field of the key, with on_missing: skip) and missing_value (without the
number or the value that the rule counts). An event has one reason for a rule. Sums of missing fields and values are of one router, over
all partitions.`,
		Example: "  weir history uncounted --since 24h\n  weir history uncounted --rule login --reason missing_field",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			l, err := f.parse(time.Now())
			if err != nil {
				return err
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				if err := l.check(ctx, s); err != nil {
					return err
				}
				q := history.UncountedQuery{Stream: l.stream, Rule: f.rule, Reason: reason, Since: l.since, Limit: f.limit}
				sums, err := s.Uncounted(ctx, q)
				if err != nil {
					return err
				}
				count := func() (int64, error) { return s.CountUncounted(ctx, q) }
				return listNewest(a, sums, f.limit, count, []string{"MINUTE", "RULE", "REASON", "EVENTS", "PARTITION"}, uncountedRow)
			})
		}),
	}
	f.register(c, false)
	c.Flags().StringVar(&reason, "reason", "", "only those of this reason")
	return c
}

// checkReason refuses what is no reason; empty stands for all.
func checkReason(reason string) error {
	if reason == "" {
		return nil
	}
	var allowed []string
	for _, known := range uncountedReasons() {
		allowed = append(allowed, known.String())
	}
	return usage.OneOf("reason", reason, allowed...)
}

func uncountedRow(s history.UncountedSum) []string {
	partition := "all"
	if s.Source != nil {
		partition = fmt.Sprint(*s.Source)
	}
	return []string{terminal.Time(s.Minute), s.Rule, s.Reason, strconv.FormatInt(s.Events, 10), partition}
}
