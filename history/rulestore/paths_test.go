package rulestore_test

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// path is something that can be done to rules, whoever does it; its error is not looked at: what matters is what holds afterwards.
type path func(b trial)

// apply is a path that applies documents of the rule.
func apply(opts rulestore.ApplyOptions, edits ...func(d *rules.Document)) path {
	return func(b trial) {
		var docs []rules.Document
		for _, edit := range edits {
			d := historytest.Document("flood")
			d.Block = &rules.Block{Key: d.Block.Key, TTL: d.Block.TTL, Extend: d.Block.Extend}
			edit(&d)
			docs = append(docs, d)
		}
		_, _ = b.Rules.Apply(b.t.Context(), historytest.Documents(docs...), "ann", "path", opts)
	}
}

// lets makes the rule name lists.
func lets(lists ...string) func(d *rules.Document) {
	return func(d *rules.Document) { d.Allow = lists }
}

// letting is a path that applies the rule, which names the list office, and that list.
func letting(prune bool, cidrs ...string) path {
	return apply(rulestore.ApplyOptions{Prune: prune, AllowLists: []rules.AllowList{office(cidrs...)}}, lets("office"))
}

// listed changes the list office.
func listed(change func(*rules.AllowList, traffic.Time) error) path {
	return func(b trial) {
		_, _ = b.Rules.ChangeAllowList(b.t.Context(), "office", audit.Entry{Action: "path", Actor: "ann", Reason: "path"}, change)
	}
}

func edited(edit func(d *rules.Document)) path { return apply(rulestore.ApplyOptions{}, edit) }

func raised(limit int, until time.Duration) path {
	return func(b trial) {
		_, _ = b.Rules.RaiseLimit(b.t.Context(), rulestore.LimitChange{Rule: "flood", Limit: limit, Until: time.Now().Add(until), By: "ann", Reason: "path"})
	}
}

func counterReset(subject traffic.Subject) path {
	return func(b trial) {
		_, _ = b.Rules.ResetCounter(b.t.Context(), rulestore.CounterReset{Rule: "flood", Subject: subject, By: "ann", Reason: "path"})
	}
}

func mode(m rules.Mode) path {
	return func(b trial) {
		_, _ = b.Rules.SetMode(b.t.Context(), rulestore.ModeChange{Rule: "flood", Mode: m, By: "ann", Reason: "path"})
	}
}

// canary is a path by what a controller does to a rule in canary.
func canary(move func(*rulestore.Store, context.Context, rulestore.CanaryStep) (rulestore.ModeSet, error)) path {
	return func(b trial) {
		all, _, err := b.Rules.Canaries(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		for i := range all {
			_, _ = move(b.Rules, b.t.Context(), rulestore.CanaryStep{
				Rule: all[i].Newest.Version.ID, Generation: all[i].Generation, Step: all[i].Canary.Step, By: "ann", Reason: "path"})
		}
	}
}

// back applies the document of version n again, as a rollback and a re-applied export do.
func back(n int) path {
	return func(b trial) {
		if v, found, _ := b.Rules.RuleVersion(b.t.Context(), "flood", n); found {
			_, _ = b.Rules.Apply(b.t.Context(), historytest.Documents(v.Document), "ann", "path", rulestore.ApplyOptions{Alone: true})
		}
	}
}

// overtaken says that Redis knows the rule as a later one, in a mode.
func overtaken(m rules.Mode, decided string) path {
	return func(b trial) {
		all, err := b.Rules.Modes(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		for i := range all {
			all[i].Mode, all[i].Generation = m, all[i].Generation+3
		}
		_, _ = b.Rules.Overtake(b.t.Context(), rulestore.Named{Modes: all}, "ann", "path", decided)
	}
}

// smuggled publishes a routing version by itself, with another limit for the rule, and without what is pending beside it.
func smuggled(b trial) {
	_, _, _ = b.Rules.PublishRouting(b.t.Context(), streams.Live, func(prev *rules.Routing) (rules.Routing, error) {
		next := *prev
		next.Rules = slices.DeleteFunc(slices.Clone(prev.Rules), func(v rules.Version) bool { return v.Pending })
		for i := range next.Rules {
			next.Rules[i].Limit = 0
		}
		next.Resets = append(next.Resets, rules.Reset{Rule: "flood", Key: historytest.Document("flood").Key, Subject: "ip=192.0.2.9%2F32&device=tv-7", Since: prev.Number + 1})
		return next, nil
	})
}

// ways are, for each exported method of rulestore.Store, what can be done with it to a rule, a promotion aside. A method without any only
// reads. Whoever adds a method enters it here, and so has it asked whether it leads into blocking.
func ways() map[string][]path {
	return map[string][]path{
		"Apply": {
			edited(func(*rules.Document) {}),
			edited(func(d *rules.Document) { d.Limit = 0 }),
			edited(func(d *rules.Document) { d.Limit = 3 }),
			edited(func(d *rules.Document) { d.Limit = 50 }),
			edited(func(d *rules.Document) { d.Match = rules.Match{} }),
			edited(func(d *rules.Document) { d.Match.Path = "/v1/guest-tokens/narrow" }),
			edited(func(d *rules.Document) { d.Block.TTL = 24 * time.Hour }),
			edited(func(d *rules.Document) { d.Block.TTL = time.Minute }),
			edited(func(d *rules.Document) { d.Block.Extend = rules.ExtendNever }),
			edited(func(d *rules.Document) { d.Block = nil }),
			edited(func(d *rules.Document) { d.Key, d.Block.Key = d.Key[:1], d.Key[:1] }),
			edited(func(d *rules.Document) { d.Window = time.Hour }),
			edited(func(d *rules.Document) { d.Candidate = &rules.Candidate{Limit: 1} }),
			edited(func(d *rules.Document) { d.MaxLag = time.Hour }),
			apply(rulestore.ApplyOptions{Prune: true}),
			apply(rulestore.ApplyOptions{Prune: true}, func(d *rules.Document) { d.Limit = 1 }),
			apply(rulestore.ApplyOptions{DryRun: true}, func(d *rules.Document) { d.Limit = 1 }),
			back(1), back(2), back(3),
			edited(lets("office")),
			apply(rulestore.ApplyOptions{Prune: true}, lets("office")),
			letting(false, "192.0.2.0/25"),
			letting(true),
			letting(false, "192.0.2.0/23", "203.0.113.0/24"),
		},
		"ChangeAllowList": {
			listed(dropEntry("192.0.2.0/24")),
			listed(func(l *rules.AllowList, _ traffic.Time) error { l.Entries = nil; return nil }),
			listed(func(l *rules.AllowList, _ traffic.Time) error {
				_ = dropEntry("192.0.2.0/24")(l, 0)
				return addEntry(rules.AllowEntry{Kind: rules.AllowCIDR, Value: "192.0.2.0/25", Reason: "half"})(l, 0)
			}),
			listed(addEntry(rules.AllowEntry{Kind: rules.AllowCIDR, Value: "192.0.2.0/24", Reason: "ends", Until: traffic.At(time.Now())})),
			listed(addEntry(rules.AllowEntry{Kind: rules.AllowCIDR, Value: "203.0.113.0/24", Reason: "more"})),
			listed(dropEntry("203.0.113.0/24")),
		},
		"ResetCounter": {
			counterReset("ip=192.0.2.1%2F32&device=tv-7"), counterReset("ip=192.0.2.1%2F32"), counterReset("nonsense"),
		},
		// Without evidence, and without a reason to pass over that, nothing is promoted.
		"SetMode":        {mode(rules.ModeShadow), mode(rules.ModeOff), mode(rules.ModeCanary), mode(rules.ModeBlock)},
		"NextStep":       {canary((*rulestore.Store).NextStep)}, // its step has not lasted
		"FallBack":       {canary((*rulestore.Store).FallBack)},
		"RaiseLimit":     {raised(100, time.Hour), raised(1, time.Hour), raised(100, -time.Hour), raised(60, time.Second), raised(0, 0)},
		"PublishRouting": {smuggled},
		"Overtake": {overtaken(rules.ModeBlock, ""), overtaken(rules.ModeShadow, ""),
			overtaken(rules.ModeBlock, "flood")},
		"AllowLists": nil, "AllowList": nil, "Canaries": nil, "Dossiers": nil, "Find": nil, "Labels": nil,
		"List": nil, "Modes": nil, "Names": nil, "Newest": nil, "Routing": nil, "RuleVersion": nil, "Sources": nil,
		"TellsRefusals": nil, "WatchModes": nil, "WatchRoutings": nil,
	}
}

func TestEveryMethodOfTheStoreIsAPath(t *testing.T) {
	known := ways()
	store := reflect.TypeFor[*rulestore.Store]()
	for i := range store.NumMethod() {
		name := store.Method(i).Name
		if _, ok := known[name]; !ok {
			t.Errorf("rulestore.Store.%s: enter it in ways, with all that it can do to a rule", name)
		}
		delete(known, name)
	}
	for name := range known {
		t.Errorf("rulestore.Store has no method %s", name)
	}
}

// holds is what a rule blocks by: nothing, where it does not.
type holds struct {
	blocks   bool
	share    int // of its block keys; 10,000 is all
	document rules.Document
	lists    []rules.AllowList // that the document names
}

// passes reports whether an address is let pass an hour from now.
func (h holds) passes(address string) bool {
	for _, l := range h.lists {
		for _, e := range l.Entries {
			if netip.MustParsePrefix(e.Value).Contains(netip.MustParseAddr(address)) && (e.Until == 0 || e.Until.Std().After(time.Now().Add(time.Hour))) {
				return true
			}
		}
	}
	return false
}

// held is what is published of the rule: to those who count, and to gates.
func (b trial) held() holds {
	b.t.Helper()
	ctx := b.t.Context()
	modes, err := b.Rules.Modes(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	i := slices.IndexFunc(modes, func(m rules.ModeState) bool { return m.Rule == "flood" && m.Mode.Blocks() })
	if i < 0 {
		return holds{}
	}
	n, err := b.Rules.Newest(ctx, streams.Live)
	if err != nil {
		b.t.Fatal(err)
	}
	routing, err := b.Rules.Routing(ctx, streams.Live, n)
	if err != nil {
		b.t.Fatal(err)
	}
	live := routing.Find("flood")
	if live == nil || live.Pending || live.Number != modes[i].Newest || !reflect.DeepEqual(rules.Held(live.Reach()), modes[i].Match) {
		b.t.Fatalf("%+v is what counts, gates know of %+v", live, modes[i])
	}
	if stored, found, err := b.Rules.RuleVersion(ctx, "flood", live.Number); err != nil || !found || stored.Pending || !stored.Equal(&live.Document) {
		b.t.Fatalf("what counts is version %d, which is stored as %+v, %v", live.Number, stored, err)
	}
	now := holds{blocks: true, share: 10_000, document: live.Document}
	if modes[i].Mode == rules.ModeCanary {
		now.share = modes[i].Share
	}
	for _, l := range routing.Allow {
		if slices.Contains(live.Allow, l.ID) {
			now.lists = append(now.lists, l)
		}
	}
	if len(now.lists) != len(live.Allow) {
		b.t.Fatalf("what counts names %v, and has %v", live.Allow, now.lists)
	}
	return now
}

// noMore fails where now may block what was did not. The lists of was are those of its promotion: what came to them since may go.
func (h holds) noMore(now holds) error {
	switch {
	case !now.blocks:
		return nil
	case !h.blocks:
		return fmt.Errorf("it blocks, and did not: nobody promoted it")
	case now.share > h.share:
		return fmt.Errorf("it blocks %d of 10,000 of its keys, and blocked %d: no step was due", now.share, h.share)
	}
	if reasons := rules.MayBlockMore(&h.document, &now.document); len(reasons) > 0 {
		return fmt.Errorf("it may block more without a promotion: %v", reasons)
	}
	for _, address := range []string{"192.0.2.7", "192.0.2.200", "192.0.3.7", "198.51.100.7", "203.0.113.7"} {
		if now.document.Block != nil && h.passes(address) && !now.passes(address) {
			return fmt.Errorf("it may block %s without a promotion, which it let pass", address)
		}
	}
	return nil
}

// TestOnlyAPromotionLeadsIntoBlocking goes every path from rules that block, that have a pending version or a raised limit beside, that are
// in shadow and that were removed; from those with something beside, every two paths one after the other.
func TestOnlyAPromotionLeadsIntoBlocking(t *testing.T) {
	t.Parallel()
	starts := map[string]path{
		"blocks":  func(trial) {},
		"pending": edited(func(d *rules.Document) { d.Limit = 2 }),
		"raised":  raised(20, time.Hour),
		"shadow":  mode(rules.ModeShadow),
		"demoted beside a pending one": func(b trial) {
			edited(func(d *rules.Document) { d.Limit = 2 })(b)
			mode(rules.ModeShadow)(b)
		},
		"lets pass": promotedWith("192.0.2.0/24"),
		"lets pass, and does not once it is promoted": func(b trial) {
			promotedWith("192.0.2.0/24")(b)
			edited(func(d *rules.Document) { d.Limit = 2 })(b)
		},
		"lets pass, and others once it is promoted": func(b trial) {
			promotedWith("192.0.2.0/24")(b)
			partners := office("198.51.100.0/24")
			partners.ID = "partners"
			apply(rulestore.ApplyOptions{AllowLists: []rules.AllowList{partners}}, func(d *rules.Document) { d.Limit, d.Allow = 2, []string{"partners"} })(b)
		},
		"canary": inCanary,
		"canary, with a pending one": func(b trial) {
			inCanary(b)
			edited(func(d *rules.Document) { d.Limit = 2 })(b)
		},
		"removed": func(b trial) {
			mode(rules.ModeShadow)(b)
			apply(rulestore.ApplyOptions{Prune: true})(b)
		},
	}
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTrial(t)
			start(b)
			reset := b.snapshot("start")
			was := b.held()
			tried := map[int64]bool{}
			for method, paths := range ways() {
				for i, p := range paths {
					p(b)
					now := b.state()
					if tried[now] { // most often the start: it was refused, or changes nothing
						reset()
						continue
					}
					tried[now] = true
					again := b.snapshot("first") // whatever comes after the first comes after the same one
					for next, after := range seconds(name) {
						for j, q := range after {
							q(b)
							if err := was.noMore(b.held()); err != nil {
								t.Errorf("%s %d, then %s %d: %v", method, i, next, j, err)
							}
							again()
						}
					}
					reset()
				}
			}
		})
	}
}

// seconds are the paths to go after another one, from a start.
func seconds(start string) map[string][]path {
	switch start {
	case "pending", "raised":
		return ways()
	case "lets pass": // and after a change of the list anything
		return map[string][]path{"nothing": {func(trial) {}}, "ChangeAllowList": ways()["ChangeAllowList"]}
	}
	return map[string][]path{"nothing": {func(trial) {}}}
}

// promotedWith promotes the rule anew, with the list office beside it.
func promotedWith(cidrs ...string) path {
	return func(b trial) {
		letting(false, cidrs...)(b)
		mode(rules.ModeShadow)(b)
		if _, err := b.promote(rulestore.ModeChange{}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// inCanary puts the rule into canary.
func inCanary(b trial) {
	mode(rules.ModeShadow)(b)
	if set, err := b.promote(rulestore.ModeChange{Mode: rules.ModeCanary}); err != nil || set.Share != 100 {
		b.t.Fatalf("%+v, %v", set, err)
	}
}

// tables are what the paths change, the audit log aside.
func tables() []string {
	return []string{"rule_versions", "rule_modes", "pending_versions", "raised_limits", "routing_versions", "allow_versions"}
}

// state is a hash of all that the rules are.
func (b trial) state() int64 {
	b.t.Helper()
	rows := make([]string, 0, len(tables()))
	for _, table := range tables() {
		rows = append(rows, "SELECT '"+table+"' || t::text AS text FROM weir."+table+" t")
	}
	return b.Number(b.t, "SELECT hashtextextended(string_agg(text, '' ORDER BY text), 0) FROM ("+strings.Join(rows, " UNION ALL ")+") AS rows")
}

// snapshot keeps the rules as they are now under a name, and gives what puts them back.
func (b trial) snapshot(name string) (restore func()) {
	b.t.Helper()
	keep, back := "", ""
	for _, table := range []string{"rule_versions", "pending_versions", "allow_versions"} {
		keep += "ALTER TABLE weir." + table + " DISABLE TRIGGER " + table + "_stay;"
	}
	for _, table := range tables() {
		kept := "kept_" + name + "_" + table
		keep += "DROP TABLE IF EXISTS " + kept + "; CREATE TABLE " + kept + " AS TABLE weir." + table + ";"
		back += "DELETE FROM weir." + table + "; INSERT INTO weir." + table + " TABLE " + kept + ";"
	}
	b.Run(b.t, keep)
	return func() {
		b.t.Helper()
		b.Run(b.t, back)
	}
}

// TestPathsInAnyOrder walks the paths at random, promotions among them: whatever blocks more has been promoted since.
func TestPathsInAnyOrder(t *testing.T) {
	t.Parallel()
	b := newTrial(t)
	start := b.snapshot("start")
	var all []path
	for _, name := range []string{"Apply", "ChangeAllowList", "FallBack", "NextStep", "PublishRouting", "RaiseLimit", "ResetCounter", "SetMode"} {
		all = append(all, ways()[name]...)
	}
	rapid.Check(t, func(rt *rapid.T) {
		start()
		was := b.held()
		for range 12 {
			if rapid.IntRange(0, 4).Draw(rt, "promote") == 0 {
				change := rapid.SampledFrom([]rulestore.ModeChange{{}, {Pending: true}, {Version: 1}, {Version: 2}, {Mode: rules.ModeCanary}, {Mode: rules.ModeCanary, Pending: true}}).Draw(rt, "which")
				if set, err := b.promote(change); err == nil && set.Changed {
					was = b.held()
				}
				continue
			}
			all[rapid.IntRange(0, len(all)-1).Draw(rt, "path")](b)
			now := b.held()
			if err := was.noMore(now); err != nil {
				rt.Fatal(err)
			}
			if now.blocks {
				now.lists = was.lists // those of the promotion
			}
			was = now
		}
	})
}
