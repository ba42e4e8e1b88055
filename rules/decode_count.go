package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/internal/yamlnode"
)

func (d *decoder) readAlgorithm(field string, n yamlnode.Node) {
	s, ok := d.text(field, n, allowedAlgorithm())
	switch {
	case !ok:
	case s == "": // which a Document holds for the default
		d.wrong(field, n, allowedAlgorithm(), "leave the field out for the default")
	case !slices.Contains(Algorithms(), Algorithm(s)):
		hint := ""
		if meant := Nearest(s, strings.Split(allowedAlgorithm(), ", ")); meant != "" {
			hint = fmt.Sprintf("did you mean %q?", meant)
		}
		d.wrong(field, n, allowedAlgorithm(), hint)
		d.bad["count"], d.bad["burst"] = true, true // they cannot be judged
	default:
		d.doc.Algorithm = Algorithm(s)
	}
}

// countSection is count where it is a mapping: exactly one of the two.
func countSection() section {
	return section{
		prefix: "count.",
		members: []member{
			{"distinct", "", (*decoder).readDistinct},
			{"sum", "", (*decoder).readSum},
		},
	}
}

func (d *decoder) readCount(field string, n yamlnode.Node) {
	if n.Kind() == yamlnode.Mapping {
		before := len(d.problems)
		d.section(countSection(), field, n)
		switch {
		case len(d.problems) > before:
			d.bad[field] = true
		case len(n.Children()) == 0:
			d.wrong(field, n, allowedCount, "")
		}
		return
	}
	s, ok := d.text(field, n, allowedCount)
	if !ok || s == string(CountEvents) {
		return
	}
	hint := ""
	switch CountKind(s) {
	case CountDistinct:
		hint = "say of which field: {distinct: device}"
	case CountSum:
		hint = "say of what: {sum: attrs.cost}"
	}
	d.wrong(field, n, allowedCount, hint)
}

func (d *decoder) readDistinct(field string, n yamlnode.Node) {
	if entry, ok := d.keyElement(field, n); ok {
		d.distinct = &entry
	}
}

func (d *decoder) readSum(field string, n yamlnode.Node) {
	s, ok := d.text(field, n, allowedSum)
	switch {
	case !ok:
	case s == "": // which a Document holds for no sum
		d.wrong(field, n, allowedSum, "")
	default:
		d.doc.Count.Sum = s
	}
}

func (d *decoder) readBurst(field string, n yamlnode.Node) {
	v, ok := d.integer(field, n, allowedBurst)
	switch {
	case !ok:
	case v == 0: // which a Document holds for the limit
		d.wrong(field, n, allowedBurst, "leave the field out for a capacity of limit")
	default:
		d.doc.Burst = v
	}
}

func (d *decoder) readCooldown(field string, n yamlnode.Node) {
	v, ok := d.duration(field, n, allowedCooldown)
	switch {
	case !ok:
	case v == 0: // which a Document holds for the default
		d.wrong(field, n, allowedCooldown, "leave the field out for the default")
	default:
		d.doc.Cooldown = v
	}
}
