package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
)

// rebalanceTimeout is how long members may take to finish their work in a rebalance.
const rebalanceTimeout = 10 * time.Second

// GroupOptions are the name and the times of a group membership. The program leaves the times to their defaults, tests shorten them. The
// brokers' limits are group.min.session.timeout.ms (6 s unless changed) and group.max.session.timeout.ms.
type GroupOptions struct {
	// Instance names the process, across its lives and like no other one of its group (group.instance.id, KIP-345): whoever comes back
	// within the session timeout goes on at once with the partitions it had. Empty: a dynamic member.
	Instance       string
	SessionTimeout time.Duration // a member that is silent for so long is out; default 10 s
	Heartbeat      time.Duration // so soon a member hears of a rebalance; default 1 s, at most a third of the session
	LookEvery      time.Duration // so often a member looks whether partitions were added to its topic; default 5 s
}

func (o GroupOptions) withDefaults() GroupOptions {
	if o.SessionTimeout <= 0 {
		o.SessionTimeout = 10 * time.Second
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = time.Second
	}
	o.Heartbeat = min(o.Heartbeat, o.SessionTimeout/3)
	if o.LookEvery <= 0 {
		o.LookEvery = 5 * time.Second
	}
	return o
}

// Group gives membership in the consumer group id, of one topic. Partitions are shared evenly, and stay with the member
// that had them as far as that allows (see stickyBalancer). It is meant for one Run at a time: what a member claims to
// have had is what the Run before it was given last.
func (k *Client) Group(id, topic string, opts GroupOptions) ingest.Group {
	k.metrics.beginGroup(id)
	return &kafkaGroup{k: k, id: id, topic: topic, opts: opts.withDefaults(), sticky: &stickyBalancer{topic: topic}, instance: opts.Instance}
}

type kafkaGroup struct {
	k         *Client
	id, topic string
	opts      GroupOptions
	sticky    *stickyBalancer
	known     int    // partitions of the topic, as last seen; touched by one goroutine at a time
	instance  string // the id of the next membership; empty from the time on when another process has taken it over
}

var _ ingest.Group = (*kafkaGroup)(nil)

// A session that lasted so long has worked: the back-off before the next membership starts anew.
const goodSession = 30 * time.Second

// Run implements Group. It returns nil when ctx is done, or the client closed, and the member has left. Everything else is logged and
// tried again.
//
// A member whose instance id another process has taken over joins as a dynamic one from then on: had it the id back, the other one would
// be thrown out in turn, and so on.
func (g *kafkaGroup) Run(ctx context.Context, session func(context.Context, ingest.Assignment) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.k.life, cancel)()
	var trouble retry.Trouble
	wait := retry.NewBackoff(100*time.Millisecond, 5*time.Second)
	for {
		if g.awaitTopic(ctx) != nil {
			return nil
		}
		m := g.newMember()
		started := time.Now()
		err := m.run(ctx, session)
		if !errors.Is(err, errTakenOver) && m.leave() != nil {
			err = errTakenOver
		}
		m.close()
		if errors.Is(err, errTakenOver) {
			g.k.log.Error("another process has joined with this one's instance id: going on without one. Give each process an id of its own",
				"group", g.id, "instance", g.instance)
			g.k.metrics.fenced.WithLabelValues(g.id).Inc()
			g.instance = ""
			continue
		}
		if ctx.Err() != nil {
			if !errors.Is(err, context.Canceled) {
				g.k.log.Warn("left the consumer group with an error", "group", g.id, "error", err)
			}
			return nil
		}
		g.k.metrics.rejoins.WithLabelValues(g.id).Inc()
		trouble.Failed(g.k.log, "left the consumer group, joining anew", err, "group", g.id)
		if time.Since(started) > goodSession {
			wait.Reset()
			trouble.Over(g.k.log, "consumer group works again", "group", g.id)
		}
		if wait.Wait(ctx) != nil {
			return nil
		}
	}
}

// awaitTopic waits until the topic exists: a member that joins before gets no partitions, and would not hear of them.
// It fails only with ctx.
func (g *kafkaGroup) awaitTopic(ctx context.Context) error {
	var trouble retry.Trouble
	wait := retry.NewBackoff(100*time.Millisecond, 2*time.Second)
	for {
		n, err := g.k.Partitions(ctx, g.topic)
		if err == nil && n > 0 {
			g.known = n
			trouble.Over(g.k.log, "topic is there", "topic", g.topic)
			return nil
		}
		if err == nil {
			err = fmt.Errorf("topic %s has no partitions", g.topic)
		}
		if ctx.Err() == nil {
			trouble.Failed(g.k.log, "waiting for the topic before joining the group; weir migrate creates it", err, "group", g.id)
		}
		if err := wait.Wait(ctx); err != nil {
			return err
		}
	}
}

// awaitGrowth ends a generation when partitions were added to the topic: nobody is given them before the next one. What it
// compares with was read before this member joined, so that the generation's leader knew of that many at least. kafka-go
// can watch for this too, but gives a membership up for every error that it meets on the way.
func (g *kafkaGroup) awaitGrowth(ctx context.Context, end func()) {
	for ctx.Err() == nil {
		_ = retry.Sleep(ctx, g.opts.LookEvery)
		n, err := g.k.Partitions(ctx, g.topic)
		if err != nil {
			continue // whoever reads or writes the topic tells about it
		}
		before := g.known
		g.known = n
		if n > before {
			g.k.log.Info("topic has more partitions, sharing them out", "group", g.id, "topic", g.topic, "before", before, "now", n)
			end()
			return
		}
	}
}
