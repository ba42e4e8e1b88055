package blocklist

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// client is one whose block lies on a certain master.
type client struct {
	id      traffic.Identity
	subject traffic.Subject
}

// clientsOn finds n clients of a net whose blocks lie on the master at an address. Where countedOn is given, their address is
// counted on the master there.
func (s *stage) clientsOn(net string, n int, address, countedOn string) []client {
	s.t.Helper()
	var found []client
	for at := netip.MustParseAddr(net); len(found) < n; at = at.Next() {
		who := "ip=" + at.String() + "%2F32"
		c := client{traffic.Identity{IP: at, Device: "tv-7"}, traffic.Subject(who + "&device=tv-7")}
		on, err := s.store.masterOf(s.t.Context(), s.store.keys.Block(c.subject, floodRule))
		if err != nil {
			s.t.Fatal(err)
		}
		counted, err := s.store.masterOf(s.t.Context(), s.store.keys.Crowd(traffic.Subject(who), floodRule, 1))
		if err != nil {
			s.t.Fatal(err)
		}
		if on == address && (countedOn == "" || counted == countedOn) {
			found = append(found, c)
		}
	}
	return found
}

// raising is a hit of each client.
func (s *stage) raising(phase detectors.Phase, clients ...client) []traffic.Message {
	var hits []detectors.Hit
	for _, c := range clients {
		hits = append(hits, s.hit(func(h *detectors.Hit) {
			h.ID, h.Phase, h.Subject, h.BlockSubject = fmt.Sprintf("%032x", c.id.IP.As4()), phase, c.subject, c.subject
		}))
	}
	return s.messages(hits...)
}

func (s *stage) releasing(c client) []traffic.Message {
	s.t.Helper()
	h, err := NewRelease(c.subject, floodRule, "ops", "false alarm", s.clock.now())
	if err != nil {
		s.t.Fatal(err)
	}
	return s.messages(h)
}

// spread puts records into three partitions.
func spread(batches ...[]traffic.Message) []traffic.Message {
	var all []traffic.Message
	for _, b := range batches {
		for _, m := range b {
			m.Partition = int(m.Offset % 3)
			all = append(all, m)
		}
	}
	return all
}

// decided counts, in words, the decisions since the first n.
func (l *decisionLog) decided(n int) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	words := map[string]int{}
	for i := range l.all[n:] {
		d := &l.all[n+i]
		words[string(d.Action)+" "+withheldReason(d)]++
	}
	return words
}

func (l *decisionLog) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// reconciled is a reconciler of what has been decided, which looks often and does not sweep while a test goes on.
func (s *stage) reconciled(t *testing.T) *Reconciler {
	t.Helper()
	r := s.sweeper(t, s.log)
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func eventuallyIs(t testing.TB, what string, r *Replica, s *stage, c client, want bool) {
	t.Helper()
	testbed.Eventually(t, 10*time.Second, func() error {
		if _, held := r.Find(c.id, "POST", "/v1/guest-tokens", s.clock.now()); held != want {
			return fmt.Errorf("%s: held is %v, want %v", what, held, want)
		}
		return nil
	})
}

// goneFromRedis waits until a tombstone stands, and no block.
func (s *stage) goneFromRedis(c client) {
	s.t.Helper()
	testbed.Eventually(s.t, 20*time.Second, func() error {
		b, tomb, err := s.store.Get(s.t.Context(), c.subject, floodRule)
		if err == nil && (b != nil || tomb == nil) {
			err = fmt.Errorf("block %+v, tombstone %+v", b, tomb)
		}
		return err
	})
}

// blocksWithTheNextUpdate applies updates of an episode until it is in Redis and told.
func (s *stage) blocksWithTheNextUpdate(c client) {
	s.t.Helper()
	begin := s.log.len()
	testbed.Eventually(s.t, 20*time.Second, func() error {
		s.applyMessages(s.raising(detectors.PhaseUpdate, c))
		if got := s.log.decided(begin); got["written "]+got["extended "] == 0 {
			return fmt.Errorf("decisions: %v", got)
		}
		return nil
	})
	if b, _, err := s.store.Get(s.t.Context(), c.subject, floodRule); err != nil || b == nil {
		s.t.Errorf("block %+v, %v", b, err)
	}
}

// With a master of a cluster away, what is to be blocked there is withheld, and nothing waits for it: releases behind a thousand of
// those act at a gate within a second, wherever their blocks lie, batch after batch. When the master answers again the
// tombstones are put, and who is over still is blocked.
func TestReleaseActsWithAMasterAway(t *testing.T) {
	for which := 1; which <= 2; which++ {
		t.Run(fmt.Sprint("master ", which), func(t *testing.T) {
			s, nodes := clusterOfItsOwn(t)
			dead, live := nodes[which], nodes[3-which]
			s.publishModes()
			onLive, onDead := s.clientsOn("10.1.0.0", 8, live.Addr, ""), s.clientsOn("10.2.0.0", 8, dead.Addr, "")
			s.applyMessages(spread(s.raising(detectors.PhaseOpen, onLive[:7]...), s.raising(detectors.PhaseOpen, onDead[:7]...)))
			rec := s.reconciled(t)
			r := s.replica(t)
			for i := range 7 {
				eventuallyIs(t, "before", r, s, onLive[i], true)
				eventuallyIs(t, "before", r, s, onDead[i], true)
			}
			dead.Freeze()
			run(t, rec.Run)

			withheld := s.clientsOn("10.3.0.0", 6000, dead.Addr, "")
			for round := range 6 {
				s.clock.add(time.Millisecond)
				begin := s.log.len()
				batch := spread(s.raising(detectors.PhaseOpen, withheld[1000*round:1000*(round+1)]...),
					s.releasing(onLive[round]), s.releasing(onDead[round]))
				if round == 0 {
					batch = append(batch, spread(s.raising(detectors.PhaseOpen, onLive[7]))...)
				}
				withinASecond(t, fmt.Sprint("releases of round ", round), func() {
					s.applyMessages(batch)
					eventuallyIs(t, "released on the master that answers", r, s, onLive[round], false)
					eventuallyIs(t, "released on the master that is away", r, s, onDead[round], false)
				})
				got := s.log.decided(begin)
				if got["withheld unreachable"] != 1000 || got["released "] != 2 || len(got) != 2+min(1, got["written "]) {
					t.Errorf("round %d: decisions %v", round, got)
				}
			}
			eventuallyIs(t, "blocked on the master that answers", r, s, onLive[7], true)
			if got := testutil.ToFloat64(s.metrics.decisions.WithLabelValues("withheld", ReasonUnreachable)); got != 6000 {
				t.Errorf("the metric counts %v withheld, want 6000", got)
			}
			if got := testutil.ToFloat64(s.metrics.unwritten); got != 6 {
				t.Errorf("the metric counts %v releases without a tombstone, want 6", got)
			}
			if got := testutil.ToFloat64(s.metrics.failures); got != 0 {
				t.Errorf("%v batches failed", got)
			}

			dead.Thaw()
			for round := range 6 {
				s.goneFromRedis(onDead[round])
			}
			s.blocksWithTheNextUpdate(withheld[5000])
			eventuallyIs(t, "a client that was withheld", r, s, withheld[5000], true)
			fresh := s.replica(t) // it knows what Redis knows
			for round := range 6 {
				eventuallyIs(t, "released", r, s, onDead[round], false)
				eventuallyIs(t, "released, at a gate that starts", fresh, s, onDead[round], false)
			}
			eventuallyIs(t, "never released", fresh, s, onDead[6], true)
			eventuallyIs(t, "withheld once", fresh, s, withheld[5000], true)
		})
	}
}

// A master that is away so shortly that the reconciler never sees it, and ENFORCE does: its return is a cause to assert.
func TestTombstoneIsPutAfterAShortAbsence(t *testing.T) {
	s, nodes := clusterOfItsOwn(t)
	dead := nodes[1]
	on := s.clientsOn("10.2.0.0", 3, dead.Addr, "")
	s.applyMessages(s.raising(detectors.PhaseOpen, on[0]))
	rec := s.reconciled(t)
	runs := func() float64 { return testutil.ToFloat64(rec.metrics.runs.WithLabelValues(causeReturn)) }
	if err := rec.Check(t.Context()); err != nil || runs() != 0 {
		t.Fatalf("%v returns, %v", runs(), err)
	}
	dead.Freeze()
	s.applyMessages(s.raising(detectors.PhaseOpen, on[1])) // what it was asked first it does when it goes on, the release not
	s.applyMessages(s.releasing(on[0]))
	dead.Thaw()
	testbed.Eventually(t, 10*time.Second, func() error {
		if err := rec.Check(t.Context()); err != nil {
			return err
		}
		if runs() != 1 {
			return fmt.Errorf("%v rounds after a return", runs())
		}
		return nil
	})
	if b, tomb, err := s.store.Get(t.Context(), on[0].subject, floodRule); err != nil || b != nil || tomb == nil {
		t.Errorf("block %+v, tombstone %+v, %v", b, tomb, err)
	}
	if got := fmt.Sprint(s.log.decided(0)); got != "map[released :1 withheld unreachable:1 written :1]" {
		t.Errorf("decisions: %s", got)
	}
	s.applyMessages(s.raising(detectors.PhaseUpdate, on[0])) // of the episode that was released
	if b, _, err := s.store.Get(t.Context(), on[0].subject, floodRule); err != nil || b != nil {
		t.Errorf("block %+v, %v", b, err)
	}
}

// Without the master of the delta streams no gate can be told of anything: the batch waits, also one that has nothing to tell.
func TestBatchWaitsForTheMasterOfTheStreams(t *testing.T) {
	s, nodes := clusterOfItsOwn(t)
	home, other := nodes[0], nodes[1]
	on := s.clientsOn("10.2.0.0", 2, other.Addr, "")
	at := s.clientsOn("10.3.0.0", 1, home.Addr, "")
	s.applyMessages(s.raising(detectors.PhaseOpen, on[0]))
	begin := s.log.len()
	for name, batch := range map[string][]traffic.Message{
		"a block of its own":                             s.raising(detectors.PhaseOpen, at[0]),
		"a block of another master that is away":         s.raising(detectors.PhaseOpen, on[1]),
		"the release of a block on another that is away": s.releasing(on[0]),
	} {
		home.Freeze()
		other.Freeze()
		if err := s.Apply(t.Context(), batch); err == nil {
			t.Errorf("%s: the batch did not wait", name)
		}
		home.Thaw()
		other.Thaw()
	}
	if got := s.log.decided(begin); len(got) != 0 {
		t.Errorf("decisions: %v", got)
	}
	s.blocksWithTheNextUpdate(on[1])
	s.blocksWithTheNextUpdate(at[0])
}

// A block is not written where it cannot be counted.
func TestBlockWaitsForTheCountOfItsAddress(t *testing.T) {
	s, nodes := clusterOfItsOwn(t)
	s.store.Bound(Crowds{PerAddress: 10, Claimed: []traffic.Field{traffic.FieldDevice}})
	dead, live := nodes[1], nodes[2]
	on := s.clientsOn("10.2.0.0", 2, live.Addr, dead.Addr)
	s.applyMessages(s.raising(detectors.PhaseOpen, on[0]))
	begin := s.log.len()
	dead.Freeze()
	s.applyMessages(append(s.raising(detectors.PhaseOpen, on[1]), s.releasing(on[0])...))
	if got := fmt.Sprint(s.log.decided(begin)); got != "map[released :1 withheld unreachable:1]" {
		t.Errorf("decisions: %s", got)
	}
	if b, _, err := s.store.Get(t.Context(), on[1].subject, floodRule); err != nil || b != nil {
		t.Errorf("block %+v, %v", b, err)
	}
	s.goneFromRedis(on[0])
	dead.Thaw()
	s.blocksWithTheNextUpdate(on[1])
}

// A standalone server that is away stops the batch, which is tried again and has its whole effect.
func TestBatchWaitsForAStandaloneRedis(t *testing.T) {
	node := testbed.OwnRedis(t)
	s := newStage(t, node.Server())
	s.reconnect(Server{URL: node.Server().URL, Timeout: 200 * time.Millisecond})
	node.Freeze()
	batch := s.messages(s.hit())
	if err := s.Apply(t.Context(), batch); err == nil || s.log.len() != 0 {
		t.Errorf("%v, and %d decisions", err, s.log.len())
	}
	node.Thaw()
	testbed.Eventually(t, 10*time.Second, func() error { return s.Apply(t.Context(), batch) })
	if b, _ := s.stands(); b == nil {
		t.Error("nothing stands")
	}
}

// When a replica takes the place of its master, nothing is lost: what was withheld comes with the next update, and what was
// released meanwhile has its tombstone there.
func TestNothingIsLostWhenAReplicaTakesOver(t *testing.T) {
	nodes := startCluster(t)
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.addr)
	}
	s := connectedTo(t, addrs)
	home, err := s.store.home(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dead := nodes[0]
	if dead.addr == home {
		dead = nodes[1]
	}
	replica := replicaOf(t, dead)
	on := s.clientsOn("10.2.0.0", 3, dead.addr, "")
	s.applyMessages(s.raising(detectors.PhaseOpen, on[0]))
	dead.do("wait", 1, 10_000)
	rec := s.reconciled(t)
	r := s.replica(t)
	eventuallyIs(t, "before", r, s, on[0], true)

	begin := s.log.len()
	dead.pause()
	run(t, rec.Run)
	withinASecond(t, "the batches", func() {
		s.applyMessages(s.raising(detectors.PhaseOpen, on[1]))
		s.applyMessages(append(s.raising(detectors.PhaseOpen, on[2]), s.releasing(on[0])...))
		eventuallyIs(t, "released", r, s, on[0], false)
	})
	if got := fmt.Sprint(s.log.decided(begin)); got != "map[released :1 withheld unreachable:2]" {
		t.Errorf("decisions: %s", got)
	}
	s.blocksWithTheNextUpdate(on[1])
	s.blocksWithTheNextUpdate(on[2])
	s.goneFromRedis(on[0])
	if now, err := s.store.masterOf(t.Context(), s.store.keys.Block(on[0].subject, floodRule)); err != nil || now != replica.addr {
		t.Errorf("the master is %s, %v, want the replica at %s", now, err, replica.addr)
	}
	eventuallyIs(t, "withheld once", r, s, on[1], true)
	eventuallyIs(t, "withheld once", r, s, on[2], true)
	eventuallyIs(t, "released", r, s, on[0], false)
}

// replicaOf starts a replica of a cluster's master, and waits until it has what that has.
func replicaOf(t *testing.T, of *ownRedis) *ownRedis {
	t.Helper()
	replica := startRedis(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000",
		"--cluster-require-full-coverage", "no", "--cluster-port", strconv.Itoa(testbed.FreePort(t)))
	_, port, err := net.SplitHostPort(of.addr)
	if err != nil {
		t.Fatal(err)
	}
	bus, err := of.client.ConfigGet(t.Context(), "cluster-port").Result()
	if err != nil {
		t.Fatal(err)
	}
	replica.do("cluster", "meet", "127.0.0.1", port, bus["cluster-port"])
	testbed.Eventually(t, 20*time.Second, func() error { return replica.client.ClusterReplicate(t.Context(), of.id).Err() })
	testbed.Eventually(t, 20*time.Second, func() error {
		if info := replica.do("info", "replication"); !strings.Contains(info, "master_link_status:up") {
			return errors.New(info)
		}
		if known := replica.do("cluster", "nodes"); strings.Count(known, " connected") != 4 {
			return errors.New(known)
		}
		return nil
	})
	return replica
}
