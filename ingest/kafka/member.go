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

// member is one membership: one member id, through one or more generations. It speaks the classic group protocol of Kafka, as
// https://cwiki.apache.org/confluence/display/KAFKA/Kafka+Client-side+Assignment+Proposal describes it, over connections of its own,
// since the coordinator answers a join only when all have come.
//
// A static member (KIP-345) is known to the coordinator by the instance id of its process. A process that dies and comes back
// within the session timeout is given the partitions that it had, in the same generation, at once: nobody has to wait for the
// timeout, and the others are not disturbed. The member that it was before is fenced by that.
type member struct {
	g         *kafkaGroup
	id        identity
	dials     *dials
	transport *kafka.Transport
}

// generation is what a member has joined.
type generation struct {
	id         int32
	partitions []int
}

const (
	// joinBackoff is between two attempts of one member to join, doubling up to mostJoinBackoff.
	joinBackoff     = 250 * time.Millisecond
	mostJoinBackoff = 2 * time.Second
	// leaveTimeout bounds how long leaving may take when the coordinator does not answer; the member then ends with its session
	// timeout.
	leaveTimeout = 3 * time.Second
	// joinMargin is how much longer than the rebalance itself an answer to a join may take.
	joinMargin = 5 * time.Second
)

// errTakenOver says that another process has joined with the same instance id.
var errTakenOver = errors.New("another process has joined with the same instance id")

func (g *kafkaGroup) newMember() *member {
	k, dials := g.k, newDials()
	m := &member{g: g, dials: dials, id: identity{group: g.id, instance: g.instance}}
	m.transport = &kafka.Transport{
		Dial: dials.dial, DialTimeout: 5 * time.Second, MetadataTTL: k.cfg.MetadataTTL, ClientID: clientID, TLS: k.cfg.TLS, SASL: k.mechanism,
	}
	return m
}

// close ends the member's connections, with what still waits for an answer on them.
func (m *member) close() {
	m.transport.CloseIdleConnections()
	m.dials.close()
}

// ask sends one request to the coordinator. The deadline frees the connection when ctx is cancelled before the answer comes.
func (m *member) ask(ctx context.Context, timeout time.Duration, r *groupRequest) (*groupAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := m.transport.RoundTrip(ctx, m.g.k.addr, r)
	if err != nil {
		return nil, err
	}
	a, ok := answer.(*groupAnswer)
	if !ok {
		return nil, fmt.Errorf("%s: unexpected answer %T", r.key, answer)
	}
	return a, nil
}

func (m *member) requestTimeout() time.Duration {
	return min(m.g.k.cfg.RequestTimeout, m.g.opts.SessionTimeout/2)
}

// run takes part in generations until ctx is done, a session returns an error, or another process has taken the member's place.
func (m *member) run(ctx context.Context, session func(context.Context, ingest.Assignment) error) error {
	var trouble retry.Trouble
	wait := retry.NewBackoff(joinBackoff, mostJoinBackoff)
	log := m.g.k.log
	for {
		gen, err := m.join(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, kafka.FencedInstanceID):
			return errTakenOver
		case err == nil:
			trouble.Over(log, "joined the consumer group", "group", m.g.id)
			wait.Reset()
			if err := m.serve(ctx, gen, session); err != nil {
				return err
			}
			continue
		case coordinating(err):
			log.Debug("consumer group is not ready", "group", m.g.id, "error", err)
		default:
			trouble.Failed(log, "cannot join the consumer group, trying again", err, "group", m.g.id)
		}
		if wait.Wait(ctx) != nil {
			return ctx.Err()
		}
	}
}

// coordinating says that a group is moving, loading or rebalancing.
func coordinating(err error) bool {
	for _, code := range []kafka.Error{
		kafka.GroupCoordinatorNotAvailable, kafka.GroupLoadInProgress, kafka.NotCoordinatorForGroup, kafka.RebalanceInProgress,
		kafka.UnknownMemberId, kafka.IllegalGeneration,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// join takes part in the next rebalance and returns what came of it. An error leaves the member what it was, unless the coordinator does
// not know it any more.
func (m *member) join(ctx context.Context) (generation, error) {
	j, err := m.joinGroup(ctx)
	if errors.Is(err, kafka.UnknownMemberId) { // it was away for longer than its session
		m.id.member = ""
		j, err = m.joinGroup(ctx)
	}
	if errors.Is(err, kafka.MemberIDRequired) {
		m.id.member = j.memberID // so that a join whose answer is lost leaves nobody behind (KIP-394)
		j, err = m.joinGroup(ctx)
	}
	if err == nil {
		m.id.member = j.memberID
		var partitions []int
		if partitions, err = m.syncGroup(ctx, j); err == nil {
			return generation{id: j.generation, partitions: partitions}, nil
		}
	}
	if errors.Is(err, kafka.UnknownMemberId) {
		m.id.member = ""
	}
	return generation{}, err
}

func (m *member) joinGroup(ctx context.Context) (joined, error) {
	last, err := m.g.sticky.UserData()
	if err != nil {
		return joined{}, err
	}
	a, err := m.ask(ctx, rebalanceTimeout+m.g.opts.SessionTimeout+joinMargin, joining{
		identity: m.id, sessionMS: int32(m.g.opts.SessionTimeout.Milliseconds()), rebalanceMS: int32(rebalanceTimeout.Milliseconds()),
		// Range is for the time in which older processes run beside this one: they know no other way.
		protocols: []groupProtocol{
			{m.g.sticky.ProtocolName(), appendMetadata(m.g.topic, last)},
			{kafka.RangeGroupBalancer{}.ProtocolName(), appendMetadata(m.g.topic, nil)},
		},
	}.request())
	if err != nil {
		return joined{}, err
	}
	return readJoined(a)
}

// syncGroup hands in the assignments, where this member was made the leader, and returns its own.
//
// A static member that comes back is told the leader's id from before, also where it was the leader itself: the generation
// goes on, with the assignments that the coordinator has (GroupCoordinator.updateStaticMemberAndRebalance).
func (m *member) syncGroup(ctx context.Context, j joined) ([]int, error) {
	s := syncing{identity: m.id, generation: j.generation}
	if j.leader == j.memberID {
		n, err := m.g.k.Partitions(ctx, m.g.topic)
		if err != nil {
			return nil, fmt.Errorf("sharing out the partitions of group %s: %w", m.g.id, err)
		}
		m.g.known = n
		all := make([]kafka.Partition, n)
		for p := range all {
			all[p] = kafka.Partition{Topic: m.g.topic, ID: p}
		}
		s.assignments = m.g.balancer(j.protocol).AssignGroups(j.members, all)
	}
	a, err := m.ask(ctx, rebalanceTimeout+joinMargin, s.request())
	if err != nil {
		return nil, err
	}
	partitions, err := readSynced(a, m.g.topic)
	slices.Sort(partitions)
	return partitions, err
}

// balancer is the way of sharing that the coordinator has chosen among those that all members know.
func (g *kafkaGroup) balancer(protocol string) kafka.GroupBalancer {
	if protocol == g.sticky.ProtocolName() {
		return g.sticky
	}
	return kafka.RangeGroupBalancer{}
}

// serve runs one session. It returns nil when the member is to join the next generation.
func (m *member) serve(ctx context.Context, gen generation, session func(context.Context, ingest.Assignment) error) error {
	g := m.g
	sessionCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	beating, still := context.WithCancel(context.WithoutCancel(ctx))
	defer still()
	var watching sync.WaitGroup
	watching.Go(func() { g.awaitGrowth(sessionCtx, cancel) })
	var over error
	watching.Go(func() { over = m.beat(beating, gen.id, cancel) })
	a := ingest.Assignment{
		Generation: int(gen.id), Member: m.id.member, Partitions: gen.partitions,
		Commits: &memberCommits{groupCommits{g.k, g.id, g.topic}, int(gen.id), m.id.member},
	}
	g.sticky.remember(a.Generation, a.Partitions)
	g.k.metrics.generations.WithLabelValues(g.id).Inc()
	g.k.log.Info("consumer group generation", "group", g.id, "generation", a.Generation, "member", a.Member, "partitions", a.Partitions)
	err := session(sessionCtx, a)
	cancel()
	still()
	watching.Wait()
	switch {
	case errors.Is(over, kafka.FencedInstanceID):
		return errTakenOver
	case err != nil:
		return err
	}
	return ctx.Err()
}

// beat tells the coordinator that this member is alive, until ctx is done, and calls end when its generation is over. It goes on
// after that: a session that takes its time to end is alive, too. It returns the answer that says that the member is none any more.
//
// An answer that does not come, or a coordinator that moves, is no reason to leave: the member is in the group for its session
// timeout, and the next coordinator has read of it. After that, only a join can tell.
func (m *member) beat(ctx context.Context, generation int32, end func()) error {
	var trouble retry.Trouble
	heard := time.Now()
	for retry.Sleep(ctx, m.g.opts.Heartbeat) == nil {
		a, err := m.ask(ctx, m.requestTimeout(), m.id.heartbeat(generation))
		if err == nil {
			err = readOutcome(a)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			heard = time.Now()
			trouble.Over(m.g.k.log, "heartbeats are answered again", "group", m.g.id)
		case errors.Is(err, kafka.RebalanceInProgress):
			heard = time.Now()
			end()
		case errors.Is(err, kafka.UnknownMemberId), errors.Is(err, kafka.IllegalGeneration), errors.Is(err, kafka.FencedInstanceID):
			end()
			return err
		default:
			trouble.Failed(m.g.k.log, "heartbeat has no answer", err, "group", m.g.id)
			if time.Since(heard) > m.g.opts.SessionTimeout {
				end()
			}
		}
	}
	return nil
}

// leave sends LeaveGroup, so that the coordinator refuses what the member sent and is still on its way, and others need not wait for
// its session timeout. It returns errTakenOver where the place in the group is another process's by now: nothing else would tell a session that
// has failed before the next heartbeat.
func (m *member) leave() error {
	if m.id.member == "" {
		return nil
	}
	a, err := m.ask(context.Background(), leaveTimeout, m.id.leaving())
	if err == nil {
		err = readOutcome(a)
	}
	switch {
	case errors.Is(err, kafka.FencedInstanceID):
		return errTakenOver
	case err != nil && !errors.Is(err, kafka.UnknownMemberId):
		m.g.k.log.Warn("left the consumer group without an answer; its partitions are shared out after the session timeout",
			"group", m.g.id, "session_timeout", m.g.opts.SessionTimeout, "error", err)
	}
	return nil
}
