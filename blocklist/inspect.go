package blocklist

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/internal/clocks"
	"github.com/weirhq/weir/traffic"
)

// Inspected is what Redis says about itself. Texts are empty and numbers 0 where a server does not tell.
type Inspected struct {
	Cluster bool
	State   string          // of a cluster: "ok", or why it does not take all keys
	Nodes   []InspectedNode // the server, or every master, ascending by address
}

// InspectedNode is one server.
type InspectedNode struct {
	Address     string // host:port
	Version     string // of Redis
	Role        string // master or slave
	Policy      string // maxmemory-policy
	MaxMemory   int64  // bytes; 0: no limit, so nothing is evicted
	UsedMemory  int64  // bytes
	EvictedKeys int64  // since the server's start
	AppendOnly  bool   // whether it keeps an append-only file
	AppendsFail bool   // the append-only file cannot be written, so writes are refused
	LastSave    string // "ok" or "err": the newest attempt to write a snapshot
	// Clock is the server's clock, read between Asked and Answered of this machine.
	Clock, Asked, Answered traffic.Time
}

// inspect asks the server, or every master of the cluster, about itself, and changes nothing. A server that answers counts as
// reachable even if it refuses to tell. clock is this machine's.
func (s *servers) inspect(ctx context.Context, clock func() traffic.Time) (Inspected, error) {
	found := Inspected{}
	var mu sync.Mutex
	err := s.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		n, err := inspectNode(ctx, node, clock)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		found.Nodes = append(found.Nodes, n)
		return nil
	})
	if err != nil {
		return found, fmt.Errorf("%s does not answer: %w", s.address, err)
	}
	slices.SortFunc(found.Nodes, func(a, b InspectedNode) int { return strings.Compare(a.Address, b.Address) })
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		found.Cluster = true
		info, err := cluster.ClusterInfo(ctx).Result()
		if err != nil && !answered(err) {
			return found, fmt.Errorf("%s: %w", s.address, err)
		}
		found.State = readInfo(info)["cluster_state"]
	}
	return found, nil
}

func inspectNode(ctx context.Context, node *redis.Client, clock func() traffic.Time) (InspectedNode, error) {
	n := InspectedNode{Address: node.Options().Addr, Asked: clock()}
	at, err := node.Time(ctx).Result()
	if err != nil {
		return n, err
	}
	n.Clock, n.Answered = traffic.At(at), clock()
	text, err := node.Info(ctx).Result()
	if err != nil && !answered(err) {
		return n, err
	}
	info := readInfo(text)
	number := func(name string) int64 {
		v, _ := strconv.ParseInt(info[name], 10, 64) // what a server does not tell is 0
		return v
	}
	n.Version, n.Role, n.Policy = info["redis_version"], info["role"], info["maxmemory_policy"]
	n.MaxMemory, n.UsedMemory, n.EvictedKeys = number("maxmemory"), number("used_memory"), number("evicted_keys")
	n.AppendOnly, n.LastSave = info["aof_enabled"] == "1", info["rdb_last_bgsave_status"]
	n.AppendsFail = n.AppendOnly && info["aof_last_write_status"] == "err"
	return n, nil
}

// Clock reads the clock of s's server, or that of the master which differs most from clock, this machine's.
func Clock(s *Store) func(ctx context.Context, clock func() traffic.Time) (clocks.Reading, bool, error) {
	return func(ctx context.Context, clock func() traffic.Time) (clocks.Reading, bool, error) {
		all, err := s.redis.clocks(ctx, clock)
		worst, any := clocks.Worst(all)
		return worst, any, err
	}
}

// clocks reads the clock of the server, or of every master that answers.
func (s *servers) clocks(ctx context.Context, clock func() traffic.Time) ([]clocks.Reading, error) {
	var mu sync.Mutex
	var found []clocks.Reading
	err := s.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		asked := clock()
		at, err := node.Time(ctx).Result()
		if err != nil {
			return err
		}
		answered := clock()
		mu.Lock()
		defer mu.Unlock()
		found = append(found, clocks.Reading{Theirs: traffic.At(at), Asked: asked, Answered: answered})
		return nil
	})
	if err != nil && len(found) == 0 {
		return nil, fmt.Errorf("%s does not tell the time: %w", s.address, err)
	}
	return found, nil
}

// readInfo reads the name:value lines of INFO and CLUSTER INFO.
func readInfo(text string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			found[name] = value
		}
	}
	return found
}
