package rulestore_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

// trial is a bed with one rule that blocks, of limit 5 and version 1.
type trial struct {
	*historytest.Bed
	t *testing.T
}

func newTrial(t *testing.T) trial {
	t.Helper()
	b := trial{historytest.New(t), t}
	b.Publish(t, rules.Format{Name: "weir"})
	b.limit(5)
	setMode(t, b.Bed, "flood", rules.ModeBlock)
	return b
}

// limit applies the rule with a limit, and gives what became of it.
func (b trial) limit(n int) rulestore.RuleChange {
	b.t.Helper()
	d := historytest.Document("flood")
	d.Limit = n
	plan := b.Apply(b.t, d)
	return plan.Changes[slices.IndexFunc(plan.Changes, func(c rulestore.RuleChange) bool { return c.Rule == "flood" })]
}

func (b trial) promote(c rulestore.ModeChange) (rulestore.ModeSet, error) {
	b.t.Helper()
	c.Rule, c.Mode, c.By, c.Reason = "flood", cmp.Or(c.Mode, rules.ModeBlock), "ann", "seen enough"
	c.Override = cmp.Or(c.Override, "tests")
	return b.Rules.SetMode(b.t.Context(), c)
}

// published is the rule in the newest routing version: number/lineage limit, a p where it is pending, ^limit where it is raised.
func (b trial) published() string {
	b.t.Helper()
	n, err := b.Rules.Newest(b.t.Context(), streams.Live)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := b.Rules.Routing(b.t.Context(), streams.Live, n)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, v := range r.Rules {
		text := fmt.Sprintf("%d/%d %d", v.Number, v.Lineage, v.Limit)
		if v.Pending {
			text += "p"
		}
		if v.Raised != nil {
			text += fmt.Sprintf("^%d", v.Raised.Limit)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func (b trial) mode() rules.ModeState {
	b.t.Helper()
	modes, err := b.Rules.Modes(b.t.Context())
	if err != nil || len(modes) != 1 {
		b.t.Fatalf("modes %+v, %v", modes, err)
	}
	return modes[0]
}

func (b trial) expect(change rulestore.RuleChange, kind rulestore.ChangeKind, published string) {
	b.t.Helper()
	if change.Kind != kind {
		b.t.Errorf("got %+v, want %s", change, kind)
	}
	if got := b.published(); got != published {
		b.t.Errorf("published %q, want %q", got, published)
	}
}

func TestPendingVersions(t *testing.T) {
	t.Parallel()
	b := newTrial(t)
	before := b.mode()
	b.expect(b.limit(3), rulestore.ChangePending, "1/1 5, 2/2 3p")
	b.expect(b.limit(3), rulestore.ChangeUnchanged, "1/1 5, 2/2 3p")
	if got := b.mode(); got.Generation != before.Generation || got.Newest != 1 || got.Promoted != 1 {
		t.Errorf("the mode is %+v now, want %+v: an edit that is pending changes nothing for gates", got, before)
	}
	b.expect(b.limit(2), rulestore.ChangePending, "1/1 5, 3/3 2p") // a newer edit in its place
	b.expect(b.limit(9), rulestore.ChangeEdited, "4/1 9")          // compared with what acts: it acts, and is the newest document
	b.expect(b.limit(6), rulestore.ChangePending, "4/1 9, 5/4 6p")
	b.expect(b.limit(9), rulestore.ChangeWithdrawn, "4/1 9")
	b.expect(b.limit(6), rulestore.ChangePending, "4/1 9, 6/5 6p") // numbers and lineages are not given twice

	r, err := b.Rules.Find(t.Context(), "flood")
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for i := range r.Versions {
		states = append(states, r.StateOf(&r.Versions[i]))
	}
	if got := fmt.Sprint(states); got != "[pending withdrawn block replaced replaced superseded]" {
		t.Errorf("states of versions 6 to 1: %s", got)
	}
	now := r.Pending.Created
	if warm := r.WarmPending(now.Add(59 * time.Second)); !warm.Equal(now.Add(time.Minute)) || !r.WarmPending(now.Add(time.Minute)).IsZero() {
		t.Errorf("warming until %s, want one window from %s", warm, now)
	}
	for n := 1; n <= 7; n++ {
		v, found, err := b.Rules.RuleVersion(t.Context(), "flood", n)
		acted := n == 1 || n == 4
		if err != nil || found != (n < 7) || found && v.Pending == acted {
			t.Errorf("version %d: %+v, %v, %v", n, v, found, err)
		}
	}

	set, err := b.promote(rulestore.ModeChange{Version: 6})
	if err != nil || !set.Changed || set.Version != 6 || set.Replaced != 4 || set.Generation <= before.Generation {
		t.Fatalf("promoted: %+v, %v", set, err)
	}
	if got := b.published(); got != "6/5 6" {
		t.Errorf("published %q: the windows of the pending version are those that go on", got)
	}
	if got := b.mode(); got.Promoted != 6 || got.Newest != 6 {
		t.Errorf("mode %+v", got)
	}
	if v, found, err := b.Rules.RuleVersion(t.Context(), "flood", 6); err != nil || !found || v.Pending {
		t.Errorf("the promoted version: %+v, %v, %v", v, found, err)
	}
	entries, err := b.Audit.Of(t.Context(), "rule flood", 1)
	if err != nil || entries[0].Action != "promote" || !strings.Contains(entries[0].Detail, "version 6, which was pending, in place of version 4: limit 9 → 6") {
		t.Errorf("audit %+v, %v", entries, err)
	}
	if again, err := b.promote(rulestore.ModeChange{}); err != nil || again.Changed {
		t.Errorf("promoted again: %+v, %v", again, err)
	}
}

// What is not enforced goes by which the gates hold: the match of the version that blocks.
func TestModesHaveTheMatchOfWhatActs(t *testing.T) {
	t.Parallel()
	b := newTrial(t)
	d := historytest.Document("flood")
	d.Match = rules.Match{}
	b.Apply(t, d)
	if got := b.mode().Match; got.Path != "/v1/guest-tokens" {
		t.Errorf("gates hold %+v while the wider version is pending", got)
	}
	if _, err := b.promote(rulestore.ModeChange{Version: 2}); err != nil || b.mode().Match.Path != "" {
		t.Errorf("promoted: %+v, %v", b.mode(), err)
	}
}

func TestWhichVersionIsPromoted(t *testing.T) {
	t.Parallel()
	b := newTrial(t)
	fails := func(c rulestore.ModeChange, says string) {
		t.Helper()
		before := b.published()
		if _, err := b.promote(c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", c, err, says)
		}
		if got := b.published(); got != before {
			t.Errorf("a refused promotion published %q", got)
		}
	}
	fails(rulestore.ModeChange{Pending: true}, "no version is pending")
	fails(rulestore.ModeChange{Version: 2}, "got 2, allowed 1")
	b.limit(3)
	// A rule that blocks has nothing to promote but what is pending, which somebody may never have looked at.
	fails(rulestore.ModeChange{}, "blocks by version 1 and has version 2 pending")
	fails(rulestore.ModeChange{}, "weir rules promote flood --version 2, or weir rules promote flood --pending")
	fails(rulestore.ModeChange{Override: "because"}, "weir rules promote flood --version 2")
	fails(rulestore.ModeChange{Version: 7}, "allowed 2, which is pending, and 1")
	fails(rulestore.ModeChange{Version: 1, Pending: true}, "allowed 2")
	b.limit(2)
	fails(rulestore.ModeChange{Version: 2}, "got 2, allowed 3") // what was looked at is not what is pending now
	if set, err := b.promote(rulestore.ModeChange{Version: 1}); err != nil || set.Changed || set.Pending != 3 {
		t.Errorf("what acts already: %+v, %v", set, err)
	}

	// A demotion leaves it pending. To promote then says which.
	setMode(t, b.Bed, "flood", rules.ModeShadow)
	if got := b.published(); got != "1/1 5, 3/3 2p" {
		t.Errorf("demoted: %q", got)
	}
	fails(rulestore.ModeChange{}, "say which")
	if set, err := b.promote(rulestore.ModeChange{Version: 1}); err != nil || set.Version != 1 || set.Promoted != 1 || set.Pending != 3 {
		t.Errorf("%+v, %v", set, err)
	}
	setMode(t, b.Bed, "flood", rules.ModeOff)
	if got := b.published(); got != "" {
		t.Errorf("disabled: %q", got)
	}
	setMode(t, b.Bed, "flood", rules.ModeShadow)
	if set, err := b.promote(rulestore.ModeChange{Pending: true}); err != nil || set.Version != 3 || set.Replaced != 1 || b.published() != "3/3 2" {
		t.Errorf("%+v, %v, %q", set, err, b.published())
	}
	if _, err := b.Rules.SetMode(t.Context(), rulestore.ModeChange{Rule: "flood", Mode: rules.ModeShadow, Version: 3, By: "ann"}); err == nil {
		t.Error("a version was demoted")
	}
}

// While a rule does not block, every document that is applied acts, the pending one included.
func TestAPendingVersionIsAdoptedInShadow(t *testing.T) {
	t.Parallel()
	b := newTrial(t)
	b.limit(3)
	setMode(t, b.Bed, "flood", rules.ModeShadow)
	b.expect(b.limit(3), rulestore.ChangeEdited, "2/2 3")
	b.expect(b.limit(1), rulestore.ChangeEdited, "3/2 1")
	if set, err := b.promote(rulestore.ModeChange{}); err != nil || set.Promoted != 3 {
		t.Errorf("%+v, %v", set, err)
	}
}

func TestAPendingVersionEndsWithItsRule(t *testing.T) {
	t.Parallel()
	b := newTrial(t)
	b.limit(3)
	if _, err := b.Rules.RaiseLimit(t.Context(), rulestore.LimitChange{Rule: "flood", Limit: 9, Until: time.Now().Add(time.Hour), By: "ann"}); err != nil {
		t.Fatal(err)
	}
	setMode(t, b.Bed, "flood", rules.ModeShadow)
	if _, err := b.Rules.Apply(t.Context(), nil, "ann", "gone", rulestore.ApplyOptions{Prune: true}); err != nil {
		t.Fatal(err)
	}
	b.expect(b.limit(5), rulestore.ChangeRestored, "1/1 5")
	if r, err := b.Rules.Find(t.Context(), "flood"); err != nil || r.Pending != nil || r.Raised != nil || r.Mode != rules.ModeShadow {
		t.Errorf("%+v, %v", r, err)
	}
}

// A build that knows of no pending version edits the rule meanwhile: its number may be that of the pending one, which is none any more.
func TestAnOlderBuildEditsBesideAPendingVersion(t *testing.T) {
	t.Parallel()
	b := newTrial(t)
	b.limit(3)
	b.Run(t, `INSERT INTO weir.rule_versions (rule, version, lineage, document, source, hash, author, reason)
		SELECT rule, version + 1, lineage, replace(document, '"limit":5', '"limit":8'), source, hash, author, reason FROM weir.rule_versions`)
	r, err := b.Rules.Find(t.Context(), "flood")
	if err != nil || r.Pending != nil || r.Newest.Version.Number != 2 || r.Newest.Version.Limit != 8 {
		t.Fatalf("%+v, %v", r, err)
	}
	b.expect(b.limit(4), rulestore.ChangePending, "2/1 8, 3/3 4p")
}

func TestPendingVersionsNeedTheRecordFormat(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.PublishRecordFormat(t, rules.LanguageRecordFormat-1)
	b.Apply(t, historytest.Document("flood"))
	setMode(t, b, "flood", rules.ModeBlock)
	d := historytest.Document("flood")
	d.Limit = 3
	_, err := b.Rules.Apply(t.Context(), historytest.Documents(d), "ann", "", rulestore.ApplyOptions{})
	if err == nil || !strings.Contains(err.Error(), "weir migrate --record-format 5") {
		t.Errorf("applied: %v", err)
	}
	_, err = b.Rules.RaiseLimit(t.Context(), rulestore.LimitChange{Rule: "flood", Limit: 9, Until: time.Now().Add(time.Hour), By: "ann"})
	if err == nil || !strings.Contains(err.Error(), "weir migrate --record-format 5") {
		t.Errorf("raised: %v", err)
	}
	if r, err := b.Rules.Find(t.Context(), "flood"); err != nil || r.Pending != nil || r.Raised != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAPlanIsBoundToWhatItWasMadeAgainst: an edit, the end of what is pending and a removal are refused where somebody
// has stored another text of what they take the place of since, which changes nothing that acts and so no other part of
// a plan.
func TestAPlanIsBoundToWhatItWasMadeAgainst(t *testing.T) {
	t.Parallel()
	b := newTrial(t)
	acts := historytest.Document("flood")
	acts.Limit = 5
	edit, waits := acts, acts
	edit.Limit++
	waits.Limit--
	apply := func(d rules.Document, text string, opts rulestore.ApplyOptions) (rulestore.Plan, error) {
		return b.Rules.Apply(t.Context(), []rulestore.Document{{Document: d, Source: text}}, "ann", "", opts)
	}
	n := 0
	comment := func(of rules.Document) {
		t.Helper()
		n++
		if plan, err := apply(of, fmt.Sprintf("id: flood # %d\n", n), rulestore.ApplyOptions{}); err != nil ||
			plan.Differs() {
			t.Fatalf("%+v, %v", plan, err)
		}
	}
	comment(acts)
	overtaken := func(what string, of rules.Document, plan func(opts rulestore.ApplyOptions) (rulestore.Plan, error)) {
		t.Helper()
		shown, err := plan(rulestore.ApplyOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		comment(of)
		if done, err := plan(rulestore.ApplyOptions{Shown: &shown}); !errors.Is(err, rulestore.ErrOvertaken) {
			t.Errorf("%s: %+v, %v", what, done, err)
		}
	}
	overtaken("an edit", acts, func(opts rulestore.ApplyOptions) (rulestore.Plan, error) {
		return apply(edit, "id: flood # mine\n", opts)
	})
	overtaken("an edit without its text", acts, func(opts rulestore.ApplyOptions) (rulestore.Plan,
		error) {
		return apply(edit, "", opts)
	})
	overtaken("a removal", acts, func(opts rulestore.ApplyOptions) (rulestore.Plan, error) {
		opts.Prune = true
		return b.Rules.Apply(t.Context(), nil, "ann", "", opts)
	})
	overtaken("what is to wait", acts, func(opts rulestore.ApplyOptions) (rulestore.Plan, error) {
		return apply(waits, "id: flood # mine\n", opts)
	})
	if plan, err := apply(waits, "id: flood # waits\n", rulestore.ApplyOptions{}); err != nil ||
		kinds(plan) != "flood pending" {
		t.Fatalf("%+v, %v", plan, err)
	}
	withdraw := func(opts rulestore.ApplyOptions) (rulestore.Plan, error) {
		return apply(acts, fmt.Sprintf("id: flood # %d\n", n), opts)
	}
	shown, err := withdraw(rulestore.ApplyOptions{DryRun: true})
	if err != nil || kinds(shown) != "flood withdrawn" {
		t.Fatalf("%+v, %v", shown, err)
	}
	if _, err := apply(waits, "id: flood # waits, as agreed\n", rulestore.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := withdraw(rulestore.ApplyOptions{Shown: &shown}); !errors.Is(err, rulestore.ErrOvertaken) {
		t.Errorf("the end of what waits: %v", err)
	}
	overtaken("an edit beside what waits", waits, func(opts rulestore.ApplyOptions) (rulestore.Plan, error) {
		return apply(edit, "id: flood # mine\n", opts)
	})
	if shown, err = apply(edit, "id: flood # mine\n", rulestore.ApplyOptions{DryRun: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := apply(edit, "id: flood # mine\n", rulestore.ApplyOptions{Shown: &shown}); err != nil {
		t.Errorf("a plan that holds: %v", err)
	}
}

// A plan that somebody agreed to is carried out as it was shown, or not at all.
func TestAPlanThatWasOvertaken(t *testing.T) {
	t.Parallel()
	b := newTrial(t)
	d := historytest.Document("flood")
	d.Limit = 9
	plan, err := b.Rules.Apply(t.Context(), historytest.Documents(d), "ann", "", rulestore.ApplyOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	b.limit(12)
	if _, err := b.Rules.Apply(t.Context(), historytest.Documents(d), "ann", "", rulestore.ApplyOptions{Shown: &plan}); err == nil || !strings.Contains(err.Error(), "have changed since") {
		t.Errorf("got %v", err)
	}
	if got := b.published(); got != "2/1 12" {
		t.Errorf("published %q", got)
	}
	if plan, err = b.Rules.Apply(t.Context(), historytest.Documents(d), "ann", "", rulestore.ApplyOptions{DryRun: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Rules.Apply(t.Context(), historytest.Documents(d), "ann", "", rulestore.ApplyOptions{Shown: &plan}); err != nil {
		t.Error(err)
	}
}

// A raise for a while lasts from the database's now on: who waits for another change loses nothing of it.
func TestARaiseLastsFromTheDatabasesNowOn(t *testing.T) {
	t.Parallel()
	b := newTrial(t)
	tx, err := b.Conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(),
		"LOCK TABLE weir.rule_versions, weir.streams IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		set rulestore.LimitSet
		err error
	}
	done := make(chan answer, 1)
	go func() {
		set, err := b.Rules.RaiseLimit(t.Context(), rulestore.LimitChange{Rule: "flood", Limit: 9, For: time.Hour,
			By: "ann"})
		done <- answer{set, err}
	}()
	testbed.Eventually(t, 10*time.Second, func() error {
		var waiting int
		err := tx.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE "+
				"datname = current_database())").Scan(&waiting)
		if err == nil && waiting == 0 {
			err = errors.New("nobody waits")
		}
		return err
	})
	var free time.Time
	if err := tx.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&free); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.err != nil || got.set.Raised == nil || got.set.Raised.Until.Before(free.Add(time.Hour)) {
		t.Errorf("%+v, %v; want an hour from %s on, when it had waited", got.set.Raised, got.err, free)
	}
	for name, length := range map[string]time.Duration{"backward": -time.Hour, "too far": 32 * 24 * time.Hour} {
		if _, err := b.Rules.RaiseLimit(t.Context(), rulestore.LimitChange{Rule: "flood", Limit: 9, For: length,
			By: "ann"}); err == nil {
			t.Errorf("%s: a raise for %s was taken", name, length)
		}
	}
}

func TestRaisedLimits(t *testing.T) {
	t.Parallel()
	b := newTrial(t)
	now := time.Now()
	raise := func(limit int, until time.Time) (rulestore.LimitSet, error) {
		return b.Rules.RaiseLimit(t.Context(), rulestore.LimitChange{Rule: "flood", Limit: limit, Until: until, By: "ann", Reason: "the sale"})
	}
	for name, c := range map[string]struct {
		limit int
		until time.Time
		says  string
	}{
		"lower":   {4, now.Add(time.Hour), "got 4, allowed 6 to"},
		"equal":   {5, now.Add(time.Hour), "got 5, allowed 6 to"},
		"too far": {9, now.Add(32 * 24 * time.Hour), "31 days at most"},
		"past":    {9, now.Add(-time.Minute), "allowed a time ahead of now"},
		"beyond":  {rules.MaxLimit + 1, now.Add(time.Hour), "to 1000000"},
	} {
		if _, err := raise(c.limit, c.until); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	if got := b.published(); got != "1/1 5" {
		t.Fatalf("published %q after refusals", got)
	}
	generation := b.mode().Generation
	set, err := raise(9, now.Add(time.Hour))
	if err != nil || !set.Changed || set.Limit != 5 || set.Raised.Limit != 9 || b.published() != "1/1 5^9" {
		t.Fatalf("%+v, %v, %q", set, err, b.published())
	}
	if set, err = raise(9, set.Raised.Until); err != nil || set.Changed {
		t.Errorf("the same again: %+v, %v", set, err)
	}
	if _, err = raise(7, now.Add(2*time.Hour)); err != nil || b.published() != "1/1 5^7" {
		t.Errorf("replaced: %v, %q", err, b.published())
	}
	if got := b.mode().Generation; got != generation {
		t.Errorf("generation %d, want %d: no promotion was about it", got, generation)
	}
	b.limit(3)
	if got := b.published(); got != "1/1 5^7, 2/2 3p" {
		t.Errorf("beside a pending version: %q", got)
	}
	b.limit(8)
	if got := b.published(); got != "3/1 8" {
		t.Errorf("below the document's limit: %q", got)
	}
	b.limit(3)
	if _, err := b.promote(rulestore.ModeChange{Pending: true}); err != nil || b.published() != "4/3 3^7" {
		t.Errorf("promoted: %v, %q", err, b.published())
	}
	if set, err = raise(0, time.Time{}); err != nil || !set.Changed || b.published() != "4/3 3" {
		t.Errorf("cleared: %+v, %v, %q", set, err, b.published())
	}
	if set, err = raise(0, time.Time{}); err != nil || set.Changed {
		t.Errorf("cleared again: %+v, %v", set, err)
	}
	entries, err := b.Audit.Of(t.Context(), "rule flood", 1)
	if err != nil || entries[0].Action != "set-limit" || entries[0].Actor != "ann" || entries[0].Reason != "the sale" || !strings.Contains(entries[0].Detail, "limit 3 again") {
		t.Errorf("audit %+v, %v", entries, err)
	}

	// It ends by itself, and stays in routing versions for events that come late.
	at := b.endedRaise(20, time.Hour)
	if r, err := b.Rules.Find(t.Context(), "flood"); err != nil || r.Raised.In(time.Now()) || !r.Raised.Until.Equal(at) || b.published() != "5/3 4^20" {
		t.Errorf("ended: %+v, %v, %q", r.Raised, err, b.published())
	}
	b.endedRaise(20, 32*24*time.Hour)
	if got := b.published(); got != "6/3 5" {
		t.Errorf("ended a month ago: %q", got)
	}
}

// endedRaise leaves a raise that ended so long ago, and publishes anew.
func (b trial) endedRaise(limit int, ago time.Duration) time.Time {
	b.t.Helper()
	at := time.Now().UTC().Add(-ago).Truncate(time.Microsecond)
	b.Run(b.t, `INSERT INTO weir.raised_limits (rule, rule_limit, until, set_by, reason) VALUES ('flood', $1, $2, 'ann', '')
		ON CONFLICT (rule) DO UPDATE SET until = excluded.until`, limit, at)
	r, err := b.Rules.Find(b.t.Context(), "flood")
	if err != nil {
		b.t.Fatal(err)
	}
	b.limit(r.Newest.Version.Limit + 1)
	return at
}

// Where a higher limit may lead to more blocks, it is not raised while the rule blocks; nor does an edit come to act under which a raise
// that holds would.
func TestARaiseThatMayBlockMore(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(d *rules.Document){
		"extend never": func(d *rules.Document) {
			d.Block = &rules.Block{Key: d.Block.Key, TTL: d.Block.TTL, Extend: rules.ExtendNever}
		},
		"bucket": func(d *rules.Document) { d.Algorithm = rules.AlgorithmTokenBucket },
	} {
		t.Run(name, func(t *testing.T) {
			b := trial{historytest.New(t), t}
			b.Publish(t, rules.Format{Name: "weir"})
			d := historytest.Document("flood")
			edit(&d)
			b.Apply(t, d)
			up := rulestore.LimitChange{Rule: "flood", Limit: 9, Until: time.Now().Add(time.Hour), By: "ann"}
			setMode(t, b.Bed, "flood", rules.ModeBlock)
			if _, err := b.Rules.RaiseLimit(t.Context(), up); err == nil || !strings.Contains(err.Error(), "it may block more") {
				t.Errorf("got %v", err)
			}
			setMode(t, b.Bed, "flood", rules.ModeShadow)
			if _, err := b.Rules.RaiseLimit(t.Context(), up); err != nil {
				t.Errorf("in shadow: %v", err)
			}
		})
	}
	b := newTrial(t)
	if _, err := b.Rules.RaiseLimit(t.Context(), rulestore.LimitChange{Rule: "flood", Limit: 9, Until: time.Now().Add(time.Hour), By: "ann"}); err != nil {
		t.Fatal(err)
	}
	d := historytest.Document("flood")
	d.Block = &rules.Block{Key: d.Block.Key, TTL: d.Block.TTL, Extend: rules.ExtendNever}
	plan := b.Apply(t, d)
	if c := plan.Changes[0]; c.Kind != rulestore.ChangePending || !strings.Contains(fmt.Sprint(c.Pending), "while the limit is raised") {
		t.Errorf("an edit under which the raise may block more: %+v", c)
	}
	if _, err := b.Rules.RaiseLimit(t.Context(), rulestore.LimitChange{Rule: "flood", By: "ann"}); err != nil {
		t.Fatal(err)
	}
	d.Owner = "video"
	if c := b.Apply(t, d).Changes[0]; c.Kind != rulestore.ChangeEdited {
		t.Errorf("the same without the raise: %+v", c)
	}
}
