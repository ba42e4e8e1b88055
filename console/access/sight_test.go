package access

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// What people write has pseudonyms for what the request has met, and hides what else looks like a value; what weir
// writes keeps its words, whoever is called so.
func TestTextsOfARequest(t *testing.T) {
	mask := masker(t, Analyst).For(viewer)
	for _, s := range []traffic.Subject{"ip=192.0.2.7%2F32", "user=alice", "device=tv%207%20%26%20x", "user=rule",
		"session=4711", "ip=host.example"} {
		mask.Subject(s)
	}
	mask.known.name("alice-rule")
	names := map[string]string{"IP": mask.Value("ip", "192.0.2.7"), "ALICE": mask.Value("user", "alice"),
		"TV":   mask.Value("device", "tv 7 & x"),
		"RULE": mask.Value("user", "rule"), "S": mask.Value("session", "4711"), "HOST": mask.Value("ip",
			"host.example")}
	text := func(s string) string { return mask.Text(s) }
	for _, tc := range []struct {
		how        func(string) string
		text, want string
	}{
		{text, "Alice at 192.0.2.7, malice at 192.0.2.8", "{ALICE} at {IP}, malice at ~"},
		{text, "user bob, user=bob user alice, user=alice", "user ~, user=~ user {ALICE}, user={ALICE}"},
		{text, `the device "tv 7 & x", and device "tv 8 & x"; tv 7 & x.`, `the device "{TV}", and device "~"; {TV}.`},
		{text, "device=tv%207%20%26%20x ip=192.0.2.0%2F24", "device={TV} ip=~"},
		{text, "the rule alice-rule of user rule, user=rule", "the rule alice-rule of user {RULE}, user={RULE}"},
		{text, "ticket 4711, host.example", "ticket {S}, {HOST}"},
		{text, strings.Repeat("ab", 32), "~"},
		{mask.Line, "version 4711 of rule 4711", "version 4711 of rule 4711"},
		{mask.Line, "no block of rule x for user=alice or session=4711",
			"no block of rule x for user={ALICE} or session={S}"},
		{mask.Line, "got user tv 7 & x, 2001:db8::1 and user=carol", "got user {TV}, ~ and user=~"},
		{mask.Object, "block flood user=dora", "block flood user=" + mask.masker.Value(viewer, "user", "dora")},
		{mask.Detail, "to canary; dossier " + strings.Repeat("ab", 32) +
			"; version 2 (document 5a4b3c2d1e0f), entries: 7",
			"to canary; dossier " + mask.Hash(strings.Repeat("ab", 32)) + "; version 2 (document ~), entries: 7"},
		{func(s string) string { return mask.TextBy(s, viewer.Name) }, "Alice at 192.0.2.7, user alice",
			"Alice at ~, user ~"},
	} {
		want := tc.want
		for name, value := range names {
			want = strings.ReplaceAll(want, "{"+name+"}", value)
		}
		if got := tc.how(tc.text); got != want {
			t.Errorf("%s\nis   %s\nwant %s", tc.text, got, want)
		}
	}
	if got := masker(t, Analyst).For(analyst).Text("user alice at 192.0.2.7"); got != "user alice at 192.0.2.7" {
		t.Errorf("who is shown values reads %s", got)
	}
}

type Inner struct {
	Subject traffic.Subject
	By      string `mask:"name"`
	Reason  string `mask:"text,By"`
	Bare    string
	Raw     []byte
	Kept    []byte `mask:"-"`
	private string
}

type outer struct {
	*Inner
	Kind   string   `mask:"-"`
	Values []string `mask:"value,Kind"`
	Sample []string `mask:"sample"`
	Lines  []string `mask:"lines,whom it lets pass"`
	Prefix netip.Prefix
	Any    any
	Map    map[string]string
	Self   *outer
}

// An answer is masked whole, as its types say; what was read stays as it was.
func TestShow(t *testing.T) {
	m := masker(t, Analyst)
	answer := func() outer {
		return outer{Inner: &Inner{Subject: "user=alice", By: "ann", Reason: "alice, and 192.0.2.9",
			Bare: "alice and 192.0.2.9", Raw: []byte("alice"),
			Kept: []byte("x"), private: "p"},
			Kind: "device", Values: []string{"tv-7"}, Sample: []string{`{"ip":"192.0.2.7","user":"bob"}`},
			Lines:  []string{"alice", "bob"},
			Prefix: netip.MustParsePrefix("192.0.2.0/24"), Any: Inner{Subject: "user=bob"},
			Map:  map[string]string{"of": "tv-7"},
			Self: &outer{Inner: &Inner{Reason: "bob with tv-7"}}}
	}
	was := answer()
	got := Show(m.For(viewer), was)
	alice, bob, tv := m.Value(viewer, "user", "alice"), m.Value(viewer, "user", "bob"), m.Value(viewer, "device",
		"tv-7")
	want := outer{Inner: &Inner{Subject: traffic.Subject("user=" + alice), By: "ann", Reason: alice + ", and ~",
		Bare: alice + " and ~", Kept: []byte("x"), private: "p"},
		Kind: "device", Values: []string{tv}, Sample: []string{m.Sample(viewer, `{"ip":"192.0.2.7","user":"bob"}`)},
		Lines: []string{"2 lines about whom it lets pass, not shown to vi (viewer)"},
		Any:   Inner{Subject: traffic.Subject("user=" + bob)},
		Map:   map[string]string{"of": tv}, Self: &outer{Inner: &Inner{Reason: bob + " with " + tv}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v %+v %+v\nwant %+v %+v %+v", got, got.Inner, got.Self.Inner, want, want.Inner,
			want.Self.Inner)
	}
	if !reflect.DeepEqual(was, answer()) {
		t.Errorf("what was read has changed: %+v", was)
	}
	if kept := Show(m.For(analyst), was); !reflect.DeepEqual(kept, was) {
		t.Errorf("who is shown values is shown %+v", kept)
	}
	if kept := Show(nil, was); !reflect.DeepEqual(kept, was) {
		t.Errorf("without a mask %+v is shown", kept)
	}
}

// What the actor names by pseudonyms is known to the request; objects of the audit trail are named by them, too.
func TestResolvedValuesAreKnown(t *testing.T) {
	m := masker(t, Analyst)
	mask := m.For(viewer)
	if got := mask.Line("no block stands for user=alice"); !strings.HasSuffix(got, "user=~") {
		t.Errorf("unmet: %s", got)
	}
	shown := m.Subject(viewer, "user=alice")
	if s, err := mask.ResolveSubject(shown); err != nil || s != "user=alice" {
		t.Errorf("%s is %s, %v", shown, s, err)
	}
	if got := mask.Line("no block stands for user=alice"); !strings.HasSuffix(got, string(shown)) {
		t.Errorf("met: %s", got)
	}
	for text, want := range map[string]string{"block flood " + string(shown): "block flood user=alice",
		"rule flood": "rule flood", "": "",
		"block flood user=alice": "", "never-block 192.0.2.7": "", "never-block 192.0.2.0/24": "",
		"block flood ip=192.0.2.7%2F32": ""} {
		got, err := mask.ResolveObject(text)
		if got != want || (err == nil) != (want != "" || text == "") {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	if got, err := m.For(analyst).ResolveObject("block flood user=alice"); err != nil ||
		got != "block flood user=alice" {
		t.Errorf("who is shown values asks for %q, %v", got, err)
	}
}
