package traffic

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSubjectText(t *testing.T) {
	id := Identity{IP: netip.MustParseAddr("192.0.2.77"), Device: "tv-7", User: "a&b=c %/é\x00\xff"}
	v6 := Identity{IP: netip.MustParseAddr("2001:db8:1:2:3:4:5:6")}
	ip := KeyField{Field: FieldIP, V4: 32, V6: 64}
	for _, c := range []struct {
		id      *Identity
		key     []KeyField
		want    Subject
		missing int
	}{
		{&id, nil, "", 0},
		{&id, []KeyField{ip}, "ip=192.0.2.77%2F32", 0},
		{&id, []KeyField{{Field: FieldIP, V4: 24, V6: 64}}, "ip=192.0.2.0%2F24", 0},
		{&v6, []KeyField{ip}, "ip=2001%3Adb8%3A1%3A2%3A%3A%2F64", 0},
		{&id, []KeyField{{Field: FieldDevice}, ip}, "ip=192.0.2.77%2F32&device=tv-7", 0},
		{&id, []KeyField{{Field: FieldUser}}, "user=a%26b%3Dc%20%25%2F%C3%A9%00%FF", 0},
		{&id, []KeyField{{Field: FieldSession}, {Field: FieldDevice}}, "device=tv-7&session", 1},
		{&v6, []KeyField{ip, {Field: FieldDevice}, {Field: FieldUser}}, "ip=2001%3Adb8%3A1%3A2%3A%3A%2F64&device&user", 2},
		{&Identity{}, []KeyField{ip}, "ip", 1},
	} {
		if got, missing := MakeSubject(c.id, c.key); got != c.want || missing != c.missing {
			t.Errorf("%v: got %s, %d, want %s, %d", c.key, got, missing, c.want, c.missing)
		}
	}
}

// anyIdentity draws identities that are often nearly the same.
func anyIdentity(t *rapid.T, name string) Identity {
	text := rapid.SampledFrom([]string{"", "a", "a_b", "b", "a&b", "a=b", "=", "&", "%", "%26", "a&device=b", "192.0.2.1/32", "\x00", "\xff", "é"})
	id := Identity{
		Device: text.Draw(t, name+" device"), User: text.Draw(t, name+" user"),
		APIKey: text.Draw(t, name+" key"), Session: text.Draw(t, name+" session"),
	}
	if ip := rapid.SampledFrom([]string{"", "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::", "::", "0.0.0.0"}).Draw(t, name+" ip"); ip != "" {
		id.IP = netip.MustParseAddr(ip)
	}
	return id
}

func anyKey(t *rapid.T, name string) []KeyField {
	var key []KeyField
	for f := FieldIP; f < NumFields; f++ {
		if !rapid.Bool().Draw(t, name) {
			continue
		}
		k := KeyField{Field: f}
		if f == FieldIP {
			k.V4 = rapid.SampledFrom([]uint8{24, 32}).Draw(t, "v4")
			k.V6 = rapid.SampledFrom([]uint8{48, 64, 128}).Draw(t, "v6")
		}
		key = append(key, k)
	}
	return key
}

// listOf is what a subject stands for.
func listOf(id *Identity, key []KeyField) []SubjectValue {
	var out []SubjectValue
	for f := FieldIP; f < NumFields; f++ {
		for _, k := range key {
			if k.Field == f {
				v, ok := id.Value(k)
				out = append(out, SubjectValue{Field: f.String(), Value: v, Missing: !ok})
			}
		}
	}
	return out
}

func equalLists(a, b []SubjectValue) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestSubjectIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyIdentity(t, "a"), anyIdentity(t, "b")
		keyA := anyKey(t, "key a")
		keyB := keyA
		if rapid.Bool().Draw(t, "other key") {
			keyB = anyKey(t, "key b")
		}
		subjectA, missing := MakeSubject(&a, keyA)
		subjectB, _ := MakeSubject(&b, keyB)
		listA, listB := listOf(&a, keyA), listOf(&b, keyB)
		if (subjectA == subjectB) != equalLists(listA, listB) {
			t.Fatalf("%s and %s stand for %v and %v", subjectA, subjectB, listA, listB)
		}
		for i := range len(subjectA) {
			if c := subjectA[i]; !unreserved(c) && c != '%' && c != '&' && c != '=' {
				t.Fatalf("%s has the byte %q", subjectA, c)
			}
		}
		decoded, err := subjectA.Values()
		if err != nil || !equalLists(decoded, listA) {
			t.Fatalf("%s decodes to %v, %v, want %v", subjectA, decoded, err, listA)
		}
		for _, v := range listA {
			if v.Missing {
				missing--
			}
		}
		if missing != 0 {
			t.Fatalf("%s: %d too many missing", subjectA, missing)
		}
		shuffled := rapid.Permutation(keyA).Draw(t, "shuffled")
		if other, _ := MakeSubject(&a, shuffled); other != subjectA {
			t.Fatalf("%s and %s for the same key in another order", subjectA, other)
		}
	})
}

func TestSubjectValuesRefuses(t *testing.T) {
	for _, s := range []Subject{"=a", "&", "user=%", "user=%2", "user=%2f", "user=%41", "user=a b", "user=a=b", "user=é", "user=a&"} {
		if got, err := s.Values(); err == nil {
			t.Errorf("%q: got %v", s, got)
		}
	}
}

func FuzzSubjectValues(f *testing.F) {
	f.Add("ip=192.0.2.1%2F32&device=tv-7&user")
	f.Add("0%000") // a name of a field is encoded, too
	f.Fuzz(func(t *testing.T, in string) {
		values, err := Subject(in).Values()
		if err != nil {
			return
		}
		var again []byte
		for i, v := range values {
			if i > 0 {
				again = append(again, '&')
			}
			again = appendPercent(again, v.Field)
			if !v.Missing {
				again = append(again, '=')
				if v.Digest {
					again = append(again, v.Value...)
					continue
				}
				again = appendPercent(again, v.Value)
			}
		}
		if string(again) != in {
			t.Fatalf("%q decodes to %v, which is %q", in, values, again)
		}
	})
}

func TestAppendSubjectWithoutAllocation(t *testing.T) {
	id := Identity{IP: netip.MustParseAddr("2001:db8::1"), Device: "tv-7"}
	key := []KeyField{{Field: FieldIP, V4: 32, V6: 64}, {Field: FieldDevice}}
	buf := make([]byte, 0, 128)
	if n := testing.AllocsPerRun(100, func() { buf, _ = AppendSubject(buf[:0], &id, key) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if string(buf) != "ip=2001%3Adb8%3A%3A%2F64&device=tv-7" {
		t.Errorf("got %s", buf)
	}
}

func TestFieldText(t *testing.T) {
	for f := FieldIP; f <= FieldFallback; f++ {
		text, err := f.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got Field
		if err := got.UnmarshalText(text); err != nil || got != f || f.String() != string(text) {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	if _, err := (FieldFallback + 1).MarshalText(); err == nil {
		t.Error("wrote a field that does not exist")
	}
	if err := new(Field).UnmarshalText([]byte("IP")); err == nil {
		t.Error("read IP")
	}
}

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
