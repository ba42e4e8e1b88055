package evidenceoracle

// trial is what is known while a block is tried: the requests that were let through alone feed windows.
type trial struct {
	*Rule
	through map[string][]*Request
	running map[string][]*spell // by source
	blocks  map[string]block
}

// spell is an episode under the block.
type spell struct {
	last    int64
	targets map[string]*target // by block: where its key has fields that the rule's key has not, one may have several
}

// target is one block's part of a spell.
type target struct {
	first, last int64
	sent        int64 // the last over event that was told
}

type block struct{ since, until int64 }

// What rules have for max_lag, and how long after its end an episode of a silent stream is told to be over, in
// microseconds.
const (
	maxLag = 60_000_000
	idle   = 61_000_000
)

// Refusals says of each request whether the rule's own block would have refused it.
func (r Rule) Refusals(log []Request) []bool {
	t := trial{&r, map[string][]*Request{}, map[string][]*spell{}, map[string]block{}}
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
	t.through[source] = append(t.through[source], q)
	if t.within(t.through[source], q.At) <= t.Limit {
		return
	}
	var s *spell
	for _, x := range t.running[source] {
		if q.At < x.last+t.Window {
			s = x
		}
	}
	if s == nil {
		s = &spell{targets: map[string]*target{}}
		t.running[source] = append(t.running[source], s)
	}
	s.last = q.At
	whom := name(q, t.Block)
	x, known := s.targets[whom]
	if !known {
		x = &target{first: q.At}
		s.targets[whom] = x
	}
	x.last = q.At
	if known && q.At < x.sent+t.Cooldown {
		return
	}
	x.sent = q.At
	until := x.first + t.TTL
	if t.OnHit {
		until = q.At + t.TTL
	}
	if whom == "" || until <= q.At {
		return
	}
	if b, stands := t.blocks[whom]; stands && b.until > q.At {
		t.blocks[whom] = block{b.since, max(b.until, until)}
		return
	}
	t.blocks[whom] = block{q.At, until}
}

// end closes the episodes that no request can lengthen any more: a block that stands when that is told lasts from their
// last over event, unless that is too old then.
func (t *trial) end(now int64) {
	for source, all := range t.running {
		var kept []*spell
		for _, s := range all {
			closed := s.last + t.Window + t.Lateness
			if now < closed {
				kept = append(kept, s)
				continue
			}
			told, old := min(now, closed+idle), maxLag+t.Window+t.Lateness
			if len(s.targets) > 1 {
				old += t.Cooldown
			}
			for whom, x := range s.targets {
				if b := t.blocks[whom]; t.OnHit && whom != "" && b.until > told && told-x.last <= old && x.last+t.TTL > b.until {
					t.blocks[whom] = block{b.since, x.last + t.TTL}
				}
			}
		}
		t.running[source] = kept
	}
}
