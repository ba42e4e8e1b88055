package history_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func document(id string) rules.Document {
	key := []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}, {Field: traffic.FieldDevice}}
	return rules.Document{
		ID: id, Owner: "identity", Match: rules.Match{Methods: []string{"POST"}, Path: "/v1/guest-tokens"}, Key: key,
		Missing: rules.MissingSkip, Limit: 5, Window: time.Minute, Lateness: time.Minute, MaxLag: time.Minute,
		Block: &rules.Block{Key: key, TTL: 15 * time.Minute, Extend: rules.ExtendOnHit},
	}
}

func rulesOf(docs ...rules.Document) []history.RuleDocument {
	out := make([]history.RuleDocument, len(docs))
	for i, d := range docs {
		out[i] = history.RuleDocument{Document: d, Source: "id: " + d.ID + "\n"}
	}
	return out
}

func apply(t *testing.T, b *bed, docs []history.RuleDocument) history.Plan {
	t.Helper()
	plan, err := b.ApplyRules(t.Context(), docs, "ann", "test", history.ApplyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func setMode(t *testing.T, b *bed, rule string, mode rules.Mode) history.ModeSet {
	t.Helper()
	state, err := b.SetMode(t.Context(), history.ModeChange{Rule: rule, Mode: mode, By: "ann", Reason: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// routed lists the rules of the live stream's newest routing version.
func routed(t *testing.T, b *bed) []string {
	t.Helper()
	n, err := b.Newest(t.Context(), history.Live)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Routing(t.Context(), history.Live, n)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, v := range r.Rules {
		out = append(out, fmt.Sprintf("%s/%d", v.ID, v.Lineage))
	}
	return out
}

func kinds(p history.Plan) string {
	var out []string
	for _, c := range p.Changes {
		out = append(out, c.Rule+" "+string(c.Kind))
	}
	return strings.Join(out, ", ")
}

func TestApplyRules(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	a, z := document("alpha"), document("zeta")
	if _, err := b.ApplyRules(ctx, rulesOf(a), "ann", "", history.ApplyOptions{}); err == nil || !strings.Contains(err.Error(), "weir migrate") {
		t.Errorf("before the first routing version: %v", err)
	}
	b.publish(t, rules.Format{Name: "weir"})

	plan, err := b.ApplyRules(ctx, rulesOf(z, a), "ann", "", history.ApplyOptions{DryRun: true})
	if err != nil || kinds(plan) != "alpha new, zeta new" || plan.Routing != 0 {
		t.Errorf("dry run: %s, %v", kinds(plan), err)
	}
	if all, err := b.Rules(ctx); err != nil || len(all) != 0 {
		t.Errorf("a dry run left %d rules, %v", len(all), err)
	}

	plan = apply(t, b, rulesOf(z, a))
	if kinds(plan) != "alpha new, zeta new" || plan.Routing != 2 || !plan.Changes[0].Warming || len(plan.Changes[0].Diff) == 0 {
		t.Errorf("first: %+v", plan)
	}
	if plan = apply(t, b, rulesOf(z, a)); plan.Changed() || plan.Routing != 2 {
		t.Errorf("the same again: %+v", plan)
	}

	a.Limit = 7
	z.Window = 2 * time.Minute
	plan = apply(t, b, rulesOf(a, z))
	if kinds(plan) != "alpha changed, zeta changed" || plan.Changes[0].Warming || !plan.Changes[1].Warming {
		t.Errorf("edits: %+v", plan)
	}
	if got := routed(t, b); !slices.Equal(got, []string{"alpha/1", "zeta/2"}) {
		t.Errorf("routed %v", got)
	}
	r, err := b.Rule(ctx, "alpha")
	if err != nil || len(r.Versions) != 2 || r.Versions[0].Version.Limit != 7 || r.Versions[1].Version.Limit != 5 ||
		r.Versions[0].Source != "id: alpha\n" || r.Versions[0].Author != "ann" || r.Newest.Hash != r.Versions[0].Hash {
		t.Errorf("versions %+v, %v", r, err)
	}
	if _, err := b.Rule(ctx, "none"); !errors.Is(err, history.ErrNotFound) {
		t.Errorf("unknown rule: %v", err)
	}
	if _, err := b.ApplyRules(ctx, rulesOf(a, a), "ann", "", history.ApplyOptions{}); err == nil {
		t.Error("one rule twice was taken")
	}
}

func TestApplyRemovesOnlyWhenPruning(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	b.publish(t, rules.Format{Name: "weir"})
	a, z := document("alpha"), document("zeta")
	apply(t, b, rulesOf(a, z))
	if plan := apply(t, b, rulesOf(a)); kinds(plan) != "alpha unchanged, zeta kept" {
		t.Errorf("without prune: %s", kinds(plan))
	}
	setMode(t, b, "zeta", rules.ModeBlock)
	prune := history.ApplyOptions{Prune: true}
	var refused *history.RefusedError
	if _, err := b.ApplyRules(ctx, rulesOf(a), "ann", "", prune); !errors.As(err, &refused) || !strings.Contains(err.Error(), "weir rules demote zeta") {
		t.Errorf("removing a rule that blocks: %v", err)
	}
	before := setMode(t, b, "zeta", rules.ModeShadow)
	plan, err := b.ApplyRules(ctx, rulesOf(a), "ann", "gone", prune)
	if err != nil || kinds(plan) != "alpha unchanged, zeta removed" {
		t.Fatalf("prune: %s, %v", kinds(plan), err)
	}
	if got := routed(t, b); !slices.Equal(got, []string{"alpha/1"}) {
		t.Errorf("routed %v", got)
	}
	if modes, err := b.Modes(ctx); err != nil || len(modes) != 1 {
		t.Errorf("modes %+v, %v", modes, err)
	}
	if _, err := b.SetMode(ctx, history.ModeChange{Rule: "zeta", Mode: rules.ModeBlock, By: "ann"}); !errors.Is(err, history.ErrNotFound) {
		t.Errorf("promoting a removed rule: %v", err)
	}
	if plan := apply(t, b, rulesOf(a)); kinds(plan) != "alpha unchanged" {
		t.Errorf("a removed rule is still planned for: %s", kinds(plan))
	}

	// It comes back in shadow, under a generation that no old block carries.
	if plan := apply(t, b, rulesOf(a, z)); kinds(plan) != "alpha unchanged, zeta restored" {
		t.Errorf("restored: %s", kinds(plan))
	}
	r, err := b.Rule(ctx, "zeta")
	if err != nil || r.Mode != rules.ModeShadow || r.Generation <= before.Generation+1 || r.Removed || len(r.Versions) != 1 {
		t.Errorf("restored as %+v, %v", r, err)
	}
}

func TestEditOfABlockingRule(t *testing.T) {
	more := map[string]func(*rules.Document){
		"lower limit": func(d *rules.Document) { d.Limit = 4 },
		"longer ttl":  func(d *rules.Document) { d.Block.TTL = time.Hour },
		"wider match": func(d *rules.Document) { d.Match = rules.Match{} },
		"other key":   func(d *rules.Document) { d.Key = d.Key[:1]; d.Block.Key = d.Key },
	}
	less := map[string]func(*rules.Document){
		"higher limit": func(d *rules.Document) { d.Limit = 50 },
		"shorter ttl":  func(d *rules.Document) { d.Block.TTL = time.Minute },
		"no block":     func(d *rules.Document) { d.Block = nil },
		"other owner":  func(d *rules.Document) { d.Owner = "video" },
	}
	b := newBed(t)
	b.publish(t, rules.Format{Name: "weir"})
	blocking := func(t *testing.T, id string, edit func(*rules.Document)) (history.Plan, history.Plan, error) {
		t.Helper()
		d := document(id)
		apply(t, b, rulesOf(d))
		setMode(t, b, id, rules.ModeBlock)
		d.Block = &rules.Block{Key: d.Block.Key, TTL: d.Block.TTL, Extend: d.Block.Extend}
		edit(&d)
		dry, err := b.ApplyRules(t.Context(), rulesOf(d), "ann", "", history.ApplyOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := b.ApplyRules(t.Context(), rulesOf(d), "ann", "", history.ApplyOptions{})
		return dry, plan, err
	}
	find := func(p history.Plan, id string) history.RuleChange {
		return p.Changes[slices.IndexFunc(p.Changes, func(c history.RuleChange) bool { return c.Rule == id })]
	}
	for name, edit := range more {
		t.Run(name, func(t *testing.T) {
			id := strings.ReplaceAll(name, " ", "-")
			dry, _, err := blocking(t, id, edit)
			var refused *history.RefusedError
			if !errors.As(err, &refused) || len(refused.Changes) != 1 || !strings.Contains(err.Error(), "demote") {
				t.Fatalf("got %v, want RefusedError", err)
			}
			if len(find(dry, id).Refused) == 0 {
				t.Error("the dry run gives no reason")
			}
			r, err := b.Rule(t.Context(), id)
			if err != nil || len(r.Versions) != 1 {
				t.Errorf("a refused edit left %d versions, %v", len(r.Versions), err)
			}
		})
	}
	for name, edit := range less {
		t.Run(name, func(t *testing.T) {
			id := strings.ReplaceAll(name, " ", "-")
			_, plan, err := blocking(t, id, edit)
			if err != nil {
				t.Fatal(err)
			}
			if c := find(plan, id); c.Kind != history.ChangeEdited || c.Mode != rules.ModeBlock || c.Version != 2 {
				t.Errorf("got %+v", c)
			}
		})
	}
}

func TestModes(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	b.publish(t, rules.Format{Name: "weir"})
	bare := document("bare")
	bare.Block = nil
	apply(t, b, rulesOf(document("flood"), bare))

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
		entries, err := b.Audit(ctx, "rule flood", 1)
		if err != nil || len(entries) != 1 || entries[0].Action != step.action || entries[0].Actor != "ann" {
			t.Errorf("audit %+v, %v; want %s", entries, err, step.action)
		}
		if got := routed(t, b); !slices.Equal(got, step.routed) {
			t.Errorf("%s: routed %v, want %v", step.action, got, step.routed)
		}
	}
	modes, err := b.Modes(ctx)
	if err != nil || len(modes) != 2 || modes[1].Rule != "flood" || modes[1].Generation != last {
		t.Errorf("modes %+v, %v", modes, err)
	}
	for _, bad := range []history.ModeChange{
		{Rule: "bare", Mode: rules.ModeBlock}, {Rule: "flood", Mode: "canary"}, {Rule: "none\x00", Mode: rules.ModeOff},
	} {
		if _, err := b.SetMode(ctx, bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestPromoteNeedsVerdicts(t *testing.T) {
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
	b := newBed(t)
	b.publish(t, rules.Format{Name: "weir"})
	apply(t, b, rulesOf(document("flood")))
	for _, tt := range tests {
		b.publish(t, tt.format)
		change := history.ModeChange{Rule: "flood", Mode: rules.ModeBlock, By: "ann"}
		_, err := b.SetMode(t.Context(), change)
		if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "verdict") {
			t.Errorf("%+v: %v, want ok=%v", tt.format, err, tt.ok)
		}
		if !tt.ok {
			change.Override = true
			if _, err := b.SetMode(t.Context(), change); err == nil {
				t.Errorf("%+v: an override without a reason was taken", tt.format)
			}
			change.Reason = "the log is of another gateway"
			if _, err := b.SetMode(t.Context(), change); err != nil {
				t.Errorf("%+v: override: %v", tt.format, err)
			}
			entries, err := b.Audit(t.Context(), "rule flood", 1)
			if err != nil || !strings.HasPrefix(entries[0].Detail, "override: ") {
				t.Errorf("audit %+v, %v", entries, err)
			}
		}
		setMode(t, b, "flood", rules.ModeShadow)
	}
}
