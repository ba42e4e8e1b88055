package access

import (
	"bytes"
	"strings"
	"testing"
)

// TestSourcesAreNamedByPseudonyms: each spelling of a source, by who is shown pseudonyms and by who is not.
func TestSourcesAreNamedByPseudonyms(t *testing.T) {
	t.Parallel()
	m, err := NewMasker(Masking{Key: bytes.Repeat([]byte{7}, MaskKeyBytes), Below: Owner, Fields: []string{"ip", "user"}})
	if err != nil {
		t.Fatal(err)
	}
	anna, adam := Actor{Name: "anna", Role: Analyst}, Actor{Name: "adam", Role: Admin}
	address := m.Value(anna, "ip", "192.0.2.1")
	for text, want := range map[string]string{
		"ip=" + address: "ip=192.0.2.1", address: "ip=192.0.2.1", "device=tv-7": "device=tv-7",
		"ip=" + address + "&device=tv-7": "ip=192.0.2.1%2F32&device=tv-7",
	} {
		for _, actor := range []Actor{anna, adam} {
			if got, err := m.ResolveSource(actor, text); err != nil || got != want {
				t.Errorf("%s asks for %s: %q, %v; want %q", actor.Name, text, got, err, want)
			}
		}
	}
	for _, text := range []string{"192.0.2.1", "192.0.2.0/24", "ip=192.0.2.1", "ip=192.0.2.1%2F32&device=tv-7", "alice", "user=" + address, "~abc"} {
		if got, err := m.ResolveSource(anna, text); err == nil {
			t.Errorf("anna may ask for %s: %q", text, got)
		}
	}
	if got, err := m.ResolveSource(adam, "192.0.2.1"); got != "192.0.2.1" || err != nil {
		t.Errorf("adam asks for an address: %q, %v", got, err)
	}
}

// TestCursorsNameNobody: a place comes back whole, and says nothing to who carries it; a place of his own making is refused.
func TestCursorsNameNobody(t *testing.T) {
	t.Parallel()
	m, err := NewMasker(Masking{Key: bytes.Repeat([]byte{7}, MaskKeyBytes), Below: Owner, Fields: []string{"ip"}})
	if err != nil {
		t.Fatal(err)
	}
	anna, adam := Actor{Name: "anna", Role: Analyst}, Actor{Name: "adam", Role: Admin}
	for _, place := range []string{"MTo1OmZsb29kIGlwPTE5Mi4wLjIuMQ", "x", strings.Repeat("y", 500), "\x00\x01\x00"} {
		cursor := m.Cursor(anna, place)
		if got, err := m.Place(anna, cursor); err != nil || got != place || strings.Contains(cursor, place) {
			t.Errorf("%q became %q and %q, %v", place, cursor, got, err)
		}
		if m.Cursor(adam, place) != place {
			t.Errorf("adam is given %q", m.Cursor(adam, place))
		}
		if _, ok := m.Original(cursorField, cursor); ok {
			t.Errorf("a cursor is a pseudonym: %q", cursor)
		}
		if _, err := m.Place(anna, place); err == nil {
			t.Errorf("anna brings %q", place)
		}
	}
	if _, err := m.Place(anna, m.Value(anna, "ip", "192.0.2.1")); err == nil {
		t.Error("a pseudonym is a cursor")
	}
	var none *Masker
	if got, err := none.Place(anna, none.Cursor(anna, "x")); got != "x" || err != nil {
		t.Errorf("without a masker: %q, %v", got, err)
	}
}
