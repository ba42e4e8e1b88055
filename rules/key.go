package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// keyEntry is one element of a key as it is written. A prefix length that is left out is 0.
type keyEntry struct {
	field  traffic.Field
	name   string
	v4, v6 uint8
	place  string // of an element of a list: key[1]
}

// holdsIP reports whether k is an address, or may fall back on one: whether it has prefix lengths.
func holdsIP(k traffic.KeyField) bool {
	for one := range k.Alternatives() {
		if one.Field == traffic.FieldIP {
			return true
		}
	}
	return false
}

// resolve fills in the prefix lengths that e leaves out: v4 and v6, or the defaults where those are 0.
func (e keyEntry) resolve(v4, v6 uint8) traffic.KeyField {
	k := traffic.KeyField{Field: e.field, Name: e.name}
	if holdsIP(k) {
		k.V4, k.V6 = cmp.Or(e.v4, v4, traffic.DefaultV4), cmp.Or(e.v6, v6, traffic.DefaultV6)
	}
	return k
}

func (d *decoder) readKey(field string, n yamlnode.Node) { d.key = d.keyList(field, n, allowedKey) }

func (d *decoder) readBlockKey(field string, n yamlnode.Node) {
	d.blockKey = d.keyList(field, n, allowedBlockKey)
}

// keyList reads a list of key elements: a field's name, {field: ip, v4: N, v6: N} or {any: [FIELD, …]}.
func (d *decoder) keyList(field string, n yamlnode.Node, allowed string) []keyEntry {
	if n.Kind() != yamlnode.List {
		hint := ""
		if n.IsScalar() && n.Kind() != yamlnode.Null {
			hint = "a key of one field is a list too: [ip]"
		}
		d.wrong(field, n, allowed, hint)
		return nil
	}
	if d.tooMany(field, n, maxAlternatives) { // a check says how many a key may have
		return nil
	}
	var entries []keyEntry
	for i, item := range n.Children() {
		place := element(field, i)
		d.nodes[place] = item
		entry, ok := d.keyElement(place, item)
		if !ok {
			d.bad[field] = true
			continue
		}
		entry.place = place
		entries = append(entries, entry)
	}
	return entries
}

func (d *decoder) keyElement(place string, n yamlnode.Node) (keyEntry, bool) {
	if n.Kind() != yamlnode.Mapping {
		return d.keyField(place, n)
	}
	if members := n.Members(); len(members) == 1 && members[0].Value.Kind() == yamlnode.Null && members[0].Name.IsScalar() {
		name := "{" + members[0].Name.Value() + "}"
		d.bad[place] = true
		d.add(n.Place(), place, name+", which YAML reads as a mapping", allowedKeyField, "put it in quotes: \""+printableName(name)+"\"")
		return keyEntry{}, false
	}
	entry, before := keyEntry{}, len(d.problems)
	anyOf, oneOf := false, false
	d.section(section{prefix: place + ".", members: []member{
		{"field", "", func(d *decoder, field string, n yamlnode.Node) {
			oneOf = true
			e, _ := d.keyField(field, n)
			entry.field, entry.name = e.field, e.name
		}},
		{"any", "", func(d *decoder, field string, n yamlnode.Node) {
			anyOf = true
			e := d.alternatives(field, n)
			entry.field, entry.name = e.field, e.name
			entry.v4, entry.v6 = cmp.Or(entry.v4, e.v4), cmp.Or(entry.v6, e.v6)
		}},
		{"v4", "", func(d *decoder, field string, n yamlnode.Node) {
			entry.v4 = d.prefixLength(field, n, 32)
		}},
		{"v6", "", func(d *decoder, field string, n yamlnode.Node) {
			entry.v6 = d.prefixLength(field, n, 128)
		}},
	}}, place, n)
	if len(d.problems) > before {
		return entry, false
	}
	switch {
	case anyOf && oneOf:
		d.add(n.Place(), place, "both field and any", "one of them", "")
	case !anyOf && !oneOf:
		d.add(n.Place(), place+".field", "nothing", allowedKeyField, "the field is required")
	case !holdsIP(traffic.KeyField{Field: entry.field, Name: entry.name}) && (entry.v4 != 0 || entry.v6 != 0):
		d.add(n.Place(), place, "a prefix length for "+entry.String(), "v4 and v6 only with field: ip", "")
	}
	return entry, len(d.problems) == before
}

// String is the element's field as rules name it.
func (e keyEntry) String() string { return traffic.KeyField{Field: e.field, Name: e.name}.String() }

// alternatives reads the list of {any: [api_key, {field: ip, v4: 24}]}.
func (d *decoder) alternatives(field string, n yamlnode.Node) keyEntry {
	const allowed = "a list of two and more fields, of which the first that a request has counts"
	if n.Kind() != yamlnode.List || len(n.Children()) < 2 {
		d.wrong(field, n, allowed, "")
		return keyEntry{}
	}
	out := keyEntry{field: traffic.FieldFallback}
	var names []string
	for _, e := range d.keyList(field, n, allowed) {
		if e.field == traffic.FieldFallback {
			d.add(n.Place(), field, e.String()+" within any", allowed, "write its fields into the list")
			d.bad[field] = true
		}
		names = append(names, e.String())
		out.v4, out.v6 = cmp.Or(out.v4, e.v4), cmp.Or(out.v6, e.v6)
	}
	out.name = strings.Join(names, "|")
	return out
}

func (d *decoder) keyField(place string, n yamlnode.Node) (keyEntry, bool) {
	s, ok := d.text(place, n, allowedKeyField)
	if !ok {
		return keyEntry{}, false
	}
	if k, ok := traffic.ParseKeyField(s); ok {
		return keyEntry{field: k.Field, name: k.Name}, true
	}
	d.bad[place] = true
	d.add(n.Place(), place, quoteShort(s), allowedKeyField, fieldHint(s))
	return keyEntry{}, false
}

// fieldHint guesses the field that was meant by a name that no field has; empty for none.
func fieldHint(name string) string {
	if len(name) > 40 {
		return ""
	}
	if meant := Nearest(name, traffic.KeyFieldNames()); meant != "" {
		return fmt.Sprintf("did you mean %q?", meant)
	}
	for _, field := range traffic.KeyFieldNames() {
		if strings.HasPrefix(name, field) || strings.HasSuffix(name, "_"+field) { // ipaddress, user_id, client_ip
			return fmt.Sprintf("did you mean %q?", field)
		}
	}
	switch {
	case name == "attrs" || name == traffic.AttrPrefix:
		return "name the member: attrs.NAME"
	case name != "status" && reading.IsName(name):
		return fmt.Sprintf("a member of your own is in attrs: %q", traffic.AttrPrefix+name)
	}
	return ""
}

// restOfKeys judges the elements of keys of which others cannot be read, so that a key as a whole is not judged.
func restOfKeys(d *decoder) {
	c := &checker{&d.doc, d.env, func(p Problem) {
		if !d.bad[p.Field] && !d.reported(p.needs) {
			d.problems = append(d.problems, d.locate(p))
		}
	}}
	for _, list := range []struct {
		field   string
		entries []keyEntry
	}{{"key", d.key}, {"count.distinct", d.distinct}, {"block.key", d.blockKey}} {
		seen := map[traffic.KeyField]bool{}
		for _, e := range list.entries {
			if !d.bad[list.field] || e.place == "" {
				continue
			}
			k := e.resolve(0, 0)
			if c.keyField(e.place, k, list.field == "count.distinct") {
				c.once(e.place, k, seen)
			}
			if list.field == "block.key" && !k.OfIdentity() {
				c.report(noIdentity(e.place, k))
			}
		}
	}
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

// readDistinct reads what count.distinct names: one field, or a list of them for combinations.
func (d *decoder) readDistinct(field string, n yamlnode.Node) {
	if n.Kind() == yamlnode.List {
		if d.distinct = d.keyList(field, n, allowedCounted); len(d.distinct) == 0 && !d.bad[field] {
			d.wrong(field, n, allowedCounted, "")
		}
		return
	}
	if entry, ok := d.keyElement(field, n); ok {
		d.distinct = []keyEntry{entry}
	}
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
	var counted []traffic.KeyField
	for _, e := range d.distinct {
		counted = append(counted, e.resolve(ip.V4, ip.V6))
	}
	if len(counted) == 1 {
		d.doc.Count.Distinct = &counted[0]
	} else {
		d.doc.Count.Tuple = counted
	}
	if d.bad["key"] {
		d.bad["block.key"] = true // it cannot be judged
	}
	if d.doc.Block == nil {
		return
	}
	if !d.has("block.key") {
		d.doc.Block.Key = slices.Clone(d.doc.Key)
		if !d.bad["key"] && !traffic.IdentityKey(d.doc.Key) {
			d.add(d.place("block"), "block.key", "nothing", allowedBlockKey, "the rule's key is "+describeKey(d.doc.Key)+
				", and a gate knows only identities: say whom a block holds, such as [ip]")
			d.bad["block.key"] = true
		}
	}
	for _, e := range d.blockKey {
		k := e.resolve(ip.V4, ip.V6)
		if i := slices.IndexFunc(d.doc.Key, func(r traffic.KeyField) bool { return r.Field == e.field && r.Name == e.name }); i >= 0 {
			k = e.resolve(d.doc.Key[i].V4, d.doc.Key[i].V6)
		}
		d.doc.Block.Key = append(d.doc.Block.Key, k)
	}
}

// fields checks fields that count together, not whether there may be none. counted says that they are counted by distinct values, where path is allowed.
func (c *checker) fields(field string, key []traffic.KeyField, counted bool) {
	c.say(len(key) <= traffic.MaxKeyFields, field, fmt.Sprintf("%d fields", len(key)), fmt.Sprintf("at most %d", traffic.MaxKeyFields))
	seen := map[traffic.KeyField]bool{}
	for i, k := range key {
		place := element(field, i)
		if c.keyField(place, k, counted) {
			c.once(place, k, seen)
		}
	}
}

// once holds that each field occurs once among all alternatives of a key: a subject names it once.
func (c *checker) once(place string, k traffic.KeyField, seen map[traffic.KeyField]bool) {
	for one := range k.Alternatives() {
		one.V4, one.V6 = 0, 0
		c.say(!seen[one], place, one.String()+" a second time", "each field once")
		seen[one] = true
	}
}

// keyField checks one field and reports whether it is one.
func (c *checker) keyField(place string, k traffic.KeyField, counted bool) bool {
	allowed := allowedKeyField
	if counted {
		allowed = allowedCounted
	}
	if parsed, ok := traffic.ParseKeyField(k.String()); !ok || parsed.Field != k.Field || parsed.Name != k.Name {
		c.say(false, place, quoteShort(k.String()), allowed)
		return false
	}
	if n := len(slices.Collect(k.Alternatives())); n > traffic.MaxKeyFields {
		c.say(false, place, strconv.Itoa(n)+" alternatives", "at most "+strconv.Itoa(traffic.MaxKeyFields))
		return false
	}
	fine := true
	for one := range k.Alternatives() {
		fine = c.alternative(place, one, counted) && fine
	}
	switch {
	case holdsIP(k):
		c.say(k.V4 >= 1 && k.V4 <= 32, place+".v4", strconv.Itoa(int(k.V4)), "a whole number from 1 to 32")
		c.say(k.V6 >= 1 && k.V6 <= 128, place+".v6", strconv.Itoa(int(k.V6)), "a whole number from 1 to 128")
	default:
		c.say(k.V4 == 0 && k.V6 == 0, place, "a prefix length for "+k.String(), "v4 and v6 only with field: ip")
	}
	return fine
}

func (c *checker) alternative(place string, k traffic.KeyField, counted bool) bool {
	switch k.Field {
	case traffic.FieldPath:
		c.say(counted, place, "path", allowedKeyField+"; path only in count: a client that makes up paths would have a window for each")
		return counted
	case traffic.FieldAttr:
		_, err := format.ParseAttrPath(k.String())
		ok := err == nil && reading.Printable(k.Name) && !strings.Contains(k.Name, "|")
		c.say(ok, place, quoteShort(k.String()), "attrs. and the names of members, joined by dots, without |")
		return ok
	case traffic.FieldParam:
		return c.param(place, k)
	}
	return true
}

// param holds that every path of the rule has the {param}, once: else an event could match without a value.
func (c *checker) param(place string, k traffic.KeyField) bool {
	if !reading.IsName(k.Name) {
		c.say(false, place, quoteShort(k.String()), "a name of letters, digits and _ in braces, such as {id}")
		return false
	}
	if c.Match.folds() && reading.HasUpper(k.Name) {
		c.say(false, place, k.String()+" with path_case: ignore, which writes paths in lower case", "a name in lower case, here and in the path")
		return false
	}
	patterns := c.Match.paths()
	if len(patterns) == 0 {
		c.report(Problem{Field: place, Got: k.String() + " in a rule without path", Allowed: "a {param} that every path of the rule has", needs: "match.path"})
		return false
	}
	for _, p := range patterns {
		if n := countParams(p, k.Name); n != 1 {
			got := ", which is no segment of "
			if n > 1 {
				got = fmt.Sprintf(", which is %d segments of ", n)
			}
			c.report(Problem{Field: place, Got: k.String() + got + quoteShort(p), Allowed: "a {param} that every path of the rule has once", needs: "match.path"})
			return false
		}
	}
	return true
}
