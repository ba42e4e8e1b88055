package route

import (
	"slices"

	"github.com/weirhq/weir/ingest"
)

// preparedChunk is the chunk after the one that is being appended, built while that one is on its way. It changes nothing
// of the protocol: what announced says is committed after the chunk before is acknowledged, and before anything of this
// one is appended. If it does not come to that, it is dropped.
type preparedChunk struct {
	announced []ingest.Announcement
	plan      chunkPlan
	chunk     *chunk
}

// prepare plans and builds the chunk after c if what is queued fills it: then nothing is gained by waiting for more. A
// chunk that is not full is built as late as can be, so that it takes along what came meanwhile.
func (s *session) prepare(c *chunk) {
	s.prepared = nil
	p := &preparedChunk{announced: slices.Clone(c.next)}
	p.plan = s.plan(p.announced)
	if !p.plan.full {
		return
	}
	sources := make([]*source, len(s.sources))
	for i, src := range s.sources {
		sources[i] = &source{partition: src.partition, at: p.announced[i], version: p.plan.versions[i]}
	}
	s.turn = 1 - s.turn // the bytes of c live in the other builder
	p.chunk = s.builders[s.turn].build(sources, s.intake)
	s.prepared = p
}

// follows reports whether p was planned for right behind next.
func (s *session) follows(p *preparedChunk, next []ingest.Announcement) bool {
	return slices.EqualFunc(p.announced, next, func(a, b ingest.Announcement) bool {
		return a.Offset == b.Offset && &a.Prev[0] == &b.Prev[0]
	})
}

// nextChunk is the chunk that is announced: the one that was prepared, if it was announced as it was planned and the
// sources are still those, or one that is built now.
func (s *session) nextChunk() *chunk {
	p := s.prepared
	s.prepared = nil
	if p != nil && s.standsAt(p.announced) {
		return p.chunk
	}
	return s.builders[s.turn].build(s.sources, s.intake)
}

// standsAt reports whether the sources stand where at says, under those very announcements.
func (s *session) standsAt(at []ingest.Announcement) bool {
	if len(at) != len(s.sources) {
		return false
	}
	for i, src := range s.sources {
		if &src.at.Prev[0] != &at[i].Prev[0] || src.at.Offset != at[i].Offset || src.at.End != at[i].End || src.at.Version != at[i].Version {
			return false
		}
	}
	return true
}
