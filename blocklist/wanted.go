package blocklist

import "github.com/weirhq/weir/traffic"

// wanted gives the blocks of a page that should stand: one for each key, the one that lasts longest of those which no
// release covers and which were written under the rule's generation of now.
func (a *assertion) wanted(page []Decision) []raise {
	now := a.r.o.Clock()
	at := make(map[held]int, len(page))
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
		if known, ok := at[key]; !ok {
			at[key] = len(raises)
			raises = append(raises, raise{held: key, block: b})
		} else if raises[known].block.Until < b.Until {
			raises[known].block = b
		}
	}
	return raises
}

// tombstoneOf is what a released decision left behind; false for any other decision, and for one that is over.
func tombstoneOf(d *Decision, now traffic.Time) (held, Tombstone, bool) {
	key := held{subject: d.Subject.Stored(), rule: d.Rule}
	t := Tombstone{
		Format: ValueFormat, Action: actionRelease, Rule: d.Rule, Released: d.Since, Until: d.Until, Hit: d.Hit,
		By: cutText(d.By, maxByBytes),
	}
	return key, t, d.Action == ActionReleased && assertable(d, key, now)
}

// blockOf is the block that a decision wrote or extended; false for any other decision, and for one that is over.
func blockOf(d *Decision, now traffic.Time) (held, Block, bool) {
	key := held{subject: d.Subject.Stored(), rule: d.Rule}
	b := Block{
		Format: ValueFormat, Action: actionBlock, Scope: scopeMatch, Rule: d.Rule, Generation: d.Generation,
		Hit: d.Hit, Since: d.Since, Until: d.Until,
	}
	return key, b, (d.Action == ActionWritten || d.Action == ActionExtended) && assertable(d, key, now)
}

func assertable(d *Decision, key held, now traffic.Time) bool {
	return d.Until > now && storable(d.Since) && storable(d.Until) && key.check() == nil
}
