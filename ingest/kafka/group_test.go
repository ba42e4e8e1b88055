package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/internal/testbed"
)

// testMember runs a group membership whose sessions the test conducts.
type testMember struct {
	t        *testing.T
	sessions chan testSession
	stop     context.CancelFunc
	left     chan error
	running  atomic.Int32
}

// testSession is one running session; it ends when the test puts something into end.
type testSession struct {
	ingest.Assignment
	ctx context.Context
	end chan error
}

func startMember(kit *kafkakit.Kit, k *kafka.Client, id, topic string) *testMember {
	kit.T.Helper()
	return startOptions(kit, k, id, topic, kafkakit.GroupOptions())
}

// startInstance runs a static member of a group that is named as its topic.
func startInstance(kit *kafkakit.Kit, k *kafka.Client, topic, instance string) *testMember {
	kit.T.Helper()
	opts := kafkakit.GroupOptions()
	opts.Instance, opts.LookEvery = instance, 100*time.Millisecond
	return startOptions(kit, k, topic, topic, opts)
}

func startOptions(kit *kafkakit.Kit, k *kafka.Client, id, topic string, opts kafka.GroupOptions) *testMember {
	kit.T.Helper()
	ctx, cancel := context.WithCancel(kit.Ctx)
	m := &testMember{t: kit.T.(*testing.T), sessions: make(chan testSession, 100), stop: cancel, left: make(chan error, 1)}
	group := k.Group(id, topic, opts)
	over := make(chan struct{})
	go func() {
		m.left <- group.Run(ctx, func(ctx context.Context, a ingest.Assignment) error {
			if m.running.Add(1) != 1 {
				m.t.Error("two sessions of one member at the same time")
			}
			defer m.running.Add(-1)
			s := testSession{Assignment: a, ctx: ctx, end: make(chan error, 1)}
			m.sessions <- s
			select {
			case err := <-s.end:
				return err
			case <-over:
				return nil
			}
		})
	}()
	kit.T.Cleanup(func() { // also when the test has failed in the middle
		cancel()
		close(over)
		<-m.left
	})
	return m
}

// next waits for a session with as many partitions, ending those before with nil when their generation is over.
func (m *testMember) next(partitions int) testSession {
	m.t.Helper()
	for {
		select {
		case s := <-m.sessions:
			if len(s.Partitions) == partitions {
				return s
			}
			go s.giveBack()
		case <-time.After(patience):
			m.t.Fatalf("no session with %d partitions", partitions)
		}
	}
}

// giveBack ends the session when it is over.
func (s testSession) giveBack() {
	<-s.ctx.Done()
	s.end <- nil
}

// bothNext waits for a generation in which both members have so many partitions. What was before it is given back: a member
// that keeps its session keeps the other from joining.
func bothNext(a, b *testMember, partitions int) (sa, sb testSession) {
	a.t.Helper()
	for sa.end == nil || sb.end == nil {
		mine, other := &sa, &sb
		var s testSession
		select {
		case s = <-a.sessions:
		case s = <-b.sessions:
			mine, other = &sb, &sa
		case <-time.After(patience):
			a.t.Fatalf("no generation in which both have %d partitions", partitions)
		}
		switch {
		case len(s.Partitions) != partitions:
			go s.giveBack()
			continue
		case other.end != nil && other.Generation < s.Generation:
			go other.giveBack()
			*other = testSession{}
		case other.end != nil && other.Generation > s.Generation:
			go s.giveBack()
			continue
		}
		if mine.end != nil {
			go mine.giveBack()
		}
		*mine = s
	}
	return sa, sb
}

func (m *testMember) leave(s testSession) {
	m.t.Helper()
	m.stop()
	s.end <- nil
	select {
	case err := <-m.left:
		if err != nil {
			m.t.Errorf("Run returned %v", err)
		}
		m.left <- err
	case <-time.After(patience):
		m.t.Fatal("the member does not leave")
	}
}

// members is how many members Kafka counts in a group.
func members(kit *kafkakit.Kit, group string) int {
	kit.T.Helper()
	answer, err := kit.K.Raw().DescribeGroups(kit.Ctx, &kafkago.DescribeGroupsRequest{GroupIDs: []string{group}})
	if err != nil || len(answer.Groups) != 1 || answer.Groups[0].Error != nil {
		kit.T.Fatalf("describing group %s: %+v, %v", group, answer, err)
	}
	return len(answer.Groups[0].Members)
}

func ended(s testSession) error {
	select {
	case <-s.ctx.Done():
		return nil
	case <-time.After(patience):
		return errors.New("the session goes on")
	}
}

// Partitions that are added while members work are given to them, and each time.
func TestGroupSharesAddedPartitions(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2)
	ctx, cancel := context.WithCancel(kit.Ctx)
	var mu sync.Mutex
	var given [2][]int
	var running sync.WaitGroup
	for i := range given {
		membership := kafkakit.GroupOptions()
		membership.LookEvery = 100 * time.Millisecond
		group := kit.Client().Group(topic, topic, membership)
		running.Go(func() {
			err := group.Run(ctx, func(ctx context.Context, a ingest.Assignment) error {
				mu.Lock()
				given[i] = a.Partitions
				mu.Unlock()
				<-ctx.Done()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for _, n := range []int{2, 4, 6} {
		if n > 2 {
			kit.Grow(topic, n)
		}
		testbed.Eventually(t, 2*time.Minute, func() error {
			mu.Lock()
			defer mu.Unlock()
			all := slices.Sorted(slices.Values(slices.Concat(given[0], given[1])))
			if len(given[0]) != n/2 || !slices.Equal(all, ingest.AllPartitions(n)) {
				return fmt.Errorf("of %d partitions, %v are given", n, given)
			}
			return nil
		})
	}
	cancel()
	running.Wait()
}

func TestGroupSharesPartitions(t *testing.T) {
	kit := kafkakit.New(t)
	// A machine that stands still for longer than a rebalance waits has its member thrown out, who then comes as another one.
	for range 3 {
		if sharesPartitions(t, kit) {
			return
		}
	}
	t.Error("whenever another member comes, the first one comes back with another id")
}

// sharesPartitions has a member come to a group, and leave it, and says whether the first one was the same all the time.
func sharesPartitions(t *testing.T, kit *kafkakit.Kit) (same bool) {
	t.Helper()
	topic := kit.Topic(4)
	a := startMember(kit, kit.K, topic, topic)
	first := a.next(4)
	if !slices.Equal(first.Partitions, []int{0, 1, 2, 3}) || first.Member == "" {
		t.Fatalf("assignment %+v", first.Assignment)
	}
	b := startMember(kit, kit.Client(), topic, topic)
	if err := ended(first); err != nil {
		t.Fatal(err)
	}
	// The session is over but has not returned: the member must not have another one yet.
	select {
	case s := <-a.sessions:
		t.Fatalf("session %+v began before the one before had returned", s.Assignment)
	case <-time.After(300 * time.Millisecond):
	}
	first.end <- nil
	sa, sb := bothNext(a, b, 2)
	if both := slices.Concat(sa.Partitions, sb.Partitions); len(both) != 4 || sa.Generation != sb.Generation || sa.Generation <= first.Generation {
		t.Errorf("%+v and %+v after generation %d", sa.Assignment, sb.Assignment, first.Generation)
	}
	if sb.Member == sa.Member {
		t.Errorf("both are member %q", sa.Member)
	}
	b.leave(sb)
	if left := members(kit, topic); left != 1 {
		t.Errorf("%d members, want one: the other did not say that it leaves", left)
	}
	if err := ended(sa); err != nil {
		t.Fatal(err)
	}
	sa.end <- nil
	last := a.next(4)
	a.leave(last)
	return sa.Member == first.Member && last.Member == first.Member
}

func TestGroupErrorMakesNewMember(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(1)
	m := startMember(kit, kit.K, topic, topic)
	first := m.next(1)
	first.end <- nil // the generation is given back, the membership not
	second := m.next(1)
	if second.Member != first.Member || second.Generation <= first.Generation {
		t.Errorf("after nil: %+v, before %+v", second.Assignment, first.Assignment)
	}
	second.end <- fmt.Errorf("no answer: %w", ingest.ErrRejoin)
	third := m.next(1)
	if third.Member == second.Member || third.Generation <= second.Generation {
		t.Errorf("after an error: %+v, before %+v", third.Assignment, second.Assignment)
	}
	if err := second.Commits.Commit(kit.Ctx, map[int]ingest.Commit{0: {Offset: 1}}); !errors.Is(err, ingest.ErrGenerationOver) {
		t.Errorf("the old member's commit: %v, want it refused", err)
	}
	if err := third.Commits.Commit(kit.Ctx, map[int]ingest.Commit{0: {Offset: 2}}); err != nil {
		t.Errorf("the new member's commit: %v", err)
	}
	m.leave(third)
}

func TestGroupCommits(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(4)
	group := topic + ".group"
	metadata := strings.Repeat("m", ingest.MaxCommitMetadata)
	initial := map[int]ingest.Commit{0: {Offset: 5, Metadata: "initial"}, 1: {Offset: 0}}
	if err := kit.K.CommitInitial(kit.Ctx, group, topic, initial); err != nil {
		t.Fatal(err)
	}
	if got, err := kit.K.FetchCommits(kit.Ctx, group, topic, []int{0, 1, 2}); err != nil || !maps.Equal(got, initial) {
		t.Fatalf("got %v, %v, want %v", got, err, initial)
	}
	a := startMember(kit, kit.K, group, topic)
	first := a.next(4)
	if got, err := first.Commits.Fetch(kit.Ctx, []int{0, 2}); err != nil || !maps.Equal(got, map[int]ingest.Commit{0: initial[0]}) {
		t.Errorf("got %v, %v", got, err)
	}
	for i := range int64(20) { // each is seen by the next look, also from elsewhere
		want := map[int]ingest.Commit{0: {Offset: 10 + i, Metadata: metadata}, 2: {Offset: i, Metadata: fmt.Sprint(i)}}
		if err := first.Commits.Commit(kit.Ctx, want); err != nil {
			t.Fatal(err)
		}
		if got, err := kit.K.FetchCommits(kit.Ctx, group, topic, []int{0, 2}); err != nil || !maps.Equal(got, want) {
			t.Fatalf("got %v, %v", got, err)
		}
	}
	if err := first.Commits.Commit(kit.Ctx, map[int]ingest.Commit{1: {Offset: 1, Metadata: metadata + "m"}}); onRealKafka() &&
		(err == nil || errors.Is(err, ingest.ErrGenerationOver) || !strings.Contains(err.Error(), "offset.metadata.max.bytes")) {
		t.Errorf("a byte too much of metadata: %v", err)
	}
	if err := kit.K.CommitInitial(kit.Ctx, group, topic, initial); err == nil || !strings.Contains(err.Error(), "stop them first") {
		t.Errorf("an initial commit beside a running member: %v", err)
	}
	// The zombie: its generation is over, it does not know yet.
	b := startMember(kit, kit.Client(), group, topic)
	if err := ended(first); err != nil {
		t.Fatal(err)
	}
	first.end <- nil
	sa, sb := bothNext(a, b, 2)
	before, err := kit.K.FetchCommits(kit.Ctx, group, topic, []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Commits.Commit(kit.Ctx, map[int]ingest.Commit{0: {Offset: 999}}); !errors.Is(err, ingest.ErrGenerationOver) {
		t.Errorf("the zombie's commit: %v, want it refused", err)
	}
	if after, err := kit.K.FetchCommits(kit.Ctx, group, topic, []int{0, 1, 2}); err != nil || !maps.Equal(before, after) {
		t.Errorf("the zombie changed %v to %v, %v", before, after, err)
	}
	b.leave(sb)
	sa.end <- nil
	a.leave(a.next(4))
	if err := sa.Commits.Commit(kit.Ctx, map[int]ingest.Commit{0: {Offset: 999}}); !errors.Is(err, ingest.ErrGenerationOver) {
		t.Errorf("the commit of a member that has left: %v, want it refused", err)
	}
}

// A coordinator that is moving or loading is waited for.
func TestGroupCoordinatorAway(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 1)
	topic := kit.Topic(1)
	cluster.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, Group: topic, Err: kerr.CoordinatorNotAvailable, Count: 2},
		kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Group: topic, Err: kerr.CoordinatorLoadInProgress},
		kfake.Fault{Keys: []kmsg.Key{kmsg.SyncGroup}, Group: topic, Err: kerr.NotCoordinator},
	)
	m := startMember(kit, kit.K, topic, topic)
	s := m.next(1)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: topic, Err: kerr.CoordinatorLoadInProgress, Count: 2})
	if err := s.Commits.Commit(kit.Ctx, map[int]ingest.Commit{0: {Offset: 3}}); err != nil {
		t.Errorf("a commit while the group is loaded: %v", err)
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Group: topic, Err: kerr.CoordinatorLoadInProgress, Count: 2})
	if got, err := s.Commits.Fetch(kit.Ctx, []int{0}); err != nil || got[0].Offset != 3 {
		t.Errorf("got %v, %v", got, err)
	}
	// After these the commit may have been stored or not.
	for _, code := range []*kerr.Error{kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.RequestTimedOut} {
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: topic, Err: code})
		if err := s.Commits.Commit(kit.Ctx, map[int]ingest.Commit{0: {Offset: 4}}); err == nil || errors.Is(err, ingest.ErrGenerationOver) {
			t.Errorf("%s: %v, want an unknown outcome", code.Message, err)
		}
	}
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errors.New("cut"), true })
	if err := s.Commits.Commit(kit.Ctx, map[int]ingest.Commit{0: {Offset: 5}}); err == nil || errors.Is(err, ingest.ErrGenerationOver) {
		t.Errorf("a cut connection: %v, want an unknown outcome", err)
	}
	m.leave(s)
}

// A member that the coordinator has thrown out learns it by its commit, and joins again.
func TestGroupThrownOut(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 1)
	topic := kit.Topic(1)
	m := startMember(kit, kit.K, topic, topic)
	s := m.next(1)
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit, kmsg.Heartbeat}, Group: topic, Err: kerr.UnknownMemberID, Count: -1})
	if err := s.Commits.Commit(kit.Ctx, map[int]ingest.Commit{0: {Offset: 3}}); !errors.Is(err, ingest.ErrGenerationOver) {
		t.Errorf("the commit: %v, want it refused", err)
	}
	if err := ended(s); err != nil {
		t.Error(err)
	}
	fault.Remove()
	s.end <- nil
	m.leave(m.next(1))
}

func TestGroupWaitsForTopic(t *testing.T) {
	kit := kafkakit.New(t)
	spec := ingest.TopicSpec{Name: testbed.Namespace(t) + ".late", Partitions: 2, MaxMessageBytes: 1 << 20}
	m := startMember(kit, kit.K, spec.Name, spec.Name)
	select {
	case s := <-m.sessions:
		t.Fatalf("session %+v without a topic", s.Assignment)
	case <-time.After(200 * time.Millisecond):
	}
	if _, err := kit.Client().EnsureTopics(kit.Ctx, []ingest.TopicSpec{spec}); err != nil {
		t.Fatal(err)
	}
	m.leave(m.next(2))
}

// Close of the client ends a membership that nobody stopped.
func TestGroupEndsWithClient(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(1)
	k := kit.Client()
	var once sync.Once
	joined := make(chan struct{})
	left := make(chan error, 1)
	go func() {
		left <- k.Group(topic, topic, kafka.GroupOptions{}).Run(kit.Ctx, func(ctx context.Context, _ ingest.Assignment) error {
			once.Do(func() { close(joined) })
			<-ctx.Done()
			return nil
		})
	}()
	<-joined
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
}
