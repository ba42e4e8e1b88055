package history_test

import (
	"testing"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/rules"
)

// A mode tells which version the promotion was about, whatever is applied after it.
func TestModesTellWhatWasPromoted(t *testing.T) {
	b := newBed(t)
	b.publish(t, rules.Format{Name: "weir"})
	d := document("flood")
	apply(t, b, rulesOf(d))
	promoted := func() int {
		t.Helper()
		modes, err := b.Modes(t.Context())
		if err != nil || len(modes) != 1 {
			t.Fatalf("modes %+v, %v", modes, err)
		}
		return modes[0].Promoted
	}
	if got := promoted(); got != 0 {
		t.Errorf("in shadow: %d", got)
	}
	if state := setMode(t, b, "flood", rules.ModeBlock); state.Promoted != 1 || promoted() != 1 {
		t.Errorf("promoted: %+v, then %d", state, promoted())
	}
	d.Limit = 50
	if _, err := b.ApplyRules(t.Context(), rulesOf(d), "ann", "", history.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := promoted(); got != 1 {
		t.Errorf("after an edit that blocks less: %d", got)
	}
	setMode(t, b, "flood", rules.ModeShadow)
	if state := setMode(t, b, "flood", rules.ModeBlock); state.Promoted != 2 || promoted() != 2 {
		t.Errorf("promoted anew: %+v, then %d", state, promoted())
	}
}
