package rules

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// normal is d in the one form of all documents that mean the same: methods and block key in order, no path instead of one
// that matches all, a key that is never nil, defaults of reading and counting left out. The order of Key is part of the
// meaning: its first field routes.
func (d *Document) normal() Document {
	n := *d
	n.Match.Methods = slices.Clone(d.Match.Methods)
	n.Match.plainReading()
	n.Key = append(make([]traffic.KeyField, 0, len(d.Key)), d.Key...)
	if d.Block != nil {
		b := *d.Block
		b.Key = append(make([]traffic.KeyField, 0, len(d.Block.Key)), d.Block.Key...)
		n.Block = &b
	}
	n.sortSets()
	n.plainCounting()
	return n
}

// plainReading leaves out what is the default, or makes no difference.
func (m *Match) plainReading() {
	if m.Path == "*" {
		m.Path = ""
	}
	if m.Path == "" || m.PathAs == PathNormal {
		m.PathAs = ""
	}
	if m.Path == "" || m.PathCase == PathCaseExact {
		m.PathCase = ""
	}
	if m.folds() {
		m.Path = string(appendLower(nil, m.Path))
	}
}

// sortSets puts in order what is a set: methods, and the block's key, into the order of subjects. The rule's key stays
// as it is.
func (d *Document) sortSets() {
	slices.Sort(d.Match.Methods)
	if d.Block != nil {
		slices.SortStableFunc(d.Block.Key, func(a, b traffic.KeyField) int { return cmp.Compare(a.Field, b.Field) })
	}
}

// Canonical is d as JSON, the same bytes for all documents that mean the same, however their YAML was written. It fails
// only for a document that Validate refuses.
func (d *Document) Canonical() ([]byte, error) {
	n := d.normal()
	b, err := json.Marshal(&n)
	if err != nil {
		return nil, fmt.Errorf("rule %s: %w", quoteShort(d.ID), err)
	}
	return b, nil
}

// Fingerprint is the SHA-256 of Canonical, in hex: equal for Equal documents.
func (d *Document) Fingerprint() (string, error) {
	b, err := d.Canonical()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// Equal reports whether d and e mean the same: comments, notation and the order of members, methods and block key make
// no difference.
func (d *Document) Equal(e *Document) bool {
	a, b := d.normal(), e.normal()
	return a.ID == b.ID && a.Owner == b.Owner && sameMatch(a.Match, b.Match) && sameWindows(&a, &b) &&
		a.Limit == b.Limit && a.Burst == b.Burst && a.Cooldown == b.Cooldown && a.Lateness == b.Lateness && a.MaxLag == b.MaxLag && sameBlock(a.Block, b.Block)
}

// sameMatch, sameWindows and sameBlock compare documents in normal form.
func sameMatch(a, b Match) bool {
	return a.Path == b.Path && a.PathAs == b.PathAs && a.PathCase == b.PathCase && slices.Equal(a.Methods, b.Methods)
}

// sameWindows reports whether counts under one document mean the same under the other: whose window it is, over which
// span and of which kind, and what feeds it.
func sameWindows(a, b *Document) bool {
	return slices.Equal(a.Key, b.Key) && a.Window == b.Window && a.Missing == b.Missing &&
		a.Algorithm == b.Algorithm && a.Count.equal(b.Count)
}

func sameBlock(a, b *Block) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.TTL == b.TTL && a.Extend == b.Extend && slices.Equal(a.Key, b.Key)
}

// NextVersion makes the version of a rule that follows prev and says d; nil when the rule is new. A d that is Equal to
// prev's document is no change, and gives *prev. The lineage goes on, and the counts with it, unless key (its order and
// prefix lengths included), window, algorithm, count or on_missing change: these say what a count is, and a window that was
// filled under another meaning would be judged wrongly. A change of burst goes on like one of limit: what is in a bucket
// is there, and each event is judged by the capacity of its own version.
func NextVersion(prev *Version, d Document) (next Version, changed bool) {
	d = d.normal()
	if prev == nil {
		return Version{Document: d, Number: 1, Lineage: 1}, true
	}
	if prev.Equal(&d) {
		return *prev, false
	}
	next = Version{Document: d, Number: prev.Number + 1, Lineage: prev.Lineage}
	if !sameWindows(&prev.Document, &d) {
		next.Lineage++
	}
	return next, true
}
