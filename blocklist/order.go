package blocklist

import (
	"strings"
	"unicode/utf8"

	"github.com/weirhq/weir/traffic"
)

// Order is a block that somebody has ordered, for ENFORCE to carry out. Its rule is one of those that no document may
// have: rules.IsByHand.
type Order struct {
	ID string // as the id of a hit
	Name
	Since, Until traffic.Time
	By, Reason   string
}

// Block is the block that o leads to, under the generation of its rule.
func (o *Order) Block(generation int64) Block {
	b := NewBlock(o.Rule, generation, o.ID, o.Since, o.Until)
	b.order(o.By, o.Reason)
	return b
}

// order says in b who ordered it and why, cut to maxByBytes each: the decision carries them whole.
func (b *Block) order(by, reason string) { b.By, b.Reason = cutText(by), cutText(reason) }

// Told is b with who ordered it, and why, where a decision of ENFORCE says so.
func (b Block) Told(d *Decision) Block {
	if d.By != "" && d.Action != ActionReleased {
		b.order(d.By, d.Reason)
	}
	return b
}

// cutText is text of at most maxByBytes, in whole characters.
func cutText(text string) string {
	if len(text) > maxByBytes {
		cut := maxByBytes
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
