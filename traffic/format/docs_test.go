package format

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// TestDocumentedExamples decodes the examples of docs/events.md, and looks for every member and reason in it.
func TestDocumentedExamples(t *testing.T) {
	doc, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	var want traffic.Time
	if err := want.UnmarshalText([]byte("2026-11-21T05:06:07Z")); err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(json|combined)(?: map=([^\n]*))?\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	if len(blocks) != 3 {
		t.Fatalf("found %d examples, want 3", len(blocks))
	}
	for _, b := range blocks {
		format, text := b[1], strings.TrimSpace(b[3])
		if format == JSON && b[2] == "" {
			format = Weir
		}
		fieldMap, err := ParseFieldMap(b[2])
		if err != nil {
			t.Fatal(err)
		}
		var r traffic.Request
		if err := mustDecoder(t, format, fieldMap).Decode([]byte(text), &r); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if r.Time/1e6 != want/1e6 || r.IP != "203.0.113.9" || r.Status < 200 || r.UserAgent == "" || r.UnknownFields != 0 {
			t.Errorf("%s\ngot %+v", text, r)
		}
	}
	proto, err := os.ReadFile("event.proto")
	if err != nil {
		t.Fatal(err)
	}
	_, messages, _ := strings.Cut(string(proto), "\nmessage Event")
	if !strings.Contains(string(doc), "```proto\nmessage Event"+messages+"```\n") {
		t.Error("docs/events.md does not show the messages of event.proto as they are")
	}
	for _, name := range append(mappableFields(), ReasonEmpty, ReasonOversized, ReasonMalformed, ReasonWrongType, ReasonBadValue, ReasonVersion) {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/events.md does not mention `%s`", name)
		}
	}
}
