package rulestore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// office is a list of addresses without end.
func office(cidrs ...string) rules.AllowList {
	l := rules.AllowList{ID: "office", Owner: "identity", Entries: []rules.AllowEntry{}}
	for _, c := range cidrs {
		l.Entries = append(l.Entries, rules.AllowEntry{Kind: rules.AllowCIDR, Value: c, Reason: "an office"})
	}
	return l
}

// named is a rule that names lists.
func named(id string, lists ...string) rules.Document {
	d := historytest.Document(id)
	d.Allow = lists
	return d
}

func applied(t *testing.T, b *historytest.Bed, opts rulestore.ApplyOptions, docs ...rules.Document) (rulestore.Plan, error) {
	t.Helper()
	return b.Rules.Apply(t.Context(), historytest.Documents(docs...), "ann", "test", opts)
}

// routedLists are the allow lists of the live stream's newest routing version, with their numbers of entries.
func routedLists(t *testing.T, b *historytest.Bed) string {
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
	for i := range r.Allow {
		out = append(out, fmt.Sprintf("%s/%d", r.Allow[i].ID, len(r.Allow[i].Entries)))
	}
	return strings.Join(out, " ")
}

func addEntry(e rules.AllowEntry) func(*rules.AllowList, traffic.Time) error {
	return func(l *rules.AllowList, _ traffic.Time) error {
		l.Entries = slices.DeleteFunc(l.Entries, func(o rules.AllowEntry) bool { return o.Kind == e.Kind && o.Value == e.Value })
		l.Entries = append(l.Entries, e)
		return nil
	}
}

func dropEntry(value string) func(*rules.AllowList, traffic.Time) error {
	return func(l *rules.AllowList, _ traffic.Time) error {
		l.Entries = slices.DeleteFunc(l.Entries, func(o rules.AllowEntry) bool { return o.Value == value })
		return nil
	}
}

func promote(t *testing.T, b *historytest.Bed, mode rules.Mode, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := b.Rules.SetMode(t.Context(), rulestore.ModeChange{Rule: id, Mode: mode, By: "ann", Reason: "test", Override: "tests"}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestApplyAllowLists(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	lists := func(l ...rules.AllowList) rulestore.ApplyOptions { return rulestore.ApplyOptions{AllowLists: l} }

	if _, err := applied(t, b, lists(), named("alpha", "office")); err == nil || !strings.Contains(err.Error(), `rule alpha: allow: got "office", which no allow list has as its id`) {
		t.Errorf("a list that there is not: %v", err)
	}
	dry := lists(office("192.0.2.0/24"))
	dry.DryRun = true
	if plan, err := applied(t, b, dry, named("alpha", "office")); err != nil || len(plan.AllowLists) != 1 || plan.AllowLists[0].Kind != rulestore.ChangeNew || !plan.Changed() {
		t.Errorf("dry run: %+v, %v", plan, err)
	}
	if all, err := b.Rules.AllowLists(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("a dry run stored %+v, %v", all, err)
	}
	unused := office("198.51.100.0/24")
	unused.ID = "unused"
	if _, err := applied(t, b, lists(office("192.0.2.0/24"), unused), named("alpha", "office"), named("beta")); err != nil {
		t.Fatal(err)
	}
	if got := routedLists(t, b); got != "office/1" {
		t.Errorf("routed: %s", got)
	}
	all, err := b.Rules.AllowLists(t.Context())
	if err != nil || len(all) != 2 || all[0].List.ID != "office" || !slices.Equal(all[0].Rules, []string{"alpha"}) || all[0].Author != "ann" || all[0].Reason != "test" || all[0].Created.IsZero() || len(all[1].Rules) != 0 {
		t.Errorf("stored: %+v, %v", all, err)
	}
	// The same again, in other words, is no version; rules alone keep the lists.
	before, _ := b.Rules.Newest(t.Context(), streams.Live)
	if plan, err := applied(t, b, lists(office("192.0.2.0/24")), named("alpha", "office")); err != nil || plan.Changed() || plan.Routing != before {
		t.Errorf("again: %+v, %v", plan, err)
	}
	if plan, err := applied(t, b, lists(office("192.0.2.0/24", "203.0.113.7")), named("alpha", "office")); err != nil || plan.AllowLists[0].Version != 2 ||
		!slices.Equal(plan.AllowLists[0].Diff, []string{`cidr "203.0.113.7/32" added, without end: an office`}) || plan.Routing != before+1 {
		t.Errorf("an entry more: %+v, %v", plan, err)
	}
	if got := b.Number(t, `SELECT count(*) FROM audit WHERE object = 'allow list office' AND action = 'apply' AND actor = 'ann' AND reason = 'test'`); got != 2 {
		t.Errorf("%d entries of the audit trail", got)
	}
	// --prune keeps what a rule names, and removes the rest; what is removed can come back.
	prune := rulestore.ApplyOptions{Prune: true}
	if plan, err := applied(t, b, prune, named("alpha", "office")); err != nil || plan.AllowLists[0].Kind != rulestore.ChangeKept || plan.AllowLists[1].Kind != rulestore.ChangeRemoved {
		t.Errorf("prune: %+v, %v", plan.AllowLists, err)
	}
	got, versions, err := b.Rules.AllowList(t.Context(), "unused", 0)
	if err != nil || len(versions) != 2 || !versions[0].Removed || !got.Removed ||
		got.Version != 2 || versions[1].Entries != 1 {
		t.Errorf("removed: %+v, %+v, %v", got, versions, err)
	}
	if old, _, err := b.Rules.AllowList(t.Context(), "unused", 1); err != nil || old.Removed || old.Version != 1 {
		t.Errorf("its first version: %+v, %v", old, err)
	}
	for id, version := range map[string]int{"unused": 3, "nothing": 0} {
		if _, _, err := b.Rules.AllowList(t.Context(), id, version); !errors.Is(err, postgres.ErrNotFound) {
			t.Errorf("%s, version %d: %v", id, version, err)
		}
	}
	if _, err := b.Rules.ChangeAllowList(t.Context(), "unused", audit.Entry{Action: "add-entry", Actor: "ann", Reason: "x"}, dropEntry("")); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("a removed list was changed: %v", err)
	}
	if plan, err := applied(t, b, lists(unused), named("alpha", "office", "unused")); err != nil || plan.AllowLists[1].Kind != rulestore.ChangeRestored || plan.AllowLists[1].Version != 3 {
		t.Errorf("restored: %+v, %v", plan.AllowLists, err)
	}
	if got := routedLists(t, b); got != "office/2 unused/1" {
		t.Errorf("routed: %s", got)
	}
	twice := lists(unused, unused)
	if _, err := applied(t, b, twice); err == nil || !strings.Contains(err.Error(), "allow list unused is given twice") {
		t.Errorf("twice: %v", err)
	}
	claimed := office()
	claimed.Entries = []rules.AllowEntry{{Kind: rules.AllowUser, Value: "ann", Reason: "r"}}
	if _, err := applied(t, b, lists(claimed)); err == nil || !strings.Contains(err.Error(), "which clients claim") {
		t.Errorf("a claimed name: %v", err)
	}
}

// TestAllowListsNeedARecordFormat: an installation whose processes may not know lists refuses rules that name one, as a whole.
func TestAllowListsNeedARecordFormat(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.PublishRecordFormat(t, rules.LanguageRecordFormat-1)
	if _, err := applied(t, b, rulestore.ApplyOptions{AllowLists: []rules.AllowList{office("192.0.2.1")}}, named("alpha", "office")); err == nil ||
		!strings.Contains(err.Error(), "weir migrate --record-format 5") {
		t.Errorf("got %v", err)
	}
	if all, err := b.Rules.AllowLists(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("stored %+v, %v", all, err)
	}
	if _, err := applied(t, b, rulestore.ApplyOptions{AllowLists: []rules.AllowList{office("192.0.2.1")}}, named("alpha")); err != nil {
		t.Errorf("a list that no rule names: %v", err)
	}
}

// TestTakingBackWhatARulesPromotionHad: no way of changing a list lets a rule that blocks count a source that was let pass when the
// rule was promoted; all else is free.
func TestTakingBackWhatARulesPromotionHad(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	ctx := t.Context()
	now := time.Now()
	list := office("192.0.2.0/24", "198.51.100.0/24")
	over := rules.AllowEntry{Kind: rules.AllowCIDR, Value: "203.0.113.0/24", Reason: "over", Until: traffic.At(now.Add(-25 * time.Hour))}
	hour := rules.AllowEntry{Kind: rules.AllowCIDR, Value: "203.0.114.0/24", Reason: "just over", Until: traffic.At(now.Add(-time.Hour))}
	soon := rules.AllowEntry{Kind: rules.AllowCIDR, Value: "203.0.115.0/24", Reason: "soon over", Until: traffic.At(now.Add(time.Hour))}
	list.Entries = append(list.Entries, over, hour, soon)
	if _, err := applied(t, b, rulestore.ApplyOptions{AllowLists: []rules.AllowList{list}}, named("alpha", "office"), named("beta", "office"), named("gamma")); err != nil {
		t.Fatal(err)
	}
	change := func(f func(*rules.AllowList, traffic.Time) error) (rulestore.AllowChange, error) {
		return b.Rules.ChangeAllowList(ctx, "office", audit.Entry{Action: "test", Actor: "ann", Reason: "test"}, f)
	}
	refused := func(what string, f func(*rules.AllowList, traffic.Time) error) {
		t.Helper()
		before := routedLists(t, b)
		var r *rulestore.AllowRefusedError
		if _, err := change(f); !errors.As(err, &r) || !strings.Contains(err.Error(), "rule alpha blocks") || strings.Contains(err.Error(), "beta") || routedLists(t, b) != before {
			t.Errorf("%s: got %v, routed %s", what, err, routedLists(t, b))
		}
		// The same by a document.
		all, err := b.Rules.AllowLists(ctx)
		if err != nil {
			t.Fatal(err)
		}
		next := all[0].List
		if err := f(&next, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := applied(t, b, rulestore.ApplyOptions{AllowLists: []rules.AllowList{next}}); !errors.As(err, &r) || routedLists(t, b) != before {
			t.Errorf("%s, applied: got %v", what, err)
		}
		if plan, err := applied(t, b, rulestore.ApplyOptions{AllowLists: []rules.AllowList{next}, DryRun: true}); err != nil || len(plan.AllowLists[0].Refused) == 0 {
			t.Errorf("%s, planned: %+v, %v", what, plan, err)
		}
	}
	free := func(what string, f func(*rules.AllowList, traffic.Time) error) {
		t.Helper()
		if c, err := change(f); err != nil || c.Kind != rulestore.ChangeEdited {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
	}
	entry := func(value string, until traffic.Time) rules.AllowEntry {
		return rules.AllowEntry{Kind: rules.AllowCIDR, Value: value, Reason: "an office", Until: until}
	}
	free("in shadow", dropEntry("198.51.100.0/24"))
	free("in shadow, back", addEntry(entry("198.51.100.0/24", 0)))
	promote(t, b, rules.ModeBlock, "alpha", "gamma")

	refused("removed", dropEntry("192.0.2.0/24"))
	refused("narrower", func(l *rules.AllowList, _ traffic.Time) error {
		_ = dropEntry("192.0.2.0/24")(l, 0)
		return addEntry(entry("192.0.2.0/25", 0))(l, 0)
	})
	refused("an earlier end", addEntry(entry("192.0.2.0/24", traffic.At(now.Add(time.Hour)))))
	refused("all", func(l *rules.AllowList, _ traffic.Time) error { l.Entries = nil; return nil })
	refused("before its end", dropEntry(soon.Value))
	refused("ended an hour ago, and evidence may be older", dropEntry(hour.Value))

	free("over for more than a day", dropEntry(over.Value))
	free("added", addEntry(entry("192.0.3.0/24", 0)))
	free("what was added since is ended", addEntry(entry("192.0.3.0/24", traffic.At(now.Add(time.Hour)))))
	free("and removed", dropEntry("192.0.3.0/24"))
	free("wider", func(l *rules.AllowList, _ traffic.Time) error {
		_ = dropEntry("192.0.2.0/24")(l, 0)
		return addEntry(entry("192.0.2.0/23", 0))(l, 0)
	})
	refused("what covers it since is removed", dropEntry("192.0.2.0/23"))
	free("as it was", func(l *rules.AllowList, _ traffic.Time) error {
		_ = dropEntry("192.0.2.0/23")(l, 0)
		return addEntry(entry("192.0.2.0/24", 0))(l, 0)
	})
	free("a later end", addEntry(rules.AllowEntry{Kind: soon.Kind, Value: soon.Value, Reason: "longer", Until: soon.Until.Add(time.Hour)}))
	free("back to its end", addEntry(soon))

	// The rule itself cannot let go of the list either, nor can the list be removed with the rule's document elsewhere.
	if plan, err := applied(t, b, rulestore.ApplyOptions{}, named("alpha")); err != nil || plan.Changes[0].Kind != rulestore.ChangePending ||
		!strings.Contains(strings.Join(plan.Changes[0].Pending, "\n"), "counts sources that it did not count") {
		t.Errorf("the rule without the list: %+v, %v", plan, err)
	}
	refused("the version that blocks names the list all the same", dropEntry("192.0.2.0/24"))
	if _, err := applied(t, b, rulestore.ApplyOptions{}, named("alpha", "office")); err != nil {
		t.Error(err)
	}
	promote(t, b, rules.ModeShadow, "alpha")
	free("in shadow again", dropEntry("192.0.2.0/24"))
	promote(t, b, rules.ModeBlock, "alpha")
	refused("promoted anew", dropEntry("198.51.100.0/24"))
	free("what this promotion had not", addEntry(entry("192.0.2.0/24", 0)))
	free("may go", dropEntry("192.0.2.0/24"))
	if c, err := change(func(*rules.AllowList, traffic.Time) error { return nil }); err != nil ||
		c.Kind != rulestore.ChangeUnchanged {
		t.Errorf("nothing: %+v, %v", c, err)
	}
	if _, err := b.Rules.ChangeAllowList(ctx, "ofice", audit.Entry{Action: "test", Actor: "ann", Reason: "x"}, dropEntry("")); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("another name: %v", err)
	}
}

// TestListsOfVersionsThatStay: a rule that blocks has two versions when one is pending; what either names stays, and a version that was
// replaced does not come back without its list.
func TestListsOfVersionsThatStay(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	lists := []rules.AllowList{office("192.0.2.0/24"), office("198.51.100.0/24"), office("203.0.113.0/24")}
	lists[1].ID, lists[2].ID = "partners", "unused"
	if _, err := applied(t, b, rulestore.ApplyOptions{AllowLists: lists}, named("alpha", "office")); err != nil {
		t.Fatal(err)
	}
	promote(t, b, rules.ModeBlock, "alpha")
	next := named("alpha", "partners")
	for name, edit := range map[string]func(){"becomes pending": func() {}, "is pending": func() {}, "is pending, and edited": func() { next.Limit++ }} {
		edit()
		plan, err := applied(t, b, rulestore.ApplyOptions{Prune: true}, next)
		if err != nil || len(plan.AllowLists) < 2 || plan.AllowLists[0].Kind != rulestore.ChangeKept || plan.AllowLists[1].Kind != rulestore.ChangeKept {
			t.Fatalf("%s: %+v, %v", name, plan, err)
		}
		if got := routedLists(t, b); got != "office/1 partners/1" {
			t.Errorf("%s: routed %s", name, got)
		}
	}
	if plan, err := applied(t, b, rulestore.ApplyOptions{Prune: true, DryRun: true}, named("alpha", "office")); err != nil || plan.AllowLists[1].Kind != rulestore.ChangeRemoved {
		t.Errorf("what is pending is withdrawn: %+v, %v", plan, err)
	}
	pending := rulestore.ModeChange{Rule: "alpha", Mode: rules.ModeBlock, Pending: true, By: "ann", Reason: "test", Override: "tests"}
	if _, err := b.Rules.SetMode(t.Context(), pending); err != nil {
		t.Fatal(err)
	}
	if got := routedLists(t, b); got != "partners/1" {
		t.Errorf("promoted: routed %s", got)
	}
	if plan, err := applied(t, b, rulestore.ApplyOptions{Prune: true}, next); err != nil || plan.AllowLists[0].Kind != rulestore.ChangeRemoved {
		t.Errorf("prune: %+v, %v", plan, err)
	}
	// A rollback names what is gone.
	first, found, err := b.Rules.RuleVersion(t.Context(), "alpha", 1)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	const want = `rule alpha: allow: got "office", an allow list that was removed: weir allow show office has its document, to be applied again`
	for _, dry := range []bool{true, false} {
		if _, err := applied(t, b, rulestore.ApplyOptions{Alone: true, DryRun: dry}, first.Document); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rollback: %v", err)
		}
	}
	if _, err := applied(t, b, rulestore.ApplyOptions{Alone: true, AllowLists: lists[:1]}, first.Document); err != nil {
		t.Errorf("rollback with the list: %v", err)
	}
}
