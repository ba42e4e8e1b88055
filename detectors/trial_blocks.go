package detectors

import (
	"slices"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/holding"
	"github.com/weirhq/weir/traffic"
)

// trialBlock is the block that is tried, as its rule's newest version has it.
type trialBlock struct {
	key, ruleKey []traffic.KeyField // ruleKey: of the block that stands for all others beyond MaxTuples, nil where there is none
	terms        holding.Terms      // without Closing, which depends on the lineage, too: see closing
	update       time.Duration      // how much older a closing hit may be than its episode's end, as updates come only so often
	same         bool               // key is the rule's
}

func newTrialBlock(b *binding) trialBlock {
	v := b.version
	if !b.tries.blocks {
		return trialBlock{}
	}
	out := trialBlock{key: v.Block.Key, terms: holding.TermsOf(&v.Document), same: b.tries.same}
	out.update, out.terms.Closing = out.terms.Closing-v.Window-v.Lateness, 0
	if b.wide && b.key == nil {
		out.ruleKey = v.Key
	}
	return out
}

// closing are the terms for the hits of a lineage: its episodes end when none of its versions waits for a late event
// any more.
func (x *trialBlock) closing(l *lineage) holding.Terms {
	terms := x.terms
	terms.Closing = time.Duration(l.window+l.lateness)*time.Microsecond + x.update
	return terms
}

// updateBefore is what a snapshot of before format 8 tells of update: episodes with several blocks have the default
// cooldown.
func (x *trialBlock) updateBefore() time.Duration {
	if x.ruleKey != nil {
		return rules.DefaultCooldown
	}
	return 0
}

// alike reports whether two blocks are for the same keys.
func (x *trialBlock) alike(y *trialBlock) bool {
	return x.same == y.same && slices.Equal(x.key, y.key) && slices.Equal(x.ruleKey, y.ruleKey)
}

// blocked is a subject that a trial holds, or that the rule itself has found.
type blocked struct {
	print Fingerprint
	holds []hold // by step
	kept  *kept

	// The hit that what is refused is told with: the newest of the rule's own with this subject. hit is empty where there is none.
	hit     string
	subject traffic.Subject
	version int
	opened  traffic.Time
	closed  bool  // it will be sent no more
	refused int64 // since it opened
	told    int64 // of them, in its records so far
}

// hold is the newest block of a subject at one limit: it holds requests of since <= time < until.
type hold struct{ since, until traffic.Time }

// over reports whether a hold refuses nobody any more: the watermark has passed its end by lateness. Then it is forgotten
// when the next minute of append time begins, which no figure may depend on.
func (b *hold) over(lateness, watermark traffic.Time) bool {
	return later(b.until, lateness) <= watermark
}

// waits reports whether something is to be told of the hit that none of its records will say.
func (x *blocked) waits() bool { return x.closed && x.refused > x.told }

func (x *blocked) resize(r *ruleTrial, n int) {
	if n == len(x.holds) {
		return
	}
	r.ledger().bytes += holdBytes * int64(n-len(x.holds))
	holds := make([]hold, n)
	copy(holds, x.holds)
	x.holds = holds
}

// subjectPrint is the fingerprint of a block's subject; false where it is none of the block that is tried.
func (r *ruleTrial) subjectPrint(s traffic.Subject) (Fingerprint, bool) {
	secret := &r.all.p.cfg.Secret
	print, err := secret.named(s, r.block.key)
	if err != nil && r.block.ruleKey != nil {
		print, err = secret.named(s, r.block.ruleKey)
	}
	return print, err == nil
}

// prints are the fingerprints of the subjects by which a request may be refused: of the block's key, and of the rule's where a block
// for it stands for many. A field that the event lacks leaves one out.
func (t *trials) prints(k *Keyed, i int, b *binding, r *ruleTrial) (out [2]Fingerprint, n int) {
	f := &t.p.fingerprints
	if r.block.same && b.lineage.form != keyText && i >= 0 && b.role == roleMain {
		print, missing, _ := f.locate(k, i, b)
		out[0] = print
		return out, int(bit(missing == 0))
	}
	for _, key := range [...][]traffic.KeyField{r.block.key, r.block.ruleKey} {
		if key == nil {
			continue
		}
		print, missing, scratch := f.secret.binaryKey(f.scratch, &k.Identity, key)
		f.scratch = scratch
		if missing == 0 {
			out[n] = print
			n++
		}
	}
	return out, n
}

// reach takes a request that the block of b may refuse, of the rule at index i of k.Rules, or with -1 of one that does not count it. The
// bits of the steps at which it is refused are set.
func (t *trials) reach(k *Keyed, i int, b *binding) (refused uint32) {
	r := t.of(b)
	if r == nil {
		return 0
	}
	if i >= 0 && len(k.Beyond) > 0 && slices.Contains(k.Beyond, k.Rules[i]) {
		return 0
	}
	sum := r.sum(k, b)
	sum.reached++
	sum.silent = b.tries.silent
	if len(r.blocks) == 0 || !b.tries.blocks {
		return 0
	}
	prints, n := t.prints(k, i, b, r)
	var by *blocked
	for _, print := range prints[:n] {
		x := r.blocks[print]
		if x == nil {
			continue
		}
		for step := range x.holds {
			if h := &x.holds[step]; h.since <= k.Time && k.Time < h.until && !h.over(r.lineage.lateness, t.p.watermark.at) {
				refused |= 1 << step
			}
		}
		if by == nil && refused&1 == 1 {
			by = x
		}
	}
	if refused != 0 {
		sum.refuse(r, refused)
	}
	if by == nil {
		return refused
	}
	by.refused++
	if print, missing, _ := t.p.cfg.Secret.binaryKey(t.scratch[:0], &k.Identity, r.block.key); missing == 0 && t.good.knows(print, k.Time) {
		sum.refusedGood++
	}
	return refused
}

// block is the state of a subject, which is added if need be.
func (t *trials) block(r *ruleTrial, print Fingerprint) *blocked {
	x := r.blocks[print]
	if x == nil {
		x = &blocked{print: print}
		t.p.keys.tried.bytes += blockedBytes
		r.blocks[print] = x
		t.made++
		x.kept = &kept{trial: r, made: t.made, block: x}
		t.kept = append(t.kept, x.kept)
	}
	return x
}

// release forgets a subject.
func (r *ruleTrial) release(x *blocked) {
	x.resize(r, 0)
	r.ledger().bytes -= blockedBytes
	x.kept.block = nil
	delete(r.blocks, x.print)
}

func (r *ruleTrial) dropBlocks() {
	for _, x := range r.blocks {
		r.release(x)
	}
}

// obey does what ENFORCE would do about the hits of a trial's windows, those in t.hits, of what is in the partition's
// outcome.
func (t *trials) obey(held *offender) {
	g := held.lineage.rung
	r := g.trial
	ended := t.p.outcome.ended // whose hits come first
	terms := r.block.closing(held.lineage)
	for i := range t.hits {
		h, now := &t.hits[i], t.now
		if h.Phase == PhaseClosed {
			now = t.told(ended[i].ep)
		}
		if !h.Offends() {
			continue
		}
		print, ok := r.subjectPrint(h.BlockSubject)
		if !ok {
			continue
		}
		before := hold{}
		if x := r.blocks[print]; x != nil && g.step < len(x.holds) {
			before = x.holds[g.step]
		}
		if after := before.take(&terms, h, t.at, now); after != before {
			x := t.block(r, print)
			x.resize(r, max(len(x.holds), len(r.limits)))
			x.holds[g.step] = after
		}
	}
	clear(t.hits)
}

// told is when ENFORCE would hear that an episode is over. Where requests go on that is when it is over, as the
// watermark says: now. Where none come, the watermark follows the clock at a distance, and ticks tell it. A log that is
// read without ticks jumps over them.
func (t *trials) told(ep *episode) traffic.Time {
	return min(max(t.clock, t.p.watermark.at), ep.closes().Add(t.p.cfg.IdleMargin+TickEvery))
}

// take is the hold after a hit that comes to ENFORCE at now, and that was brought by an event at some time.
func (b hold) take(terms *holding.Terms, h *Hit, at, now traffic.Time) hold {
	block, hit := holding.Block{Until: b.until}, h.Holding(0)
	switch block.Take(terms, &hit, now) {
	case holding.Made:
		return hold{at, block.Until}
	case holding.Lengthened:
		return hold{min(b.since, at), block.Until}
	}
	return b
}

// say adds to the hits from one on, all of l, what the trial of their rule knows, and tells of the hits that they take the place of.
func (t *trials) say(l *lineage, from int, out []Hit) []Hit {
	r := l.trial
	if r.block.key == nil { // no block is tried
		return out
	}
	for i, n := from, len(out); i < n; i++ {
		if out[i].BlockSubject == "" || out[i].Opened == 0 {
			continue
		}
		print, ok := r.subjectPrint(out[i].BlockSubject)
		if !ok {
			continue
		}
		if t.good.knows(print, out[i].Last) {
			out[i].Good = KnownGood
		}
		x := r.blocks[print]
		if out[i].Phase == PhaseOpen {
			x = t.block(r, print)
			if x.closed = x.closed || x.hit != ""; x.waits() {
				out = append(out, t.late(r, x))
			}
			h := &out[i]
			x.hit, x.subject, x.version, x.opened, x.closed, x.refused, x.told = h.ID, h.BlockSubject, h.RuleVersion, h.Opened, false, 0, 0
		}
		if x != nil && x.hit == out[i].ID {
			out[i].Refused, x.told = x.refused, x.refused
			x.closed = out[i].Phase == PhaseClosed || out[i].Phase == PhaseMerged
		}
	}
	return out
}

// late tells how many requests were refused since a hit was closed.
func (t *trials) late(r *ruleTrial, x *blocked) Hit {
	x.told = x.refused
	return Hit{
		Format: HitFormat, Kind: KindRunning, ID: x.hit, Rule: r.lineage.rule, RuleVersion: x.version, Lineage: r.lineage.number, Phase: PhaseClosed,
		BlockSubject: x.subject, Opened: x.opened, Limit: r.limits[0], First: x.opened, Last: x.opened, Seen: t.p.watermark.appended,
		Generation: t.p.fence.generation, Keyed: t.p.cfg.Keyed, Refused: x.refused,
	}
}

// retireBlock forgets a subject that nothing holds any more and of which all is told.
func (r *ruleTrial) retireBlock(x *blocked, watermark traffic.Time) {
	for i := range x.holds {
		if h := &x.holds[i]; !h.over(r.lineage.lateness, watermark) && *h != (hold{}) {
			return
		}
	}
	if x.hit == "" || x.closed && !x.waits() {
		r.release(x)
	}
}
