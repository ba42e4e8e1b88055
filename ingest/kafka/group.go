package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
)

// rebalanceTimeout is how long members may take to finish their work in a rebalance.
const rebalanceTimeout = 10 * time.Second

// GroupOptions are the times of a group membership: the program leaves them to their defaults, tests shorten them. The
// brokers' limits are group.min.session.timeout.ms (6 s unless changed) and group.max.session.timeout.ms.
type GroupOptions struct {
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
	return &kafkaGroup{k: k, id: id, topic: topic, opts: opts.withDefaults(), sticky: &stickyBalancer{topic: topic}}
}

type kafkaGroup struct {
	k         *Client
	id, topic string
	opts      GroupOptions
	sticky    *stickyBalancer
	known     int // partitions of the topic, as last seen; touched by one goroutine at a time
}

var _ ingest.Group = (*kafkaGroup)(nil)

const (
	// joinBackoff is between two attempts of one member to join.
	joinBackoff = 250 * time.Millisecond
	// A session that lasted so long has worked: the back-off before the next membership starts anew.
	goodSession = 30 * time.Second
	// leaveTimeout bounds how long leaving may take when the group is in the middle of a rebalance.
	leaveTimeout = 3 * time.Second
)

// Run implements Group. It returns nil when ctx is done, or the client closed, and the member has left; an error only if
// the options are ones that kafka-go refuses. Everything else is logged and tried again.
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
		m, err := g.newMember()
		if err != nil {
			return err
		}
		started := time.Now()
		err = m.run(ctx, session)
		m.leave()
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

// groupMember is one membership: one member id, through one or more generations.
type groupMember struct {
	g      *kafkaGroup
	dials  *dials
	cg     *kafka.ConsumerGroup
	closed chan struct{} // closed when kafka-go's Close has returned
}

func (g *kafkaGroup) newMember() (*groupMember, error) {
	k, dials := g.k, newDials()
	cg, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: g.id, Topics: []string{g.topic}, Brokers: k.cfg.Brokers,
		Dialer: &kafka.Dialer{
			ClientID: clientID, DialFunc: dials.dial, Timeout: 5 * time.Second, TLS: k.cfg.TLS, SASLMechanism: k.mechanism,
		},
		// Range is for the time in which older processes run beside this one: they know no other way.
		GroupBalancers:    []kafka.GroupBalancer{g.sticky, kafka.RangeGroupBalancer{}},
		HeartbeatInterval: g.opts.Heartbeat, SessionTimeout: g.opts.SessionTimeout, RebalanceTimeout: rebalanceTimeout,
		JoinGroupBackoff: joinBackoff, Timeout: min(k.cfg.RequestTimeout, g.opts.SessionTimeout/2),
	})
	if err != nil {
		return nil, fmt.Errorf("consumer group %s: %w", g.id, err)
	}
	return &groupMember{g: g, dials: dials, cg: cg}, nil
}

// run takes part in generations until ctx is done or a session returns an error.
func (m *groupMember) run(ctx context.Context, session func(context.Context, ingest.Assignment) error) error {
	var trouble retry.Trouble
	log := m.g.k.log
	for {
		gen, err := m.cg.Next(ctx)
		switch {
		case ctx.Err() != nil && err != nil:
			return ctx.Err()
		case err != nil:
			// kafka-go backs off and tries again by itself. A coordinator that moves or loads, or a rebalance, is
			// ordinary life.
			if coordinating(err) {
				log.Debug("consumer group is not ready", "group", m.g.id, "error", err)
			} else {
				trouble.Failed(log, "cannot join the consumer group, trying again", err, "group", m.g.id)
			}
			continue
		}
		trouble.Over(log, "joined the consumer group", "group", m.g.id)
		over := make(chan error, 1)
		gen.Start(func(genCtx context.Context) { over <- m.serve(ctx, genCtx, gen, session) })
		if err := <-over; err != nil {
			return err
		}
	}
}

// coordinating says that a group is moving, loading or rebalancing.
func coordinating(err error) bool {
	for _, code := range []kafka.Error{
		kafka.GroupCoordinatorNotAvailable, kafka.GroupLoadInProgress, kafka.NotCoordinatorForGroup, kafka.RebalanceInProgress,
		kafka.UnknownMemberId, kafka.IllegalGeneration, kafka.MemberIDRequired,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// serve runs one session. kafka-go joins the next generation as soon as it returns, unless the group is closed before.
func (m *groupMember) serve(ctx, genCtx context.Context, gen *kafka.Generation, session func(context.Context, ingest.Assignment) error) error {
	sessionCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(genCtx, cancel)()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { m.g.awaitGrowth(sessionCtx, cancel) })
	a := ingest.Assignment{
		Generation: int(gen.ID), Member: gen.MemberID,
		Commits: &memberCommits{groupCommits{m.g.k, m.g.id, m.g.topic}, int(gen.ID), gen.MemberID},
	}
	for _, p := range gen.Assignments[m.g.topic] {
		a.Partitions = append(a.Partitions, p.ID)
	}
	slices.Sort(a.Partitions)
	m.g.sticky.remember(a.Generation, a.Partitions)
	m.g.k.metrics.generations.WithLabelValues(m.g.id).Inc()
	m.g.k.log.Info("consumer group generation", "group", m.g.id, "generation", a.Generation, "member", a.Member, "partitions", a.Partitions)
	err := session(sessionCtx, a)
	cancel()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		m.closeFirst(genCtx)
	}
	return err
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

// closeFirst makes kafka-go see that the group is closed before it sees that the generation is over: it would join again
// otherwise, and leaving would have to wait for that. Called within the generation.
func (m *groupMember) closeFirst(genCtx context.Context) {
	m.startClosing()
	_, _ = m.cg.Next(context.Background()) // returns ErrGroupClosed when Close has begun
	<-genCtx.Done()                        // its run loop has chosen to leave
}

func (m *groupMember) startClosing() {
	if m.closed == nil {
		m.closed = make(chan struct{})
		go func() {
			defer close(m.closed)
			_ = m.cg.Close() // always nil
		}()
	}
}

// leave sends LeaveGroup, so that the coordinator refuses what the member sent and is still on its way, and waits for it.
// When the group does not let go in time the connections are cut; the member then ends with its session timeout.
func (m *groupMember) leave() {
	m.startClosing()
	timer := time.NewTimer(leaveTimeout)
	defer timer.Stop()
	select {
	case <-m.closed:
	case <-timer.C:
		m.dials.close()
		<-m.closed
	}
	m.dials.close()
}
