package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/duration"
)

// MayBlockMore gives the reasons why next, were it to act in the place of prev, could block a request that prev would
// let pass. None means that it cannot: given the same counted events, each that is over under next is over under prev,
// and what next does about it holds nobody else, for no longer, and for no other requests. Where that cannot be shown
// simply, there is a reason.
//
// prev is nil for a rule that does not block yet. How seldom a running episode is updated (its cooldown, where it stays
// the same) and what a source does because it was refused are left out of the comparison.
func MayBlockMore(prev, next *Document) (reasons []string) {
	if next == nil || next.Block == nil {
		return nil
	}
	if prev == nil {
		return []string{"the rule is new"}
	}
	if prev.Block == nil {
		return []string{"block is added"}
	}
	p, n := prev.normal(), next.normal()
	because := func(ok bool, format string, args ...any) {
		if !ok {
			reasons = append(reasons, fmt.Sprintf(format, args...))
		}
	}
	because(p.ID == n.ID, "id %s → %s: not the same rule", p.ID, n.ID)
	because(sameWindows(&p, &n), "%s: windows start anew, and episodes that are running open a second time", windowChange(&p, &n))
	because(n.Limit >= p.Limit, "limit %d → %d: fires earlier", p.Limit, n.Limit)
	because(p.Match.includes(n.Match), "match %s → %s: watches requests that it did not watch before", describeMatch(p.Match), describeMatch(n.Match))
	because(p.Lateness == n.Lateness, "lateness %s → %s: other events are counted", duration.Format(p.Lateness), duration.Format(n.Lateness))
	because(n.MaxLag <= p.MaxLag, "max_lag %s → %s: blocks on older evidence", duration.Format(p.MaxLag), duration.Format(n.MaxLag))
	because(n.Block.TTL <= p.Block.TTL, "block.ttl %s → %s: blocks for longer", duration.Format(p.Block.TTL), duration.Format(n.Block.TTL))
	because(slices.Equal(p.Block.Key, n.Block.Key), "block.key %s → %s: blocks others", describeKey(p.Block.Key), describeKey(n.Block.Key))
	because(n.Block.Extend == ExtendNever || p.Block.Extend == n.Block.Extend, "block.extend %s → %s: keeps extending", p.Block.Extend, n.Block.Extend)
	because(n.Block.Extend == ExtendNever || p.UpdateEvery() == n.UpdateEvery(), "cooldown %s → %s: extends blocks at other moments",
		duration.Format(p.UpdateEvery()), duration.Format(n.UpdateEvery()))
	return append(reasons, countingReasons(&p, &n)...)
}

// countingReasons are the reasons that lie in how windows count. Of documents whose windows differ, whose limit falls or
// whose match widens it may miss some; these have reasons already.
func countingReasons(p, n *Document) (reasons []string) {
	higher, narrower := n.Limit > p.Limit, !sameMatch(p.Match, n.Match) && p.Match.includes(n.Match)
	a := n.Counting()
	if narrower && !(p.monotone() && n.monotone()) {
		reasons = append(reasons, fmt.Sprintf("match %s → %s with algorithm %s, count %s: without the events before it, one may be over that was not",
			describeMatch(p.Match), describeMatch(n.Match), a, n.Count))
	}
	if a == AlgorithmSliding && n.Count.Kind() == CountDistinct && p.Limit <= SlidingExact && n.Limit > SlidingExact {
		reasons = append(reasons, fmt.Sprintf("limit %d → %d: above %d sliding counts values approximately, and may count more", p.Limit, n.Limit, SlidingExact))
	}
	if a.bucket() && (higher || p.Capacity() != n.Capacity()) {
		reasons = append(reasons, fmt.Sprintf("limit %d, burst %d → limit %d, burst %d with %s: what it lets in now fills it for later",
			p.Limit, p.Capacity(), n.Limit, n.Capacity(), a))
	}
	// With fewer over events a long episode falls into several. Under on-hit each over event holds the source anyway;
	// under never only openings do, and there are now more of them.
	bothNever := p.Block.Extend == ExtendNever && n.Block.Extend == ExtendNever
	if bothNever && (higher || narrower) {
		reasons = append(reasons, "fewer events over the limit with extend never: one episode may become several, and each opening blocks")
	}
	return reasons
}

// includes reports whether m watches every request that narrow watches.
func (m Match) includes(narrow Match) bool {
	if len(m.Methods) > 0 {
		if len(narrow.Methods) == 0 {
			return false
		}
		for _, name := range narrow.Methods {
			if !slices.Contains(m.Methods, name) {
				return false
			}
		}
	}
	return m.includesPaths(&narrow)
}

// includesPaths reports whether every path that reaches narrow reaches m. Where both have the same paths in mind, reading
// them in more ways or without case takes in more of them.
func (m *Match) includesPaths(narrow *Match) bool {
	if m.Path == "" || m.Path == "*" {
		return true
	}
	if m.PathAs == PathRaw && narrow.PathAs != PathRaw || !m.folds() && narrow.folds() {
		return false
	}
	wide, inner := m.Path, narrow.Path
	if m.PathAs != PathRaw {
		w, ok1 := normalPath(wide)
		n, ok2 := normalPath(inner)
		if !ok1 || !ok2 || n != inner {
			return wide == inner // a path is compared as it stands, too, with a pattern that is not in normal form
		}
		wide = w
	}
	if m.folds() {
		wide, inner = string(appendLower(nil, wide)), string(appendLower(nil, inner))
	}
	return includes(wide, inner)
}

func windowChange(prev, next *Document) string {
	var parts []string
	for _, line := range Diff(prev, next) {
		switch name, _, _ := strings.Cut(line, " "); name {
		case "key", "window", "algorithm", "count", "on_missing":
			parts = append(parts, line)
		}
	}
	return strings.Join(parts, ", ")
}

// attribute is one field of a document in the words of Diff.
type attribute struct{ name, value string }

// attributes lists d's fields in the order of a document. Absent ones have an empty value.
func (d *Document) attributes() []attribute {
	list := []attribute{
		{"id", d.ID},
		{"owner", d.Owner},
		{"match", describeMatch(d.Match)},
		{"key", describeKey(d.Key)},
		{"on_missing", string(d.Missing)},
		{"limit", strconv.Itoa(d.Limit)},
		{"window", duration.Format(d.Window)},
		{"algorithm", string(d.Counting())},
		{"count", d.Count.String()},
		{"burst", ""},
		{"cooldown", duration.Format(d.UpdateEvery())},
		{"lateness", duration.Format(d.Lateness)},
		{"max_lag", duration.Format(d.MaxLag)},
		{"block.key", ""}, {"block.ttl", ""}, {"block.extend", ""},
	}
	if d.Counting().bucket() {
		list[slices.IndexFunc(list, func(a attribute) bool { return a.name == "burst" })].value = strconv.Itoa(d.Capacity())
	}
	if d.Block != nil {
		list = append(list[:len(list)-3],
			attribute{"block.key", describeKey(d.Block.Key)},
			attribute{"block.ttl", duration.Format(d.Block.TTL)},
			attribute{"block.extend", string(d.Block.Extend)})
	}
	return list
}

// Diff says in lines for people what changes from prev to next: "limit 5 → 3", "block.ttl none → 15m". A nil prev is a
// new rule and gives all fields of next ("limit 3"); a nil next gives "removed". Equal documents give no line.
func Diff(prev, next *Document) []string {
	if next == nil {
		if prev == nil {
			return nil
		}
		return []string{"removed"}
	}
	n := next.normal()
	var lines []string
	if prev == nil {
		for _, a := range n.attributes() {
			if a.value != "" {
				lines = append(lines, a.name+" "+a.value)
			}
		}
		return lines
	}
	p := prev.normal()
	after := n.attributes()
	for i, before := range p.attributes() {
		if before.value != after[i].value {
			lines = append(lines, fmt.Sprintf("%s %s → %s", before.name, orNone(before.value), orNone(after[i].value)))
		}
	}
	return lines
}

func orNone(value string) string {
	if value == "" {
		return "none"
	}
	return value
}

func describeMatch(m Match) string {
	methods, path := "any method", "any path"
	if len(m.Methods) > 0 {
		methods = strings.Join(m.Methods, ",")
	}
	if m.Path != "" {
		path = yamlText(m.Path) // quoted where it could be taken for the words above
	}
	if m.PathAs == PathRaw {
		path += ", path_as raw"
	}
	if m.folds() {
		path += ", path_case ignore"
	}
	return methods + " " + path
}
