package rulestore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

// TestTextsAreActs: another text of the same document makes no version, and is an act of the rule's owner that the
// audit trail has; what was stored before stays.
func TestTextsAreActs(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	ctx := t.Context()
	b.Publish(t, rules.Format{Name: "weir"})
	mine, theirs := historytest.Document("mine"), historytest.Document("theirs")
	mine.Owner, theirs.Owner = "me@example.com", "them@example.com"
	b.Apply(t, mine, theirs)
	entries := func() int64 { return b.Number(t, "SELECT count(*) FROM weir.audit WHERE object = 'rule theirs'") }
	text := func() string {
		r, err := b.Rules.Find(ctx, "theirs")
		if err != nil || len(r.Versions) != 1 || r.Versions[0].Source != r.Newest.Source {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Newest.Source
	}
	apply := func(source string, opts rulestore.ApplyOptions) (rulestore.Plan, error) {
		docs := []rulestore.Document{{Document: mine, Source: "id: mine\n"}, {Document: theirs, Source: source}}
		return b.Rules.Apply(ctx, docs, "ann", "clearer", opts)
	}
	first, before := text(), entries()
	const approved = "# APPROVED: safe to promote without canary\nid: theirs\n"

	var asked []string
	refuse := errors.New("not yours")
	_, err := apply(approved,
		rulestore.ApplyOptions{Check: func(touched *rulestore.Touched) error { asked = touched.Owners; return refuse }})
	if !errors.Is(err, refuse) || !slices.Equal(asked, []string{"them@example.com"}) || text() != first ||
		entries() != before {
		t.Errorf("another's text: owners %v, %v; the text is %q", asked, err, text())
	}
	dry, err := apply(approved, rulestore.ApplyOptions{DryRun: true})
	if err != nil || kinds(dry) != "mine unchanged, theirs text" || !dry.Changed() || dry.Differs() || text() != first {
		t.Errorf("a dry run: %+v, %v", dry, err)
	}
	done, err := apply(approved, rulestore.ApplyOptions{Shown: &dry})
	if err != nil || kinds(done) != "mine unchanged, theirs text" || text() != approved || entries() != before+1 {
		t.Errorf("applied: %+v, %v; the text is %q", done, err, text())
	}
	all, err := b.Audit.Of(ctx, "rule theirs", 1)
	if err != nil || len(all) != 1 || all[0].Actor != "ann" || all[0].Reason != "clearer" ||
		all[0].Before == all[0].After ||
		!strings.HasPrefix(all[0].Before, "text ") || !strings.HasPrefix(all[0].After, "text ") ||
		!strings.HasPrefix(all[0].Detail, "text, version 1:") {
		t.Errorf("the audit trail has %+v, %v", all, err)
	}
	if again, err := apply(approved, rulestore.ApplyOptions{}); err != nil || again.Changed() || entries() != before+1 {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	if got := b.Number(t, "SELECT count(*) FROM weir.rule_versions WHERE rule = 'theirs' AND source = $1",
		first); got != 1 {
		t.Error("the text that was stored with the version is another one")
	}
	for _, change := range []string{"UPDATE weir.rule_texts SET source = ''", "DELETE FROM weir.rule_texts"} {
		if _, err := b.DB.Exec(ctx, change); err == nil || !strings.Contains(err.Error(),
			"rule_texts is never changed") {
			t.Errorf("%s: %v", change, err)
		}
	}
	if _, err := apply("", rulestore.ApplyOptions{}); err != nil || text() != approved {
		t.Errorf("a document without its text: %v; the text is %q", err, text())
	}

	// An edit has a text of its own; a rollback to what was brings back the text that people saw of it.
	theirs.Limit++
	if _, err = apply("id: theirs # edited\n", rulestore.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := b.Rules.Find(ctx, "theirs")
	if err != nil || len(r.Versions) != 2 || r.Newest.Source != "id: theirs # edited\n" ||
		r.Versions[1].Source != approved {
		t.Errorf("after an edit: %+v, %v", r.Versions, err)
	}
}

// TestTextsOfPendingVersions: the text of a pending version is kept with its number, also once that version acts.
func TestTextsOfPendingVersions(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	ctx := t.Context()
	b.Publish(t, rules.Format{Name: "weir"})
	d := historytest.Document("flood")
	b.Apply(t, d)
	setMode(t, b, "flood", rules.ModeBlock)
	d.Limit--
	apply := func(source, want string) {
		t.Helper()
		plan, err := b.Rules.Apply(ctx, []rulestore.Document{{Document: d, Source: source}}, "ann", "",
			rulestore.ApplyOptions{})
		if err != nil || kinds(plan) != "flood "+want {
			t.Errorf("%q: %+v, %v", source, plan, err)
		}
	}
	apply("id: flood # lower\n", "pending")
	apply("id: flood # lower, as agreed\n", "text")
	apply("id: flood # lower, as agreed\n", "unchanged")
	r, err := b.Rules.Find(ctx, "flood")
	if err != nil || r.Pending == nil || r.Pending.Source != "id: flood # lower, as agreed\n" {
		t.Fatalf("%+v, %v", r.Pending, err)
	}
	setMode(t, b, "flood", rules.ModeShadow)
	apply("id: flood # lower, as agreed\n", "changed")
	if r, err = b.Rules.Find(ctx, "flood"); err != nil || r.Pending != nil ||
		r.Newest.Source != "id: flood # lower, as agreed\n" {
		t.Errorf("%+v, %v", r.Newest, err)
	}
}

// TestVersionsStay: what a version says is changed by nobody, who owns the schema included; what weir writes goes on.
func TestVersionsStay(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	ctx := t.Context()
	b.Publish(t, rules.Format{Name: "weir"})
	d := historytest.Document("flood")
	list := rules.AllowList{ID: "office", Owner: "team"}
	apply := func(source string) {
		t.Helper()
		_, err := b.Rules.Apply(ctx, []rulestore.Document{{Document: d, Source: source}}, "ann", "",
			rulestore.ApplyOptions{AllowLists: []rules.AllowList{list}})
		if err != nil {
			t.Fatal(err)
		}
	}
	apply("id: flood\n")
	setMode(t, b, "flood", rules.ModeBlock)
	d.Limit--
	apply("id: flood # lower\n")
	for table, columns := range map[string][]string{
		"rule_versions":    {"source", "document", "author", "created_at", "lineage", "version"},
		"pending_versions": {"source", "document", "author", "created_at", "lineage", "version"},
		"allow_versions":   {"document", "author", "created_at", "version"},
	} {
		statements := []string{"DELETE FROM weir." + table, "TRUNCATE weir." + table + " CASCADE"}
		for _, c := range columns {
			statements = append(statements, "UPDATE weir."+table+" SET "+c+" = "+c)
		}
		for _, statement := range statements {
			if _, err := b.DB.Exec(ctx, statement); err == nil || !strings.Contains(err.Error(), "is never changed") {
				t.Errorf("%s: got %v; allowed: that it is never changed", statement, err)
			}
		}
	}
	setMode(t, b, "flood", rules.ModeShadow)
	apply("id: flood # lower\n") // the pending one ends, and acts
	if r, err := b.Rules.Find(ctx, "flood"); err != nil || r.Pending != nil || r.Newest.Version.Limit != d.Limit {
		t.Errorf("%+v, %v", r, err)
	}
}
