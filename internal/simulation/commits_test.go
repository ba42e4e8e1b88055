package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/simulation/judge"
	"github.com/weirhq/weir/internal/story"
)

// memberCommits is a member's access to its group's commits.
type memberCommits struct {
	*host
	g          *group
	member     string
	generation int
}

var _ ingest.Commits = (*memberCommits)(nil)

func (c *memberCommits) Fetch(ctx context.Context, partitions []int) (map[int]ingest.Commit, error) {
	if err := c.pass(ctx, reading, time.Millisecond, 30*time.Millisecond); err != nil {
		return nil, err
	}
	if c.fails(reading, .05) {
		return nil, errFault
	}
	c.finish(ctx)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	out := map[int]ingest.Commit{}
	for _, p := range partitions {
		if commit, ok := c.g.commits[p]; ok {
			out[p] = c.bend(p, commit)
		}
	}
	return out, nil
}

// bend is where a bug shows a router something else than what is stored. The world's lock must be held.
func (c *memberCommits) bend(p int, commit ingest.Commit) ingest.Commit {
	bugs := &c.w.bugs
	if c.g != c.w.routers {
		return commit
	}
	c.mu.Lock()
	kept, ok := c.memory[p]
	c.mu.Unlock()
	if ok && bugs.keepPosition {
		return kept
	}
	a, err := ingest.DecodeAnnouncement(commit.Metadata)
	if err != nil {
		return commit
	}
	switch {
	case bugs.forgetEnd:
		a.End = a.Offset
	case bugs.shrinkEnd:
		a.End = a.Offset + (a.End-a.Offset)/2
	case bugs.forgetVersion && a.End == a.Offset:
		a.Version = 0
	}
	return a.Commit()
}

func (c *memberCommits) Commit(ctx context.Context, commits map[int]ingest.Commit) error {
	if c.g == c.w.recorders || c.g == c.w.keepers {
		c.w.script.freezes(c.host)
	}
	if err := c.pass(ctx, committing, 500*time.Microsecond, 20*time.Millisecond); err != nil {
		return err
	}
	if (c.g == c.w.recorders || c.g == c.w.keepers) && c.w.script.dies(c.host, story.BeforeCommit) {
		return errFault
	}
	commits = c.cover(maps.Clone(commits))
	for {
		over, answered := c.try(commits)
		switch {
		case answered && over:
			return ingest.ErrGenerationOver
		case answered, c.g == c.w.routers && c.w.bugs.assumeCommitted:
			c.mu.Lock()
			defer c.mu.Unlock()
			maps.Copy(c.memory, commits)
			return nil
		case c.g == c.w.routers && c.w.bugs.repeatCommit:
			if err := c.pass(ctx, committing, 5*time.Millisecond, 50*time.Millisecond); err != nil {
				return err
			}
		default:
			return errFault
		}
	}
}

// try sends a commit once: done, refused, lost, late, or done without an answer.
func (c *memberCommits) try(commits map[int]ingest.Commit) (over, answered bool) {
	store := func() bool {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		if !c.g.accepts(c.member, c.generation) {
			return false
		}
		maps.Copy(c.g.commits, commits)
		c.w.announced(c.g, commits)
		return true
	}
	if !c.fails(committing, c.w.loss/2) {
		return !store(), true
	}
	switch x := c.below(committing, 3); x {
	case 0:
	case 1:
		c.w.later(c.span(committing, 20*time.Millisecond, []time.Duration{300 * time.Millisecond, 4 * time.Second}[c.below(committing, 2)]),
			func() { store() })
	default:
		store()
	}
	return false, false
}

// announced keeps what routers have committed, for the judge. The world's lock must be held.
func (w *world) announced(g *group, commits map[int]ingest.Commit) {
	if g != w.routers {
		return
	}
	for _, p := range slices.Sorted(maps.Keys(commits)) {
		a, err := ingest.DecodeAnnouncement(commits[p].Metadata)
		if err != nil {
			w.unread = append(w.unread, fmt.Sprintf("commit of %d: %v", p, err))
			continue
		}
		w.committed = append(w.committed, judge.Commit{Partition: p, Offset: a.Offset, End: a.End, Version: a.Version})
	}
}

// cover is where a bug leaves partitions out of a commit, or says less in it than the router goes by.
func (c *memberCommits) cover(commits map[int]ingest.Commit) map[int]ingest.Commit {
	if c.g != c.w.routers {
		return commits
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	maps.DeleteFunc(commits, func(p int, commit ingest.Commit) bool {
		stored := c.g.commits[p]
		switch {
		case c.w.bugs.coverDone:
			return commit.Offset == stored.Offset && len(commits) > 1
		case c.w.bugs.skipFirst:
			return commit.Offset == 0
		}
		return false
	})
	for p, commit := range commits {
		if a, err := ingest.DecodeAnnouncement(commit.Metadata); err == nil && c.w.bugs.overshootEnd && p%2 == c.generation%2 {
			a.End = a.Offset + (a.End-a.Offset)/2 // the router goes on beyond it
			commits[p] = a.Commit()
		}
	}
	return commits
}

// unfinished is a chunk that was not acknowledged when its generation ended; for a bug only.
type unfinished struct {
	batches []ingest.Batch
	from    map[int]ingest.Commit // that announced it
}

// finish is the bug of carrying a failed chunk over into the next generation: it is appended, and committed for all its
// partitions, whoever has them now.
func (c *memberCommits) finish(ctx context.Context) {
	if !c.w.bugs.carryChunk || c.g != c.w.routers {
		return
	}
	c.mu.Lock()
	carried := c.unsent
	c.unsent = nil
	c.mu.Unlock()
	if carried == nil {
		return
	}
	if (&topicAppender{host: c.host, t: c.w.keyed}).Append(ctx, carried.batches) != nil {
		return
	}
	next := map[int]*ingest.Announcement{}
	for _, p := range slices.Sorted(maps.Keys(carried.from)) {
		if a, err := ingest.DecodeAnnouncement(carried.from[p].Metadata); err == nil {
			a.Offset = max(a.Offset, a.End)
			next[p] = a
		}
	}
	for _, b := range carried.batches {
		for _, v := range b.Values {
			var k detectors.Keyed
			if detectors.DecodeKeyed(v, &k) == nil && next[k.Source] != nil {
				a := next[k.Source]
				a.Prev[b.Partition] = max(a.Prev[b.Partition], k.Offset)
				a.Progress = max(a.Progress, k.Progress)
			}
		}
	}
	commits := map[int]ingest.Commit{}
	for p, a := range next {
		commits[p] = a.Commit()
	}
	c.try(commits)
}

// carryingAppender remembers, for that bug, the chunk in flight.
type carryingAppender struct{ *topicAppender }

func (a carryingAppender) Append(ctx context.Context, batches []ingest.Batch) error {
	events := detectors.KeyedKind(batches[0].Values[0][1]) == detectors.KeyedEvent
	if events {
		kept := make([]ingest.Batch, len(batches))
		for i, b := range batches {
			kept[i] = ingest.Batch{Partition: b.Partition}
			for _, v := range b.Values {
				kept[i].Values = append(kept[i].Values, slices.Clone(v))
			}
		}
		a.mu.Lock()
		a.unsent = &unfinished{batches: kept, from: maps.Clone(a.memory)}
		a.mu.Unlock()
	}
	err := a.topicAppender.Append(ctx, batches)
	if err == nil && events {
		a.mu.Lock()
		a.unsent = nil
		a.mu.Unlock()
	}
	return err
}
