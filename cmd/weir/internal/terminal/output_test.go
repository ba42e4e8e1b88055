package terminal

import (
	"bytes"
	"strings"
	"testing"
)

func TestTableCellsAreSafeForTerminals(t *testing.T) {
	for in, want := range map[string]string{
		"": "-", "plain": "plain", "a\x1b[2Jb\nc\x00": "a·[2Jb·c·", "\xff\xfe": "··", "\u202eevil": "·evil",
		strings.Repeat("x", maxCell+1): strings.Repeat("x", maxCell) + "…",
	} {
		if got := Cell(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestEmptyListIsAnEmptyArray(t *testing.T) {
	var out bytes.Buffer
	o := &Output{Stdout: &out, Format: "json"}
	if err := List(o, []string(nil), nil, func(string) []string { return nil }); err != nil || out.String() != "[]\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}
