package shown

import (
	"strings"
	"testing"
)

// TestNoCellIsAFormula: what spreadsheets begin to reckon with stays a text, and all else stays as it is.
func TestNoCellIsAFormula(t *testing.T) {
	t.Parallel()
	for _, formula := range []string{"=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "＝1", "\u200b=1", "\r=1"} {
		if got := Cell(formula); !strings.HasPrefix(got, "'") || !strings.ContainsAny(got, "1") {
			t.Errorf("%q is %q", formula, got)
		}
	}
	for _, text := range []string{"", "7", "ip=192.0.2.1%2F32", "a-b", "2026-11-20T12:00:00.000000Z", "~0abc"} {
		if got := Cell(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	var out strings.Builder
	if err := CSV(&out, [][]string{{"a", "=b"}, {"c,d", "e\nf", `g"h`, "tv;=2+5", "a|=1", "a\u009b2J\u202e",
		strings.Repeat("x", 600)}}); err != nil ||
		out.String() != `a,'=b`+"\r\n"+`"c,d",e\u{a}f,"g""h","tv;=2+5","a|=1",a\u{9b}2J\u{202e},`+strings.Repeat("x",
			600)+"\r\n" {
		t.Errorf("%v: %q", err, out.String())
	}
}
