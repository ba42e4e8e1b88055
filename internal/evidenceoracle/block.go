package evidenceoracle

// trial is what is known while a block is tried: the requests that were let through alone feed windows.
type trial struct {
	*Rule
	through map[string][]int64
	running map[string][]*spell // by source
	blocks  map[string]block
}

// spell is an episode under the block.
type spell struct {
	first, last int64
	block       string
	sent        int64 // the last over event that was told
}

type block struct{ since, until int64 }

// refusals says of each request whether the rule's own block would have refused it.
func (r Rule) refusals(log []Request) []bool {
	t := trial{&r, map[string][]int64{}, map[string][]*spell{}, map[string]block{}}
	out := make([]bool, len(log))
	for i := range log {
		q := &log[i]
		t.end(q.At)
		if b, known := t.blocks[name(q, r.Block)]; known && r.reaches(q) && b.since <= q.At && q.At < b.until {
			out[i] = true
			continue
		}
		t.feed(q)
	}
	return out
}

func (t *trial) feed(q *Request) {
	if !t.counts(q) {
		return
	}
	source := name(q, t.Key)
	t.through[source] = append(t.through[source], q.At)
	if within(t.through[source], q.At-t.Window, q.At) <= t.Limit {
		return
	}
	var s *spell
	for _, x := range t.running[source] {
		if q.At < x.last+t.Window {
			s = x
		}
	}
	fresh := s == nil
	if fresh {
		s = &spell{first: q.At, block: name(q, t.Block)}
		t.running[source] = append(t.running[source], s)
	}
	s.last = q.At
	if !fresh && q.At < s.sent+t.Cooldown {
		return
	}
	s.sent = q.At
	until := s.first + t.TTL
	if t.OnHit {
		until = q.At + t.TTL
	}
	if s.block == "" || until <= q.At {
		return
	}
	if b, stands := t.blocks[s.block]; stands && b.until > q.At {
		t.blocks[s.block] = block{b.since, max(b.until, until)}
		return
	}
	t.blocks[s.block] = block{q.At, until}
}

// end closes the episodes that no request can lengthen any more: a block that stood then lasts from their last over event.
func (t *trial) end(now int64) {
	for source, all := range t.running {
		var kept []*spell
		for _, s := range all {
			closed := s.last + t.Window + t.Lateness
			if now < closed {
				kept = append(kept, s)
				continue
			}
			if b := t.blocks[s.block]; t.OnHit && s.block != "" && b.until > closed && s.last+t.TTL > b.until {
				t.blocks[s.block] = block{b.since, s.last + t.TTL}
			}
		}
		t.running[source] = kept
	}
}
