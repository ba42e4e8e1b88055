package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// examination is one run of weir doctor. Its checks come in rounds: those of one round run at the same time, and know
// what the rounds before have found.
//
//	configuration   Kafka   Redis   PostgreSQL      who is there?
//	        topics   stream, rules, modes           what do they hold?
//	stages   partitions   events   dead letters     does it work?
//	                 clocks
type examination struct {
	conf    *config.Config
	events  int // of each partition
	names   ingest.TopicNames
	kafka   *kafka.Client
	redis   *blocklist.Store
	history *history.Store
	closers []func()

	// What the rounds have found. Each is written by one check, and read in later rounds only.
	kafkaUp  bool
	topics   map[string]kafka.InspectedTopic
	cache    *blocklist.Inspected // nil: Redis is away
	database *history.Inspected   // nil: PostgreSQL is away
	stream   *history.Stream      // nil: not known
	routing  *rules.Routing       // nil: not known
	modes    map[string]rules.ModeState
}

// doctorCheck is one thing to look at.
type doctorCheck struct {
	name string
	look func(ctx context.Context) []finding
}

// Bounds within a run. The last part of its time is kept for saying what was found.
const (
	checkPatience = 6 * time.Second
	sayingTime    = 250 * time.Millisecond
)

// newExamination makes the clients, which connect nowhere yet. They are silent: what they would log is a finding.
func newExamination(ctx context.Context, c *config.Config, events int) (*examination, error) {
	e := &examination{conf: c, events: events, names: ingest.Live.Topics(c.Namespace)}
	silent := slog.New(slog.DiscardHandler)
	var err error
	if e.history, err = service.OpenHistory(ctx, c, silent); err != nil {
		return nil, err
	}
	e.closers = append(e.closers, e.history.Close)
	if e.kafka, err = service.OpenKafka(c, silent, nil); err != nil {
		service.CloseAll(e.closers)
		return nil, err
	}
	e.closers = append(e.closers, func() { _ = e.kafka.Close() })
	if e.redis, err = service.OpenRedis(c); err != nil {
		service.CloseAll(e.closers)
		return nil, err
	}
	e.closers = append(e.closers, func() { _ = e.redis.Close() })
	return e, nil
}

func (e *examination) run(ctx context.Context) []finding {
	var found []finding
	for _, round := range [][]doctorCheck{
		{{"configuration", e.lookAtConfiguration}, {"kafka", e.lookAtKafka}, {"redis", e.lookAtRedis}, {"postgres", e.lookAtPostgres}},
		{{"topics", e.lookAtTopics}, {"stream", e.lookAtStream}},
		{
			{"identities", e.lookAtIdentities}, {"clocks", e.lookAtClocks}, {"stages", e.lookAtStages},
			{"partitions", e.lookAtPartitions}, {"snapshots", e.lookAtSnapshots}, {"events", e.lookAtEvents}, {"dead letters", e.lookAtDeadLetters},
		},
	} {
		findings, whole := together(ctx, round)
		found = append(found, findings...)
		if !whole {
			break // what the next round reads might still be written
		}
	}
	return found
}

// together makes the checks at the same time, and gives their findings in the order of the checks. A check that does not
// end in time is a failing line and is not waited for; whole is false then.
func together(ctx context.Context, checks []doctorCheck) (found []finding, whole bool) {
	type result struct {
		at       int
		findings []finding
	}
	bounded, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	results := make(chan result, len(checks))
	for i, c := range checks {
		go func() { results <- result{i, c.look(bounded)} }()
	}
	over, stop := graceAfter(bounded)
	defer stop()
	byCheck, ended := make([][]finding, len(checks)), make([]bool, len(checks))
	whole = true
	for range checks {
		select {
		case r := <-results:
			byCheck[r.at], ended[r.at] = r.findings, true
			continue
		case <-over:
			whole = false
		}
		break
	}
	for i, c := range checks {
		if !ended[i] {
			byCheck[i] = []finding{failing(c.name, "try again with more --timeout", "it could not be looked at in time")}
		}
		found = append(found, byCheck[i]...)
	}
	return found, whole
}

// graceAfter is closed a moment after ctx has ended: checks that heed it get that long to come back.
func graceAfter(ctx context.Context) (<-chan struct{}, func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(sayingTime, func() { close(over) }) })
	return over, func() { stop() }
}

// clockReading is what another machine's clock said between two readings of this one's.
type clockReading struct {
	theirs, asked, answered traffic.Time
}

// ahead bounds by how much their clock is ahead of this machine's: at least least, at most most. Negative is behind.
func (r clockReading) ahead() (least, most time.Duration) {
	return r.theirs.Sub(r.answered), r.theirs.Sub(r.asked)
}

// apart is by how much the clocks differ at the least, whatever the way of question and answer took.
func (r clockReading) apart() time.Duration {
	least, most := r.ahead()
	switch {
	case least > 0:
		return least
	case most < 0:
		return most
	}
	return 0
}
