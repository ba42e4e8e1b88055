package traffic

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestStoredSubjects(t *testing.T) {
	long := strings.Repeat("\xff", 65)
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(long)))
	claimed := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("somebody else's device, of more than sixty-four bytes, that is blocked")))
	for _, tt := range []struct {
		name     string
		id       Identity
		key      []Field
		want     Subject
		contains string
	}{
		{"64 bytes stay", Identity{Device: strings.Repeat("x", 64)}, []Field{FieldDevice}, Subject("device=" + strings.Repeat("x", 64)), ""},
		{"64 bytes that are encoded stay", Identity{Device: strings.Repeat("/", 64)}, []Field{FieldDevice}, Subject("device=" + strings.Repeat("%2F", 64)), ""},
		{"65 bytes", Identity{Device: long}, []Field{FieldDevice}, Subject("device=" + digest), ""},
		{"among others", Identity{IP: netip.MustParseAddr("192.0.2.1"), Device: long, User: "u/1", APIKey: long}, []Field{FieldIP, FieldDevice, FieldUser, FieldAPIKey},
			Subject("ip=192.0.2.1%2F32&device=" + digest + "&user=u%2F1&api_key=" + digest), ""},
		{"a claim of somebody's digest", Identity{Device: claimed}, []Field{FieldDevice},
			Subject(fmt.Sprintf("device=sha256:%x", sha256.Sum256([]byte(claimed)))), ""},
	} {
		var key []KeyField
		for _, f := range tt.key {
			key = append(key, KeyField{Field: f, V4: 32, V6: 64})
		}
		raw, _ := MakeSubject(&tt.id, key)
		got := raw.Stored()
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		if got.Stored() != got {
			t.Errorf("%s: stored again: %s", tt.name, got.Stored())
		}
		if values, err := got.Values(); err != nil || len(values) != len(tt.key) {
			t.Errorf("%s: %v, %v", tt.name, values, err)
		}
	}
	for _, s := range []Subject{"", "device", Subject(strings.Repeat("x", 99)), Subject("device=" + strings.Repeat("%zz", 99)), Subject("&=&" + strings.Repeat("=", 99))} {
		if got := s.Stored(); got != s {
			t.Errorf("%q, which no identity has: %q", s, got)
		}
	}
}

// A digest is not to be had by sending one: what a person may paste, a client may not claim.
func TestDigestsOfPeopleAndOfClients(t *testing.T) {
	victim := Identity{Device: strings.Repeat("v", 100)}
	key := []KeyField{{Field: FieldDevice}}
	raw, _ := MakeSubject(&victim, key)
	stored := raw.Stored()
	shown, err := stored.Values()
	if err != nil || !shown[0].Digest {
		t.Fatalf("%v, %v", shown, err)
	}
	typed, _ := MakeSubject(&Identity{Device: shown[0].Value}, key)
	if typed.Stored() == stored {
		t.Error("a client that sends the digest has the victim's subject")
	}
	if got := typed.WithDigests(); got != stored {
		t.Errorf("pasted: %s, want %s", got, stored)
	}
	for _, other := range []Subject{"", "ip=192.0.2.1%2F32&device=tv-7", "device=sha256%3Aabc", "device=x%2Fsha256%3Aabc"} {
		if got := other.WithDigests(); got != other {
			t.Errorf("%s: %s", other, got)
		}
	}
}

// What the text of a stored value says, and what a request's value is stored as, are told apart by equality alone.
func TestStoredSubjectIsInjective(t *testing.T) {
	sizes := rapid.SampledFrom([]int{1, 63, 64, 65, 70, 71, 72, 200, 256, 272})
	text := rapid.Custom(func(t *rapid.T) string {
		n := sizes.Draw(t, "size")
		s := rapid.SampledFrom([]string{"x", "/", "\xff", "sha256:0a", "&device=", "%"}).Draw(t, "text")
		return strings.Repeat(s, n/len(s)+1)[:n]
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := Identity{Device: text.Draw(t, "a"), User: text.Draw(t, "user")}, Identity{Device: text.Draw(t, "b"), User: "u"}
		if rapid.Bool().Draw(t, "same user") {
			b.User = a.User
		}
		if rapid.Bool().Draw(t, "digest") {
			b.Device = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(a.Device)))
		}
		key := []KeyField{{Field: FieldDevice}, {Field: FieldUser}}
		rawA, _ := MakeSubject(&a, key)
		rawB, _ := MakeSubject(&b, key)
		if same := a == b; (rawA.Stored() == rawB.Stored()) != same {
			t.Fatalf("%+v and %+v: %s and %s", a, b, rawA.Stored(), rawB.Stored())
		}
		if n := len(rawA.Stored()); n > len("device=&user=")+2*3*maxPlainValue {
			t.Fatalf("%d bytes: %s", n, rawA.Stored())
		}
		if again := Subject("device=" + string(AppendStoredValue(nil, a.Device)) + "&user=" + string(AppendStoredValue(nil, a.User))); again != rawA.Stored() {
			t.Fatalf("value by value %s, whole %s", again, rawA.Stored())
		}
	})
}

func TestStoredValueAllocatesNothing(t *testing.T) {
	long := strings.Repeat("x", 272)
	var room [128]byte
	if n := testing.AllocsPerRun(100, func() { AppendStoredValue(room[:0], long) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
