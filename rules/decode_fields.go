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

// The prefix lengths that a plain `ip` stands for where the identity map names none.
const (
	defaultV4 = 32
	defaultV6 = 64
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
		k.V4, k.V6 = cmp.Or(e.v4, v4, defaultV4), cmp.Or(e.v6, v6, defaultV6)
	}
	return k
}

func (d *decoder) readID(field string, n yamlnode.Node) {
	if s, ok := d.text(field, n, allowedID); ok {
		d.doc.ID = s
	}
}

func (d *decoder) readOwner(field string, n yamlnode.Node) {
	if s, ok := d.text(field, n, allowedOwner); ok {
		d.doc.Owner = s
	}
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

func (d *decoder) readPath(field string, n yamlnode.Node) {
	s, ok := d.text(field, n, allowedPath)
	if !ok {
		return
	}
	if s == "" { // which a Match holds for "any path"
		d.wrong(field, n, allowedPath, "leave the field out to match every path")
		return
	}
	d.doc.Match.Path = s
}

func (d *decoder) readPathAs(field string, n yamlnode.Node) {
	if s, ok := d.text(field, n, allowedPathAs); ok {
		d.doc.Match.PathAs = PathAs(s)
		d.refuseEmpty(field, s, n, allowedPathAs)
	}
}

func (d *decoder) readPathCase(field string, n yamlnode.Node) {
	if s, ok := d.text(field, n, allowedPathCase); ok {
		d.doc.Match.PathCase = PathCase(s)
		d.refuseEmpty(field, s, n, allowedPathCase)
	}
}

// refuseEmpty reports an empty text, which a document holds for the default.
func (d *decoder) refuseEmpty(field, s string, n yamlnode.Node, allowed string) {
	if s == "" {
		d.wrong(field, n, allowed, "leave the field out for the default")
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

func (d *decoder) readMissing(field string, n yamlnode.Node) {
	if s, ok := d.text(field, n, allowedMissing); ok {
		d.doc.Missing = OnMissing(s)
	}
}

func (d *decoder) readLimit(field string, n yamlnode.Node) {
	if v, ok := d.integer(field, n, allowedLimit); ok {
		d.doc.Limit = v
	}
}

func (d *decoder) readWindow(field string, n yamlnode.Node) {
	if v, ok := d.duration(field, n, allowedWindow); ok {
		d.doc.Window = v
	}
}

func (d *decoder) readLateness(field string, n yamlnode.Node) {
	if v, ok := d.duration(field, n, allowedLateness); ok {
		d.doc.Lateness = v
	}
}

func (d *decoder) readMaxLag(field string, n yamlnode.Node) {
	if v, ok := d.duration(field, n, allowedMaxLag); ok {
		d.doc.MaxLag = v
	}
}

func (d *decoder) readBlock(field string, n yamlnode.Node) {
	d.doc.Block = &Block{}
	if !d.section(blockSection(), field, n) {
		d.doc.Block = nil
	}
}

func (d *decoder) readTTL(field string, n yamlnode.Node) {
	if v, ok := d.duration(field, n, allowedTTL); ok {
		d.doc.Block.TTL = v
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
