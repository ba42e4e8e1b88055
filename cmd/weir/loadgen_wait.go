package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

const (
	// settleEvery is how often verify looks how far the stages are. They report every two seconds.
	settleEvery = time.Second
	// settleQuiet is how long it goes on looking after that: hits that a watermark has caused may be on their way while
	// it is reported.
	settleQuiet = 3 * time.Second
	// settleTold is how often it says what it waits for.
	settleTold = 15 * time.Second
	// settleMargin is more than the watermark of an idle stream is behind the clock: 60 s, and what reporting takes.
	settleMargin = 75 * time.Second
	// clocksAhead is how far another gateway's time may be ahead of Kafka's: a watermark so much later than the load's
	// last event has the load behind it.
	clocksAhead = 5 * time.Second
	// recordPatience is how long RECORD may take for the hits that are there.
	recordPatience = time.Minute
)

// await waits until history holds all that the load has caused, or patience is over. Without an error, everything that
// DETECT had to say of the load's events is in history; episodes may still be open where closing takes longer than
// patience.
func (v *verification) await(ctx context.Context, patience time.Duration) error {
	if !v.truth.Header.Live() {
		return v.replayTook()
	}
	deadline := time.Now().Add(patience)
	least, most := v.settles(traffic.At(deadline))
	if err := v.awaitWatermark(ctx, deadline, least, most); err != nil {
		return err
	}
	if err := service.WaitKafka(ctx, v.Kafka, service.AnswerTimeout); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, recordPatience)
	defer cancel()
	names := ingest.Stream(v.name).Topics(v.Config.Namespace)
	if err := v.awaitRecorded(bounded, names.Hits); err != nil {
		return fmt.Errorf("history has not caught up with the hits: %w", err)
	}
	return nil
}

// awaitRecorded waits until RECORD has applied what hits holds now. Other traffic may go on writing hits, so it is the
// end of now that counts.
func (v *verification) awaitRecorded(ctx context.Context, topic string) error {
	n, err := v.Kafka.Partitions(ctx, topic)
	if err != nil {
		return err
	}
	partitions := make([]int, n)
	for p := range partitions {
		partitions[p] = p
	}
	ends, err := v.Kafka.Log(topic).Bounds(ctx, partitions)
	if err != nil {
		return err
	}
	return service.Retry(ctx, v.Log, "waiting for RECORD", func(ctx context.Context) error {
		commits, err := v.Kafka.FetchCommits(ctx, v.Group(service.StageRecord), topic, partitions)
		if err != nil {
			return err
		}
		left := int64(0)
		for p, end := range ends {
			left += max(0, end.End-max(end.Start, commits[p].Offset))
		}
		if left > 0 {
			return fmt.Errorf("%s of topic %s are not in history yet, which stage record does", terminal.Plural(left, "record"), topic)
		}
		return nil
	})
}

// settles says which watermark has the whole load behind it, and which has closed its episodes too: of those rules that
// can get there by the deadline, while the stream is idle.
func (v *verification) settles(deadline traffic.Time) (least, most traffic.Time) {
	least = v.truth.LastAck().Add(clocksAhead)
	most = least
	for _, x := range v.expected {
		switch at := x.Settled(); {
		case at.Add(settleMargin) <= deadline:
			most = max(most, at)
		default:
			v.say("rule %s closes its last episode at %s, which is more than --wait away: what is open then is compared as far as it goes", x.Rule.ID, terminal.Time(at))
		}
	}
	return least, most
}

// reach is how far the stages are, by their last reports.
type reach struct {
	watermark traffic.Time // the least of all keyed partitions
	behind    string       // what is not done yet, or stands still; empty: all of the load is routed
}

// awaitWatermark waits for most, and is content with least when the deadline comes.
func (v *verification) awaitWatermark(ctx context.Context, deadline time.Time, least, most traffic.Time) error {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	var told, there time.Time
	for {
		r, err := v.reach(ctx)
		if err != nil && ctx.Err() == nil {
			r.behind = err.Error()
		}
		now := time.Now()
		switch {
		case r.behind != "" || r.watermark < most:
			there = time.Time{}
		case there.IsZero():
			there = now
		}
		switch {
		case !there.IsZero() && now.Sub(there) >= settleQuiet:
			return nil
		case now.After(deadline):
			return r.enough(least)
		case now.Sub(told) >= settleTold:
			told = now
			v.tell(r, most)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped before history had caught up: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// enough says whether what is reached will do when there is no more time.
func (r *reach) enough(least traffic.Time) error {
	switch {
	case r.behind != "":
		return fmt.Errorf("history has not caught up: %s; wait longer with --wait", r.behind)
	case r.watermark < least:
		return fmt.Errorf("history has not caught up: the watermark is at %s, the load goes to %s; wait longer with --wait", r.watermark, least)
	}
	return nil
}

func (v *verification) tell(r reach, most traffic.Time) {
	switch {
	case r.behind != "":
		v.say("waiting: %s", r.behind)
	case r.watermark < most:
		v.say("waiting for the watermark to close the last episode: it is at %s, and must come to %s", terminal.Time(r.watermark), terminal.Time(most))
	}
}

// reach asks the store for the reports of ROUTE and DETECT.
func (v *verification) reach(ctx context.Context) (reach, error) {
	states, err := v.History.Partitions.PartitionStates(ctx, v.name)
	if err != nil {
		return reach{}, err
	}
	r := reach{watermark: traffic.EndOfTime}
	routed, keyed := map[int]int64{}, 0
	for i := range states {
		s := &states[i]
		switch {
		case s.State != ingest.Running:
			return reach{behind: fmt.Sprintf("partition %s/%d is %s: %s", s.Side, s.Partition, s.State, s.Reason)}, nil
		case s.Side == ingest.SideKeyed:
			r.watermark = min(r.watermark, s.Watermark)
			keyed++
		default:
			routed[s.Partition] = s.Offset
		}
	}
	if keyed < v.Stream.Partitions.Keyed {
		r.behind = fmt.Sprintf("%d of %d keyed partitions are reported, which stage detect does", keyed, v.Stream.Partitions.Keyed)
	}
	if left := v.unrouted(routed); left > 0 {
		r.behind = fmt.Sprintf("%s of the requests topic are not routed yet, which stage route does", terminal.Plural(left, "record"))
	}
	return r, nil
}

// unrouted counts what ROUTE has to do until the load is behind it.
func (v *verification) unrouted(routed map[int]int64) (left int64) {
	if v.truth.End == nil {
		return 0 // not known; the watermark waits for it all the same
	}
	for p, end := range v.truth.End.Offsets {
		left += max(0, end-routed[p])
	}
	return left
}

// replayTook checks that the replay is over and took in the load, all of it and nothing else.
func (v *verification) replayTook() error {
	if v.Stream.Finished.IsZero() {
		return fmt.Errorf("%s is not finished: let weir ingest end, or begin it anew", v.name)
	}
	var s replaySummary
	if err := json.Unmarshal(v.Stream.Summary, &s); err != nil {
		return fmt.Errorf("summary of %s: %w", v.name, err)
	}
	if !s.Complete {
		return fmt.Errorf("%s broke off: %s", v.name, s.Error)
	}
	if v.truth.End == nil || !v.truth.End.Complete && v.truth.End.Events == 0 {
		return errors.New("the truth has no end: weir loadgen was killed, and nobody knows how much of the file is the load")
	}
	if s.Events != v.truth.End.Events || len(s.Dead) > 0 {
		return fmt.Errorf("%s took in %s and refused %d, the load has %d: it is not the replay of this load",
			v.name, terminal.Plural(s.Events, "event"), sumOf(s.Dead), v.truth.End.Events)
	}
	if at := v.truth.Earliest(); s.First < at {
		return fmt.Errorf("%s begins at %s, the load not before %s: it is not the replay of this load", v.name, s.First, at)
	}
	return nil
}

func sumOf(counts map[string]int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}
