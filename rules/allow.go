package rules

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
)

// AllowList is a named list of sources that rules do not count. A rule names the lists that it honours; what a list holds is
// judged by the time of each event.
type AllowList struct {
	ID    string `json:"id" mask:"name"`    // as a rule's
	Owner string `json:"owner" mask:"name"` // the team that answers for the list
	// Entries are in order of kind and value, each source once.
	Entries []AllowEntry `json:"entries"`
}

// AllowEntry is one source of a list.
type AllowEntry struct {
	Kind AllowKind `json:"kind"`
	// an address prefix for AllowCIDR, else the value of the field as events have it
	Value string `json:"value" mask:"value,Kind"`
	// Reason says why the source is let pass.
	Reason string `json:"reason" mask:"text"`
	// Until is when the entry ends: events of this time and after it are counted. 0: it has no end.
	Until traffic.Time `json:"until,omitzero"`
}

// AllowKind is what an entry tells a source by.
type AllowKind string

const (
	AllowCIDR    AllowKind = "cidr"    // the addresses of a prefix
	AllowDevice  AllowKind = "device"  // the identity's device
	AllowUser    AllowKind = "user"    // the identity's user
	AllowAPIKey  AllowKind = "api_key" // the identity's API key
	AllowSession AllowKind = "session" // the identity's session
)

// AllowKinds are all kinds, in the order of lists.
func AllowKinds() []AllowKind {
	return []AllowKind{AllowCIDR, AllowDevice, AllowUser, AllowAPIKey, AllowSession}
}

// Field is the part of an identity that an entry of this kind is compared with; false for a kind that there is not.
func (k AllowKind) Field() (traffic.Field, bool) {
	i := slices.Index(AllowKinds(), k)
	return traffic.FieldIP + traffic.Field(max(i, 0)), i >= 0
}

// The bounds of allow lists. A routing version holds each list that its rules name, and every process of the stages holds
// the newest routing versions.
const (
	MaxAllowEntries = 10_000 // of a list
	MaxRoutingAllow = 50_000 // entries of all lists that the rules of one routing version name
	MaxRuleAllow    = 16     // lists that one rule names
	maxAllowValue   = 256    // bytes; what is longer in an event has a digest in it
	maxAllowReason  = 256    // bytes
)

const (
	allowedAllow       = "a list of ids of allow lists, at most 16, such as [office-egress]"
	allowedEntries     = "a list of at most 10000 mappings with cidr, device, user, api_key or session, and a reason, such as {cidr: 192.0.2.0/24, reason: our office}"
	allowedCIDR        = "an address or a prefix without bits behind it, such as 192.0.2.0/24 or 2001:db8::/32"
	allowedAllowValue  = "1 to 256 bytes of printable text without spaces around it, as events have it"
	allowedAllowReason = "words that say why, 1 to 256 bytes of printable text"
	allowedUntil       = "a time with its zone, such as 2026-12-31T00:00:00Z; leave it out for no end"
	allowedKinds       = "one of cidr, device, user, api_key, session"
)

// Prefix is the addresses of an entry of AllowCIDR; false for another entry, and for what is no prefix.
func (e *AllowEntry) Prefix() (netip.Prefix, bool) {
	if e.Kind != AllowCIDR {
		return netip.Prefix{}, false
	}
	p, err := netip.ParsePrefix(e.Value)
	if err != nil {
		a, err := netip.ParseAddr(e.Value)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, false
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	return p, true
}

// normal is e in the one spelling of its source.
func (e AllowEntry) normal() AllowEntry {
	if p, ok := e.Prefix(); ok {
		e.Value = p.String()
	}
	return e
}

// Source names the source of e for people. Of keys and sessions, which are secrets, it shows the end only.
func (e *AllowEntry) Source() string {
	value := e.Value
	if e.Kind.Secret() {
		value = e.End()
	}
	return string(e.Kind) + " " + flowText(value)
}

// Ends reports whether e is over for events of time t.
func (e *AllowEntry) Ends(t traffic.Time) bool { return e.Until != 0 && t >= e.Until }

// end is Until with an end that compares.
func (e *AllowEntry) end() traffic.Time {
	if e.Until == 0 {
		return traffic.EndOfTime
	}
	return e.Until
}

// Normal is l in the one form of all lists that mean the same: entries in order, addresses as prefixes.
func (l *AllowList) Normal() AllowList {
	n := *l
	n.Entries = make([]AllowEntry, len(l.Entries))
	for i := range l.Entries {
		n.Entries[i] = l.Entries[i].normal()
	}
	slices.SortStableFunc(n.Entries, func(a, b AllowEntry) int {
		return cmp.Or(cmp.Compare(slices.Index(AllowKinds(), a.Kind), slices.Index(AllowKinds(), b.Kind)), comparePrefixes(&a, &b), cmp.Compare(a.Value, b.Value))
	})
	return n
}

func comparePrefixes(a, b *AllowEntry) int {
	p, ok := a.Prefix()
	q, both := b.Prefix()
	if !ok || !both {
		return 0
	}
	return cmp.Or(p.Addr().Compare(q.Addr()), cmp.Compare(p.Bits(), q.Bits()))
}

// Equal reports whether l and o mean the same: the order and spelling of entries make no difference.
func (l *AllowList) Equal(o *AllowList) bool {
	a, b := l.Normal(), o.Normal()
	return a.ID == b.ID && a.Owner == b.Owner && slices.Equal(a.Entries, b.Entries)
}

// Canonical is l as JSON, the same bytes for all lists that mean the same.
func (l *AllowList) Canonical() ([]byte, error) {
	n := l.Normal()
	b, err := json.Marshal(&n)
	if err != nil {
		return nil, fmt.Errorf("allow list %s: %w", quoteShort(l.ID), err)
	}
	return b, nil
}

// DecodeAllowList reads what Canonical wrote. A member that this build does not know is an error, as in a rule's document.
func DecodeAllowList(b []byte) (AllowList, error) {
	var l AllowList
	if err := decodeStrictly(b, &l); err != nil {
		return AllowList{}, fmt.Errorf("allow list that this build cannot read: %w", err)
	}
	return l, nil
}

// Validate checks a list that did not come from files, against the same rules. The error is a Problems.
func (l *AllowList) Validate(env Environment) error {
	var ps Problems
	l.check(env, func(p Problem) { ps = append(ps, p) })
	return ps.bounded().err()
}

// check reports everything about l that is not allowed.
func (l *AllowList) check(env Environment, report func(Problem)) {
	if !validID(l.ID) {
		report(Problem{Field: "id", Got: quoteShort(l.ID), Allowed: allowedID})
	}
	if !validOwner(l.Owner) {
		report(Problem{Field: "owner", Got: quoteShort(l.Owner), Allowed: allowedOwner})
	}
	if len(l.Entries) > MaxAllowEntries {
		report(Problem{Field: "entries", Got: strconv.Itoa(len(l.Entries)) + " entries", Allowed: "at most " + strconv.Itoa(MaxAllowEntries),
			Hint: "split it: a rule may name several lists"})
	}
	seen := map[AllowEntry]int{}
	for i := range l.Entries {
		place := element("entries", i)
		e := l.Entries[i].normal()
		before := false
		e.check(env, place, func(p Problem) { before = true; report(p) })
		source := AllowEntry{Kind: e.Kind, Value: e.Value}
		first, again := seen[source]
		switch {
		case before:
		case again:
			report(Problem{Field: place + "." + string(e.Kind), Got: quoteShort(l.Entries[i].Value) + " a second time, as in " + element("entries", first), Allowed: "each source once"})
		default:
			seen[source] = i
		}
	}
}

// check reports everything about one entry that is not allowed.
func (e *AllowEntry) check(env Environment, place string, report func(Problem)) {
	field, known := e.Kind.Field()
	if !known {
		report(Problem{Field: place, Got: "the kind " + quoteShort(string(e.Kind)), Allowed: allowedKinds})
		return
	}
	at := place + "." + string(e.Kind)
	if e.Kind == AllowCIDR {
		if allowed, hint := checkCIDR(e.Value); allowed != "" {
			report(Problem{Field: at, Got: quoteShort(e.Value), Allowed: allowed, Hint: hint})
		}
	} else if !validAllowValue(e.Value) {
		report(Problem{Field: at, Got: quoteShort(e.Value), Allowed: allowedAllowValue})
	}
	if !validAllowReason(e.Reason) {
		report(Problem{Field: place + ".reason", Got: quoteShort(e.Reason), Allowed: allowedAllowReason})
	}
	if e.Until < 0 || e.Until == traffic.EndOfTime {
		report(Problem{Field: place + ".until", Got: e.Until.String(), Allowed: allowedUntil})
	}
	if !env.Identity.Vouched(field) {
		_, hint := claimedOnly(env, []traffic.KeyField{{Field: field}})
		_, setting, _ := strings.Cut(hint, " or set ")
		report(Problem{Field: at, Got: field.String() + ", which clients claim: whoever sends this value would not be counted",
			Allowed: "what the gateway vouches for", Hint: "name the addresses (cidr), or set " + setting})
	}
}

// checkCIDR says what an entry's addresses must be, and what was probably meant; "" if they are right.
func checkCIDR(value string) (allowed, hint string) {
	p, err := netip.ParsePrefix(value)
	if err != nil {
		a, err := netip.ParseAddr(value)
		if err != nil || a.Zone() != "" {
			return allowedCIDR, ""
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	masked := p.Masked()
	switch {
	case p.Bits() == 0:
		return allowedCIDR + ", of 1 bit and more: this one is every address", "to stop a rule, weir rules demote it"
	case p.Addr().Is4In6():
		return allowedCIDR + "; IPv4 addresses as such", fmt.Sprintf("did you mean %s?", p.Addr().Unmap())
	case masked != p:
		return allowedCIDR, fmt.Sprintf("did you mean %s or %s?", masked, p.Addr())
	}
	return "", ""
}

// validAllowValue reports whether an identity can have this value: above maxAllowValue bytes it has a digest of a certain
// length in it.
func validAllowValue(value string) bool {
	const long = 200 + len("~sha256:") + 64
	return value != "" && strings.TrimSpace(value) == value && reading.Printable(value) &&
		(len(value) <= maxAllowValue || len(value) == long && strings.HasPrefix(value[200:], "~sha256:"))
}

func validAllowReason(reason string) bool {
	return strings.TrimSpace(reason) == reason && reason != "" && len(reason) <= maxAllowReason && reading.Printable(reason)
}

// Uncovered are the entries of l that hold for events of the time since and later, and for which next no longer lets pass all
// that they do: those are sources that the rules which name the list begin to count, before the entry's own end.
func (l *AllowList) Uncovered(next *AllowList, since traffic.Time) []AllowEntry {
	type source struct{ kind, value string }
	ends := map[source]traffic.Time{}
	for i := range next.Entries {
		e := next.Entries[i].normal()
		s := source{string(e.Kind), e.Value}
		ends[s] = max(ends[s], e.end())
	}
	var out []AllowEntry
	for i := range l.Entries {
		e := l.Entries[i].normal()
		if e.Ends(since) {
			continue
		}
		covered := ends[source{string(e.Kind), e.Value}]
		if p, ok := e.Prefix(); ok {
			for bits := p.Bits() - 1; bits > 0; bits-- {
				wider, _ := p.Addr().Prefix(bits) // bits of an address of its own: no error
				covered = max(covered, ends[source{string(AllowCIDR), wider.String()}])
			}
		}
		if covered < e.end() {
			out = append(out, e)
		}
	}
	return out
}

// maxDiffEntries bounds the lines about entries in a DiffAllow.
const maxDiffEntries = 20

// DiffAllow says in lines for people what changes from prev to next, as Diff does for rules. Of entries it names at most 20.
func DiffAllow(prev, next *AllowList) []string {
	if next == nil {
		if prev == nil {
			return nil
		}
		return []string{"removed"}
	}
	var lines []string
	p := AllowList{}
	if prev == nil {
		lines = append(lines, "owner "+next.Owner)
	} else if p = prev.Normal(); p.Owner != next.Owner {
		lines = append(lines, fmt.Sprintf("owner %s → %s", p.Owner, next.Owner))
	}
	type source struct{ kind, value string }
	before := map[source]*AllowEntry{}
	for i := range p.Entries {
		before[source{string(p.Entries[i].Kind), p.Entries[i].Value}] = &p.Entries[i]
	}
	n := next.Normal()
	changes := 0
	say := func(line string) {
		if changes++; changes <= maxDiffEntries {
			lines = append(lines, line)
		}
	}
	for i := range n.Entries {
		e := &n.Entries[i]
		s := source{string(e.Kind), e.Value}
		was := before[s]
		delete(before, s)
		switch {
		case was == nil:
			say(fmt.Sprintf("%s added, %s: %s", e.Source(), untilText(e.Until), e.Reason))
		case was.Until != e.Until:
			say(fmt.Sprintf("%s %s → %s: %s", e.Source(), untilText(was.Until), untilText(e.Until), e.Reason))
		case was.Reason != e.Reason:
			say(fmt.Sprintf("%s reason %s → %s", e.Source(), was.Reason, e.Reason))
		}
	}
	for i := range p.Entries {
		e := &p.Entries[i]
		if before[source{string(e.Kind), e.Value}] != nil {
			say(fmt.Sprintf("%s removed", e.Source()))
		}
	}
	if changes > maxDiffEntries {
		lines = append(lines, fmt.Sprintf("and %d more entries", changes-maxDiffEntries))
	}
	return lines
}

func untilText(t traffic.Time) string {
	if t == 0 {
		return "without end"
	}
	return "until " + t.String()
}

// YAML writes l as a document that ParseSet reads back into an Equal list.
func (l *AllowList) YAML() string {
	n := l.Normal()
	var b strings.Builder
	fmt.Fprintf(&b, "kind: allow\nid: %s\nowner: %s\n", yamlText(n.ID), yamlText(n.Owner))
	if len(n.Entries) == 0 {
		b.WriteString("entries: []\n")
		return b.String()
	}
	b.WriteString("entries:\n")
	for i := range n.Entries {
		e := &n.Entries[i]
		fmt.Fprintf(&b, "  - %s: %s\n    reason: %s\n", e.Kind, strconv.Quote(e.Value), strconv.Quote(e.Reason))
		if e.Until != 0 {
			fmt.Fprintf(&b, "    until: %s\n", e.Until)
		}
	}
	return b.String()
}

// allowIDs is the set of the lists' ids.
func allowIDs(lists []AllowList) map[string]bool {
	ids := make(map[string]bool, len(lists))
	for i := range lists {
		ids[lists[i].ID] = true
	}
	return ids
}

// missingAllow are the names in a rule's allow that are none of the known lists.
func missingAllow(d *Document, known map[string]bool) (missing []string) {
	for _, name := range d.Allow {
		if !known[name] {
			missing = append(missing, name)
		}
	}
	return missing
}
