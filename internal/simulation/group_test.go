package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// group is a consumer group's coordinator as Kafka's is with eager rebalancing: generations, a join barrier, eviction.
// The world's lock guards it.
type group struct {
	w          *world
	name       string
	partitions int
	dice       *dice
	generation int
	preparing  bool
	deadline   traffic.Time
	members    map[string]*member
	ghosts     []*member // put out, and not yet aware of it
	commits    map[int]ingest.Commit
	refused    int // commits of a generation that was over
}

type member struct {
	host       *host
	joined     bool // waits at the barrier
	generation int  // that it belongs to; 0 before its first
	partitions []int
	formed     chan struct{}      // closed when its generation is there, or it was put out
	end        context.CancelFunc // of its session
}

func newGroup(w *world, name string, partitions int, purpose uint64) *group {
	return &group{
		w: w, name: name, partitions: partitions, dice: roll(w.seed, 7, purpose),
		members: map[string]*member{}, commits: map[int]ingest.Commit{},
	}
}

const (
	sessionTimeout = 6 * time.Second
	joinTimeout    = 3 * time.Second
	beat           = 500 * time.Millisecond
)

func (g *group) ids() []string {
	var ids []string
	for id := range g.members {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// step is one heartbeat of the group.
func (g *group) step() {
	joined := 0
	for _, id := range g.ids() {
		m := g.members[id]
		switch {
		case m.host.silent() > sessionTimeout:
			g.remove(id)
		case m.joined:
			joined++
		case g.preparing && m.host.silent() == 0 && g.dice.below(2) == 0 && m.end != nil:
			m.end() // it hears that it must join again
		}
	}
	g.ghosts = slices.DeleteFunc(g.ghosts, func(m *member) bool {
		heard := m.host.silent() == 0 && g.dice.below(2) == 0
		if heard {
			m.end()
		}
		return heard
	})
	if g.preparing && joined > 0 && (joined == len(g.members) || now() >= g.deadline) {
		g.form()
	}
}

// form makes the next generation of who has joined.
func (g *group) form() {
	g.generation++
	g.preparing = false
	var ids []string
	for _, id := range g.ids() {
		if !g.members[id].joined {
			g.put(id)
			continue
		}
		ids = append(ids, id)
	}
	order := make([]int, g.partitions)
	for p := range order {
		order[p] = p
	}
	g.dice.shuffle(order)
	for _, id := range ids {
		m := g.members[id]
		m.joined, m.generation, m.partitions = false, g.generation, nil
	}
	for i, p := range order {
		m := g.members[ids[i%len(ids)]]
		m.partitions = append(m.partitions, p)
		slices.Sort(m.partitions)
	}
	for _, id := range ids {
		close(g.members[id].formed)
	}
}

func (g *group) rebalance() {
	if !g.preparing {
		g.preparing, g.deadline = true, now().Add(joinTimeout)
	}
}

// put takes a member out without a word to it.
func (g *group) put(id string) {
	m := g.members[id]
	delete(g.members, id)
	if m.joined {
		close(m.formed)
	}
	if m.end != nil {
		g.ghosts = append(g.ghosts, m)
	}
}

func (g *group) remove(id string) {
	if g.members[id] != nil {
		g.put(id)
		g.rebalance()
	}
}

// join enters a member at the barrier.
func (g *group) join(id string, h *host) *member {
	g.rebalance()
	m := g.members[id]
	if m == nil {
		m = &member{host: h}
		g.members[id] = m
	}
	m.joined, m.formed, m.end = true, make(chan struct{}), nil
	return m
}

// accepts reports whether a commit of the member counts: Kafka asks for the generation, not for the assignment.
func (g *group) accepts(id string, generation int) bool {
	m := g.members[id]
	ok := m != nil && !m.joined && m.generation == generation && g.generation == generation
	if !ok {
		g.refused++
	}
	return ok || g.w.bugs.acceptStaleCommits
}

// membership is a process's side of a group.
type membership struct {
	*host
	g     *group
	count int
}

var _ ingest.Group = (*membership)(nil)

func (s *membership) Run(ctx context.Context, session func(context.Context, ingest.Assignment) error) error {
	id := s.newMember()
	for ctx.Err() == nil {
		if s.pass(ctx, joining, time.Millisecond, 100*time.Millisecond) != nil {
			break
		}
		s.w.mu.Lock()
		m := s.g.join(id, s.host)
		formed := m.formed
		s.w.mu.Unlock()
		select {
		case <-formed:
		case <-ctx.Done():
		}
		if ctx.Err() != nil || s.pass(ctx, joining, time.Millisecond, 50*time.Millisecond) != nil {
			break
		}
		sctx, end := context.WithCancel(ctx)
		a, ok := s.begin(id, m, end)
		if !ok {
			end()
			id = s.newMember()
			continue
		}
		err := session(sctx, a)
		end()
		if err != nil {
			if !errors.Is(err, ingest.ErrRejoin) && !passing(err) {
				s.odd(err)
			}
			s.leave(id)
			id = s.newMember()
			rest(ctx, s.span(joining, 100*time.Millisecond, time.Second))
		}
	}
	if !s.dead() {
		s.leave(id)
	}
	return nil
}

func (s *membership) begin(id string, m *member, end context.CancelFunc) (ingest.Assignment, bool) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.g.members[id] != m || m.joined {
		return ingest.Assignment{}, false
	}
	m.end = end
	return ingest.Assignment{
		Generation: m.generation, Member: id, Partitions: slices.Clone(m.partitions),
		Commits: &memberCommits{host: s.host, g: s.g, member: id, generation: m.generation},
	}, true
}

func (s *membership) leave(id string) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.g.remove(id)
}

func (s *membership) newMember() string {
	s.count++
	return fmt.Sprintf("%s/%d", s.name, s.count)
}
