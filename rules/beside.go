package rules

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/yamlnode"
)

// What stands beside a rule's limit and is never enforced: a warning near it, and a limit on trial.

const (
	allowedNear      = "a share of the limit from 0.01 to 0.99, such as 0.8"
	allowedCandidate = "a mapping with the member limit"
)

// NearCount is the count at which a window with this limit is near it: the share Near of the limit, rounded up, and at
// least 2, since everybody has a first request. 0 where the document has no Near.
func (d *Document) NearCount(limit int) int {
	if d.Near == 0 {
		return 0
	}
	return max(2, (limit*d.Near+99)/100)
}

// beside checks near and candidate.
func (c *checker) beside() {
	if c.Near != 0 {
		got := describeNear(c.Near)
		c.say(c.Near >= 1 && c.Near <= 99, "near", got, allowedNear)
		c.say(!c.Counting().bucket(), "near", got+" with algorithm "+string(c.Counting()), "near with a window; a bucket is full whenever it is used in full")
		if c.Near >= 1 && c.Near <= 99 && c.Limit*c.Near <= 100 {
			c.report(Problem{Field: "near", Got: got + " of limit " + strconv.Itoa(c.Limit),
				Allowed: "a share of the limit above 1: everybody has a first request", needs: "limit"})
		}
	}
	if trial := c.Candidate; trial != nil {
		c.say(trial.Limit >= 0 && trial.Limit <= MaxLimit, "candidate.limit", "the number "+strconv.Itoa(trial.Limit), allowedLimit)
		if trial.Limit == c.Limit {
			c.report(Problem{Field: "candidate.limit", Got: strconv.Itoa(trial.Limit) + ", which is the rule's limit",
				Allowed: "another limit than the rule's", needs: "limit"})
		}
	}
	// A bucket leaks at the rate of its limit: one bucket cannot leak at two.
	c.say(len(c.Tiers) == 0 || !c.Counting().bucket(), "tiers", "tiers with algorithm "+string(c.Counting()), "tiers with a window; a bucket has one rate")
}

// beside names what v has that stands beside a limit, or is no document's: for builds that know of no such thing.
func (v *Version) beside() string {
	var parts []string
	if v.Near != 0 {
		parts = append(parts, "near "+describeNear(v.Near))
	}
	if v.Candidate != nil {
		parts = append(parts, "candidate.limit "+strconv.Itoa(v.Candidate.Limit))
	}
	if v.Pending {
		parts = append(parts, "a pending version")
	}
	if v.Raised != nil {
		parts = append(parts, fmt.Sprintf("a limit raised to %d", v.Raised.Limit))
	}
	return strings.Join(parts, ", ")
}

// describeNear writes a share as a rule does; nothing for none.
func describeNear(percent int) string {
	if percent == 0 {
		return ""
	}
	return strings.TrimRight(fmt.Sprintf("%d.%02d", percent/100, percent%100), "0")
}

func describeCandidate(c *Candidate) string {
	if c == nil {
		return ""
	}
	return strconv.Itoa(c.Limit)
}

func sameCandidate(a, b *Candidate) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// cloneCandidate is c without memory that it shares with another document.
func cloneCandidate(c *Candidate) *Candidate {
	if c == nil {
		return nil
	}
	clone := *c
	return &clone
}

// readNear reads a share: 0.8, or 80%.
func (d *decoder) readNear(field string, n yamlnode.Node) {
	percent, ok, hint := 0, false, ""
	switch value := n.Value(); {
	case n.Tag() != "":
	case n.Kind() == yamlnode.Text && strings.HasSuffix(value, "%"):
		whole := strings.TrimSuffix(value, "%")
		var err error
		percent, err = strconv.Atoi(whole)
		ok = err == nil && strconv.Itoa(percent) == whole
	case n.Kind() == yamlnode.Text:
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			hint = "leave the quotes out"
		}
	case n.Kind() == yamlnode.Integer:
		hint = "a share of the limit, not a count"
	case n.Kind() == yamlnode.Float:
		percent, ok = hundredths(value)
	}
	if !ok || percent < 1 || percent > 99 {
		d.wrong(field, n, allowedNear, hint)
		return
	}
	d.doc.Near = percent
}

// hundredths reads 0.8, 0.80 or .8 as 80; false for what is no number below 1 of at most two decimals.
func hundredths(s string) (int, bool) {
	digits, ok := strings.CutPrefix(strings.TrimPrefix(s, "0"), ".")
	if !ok || len(digits) < 1 || len(digits) > 2 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi((digits + "0")[:2])
	return n, err == nil
}

func candidateSection() section {
	return section{
		prefix: "candidate.",
		members: []member{
			{"limit", allowedLimit, into((*decoder).integer, allowedLimit, func(d *Document) *int { return &d.Candidate.Limit })},
		},
	}
}

func (d *decoder) readCandidate(field string, n yamlnode.Node) {
	d.doc.Candidate = &Candidate{}
	if !d.section(candidateSection(), field, n) {
		d.doc.Candidate = nil
	}
}
