package blocklist

import (
	"crypto/sha256"

	"github.com/weirhq/weir/traffic"
)

// seenBlocks is how many blocks of a round are remembered at least, 16 bytes each: about 25 MB at most, while a round of so
// many goes on. One that has been forgotten is compared once more, which changes nothing. It is more than a page has, so that
// no page gives a block twice.
const seenBlocks = 1 << 18

// wanted gives the blocks of a page that should stand, of those that no release covers and that were written under the
// rule's generation of now. Each update of an episode is a decision of its own, so a block has many; they come in
// descending order of expiry, and only the first is given, in this page or in one before.
func (a *assertion) wanted(page []Decision) []raise {
	now := a.r.o.Clock()
	raises := make([]raise, 0, len(page))
	for i := range page {
		key, b, ok := blockOf(&page[i], now)
		gen, blocking := a.generation[page[i].Rule]
		if !ok || !blocking || b.Generation != gen || a.unreleased[key] || a.r.never.Holds(key.subject) {
			continue
		}
		if t, ok := a.released[key]; ok && t.Covers(b.Hit, b.Since) {
			continue
		}
		if id := digest(key); !a.raised.has(id) {
			a.raised.add(id)
			raises = append(raises, raise{held: key, block: b})
		}
	}
	return raises
}

// digest stands for h where many are remembered.
func digest(h held) string {
	sum := sha256.Sum256([]byte(h.rule + " " + string(h.subject)))
	return string(sum[:16])
}

// tombstoneOf is what a released decision left behind; false for any other decision, and for one that is over.
func tombstoneOf(d *Decision, now traffic.Time) (held, Tombstone, bool) {
	key := held{subject: d.Subject.Stored(), rule: d.Rule}
	t := NewTombstone(d.Rule, d.By, d.Since, d.Until)
	t.Hit = d.Hit
	return key, t, d.Action == ActionReleased && assertable(d, key, now)
}

// blockOf is the block that a decision wrote or extended; false for any other decision, and for one that is over.
func blockOf(d *Decision, now traffic.Time) (held, Block, bool) {
	key := held{subject: d.Subject.Stored(), rule: d.Rule}
	b := NewBlock(d.Rule, d.Generation, d.Hit, d.Since, d.Until)
	return key, b, (d.Action == ActionWritten || d.Action == ActionExtended) && assertable(d, key, now)
}

func assertable(d *Decision, key held, now traffic.Time) bool {
	return d.Until > now && storable(d.Since) && storable(d.Until) && key.check() == nil
}

// lacks reports whether the raise script might change anything. It may say so of more than that, never of less: the script
// decides, under what it finds then.
func lacks(st *standing, b *Block) bool {
	if st.tombstone != nil && st.tombstone.Covers(b.Hit, b.Since) {
		return false
	}
	if st.block == nil || st.block.Generation < b.Generation {
		return true
	}
	return st.block.Generation == b.Generation && st.block.Until < b.Until
}

// lacksRelease is lacks for the release script, of a tombstone that removes only what it covers.
func lacksRelease(st *standing, t *Tombstone) bool {
	if st.tombstone == nil || st.tombstone.Released < t.Released {
		return true
	}
	return st.block != nil && st.tombstone.Covers(st.block.Hit, st.block.Since)
}
