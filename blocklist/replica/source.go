package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/blocklist"
)

// source is what a Replica reads: Redis, but for tests of what a Replica makes of what it reads.
type source interface {
	// Cursor reads the newest id of every stream.
	Cursor(ctx context.Context) (blocklist.Cursor, error)
	// Deltas reads what the streams hold after the ids, and waits up to timeout if that is nothing.
	Deltas(ctx context.Context, after blocklist.Cursor, timeout time.Duration) ([]blocklist.Streamed, error)
	// ModeTexts reads the modes, by rule.
	ModeTexts(ctx context.Context) (map[string]string, error)
	// Never reads what people keep from being blocked.
	Never(ctx context.Context) (blocklist.NeverEntries, error)
	// Owner is whose Redis is.
	Owner(ctx context.Context) (blocklist.Owner, error)
	// HasMarker reports whether the reconciler's marker is there.
	HasMarker(ctx context.Context) (bool, error)
	// EachNode calls visit at the same time for every node, those that do not answer included.
	EachNode(ctx context.Context, visit func(ctx context.Context, n node)) error
}

// node is a master of a cluster, or the standalone server.
type node interface {
	// slots are those that it has to itself now.
	slots(ctx context.Context) (slotSet, error)
	// Scan calls take for each block and tombstone that stands there all the time, tombstones first.
	Scan(ctx context.Context, take func(h blocklist.Name, tombstone bool, value string), unreadable func()) error
}

// redisSource is a namespace in Redis.
type redisSource struct {
	*blocklist.Feed
	*blocklist.Store
}

func newRedisSource(s *blocklist.Store) redisSource { return redisSource{blocklist.NewFeed(s), s} }

func (r redisSource) Owner(ctx context.Context) (blocklist.Owner, error) {
	return blocklist.NewOwnership(r.Store).Owner(ctx)
}

func (r redisSource) EachNode(ctx context.Context, visit func(ctx context.Context, n node)) error {
	return r.Feed.EachNode(ctx, func(ctx context.Context, n *blocklist.Node) { visit(ctx, redisNode{n}) })
}

// redisNode is a server of redisSource.
type redisNode struct{ *blocklist.Node }

func (n redisNode) slots(ctx context.Context) (slotSet, error) {
	text, cluster, err := n.ClusterNodes(ctx)
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
