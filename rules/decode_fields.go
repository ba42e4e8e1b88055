package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/traffic"
)

// keyEntry is one element of a key as it is written. A prefix length that is left out is 0.
type keyEntry struct {
	field  traffic.Field
	v4, v6 uint8
}

// resolve fills in the prefix lengths that e leaves out: v4 and v6, or the defaults where those are 0.
func (e keyEntry) resolve(v4, v6 uint8) traffic.KeyField {
	k := traffic.KeyField{Field: e.field}
	if e.field == traffic.FieldIP {
		k.V4, k.V6 = cmp.Or(e.v4, v4, traffic.DefaultV4), cmp.Or(e.v6, v6, traffic.DefaultV6)
	}
	return k
}

func (d *decoder) readMatch(field string, n yamlnode.Node) {
	if n.Kind() == yamlnode.Null {
		d.wrong(field, n, allowedMatch, "write {} to match every request")
		return
	}
	d.section(matchSection(), field, n)
}

func (d *decoder) readMethod(field string, n yamlnode.Node) {
	const allowed = "a method name or a list of them, such as POST or [GET, HEAD]"
	names := []yamlnode.Node{n}
	if n.Kind() == yamlnode.List {
		names = n.Children()
		if len(names) == 0 {
			d.bad[field] = true
			d.add(n.Line(), field, "an empty list", allowed, "leave the field out to match every method")
			return
		}
	}
	for i, item := range names {
		place := field
		if n.Kind() == yamlnode.List {
			place = element(field, i)
			d.lines[place] = item.Line()
		}
		name, ok := d.text(place, item, allowed)
		if !ok {
			d.bad[field] = true
			return
		}
		name = strings.ToUpper(name)
		if slices.Contains(d.doc.Match.Methods, name) {
			d.add(item.Line(), place, quoteShort(name)+" a second time", "each method once", "")
			continue
		}
		d.doc.Match.Methods = append(d.doc.Match.Methods, name)
	}
}

// requireNormalPath reports a path that is not in the form in which it is compared.
func (d *decoder) requireNormalPath() {
	m := &d.doc.Match
	if m.Path == "" || m.PathAs == PathRaw || d.reported("match.path") || checkPath(m.Path) != "" {
		return
	}
	if allowed, hint := checkNormal(m.Path); allowed != "" {
		d.add(d.line("match.path"), "match.path", quoteShort(m.Path), allowed, hint)
	}
}

func (d *decoder) readBlock(field string, n yamlnode.Node) {
	d.doc.Block = &Block{}
	if !d.section(blockSection(), field, n) {
		d.doc.Block = nil
	}
}

func (d *decoder) readExtend(field string, n yamlnode.Node) {
	s, ok := d.text(field, n, allowedExtend)
	switch {
	case !ok:
	case s == "on-attempt":
		d.bad[field] = true
		d.add(n.Line(), field, quoteShort(s)+", which is not supported by this version", allowedExtend, "")
	default:
		d.doc.Block.Extend = Extend(s)
	}
}

func (d *decoder) readKey(field string, n yamlnode.Node) { d.key = d.keyList(field, n) }

func (d *decoder) readBlockKey(field string, n yamlnode.Node) { d.blockKey = d.keyList(field, n) }

// keyList reads a list of key elements: a field's name, or {field: ip, v4: N, v6: N}.
func (d *decoder) keyList(field string, n yamlnode.Node) []keyEntry {
	if n.Kind() != yamlnode.List {
		hint := ""
		if n.IsScalar() && n.Kind() != yamlnode.Null {
			hint = "a key of one field is a list too: [ip]"
		}
		d.wrong(field, n, allowedKey, hint)
		return nil
	}
	var entries []keyEntry
	for i, item := range n.Children() {
		place := element(field, i)
		d.lines[place] = item.Line()
		entry, ok := d.keyElement(place, item)
		if !ok {
			d.bad[field] = true
			continue
		}
		entries = append(entries, entry)
	}
	return entries
}

func (d *decoder) keyElement(place string, n yamlnode.Node) (keyEntry, bool) {
	if n.Kind() != yamlnode.Mapping {
		f, ok := d.keyField(place, n)
		return keyEntry{field: f}, ok
	}
	entry, before := keyEntry{}, len(d.problems)
	d.section(section{prefix: place + ".", members: []member{
		{"field", allowedKeyField, func(d *decoder, field string, n yamlnode.Node) {
			entry.field, _ = d.keyField(field, n)
		}},
		{"v4", "", func(d *decoder, field string, n yamlnode.Node) {
			entry.v4 = d.prefixLength(field, n, 32)
		}},
		{"v6", "", func(d *decoder, field string, n yamlnode.Node) {
			entry.v6 = d.prefixLength(field, n, 128)
		}},
	}}, place, n)
	if len(d.problems) == before && entry.field != traffic.FieldIP && (entry.v4 != 0 || entry.v6 != 0) {
		d.add(n.Line(), place, "a prefix length for "+entry.field.String(), "v4 and v6 only with field: ip", "")
	}
	return entry, len(d.problems) == before
}

func (d *decoder) keyField(place string, n yamlnode.Node) (traffic.Field, bool) {
	s, ok := d.text(place, n, allowedKeyField)
	if !ok {
		return 0, false
	}
	if f, ok := traffic.ParseField(s); ok {
		return f, true
	}
	d.bad[place] = true
	if strings.Contains(s, "|") {
		d.add(n.Line(), place, quoteShort(s)+"; alternatives are not supported by this version", allowedKeyField, "")
		return 0, false
	}
	hint := ""
	if meant := Nearest(s, traffic.FieldNames()); meant != "" {
		hint = fmt.Sprintf("did you mean %q?", meant)
	}
	d.add(n.Line(), place, quoteShort(s), allowedKeyField, hint)
	return 0, false
}

func (d *decoder) prefixLength(field string, n yamlnode.Node, most int) uint8 {
	allowed := fmt.Sprintf("a whole number from 1 to %d", most)
	v, ok := d.integer(field, n, allowed)
	if ok && (v < 1 || v > most) {
		d.wrong(field, n, allowed, "")
		return 0
	}
	return uint8(v)
}

// resolveKeys fills in what the keys leave out: prefix lengths come from the identity map for the rule's key and for what
// is counted by distinct values, from the rule's key for the block's where that has the field, and from the identity map
// where it has not; a block without a key has the rule's.
func (d *decoder) resolveKeys() {
	ip := d.env.Identity.IP
	d.doc.Key = make([]traffic.KeyField, 0, len(d.key))
	for _, e := range d.key {
		d.doc.Key = append(d.doc.Key, e.resolve(ip.V4, ip.V6))
	}
	if d.distinct != nil {
		field := d.distinct.resolve(ip.V4, ip.V6)
		d.doc.Count.Distinct = &field
	}
	if d.bad["key"] {
		d.bad["block.key"] = true // it cannot be judged
	}
	if d.doc.Block == nil {
		return
	}
	if !d.has("block.key") {
		d.doc.Block.Key = slices.Clone(d.doc.Key)
	}
	for _, e := range d.blockKey {
		k := e.resolve(ip.V4, ip.V6)
		if i := slices.IndexFunc(d.doc.Key, func(r traffic.KeyField) bool { return r.Field == e.field }); i >= 0 {
			k = e.resolve(d.doc.Key[i].V4, d.doc.Key[i].V6)
		}
		d.doc.Block.Key = append(d.doc.Block.Key, k)
	}
}

func element(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

func (d *decoder) readAlgorithm(field string, n yamlnode.Node) {
	s, ok := d.text(field, n, allowedAlgorithm())
	switch {
	case !ok:
	case s == "": // which a Document holds for the default
		d.wrong(field, n, allowedAlgorithm(), leaveOut)
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

// countSection reads a count that is written as a mapping: of its members exactly one.
func countSection() section {
	return section{
		prefix: "count.",
		members: []member{
			{"distinct", "", (*decoder).readDistinct},
			{"sum", "", intoUnlessZero(textAs[string], allowedSum, "", func(d *Document) *string { return &d.Count.Sum })},
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
