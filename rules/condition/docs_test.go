package condition

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// The truth table of docs/rules.md is true, of closures and of programs.
func TestDocumentedTruth(t *testing.T) {
	src, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(src), "| condition | is | condition | is |\n|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	l, e, asked := language(t), &Event{}, 0
	e.Reset(&traffic.Request{Attrs: []byte(`{"y": 1}`)}, &traffic.Identity{})
	x, c := regexp.MustCompile(`\bx\b`), regexp.MustCompile(`\bc\b`)
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.ReplaceAll(strings.TrimSpace(line), `\|`, "\x00"), "|"), "|")
		for i := 0; i+1 < len(cells); i += 2 {
			for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[i], -1) {
				expr := strings.ReplaceAll(span[1], "\x00", "|")
				if expr == "c" {
					continue
				}
				expr = c.ReplaceAllString(x.ReplaceAllString(expr, "event.attrs.x"), "true")
				for _, program := range []bool{false, true} {
					compiled, err := l.compile(expr, mode{program: program})
					if err != nil {
						t.Fatalf("%s: %v", expr, err)
					}
					if got, want := said(compiled, e), strings.TrimSpace(cells[i+1]); got != want {
						t.Errorf("%s: the document says %s, it is %s", expr, want, got)
					}
				}
				asked++
			}
		}
	}
	if asked < 15 {
		t.Errorf("%d conditions found in the table", asked)
	}
}
