package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

const (
	simHeartbeat      = 60 * time.Millisecond
	simSessionTimeout = 900 * time.Millisecond
	simJoinTimeout    = 500 * time.Millisecond
)

// coordinator is Kafka's group coordinator with eager rebalancing: generations, a join barrier, eviction.
type coordinator struct {
	mu         sync.Mutex
	generation int
	preparing  bool
	deadline   traffic.Time
	members    map[string]*simMember
}

type simMember struct {
	joined     bool // waits at the barrier
	generation int  // that it belongs to; 0 before its first
	seen       traffic.Time
	partitions []int
}

// step evicts who was not seen, and forms the next generation when all have joined or the time is up.
func (c *coordinator) step(now traffic.Time, deal func([]int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	joined := 0
	for id, m := range c.members {
		switch {
		case m.joined:
			joined++
		case m.seen.Add(simSessionTimeout) < now:
			delete(c.members, id)
			c.rebalance(now)
		}
	}
	if !c.preparing || joined == 0 || joined < len(c.members) && now < c.deadline {
		return
	}
	c.generation++
	c.preparing = false
	var ids []string
	for id, m := range c.members {
		if !m.joined {
			delete(c.members, id)
			continue
		}
		*m = simMember{generation: c.generation, seen: now}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	order := make([]int, simSources)
	for p := range order {
		order[p] = p
	}
	deal(order)
	for i, p := range order {
		m := c.members[ids[i%len(ids)]]
		m.partitions = append(m.partitions, p)
		slices.Sort(m.partitions)
	}
}

// rebalance begins to form a new generation. c.mu must be held.
func (c *coordinator) rebalance(now traffic.Time) {
	if !c.preparing {
		c.preparing, c.deadline = true, now.Add(simJoinTimeout)
	}
}

func (c *coordinator) join(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rebalance(simNow())
	m := c.members[id]
	if m == nil {
		m = &simMember{}
		c.members[id] = m
	}
	m.joined, m.seen = true, simNow()
}

func (c *coordinator) leave(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members[id] != nil {
		delete(c.members, id)
		c.rebalance(simNow())
	}
}

// formed gives the member its part of the generation, when there is one.
func (c *coordinator) formed(id string) (a ingest.Assignment, ok, member bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[id]
	if m == nil {
		return ingest.Assignment{}, false, false
	}
	m.seen = simNow()
	if m.joined {
		return ingest.Assignment{}, false, true
	}
	return ingest.Assignment{Generation: m.generation, Member: id, Partitions: m.partitions}, true, true
}

// beat reports whether the member may go on with its generation.
func (c *coordinator) beat(id string, generation int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[id]
	if m == nil || m.generation != generation {
		return false
	}
	m.seen = simNow()
	return !c.preparing
}

func (c *coordinator) formedSoFar() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation
}

// accepts reports whether a commit of the member counts: Kafka asks for the generation, not for the assignment.
func (c *coordinator) accepts(id string, generation int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[id]
	return m != nil && !m.joined && m.generation == generation && c.generation == generation
}

// simGroup is a router's membership.
type simGroup struct {
	host  *simHost
	count int
}

var _ ingest.Group = (*simGroup)(nil)

func (g *simGroup) Run(ctx context.Context, session func(context.Context, ingest.Assignment) error) error {
	c := &g.host.world.group
	id := g.newMember()
	for ctx.Err() == nil {
		rest(ctx, jitter(g.host.joining, time.Millisecond))
		c.join(id)
		a, member := g.awaitGeneration(ctx, id)
		if ctx.Err() != nil {
			break
		}
		if !member {
			id = g.newMember()
			continue
		}
		a.Commits = &simCommits{host: g.host, member: id, generation: a.Generation}
		sctx, cancel := context.WithCancel(ctx)
		var beats sync.WaitGroup
		beats.Go(func() {
			defer cancel()
			for going := true; going; going = g.host.thaw(sctx, g.host.beating) == nil && c.beat(id, a.Generation) {
				rest(sctx, simHeartbeat+jitter(g.host.beating, time.Millisecond))
			}
		})
		err := session(sctx, a)
		cancel()
		beats.Wait()
		if err != nil {
			if !errors.Is(err, ingest.ErrRejoin) {
				g.host.odd(err)
			}
			c.leave(id)
			id = g.newMember()
			rest(ctx, 20*time.Millisecond+jitter(g.host.joining, time.Millisecond))
		}
	}
	if !g.host.dead() {
		c.leave(id)
	}
	return nil
}

func (g *simGroup) newMember() string {
	g.count++
	return fmt.Sprintf("%s/%d", g.host.name, g.count)
}

func (g *simGroup) awaitGeneration(ctx context.Context, id string) (ingest.Assignment, bool) {
	for ctx.Err() == nil {
		if g.host.thaw(ctx, g.host.joining) != nil {
			break
		}
		a, ok, member := g.host.world.group.formed(id)
		if ok || !member {
			return a, member
		}
		rest(ctx, simHeartbeat/2+jitter(g.host.joining, time.Millisecond))
	}
	return ingest.Assignment{}, false
}
