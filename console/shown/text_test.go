package shown

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestText(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"living-room 7", "living-room 7"},
		{"Zürich 東京 🙂", "Zürich 東京 🙂"},
		{"<b>&amp;\"'`", "<b>&amp;\"'`"}, // not for HTML: the page makes text nodes of it
		{"a\x00b\n\t\x7f", `a\u{0}b\u{a}\u{9}\u{7f}`},
		{"\xff\xc3", `\xff\xc3`},
		{"tv\u202e7\u200b\ufeff\u00a0", `tv\u{202e}7\u{200b}\u{feff}\u{a0}`},
		{"\u0301x\u0301", `\u{301}x` + "\u0301"}, // a mark on a letter is text, one on nothing is not
		{"\ue000\U000e0041", `\u{e000}\u{e0041}`},
		{strings.Repeat("x", maxText), strings.Repeat("x", maxText)},
		{strings.Repeat("é", maxText+1), strings.Repeat("é", maxText) + "…"},
	}
	for _, tt := range tests {
		if got := Text(tt.in); got != tt.want {
			t.Errorf("Text(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("tv\u202e7\x00\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := Text(s)
		if !utf8.ValidString(got) {
			t.Errorf("Text(%q) is no UTF-8: %q", s, got)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Errorf("Text(%q) holds %U, which is not seen", s, r)
			}
		}
		if n := utf8.RuneCountInString(got); n > maxText*len(`\u{10ffff}`)+1 {
			t.Errorf("Text(%q) has %d characters", s, n)
		}
	})
}

func TestSource(t *testing.T) {
	id := traffic.Identity{IP: netip.MustParseAddr("192.0.2.1"), Device: "tv\x00&=%"}
	both, _ := traffic.MakeSubject(&id, []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}, {Field: traffic.FieldDevice}})
	network, _ := traffic.MakeSubject(&id, []traffic.KeyField{{Field: traffic.FieldIP, V4: 24, V6: 64}})
	nobody, _ := traffic.MakeSubject(&id, []traffic.KeyField{{Field: traffic.FieldUser}})
	tests := []struct {
		subject traffic.Subject
		want    []Field
	}{
		{both, []Field{{Field: "ip", Value: "192.0.2.1"}, {Field: "device", Value: `tv\u{0}&=%`}}},
		{network, []Field{{Field: "ip", Value: "192.0.2.0/24"}}},
		{nobody, []Field{{Field: "user", Missing: true}}},
		{"", []Field{}},
		{"ip=%zz\n", []Field{{Field: "unreadable", Value: `ip=%zz\u{a}`}}},
	}
	for _, tt := range tests {
		if got := SourceOf(tt.subject); !reflect.DeepEqual(got.Fields, tt.want) || got.Subject != tt.subject {
			t.Errorf("SourceOf(%q) = %+v, want %+v", tt.subject, got, tt.want)
		}
	}
}

// Every text of a sample that a client can choose is made visible.
func TestSampleHidesNothing(t *testing.T) {
	var in traffic.Sample
	fields := reflect.ValueOf(&in).Elem()
	for i := range fields.NumField() {
		if fields.Field(i).Kind() == reflect.String {
			fields.Field(i).SetString("a\u202eb")
		}
	}
	text, err := json.Marshal(EventOf(&in))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "\u202e") {
		t.Errorf("a text went through as it is: %s", text)
	}
	if got, want := strings.Count(string(text), "202e"), reflect.TypeFor[Event]().NumField()-3; got != want { // but time, status, and whether it came before the limit
		t.Errorf("%d texts are shown, want %d: %s", got, want, text)
	}
}

func TestCommands(t *testing.T) {
	tests := []struct{ got, want string }{
		{Commands("weir").Release("flood", "ip=192.0.2.1%2F32&device=tv-7"), `weir blocks release flood ip=192.0.2.1/32 device=tv-7 --reason "…"`},
		{Commands("weir").Release("flood", "ip=2001%3Adb8%3A1%3A%3A%2F64&device=tv-7"), `weir blocks release flood ip=2001:db8:1::/64 device=tv-7 --reason "…"`},
		{Commands("weir").Release("flood", "device=tv%207"), `weir blocks release flood 'device=tv%207' --reason "…"`},
		{Commands("weir").Release("flood", "device=tv~7"), `weir blocks release flood 'device=tv~7' --reason "…"`},
		{Commands("weir").Release("flood", "ip=192.0.2.1%2F32&device"), `weir blocks release flood 'ip=192.0.2.1%2F32&device' --reason "…"`},
		{Commands("weir").Release("flood", "device=tv-7&user=u1"), `weir blocks release flood device=tv-7 user=u1 --reason "…"`},
		{Commands("weir").Release("flood", "device='; rm -rf ~'"), ""}, // not a subject: nothing that a shell would read
		{Commands("weir").Release("flood", ""), ""},
		{Commands("bin/weir -c dev.yaml").Mode("flood", rules.ModeShadow, 3), `bin/weir -c dev.yaml rules promote flood --version 3 --reason "…"`},
		{Commands("weir").Mode("flood", rules.ModeBlock, 3), `weir rules demote flood --reason "…"`},
		{Commands("weir").Mode("flood", rules.ModeOff, 3), `weir rules demote flood --reason "…"`},
		{Commands("weir").Decisions("flood"), `weir history decisions --rule flood --since 1h`},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got  %s\nwant %s", tt.got, tt.want)
		}
	}
}
