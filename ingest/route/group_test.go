package route

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/ingest"
)

// simGroup is a router's membership in a group of its own: a generation lasts until its session ends.
type simGroup struct{ host *simHost }

var _ ingest.Group = (*simGroup)(nil)

func (g *simGroup) Run(ctx context.Context, session func(context.Context, ingest.Assignment) error) error {
	h := g.host
	for ctx.Err() == nil {
		h.mu.Lock()
		h.generations++
		generation := h.generations
		h.mu.Unlock()
		err := session(ctx, ingest.Assignment{
			Generation: generation, Member: "r", Partitions: []int{0, 1, 2}, Commits: &simCommits{h},
		})
		if err != nil && !errors.Is(err, ingest.ErrRejoin) {
			h.mu.Lock()
			h.oddity = err
			h.mu.Unlock()
		}
		rest(ctx, 50*time.Millisecond)
	}
	return nil
}
