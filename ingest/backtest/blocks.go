package backtest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/holding"
	"github.com/weirhq/weir/traffic"
)

// blockade tells, in one keyed partition, what the rules' blocks would have done: a second set of windows, which is fed only
// by requests that are not refused. Each rule blocks as if it alone did.
//
// Time is that of the events. A hit holds its block's subject from the event that brings it until what ENFORCE writes
// as the block's end (package holding); a request is refused if it is matched within that time and comes after that
// event in the log. A live trial forgets a block once the watermark has passed its end by the rule's lateness, and so
// does this one. Whom ENFORCE never blocks is held here neither; its count of blocks per address is not asked.
type blockade struct {
	plan    *plan
	windows folder
	rules   []*blockingRule // by counted rule; nil: it has no block
	pauses  []pause         // since the watermark
	scratch []byte
	feeds   []int
	units   []int64
	tiers   []int
}

// blockingRule is one rule's block.
type blockingRule struct {
	version      *rules.Version
	terms        holding.Terms
	wide         bool // one episode may have several blocks
	held         map[traffic.Subject]hold
	refused      int64
	matched      int64 // of those, requests that the rule watches
	firstRefused traffic.Time
}

// hold is the newest block of a subject: it holds requests of since <= time < until.
type hold struct{ since, until traffic.Time }

func newBlockade(p *plan, q int) *blockade {
	b := &blockade{plan: p, windows: newFolder(p, q, &p.blocking, nil), rules: make([]*blockingRule, len(p.counted.Rules))}
	for i := range p.counted.Rules {
		v := &p.counted.Rules[i]
		if v.Block == nil {
			continue
		}
		r := &blockingRule{version: v, terms: holding.TermsOf(&v.Document), held: map[traffic.Subject]hold{}, firstRefused: traffic.EndOfTime}
		r.wide = v.BlocksTuples() && traffic.IdentityKey(v.Key) // else no block stands for tuples beyond MaxTuples
		b.rules[i] = r
	}
	return b
}

// extra is what all rules that count the event need beside its identity, ascending by index.
func (e *event) extra() []detectors.ExtraValue {
	var out []detectors.ExtraValue
	for i := range e.targets {
		if len(out) == 0 {
			out = e.targets[i].told().extra
			continue
		}
		for _, x := range e.targets[i].told().extra {
			at, found := slices.BinarySearchFunc(out, x.Index, func(v detectors.ExtraValue, index int) int { return v.Index - index })
			if !found {
				out = slices.Insert(slices.Clone(out), at, x)
			}
		}
	}
	return out
}

// take judges a batch's events, one after the other: each may hold back the next.
func (b *blockade) take(q int, in *batch) error {
	b.pauses = append(b.pauses, in.pauses...)
	for events := in.blocked[q]; len(events) > 0; {
		n := 1
		for n < len(events) && events[n].event == events[0].event {
			n++
		}
		if err := b.judge(events[:n]); err != nil {
			return err
		}
		events = events[n:]
	}
	if !in.tick {
		return nil
	}
	if err := b.windows.tick(in); err != nil {
		return err
	}
	if in.ended {
		b.windows.hits = nil // what a block would last beyond the log is nobody's concern
		return nil
	}
	now := traffic.BeforeTime
	for i := range in.sources {
		now = max(now, in.sources[i].progress)
	}
	b.obey(nil, now)
	passed := b.windows.partition.Watermark()
	b.pauses = slices.DeleteFunc(b.pauses, func(p pause) bool { return p.to <= passed })
	return nil
}

// judge takes one event under all rules whose blocks may refuse it. Those that do not are fed.
func (b *blockade) judge(watched []blocking) error {
	e := watched[0].event
	b.feeds, b.units, b.tiers = b.feeds[:0], b.units[:0], b.tiers[:0]
	for _, x := range watched {
		w := &e.watched[x.watched]
		first, more := int(w.rule)*b.plan.values, w.more()
		for i := first; i < first+b.plan.values; i++ {
			refused := false
			if w.held {
				var err error
				if refused, err = b.refuses(b.rules[i], e); err != nil {
					return err
				}
			}
			if refused && w.matched {
				b.rules[i].matched++
			}
			if !refused && w.counts {
				b.feeds, b.units, b.tiers = append(b.feeds, i), append(b.units, more.units), append(b.tiers, b.plan.tierOf(i, more.tier, more.may))
			}
		}
	}
	if len(b.feeds) == 0 {
		return nil
	}
	k := detectors.Keyed{}
	b.windows.fill(&k, e)
	k.Rules, k.Units, k.Tiers, k.Extra = b.feeds, b.units, b.tiers, e.extra()
	if err := b.windows.fold(e.appended, &k); err != nil {
		return fmt.Errorf("blocks: %w", err)
	}
	b.obey(e, e.progress)
	return nil
}

// refuses reports whether a block of the rule holds the request of e.
func (b *blockade) refuses(r *blockingRule, e *event) (bool, error) {
	if len(r.held) == 0 {
		return false, nil
	}
	known := b.holdOf(r, e, r.version.Block.Key)
	if known == nil && r.wide { // beyond MaxTuples a block for the rule's own key stands for all others
		known = b.holdOf(r, e, r.version.Key)
	}
	if known == nil {
		return false, nil
	}
	// An episode that is over by now may have raised its block's end when it closed.
	k := b.windows.progress(e.source, e.offset, e.progress)
	if err := b.windows.fold(e.appended, &k); err != nil {
		return false, err
	}
	b.obey(nil, e.progress)
	for _, key := range [][]traffic.KeyField{r.version.Block.Key, r.version.Key} {
		h := b.holdOf(r, e, key)
		if h != nil && h.since <= e.time && e.time < h.until && h.until.Add(r.version.Lateness) > b.windows.partition.Watermark() {
			r.refused++
			r.firstRefused = min(r.firstRefused, e.time)
			return true, nil
		}
		if !r.wide {
			break
		}
	}
	return false, nil
}

// holdOf is the hold of the event's subject under a key, nil if there is none.
func (b *blockade) holdOf(r *blockingRule, e *event, key []traffic.KeyField) *hold {
	var missing int
	b.scratch, missing = traffic.AppendSubject(b.scratch[:0], &e.identity, key)
	if missing > 0 {
		return nil
	}
	if h, ok := r.held[traffic.Subject(b.scratch)]; ok {
		return &h
	}
	return nil
}

// obey does what ENFORCE would do about the hits that have come, brought by e or, with nil, by the passing of time.
func (b *blockade) obey(e *event, now traffic.Time) {
	for i := range b.windows.hits {
		h := &b.windows.hits[i]
		if h.Kind != detectors.KindHit || !h.Offends() {
			continue
		}
		if b.plan.NeverBlock != nil && b.plan.NeverBlock(h.BlockSubject) {
			continue
		}
		r, at, comes := b.rules[b.plan.index[h.Rule]], now, now
		if e != nil {
			at = e.time
		}
		if h.Phase == detectors.PhaseClosed {
			comes = min(now, b.told(b.lastOf(h).Add(r.version.Window).Add(r.version.Lateness)))
		}
		r.take(h, at, comes)
	}
	clear(b.windows.hits)
	b.windows.hits = b.windows.hits[:0]
}

// lastOf is when the episode of a closing hit was last over its limit: the hit tells of one of its blocks, and those of
// the others come with it.
func (b *blockade) lastOf(h *detectors.Hit) traffic.Time {
	last := h.Last
	for i := range b.windows.hits {
		x := &b.windows.hits[i]
		if x.Phase == h.Phase && x.Rule == h.Rule && x.Subject == h.Subject && x.First == h.First {
			last = max(last, x.Last)
		}
	}
	return last
}

// told is when ENFORCE would hear that an episode was over at some time: then, where requests go on, or with the next
// request. Where none comes, ticks tell it, which follow the clock at a distance.
func (b *blockade) told(over traffic.Time) traffic.Time {
	out := over
	idle := over.Add(cmp.Or(b.plan.idleMargin, detectors.DefaultIdleMargin) + detectors.TickEvery)
	for _, p := range b.pauses {
		if p.from < over && over <= p.to {
			out = max(out, min(p.to, idle))
		}
	}
	return out
}

// take gives the rule a hit that comes to ENFORCE at now. at is the time of the event that brought it.
func (r *blockingRule) take(h *detectors.Hit, at, now traffic.Time) {
	before := r.held[h.BlockSubject]
	block, hit := holding.Block{Until: before.until}, h.Holding(0)
	switch block.Take(&r.terms, &hit, now) {
	case holding.Made:
		r.held[h.BlockSubject] = hold{at, block.Until}
	case holding.Lengthened:
		r.held[h.BlockSubject] = hold{min(before.since, at), block.Until}
	}
}

// blockResult joins what one rule's block would have done in all partitions.
func (r *run) blockResult(i int, before *ruleCount) *BlockResult {
	if r.plan.counted.Rules[i].Block == nil {
		return nil
	}
	out := &BlockResult{Offered: before.held, FirstRefused: traffic.EndOfTime}
	matched := int64(0)
	for _, s := range r.shards {
		rule := s.blocks.rules[i]
		out.Refused += rule.refused
		matched += rule.matched
		out.Held += int64(len(rule.held))
		out.FirstRefused = min(out.FirstRefused, rule.firstRefused)
	}
	if out.Refused == 0 {
		out.FirstRefused = 0
		return out
	}
	out.ShareOfAll = float64(out.Refused) / float64(r.sequence.out.Events)
	if before.matched > 0 {
		out.ShareOfMatched = float64(matched) / float64(before.matched)
	}
	return out
}
