package oracle

// BlockRule is what a version of a rule says about its blocks. Times are in any unit, as long as it is one.
type BlockRule struct {
	TTL, MaxLag                int64
	OnHit                      bool // the block is extended by what comes while its source is over
	Window, Lateness, Cooldown int64
	Tuples                     bool // one episode has several blocks
}

// BlockRecord is something that ENFORCE is told about one client and one rule, in the order in which it is told.
type BlockRecord struct {
	At          int64  // when it is told
	What        string // open, update, closed: a hit; release; block, shadow: the rule's new mode
	Hit         string
	First, Last int64     // of a hit: its first and its last event over the limit
	Rule        BlockRule // of a hit: as its version has it
	Of, Kept    int64     // of a release: of when it is, 0: At; how long it is remembered
}

// BlockSpan is a block from when it was made.
type BlockSpan struct {
	Begin, Until int64
	Released     bool
	Parted       bool // a release came after it, whether it stood then or not

	mode int    // how often the mode had changed when it was made
	hit  string // that Until is of
}

// Blocks are the blocks of one client by one rule, one after the other, as ENFORCE is to write them.
type Blocks struct {
	Spans      []BlockSpan
	Shadow     bool // the rule does not block
	Lengthened bool // one of them was, by a closing hit

	mode int
	free []BlockRecord // the releases, Hit: of the block that was there
}

// Take tells of the next record.
func (b *Blocks) Take(r BlockRecord) {
	switch r.What {
	case "block", "shadow":
		b.Shadow = r.What == "shadow"
		b.mode++
	case "release":
		b.release(r)
	default:
		b.hit(r)
	}
}

func (b *Blocks) release(r BlockRecord) {
	if r.Of == 0 {
		r.Of = r.At
	}
	if r.Hit = ""; len(b.Spans) > 0 {
		last := &b.Spans[len(b.Spans)-1]
		if last.Until > r.At && !last.Released {
			r.Hit, last.Released = last.hit, true
		}
		last.Parted = true
	}
	b.free = append(b.free, r)
}

// forgiven reports whether the newest release is about the hit.
func (b *Blocks) forgiven(r BlockRecord) bool {
	if len(b.free) == 0 {
		return false
	}
	f := b.free[len(b.free)-1]
	return r.At < f.Of+f.Kept && (r.First <= f.Of || f.Hit != "" && f.Hit == r.Hit)
}

func (b *Blocks) hit(r BlockRecord) {
	until, mayBeOld := r.First+r.Rule.TTL, r.Rule.MaxLag
	if r.Rule.OnHit {
		until = r.Last + r.Rule.TTL
	}
	if r.What == "closed" {
		if !r.Rule.OnHit {
			return
		}
		mayBeOld += r.Rule.Window + r.Rule.Lateness
		if r.Rule.Tuples {
			mayBeOld += r.Rule.Cooldown
		}
	}
	if b.Shadow || until <= r.At || r.At-r.Last > mayBeOld || b.forgiven(r) {
		return
	}
	if n := len(b.Spans); n > 0 {
		now := &b.Spans[n-1]
		if now.Until > r.At && !now.Released && now.mode == b.mode {
			if until > now.Until {
				now.Until, now.hit = until, r.Hit
				b.Lengthened = b.Lengthened || r.What == "closed"
			}
			return
		}
	}
	if r.What != "closed" {
		b.Spans = append(b.Spans, BlockSpan{Begin: r.At, Until: until, mode: b.mode, hit: r.Hit})
	}
}
