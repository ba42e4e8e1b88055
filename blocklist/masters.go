package blocklist

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// master is what one master says of itself.
type master struct {
	run string // its run id; "" from a server that does not tell it (an embedded one)
	err error  // it does not answer
}

// masters asks the server, or all masters of the cluster at the same time, for their run ids. One that does not answer is
// in the result with its error.
func (s *Store) masters(ctx context.Context) (map[string]master, error) {
	var mu sync.Mutex
	found := map[string]master{}
	err := s.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		m := askMaster(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		found[node.Options().Addr] = m
		if m.err != nil {
			s.reach.lost(node.Options().Addr)
		} else {
			s.reach.found(node.Options().Addr)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: masters: %w", s.address, err)
	}
	return found, nil
}

func askMaster(ctx context.Context, node *redis.Client) master {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	info, err := node.Info(ctx, "server").Result()
	if err == nil || !unanswered(err) {
		return master{run: runID(info)}
	}
	return master{err: err}
}

// masterOf is the address of the master that has key.
func (s *Store) masterOf(ctx context.Context, key string) (string, error) {
	node, err := s.masterNode(ctx, key)
	if err != nil {
		return "", err
	}
	return node.Options().Addr, nil
}

// masterNode is the client of the master that has key.
func (s *Store) masterNode(ctx context.Context, key string) (*redis.Client, error) {
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		return client.MasterForKey(ctx, key)
	case *redis.Client:
		return client, nil
	default:
		return nil, fmt.Errorf("redis client of type %T; allowed: *redis.Client or *redis.ClusterClient", client)
	}
}

// runID finds the server's run id in the answer to INFO server.
func runID(info string) string { return readInfo(info)["run_id"] }
