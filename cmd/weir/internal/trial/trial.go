// Package trial tries rule documents for those who write them: it runs their tests, and the rules over the latest
// requests, beside the stages.
package trial

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/ruletry"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const (
	// maxEvents bounds the requests that rules are tried on: what one processor counts in some seconds.
	maxEvents = 1_000_000
	// within bounds how long rules are tried on requests, since somebody waits for it.
	within = 25 * time.Second
	// windowBytes bounds the windows of one trial, beside stages that need their memory.
	windowBytes = 64 << 20
	// maxTestEvents bounds the events of the tests of one trial, which are in memory together.
	maxTestEvents = 100_000
	// listed is how many sources are shown of each rule.
	listed = 10
)

// Options are what Trials are made of. Kafka is opened for each trial where it is not given; all others are required.
type Options struct {
	Config  *config.Config
	Log     *slog.Logger
	History *history.Store
	Kafka   *kafka.Client
	// Environment is what documents are judged against, but for the event format and the allow lists.
	Environment func(warn func(rules.Problem)) (rules.Environment, error)
}

// Trials try documents, one after the other: a process that counts two trials has no processor left for its stages.
type Trials struct {
	o    Options
	turn chan struct{} // held by the trial that runs
}

var _ acts.Trials = (*Trials)(nil)

// New makes Trials.
func New(o Options) *Trials { return &Trials{o: o, turn: make(chan struct{}, 1)} }

// Tests implements acts.Trials. They wait for the trial that runs.
func (t *Trials) Tests(ctx context.Context, files []acts.File, lists []rules.AllowList) (all []acts.RuleTest,
	untested []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	env, err := t.o.Environment(nil)
	if err != nil {
		return nil, nil, err
	}
	env.Format = t.o.Config.EventFormat()
	sources := make([]rules.File, len(files))
	for i, f := range files {
		sources[i] = rules.File{Name: f.Name, Src: []byte(f.Text)}
	}
	tests, untested, err := ruletry.DocumentTests(sources, lists, env, maxTestEvents)
	if many := (*ruletry.TooManyError)(nil); errors.As(err, &many) {
		return nil, nil, &acts.Invalid{Field: "files", Got: fmt.Sprintf("tests of %d events in all", many.Got),
			Allowed: fmt.Sprintf("%d at once; weir rules test runs any number", many.Most)}
	}
	if err != nil {
		return nil, nil, err
	}
	all = make([]acts.RuleTest, 0, len(tests))
	for _, one := range tests {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		diff, err := ruletry.Play(one.Story)
		if err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %s: %w", one.File, one.Line, one.Name, err)
		}
		all = append(all, acts.RuleTest{Rule: one.Rule, Name: one.Name, Line: one.Line, OK: diff == "", Diff: diff})
	}
	return all, untested, nil
}

// Traffic implements acts.Trials. Of more requests than can be waited for, the latest are tried.
func (t *Trials) Traffic(ctx context.Context, set *rules.Set, lists []rules.AllowList, over time.Duration) (
	acts.TrafficTried, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	default:
		return acts.TrafficTried{}, &acts.UntriedError{Why: "other rules are tried on requests just now: try again"}
	}
	bounded, cancel := context.WithTimeout(service.Weighing(ctx), within)
	defer cancel()
	out, err := t.traffic(bounded, set, lists, over)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = &acts.UntriedError{Why: fmt.Sprintf(
			"the requests could not be counted within %s; weir backtest --from-live takes the time that it needs",
			duration.Format(within))}
	}
	return out, err
}

func (t *Trials) traffic(ctx context.Context, set *rules.Set, lists []rules.AllowList, over time.Duration) (
	acts.TrafficTried, error) {
	var out acts.TrafficTried
	in := &service.Installation{Config: t.o.Config, Log: t.o.Log, History: t.o.History, Kafka: t.o.Kafka}
	if in.Kafka == nil {
		k, err := service.OpenKafka(t.o.Config, t.o.Log, nil)
		if err != nil {
			return out, err
		}
		defer func() { _ = k.Close() }() // all that was asked for was answered, or given up
		in.Kafka = k
	}
	routing, err := in.EnterLive(ctx, t.o.Config)
	if err != nil {
		return out, err
	}
	never := blocklist.NewNeverBlock(t.o.Config.NeverBlock)
	o := backtest.Options{
		Allow: set.Lists(lists), NeverBlock: never.Holds,
		Workers: 1, Budget: windowBytes, Top: listed, NoHits: true,
	}
	for _, d := range set.Rules {
		v, _ := rules.NextVersion(nil, d)
		o.Rules = append(o.Rules, v)
	}
	from, err := stream.Beside(ctx, in, routing, &o)
	if err != nil {
		return out, err
	}
	out.Until = service.Now()
	span := Span{Log: from.Log, Partitions: o.Partitions, Until: out.Until}
	if o.Since, err = span.Since(ctx, over, maxEvents); err != nil {
		return out, err
	}
	if out.Since = o.Since; out.Until.Sub(o.Since) < over {
		out.Shorter = fmt.Sprintf("there are more than %d requests in the last %s", maxEvents, duration.Format(over))
	}
	found, err := backtest.RunLive(ctx, o, from, nil)
	if err != nil {
		return out, err
	}
	tell(&out, found)
	return out, nil
}

// Span is the end of a topic, up to Until.
type Span struct {
	Log        ingest.TimedLog
	Partitions int
	Until      traffic.Time // append time
}

// shortest is the least time that rules are tried on; more requests than are allowed in it are too many.
const shortest = time.Second

// Since is from when on at most so many records were appended: over before Until, or less where there are more. The
// rate within the time is not even, so it is asked again until it fits.
func (s Span) Since(ctx context.Context, over time.Duration, most int64) (traffic.Time, error) {
	partitions := ingest.AllPartitions(s.Partitions)
	bounds, err := s.Log.Bounds(ctx, partitions)
	if err != nil {
		return 0, err
	}
	for {
		since := s.Until.Add(-over)
		at, err := s.Log.OffsetsAt(ctx, partitions, since)
		if err != nil {
			return 0, err
		}
		var n int64
		for _, p := range partitions {
			if first := at[p]; first != ingest.NoOffset {
				n += max(0, bounds[p].End-max(first, bounds[p].Start))
			}
		}
		switch {
		case n <= most:
			return since, nil
		case over <= shortest:
			return 0, &acts.UntriedError{Why: fmt.Sprintf(
				"there were more than %d requests in the last second; weir backtest --from-live tries rules on any "+
					"number", most)}
		}
		fits := time.Duration(float64(over) * float64(most) / float64(n))
		over = max(shortest, min(fits, over*9/10).Truncate(time.Second))
	}
}

// tell takes over what a backtest has found.
func tell(out *acts.TrafficTried, found *backtest.Result) {
	out.Events, out.Unread = found.Events, int64(len(found.Gaps))
	for _, n := range found.Refused {
		out.Unread += n
	}
	for i := range found.Rules {
		r := &found.Rules[i]
		one := acts.RuleTried{
			Rule: r.Rule, Matched: r.Matched, Counted: r.Counted, Sources: r.Sources, Episodes: r.Episodes,
			Over:    r.Over,
			AtLeast: found.Evicted > 0, Top: []acts.SourceTried{}, TopCut: r.TopCut,
		}
		for j := range r.Top {
			s := &r.Top[j]
			one.Top = append(one.Top, acts.SourceTried{Subject: s.Subject, Episodes: s.Episodes, Over: s.Over,
				Peak: s.Peak})
		}
		if b := r.Block; b != nil {
			one.Block = &acts.BlockTried{Held: b.Held, Refused: b.Refused, Share: b.ShareOfAll}
		}
		out.Rules = append(out.Rules, one)
	}
}
