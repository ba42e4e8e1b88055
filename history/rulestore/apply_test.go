package rulestore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
)

// routed lists the rules of the live stream's newest routing version.
func routed(t *testing.T, b *historytest.Bed) []string {
	t.Helper()
	n, err := b.Rules.Newest(t.Context(), streams.Live)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Rules.Routing(t.Context(), streams.Live, n)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, v := range r.Rules {
		out = append(out, fmt.Sprintf("%s/%d", v.ID, v.Lineage))
	}
	return out
}

func kinds(p rulestore.Plan) string {
	var out []string
	for _, c := range p.Changes {
		out = append(out, c.Rule+" "+string(c.Kind))
	}
	return strings.Join(out, ", ")
}

func TestApplyRules(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	ctx := t.Context()
	a, z := historytest.Document("alpha"), historytest.Document("zeta")
	if _, err := b.Rules.Apply(ctx, historytest.Documents(a), "ann", "", rulestore.ApplyOptions{}); err == nil || !strings.Contains(err.Error(), "weir migrate") {
		t.Errorf("before the first routing version: %v", err)
	}
	b.Publish(t, rules.Format{Name: "weir"})

	plan, err := b.Rules.Apply(ctx, historytest.Documents(z, a), "ann", "", rulestore.ApplyOptions{DryRun: true})
	if err != nil || kinds(plan) != "alpha new, zeta new" || plan.Routing != 0 {
		t.Errorf("dry run: %s, %v", kinds(plan), err)
	}
	if all, err := b.Rules.List(ctx); err != nil || len(all) != 0 {
		t.Errorf("a dry run left %d rules, %v", len(all), err)
	}

	plan = b.Apply(t, z, a)
	if kinds(plan) != "alpha new, zeta new" || plan.Routing != 2 || !plan.Changes[0].Warming || len(plan.Changes[0].Diff) == 0 {
		t.Errorf("first: %+v", plan)
	}
	if plan = b.Apply(t, z, a); plan.Changed() || plan.Routing != 2 {
		t.Errorf("the same again: %+v", plan)
	}

	a.Limit = 7
	z.Window = 2 * time.Minute
	plan = b.Apply(t, a, z)
	if kinds(plan) != "alpha changed, zeta changed" || plan.Changes[0].Warming || !plan.Changes[1].Warming {
		t.Errorf("edits: %+v", plan)
	}
	if got := routed(t, b); !slices.Equal(got, []string{"alpha/1", "zeta/2"}) {
		t.Errorf("routed %v", got)
	}
	r, err := b.Rules.Find(ctx, "alpha")
	if err != nil || len(r.Versions) != 2 || r.Versions[0].Version.Limit != 7 || r.Versions[1].Version.Limit != 5 ||
		r.Versions[0].Source != "id: alpha\n" || r.Versions[0].Author != "ann" || r.Newest.Hash != r.Versions[0].Hash {
		t.Errorf("versions %+v, %v", r, err)
	}
	if _, err := b.Rules.Find(ctx, "none"); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("unknown rule: %v", err)
	}
	if _, err := b.Rules.Apply(ctx, historytest.Documents(a, a), "ann", "", rulestore.ApplyOptions{}); err == nil {
		t.Error("one rule twice was taken")
	}
}

// Rules are stored all or none, also where the server refuses one that goes there with others; the error names it.
func TestApplyIsAllOrNothing(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	b.Run(t, `ALTER TABLE weir.rule_versions ADD CONSTRAINT probe CHECK (rule <> 'rule-0700')`)
	var docs []rules.Document
	for i := range 1200 {
		docs = append(docs, historytest.Document(fmt.Sprintf("rule-%04d", i)))
	}
	_, err := b.Rules.Apply(t.Context(), historytest.Documents(docs...), "ann", "", rulestore.ApplyOptions{})
	if err == nil || !strings.HasPrefix(err.Error(), "history: applying rules: rule rule-0700: ") || !strings.Contains(err.Error(), "probe") {
		t.Errorf("got %v", err)
	}
	if n := b.Number(t, "SELECT (SELECT count(*) FROM weir.rule_modes) + (SELECT count(*) FROM weir.rule_versions) + (SELECT count(*) FROM weir.audit WHERE action = 'apply')"); n != 0 {
		t.Errorf("%d rows of a refused apply", n)
	}
	docs = slices.Delete(docs, 700, 701)
	if plan := b.Apply(t, docs...); len(plan.Changes) != 1199 || len(routed(t, b)) != 1199 {
		t.Errorf("%d changes, %d rules routed", len(plan.Changes), len(routed(t, b)))
	}
	for _, id := range []string{"rule-0000", "rule-0699", "rule-1199"} {
		r, err := b.Rules.Find(t.Context(), id)
		if err != nil || r.Mode != rules.ModeShadow || r.Generation != 1 || len(r.Versions) != 1 || r.Versions[0].Source != "id: "+id+"\n" {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
		if n := b.Number(t, "SELECT count(*) FROM weir.audit WHERE object = $1", "rule "+id); n != 1 {
			t.Errorf("%s: %d audit entries", id, n)
		}
	}
}

func TestApplyRemovesOnlyWhenPruning(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	ctx := t.Context()
	b.Publish(t, rules.Format{Name: "weir"})
	a, z := historytest.Document("alpha"), historytest.Document("zeta")
	b.Apply(t, a, z)
	if plan := b.Apply(t, a); kinds(plan) != "alpha unchanged, zeta kept" {
		t.Errorf("without prune: %s", kinds(plan))
	}
	setMode(t, b, "zeta", rules.ModeBlock)
	prune := rulestore.ApplyOptions{Prune: true}
	var refused *rulestore.RefusedError
	if _, err := b.Rules.Apply(ctx, historytest.Documents(a), "ann", "", prune); !errors.As(err, &refused) || !strings.Contains(err.Error(), "weir rules demote zeta") {
		t.Errorf("removing a rule that blocks: %v", err)
	}
	before := setMode(t, b, "zeta", rules.ModeShadow)
	plan, err := b.Rules.Apply(ctx, historytest.Documents(a), "ann", "gone", prune)
	if err != nil || kinds(plan) != "alpha unchanged, zeta removed" {
		t.Fatalf("prune: %s, %v", kinds(plan), err)
	}
	if got := routed(t, b); !slices.Equal(got, []string{"alpha/1"}) {
		t.Errorf("routed %v", got)
	}
	if modes, err := b.Rules.Modes(ctx); err != nil || len(modes) != 1 {
		t.Errorf("modes %+v, %v", modes, err)
	}
	if _, err := b.Rules.SetMode(ctx, rulestore.ModeChange{Rule: "zeta", Mode: rules.ModeBlock, By: "ann", Override: "tests"}); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("promoting a removed rule: %v", err)
	}
	if plan := b.Apply(t, a); kinds(plan) != "alpha unchanged" {
		t.Errorf("a removed rule is still planned for: %s", kinds(plan))
	}

	// It comes back in shadow, under a generation that no old block carries.
	if plan := b.Apply(t, a, z); kinds(plan) != "alpha unchanged, zeta restored" {
		t.Errorf("restored: %s", kinds(plan))
	}
	r, err := b.Rules.Find(ctx, "zeta")
	if err != nil || r.Mode != rules.ModeShadow || r.Generation <= before.Generation+1 || r.Removed || len(r.Versions) != 1 {
		t.Errorf("restored as %+v, %v", r, err)
	}
}

func TestEditOfABlockingRule(t *testing.T) {
	t.Parallel()
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
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	blocking := func(t *testing.T, id string, edit func(*rules.Document)) (rulestore.Plan, rulestore.Plan, error) {
		t.Helper()
		d := historytest.Document(id)
		b.Apply(t, d)
		setMode(t, b, id, rules.ModeBlock)
		d.Block = &rules.Block{Key: d.Block.Key, TTL: d.Block.TTL, Extend: d.Block.Extend}
		edit(&d)
		dry, err := b.Rules.Apply(t.Context(), historytest.Documents(d), "ann", "", rulestore.ApplyOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := b.Rules.Apply(t.Context(), historytest.Documents(d), "ann", "", rulestore.ApplyOptions{})
		return dry, plan, err
	}
	find := func(p rulestore.Plan, id string) rulestore.RuleChange {
		return p.Changes[slices.IndexFunc(p.Changes, func(c rulestore.RuleChange) bool { return c.Rule == id })]
	}
	for name, edit := range more {
		t.Run(name, func(t *testing.T) {
			id := strings.ReplaceAll(name, " ", "-")
			dry, plan, err := blocking(t, id, edit)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []rulestore.RuleChange{find(dry, id), find(plan, id)} {
				if c.Kind != rulestore.ChangePending || len(c.Pending) == 0 || c.Version != 2 || c.Mode != rules.ModeBlock || !c.Warming {
					t.Errorf("got %+v", c)
				}
			}
			r, err := b.Rules.Find(t.Context(), id)
			if err != nil || len(r.Versions) != 2 || r.Newest.Version.Number != 1 || r.Pending == nil || r.Pending.Version.Number != 2 || r.Pending.Version.Lineage != 2 {
				t.Errorf("got %+v, %v", r, err)
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
			if c := find(plan, id); c.Kind != rulestore.ChangeEdited || c.Mode != rules.ModeBlock || c.Version != 2 {
				t.Errorf("got %+v", c)
			}
		})
	}
}
