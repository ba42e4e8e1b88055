package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

const (
	lookEvery = time.Second      // how often the stages' reports are read; they report every two seconds
	sayEvery  = 15 * time.Second // how often is said what is waited for
	// settleTime is how long the reports must show the load done: hits that a watermark has caused may be on their way
	// while the watermark is reported.
	settleTime = 3 * time.Second
	// reportLag is more than it takes until the progress of a stream is reported.
	reportLag = 15 * time.Second
	// clocksAhead is how far another gateway's time may be ahead of Kafka's: a watermark so much later than the load's
	// last event has the load behind it.
	clocksAhead   = 5 * time.Second
	readyTimeout  = 10 * time.Second
	recordTimeout = time.Minute // for RECORD to store the hits that are there
)

// await waits until history holds all that the load has caused, for Wait at most. Without an error, everything that
// DETECT had to say of the load's events is in history; episodes may still be open where closing takes longer.
func (v *verification) await(ctx context.Context) error {
	if !v.Truth.Header.Live() {
		return v.replayTook()
	}
	deadline := time.Now().Add(v.Wait)
	least, most := v.settles(traffic.At(deadline))
	if err := v.awaitWatermark(ctx, deadline, least, most); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := v.Broker.WaitReady(ready); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if err := v.awaitRecorded(bounded); err != nil {
		return fmt.Errorf("history has not caught up with the hits: %w", err)
	}
	return nil
}

// awaitRecorded waits until RECORD has applied the hits that are there now. Other traffic may go on writing hits, so the
// ends of now count.
func (v *verification) awaitRecorded(ctx context.Context) error {
	n, err := v.Broker.Partitions(ctx, v.Hits)
	if err != nil {
		return err
	}
	partitions := ingest.AllPartitions(n)
	ends, err := v.Bounds.Bounds(ctx, partitions)
	if err != nil {
		return err
	}
	return retry.Do(ctx, v.Log, "waiting for RECORD", func(ctx context.Context) error {
		commits, err := v.Broker.FetchCommits(ctx, v.Record, v.Hits, partitions)
		if err != nil {
			return err
		}
		left := int64(0)
		for p, end := range ends {
			left += max(0, end.End-max(end.Start, commits[p].Offset))
		}
		if left > 0 {
			return fmt.Errorf("%s of topic %s are not in history yet, which stage record does", plural.Of(left, "record"), v.Hits)
		}
		return nil
	})
}

// settles says which watermark has the whole load behind it, and which has closed its episodes too: of those rules that
// can get there by the deadline, while the stream is idle.
func (v *verification) settles(deadline traffic.Time) (least, most traffic.Time) {
	least = v.Truth.LastAck().Add(clocksAhead)
	most = least
	idleLag := v.IdleMargin + reportLag
	for _, x := range v.expected {
		switch at := x.Settled(); {
		case at.Add(idleLag) <= deadline:
			most = max(most, at)
		default:
			v.Say("rule %s closes its last episode at %s, which is more than --wait away: what is open then is compared as far as it goes", x.Rule.ID, clock(at))
		}
	}
	return least, most
}

// reach is how far the stages are, by their last reports.
type reach struct {
	watermark traffic.Time // the least of all keyed partitions
	behind    string       // what is not done yet, or stands still; empty: all of the load is routed
}

// awaitWatermark waits for the watermark most, and is content with least when the deadline comes.
func (v *verification) awaitWatermark(ctx context.Context, deadline time.Time, least, most traffic.Time) error {
	var said, there time.Time
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
		case !there.IsZero() && now.Sub(there) >= settleTime:
			return nil
		case now.After(deadline):
			return r.enough(least)
		case now.Sub(said) >= sayEvery:
			said = now
			v.report(r, most)
		}
		if err := retry.Sleep(ctx, lookEvery); err != nil {
			return fmt.Errorf("stopped before history had caught up: %w", err)
		}
	}
}

// enough says whether r will do when there is no more time.
func (r *reach) enough(least traffic.Time) error {
	switch {
	case r.behind != "":
		return fmt.Errorf("history has not caught up: %s; wait longer with --wait", r.behind)
	case r.watermark < least:
		return fmt.Errorf("history has not caught up: the watermark is at %s, the load goes to %s; wait longer with --wait", r.watermark, least)
	}
	return nil
}

func (v *verification) report(r reach, most traffic.Time) {
	switch {
	case r.behind != "":
		v.Say("waiting: %s", r.behind)
	case r.watermark < most:
		v.Say("waiting for the watermark to close the last episode: it is at %s, and must come to %s", clock(r.watermark), clock(most))
	}
}

// reach asks the store for the reports of ROUTE and DETECT.
func (v *verification) reach(ctx context.Context) (reach, error) {
	states, err := v.Partitions.PartitionStates(ctx, v.Stream.Name)
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
	if want := v.Stream.Partitions.Keyed; keyed < want {
		r.behind = fmt.Sprintf("%d of %d keyed partitions are reported, which stage detect does", keyed, want)
	}
	if left := v.unrouted(routed); left > 0 {
		r.behind = fmt.Sprintf("%s of the requests topic are not routed yet, which stage route does", plural.Of(left, "record"))
	}
	return r, nil
}

// unrouted counts what ROUTE has to do until the load is behind it.
func (v *verification) unrouted(routed map[int]int64) (left int64) {
	if v.Truth.End == nil {
		return 0 // not known; the watermark waits for it all the same
	}
	for p, end := range v.Truth.End.Offsets {
		left += max(0, end-routed[p])
	}
	return left
}

// replaySummary is as much of the summary that weir ingest stores of a replay as tells whether it took in a load.
type replaySummary struct {
	Complete bool             `json:"complete"`
	Error    string           `json:"error"`
	Events   int64            `json:"events"`
	First    traffic.Time     `json:"first"`
	Dead     map[string]int64 `json:"dead_letters"` // by reason
}

// replayTook checks that the replay is over and took in the load, all of it and nothing else.
func (v *verification) replayTook() error {
	name, end := v.Stream.Name, v.Truth.End
	if v.Stream.Finished.IsZero() {
		return fmt.Errorf("%s is not finished: let weir ingest end, or begin it anew", name)
	}
	var s replaySummary
	if err := json.Unmarshal(v.Stream.Summary, &s); err != nil {
		return fmt.Errorf("summary of %s: %w", name, err)
	}
	if !s.Complete {
		return fmt.Errorf("%s broke off: %s", name, s.Error)
	}
	if end == nil || !end.Complete && end.Events == 0 {
		return errors.New("the truth has no end: weir loadgen was killed, and nobody knows how much of the file is the load")
	}
	if s.Events != end.Events || len(s.Dead) > 0 {
		refused := int64(0)
		for _, n := range s.Dead {
			refused += n
		}
		return fmt.Errorf("%s took in %s and refused %d, the load has %d: it is not the replay of this load",
			name, plural.Of(s.Events, "event"), refused, end.Events)
	}
	if at := v.Truth.Earliest(); s.First < at {
		return fmt.Errorf("%s begins at %s, the load not before %s: it is not the replay of this load", name, s.First, at)
	}
	return nil
}

// clock writes a time to the second.
func clock(t traffic.Time) string {
	switch t {
	case traffic.BeforeTime:
		return "no time yet"
	case traffic.EndOfTime:
		return "the end"
	}
	return t.Std().Format("2006-01-02T15:04:05Z")
}
