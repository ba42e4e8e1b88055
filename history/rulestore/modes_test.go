package rulestore_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

func setMode(t *testing.T, b *historytest.Bed, rule string, mode rules.Mode) rulestore.ModeSet {
	t.Helper()
	state, err := b.Rules.SetMode(t.Context(), rulestore.ModeChange{Rule: rule, Mode: mode, By: "ann", Reason: "test", Override: "tests"})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestModes(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	ctx := t.Context()
	b.Publish(t, rules.Format{Name: "weir"})
	bare := historytest.Document("bare")
	bare.Block = nil
	b.Apply(t, historytest.Document("flood"), bare)

	var last int64
	for _, step := range []struct {
		mode   rules.Mode
		action string
		routed []string
	}{
		{rules.ModeBlock, "promote", []string{"bare/1", "flood/1"}},
		{rules.ModeShadow, "demote", []string{"bare/1", "flood/1"}},
		{rules.ModeOff, "disable", []string{"bare/1"}},
		{rules.ModeShadow, "enable", []string{"bare/1", "flood/1"}},
	} {
		state := setMode(t, b, "flood", step.mode)
		if state.Mode != step.mode || state.Generation <= last || state.Match.Path != "/v1/guest-tokens" {
			t.Errorf("%s: %+v after generation %d", step.action, state, last)
		}
		last = state.Generation
		if again := setMode(t, b, "flood", step.mode); again.Generation != last {
			t.Errorf("%s twice raised the generation", step.action)
		}
		entries, err := b.Audit.Of(ctx, "rule flood", 1)
		if err != nil || len(entries) != 1 || entries[0].Action != step.action || entries[0].Actor != "ann" {
			t.Errorf("audit %+v, %v; want %s", entries, err, step.action)
		}
		if got := routed(t, b); !slices.Equal(got, step.routed) {
			t.Errorf("%s: routed %v, want %v", step.action, got, step.routed)
		}
	}
	modes, err := b.Rules.Modes(ctx)
	if err != nil || len(modes) != 2 || modes[1].Rule != "flood" || modes[1].Generation != last {
		t.Errorf("modes %+v, %v", modes, err)
	}
	for _, bad := range []rulestore.ModeChange{
		{Rule: "bare", Mode: rules.ModeBlock}, {Rule: "flood", Mode: "sideways"}, {Rule: "none\x00", Mode: rules.ModeOff},
	} {
		if _, err := b.Rules.SetMode(ctx, bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestPromoteNeedsVerdicts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		format rules.Format
		ok     bool
	}{
		{rules.Format{Name: "weir"}, true},
		{rules.Format{Name: "combined"}, false},
		{rules.Format{Name: "json", Map: map[string]string{"time": "ts"}}, false},
		{rules.Format{Name: "json", Map: map[string]string{"verdict": "weir"}}, true},
		{rules.Format{Name: "json", Map: map[string]string{"verdict.rule": "weir_rule"}}, true},
		{rules.Format{Name: "nginx"}, true},
		{rules.Format{Name: "traefik", Map: map[string]string{"user": "sub"}}, true},
	}
	b := promotable{historytest.New(t)}
	b.Publish(t, rules.Format{Name: "weir"})
	b.Apply(t, historytest.Document("flood"))
	for _, tt := range tests {
		b.Publish(t, tt.format)
		change := rulestore.ModeChange{Rule: "flood", Mode: rules.ModeBlock, By: "ann", Reason: "all is well", Dossier: b.dossier(t, 1)}
		_, err := b.Rules.SetMode(t.Context(), change)
		if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "verdict") {
			t.Errorf("%+v: %v, want ok=%v", tt.format, err, tt.ok)
		}
		if !tt.ok {
			change.Override = " "
			if _, err := b.Rules.SetMode(t.Context(), change); err == nil {
				t.Errorf("%+v: an override without a reason was taken", tt.format)
			}
			change.Override = "the log is of another gateway"
			if _, err := b.Rules.SetMode(t.Context(), change); err != nil {
				t.Errorf("%+v: override: %v", tt.format, err)
			}
			entries, err := b.Audit.Of(t.Context(), "rule flood", 2)
			if err != nil || entries[0].Action != "promote" || entries[0].Reason != "all is well" ||
				entries[1].Action != "override" || entries[1].Reason != change.Override || !strings.Contains(entries[1].Detail, "no field verdict") {
				t.Errorf("audit %+v, %v", entries, err)
			}
		}
		setMode(t, b.Bed, "flood", rules.ModeShadow)
	}
}

// A mode tells which version the promotion was about, whatever is applied after it.
func TestModesTellWhatWasPromoted(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	d := historytest.Document("flood")
	b.Apply(t, d)
	promoted := func() int {
		t.Helper()
		modes, err := b.Rules.Modes(t.Context())
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
	if _, err := b.Rules.Apply(t.Context(), historytest.Documents(d), "ann", "", rulestore.ApplyOptions{}); err != nil {
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
