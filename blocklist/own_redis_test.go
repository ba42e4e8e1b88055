package blocklist

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
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
	bounds := []int{0, 5461, 10923, slotCount}
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
	s.store.client.(*redis.ClusterClient).OnNewNode(func(c *redis.Client) {
		if c.Options().Addr == hooked.addr {
			c.AddHook(hook)
		}
	})
	return s
}
