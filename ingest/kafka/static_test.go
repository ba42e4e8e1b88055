package kafka_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/kafkakit"
)

// A process that is killed says nothing, and its successor has the partitions at once, in the same generation, while the member beside
// it works on. What the killed one has sent and is still on its way is refused.
func TestStaticMemberComesBack(t *testing.T) {
	if !onRealKafka() {
		return // the embedded one has a rebalance when what a member says of itself has changed
	}
	kit := kafkakit.New(t)
	topic := kit.Topic(4)
	b := startInstance(kit, kit.Client(), topic, "two")
	go b.next(4).giveBack()
	killed := kit.Silence(topic, topic, "one", 4)
	sb := b.next(2)
	a := startInstance(kit, kit.Client(), topic, "one")
	back := a.next(2)
	if !slices.Equal(back.Partitions, killed.Partitions) || back.Member == killed.Member {
		t.Errorf("came back as %+v, was %+v: want the same partitions, and another member", back.Assignment, killed)
	}
	if back.Generation != int(killed.Generation) {
		t.Errorf("came back in generation %d, want that of before, %d: somebody was waited for", back.Generation, killed.Generation)
	}
	if sb.Generation != back.Generation || sb.ctx.Err() != nil {
		t.Errorf("the session of the member beside it, of generation %d, has ended: %v", sb.Generation, context.Cause(sb.ctx))
	}
	if err := killed.Commit(topic, killed.Partitions[0], 1); !errors.Is(err, kerr.UnknownMemberID) && !errors.Is(err, kerr.FencedInstanceID) {
		t.Errorf("the commit of the one that was killed: %v, want it refused", err)
	}
	if err := back.Commits.Commit(kit.Ctx, map[int]ingest.Commit{back.Partitions[0]: {Offset: 1}}); err != nil {
		t.Errorf("the commit of its successor: %v", err)
	}
	a.leave(back) // in good order: the other need not wait for a timeout either
	if err := ended(sb); err != nil {
		t.Fatal(err)
	}
	sb.end <- nil
	b.leave(b.next(4))
}

// The member that Kafka has made the group's leader comes back like the others, and shares out what is added afterwards.
func TestStaticLeaderComesBack(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2)
	killed := kit.Silence(topic, topic, "one", 2)
	a := startInstance(kit, kit.Client(), topic, "one")
	back := a.next(2)
	if onRealKafka() && back.Generation != int(killed.Generation) {
		t.Errorf("generation %d, before %d: a group whose only member comes back goes on", back.Generation, killed.Generation)
	}
	kit.Grow(topic, 3)
	if err := ended(back); err != nil {
		t.Fatal(err)
	}
	back.end <- nil
	a.leave(a.next(3))
}

// Two processes with one instance id: the older one is fenced, hears of it, and goes on as a member without an id. The newer
// one keeps its place, however long both run.
func TestTwoWithOneInstance(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2)
	a := startInstance(kit, kit.Client(), topic, "same")
	first := a.next(2)
	b := startInstance(kit, kit.Client(), topic, "same")
	took := b.next(2)
	if err := first.Commits.Commit(kit.Ctx, map[int]ingest.Commit{0: {Offset: 7}}); !errors.Is(err, ingest.ErrGenerationOver) {
		t.Errorf("the commit of the older one: %v, want it refused", err)
	}
	if err := ended(first); err != nil {
		t.Fatal(err)
	}
	first.end <- nil
	if err := ended(took); err != nil { // the older one joins beside it
		t.Fatal(err)
	}
	took.end <- nil
	sa, sb := bothNext(a, b, 1)
	if sb.Member != took.Member {
		t.Errorf("the newer one is member %q now, was %q: it was thrown out", sb.Member, took.Member)
	}
	if got := testutil.ToFloat64(kit.Counter(t, "weir_kafka_group_fenced_total")); got != 1 {
		t.Errorf("the older one was fenced %v times, want once", got)
	}
	a.leave(sa)
	b.leave(sb)
}

// A session that fails before a heartbeat could tell that its place was taken: the member must not take it back.
func TestFencedBeforeAHeartbeat(t *testing.T) {
	if !onRealKafka() {
		return // the embedded one lets anybody leave for an instance
	}
	kit := kafkakit.New(t)
	topic := kit.Topic(1)
	a := startInstance(kit, kit.Client(), topic, "same")
	first := a.next(1)
	b := startInstance(kit, kit.Client(), topic, "same")
	took := b.next(1)
	first.end <- ingest.ErrRejoin
	if err := ended(took); err != nil {
		t.Fatal(err)
	}
	took.end <- nil
	for {
		var s testSession
		select {
		case s = <-b.sessions:
		case s = <-a.sessions:
			go s.giveBack()
			continue
		case <-time.After(patience):
			t.Fatal("the newer one has no session any more")
		}
		if s.Member != took.Member {
			t.Errorf("the newer one is member %q now, was %q: it was thrown out", s.Member, took.Member)
		}
		b.leave(s)
		return
	}
}

// Heartbeats that have no answer, and a coordinator that moves, do not end a session: the next coordinator has read who is in the group.
func TestHeartbeatsWithoutAnswer(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 1)
	topic := kit.Topic(1)
	m := startMember(kit, kit.K, topic, topic)
	s := m.next(1)
	heartbeats := make(chan struct{}, 100)
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: topic, Err: kerr.NotCoordinator, Count: -1})
	cluster.ControlKey(int16(kmsg.Heartbeat), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		select {
		case heartbeats <- struct{}{}:
		default:
		}
		return nil, nil, false
	})
	for range 5 {
		select {
		case <-heartbeats:
		case <-s.ctx.Done():
			t.Fatal("the session ended with the first heartbeat that had no answer")
		case <-time.After(patience):
			t.Fatal("no heartbeat comes any more")
		}
	}
	fault.Remove()
	if err := s.ctx.Err(); err != nil {
		t.Error("the session has ended")
	}
	if err := s.Commits.Commit(kit.Ctx, map[int]ingest.Commit{0: {Offset: 3}}); err != nil {
		t.Errorf("the commit afterwards: %v", err)
	}
	m.leave(s)
}
