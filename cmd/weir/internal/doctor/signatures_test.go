package doctor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/blocklist/signing"
	"github.com/weirhq/weir/rules"
)

// What the rule store has not signed is said: one line for each mode with a signature that is not its own, one for all
// without any.
func TestDoctorSaysWhatIsNotSigned(t *testing.T) {
	signer, err := signing.NewSigner(bytes.Repeat([]byte{7}, signing.SeedBytes), "weir")
	if err != nil {
		t.Fatal(err)
	}
	text := func(rule string, mode rules.Mode) string {
		b, err := json.Marshal(rules.ModeState{Rule: rule, Mode: mode, Generation: 4})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	texts := map[string]string{
		"fine":   signer.Sign(text("fine", rules.ModeBlock)),
		"forged": strings.Replace(signer.Sign(text("forged", rules.ModeShadow)), "shadow", "block", 1),
		"odd":    "{",
	}
	if found := judgeSignatures(map[string]string{"fine": texts["fine"]}, signer.Trust); len(found) != 0 {
		t.Errorf("of what is signed: %v", found)
	}
	for i := range shownRules + 2 {
		name := fmt.Sprint("plain-", i)
		texts[name] = text(name, rules.ModeBlock)
	}
	var got []string
	for _, f := range judgeSignatures(texts, signer.Trust) {
		got = append(got, fmt.Sprint(f.Status, ": ", f.Found))
	}
	want := []string{
		"fail: rule forged: Redis has generation 4 (block), and its signature is not the rule store's: gates without " +
			"gate.modes_key act on it",
		"warn: not signed by the rule store: plain-0, plain-1, plain-2, plain-3, plain-4 and 2 more; gates with " +
			"gate.modes_key hold these rules as in shadow, others act on them",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
