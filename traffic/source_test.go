package traffic_test

import (
	"testing"

	"github.com/weirhq/weir/traffic"
)

func TestCutSource(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text         string
		subject      traffic.Subject
		field, value string
	}{
		{"tv-7", "", "", "tv-7"},
		{"user=alice", "", "user", "alice"},
		{"user=", "", "user", ""},
		{"session=a=b", "", "session", "a=b"},
		{"user=alice smith", "", "user", "alice smith"},
		{"user=alice%20smith", "", "user", "alice smith"},
		{"user=100%", "", "user", "100%"},
		{"user=%41lice", "", "user", "%41lice"},                 // no subject writes an A so
		{"user=alice&device=tv", "", "user", "alice&device=tv"}, // nor these fields in this order
		{"user=a&b", "", "user", "a&b"},
		{"user=a&user=b", "", "user", "a&user=b"},
		{"user=a&role=b", "", "user", "a&role=b"},
		{"user=alice%26device%3Dtv", "", "user", "alice&device=tv"},
		{"device=tv&user=alice", "device=tv&user=alice", "", ""},
		{"ip=192.0.2.1%2F32", "ip=192.0.2.1%2F32", "", ""},
		{"ip=192.0.2.1/32", "", "ip", "192.0.2.1/32"},
		{"ip=192.0.2.1%2F32&attrs.tenant=acme&%7Bid%7D=7", "ip=192.0.2.1%2F32&attrs.tenant=acme&%7Bid%7D=7", "", ""},
		{"%7Bid%7D=7", "", "{id}", "7"},
		{"attrs.a=1&ip=192.0.2.1%2F32", "", "attrs.a", "1&ip=192.0.2.1%2F32"},
		{"", "", "", ""},
		{"=x&y", "", "", "x&y"},
	}
	for _, tt := range tests {
		subject, field, value := traffic.CutSource(tt.text)
		if subject != tt.subject || field != tt.field || value != tt.value {
			t.Errorf("%q: got %q, %q, %q, want %q, %q, %q", tt.text, subject, field, value, tt.subject, tt.field,
				tt.value)
		}
	}
}

// FuzzSourceText writes any value of each field, and reads it again: whatever a client calls itself, it is no other
// source.
func FuzzSourceText(f *testing.F) {
	for _, s := range []string{"alice", "alice&device=tv", "alice&session=x", "%41", "a%20b", "100%", "=", "&", "",
		"a=b&c", "rule", "null",
		"sha256:00", "\u202e\u009b", "\x00", "\xff%2F"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, field := range append(traffic.FieldNames()[1:], "attrs.tenant", "{id}", "{a&b=c}", "path") {
			text := traffic.SourceText(field, value)
			if subject, gotField, got := traffic.CutSource(text); subject != "" || gotField != field || got != value {
				t.Errorf("%s %q is written %q, and read as %q, %q, %q", field, value, text, subject, gotField, got)
			}
		}
	})
}
