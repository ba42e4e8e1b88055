package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// ExtraField is a field beside the identity by which rules of a routing version count. It reads the value that an event has.
type ExtraField struct {
	Field traffic.KeyField
	match *Match          // with FieldParam: where the path has it
	attr  format.AttrPath // with FieldAttr
}

// ExtraUse is an extra field as one rule uses it.
type ExtraUse struct {
	Field traffic.KeyField
	Index int // into Extras.Fields, and that of detectors.ExtraValue
}

// Extras are the extra fields of a routing version, each once, in the order in which its rules use them first: in the order of
// the rules, and in a rule of its key and then its count. A {param} is one field for all rules with the same paths. Every
// process finds the same order: keyed records name the fields by it.
type Extras struct {
	Fields []ExtraField
	ByRule [][]ExtraUse // for each rule, ascending by index
}

// Extras finds the extra fields of r.
func (r *Routing) Extras() *Extras {
	x := &Extras{ByRule: make([][]ExtraUse, len(r.Rules))}
	known := map[extraKey]int{}
	for i := range r.Rules {
		d := &r.Rules[i].Document
		for _, k := range d.countedBy() {
			for one := range k.Alternatives() {
				if !one.OfIdentity() {
					x.use(known, i, d, one)
				}
			}
		}
		slices.SortFunc(x.ByRule[i], func(a, b ExtraUse) int { return a.Index - b.Index })
	}
	return x
}

// countedBy are the fields of the key and of the count.
func (d *Document) countedBy() []traffic.KeyField {
	fields := slices.Concat(d.Key, d.Count.Tuple)
	if d.Count.Distinct != nil {
		fields = append(fields, *d.Count.Distinct)
	}
	return fields
}

// extraKey is equal for the fields that are one: a {param} is that of its paths.
type extraKey struct {
	field traffic.KeyField
	paths string
}

func (d *Document) extraKey(k traffic.KeyField) extraKey {
	if k.Field != traffic.FieldParam {
		return extraKey{field: k}
	}
	return extraKey{k, d.Match.pathsKey()}
}

func (x *Extras) use(known map[extraKey]int, rule int, d *Document, k traffic.KeyField) {
	key := d.extraKey(k)
	at, found := known[key]
	if !found {
		at = len(x.Fields)
		known[key] = at
		f := ExtraField{Field: k, match: &d.Match}
		if k.Field == traffic.FieldAttr {
			f.attr, _ = format.ParseAttrPath(k.String()) // of a document that was checked; any other names nothing
		}
		x.Fields = append(x.Fields, f)
	}
	use := ExtraUse{k, at}
	if !slices.Contains(x.ByRule[rule], use) {
		x.ByRule[rule] = append(x.ByRule[rule], use)
	}
}

// Of reads what a rule uses of one event. Each call of ExtraValue reads anew.
func (x *Extras) Of(rule int, q *traffic.Request) traffic.Extra {
	out := &extrasOf{all: x, uses: x.ByRule[rule], q: q}
	out.attrs.Reset(q.Attrs)
	return out
}

type extrasOf struct {
	all  *Extras
	uses []ExtraUse
	q    *traffic.Request

	attrs format.AttrIndex
}

// ExtraValue is the event's value of a field.
func (o *extrasOf) ExtraValue(k traffic.KeyField) (string, bool) {
	for _, u := range o.uses {
		if u.Field == k {
			return o.all.Fields[u.Index].Value(o.q, &o.attrs)
		}
	}
	return "", false
}

// Value is the event's value, false where it is missing. It is never empty. It may alias q, whose attrs are those given.
//
// A host is in lower case and without port and final dot, a method in upper case: clients choose their spelling. The path is as
// the client sent it, up to the first '?'. Values are readable text of bounded length, like those of an identity.
func (f *ExtraField) Value(q *traffic.Request, attrs *format.AttrIndex) (string, bool) {
	text := ""
	switch f.Field.Field {
	case traffic.FieldHost:
		text = reading.PlainHost(q.Host)
	case traffic.FieldMethod:
		text = strings.ToUpper(q.Method)
	case traffic.FieldRoute:
		text = q.Route
	case traffic.FieldPlan:
		text = q.Plan
	case traffic.FieldUserAgent:
		text = q.UserAgent
	case traffic.FieldPath:
		text = reading.CutQuery(q.Path)
	case traffic.FieldParam:
		text, _ = f.match.Param(f.Field.Name, q.Method, q.Path)
	case traffic.FieldAttr:
		text, _ = attrs.Text(f.attr)
	}
	if text == "" {
		return "", false
	}
	return traffic.BoundedValue(text), true
}

// samePaths reports whether m and o have the same {param}s of every path.
func (m *Match) samePaths(o *Match) bool {
	return m.Path == o.Path && slices.Equal(m.Paths, o.Paths) && m.PathAs == o.PathAs && m.PathCase == o.PathCase
}

// pathsKey is the same text for matches with samePaths, and for no others.
func (m *Match) pathsKey() string {
	return fmt.Sprintf("%q %q %q %q", m.Path, m.Paths, m.PathAs, m.PathCase)
}

// Param is the segment of a path that stands for {name} in m's paths: of all readings of the path that match one of them the shortest
// such segment, which has least of what servers do not take for the segment (/users/42;x=1 has the id 42), percent-decoded once or,
// with path_as raw, as it stands. It is false where no path of m with that name matches.
func (m *Match) Param(name, method, path string) (value string, ok bool) {
	path = reading.CutQuery(path)
	take := func(got string, decoded bool) {
		if !decoded {
			got = reading.DecodeOnce(got)
		}
		if got != "" && (!ok || len(got) < len(value)) {
			value, ok = got, true
		}
	}
	var normal []string // as the readings are compared with
	for _, written := range m.paths() {
		one := Match{Path: written, PathAs: m.PathAs, PathCase: m.PathCase}
		pattern, isNormal := one.normalPath()
		if raw := reading.Raw(path); (!isNormal || pattern != written) && raw.Match(written, m.folds()) {
			if got, found := raw.Param(written, name); found {
				take(got, !isNormal)
			}
		}
		if isNormal {
			normal = append(normal, pattern)
		}
	}
	if len(normal) == 0 {
		return value, ok
	}
	read := func(s *reading.Segments, decoded bool) {
		for _, pattern := range normal {
			if s.Match(pattern, m.folds()) {
				if got, found := s.Param(pattern, name); found {
					take(got, decoded)
				}
			}
		}
	}
	if reading.Ordinary(path) {
		plain := reading.Plain(path)
		read(&plain, true)
		return value, ok
	}
	for s := reading.SpellingsOf(path, reading.IsConnect(method)); s.Next(); {
		read(&s.Segments, s.Decoded())
	}
	return value, ok
}

// countParams is how often {name} is a segment of a pattern.
func countParams(pattern, name string) int {
	n := 0
	for segment := range strings.SplitSeq(pattern, "/") {
		if reading.IsParam(segment) && segment[1:len(segment)-1] == name {
			n++
		}
	}
	return n
}

// Fills reports whether events of f can have a field, by its name in keys, counts and conditions: host, attrs.tenant, {id}, api_key,
// headers.x-app. A format without a name is not known, and fills all.
func (f *Format) Fills(field string) bool {
	member, _, _ := strings.Cut(field, ".")
	if strings.HasPrefix(field, "{") {
		member = traffic.FieldPath.String()
	}
	if f.Name == "" || format.Carries(f.Name, f.Map, member) {
		return true
	}
	for one := traffic.FieldDevice; one < traffic.NumFields; one++ {
		if one.String() == member { // the identity map may find it in a header
			return format.Carries(f.Name, f.Map, "headers")
		}
	}
	return false
}

// Unfilled is a field that a document asks of events and that no event of a format has.
type Unfilled struct {
	Place  string // in the document: match.host, key[1], count.sum, tiers[0].when
	Field  string // as in Format.Fills
	Effect string // what the document does without it
}

// Unfilled lists what d asks of events and no event of f has: such a rule counts nothing, and says nothing. conditions may be nil; then
// those of d are not looked at. What a gate is asked is listed only where block.match says so: gates do not go by the format.
func (d *Document) Unfilled(f *Format, conditions Conditions) []Unfilled {
	var found []Unfilled
	ask := func(place, field, effect string) {
		if !f.Fills(field) {
			found = append(found, Unfilled{place, field, effect})
		}
	}
	d.Match.asks("match.", "no event matches", ask)
	askKey(d, ask)
	const uncounted = "every event lacks it, so the rule counts none"
	if d.Count.Distinct != nil {
		for one := range d.Count.Distinct.Alternatives() {
			ask("count.distinct", one.String(), uncounted)
		}
	}
	for _, k := range d.Count.Tuple {
		ask("count.distinct", k.String(), uncounted)
	}
	if d.Count.Sum != "" {
		ask("count.sum", d.Count.Sum, uncounted)
	}
	condition := func(place, expr string) {
		if conditions == nil || expr == "" {
			return
		}
		for _, name := range conditions.Reads(expr) {
			if !f.Fills(name) {
				found = append(found, Unfilled{place, "event." + name, "it is empty, or missing, in every event"})
			}
		}
	}
	condition("match.when", d.Match.When)
	for i, t := range d.Tiers {
		condition(element("tiers", i)+".when", t.When)
	}
	if d.Block != nil && d.Block.Match != nil {
		d.Block.Match.asks("block.match.", "gates know it, but a backtest finds nobody whom the block would hold", ask)
	}
	return found
}

// asks tells ask which fields m needs, conditions aside. Every event has method and path.
func (m *Match) asks(prefix, effect string, ask func(place, field, effect string)) {
	for _, part := range []struct {
		field traffic.Field
		of    []string
	}{{traffic.FieldHost, m.Hosts}, {traffic.FieldRoute, m.Routes}} {
		if len(part.of) > 0 {
			ask(prefix+part.field.String(), part.field.String(), effect)
		}
	}
	if len(m.Statuses) > 0 {
		ask(prefix+"status", "status", effect)
	}
}

// askKey tells ask which fields the windows and blocks of d are told apart by.
func askKey(d *Document, ask func(place, field, effect string)) {
	for i, k := range d.Key {
		effect := "every event lacks it, so the rule counts none"
		switch {
		case k.Field == traffic.FieldFallback:
			effect = "every event lacks it, and another alternative stands in for it, if any"
		case d.Missing == MissingGroup:
			effect = "every event lacks it, so all share one window, which blocks nobody"
		}
		for one := range k.Alternatives() {
			ask(element("key", i), one.String(), effect)
		}
	}
	if d.Block == nil {
		return
	}
	for i, k := range d.Block.Key {
		if !slices.ContainsFunc(d.Key, func(of traffic.KeyField) bool { return of.Field == k.Field }) {
			ask(element("block.key", i), k.String(), "every event lacks it, so the rule blocks nobody")
		}
	}
}

// warnUnfilled reports what the configured format never fills.
func warnUnfilled(d *Document, env Environment, report func(Problem)) {
	hint := ""
	if format.TakesFieldMap(env.Format.Name) {
		hint = "; events.map can name the member that has it"
	}
	for _, u := range d.Unfilled(&env.Format, env.Conditions) {
		report(Problem{Field: u.Place, Got: u.Field + ", which events of the format " + env.Format.Name + " never have",
			Allowed: "fields that the configured format fills", Hint: u.Effect + hint})
	}
}

// KeyedSubject is s as a rule counts its values, where a person has typed them: readable text without blanks around an
// identity, hosts and methods in one spelling, long values by their beginning and digest.
func KeyedSubject(s traffic.Subject) (traffic.Subject, error) {
	values, err := s.Values()
	if err != nil {
		return "", err
	}
	for i, v := range values {
		if !v.Missing && !v.Digest {
			values[i].Value = keyedValue(v.Field, v.Value)
		}
	}
	return traffic.SubjectOf(values), nil
}

// TypedSource reads a source as a person types it: traffic.CutSource, with the values as ROUTE reads them, see
// KeyedSubject.
func TypedSource(text string) (subject traffic.Subject, field, value string) {
	subject, field, value = traffic.CutSource(text)
	if keyed, err := KeyedSubject(subject); err == nil {
		subject = keyed
	}
	return subject, field, keyedValue(field, value)
}

// keyedValue is the value of a field as ROUTE reads it; of no field: as that of any field of an identity.
func keyedValue(field, value string) string {
	switch {
	case field == traffic.FieldIP.String() || traffic.Shortened(value):
		return value
	case field == traffic.FieldHost.String():
		value = reading.PlainHost(value)
	case field == traffic.FieldMethod.String():
		value = strings.ToUpper(value)
	default:
		if _, own := traffic.ParseField(field); own || field == "" {
			return traffic.IdentityValue(value)
		}
	}
	return traffic.BoundedValue(value)
}
