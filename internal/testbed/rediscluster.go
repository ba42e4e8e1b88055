package testbed

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisNode is a server, or a master of a cluster, that a test has for itself, and may freeze.
type RedisNode struct {
	*Running
	Addr string
}

// hashSlots is how many slots a cluster spreads its keys over.
const hashSlots = 16384

// OwnRedisCluster starts a real cluster of three masters without replicas, for one test that freezes one of them. The
// others go on without it: cluster-require-full-coverage is off.
func OwnRedisCluster(t testing.TB) []*RedisNode {
	t.Helper()
	const masters = 3
	nodes := make([]*RedisNode, masters)
	buses := make([]string, masters) // by which nodes talk to each other; by default 10,000 above the port, free or not
	for i := range nodes {
		buses[i] = strconv.Itoa(FreePort(t))
		nodes[i] = OwnRedis(t, "--cluster-port", buses[i], "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")
	}
	for i, n := range nodes {
		n.ask(t, func(ctx context.Context, c *redis.Client) error {
			return c.ClusterAddSlotsRange(ctx, hashSlots*i/masters, hashSlots*(i+1)/masters-1).Err()
		})
	}
	for _, n := range nodes {
		n.ask(t, func(ctx context.Context, c *redis.Client) error {
			info, err := c.ClusterInfo(ctx).Result()
			if err != nil || strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384") {
				return err
			}
			err = fmt.Errorf("%s does not see a whole cluster:\n%s", n.Addr, info)
			for i, other := range nodes { // again and again: on a busy machine a handshake may be given up
				host, port, _ := strings.Cut(other.Addr, ":")
				err = errors.Join(err, c.Do(ctx, "CLUSTER", "MEET", host, port, buses[i]).Err())
			}
			return err
		})
	}
	return nodes
}

// Server is how a standalone n is reached.
func (n *RedisNode) Server() RedisServer {
	return RedisServer{Kind: RedisKind, URL: "redis://" + n.Addr + "/0", Addrs: []string{n.Addr}}
}

// OwnRedis starts a real server for one test that fills it, fills it up, or freezes it. options are redis-server's
// ("--maxmemory", "64mb").
func OwnRedis(t testing.TB, options ...string) *RedisNode {
	t.Helper()
	Record(t, RedisKind, Real)
	port := strconv.Itoa(FreePort(t))
	command := exec.Command(Program(t, "redis-server"), append([]string{
		"--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir(), "--save", "", "--appendonly", "no"}, options...)...)
	n := &RedisNode{Addr: "127.0.0.1:" + port, Running: Run(t, command)}
	t.Cleanup(n.Thaw) // before it is told to end
	n.ask(t, func(ctx context.Context, c *redis.Client) error {
		if err := c.Ping(ctx).Err(); err != nil {
			return errors.Join(err, n.Alive())
		}
		return nil
	})
	return n
}

// ask puts a question to this one node until it is answered without an error.
func (n *RedisNode) ask(t testing.TB, question func(ctx context.Context, c *redis.Client) error) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: n.Addr})
	defer func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing the client of %s: %v", n.Addr, err)
		}
	}()
	Eventually(t, 20*time.Second, func() error { return question(t.Context(), c) })
}
