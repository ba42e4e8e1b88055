package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules/reading"
)

// MayBlockMore gives the reasons why next, were it to act in the place of prev, could block a request that prev would
// let pass. None means that it cannot: given the same counted events, each that is over under next is over under prev,
// and what next does about it holds nobody else, for no longer, and for no other requests. Where that cannot be shown
// simply, there is a reason.
//
// prev is nil for a rule that does not block yet. How seldom a running episode is updated (its cooldown, where it stays
// the same) and what a source does because it was refused are left out of the comparison. What promote and canary say blocks nobody:
// they are asked with the next promotion, and a canary that is under way keeps the steps of its own.
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
	lower, _ := tiersMayBlockMore(&p, &n)
	because(!lower || n.Limit < p.Limit, "tiers %s → %s: may fire earlier for some events", orNone(describeTiers(p.Tiers)), orNone(describeTiers(n.Tiers)))
	because(p.Match.Includes(n.Match), "match %s → %s: watches requests that it did not watch before",
		describeMatch(p.Match), describeMatch(n.Match))
	if held, holds := p.Reach(), n.Reach(); p.Block.Match != nil || n.Block.Match != nil {
		because(held.Includes(holds), "block.match %s → %s: holds requests that it did not hold before",
			describeMatch(held), describeMatch(holds))
	}
	because(p.Lateness == n.Lateness, "lateness %s → %s: other events are counted", duration.Format(p.Lateness), duration.Format(n.Lateness))
	because(n.MaxLag <= p.MaxLag, "max_lag %s → %s: blocks on older evidence", duration.Format(p.MaxLag), duration.Format(n.MaxLag))
	because(n.Block.TTL <= p.Block.TTL, "block.ttl %s → %s: blocks for longer", duration.Format(p.Block.TTL), duration.Format(n.Block.TTL))
	because(slices.Equal(p.Block.Key, n.Block.Key), "block.key %s → %s: blocks others", describeKey(p.Block.Key), describeKey(n.Block.Key))
	because(n.Block.Extend == ExtendNever || p.Block.Extend == n.Block.Extend, "block.extend %s → %s: keeps extending", p.Block.Extend, n.Block.Extend)
	because(n.Block.Extend == ExtendNever || p.UpdateEvery() == n.UpdateEvery(), "cooldown %s → %s: extends blocks at other moments",
		duration.Format(p.UpdateEvery()), duration.Format(n.UpdateEvery()))
	because(includesAll(n.Allow, p.Allow), "allow %s → %s: counts sources that it did not count", describeAllow(p.Allow), describeAllow(n.Allow))
	return append(reasons, countingReasons(&p, &n)...)
}

// includesAll reports whether all names of some are among all.
func includesAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(name string) bool { return !slices.Contains(all, name) })
}

func describeAllow(names []string) string { return "[" + strings.Join(names, ", ") + "]" }

// countingReasons are the reasons that lie in how windows count. Of documents whose windows differ, whose limit falls or
// whose match widens it may miss some; these have reasons already.
func countingReasons(p, n *Document) (reasons []string) {
	_, higher := tiersMayBlockMore(p, n)
	narrower := !sameMatch(p.Match, n.Match) && p.Match.Includes(n.Match)
	fewer := !includesAll(p.Allow, n.Allow) // sources that are left out from now on
	a := n.Counting()
	if narrower && !(p.monotone() && n.monotone()) {
		reasons = append(reasons, fmt.Sprintf("match %s → %s with algorithm %s, count %s: without the events before it, one may be over that was not",
			describeMatch(p.Match), describeMatch(n.Match), a, n.Count))
	}
	if fewer && !(p.monotone() && n.monotone()) {
		reasons = append(reasons, fmt.Sprintf("allow %s → %s with algorithm %s, count %s: without the events before it, one may be over that was not",
			describeAllow(p.Allow), describeAllow(n.Allow), a, n.Count))
	}
	if a == AlgorithmSliding && n.Count.Kind() == CountDistinct && greatestLimit(p) <= SlidingExact && greatestLimit(n) > SlidingExact {
		reasons = append(reasons, fmt.Sprintf("limit %d → %d: above %d sliding counts values approximately, and may count more", greatestLimit(p), greatestLimit(n), SlidingExact))
	}
	if a.bucket() && (higher || p.Capacity() != n.Capacity()) {
		reasons = append(reasons, fmt.Sprintf("limit %d, burst %d → limit %d, burst %d with %s: what it lets in now fills it for later",
			p.Limit, p.Capacity(), n.Limit, n.Capacity(), a))
	}
	// With fewer over events a long episode falls into several. Under on-hit each over event holds the source anyway;
	// under never only openings do, and there are now more of them.
	bothNever := p.Block.Extend == ExtendNever && n.Block.Extend == ExtendNever
	if bothNever && (higher || narrower || fewer) {
		reasons = append(reasons, "fewer events over the limit with extend never: one episode may become several, and each opening blocks")
	}
	return reasons
}

// Includes reports whether m watches every request that narrow watches, as far as that can be shown simply.
func (m Match) Includes(narrow Match) bool {
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
	covers := func(wide, inner []string, covered func(wide, inner string) bool) bool {
		return len(wide) == 0 || len(inner) > 0 && !slices.ContainsFunc(inner, func(i string) bool {
			return !slices.ContainsFunc(wide, func(w string) bool { return covered(w, i) })
		})
	}
	same := func(wide, inner string) bool { return wide == inner }
	return covers(m.Hosts, narrow.Hosts, includesHost) && covers(m.Routes, narrow.Routes, same) &&
		covers(m.Statuses, narrow.Statuses, includesStatus) && (m.When == "" || m.When == narrow.When) && m.includesPaths(&narrow)
}

func includesHost(wide, inner string) bool {
	suffix, ok := belowHost(wide)
	return wide == inner || ok && strings.HasSuffix(inner, suffix)
}

func includesStatus(wide, inner string) bool {
	return wide == inner || strings.HasSuffix(wide, "xx") && wide[:1] == inner[:1]
}

// includesPaths reports whether every path that reaches narrow reaches m. Where both have the same paths in mind, reading
// them in more ways or without case takes in more of them. Of several paths each must be within a single one of m's, and
// whatever m leaves out must be within what narrow does.
func (m *Match) includesPaths(narrow *Match) bool {
	for _, out := range m.Except {
		if m.PathAs != narrow.PathAs || m.PathCase != narrow.PathCase || !slices.ContainsFunc(narrow.Except, func(e string) bool {
			return reading.Includes(compared(m, e), compared(m, out))
		}) {
			return false
		}
	}
	inner := narrow.paths()
	if len(inner) == 0 {
		inner = []string{""}
	}
	wide := m.paths()
	return len(wide) == 0 || !slices.ContainsFunc(inner, func(i string) bool {
		return !slices.ContainsFunc(wide, func(w string) bool { return m.includesPath(w, narrow, i) })
	})
}

// compared is a pattern as m compares it.
func compared(m *Match, pattern string) string {
	if m.folds() {
		return string(reading.AppendLower(nil, pattern))
	}
	return pattern
}

// includesPath reports whether every path that reaches narrow by the pattern inner reaches m by the pattern wide.
func (m *Match) includesPath(wide string, narrow *Match, inner string) bool {
	if wide == "" || wide == "*" {
		return true
	}
	if m.PathAs == PathRaw && narrow.PathAs != PathRaw || !m.folds() && narrow.folds() {
		return false
	}
	if m.PathAs != PathRaw {
		w, ok1 := reading.Normal(wide)
		n, ok2 := reading.Normal(inner)
		if !ok1 || !ok2 || n != inner {
			return wide == inner // a path is compared as it stands, too, with a pattern that is not in normal form
		}
		wide = w
	}
	return reading.Includes(compared(m, wide), compared(m, inner))
}

func windowChange(prev, next *Document) string {
	var parts []string
	for _, line := range Diff(prev, next) {
		switch name, _, _ := strings.Cut(line, " "); name {
		case "key", "window", "algorithm", "count", "on_missing":
			parts = append(parts, line)
		case "match":
			if prev.usesParam() || next.usesParam() {
				parts = append(parts, line)
			}
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
		{"tiers", describeTiers(d.Tiers)},
		{"near", describeNear(d.Near)},
		{"candidate.limit", describeCandidate(d.Candidate)},
		{"window", duration.Format(d.Window)},
		{"algorithm", string(d.Counting())},
		{"count", d.Count.String()},
		{"burst", ""},
		{"cooldown", duration.Format(d.UpdateEvery())},
		{"lateness", duration.Format(d.Lateness)},
		{"max_lag", duration.Format(d.MaxLag)},
		{"block.key", ""}, {"block.ttl", ""}, {"block.extend", ""}, {"block.match", ""},
	}
	if d.Counting().bucket() {
		list[slices.IndexFunc(list, func(a attribute) bool { return a.name == "burst" })].value = strconv.Itoa(d.Capacity())
	}
	if d.Block != nil {
		held := ""
		if d.Block.Match != nil {
			held = describeMatch(*d.Block.Match)
		}
		list = append(list[:len(list)-4],
			attribute{"block.key", describeKey(d.Block.Key)},
			attribute{"block.ttl", duration.Format(d.Block.TTL)},
			attribute{"block.extend", string(d.Block.Extend)},
			attribute{"block.match", held})
	}
	if len(d.Allow) > 0 {
		list = append(list, attribute{"allow", describeAllow(d.Allow)})
	} else {
		list = append(list, attribute{"allow", ""})
	}
	return append(list, attribute{"promote", describePromote(d.Promote)}, attribute{"canary", describeCanary(d.Canary)})
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

// String is m for people: POST /v1/guest-tokens.
func (m Match) String() string { return describeMatch(m) }

func describeMatch(m Match) string {
	methods := "any method"
	if len(m.Methods) > 0 {
		methods = strings.Join(m.Methods, ",")
	}
	return methods + " " + m.where(yamlText) // quoted where it could be taken for other words
}

// Where is m for people, but for its methods: "any path, host api.example.com".
func (m Match) Where() string { return m.where(func(s string) string { return s }) }

func (m *Match) where(show func(string) string) string {
	join := func(list []string) string {
		shown := make([]string, len(list))
		for i, s := range list {
			shown[i] = show(s)
		}
		return strings.Join(shown, ",")
	}
	text := "any path"
	if len(m.paths()) > 0 {
		text = join(m.paths())
	}
	list := func(before string, of []string) {
		if len(of) > 0 {
			text += before + join(of)
		}
	}
	if m.PathAs == PathRaw {
		text += ", path_as raw"
	}
	if m.folds() {
		text += ", path_case ignore"
	}
	list(", except ", m.Except)
	list(", host ", m.Hosts)
	list(", route ", m.Routes)
	if len(m.Statuses) > 0 {
		text += ", status " + strings.Join(m.Statuses, ",")
	}
	if m.When != "" {
		text += ", when " + strconv.Quote(m.When)
	}
	return text
}
