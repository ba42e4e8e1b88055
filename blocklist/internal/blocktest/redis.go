package blocktest

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

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/testbed"
)

// OwnRedis is a redis-server that only this test uses.
type OwnRedis struct {
	t       testing.TB
	Addr    string
	Client  *redis.Client
	command *exec.Cmd
	id      string // in a cluster
}

// StartRedis starts a redis-server with options.
func StartRedis(t testing.TB, options ...string) *OwnRedis {
	t.Helper()
	port := testbed.FreePort(t)
	args := append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", t.TempDir(), "--save", "", "--appendonly", "no"}, options...)
	s := &OwnRedis{t: t, Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), command: exec.Command(testbed.Program(t, "redis-server"), args...)}
	testbed.Run(t, s.command)
	s.Client = redis.NewClient(&redis.Options{Addr: s.Addr})
	t.Cleanup(func() { _ = s.Client.Close() })
	testbed.Eventually(t, 20*time.Second, func() error { return s.Client.Ping(t.Context()).Err() })
	return s
}

// Pause stops the server, which keeps its connections and answers nobody, until the returned function is called.
func (s *OwnRedis) Pause() (resume func()) {
	s.signal(syscall.SIGSTOP)
	resume = func() { s.signal(syscall.SIGCONT) }
	s.t.Cleanup(resume) // a stopped process does not end
	return resume
}

func (s *OwnRedis) signal(sig syscall.Signal) {
	if err := s.command.Process.Signal(sig); err != nil {
		s.t.Errorf("redis-server %s: %v", s.Addr, err)
	}
}

// Do sends a command and returns the answer's text.
func (s *OwnRedis) Do(args ...any) string {
	s.t.Helper()
	answer, err := s.Client.Do(s.t.Context(), args...).Result()
	if err != nil {
		s.t.Fatalf("%s: %v: %v", s.Addr, args, err)
	}
	return fmt.Sprint(answer)
}

// How long a node of a cluster waits for another one before it takes that for away.
const (
	joiningTimeout = 2 * time.Second // a handshake that gets lost is given up after it
	nodeTimeout    = time.Minute     // a busy machine makes no node silent for so long
)

// TakeForAwayAfter sets how long the node waits for the others of its cluster.
func (s *OwnRedis) TakeForAwayAfter(timeout time.Duration) {
	s.t.Helper()
	s.Do("config", "set", "cluster-node-timeout", timeout.Milliseconds())
}

// clusterOptions are those of a node, which speaks to the others on a port of its own: the usual one, 10,000 above the other, may be a
// client's.
func clusterOptions(t testing.TB) (options []string, bus int) {
	t.Helper()
	bus = testbed.FreePort(t)
	return []string{"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", fmt.Sprint(joiningTimeout.Milliseconds()),
		"--cluster-require-full-coverage", "no", "--cluster-port", strconv.Itoa(bus)}, bus
}

// StartCluster starts three masters that have a third of the slots each.
func StartCluster(t testing.TB) []*OwnRedis {
	t.Helper()
	bounds := []int{0, 5461, 10923, 16384}
	nodes := make([]*OwnRedis, 3)
	buses := make([]int, len(nodes))
	for i := range nodes {
		var options []string
		options, buses[i] = clusterOptions(t)
		nodes[i] = StartRedis(t, options...)
		nodes[i].id = nodes[i].Do("cluster", "myid")
		nodes[i].Do("cluster", "set-config-epoch", i+1)
		nodes[i].Do("cluster", "addslotsrange", bounds[i], bounds[i+1]-1)
	}
	_, port, err := net.SplitHostPort(nodes[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 20*time.Second, func() error {
		for _, n := range nodes {
			info := n.Do("cluster", "info")
			if strings.Contains(info, "cluster_slots_ok:16384") && strings.Contains(info, "cluster_state:ok") {
				continue
			}
			for _, other := range nodes[1:] { // again and again: on a busy machine a handshake may be given up
				other.Do("cluster", "meet", "127.0.0.1", port, buses[0])
			}
			return errors.New("cluster is not up: " + info)
		}
		for _, n := range nodes {
			if known := n.Do("cluster", "nodes"); strings.Contains(known, "handshake") {
				return errors.New("a handshake is under way: " + known)
			}
		}
		return nil
	})
	for _, n := range nodes {
		n.TakeForAwayAfter(nodeTimeout)
	}
	return nodes
}

// MoveKeys begins to move a slot and moves its keys, all of them or as good as; it stays where it was until GiveSlot.
func (s *OwnRedis) MoveKeys(slot int, to *OwnRedis) {
	s.t.Helper()
	to.Do("cluster", "setslot", slot, "importing", s.id)
	s.Do("cluster", "setslot", slot, "migrating", to.id)
	for {
		keys, err := s.Client.ClusterGetKeysInSlot(s.t.Context(), slot, 1000).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		if len(keys) == 0 {
			return
		}
		host, port, err := net.SplitHostPort(to.Addr)
		if err != nil {
			s.t.Fatal(err)
		}
		args := []any{"migrate", host, port, "", 0, time.Minute.Milliseconds(), "keys"}
		for _, key := range keys {
			args = append(args, key)
		}
		s.Do(args...)
	}
}

// GiveSlot ends the move of a slot.
func (s *OwnRedis) GiveSlot(slot int, to *OwnRedis) {
	to.Do("cluster", "setslot", slot, "node", to.id)
	s.Do("cluster", "setslot", slot, "node", to.id)
}

// ClusterStage is a stage on a cluster whose clients have the hook on their connections to one node.
func ClusterStage(t testing.TB, nodes []*OwnRedis, hooked *OwnRedis, hook redis.Hook) *Stage {
	t.Helper()
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr)
	}
	s := NewStage(t, testbed.RedisServer{Kind: testbed.RedisClusterKind, Addrs: addrs})
	s.Client.(*redis.ClusterClient).OnNewNode(func(c *redis.Client) {
		if c.Options().Addr == hooked.Addr {
			c.AddHook(hook)
		}
	})
	return s
}

// ClusterOfItsOwn is a stage on a cluster of which the test may freeze masters; the first is the one with the modes, and
// another one has the shapes.
func ClusterOfItsOwn(t *testing.T) (*Stage, []*testbed.RedisNode) {
	t.Helper()
	nodes := testbed.OwnRedisCluster(t)
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.Addr)
	}
	s := ConnectedTo(t, addresses)
	var home, shapes string
	for i := 0; home == shapes; i++ {
		s.rename(fmt.Sprintf("weir-%d", i))
		home, shapes = s.MasterOf(s.Keys.Streams()), s.MasterOf(s.Keys.Shapes())
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

// ConnectedTo is a stage on a cluster, with the client that weir uses.
func ConnectedTo(t *testing.T, addresses []string) *Stage {
	t.Helper()
	s := NewStage(t, testbed.RedisServer{Kind: testbed.RedisClusterKind, Addrs: addresses})
	s.Server = blocklist.Server{Cluster: addresses, Timeout: time.Second}
	s.Reconnect()
	return s
}

// rename gives the stage another namespace.
func (s *Stage) rename(namespace string) {
	s.T.Helper()
	keys, err := blocklist.NewKeys(namespace)
	if err != nil {
		s.T.Fatal(err)
	}
	s.Namespace, s.Keys = namespace, keys
	s.Reconnect()
}

// Reconnect gives the stage a store of its namespace with the client that weir uses.
func (s *Stage) Reconnect() {
	s.T.Helper()
	store, err := blocklist.Connect(s.Server, s.Namespace)
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		if err := store.Close(); err != nil {
			s.T.Error(err)
		}
	})
	s.Store, s.Writer = store, blocklist.NewWriter(store)
	s.Restart()
}

// FullRedis is a redis-server that refuses to evict.
func FullRedis(t *testing.T) testbed.RedisServer {
	return testbed.OwnRedis(t, "--maxmemory", "64mb", "--maxmemory-policy", "noeviction").Server()
}

// Full has s's server, which must be the test's own, refuse whatever takes memory; room ends that. How many blocks go into a limit
// depends on the server's buffers; this does not.
func Full(t *testing.T, s *Stage) (room func()) {
	t.Helper()
	limit := func(bytes string) {
		t.Helper()
		if err := s.Client.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit("1")
	return func() { limit("0") }
}

// ReplicaOf starts a replica of a cluster's master, and waits until it has what that has.
func ReplicaOf(t *testing.T, of *OwnRedis) *OwnRedis {
	t.Helper()
	options, _ := clusterOptions(t)
	replica := StartRedis(t, append(options, "--cluster-replica-validity-factor", "0")...) // it takes over however long its master is away
	_, port, err := net.SplitHostPort(of.Addr)
	if err != nil {
		t.Fatal(err)
	}
	bus, err := of.Client.ConfigGet(t.Context(), "cluster-port").Result()
	if err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 20*time.Second, func() error {
		err := replica.Client.ClusterReplicate(t.Context(), of.id).Err()
		if err != nil {
			replica.Do("cluster", "meet", "127.0.0.1", port, bus["cluster-port"])
		}
		return err
	})
	testbed.Eventually(t, 20*time.Second, func() error {
		if info := replica.Do("info", "replication"); !strings.Contains(info, "master_link_status:up") {
			return errors.New(info)
		}
		if known := replica.Do("cluster", "nodes"); strings.Count(known, " connected") != 4 {
			return errors.New(known)
		}
		return nil
	})
	replica.TakeForAwayAfter(nodeTimeout)
	return replica
}

// MasterOf is the address of the master that has key.
func (s *Stage) MasterOf(key string) string {
	s.T.Helper()
	cluster, ok := s.Client.(*redis.ClusterClient)
	if !ok {
		return s.Client.(*redis.Client).Options().Addr
	}
	node, err := cluster.MasterForKey(s.T.Context(), key)
	if err != nil {
		s.T.Fatal(err)
	}
	return node.Options().Addr
}

// EachMaster calls visit for the server, or at the same time for every master of the cluster.
func EachMaster(ctx context.Context, client redis.UniversalClient, visit func(ctx context.Context, node *redis.Client) error) error {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, visit)
	}
	return visit(ctx, client.(*redis.Client))
}
