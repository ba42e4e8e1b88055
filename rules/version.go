package rules

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
)

// normal is d in the one form of all documents that mean the same: methods and block key in order, no path instead of one
// that matches all, a key that is never nil, defaults of reading and counting left out. The order of Key is part of the
// meaning: its first field routes.
func (d *Document) normal() Document {
	n := *d
	n.Match = d.Match.normal()
	n.Allow = slices.Clone(d.Allow)
	n.Key = append(make([]traffic.KeyField, 0, len(d.Key)), d.Key...)
	if d.Block != nil {
		b := *d.Block
		b.Key = append(make([]traffic.KeyField, 0, len(d.Block.Key)), d.Block.Key...)
		if b.Match != nil {
			held := b.Match.normal()
			if b.Match = &held; sameMatch(held, n.Match.requestPart()) {
				b.Match = nil
			}
		}
		n.Block = &b
	}
	n.Candidate = cloneCandidate(d.Candidate)
	n.Count = d.Count.clone()
	plainPromotion(&n)
	n.sortSets()
	n.plainCounting()
	plainConditions(&n)
	return n
}

// normal is m in the form of all that mean the same, its lists in order.
func (m Match) normal() Match {
	for _, list := range setsOf(&m) {
		*list = slices.Clone(*list)
	}
	m.plainReading()
	m.sortSets()
	if slices.Contains(m.Paths, "*") {
		m.Paths = nil
	}
	if len(m.Paths) == 1 {
		m.Path, m.Paths = m.Paths[0], nil
	}
	m.plainReading()
	return m
}

// setsOf are the lists of m, all of them sets.
func setsOf(m *Match) []*[]string {
	return []*[]string{&m.Methods, &m.Paths, &m.Except, &m.Hosts, &m.Routes, &m.Statuses}
}

func (m *Match) sortSets() {
	for _, list := range setsOf(m) {
		slices.Sort(*list)
		if list != &m.Methods { // of which old documents may hold one twice
			*list = slices.Compact(*list)
		}
	}
}

// plainReading leaves out what is the default, or makes no difference.
func (m *Match) plainReading() {
	if m.Path == "*" {
		m.Path = ""
	}
	compared := len(m.paths())+len(m.Except) > 0
	if !compared || m.PathAs == PathNormal {
		m.PathAs = ""
	}
	if !compared || m.PathCase == PathCaseExact {
		m.PathCase = ""
	}
	if !m.folds() {
		return
	}
	m.Path = string(reading.AppendLower(nil, m.Path))
	for _, list := range [][]string{m.Paths, m.Except} {
		for i := range list {
			list[i] = string(reading.AppendLower(nil, list[i]))
		}
	}
}

// sortSets puts in order what is a set: the lists of a match, names of allow lists, and the block's key and a combination that
// is counted, into the order of subjects. The rule's key stays as it is.
func (d *Document) sortSets() {
	d.Match.sortSets()
	slices.Sort(d.Allow)
	slices.SortFunc(d.Count.Tuple, traffic.KeyField.Compare)
	if d.Block != nil {
		if d.Block.Match != nil {
			d.Block.Match.sortSets()
		}
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
		a.Limit == b.Limit && slices.Equal(a.Tiers, b.Tiers) && a.Burst == b.Burst && a.Cooldown == b.Cooldown && a.Lateness == b.Lateness && a.MaxLag == b.MaxLag && sameBlock(a.Block, b.Block) &&
		a.Near == b.Near && sameCandidate(a.Candidate, b.Candidate) && slices.Equal(a.Allow, b.Allow) &&
		describePromote(a.Promote) == describePromote(b.Promote) && describeCanary(a.Canary) == describeCanary(b.Canary)
}

// sameMatch, sameWindows and sameBlock compare documents in normal form.
func sameMatch(a, b Match) bool {
	return a.Path == b.Path && a.PathAs == b.PathAs && a.PathCase == b.PathCase && a.When == b.When && slices.Equal(a.Methods, b.Methods) &&
		slices.Equal(a.Paths, b.Paths) && slices.Equal(a.Except, b.Except) && slices.Equal(a.Hosts, b.Hosts) &&
		slices.Equal(a.Routes, b.Routes) && slices.Equal(a.Statuses, b.Statuses)
}

// sameWindows reports whether counts under one document mean the same under the other: whose window it is, over which
// span and of which kind, and what feeds it.
func sameWindows(a, b *Document) bool {
	return slices.Equal(a.Key, b.Key) && a.Window == b.Window && a.Missing == b.Missing &&
		a.Algorithm == b.Algorithm && a.Count.equal(b.Count) && (!a.usesParam() || a.Match.samePaths(&b.Match))
}

// usesParam reports whether d counts by a segment of its paths: which segment that is, the paths say.
func (d *Document) usesParam() bool {
	for _, k := range d.countedBy() {
		for one := range k.Alternatives() {
			if one.Field == traffic.FieldParam {
				return true
			}
		}
	}
	return false
}

func sameBlock(a, b *Block) bool {
	if a == nil || b == nil {
		return a == b
	}
	if (a.Match == nil) != (b.Match == nil) || a.Match != nil && !sameMatch(*a.Match, *b.Match) {
		return false
	}
	return a.TTL == b.TTL && a.Extend == b.Extend && slices.Equal(a.Key, b.Key)
}

// SameCount reports whether d and e find the same sources over the limit of the same requests: they differ at most in
// what is done about those, in who answers for it, and in whom allow lists leave out.
func SameCount(d, e *Document) bool {
	a, b := d.normal(), e.normal()
	return sameMatch(a.Match, b.Match) && sameWindows(&a, &b) && a.Limit == b.Limit && slices.Equal(a.Tiers,
		b.Tiers) && a.Burst == b.Burst
}

// SameBlock reports whether the blocks of d and e are the same, for the same sources.
func SameBlock(d, e *Document) bool {
	a, b := d.normal(), e.normal()
	return sameBlock(a.Block, b.Block)
}

// NextVersion makes the version of a rule that follows prev and says d; nil when the rule is new. A d that is Equal to
// prev's document is no change, and gives *prev. The lineage goes on, and the counts with it, unless key (its order and
// prefix lengths included), window, algorithm, count or on_missing change, or the paths of which key or count name a {param}: these say what a count is, and a window that was
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

// Used are the greatest numbers that a rule's versions have had, those that never acted included: none is given twice.
type Used struct{ Number, Lineage int }

// Next is NextVersion for a rule whose newer versions than prev never acted.
func (u Used) Next(prev *Version, d Document) (next Version, changed bool) {
	next, changed = NextVersion(prev, d)
	if !changed || prev == nil && u == (Used{}) {
		return next, changed
	}
	next.Number = u.Number + 1
	if prev == nil || next.Lineage != prev.Lineage {
		next.Lineage = u.Lineage + 1
	}
	return next, true
}

// Above is u where no number up to floor is given any more.
func (u Used) Above(floor int64) Used {
	return Used{Number: max(u.Number, int(floor)), Lineage: max(u.Lineage, int(floor))}
}

// Pending makes the pending version of a rule that says d. Its lineage is its own: its windows start empty, and go on when the
// version is promoted.
func (u Used) Pending(d Document) Version {
	return Version{Document: d.normal(), Number: u.Number + 1, Lineage: u.Lineage + 1, Pending: true}
}

// RaisedTo is d as it counts while its limit is raised: the limits of its tiers are no lower than that either.
func (d *Document) RaisedTo(limit int) Document {
	n := d.normal()
	n.Limit = max(n.Limit, limit)
	n.Tiers = slices.Clone(n.Tiers)
	for i := range n.Tiers {
		n.Tiers[i].Limit = max(n.Tiers[i].Limit, limit)
	}
	return n
}
