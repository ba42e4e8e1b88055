package blocklist

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/internal/testbed"
)

// ownRedis is a redis-server that only this test uses.
type ownRedis struct {
	t       testing.TB
	addr    string
	client  *redis.Client
	command *exec.Cmd
	id      string // in a cluster
}

func startRedis(t testing.TB, options ...string) *ownRedis {
	t.Helper()
	port := testbed.FreePort(t)
	args := append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", t.TempDir(), "--save", "", "--appendonly", "no"}, options...)
	s := &ownRedis{t: t, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), command: exec.Command(testbed.Program(t, "redis-server"), args...)}
	testbed.Run(t, s.command)
	s.client = redis.NewClient(&redis.Options{Addr: s.addr})
	t.Cleanup(func() { _ = s.client.Close() })
	testbed.Eventually(t, 20*time.Second, func() error { return s.client.Ping(t.Context()).Err() })
	return s
}

// pause stops the server, which keeps its connections and answers nobody, until the returned function is called.
func (s *ownRedis) pause() (resume func()) {
	s.signal(syscall.SIGSTOP)
	resume = func() { s.signal(syscall.SIGCONT) }
	s.t.Cleanup(resume) // a stopped process does not end
	return resume
}

func (s *ownRedis) signal(sig syscall.Signal) {
	if err := s.command.Process.Signal(sig); err != nil {
		s.t.Errorf("redis-server %s: %v", s.addr, err)
	}
}

func (s *ownRedis) do(args ...any) string {
	s.t.Helper()
	answer, err := s.client.Do(s.t.Context(), args...).Result()
	if err != nil {
		s.t.Fatalf("%s: %v: %v", s.addr, args, err)
	}
	return fmt.Sprint(answer)
}

// startCluster starts three masters that have a third of the slots each.
func startCluster(t testing.TB) []*ownRedis {
	t.Helper()
	bounds := []int{0, 5461, 10923, 16384}
	nodes := make([]*ownRedis, 3)
	first := testbed.FreePort(t) // of the first node's bus; the usual one, 10,000 above the other, may be a client's
	for i := range nodes {
		bus := first
		if i > 0 {
			bus = testbed.FreePort(t)
		}
		nodes[i] = startRedis(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000",
			"--cluster-require-full-coverage", "no", "--cluster-port", strconv.Itoa(bus))
		nodes[i].id = nodes[i].do("cluster", "myid")
		nodes[i].do("cluster", "set-config-epoch", i+1)
		nodes[i].do("cluster", "addslotsrange", bounds[i], bounds[i+1]-1)
		if i > 0 {
			_, port, err := net.SplitHostPort(nodes[0].addr)
			if err != nil {
				t.Fatal(err)
			}
			nodes[i].do("cluster", "meet", "127.0.0.1", port, first)
		}
	}
	testbed.Eventually(t, 20*time.Second, func() error {
		for _, n := range nodes {
			if info := n.do("cluster", "info"); !strings.Contains(info, "cluster_slots_ok:16384") || !strings.Contains(info, "cluster_state:ok") {
				return errors.New("cluster is not up: " + info)
			}
		}
		return nil
	})
	return nodes
}

// moveKeys begins to move a slot and moves its keys, all of them or as good as; it stays where it was until giveSlot.
func (s *ownRedis) moveKeys(slot int, to *ownRedis) {
	s.t.Helper()
	to.do("cluster", "setslot", slot, "importing", s.id)
	s.do("cluster", "setslot", slot, "migrating", to.id)
	for {
		keys, err := s.client.ClusterGetKeysInSlot(s.t.Context(), slot, 1000).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		if len(keys) == 0 {
			return
		}
		host, port, err := net.SplitHostPort(to.addr)
		if err != nil {
			s.t.Fatal(err)
		}
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, key := range keys {
			args = append(args, key)
		}
		s.do(args...)
	}
}

// giveSlot ends the move of a slot.
func (s *ownRedis) giveSlot(slot int, to *ownRedis) {
	to.do("cluster", "setslot", slot, "node", to.id)
	s.do("cluster", "setslot", slot, "node", to.id)
}

// clusterStage is a stage on a cluster whose clients have the hook on their connections to one node.
func clusterStage(t testing.TB, nodes []*ownRedis, hooked *ownRedis, hook redis.Hook) *stage {
	t.Helper()
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.addr)
	}
	s := newStage(t, testbed.RedisServer{Kind: testbed.RedisClusterKind, Addrs: addrs})
	s.client.(*redis.ClusterClient).OnNewNode(func(c *redis.Client) {
		if c.Options().Addr == hooked.addr {
			c.AddHook(hook)
		}
	})
	return s
}

// clusterOfItsOwn is a stage on a cluster of which the test may freeze masters; the first is the one with the modes, and
// another one has the shapes.
func clusterOfItsOwn(t *testing.T) (*stage, []*testbed.RedisNode) {
	t.Helper()
	nodes := testbed.OwnRedisCluster(t)
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.Addr)
	}
	s := connectedTo(t, addresses)
	var home, shapes string
	for i := 0; home == shapes; i++ {
		s.rename(fmt.Sprintf("weir-%d", i))
		home, shapes = s.masterOf(s.keys.Streams()), s.masterOf(s.keys.Shapes())
	}
	slices.SortStableFunc(nodes, func(a, b *testbed.RedisNode) int {
		switch home {
		case a.Addr:
			return -1
		case b.Addr:
			return 1
		}
		return 0
	})
	return s, nodes
}

// connectedTo is a stage on a cluster, with the client that weir uses.
func connectedTo(t *testing.T, addresses []string) *stage {
	t.Helper()
	s := newStage(t, testbed.RedisServer{Kind: testbed.RedisClusterKind, Addrs: addresses})
	s.server = Server{Cluster: addresses, Timeout: time.Second}
	s.reconnect()
	return s
}

// rename gives the stage another namespace.
func (s *stage) rename(namespace string) {
	s.t.Helper()
	keys, err := NewKeys(namespace)
	if err != nil {
		s.t.Fatal(err)
	}
	s.namespace, s.keys = namespace, keys
	s.reconnect()
}

// reconnect gives the stage a store of its namespace with the client that weir uses.
func (s *stage) reconnect() {
	s.t.Helper()
	store, err := Connect(s.server, s.namespace)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := store.Close(); err != nil {
			s.t.Error(err)
		}
	})
	s.store, s.writer = store, NewWriter(store)
	s.restart()
}

// fullRedis is a redis-server that refuses to evict.
func fullRedis(t *testing.T) testbed.RedisServer {
	return testbed.OwnRedis(t, "--maxmemory", "64mb", "--maxmemory-policy", "noeviction").Server()
}

// full has s's server, which must be the test's own, refuse whatever takes memory; room ends that. What fill leaves depends on
// the server's buffers; this does not.
func full(t *testing.T, s *stage) (room func()) {
	t.Helper()
	limit := func(bytes string) {
		t.Helper()
		if err := s.client.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit("1")
	return func() { limit("0") }
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

// masterOf is the address of the master that has key.
func (s *stage) masterOf(key string) string {
	s.t.Helper()
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return s.client.(*redis.Client).Options().Addr
	}
	node, err := cluster.MasterForKey(s.t.Context(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	return node.Options().Addr
}

// eachMaster calls visit for the server, or at the same time for every master of the cluster.
func eachMaster(ctx context.Context, client redis.UniversalClient, visit func(ctx context.Context, node *redis.Client) error) error {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, visit)
	}
	return visit(ctx, client.(*redis.Client))
}
