package blocklist

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/rules"
)

// source is what a Replica reads: Redis, but for tests of what a Replica makes of what it reads.
type source interface {
	// cursor reads the newest id of every stream.
	cursor(ctx context.Context) (cursor, error)
	// deltas reads what the streams hold after the ids, and waits up to patience if that is nothing.
	deltas(ctx context.Context, after cursor, patience time.Duration) ([]streamed, error)
	Modes(ctx context.Context) ([]rules.ModeState, error)
	// HasMarker reports whether the reconciler's marker is there.
	HasMarker(ctx context.Context) (bool, error)
	// eachNode calls visit at the same time for every node, those that do not answer included.
	eachNode(ctx context.Context, visit func(ctx context.Context, n node)) error
}

// node is a master of a cluster, or the standalone server.
type node interface {
	// slots are those that it has to itself now.
	slots(ctx context.Context) (slotSet, error)
	// scan calls take for each block and tombstone that stands there all the time, tombstones first.
	scan(ctx context.Context, take func(h held, tombstone bool, value string), unreadable func()) error
}

// redisSource is a namespace in Redis.
type redisSource struct {
	*Feed
	*Store
}

func newRedisSource(s *Store) redisSource { return redisSource{NewFeed(s), s} }

func (r redisSource) eachNode(ctx context.Context, visit func(ctx context.Context, n node)) error {
	return r.Feed.eachNode(ctx, func(ctx context.Context, n *Node) { visit(ctx, redisNode{n}) })
}

// redisNode is a server of redisSource.
type redisNode struct{ *Node }

func (n redisNode) slots(ctx context.Context) (slotSet, error) {
	text, cluster, err := n.clusterNodes(ctx)
	if err != nil || !cluster {
		return allSlots(), err
	}
	own, err := ownSlots(text)
	if err != nil {
		return slotSet{}, fmt.Errorf("%s: %w", n.Address(), err)
	}
	return own, nil
}

var (
	_ source = redisSource{}
	_ node   = redisNode{}
)
