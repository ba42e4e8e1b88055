package access

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

func masker(t testing.TB, below Role, fields ...string) *Masker {
	t.Helper()
	if fields == nil {
		fields = DefaultMaskedFields()
	}
	m, err := NewMasker(Masking{Key: bytes.Repeat([]byte("k"), MaskKeyBytes), Below: below, Fields: fields})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var (
	viewer  = Actor{Name: "vi", Role: Viewer}
	analyst = Actor{Name: "an", Role: Analyst}
	written = regexp.MustCompile(`^~[0-9a-v]+$`)
)

func TestPseudonymsComeBack(t *testing.T) {
	m := masker(t, Analyst)
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.SampledFrom(DefaultMaskedFields()).Draw(t, "field")
		value := rapid.OneOf(rapid.String(), rapid.StringN(60, 70, 80), rapid.Just("a\x00"), rapid.Just("\x00\x00"), rapid.Just("192.0.2.7")).Draw(t, "value")
		if value == "" {
			t.Skip()
		}
		shown := m.Value(viewer, field, value)
		if !written.MatchString(shown) || shown != m.Value(viewer, field, value) {
			t.Fatalf("%q is shown as %q", value, shown)
		}
		back, err := m.Resolve(viewer, field, shown)
		if err != nil || !traffic.StoredAsDigest(value) && back != value {
			t.Fatalf("%q comes back as %q, %v", value, back, err)
		}
		if again := m.Value(viewer, field, back); again != shown {
			t.Fatalf("%q: what comes back is shown as %q, not %q", value, again, shown)
		}
		other := rapid.SampledFrom(DefaultMaskedFields()).Draw(t, "other field")
		if _, err := m.Resolve(viewer, other, shown); (err == nil) != (other == field) {
			t.Fatalf("a pseudonym of %s as one of %s: %v", field, other, err)
		}
		at := rapid.IntRange(1, len(shown)-1).Draw(t, "at")
		forged := []byte(shown)
		if forged[at]++; forged[at] == ':' || forged[at] == 'w' {
			forged[at] = '0'
		}
		if _, ok := m.Original(field, string(forged)); ok {
			t.Fatalf("%q is taken, of which %q was made", shown, forged)
		}
	})
}

func TestPseudonymsOfOneSourceAreOne(t *testing.T) {
	m := masker(t, Analyst)
	long := strings.Repeat("d", 65)
	digest := traffic.Subject("device=" + long).Stored()
	for _, tc := range []struct{ field, a, b string }{
		{"ip", "192.0.2.7", "192.0.2.7/32"}, {"ip", "2001:db8::1", "2001:db8::1/128"}, {"ip", "2001:db8:0::1", "2001:db8::1"},
		{"device", long, strings.TrimPrefix(string(digest), "device=")},
	} {
		if a, b := m.Value(viewer, tc.field, tc.a), m.Value(viewer, tc.field, tc.b); a != b {
			t.Errorf("%s: %s and %s are shown as %s and %s", tc.field, tc.a, tc.b, a, b)
		}
	}
	for _, tc := range []struct{ field, a, b string }{
		{"ip", "192.0.2.7", "192.0.2.8"}, {"ip", "192.0.2.0/24", "192.0.2.0/25"}, {"user", "a", "a\x00"}, {"user", "a", "b"}, {"user", "192.0.2.7", "192.0.2.7/32"},
	} {
		if a, b := m.Value(viewer, tc.field, tc.a), m.Value(viewer, tc.field, tc.b); a == b {
			t.Errorf("%s: %q and %q are both shown as %s", tc.field, tc.a, tc.b, a)
		}
	}
	if m.Value(viewer, "user", "x") == m.Value(viewer, "device", "x") {
		t.Error("a user and a device of the same name are shown alike")
	}
	other, err := NewMasker(Masking{Key: bytes.Repeat([]byte("K"), MaskKeyBytes), Below: Analyst, Fields: []string{"user"}})
	if err != nil {
		t.Fatal(err)
	}
	if other.Value(viewer, "user", "x") == m.Value(viewer, "user", "x") {
		t.Error("pseudonyms do not depend on the key")
	}
}

// A pseudonym that was made once is in bookmarks and exports: another build makes the same one.
func TestPseudonymsStay(t *testing.T) {
	m := masker(t, Analyst)
	for value, want := range map[string]string{"ip=192.0.2.7": pinnedAddress, "user=alice@example.com": pinnedUser} {
		field, value, _ := strings.Cut(value, "=")
		if got := m.Value(viewer, field, value); got != want {
			t.Errorf("%s %s: got %s, want %s", field, value, got, want)
		}
	}
}

const (
	pinnedAddress = "~rqj1hkjgpkaj274q8152nr850pnou"
	pinnedUser    = "~qkk3u0oo4d43f45l20ruhgv70sh2i9vebienulme0bnl4ud7biusn1o3jo"
)

func TestMasksByRoleAndField(t *testing.T) {
	m := masker(t, Analyst, "ip", "user")
	subject := traffic.Subject("ip=192.0.2.7%2F32&device=tv-7&user&attrs.tenant=acme")
	if got := m.Subject(analyst, subject); got != subject {
		t.Errorf("an analyst is shown %s", got)
	}
	got := m.Subject(viewer, subject)
	want := traffic.Subject("ip=" + m.Value(viewer, "ip", "192.0.2.7") + "&device=tv-7&user&attrs.tenant=acme")
	if got != want {
		t.Errorf("a viewer is shown %s, want %s", got, want)
	}
	back, err := m.ResolveSubject(viewer, got)
	if err != nil || back != subject {
		t.Errorf("it comes back as %s, %v", back, err)
	}
	if back, err := m.ResolveSubject(analyst, got); err != nil || back != subject {
		t.Errorf("for an analyst it comes back as %s, %v", back, err)
	}
	if _, err := m.ResolveSubject(viewer, subject); err == nil || !strings.Contains(err.Error(), "ip: got a value that is no pseudonym") {
		t.Errorf("a viewer may guess addresses: %v", err)
	}
	if got := m.Subject(viewer, "%%%"); strings.Contains(string(got), "%%%") {
		t.Errorf("what is no subject is shown as %s", got)
	}
	if !masker(t, Admin, "attrs").Masks(analyst, "attrs.tenant") {
		t.Error("attrs.tenant is shown where attrs are not")
	}
}

func TestLongValuesResolveToTheirDigest(t *testing.T) {
	m := masker(t, Analyst)
	long := traffic.Subject("device=" + strings.Repeat("d", 100))
	back, err := m.ResolveSubject(viewer, m.Subject(viewer, long))
	if err != nil || back != long.Stored() {
		t.Errorf("comes back as %s, %v; want %s", back, err, long.Stored())
	}
	if back != m.mustResolve(t, m.Subject(viewer, long.Stored())) {
		t.Error("the stored form comes back as something else")
	}
}

func (m *Masker) mustResolve(t *testing.T, s traffic.Subject) traffic.Subject {
	t.Helper()
	back, err := m.ResolveSubject(viewer, s)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

func TestSamplesAndTextAreMasked(t *testing.T) {
	m := masker(t, Analyst)
	sample := `{"time":"2026-11-21T05:10:02.5Z","ip":"192.0.2.7","device":"tv-7","user":"ann","api_key":"…wxyz","session":"s-1","path":"/login","attrs":"{\"a\":1}"}`
	shown := m.Sample(viewer, sample)
	for _, secret := range []string{"192.0.2.7", "tv-7", "ann", "wxyz", "s-1"} {
		if strings.Contains(shown, secret) {
			t.Errorf("%s is in %s", secret, shown)
		}
	}
	var s traffic.Sample
	if err := json.Unmarshal([]byte(shown), &s); err != nil || s.Path != "/login" || s.Attrs != `{"a":1}` || s.IP != m.Value(viewer, "ip", "192.0.2.7/32") {
		t.Errorf("shown as %s, %v", shown, err)
	}
	way := m.Sample(viewer, strings.Replace(sample, `Z",`, `Z","before":true,`, 1))
	if !strings.Contains(way, `"before":true`) || strings.Replace(way, `,"before":true`, "", 1) != shown {
		t.Errorf("from before the limit it is shown as %s", way)
	}
	if got := m.Sample(analyst, sample); got != sample {
		t.Errorf("an analyst is shown %s", got)
	}
	if got := m.Sample(viewer, "no JSON, but ann"); strings.Contains(got, "ann") {
		t.Errorf("what is no sample is shown as %s", got)
	}
	if hidden := masker(t, Analyst, "path", "attrs").Sample(viewer, sample); strings.Contains(hidden, "login") || strings.Contains(hidden, `\"a\"`) || !strings.Contains(hidden, "tv-7") {
		t.Errorf("path and attrs are shown as %s", hidden)
	}

	text := `weir blocks release login 'ip=192.0.2.7%2F32&device=tv-7' (192.0.2.7, user=ann) at 12:30 limit=5`
	want := `weir blocks release login 'ip=IP&device=DEVICE' (IP, user=USER) at 12:30 limit=5`
	want = strings.NewReplacer("IP", m.Value(viewer, "ip", "192.0.2.7"), "DEVICE", m.Value(viewer, "device", "tv-7"), "USER", m.Value(viewer, "user", "ann")).Replace(want)
	if got := m.Text(viewer, text); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := m.Text(analyst, text); got != text {
		t.Errorf("an analyst is shown %s", got)
	}
}

// What texts call by words is masked as what they write as subjects is; what only looks so stays.
func TestWordsOfTextsAreMasked(t *testing.T) {
	m := masker(t, Analyst)
	names := map[string]string{"IP": m.Value(viewer, "ip", "192.0.2.7"), "V6": m.Value(viewer, "ip", "2001:db8::7"), "NET": m.Value(viewer, "ip", "192.0.2.0/24"),
		"ALICE": m.Value(viewer, "user", "alice"), "TV": m.Value(viewer, "device", "tv-7"), "S1": m.Value(viewer, "session", "s-1"), "KEY": m.Value(viewer, "api_key", "k-1")}
	for _, tc := range []struct{ text, want string }{
		{"user alice called", "user {ALICE} called"},
		{"User: alice, device tv-7.", "User: {ALICE}, device {TV}."},
		{"the user \"alice\" and session 's-1'!", "the user \"{ALICE}\" and session '{S1}'!"},
		{"api_key k-1 leaked", "api_key {KEY} leaked"},
		{"a ticket of 192.0.2.7.", "a ticket of {IP}."},
		{"[192.0.2.7] 192.0.2.7:443 http://192.0.2.7/x client=192.0.2.7", "[{IP}] {IP}:443 http://{IP}/x client={IP}"},
		{"2001:db8::7: it was [2001:db8::7]", "{V6}: it was [{V6}]"},
		{"all of 192.0.2.0/24", "all of {NET}"},
		{"user=alice alice", "user={ALICE} alice"},
		{"the user agent of a device is no session, user; others", "the user agent of a device is no session, user; others"},
		{"user, alice", "user, alice"},
		{"at 12:30:15 version 1.2.3 of 10 dead:beef", "at 12:30:15 version 1.2.3 of 10 dead:beef"},
	} {
		want := tc.want
		for name, value := range names {
			want = strings.ReplaceAll(want, "{"+name+"}", value)
		}
		got := m.Text(viewer, tc.text)
		if got != want {
			t.Errorf("%s\nis   %s\nwant %s", tc.text, got, want)
		}
		if again := m.Text(viewer, got); again != got {
			t.Errorf("%s\nis masked twice: %s", got, again)
		}
		if kept := m.Text(analyst, tc.text); kept != tc.text {
			t.Errorf("an analyst is shown %s", kept)
		}
	}
}

// What people write about a source that is named beside it has no value of it.
func TestTextAboutASource(t *testing.T) {
	m := masker(t, Analyst)
	ip, alice, tv := m.Value(viewer, "ip", "192.0.2.7"), m.Value(viewer, "user", "alice"), m.Value(viewer, "device", "tv 7")
	for _, tc := range []struct{ about, text, want string }{
		{"block flood user=alice", "Alice called, and alice2 and malice did not: alice!", alice + " called, and alice2 and malice did not: " + alice + "!"},
		{"device=tv%207&user=alice", "the tv 7 of alice", "the " + tv + " of " + alice},
		{"block flood ip=192.0.2.7%2F32", "192.0.2.7/32, and 192.0.2.7", ip + ", and " + ip},
		{"rule flood", "alice", "alice"},
		{"user=alice", "", ""},
		{"user=a%C3%A9", "né aé aéa", "né " + m.Value(viewer, "user", "aé") + " aéa"},
	} {
		about := func(actor Actor) *Mask {
			mask := m.For(actor)
			mask.Object(tc.about)
			return mask
		}
		if got := about(viewer).Text(tc.text); got != tc.want {
			t.Errorf("%s about %s is %s, want %s", tc.text, tc.about, got, tc.want)
		}
		if got := about(analyst).Text(tc.text); got != tc.text {
			t.Errorf("an analyst is shown %s", got)
		}
	}
}

func TestWithoutMaskingEverythingIsShown(t *testing.T) {
	for _, masking := range []Masking{{}, {Below: Viewer, Fields: []string{"ip"}}, {Below: Admin}} {
		m, err := NewMasker(masking)
		if err != nil || m != nil {
			t.Fatalf("%+v: got %v, %v", masking, m, err)
		}
		back, err := m.Resolve(viewer, "ip", "192.0.2.7")
		if _, ok := m.Original("ip", "~0"); ok || err != nil || back != "192.0.2.7" || m.Value(viewer, "ip", "x") != "x" || m.Subject(viewer, "ip=x") != "ip=x" ||
			m.Sample(viewer, "{") != "{" || m.Text(viewer, "192.0.2.7") != "192.0.2.7" || m.MasksAny(Actor{}) {
			t.Error("no masking masks")
		}
	}
	for _, masking := range []Masking{
		{Below: Analyst, Fields: []string{"ip"}, Key: make([]byte, MaskKeyBytes-1)}, {Below: Analyst, Fields: []string{"ipp"}, Key: make([]byte, 32)},
	} {
		if _, err := NewMasker(masking); err == nil {
			t.Errorf("%+v is taken", masking)
		}
	}
}
