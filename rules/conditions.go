package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/traffic"
)

// Conditions judges what `when` says, which is CEL. Package rules/condition does; a program that only holds blocks, as a gate,
// links neither.
type Conditions interface {
	// Check reports each thing that is wrong with a condition, with its place in the expression from 1; 0 for all of it.
	Check(expr string, report func(line, column int, got, allowed, hint string))
	// Reads lists the fields of the event that a condition reads, without `event.`: plan, attrs.cost, headers.x-app.
	Reads(expr string) []string
	// Settled reports each comparison of a condition that comes out the same for every event, with the place of what the field is
	// compared with.
	Settled(expr string, report func(line, column int, got, allowed, hint string))
}

// MaxWhenBytes bounds a condition.
const MaxWhenBytes = 2048

const (
	allowedWhen      = `a condition in CEL on the event, such as event.plan == "free" && event.status >= 400`
	allowedTiers     = "a list of 1 to 16 of {when: CONDITION, limit: N}"
	allowedTierLimit = allowedLimit
)

// conditions checks match.when and the tiers.
func (c *checker) conditions() {
	if c.Match.When != "" {
		checkWhen(c.env, "match.when", c.Match.When, c.report)
	}
	c.say(len(c.Tiers) <= MaxTiers, "tiers", strconv.Itoa(len(c.Tiers))+" tiers", allowedTiers)
	if len(c.Tiers) > 0 && c.Counting().bucket() {
		c.say(false, "tiers", "tiers with "+string(c.Counting()), "tiers with an algorithm that has no bucket, since a bucket has one rate")
	}
	for i, t := range c.Tiers[:min(len(c.Tiers), MaxTiers)] {
		place := element("tiers", i)
		if t.When == "" {
			c.say(false, place+".when", "nothing", allowedWhen)
		} else {
			checkWhen(c.env, place+".when", t.When, c.report)
		}
		c.say(t.Limit >= 0 && t.Limit <= MaxLimit, place+".limit", "the number "+strconv.Itoa(t.Limit), allowedTierLimit)
		for j, before := range c.Tiers[:i] {
			c.say(before.When != t.When, place+".when", "the condition of "+element("tiers", j)+" a second time", "each condition once: the first tier whose condition holds counts")
		}
	}
}

func checkWhen(env Environment, field, expr string, report func(Problem)) {
	if len(expr) > MaxWhenBytes {
		report(Problem{Field: field, Got: fmt.Sprintf("an expression of %d bytes", len(expr)), Allowed: fmt.Sprintf("at most %d bytes", MaxWhenBytes)})
		return
	}
	if env.Conditions == nil {
		return
	}
	env.Conditions.Check(expr, func(line, column int, got, allowed, hint string) {
		report(Problem{Field: field, Got: got, Allowed: allowed, Hint: hint, within: yamlnode.Place{Line: line, Column: column}})
	})
}

// readWhen reads a condition.
func readWhen(d *decoder, field string, n yamlnode.Node) (string, bool) {
	s, ok := d.text(field, n, allowedWhen)
	if !ok {
		return "", false
	}
	if s = strings.TrimSpace(s); s == "" {
		d.wrong(field, n, allowedWhen, "leave the field out to match every event")
		return "", false
	}
	if d.env.Conditions == nil {
		d.bad[field] = true
		d.add(n.Place(), field, "a condition, which this program cannot judge", "rules without when and tiers", "")
		return "", false
	}
	return s, true
}

func readMatchWhen(d *decoder, field string, n yamlnode.Node) {
	if s, ok := readWhen(d, field, n); ok {
		d.doc.Match.When = s
	}
}

func readTiers(d *decoder, field string, n yamlnode.Node) {
	if n.Kind() != yamlnode.List || len(n.Children()) == 0 {
		hint := ""
		if n.Kind() == yamlnode.Mapping {
			hint = "one tier is a list too: put a - before it"
		} else if n.Kind() == yamlnode.List {
			hint = "leave the field out for one limit"
		}
		d.wrong(field, n, allowedTiers, hint)
		return
	}
	for i, item := range n.Children() {
		place, tier := element(field, i), Tier{}
		d.nodes[place] = item
		if i > MaxTiers {
			break // more are one problem
		}
		d.section(section{prefix: place + ".", members: []member{
			{"when", allowedWhen, func(d *decoder, field string, n yamlnode.Node) {
				var ok bool
				if tier.When, ok = readWhen(d, field, n); !ok {
					d.bad[field] = true
				}
			}},
			{"limit", allowedTierLimit, func(d *decoder, field string, n yamlnode.Node) {
				var ok bool
				if tier.Limit, ok = d.integer(field, n, allowedTierLimit); !ok {
					d.bad[field] = true
				}
			}},
		}}, place, item)
		d.doc.Tiers = append(d.doc.Tiers, tier)
	}
}

// plainConditions is the normal form of conditions.
func plainConditions(d *Document) {
	d.Match.When = strings.TrimSpace(d.Match.When)
	if len(d.Tiers) == 0 {
		d.Tiers = nil
		return
	}
	d.Tiers = slices.Clone(d.Tiers)
	for i := range d.Tiers {
		d.Tiers[i].When = strings.TrimSpace(d.Tiers[i].When)
	}
}

// describeTiers writes tiers as a rule does; empty for none.
func describeTiers(tiers []Tier) string {
	parts := make([]string, len(tiers))
	for i, t := range tiers {
		parts[i] = fmt.Sprintf("{when: %s, limit: %d}", strconv.Quote(t.When), t.Limit)
	}
	if len(parts) == 0 {
		return ""
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// tiersMayBlockMore is why an event may have a lower limit under n than under p, or a higher one, which matters where less
// may be more (see countingReasons). Documents in normal form. The first tiers that have the same conditions hold for the
// same events; of the others nothing is known, so that each limit is held to each. An event on which a
// condition cannot be judged has the greatest of the limits that it may have, to which the same applies.
func tiersMayBlockMore(p, n *Document) (lower, higher bool) {
	same := 0
	for same < len(p.Tiers) && same < len(n.Tiers) && p.Tiers[same].When == n.Tiers[same].When {
		lower = lower || n.Tiers[same].Limit < p.Tiers[same].Limit
		higher = higher || n.Tiers[same].Limit > p.Tiers[same].Limit
		same++
	}
	before, after := []int{p.Limit}, []int{n.Limit}
	for _, t := range p.Tiers[same:] {
		before = append(before, t.Limit)
	}
	for _, t := range n.Tiers[same:] {
		after = append(after, t.Limit)
	}
	return lower || slices.Min(after) < slices.Max(before), higher || slices.Max(after) > slices.Min(before)
}

// TierSet are limits of a rule that an event may have: bit 0 stands for the rule's own, bit n for that of its n-th tier.
type TierSet uint32

// With is s with the limit of the n-th tier, or with the rule's own for 0.
func (s TierSet) With(n int) TierSet { return s | 1<<n }

// Greatest is the tier of the greatest limit of a set, 0 for the rule's own; of equal ones the first. The set must not be empty.
func (d *Document) Greatest(of TierSet) (tier int) {
	greatest := -1
	for n := range len(d.Tiers) + 1 {
		limit := d.Limit
		if n > 0 {
			limit = d.Tiers[n-1].Limit
		}
		if of&(1<<n) != 0 && limit > greatest {
			tier, greatest = n, limit
		}
	}
	return tier
}

// greatestLimit is the limit of the rule or the greatest of its tiers.
func greatestLimit(d *Document) int {
	greatest := d.Limit
	for _, t := range d.Tiers {
		greatest = max(greatest, t.Limit)
	}
	return greatest
}

// warnChoice reports tiers whose condition reads what a client may choose, where the choice gives him another limit: a higher one
// by what makes it hold, or a lower one escaped by what does not.
func warnChoice(d *Document, env Environment, report func(Problem)) {
	if env.Conditions == nil {
		return
	}
	for i, t := range d.Tiers {
		others := append([]Tier{{Limit: d.Limit}}, d.Tiers[i+1:]...)
		if !slices.ContainsFunc(others, func(o Tier) bool { return o.Limit != t.Limit }) {
			continue
		}
		var chosen []string
		hint := "have the gateway write it from what it knows itself, and then leave it so"
		for _, name := range env.Conditions.Reads(t.When) {
			setting, ok := chosenByClients(name, &env.Identity)
			if !ok {
				continue
			}
			chosen = append(chosen, "event."+name)
			if setting != "" {
				hint = "set " + setting + " in the configuration if the gateway itself establishes it"
			}
		}
		if len(chosen) > 0 {
			report(Problem{Field: element("tiers", i) + ".when", Got: strings.Join(chosen, ", ") + ", by which a client may choose his limit",
				Allowed: "fields that the gateway establishes, such as event.plan", Hint: hint})
		}
	}
}

// warnSettled reports comparisons that come out the same for every event, so that they ask nothing.
func warnSettled(d *Document, env Environment, report func(Problem)) {
	if env.Conditions == nil {
		return
	}
	ask := func(field, expr string) {
		if expr == "" {
			return
		}
		env.Conditions.Settled(expr, func(line, column int, got, allowed, hint string) {
			report(Problem{Field: field, Got: got, Allowed: allowed, Hint: hint, within: yamlnode.Place{Line: line, Column: column}})
		})
	}
	ask("match.when", d.Match.When)
	for i, t := range d.Tiers {
		ask(element("tiers", i)+".when", t.When)
	}
}

// chosenByClients reports whether clients may choose the value of a field that conditions read, and the setting with which the
// gateway would vouch for it, if there is one. What is asked for (method, path, host) they choose, too, but not beside what
// they want.
func chosenByClients(name string, m *traffic.IdentityMap) (setting string, ok bool) {
	member, _, _ := strings.Cut(name, ".")
	switch member {
	case "attrs", "headers", "user_agent":
		return "", true
	case "ip":
		return "identity.ip.claimed: false", m.IP.Claimed
	}
	for f := range traffic.NumFields {
		if field := traffic.Field(f); field.String() == member {
			return "identity." + member + ".vouched: true", !m.Vouched(field)
		}
	}
	return "", false
}
