package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/rules/reading"
)

// decoder reads one YAML document into a Document and collects all that is wrong on the way. What a value may be is
// Document.check's business, for documents from files and from stores alike; the decoder knows types and places.
type decoder struct {
	file     string
	env      Environment
	doc      Document
	nodes    map[string]yamlnode.Node // what each field says; "" is the document
	bad      map[string]bool          // fields that are reported already
	problems Problems

	key, blockKey []keyEntry // as written; resolveKeys turns them into the document's
	distinct      []keyEntry // the same, of count: one, or the parts of a combination
	tests         yamlnode.Node
}

// member is one field of a section: how it is read, and what it must be when it is required and absent.
type member struct {
	name     string
	required string
	read     memberReader
}

// memberReader reads the value n of a field into d's document.
type memberReader func(d *decoder, field string, n yamlnode.Node)

// into reads a member that is one value: take reads the value, place is where it belongs.
func into[V any](take func(*decoder, string, yamlnode.Node, string) (V, bool), allowed string, place func(*Document) *V) memberReader {
	return func(d *decoder, field string, n yamlnode.Node) {
		if v, ok := take(d, field, n, allowed); ok {
			*place(&d.doc) = v
		}
	}
}

// intoUnlessZero is into for a member whose zero value a Document holds for the default. hint says how to ask for the default:
// never by writing the zero value out.
func intoUnlessZero[V comparable](take func(*decoder, string, yamlnode.Node, string) (V, bool), allowed, hint string, place func(*Document) *V) memberReader {
	return func(d *decoder, field string, n yamlnode.Node) {
		var zero V
		switch v, ok := take(d, field, n, allowed); {
		case !ok:
		case v == zero:
			d.wrong(field, n, allowed, hint)
		default:
			*place(&d.doc) = v
		}
	}
}

// section is a mapping with known members.
type section struct {
	prefix  string // "block." before its members' names in messages
	members []member
	// later are names that belong to rules and that this version cannot act upon. To read over them would be to do
	// something else than the owner wrote.
	later []string
	// unknown are names that do not belong here though they belong to a section like it, with what does.
	unknown map[string]string
}

// leaveOut is the hint where a document writes out the value that stands for a default.
const leaveOut = "leave the field out for the default"

func ruleSection() section {
	return section{
		members: []member{
			{"kind", "", readKind},
			{"id", allowedID, into(textAs[string], allowedID, func(d *Document) *string { return &d.ID })},
			{"owner", allowedOwner, into(textAs[string], allowedOwner, func(d *Document) *string { return &d.Owner })},
			{"match", allowedMatch, (*decoder).readMatch},
			{"key", allowedKey, (*decoder).readKey},
			{"on_missing", "", into(textAs[OnMissing], allowedMissing, func(d *Document) *OnMissing { return &d.Missing })},
			{"limit", allowedLimit, into((*decoder).integer, allowedLimit, func(d *Document) *int { return &d.Limit })},
			{"near", "", (*decoder).readNear},
			{"candidate", "", (*decoder).readCandidate},
			{"window", allowedWindow, into((*decoder).duration, allowedWindow, func(d *Document) *time.Duration { return &d.Window })},
			{"tiers", "", readTiers},
			{"algorithm", "", (*decoder).readAlgorithm},
			{"count", "", (*decoder).readCount},
			{"burst", "", intoUnlessZero((*decoder).integer, allowedBurst, "leave the field out for a capacity of limit",
				func(d *Document) *int { return &d.Burst })},
			{"cooldown", "", intoUnlessZero((*decoder).duration, allowedCooldown, leaveOut,
				func(d *Document) *time.Duration { return &d.Cooldown })},
			{"lateness", "", into((*decoder).duration, allowedLateness, func(d *Document) *time.Duration { return &d.Lateness })},
			{"max_lag", "", into((*decoder).duration, allowedMaxLag, func(d *Document) *time.Duration { return &d.MaxLag })},
			{"block", "", (*decoder).readBlock},
			{"allow", "", readAllow},
			{"promote", "", readPromote},
			{"canary", "", readCanary},
			{"tests", "", readTests},
		},
		later: []string{"collateral", "cap"},
	}
}

// matchSection are the members of a match, whose names stand under prefix, and which belongs where of says.
func matchSection(prefix string, of func(*Document) *Match) section {
	return section{
		prefix: prefix,
		members: []member{
			{"method", "", readMethods(of)},
			{"path", "", readPaths(of)},
			{"except", "", readList("path", allowedPath, "leave the field out to leave nothing out", aText,
				func(d *Document) *[]string { return &of(d).Except })},
			{"host", "", readList("host", allowedHost, "leave the field out to match every host", aHost,
				func(d *Document) *[]string { return &of(d).Hosts })},
			{"route", "", readList("route", allowedRoute, "leave the field out to match every route", aText,
				func(d *Document) *[]string { return &of(d).Routes })},
			{"status", "", readList("status", allowedStatus, "leave the field out to match every status", aStatus,
				func(d *Document) *[]string { return &of(d).Statuses })},
			{"path_as", "", intoUnlessZero(textAs[PathAs], allowedPathAs, leaveOut, func(d *Document) *PathAs { return &of(d).PathAs })},
			{"path_case", "", intoUnlessZero(textAs[PathCase], allowedPathCase, leaveOut, func(d *Document) *PathCase { return &of(d).PathCase })},
			{"when", "", readMatchWhen},
		},
	}
}

// watchSection is the match of a rule.
func watchSection() section {
	return matchSection("match.", func(d *Document) *Match { return &d.Match })
}

// reachSection is the match of a rule's block.
func reachSection() section {
	s := matchSection("block.match.", func(d *Document) *Match { return d.Block.Match })
	s.members = slices.DeleteFunc(s.members, func(m member) bool { return m.name == "status" || m.name == "when" })
	s.later = nil
	s.unknown = map[string]string{"status": notInRequest, "when": notInRequest}
	return s
}

func blockSection() section {
	return section{
		prefix: "block.",
		members: []member{
			{"key", "", (*decoder).readBlockKey},
			{"ttl", allowedTTL, into((*decoder).duration, allowedTTL, func(d *Document) *time.Duration { return &d.Block.TTL })},
			{"extend", "", (*decoder).readExtend},
			{"match", "", readReach},
		},
		later: []string{"scope", "after", "escalate", "max", "jitter", "action", "on_error"},
	}
}

// document reads the whole document, fills in defaults and checks the result.
func (d *decoder) document(n yamlnode.Node) {
	d.nodes[""] = n
	references(d, n)
	if !d.section(ruleSection(), "", n) {
		return
	}
	d.resolveKeys()
	if !d.has("on_missing") {
		d.doc.Missing = MissingSkip
	}
	if !d.has("lateness") {
		d.doc.Lateness = defaultLateness(d.doc.Counting(), d.doc.Window)
	}
	if !d.has("max_lag") {
		d.doc.MaxLag = DefaultMaxLag
	}
	if d.doc.Block != nil && !d.has("block.extend") {
		d.doc.Block.Extend = ExtendOnHit
	}
	d.doc.check(d.env, func(p Problem) {
		if !d.reported(p.Field) && !d.reported(p.needs) {
			d.problems = append(d.problems, d.locate(p))
		}
	})
	// What is stored may have the name: it is older than what the name is for.
	if IsByHand(d.doc.ID) && !d.reported("id") {
		d.add(d.place("id"), "id", quoteShort(d.doc.ID), allowedNotByHand, "")
	}
	restOfKeys(d)
	d.requireNormalPath()
	requireReach(d)
	if p := d.doc.lockout(); p != nil && !d.reported(p.Field) {
		d.add(d.place(p.Field), p.Field, p.Got, p.Allowed, p.Hint)
	}
	if d.env.Warn != nil && len(d.problems) == 0 {
		d.doc.warn(d.env, func(p Problem) {
			d.env.Warn(d.locate(p))
		})
	}
	d.doc.fillCounting()
	d.doc.sortSets() // after the check, whose messages count elements as they stand in the file
	if d.env.Tests != nil && d.has("tests") && len(d.problems) == 0 {
		d.env.Tests.ReadTests(&d.doc, d.file, d.tests, func(p Problem) { d.problems = append(d.problems, p) })
	}
}

// section reads the members of the mapping n. field is the mapping's own place. It reports whether n is a mapping.
func (d *decoder) section(s section, field string, n yamlnode.Node) bool {
	if n.Kind() != yamlnode.Mapping {
		d.wrong(field, n, "a mapping with the members "+strings.Join(s.names(), ", "), "")
		return false
	}
	seen := map[string]bool{}
	for _, m := range n.Members() {
		if len(d.problems) >= 10*maxProblems {
			break
		}
		name := m.Name
		switch {
		case name.Kind() == yamlnode.Alias: // reported already
		case !name.IsScalar():
			d.add(name.Place(), strings.TrimSuffix(s.prefix, "."), name.Describe(quoteShort)+" as a name", strings.Join(s.names(), ", "), "")
		case m.First != 0:
			d.add(name.Place(), printableName(s.prefix+name.Value()), fmt.Sprintf("it a second time (first at line %d)", m.First), "each field once", "")
		default:
			seen[name.Value()] = true
			d.member(s, name, m.Value)
		}
	}
	for _, m := range s.members {
		if !seen[m.name] && m.required != "" {
			d.add(n.Place(), s.prefix+m.name, "nothing", m.required, "the field is required")
			d.bad[s.prefix+m.name] = true
		}
	}
	return true
}

func (d *decoder) member(s section, key, value yamlnode.Node) {
	name := s.prefix + key.Value()
	if i := slices.IndexFunc(s.members, func(m member) bool { return m.name == key.Value() }); i >= 0 {
		d.nodes[name] = value
		s.members[i].read(d, name, value)
		return
	}
	names := s.names()
	if allowed := s.unknown[key.Value()]; allowed != "" {
		d.add(key.Place(), name, "what only an answer or an event has", allowed, "")
		return
	}
	if slices.Contains(s.later, key.Value()) {
		d.add(key.Place(), name, "a field that is not supported by this version", strings.Join(names, ", "), "")
		return
	}
	hint := ""
	if meant := Nearest(key.Value(), names); meant != "" {
		hint = fmt.Sprintf("did you mean %q?", meant)
	} else if place := elsewhere(key.Value()); place != "" && place != name {
		hint = fmt.Sprintf("did you mean %q?", place)
	}
	d.add(key.Place(), printableName(name), "an unknown field", strings.Join(names, ", "), hint)
}

func (s section) names() []string {
	names := make([]string, len(s.members))
	for i, m := range s.members {
		names[i] = m.name
	}
	return names
}

// elsewhere finds the section that has a member of this name.
func elsewhere(name string) string {
	for _, s := range []section{ruleSection(), watchSection(), countSection(), candidateSection(), blockSection(), promoteSection(), canarySection()} {
		if slices.Contains(s.names(), name) {
			return s.prefix + name
		}
	}
	return ""
}

func (d *decoder) add(at yamlnode.Place, field, got, allowed, hint string) {
	d.problems = append(d.problems, Problem{Field: field, Got: got, Allowed: allowed, Hint: hint}.At(d.file, at))
}

// wrong reports that the value n of field has the wrong type. References and tags are reported already.
func (d *decoder) wrong(field string, n yamlnode.Node, allowed, hint string) {
	d.bad[field] = true
	if n.Kind() != yamlnode.Alias && n.Tag() == "" {
		d.add(n.Place(), field, n.Describe(quoteShort), allowed, hint)
	}
}

// reported says whether field, or a field that it is part of, is reported already.
func (d *decoder) reported(field string) bool {
	for ; field != ""; field = parentField(field) {
		if d.bad[field] {
			return true
		}
	}
	return false
}

// place finds where field stands; a field that the document leaves out stands where its section does.
func (d *decoder) place(field string) yamlnode.Place {
	for ; field != ""; field = parentField(field) {
		if n, ok := d.nodes[field]; ok {
			return n.Place()
		}
	}
	return d.nodes[""].Place()
}

func (d *decoder) has(field string) bool {
	_, ok := d.nodes[field]
	return ok
}

func parentField(field string) string {
	return field[:max(strings.LastIndexAny(field, ".["), 0)]
}

// printableName is a field's name as a message may show it.
func printableName(name string) string {
	if len(name) <= 60 && reading.Printable(name) && !strings.ContainsAny(name, " :") {
		return name
	}
	return quoteShort(name)
}

// text reads n as a string.
func (d *decoder) text(field string, n yamlnode.Node, allowed string) (string, bool) {
	if n.Kind() == yamlnode.Text && n.Tag() == "" {
		return n.Value(), true
	}
	hint := ""
	if n.IsScalar() && n.Kind() != yamlnode.Null {
		hint = "put it in quotes to make it text"
	}
	d.wrong(field, n, allowed, hint)
	return "", false
}

// textAs is text for a text of a type of its own.
func textAs[T ~string](d *decoder, field string, n yamlnode.Node, allowed string) (T, bool) {
	s, ok := d.text(field, n, allowed)
	return T(s), ok
}

// integer reads n as a whole number in plain decimal digits; YAML's octal, hexadecimal and 1_000 are refused, since
// readers differ on them.
func (d *decoder) integer(field string, n yamlnode.Node, allowed string) (int, bool) {
	if n.Kind() == yamlnode.Integer && n.Tag() == "" {
		if v, err := strconv.Atoi(n.Value()); err == nil && strconv.Itoa(v) == n.Value() {
			return v, true
		}
	}
	hint := ""
	if n.Kind() == yamlnode.Text && n.Tag() == "" {
		if _, err := strconv.Atoi(n.Value()); err == nil {
			hint = "leave the quotes out"
		}
	}
	d.wrong(field, n, allowed, hint)
	return 0, false
}

// duration reads n as duration.ParseWhole does.
func (d *decoder) duration(field string, n yamlnode.Node, allowed string) (time.Duration, bool) {
	if n.Kind() == yamlnode.Text && n.Tag() == "" {
		if v, err := duration.ParseWhole(n.Value()); err == nil {
			return v, true
		}
	}
	hint := ""
	if meant := duration.Meant(n.Value()); meant != "" {
		hint = "did you mean " + meant + "?"
	} else if _, err := strconv.ParseFloat(n.Value(), 64); err == nil {
		hint = "add a unit: s, m, h or d"
	}
	d.wrong(field, n, allowed, hint)
	return 0, false
}
