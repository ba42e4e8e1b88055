package shown

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

func FuzzJSON(f *testing.F) {
	for _, text := range []string{"", "plain", "a\u009b31m", "\u202eevil", "é 日本", "\U000e0041", "\x7f", "\u2028",
		"\ufeff", "a\\u009b", "\t\n", "\u00a0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := json.MarshalIndent(map[string]string{"of": text}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got := JSON(raw)
		if i := strings.IndexFunc(string(got), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q has what no terminal should see at %d", got, i)
		}
		var before, after map[string]string
		if err := json.Unmarshal(raw, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got, &after); err != nil || before["of"] != after["of"] {
			t.Errorf("%q became %q: %v", raw, got, err)
		}
	})
}
