package reconcile

import (
	"crypto/sha256"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// seenBlocks is how many blocks of a round are remembered at least, 16 bytes each: about 25 MB at most, during a round of so
// many blocks. A block that was dropped from memory is compared once more, which changes nothing. The number is above a page's
// size, so that no page contains a block twice.
const seenBlocks = 1 << 18

// selection says which decisions are blocks that should stand: not covered by a release, written under the rule's present
// generation, and of nobody who is never to be blocked.
type selection struct {
	generation map[string]int64                       // of the rules that block
	released   map[blocklist.Name]blocklist.Tombstone // the newest release of each block; releases are acts of people, and few
	never      blocklist.NeverBlock
}

func newSelection(modes []rules.ModeState, never blocklist.NeverBlock) selection {
	s := selection{generation: make(map[string]int64, len(modes)), released: map[blocklist.Name]blocklist.Tombstone{}, never: never}
	for _, m := range modes {
		if m.Mode.Blocks() {
			s.generation[m.Rule] = m.Generation
		}
	}
	return s
}

// release notes the releases of a page. All of them come before the first block.
func (s *selection) release(page []blocklist.Decision, now traffic.Time) {
	for i := range page {
		if key, t, ok := tombstoneOf(&page[i], now); ok && s.released[key].Released < t.Released {
			s.released[key] = t
		}
	}
}

// block is the block that a decision says should stand; false for any other decision.
func (s *selection) block(d *blocklist.Decision, now traffic.Time) (blocklist.Name, blocklist.Block, bool) {
	key, b, ok := blockOf(d, now)
	gen, blocking := s.generation[d.Rule]
	if !ok || !blocking || b.Generation != gen || s.never.Holds(key.Subject) {
		return key, b, false
	}
	t, ok := s.released[key]
	return key, b, !ok || !t.Covers(b.Hit, b.Since)
}

// wanted selects from a page the blocks to assert. Each update of an episode is a decision, so a block has many; they come in
// descending order of expiry, and only the first one counts, in this page or in one before.
func (a *assertion) wanted(page []blocklist.Decision) []blocklist.Raise {
	now := a.r.o.Clock()
	raises := make([]blocklist.Raise, 0, len(page))
	for i := range page {
		key, b, ok := a.block(&page[i], now)
		if !ok || a.unreleased[key] {
			continue
		}
		if id := digest(key); !a.raised.Has(id) {
			a.raised.Add(id)
			raises = append(raises, blocklist.Raise{Name: key, Block: b})
		}
	}
	return raises
}

// digest stands for h where many are remembered.
func digest(h blocklist.Name) string {
	sum := sha256.Sum256([]byte(h.Rule + " " + string(h.Subject)))
	return string(sum[:16])
}

// tombstoneOf is what a released decision left behind; false for any other decision, and for one that is over.
func tombstoneOf(d *blocklist.Decision, now traffic.Time) (blocklist.Name, blocklist.Tombstone, bool) {
	key := blocklist.Name{Subject: d.Subject.Stored(), Rule: d.Rule}
	t := blocklist.NewTombstone(d.Rule, d.By, d.Since, d.Until)
	t.Hit = d.Hit
	return key, t, d.Action == blocklist.ActionReleased && assertable(d, key, now)
}

// blockOf is the block that a decision wrote or extended; false for any other decision, and for one that is over.
func blockOf(d *blocklist.Decision, now traffic.Time) (blocklist.Name, blocklist.Block, bool) {
	key := blocklist.Name{Subject: d.Subject.Stored(), Rule: d.Rule}
	b := blocklist.NewBlock(d.Rule, d.Generation, d.Hit, d.Since, d.Until).Told(d)
	return key, b, (d.Action == blocklist.ActionWritten || d.Action == blocklist.ActionExtended) && assertable(d, key, now)
}

func assertable(d *blocklist.Decision, key blocklist.Name, now traffic.Time) bool {
	return d.Until > now && blocklist.Storable(d.Since) && blocklist.Storable(d.Until) && key.Check() == nil
}

// lacks reports whether the raise script might change anything. It may say so of more than that, never of less: the script
// decides, under what it finds then.
func lacks(st *blocklist.Standing, b *blocklist.Block) bool {
	if st.Tombstone != nil && st.Tombstone.Covers(b.Hit, b.Since) {
		return false
	}
	if st.Block == nil || st.Block.Generation < b.Generation {
		return true
	}
	return st.Block.Generation == b.Generation && st.Block.Until < b.Until
}

// lacksRelease is lacks for the release script, of a tombstone that removes only what it covers.
func lacksRelease(st *blocklist.Standing, t *blocklist.Tombstone) bool {
	if st.Tombstone == nil || st.Tombstone.Released < t.Released {
		return true
	}
	return st.Block != nil && st.Tombstone.Covers(st.Block.Hit, st.Block.Since)
}
