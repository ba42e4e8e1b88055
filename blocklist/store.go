package blocklist

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/traffic"
)

// Store is one namespace in Redis or Redis Cluster: it reads blocks and publishes modes. A Writer changes blocks, and a Feed
// follows all changes. Its methods may be called by several goroutines.
type Store struct {
	redis  *servers
	keys   Keys
	marks  *marks
	crowds Crowds
	never  *NeverList
}

// NewStore uses client for the blocks of namespace. Closing the Store closes client.
func NewStore(client redis.UniversalClient, namespace string) (*Store, error) {
	keys, err := NewKeys(namespace)
	if err != nil {
		return nil, err
	}
	return newStore(client, "redis", keys), nil
}

func newStore(client redis.UniversalClient, address string, keys Keys) *Store {
	return &Store{
		redis: newServers(client, address, keys), keys: keys, marks: newMarks(),
		never: NewNeverList(nil, func() traffic.Time { return traffic.At(time.Now()) }),
	}
}

// Connect makes a Store of namespace on the server. It does not dial; Ping does.
func Connect(server Server, namespace string) (*Store, error) {
	keys, err := NewKeys(namespace)
	if err != nil {
		return nil, err
	}
	client, err := server.client()
	if err != nil {
		return nil, err
	}
	return newStore(client, server.Address(), keys), nil
}

// Ping asks the server, or every master of the cluster, for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	err := s.redis.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return node.Ping(ctx).Err() })
	if err != nil {
		return fmt.Errorf("%s does not answer: %w; start it, or correct its address", s.redis.address, err)
	}
	return nil
}

// PingStreams asks the server that has the modes and the delta streams for a sign of life: while it gives one, gates can be
// told of what changes, whichever other master of a cluster is away.
func (s *Store) PingStreams(ctx context.Context) error {
	node, err := s.redis.masterNode(ctx, s.redis.homeKey)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, reachTimeout)
		defer cancel()
		err = node.Ping(ctx).Err()
	}
	if err != nil {
		return fmt.Errorf("%s, the server of modes and delta streams, does not answer: %w; start it, or correct its address", s.redis.address, err)
	}
	return nil
}

// Address is what an operator reads about where the Store is: never a password.
func (s *Store) Address() string { return s.redis.address }

// Place is Address with the database, where a server has several, and the namespace: everything by which a Store can be
// at the wrong one.
func (s *Store) Place() string {
	place := s.redis.address
	if single, ok := s.redis.client.(*redis.Client); ok {
		place += fmt.Sprintf(", database %d", single.Options().DB)
	}
	return place + ", namespace " + s.keys.Namespace()
}

// EpochKey is the key of the marker that HasMarker looks for.
func (s *Store) EpochKey() string { return s.keys.Epoch() }

// Close ends the connections.
func (s *Store) Close() error { return s.redis.client.Close() }

// Bound makes s refuse blocks beyond what c allows. It is called before s is used.
func (s *Store) Bound(c Crowds) { s.crowds = c }

// Except tells which blocks are in force for nobody: gates leave them out when they read them. Each reading of blocks,
// or of modes, adds what people have entered. It is called before s is used.
func (s *Store) Except(never *NeverList) { s.never = never }

// Inspect asks the server, or every master of the cluster, about itself, and changes nothing. clock is this machine's.
func (s *Store) Inspect(ctx context.Context, clock func() traffic.Time) (Inspected, error) {
	return s.redis.inspect(ctx, clock)
}

// HasMarker reports whether the reconciler's marker is there. Without the marker, Redis has forgotten.
func (s *Store) HasMarker(ctx context.Context) (bool, error) {
	n, err := s.redis.client.Exists(ctx, s.keys.Epoch()).Result()
	if err != nil {
		return false, fmt.Errorf("%s: %w", s.redis.address, err)
	}
	return n > 0, nil
}

// SetMarker sets the reconciler's marker: Redis holds what it should, says the reconciler called id.
func (s *Store) SetMarker(ctx context.Context, id string) error {
	if err := s.redis.client.Set(ctx, s.keys.Epoch(), id, 0).Err(); err != nil {
		return fmt.Errorf("%s: %w", s.redis.address, err)
	}
	return nil
}

// TakeLease gives the reconcilers' lease to the reconciler called id for ttl, unless one has it.
func (s *Store) TakeLease(ctx context.Context, id string, ttl time.Duration) (taken bool, err error) {
	return s.redis.client.SetNX(ctx, s.keys.Lease(), id, ttl).Result()
}

// Masters asks the server, or all masters of the cluster at the same time, for their run ids. The result, by address, has the
// masters that do not answer, too, with their errors.
func (s *Store) Masters(ctx context.Context) (map[string]Master, error) { return s.redis.masters(ctx) }

// Returns is how often a master that did not answer this Store has answered again.
func (s *Store) Returns() int { return s.redis.reach.returned() }
