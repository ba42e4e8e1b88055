package rules

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

// vouching is a deployment whose gateway vouches for all fields.
func vouching() Environment {
	env := testEnvironment()
	for _, src := range []*traffic.FieldSource{&env.Identity.Device, &env.Identity.User, &env.Identity.APIKey, &env.Identity.Session} {
		src.Vouched = true
	}
	return env
}

func TestParseAnAllowList(t *testing.T) {
	const src = `
kind: allow
id: office
owner: identity
entries:
  - {user: "ann & bob", reason: staff}
  - {cidr: 2001:DB8::/32, reason: v6}
  - {cidr: 192.0.2.9, reason: one address, until: 2026-12-31T01:00:00+01:00}
  - {cidr: 192.0.2.0/24, reason: office, until: "2026-12-31T00:00:00.000001Z"}
  - {api_key: k, reason: key}
---
id: a
owner: b
match: {}
key: [ip]
limit: 1
window: 1m
allow: [office]
---
kind: allow
id: a
owner: the same id as a rule
entries: []
`
	env := vouching()
	env.AllowLists = []string{}
	env.Warn = func(p Problem) { t.Errorf("warned: %v", p) }
	set, err := ParseSet([]File{{Name: "a.yaml", Src: []byte(src)}}, env)
	if err != nil {
		t.Fatal(err)
	}
	day := traffic.At(time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC))
	want := []AllowList{{ID: "a", Owner: "the same id as a rule", Entries: []AllowEntry{}}, {ID: "office", Owner: "identity", Entries: []AllowEntry{
		{Kind: AllowCIDR, Value: "192.0.2.0/24", Reason: "office", Until: day + 1},
		{Kind: AllowCIDR, Value: "192.0.2.9/32", Reason: "one address", Until: day},
		{Kind: AllowCIDR, Value: "2001:db8::/32", Reason: "v6"},
		{Kind: AllowUser, Value: "ann & bob", Reason: "staff"},
		{Kind: AllowAPIKey, Value: "k", Reason: "key"},
	}}}
	if !reflect.DeepEqual(set.AllowLists, want) {
		t.Errorf("got  %+v\nwant %+v", set.AllowLists, want)
	}
	if len(set.Rules) != 1 || !slices.Equal(set.Rules[0].Allow, []string{"office"}) {
		t.Errorf("got rules %+v", set.Rules)
	}
	if docs, err := ParseFiles([]File{{Name: "a.yaml", Src: []byte(src)}}, env); err != nil || len(docs) != 1 {
		t.Errorf("ParseFiles: %d rules, %v", len(docs), err)
	}
}

// TestUnknownAllowLists: where all lists are known a name that none has is a problem, else a warning.
func TestUnknownAllowLists(t *testing.T) {
	const src = "id: a\nowner: b\nmatch: {}\nkey: [ip]\nlimit: 1\nwindow: 1m\nallow:\n  - office\n  - ofice\n---\nkind: allow\nid: office\nowner: b\nentries: []\n"
	read := func(known []string) (warnings []string, err error) {
		env := testEnvironment()
		env.AllowLists = known
		env.Warn = func(p Problem) { warnings = append(warnings, p.Error()) }
		_, err = ParseSet([]File{{Name: "a.yaml", Src: []byte(src)}}, env)
		return warnings, err
	}
	if warnings, err := read(nil); err != nil || len(warnings) != 1 || !strings.HasPrefix(warnings[0], `a.yaml:9:5: allow[1]: got "ofice", which no allow list of these files has`) {
		t.Errorf("not known: %v, %v", warnings, err)
	}
	if warnings, err := read([]string{}); len(warnings) != 0 || err == nil ||
		err.Error() != `a.yaml:9:5: allow[1]: got "ofice", which no allow list has as its id, allowed the id of an allow list, a document of kind: allow; did you mean "office"?` {
		t.Errorf("known: %v, %v", warnings, err)
	}
	// Where none is known, the file of the list is what is missing.
	env := testEnvironment()
	env.AllowLists = []string{}
	rule, _, _ := strings.Cut(src, "---\n")
	if _, err := ParseSet([]File{{Name: "a.yaml", Src: []byte(rule)}}, env); err == nil ||
		strings.Count(err.Error(), "; give the file of the list beside that of the rule, or the directory of both") != 2 {
		t.Errorf("none known: %v", err)
	}
	if warnings, err := read([]string{"ofice"}); len(warnings) != 0 || err != nil {
		t.Errorf("stored: %v, %v", warnings, err)
	}
}

func anyEntry(t *rapid.T) AllowEntry {
	e := AllowEntry{Reason: rapid.SampledFrom([]string{"a", "our office: a & b", "\"quoted\"", "née # no comment"}).Draw(t, "reason")}
	if rapid.Bool().Draw(t, "ends") {
		e.Until = traffic.Time(rapid.Int64Range(1, 40).Draw(t, "until"))
	}
	if e.Kind = rapid.SampledFrom(AllowKinds()).Draw(t, "kind"); e.Kind != AllowCIDR {
		e.Value = rapid.SampledFrom([]string{"ann", "true", "1", "a: b", "x#y", "é", "😀"}).Draw(t, "value")
		return e
	}
	if rapid.Bool().Draw(t, "v6") {
		bits := rapid.IntRange(120, 128).Draw(t, "bits")
		p, _ := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: rapid.Byte().Draw(t, "low")}).Prefix(bits)
		e.Value = p.String()
		return e
	}
	p, _ := netip.AddrFrom4([4]byte{192, 0, 2, rapid.Byte().Draw(t, "low")}).Prefix(rapid.IntRange(25, 32).Draw(t, "bits"))
	e.Value = p.String()
	return e
}

func anyAllowList(t *rapid.T, id string) AllowList {
	l := AllowList{ID: id, Owner: "identity", Entries: []AllowEntry{}}
	for range rapid.IntRange(0, 8).Draw(t, "entries") {
		e := anyEntry(t)
		if !slices.ContainsFunc(l.Entries, func(o AllowEntry) bool { return o.Kind == e.Kind && o.Value == e.Value }) {
			l.Entries = append(l.Entries, e)
		}
	}
	return l
}

// TestAllowListsAreReadBack: YAML and the stored form both come back as the same list.
func TestAllowListsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyAllowList(t, "l")
		set, err := ParseSet([]File{{Name: "l.yaml", Src: []byte(l.YAML())}}, vouching())
		if err != nil || len(set.AllowLists) != 1 || !set.AllowLists[0].Equal(&l) {
			t.Fatalf("%s\ngot %+v, %v", l.YAML(), set, err)
		}
		b, err := l.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		stored, err := DecodeAllowList(b)
		if err != nil || !reflect.DeepEqual(stored, l.Normal()) || stored.Validate(vouching()) != nil {
			t.Fatalf("%s: %+v, %v", b, stored, err)
		}
		if d := DiffAllow(&l, &stored); len(d) > 0 {
			t.Fatalf("a difference: %v", d)
		}
	})
}

// lets is whether a list lets an event pass, asked entry by entry.
func lets(l *AllowList, kind AllowKind, value string, at traffic.Time) bool {
	return slices.ContainsFunc(l.Entries, func(e AllowEntry) bool {
		if e.Kind != kind || e.Until != 0 && at >= e.Until {
			return false
		}
		if kind != AllowCIDR {
			return e.Value == value
		}
		return netip.MustParsePrefix(e.Value).Contains(netip.MustParseAddr(value))
	})
}

// TestUncovered: where no entry is uncovered, every event from since on that the list let pass is let pass by the next list,
// too; and an entry is named only if one event of it is not, but where several entries cover it together.
func TestUncovered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := anyAllowList(t, "l"), anyAllowList(t, "l")
		since := traffic.Time(rapid.Int64Range(0, 41).Draw(t, "since"))
		kept := before.Entries[:rapid.IntRange(0, len(before.Entries)).Draw(t, "kept")]
		for _, e := range kept {
			if !slices.ContainsFunc(after.Entries, func(o AllowEntry) bool { return o.Kind == e.Kind && o.Value == e.Value }) {
				after.Entries = append(after.Entries, e)
			}
		}
		uncovered := before.Uncovered(&after, since)
		lost := func(e *AllowEntry) bool {
			only := AllowList{Entries: []AllowEntry{*e}}
			values := []string{e.Value}
			if p, ok := e.Prefix(); ok {
				values = nil
				for a := p.Addr(); p.Contains(a); a = a.Next() {
					values = append(values, a.String())
				}
			}
			for at := since; at < 45; at++ {
				for _, v := range values {
					if lets(&only, e.Kind, v, at) && !lets(&after, e.Kind, v, at) {
						return true
					}
				}
			}
			return false
		}
		for i := range before.Entries {
			e := before.Entries[i]
			named := slices.Contains(uncovered, e.normal())
			if lost(&e) && !named {
				t.Fatalf("%+v is lost and not named: %+v → %+v since %d", e, before, after, since)
			}
			whole := e.Kind != AllowCIDR || strings.HasSuffix(e.Value, "/32") || strings.HasSuffix(e.Value, "/128")
			if named && whole && !lost(&e) {
				t.Fatalf("%+v is named and not lost: %+v → %+v since %d", e, before, after, since)
			}
		}
	})
}

func TestDiffAllow(t *testing.T) {
	day := traffic.At(time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC))
	a := AllowList{ID: "l", Owner: "x", Entries: []AllowEntry{
		{Kind: AllowCIDR, Value: "192.0.2.1", Reason: "one"}, {Kind: AllowAPIKey, Value: "secret-key-1234", Reason: "key"}, {Kind: AllowUser, Value: "ann", Reason: "staff"},
	}}
	b := AllowList{ID: "l", Owner: "y", Entries: []AllowEntry{
		{Kind: AllowCIDR, Value: "192.0.2.1/32", Reason: "one", Until: day}, {Kind: AllowUser, Value: "ann", Reason: "still staff"}, {Kind: AllowUser, Value: "bob", Reason: "new"},
	}}
	want := []string{"owner x → y", "cidr \"192.0.2.1/32\" without end → until 2026-12-31T00:00:00.000000Z: one", "user ann reason staff → still staff",
		"user bob added, without end: new", `api_key "…1234" removed`}
	if got := DiffAllow(&a, &b); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if got := DiffAllow(&a, nil); !slices.Equal(got, []string{"removed"}) || DiffAllow(nil, nil) != nil {
		t.Errorf("removed: %q", got)
	}
	many := AllowList{ID: "l", Owner: "x"}
	for i := range 1000 {
		many.Entries = append(many.Entries, AllowEntry{Kind: AllowCIDR, Value: fmt.Sprintf("10.0.%d.%d", i/256, i%256), Reason: "r"})
	}
	if got := DiffAllow(nil, &many); len(got) != 22 || got[21] != "and 980 more entries" {
		t.Errorf("many: %d lines, %q", len(got), got[len(got)-1])
	}
}

// TestAllowBounds: what is too much is refused and named, and costs no more than it is allowed to.
func TestAllowBounds(t *testing.T) {
	var b strings.Builder
	b.WriteString("kind: allow\nid: l\nowner: x\nentries:\n")
	for i := range MaxAllowEntries + 1 {
		fmt.Fprintf(&b, "- {cidr: 10.%d.%d.%d, reason: r}\n", i>>16, i>>8&255, i&255)
	}
	_, err := ParseSet([]File{{Name: "l.yaml", Src: []byte(b.String())}}, testEnvironment())
	if err == nil || err.Error() != "l.yaml:5:1: entries: got 10001 entries, allowed at most 10000; split it: a rule may name several lists" {
		t.Errorf("too many entries: %v", err)
	}
	r := Routing{Stream: "live", Number: 1, RecordFormat: LanguageRecordFormat, SecretID: "s", Identity: traffic.DefaultIdentityMap(), Format: Format{Name: "weir", MaxEventBytes: 1}}
	for i := range 6 {
		l := AllowList{ID: fmt.Sprint("l", i), Owner: "x"}
		for j := range MaxAllowEntries {
			l.Entries = append(l.Entries, AllowEntry{Kind: AllowCIDR, Value: fmt.Sprintf("10.0.%d.%d/32", j/256, j%256), Reason: "r"})
		}
		r.Allow = append(r.Allow, l)
	}
	if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "got 60000 entries in all lists that rules name, allowed 50000") {
		t.Errorf("too many in all: %v", err)
	}
	d := Document{Allow: make([]string, MaxRuleAllow+1)}
	for i := range d.Allow {
		d.Allow[i] = fmt.Sprint("l", i)
	}
	if err := d.Validate(testEnvironment()); !strings.Contains(err.Error(), "allow: got 17 lists") {
		t.Errorf("too many lists: %v", err)
	}
}

// TestRoutingHoldsTheAllowListsThatRulesName: a version is whole or refused, also by builds that do not know lists.
func TestRoutingHoldsTheAllowListsThatRulesName(t *testing.T) {
	rule := func(id string, allow ...string) Version {
		return Version{Number: 1, Lineage: 1, Document: Document{ID: id, Owner: "x", Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}},
			Missing: MissingSkip, Window: time.Minute, Lateness: time.Minute, MaxLag: time.Minute, Allow: allow}}
	}
	list := func(id string) AllowList {
		return AllowList{ID: id, Owner: "x", Entries: []AllowEntry{{Kind: AllowCIDR, Value: "192.0.2.1", Reason: "r", Until: 7}}}
	}
	whole := func() *Routing {
		r := &Routing{Stream: "live", Number: 1, RecordFormat: LanguageRecordFormat, SecretID: "s", Identity: traffic.DefaultIdentityMap(),
			Format: Format{Name: "weir", MaxEventBytes: 1}, Rules: []Version{rule("a", "l", "m"), rule("b", "l"), rule("c")}}
		r.WithAllow([]AllowList{list("z"), list("m"), list("l")})
		return r
	}
	r := whole()
	if len(r.Allow) != 2 || r.Allow[0].ID != "l" || r.Allow[1].ID != "m" {
		t.Fatalf("got %+v", r.Allow)
	}
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeRouting(b); err != nil || !reflect.DeepEqual(got.Allow, r.Allow) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := DecodeRouting([]byte(strings.Replace(string(b), `"until"`, `"since":1,"until"`, 1))); err == nil {
		t.Error("a member of an entry that this build does not know was read over")
	}
	for name, c := range map[string]struct {
		change func(r *Routing)
		want   string
	}{
		"a list is missing":   {func(r *Routing) { r.Allow = r.Allow[:1] }, "rule \"a\": allow: got m, which no allow list of the version has"},
		"order":               {func(r *Routing) { slices.Reverse(r.Allow) }, "allowed lists ascending by id"},
		"older record format": {func(r *Routing) { r.RecordFormat-- }, "allow [l, m] in record format 4, allowed from record format 5 on"},
		"a claimed name":      {func(r *Routing) { r.Allow[0].Entries[0].Kind = AllowUser }, "which clients claim"},
		"no prefix":           {func(r *Routing) { r.Allow[0].Entries[0].Value = "x" }, "entries[0].cidr"},
		"a kind":              {func(r *Routing) { r.Allow[0].Entries[0].Kind = "host" }, "the kind \"host\""},
		"a negative end":      {func(r *Routing) { r.Allow[0].Entries[0].Until = traffic.BeforeTime }, "entries[0].until"},
	} {
		r := whole()
		if c.change(r); r.Validate() == nil || !strings.Contains(r.Validate().Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, r.Validate(), c.want)
		}
	}
}

// TestAllowMayBlockMore: with fewer lists a rule counts more; with more lists only where order matters.
func TestAllowMayBlockMore(t *testing.T) {
	doc := func(extend Extend, a Algorithm, allow ...string) *Document {
		return &Document{ID: "a", Owner: "x", Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, Window: time.Minute, Algorithm: a, Allow: allow,
			Block: &Block{Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, TTL: time.Minute, Extend: extend}}
	}
	for _, c := range []struct {
		prev, next *Document
		want       string // "" for none
	}{
		{doc(ExtendOnHit, "", "l", "m"), doc(ExtendOnHit, "", "m", "l"), ""},
		{doc(ExtendOnHit, ""), doc(ExtendOnHit, "", "l"), ""},
		{doc(ExtendOnHit, "", "l", "m"), doc(ExtendOnHit, "", "m"), "allow [l, m] → [m]: counts sources that it did not count"},
		{doc(ExtendOnHit, "", "l"), doc(ExtendOnHit, "", "m"), "allow [l] → [m]"},
		{doc(ExtendNever, ""), doc(ExtendNever, "", "l"), "extend never"},
		{doc(ExtendOnHit, AlgorithmTokenBucket), doc(ExtendOnHit, AlgorithmTokenBucket, "l"), "allow [] → [l] with algorithm token-bucket"},
	} {
		got := strings.Join(MayBlockMore(c.prev, c.next), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v → %v: got %q, want %q", c.prev.Allow, c.next.Allow, got, c.want)
		}
	}
	prev := Version{Document: *doc(ExtendOnHit, "", "m", "l"), Number: 3, Lineage: 2}
	if _, changed := NextVersion(&prev, *doc(ExtendOnHit, "", "l", "m")); changed {
		t.Error("the order of lists made a version")
	}
	if next, changed := NextVersion(&prev, *doc(ExtendOnHit, "", "l")); !changed || next.Lineage != 2 {
		t.Errorf("got %+v, %t; want a version that keeps its counts", next, changed)
	}
}

// TestAllowReference holds the messages of docs/allow.md to the real ones.
func TestAllowReference(t *testing.T) {
	src, err := os.ReadFile("../docs/allow.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml wrong\n(.*?)^```\n\n```text\n(.*?)^```\n").FindAllStringSubmatch(string(src), -1)
	for _, block := range blocks {
		if _, err := ParseSet([]File{{Name: "allow.yaml", Src: []byte(block[1])}}, testEnvironment()); err == nil || err.Error()+"\n" != block[2] {
			t.Errorf("%s\nshown\n%s\ngot\n%v", block[1], block[2], err)
		}
	}
	if len(blocks) != 1 {
		t.Errorf("got %d blocks", len(blocks))
	}
}

// FuzzParseAllowList: whatever is read is valid, small, and comes back.
func FuzzParseAllowList(f *testing.F) {
	f.Add("entries: [{cidr: 192.0.2.0/24, reason: r, until: 2026-12-31T00:00:00Z}]")
	f.Add("entries:\n  - user: ann\n    reason: \"\\u202e\"\n")
	f.Add("entries: []\nkind: allow")
	f.Add("entries: [{cidr: '::ffff:1.2.3.4', reason: r}, &a {x: *a}]")
	f.Fuzz(func(t *testing.T, src string) {
		set, err := ParseSet([]File{{Name: "l.yaml", Src: []byte("kind: allow\nid: l\nowner: x\n" + src)}}, vouching())
		if err != nil {
			return
		}
		for i := range set.AllowLists {
			l := &set.AllowLists[i]
			if err := l.Validate(vouching()); err != nil {
				t.Fatalf("read, and not valid: %v", err)
			}
			again, err := ParseSet([]File{{Name: "l.yaml", Src: []byte(l.YAML())}}, vouching())
			if err != nil || len(again.AllowLists) != 1 || !again.AllowLists[0].Equal(l) {
				t.Fatalf("%s\ngot %+v, %v", l.YAML(), again, err)
			}
		}
	})
}
