package rulestore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
)

// promotable is a bed whose rules may be promoted.
type promotable struct{ *historytest.Bed }

// dossier is one of rule flood that passes the default gates.
func (b promotable) dossier(t *testing.T, version int) *rulestore.Dossier {
	t.Helper()
	now := time.Now()
	return &rulestore.Dossier{
		Rule: "flood", Version: version, Since: now.Add(-48 * time.Hour), Until: now, Made: now, By: "ann",
		Document: json.RawMessage(fmt.Sprintf(`{"rule":"flood","version":%d,"made":%q}`, version, now.Format(time.RFC3339Nano))),
		Evidence: promotion.Evidence{
			Observed: promotion.Span(48 * time.Hour), Coverage: &promotion.Part{Some: 10, All: 10}, Good: &promotion.Part{All: 10},
			Traffic: &promotion.Part{Some: 1, All: 1000},
		},
	}
}

// newPromotable has the rule flood, with more in its document.
func newPromotable(t *testing.T, more func(d *rules.Document)) promotable {
	t.Helper()
	b := promotable{historytest.New(t)}
	b.PublishRecordFormat(t, rules.PromotionRecordFormat)
	d := historytest.Document("flood")
	more(&d)
	b.Apply(t, d)
	return b
}

func (b promotable) change(t *testing.T, c rulestore.ModeChange) (rulestore.ModeSet, error) {
	t.Helper()
	c.Rule, c.By, c.Reason = "flood", "ann", "seen enough"
	return b.Rules.SetMode(t.Context(), c)
}

// audited are the newest entries of the rule, oldest first: "action: reason; detail".
func (b promotable) audited(t *testing.T, n int) (all []string) {
	t.Helper()
	entries, err := b.Audit.Of(t.Context(), "rule flood", n)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range slices.Backward(entries) {
		all = append(all, e.Actor+" "+e.Action+": "+e.Reason+"; "+e.Detail)
	}
	return all
}

func TestGatesAreAskedInThePromotion(t *testing.T) {
	t.Parallel()
	b := newPromotable(t, func(*rules.Document) {})
	for _, mode := range []rules.Mode{rules.ModeCanary, rules.ModeBlock} {
		_, err := b.change(t, rulestore.ModeChange{Mode: mode})
		var gates *rulestore.GatesError
		if !errors.As(err, &gates) || len(promotion.Missed(gates.Verdicts)) != 4 || !strings.Contains(err.Error(), "min_coverage: not measurable") {
			t.Errorf("%s without evidence: %v", mode, err)
		}
		good := b.dossier(t, 1)
		good.Evidence.Good.Some = 1
		if _, err = b.change(t, rulestore.ModeChange{Mode: mode, Dossier: good}); !errors.As(err, &gates) ||
			!strings.Contains(err.Error(), "was not promoted: max_known_good: failed, got 10%, allowed at most 0%; promote it") {
			t.Errorf("%s over a known-good source: %v", mode, err)
		}
	}
	for what, change := range map[string]func(d *rulestore.Dossier){
		"of version 2": func(d *rulestore.Dossier) { d.Version = 2 },
		"of rule none": func(d *rulestore.Dossier) { d.Rule = "none" },
		"look again":   func(d *rulestore.Dossier) { d.Made = time.Now().Add(-time.Hour) },
		"no JSON":      func(d *rulestore.Dossier) { d.Document = json.RawMessage("{") },
	} {
		d := b.dossier(t, 1)
		change(d)
		if _, err := b.change(t, rulestore.ModeChange{Mode: rules.ModeBlock, Dossier: d, Override: "all the same"}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.dossiers"); n != 0 {
		t.Errorf("%d dossiers are stored of promotions that were refused", n)
	}
	d := b.dossier(t, 1)
	set, err := b.change(t, rulestore.ModeChange{Mode: rules.ModeBlock, Dossier: d})
	if err != nil || !set.Changed || set.Mode != rules.ModeBlock || set.Dossier != d.Hash() || len(set.Gates) != 4 || len(set.Overridden) > 0 {
		t.Fatalf("%+v, %v", set, err)
	}
	if got := b.audited(t, 1)[0]; got != "ann promote: seen enough; dossier "+d.Hash() {
		t.Errorf("audited: %s", got)
	}
	stored, err := b.Rules.Dossiers(t.Context(), "flood")
	if err != nil || len(stored) != 1 || string(stored[0].Document) != string(d.Document) || stored[0].Hash != d.Hash() || stored[0].Version != 1 || stored[0].By != "ann" {
		t.Errorf("stored %+v, %v", stored, err)
	}
	if _, err := b.Conn.Exec(t.Context(), "UPDATE weir.dossiers SET document = '{}'"); err == nil {
		t.Error("a dossier was changed")
	}
	if again, err := b.change(t, rulestore.ModeChange{Mode: rules.ModeBlock}); err != nil || again.Changed || again.By != "ann" || again.Reason != "seen enough" || !again.Since.Equal(set.Since) {
		t.Errorf("a second promotion: %+v, %v", again, err)
	}
	if _, err := b.change(t, rulestore.ModeChange{Mode: rules.ModeCanary, Override: "less"}); err == nil || !strings.Contains(err.Error(), "it blocks since") {
		t.Errorf("from block to canary: %v", err)
	}
}

func TestTwoOwnersAtOnce(t *testing.T) {
	t.Parallel()
	b := newPromotable(t, func(*rules.Document) {})
	modes, err := b.Rules.Modes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		set rulestore.ModeSet
		err error
	}
	answers := make(chan answer, 2)
	for _, mode := range []rules.Mode{rules.ModeBlock, rules.ModeCanary} {
		go func() {
			set, err := b.Rules.SetMode(t.Context(), rulestore.ModeChange{
				Rule: "flood", Mode: mode, By: string(mode), Reason: "mine", Override: "tests",
				Check: func(r *rulestore.Rule) error {
					if r.Generation != modes[0].Generation {
						return errors.New("overtaken by " + r.ChangedBy)
					}
					return nil
				}})
			answers <- answer{set, err}
		}()
	}
	var won, told int
	for range 2 {
		a := <-answers
		switch {
		case a.err == nil && a.set.Changed:
			won++
		case a.err != nil && (strings.Contains(a.err.Error(), "overtaken by block") || strings.Contains(a.err.Error(), "overtaken by canary")):
			told++
		default:
			t.Errorf("%+v, %v", a.set, a.err)
		}
	}
	if won != 1 || told != 1 {
		t.Errorf("%d won, %d were told", won, told)
	}
}

// due lets the step of the canary have lasted.
func (b promotable) due(t *testing.T) {
	t.Helper()
	b.Run(t, "UPDATE weir.rule_modes SET canary_since = canary_since - canary_hold * interval '1 second'")
}

// at is the canary as it stands.
func (b promotable) at(t *testing.T) rulestore.CanaryStep {
	t.Helper()
	all, _, err := b.Rules.Canaries(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%d canaries, %v", len(all), err)
	}
	return rulestore.CanaryStep{Rule: "flood", Generation: all[0].Generation, Step: all[0].Canary.Step, By: "weir", Reason: "all is well"}
}

// TestACanaryIsAtOneOfItsSteps: rows are refused that weir never writes, and where whoever edits them has the
// constraints go first, they are errors that name the rule to all who read it: nobody looks up a step that there is
// not.
func TestACanaryIsAtOneOfItsSteps(t *testing.T) {
	t.Parallel()
	b := newPromotable(t, func(d *rules.Document) {
		d.Canary = &promotion.Canary{Steps: []promotion.Share{500, 2000}, Hold: promotion.Span(time.Hour)}
	})
	if _, err := b.change(t, rulestore.ModeChange{Mode: rules.ModeCanary, Dossier: b.dossier(t, 1)}); err != nil {
		t.Fatal(err)
	}
	ctx, at := t.Context(), b.at(t)
	edits := []string{"canary_step = 0", "canary_step = -1", "canary_step = 3", "canary_steps = '{}'",
		"canary_hold = -1", "canary_hold = 9223372036854775807"}
	refused := append([]string{"generation = -1", "generation = 9223372036854775807", "changed_at = 'infinity'",
		"canary_since = '-infinity'", "canary_share = 10001"}, edits...)
	for _, edit := range refused {
		if _, err := b.Conn.Exec(ctx, "UPDATE weir.rule_modes SET "+edit); err == nil {
			t.Errorf("%s was stored", edit)
		}
	}
	if _, err := b.Conn.Exec(ctx, "UPDATE weir.rule_numbers SET floor = 9223372036854775807"); err == nil {
		t.Error("a floor was stored that leaves no number to give")
	}
	if _, err := b.Conn.Exec(ctx, "ALTER TABLE weir.rule_modes DROP CONSTRAINT rule_modes_step"); err != nil {
		t.Fatal(err)
	}
	for _, edit := range edits {
		if _, err := b.Conn.Exec(ctx, "UPDATE weir.rule_modes SET canary_step = 1, canary_steps = '{500,2000}', "+
			"canary_hold = 0"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Conn.Exec(ctx, "UPDATE weir.rule_modes SET "+edit); err != nil {
			t.Fatal(err)
		}
		_, listed := b.Rules.List(ctx)
		_, _, asked := b.Rules.Canaries(ctx)
		_, moved := b.Rules.NextStep(ctx, at)
		_, found := b.Rules.Find(ctx, "flood")
		for _, err := range []error{listed, asked, moved, found} {
			if err == nil || !strings.Contains(err.Error(), `rule "flood": its row in rule_modes says`) {
				t.Errorf("%s: %v", edit, err)
			}
		}
	}
}

// Modes are told of whatever numbers are stored: what several rules have together is more than a bigint holds.
func TestManyGreatGenerationsAreWatched(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.PublishRecordFormat(t, rules.PromotionRecordFormat)
	b.Apply(t, historytest.Document("one"), historytest.Document("other"))
	b.Run(t, "UPDATE weir.rule_modes SET generation = 1125899906842624")
	changes := make(chan struct{}, 100)
	go b.Rules.WatchModes(t.Context(), func() { changes <- struct{}{} })
	for range 2 {
		select {
		case <-changes:
		case <-time.After(20 * time.Second):
			t.Fatal("a change was not heard")
		}
		b.Run(t, "UPDATE weir.rule_modes SET generation = generation - 1 WHERE rule = 'one'")
	}
}

func TestCanaryGoesThroughItsSteps(t *testing.T) {
	t.Parallel()
	b := newPromotable(t, func(d *rules.Document) {
		d.Canary = &promotion.Canary{Steps: []promotion.Share{500, 2000}, Hold: promotion.Span(time.Hour)}
	})
	ctx := t.Context()
	changes := make(chan struct{}, 100)
	go b.Rules.WatchModes(ctx, func() { changes <- struct{}{} })
	heard := func() {
		t.Helper()
		select {
		case <-changes:
		case <-time.After(20 * time.Second):
			t.Fatal("a step was not heard")
		}
	}
	heard()
	d := b.dossier(t, 1)
	began, err := b.change(t, rulestore.ModeChange{Mode: rules.ModeCanary, Dossier: d})
	if err != nil || began.Mode != rules.ModeCanary || began.Share != 500 || began.Promoted != 1 || began.Canary == nil || began.Canary.Step != 1 ||
		began.Canary.Predicted != (promotion.Prediction{Traffic: 0.01}) || began.Canary.Since.IsZero() {
		t.Fatalf("%+v, %v", began, err)
	}
	heard()
	// The canary keeps its steps, whatever is applied: the edit blocks nobody more, and acts at once.
	edit := historytest.Document("flood")
	edit.Canary = &promotion.Canary{Steps: []promotion.Share{9000}, Hold: promotion.Span(time.Second)}
	if plan := b.Apply(t, edit); plan.Changes[0].Kind != rulestore.ChangeEdited {
		t.Errorf("%+v", plan.Changes[0])
	}
	for len(changes) > 0 {
		<-changes
	}
	first := b.at(t)
	if set, err := b.Rules.NextStep(ctx, first); err != nil || set.Changed || set.Share != 500 {
		t.Errorf("a step that is not due: %+v, %v", set, err)
	}
	b.due(t)
	wrong := first
	wrong.Generation++
	if set, err := b.Rules.NextStep(ctx, wrong); err != nil || set.Changed {
		t.Errorf("a step of another generation: %+v, %v", set, err)
	}
	moved := make(chan bool, 4)
	for range cap(moved) { // as many controllers
		go func() {
			set, err := b.Rules.NextStep(ctx, first)
			moved <- err == nil && set.Changed && set.Share == 2000 && set.Generation == began.Generation
		}()
	}
	n := 0
	for range cap(moved) {
		if <-moved {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of 4 controllers moved the canary", n)
	}
	heard()
	if set, err := b.Rules.NextStep(ctx, b.at(t)); err != nil || set.Changed {
		t.Errorf("the second step was over at once: %+v, %v", set, err)
	}
	b.due(t)
	set, err := b.Rules.NextStep(ctx, b.at(t))
	if err != nil || !set.Changed || set.Mode != rules.ModeBlock || set.Share != 0 || set.Generation != began.Generation || set.By != "weir" || set.Canary != nil {
		t.Errorf("the end: %+v, %v", set, err)
	}
	want := []string{
		"ann promote: seen enough; to canary, step 1 of 2: 5% of its block keys; dossier " + d.Hash(),
		"ann apply: test; changed, version 2: canary {steps: [5%, 20%], hold: 1h} → {steps: [90%], hold: 1s}",
		"weir canary: all is well; step 2 of 2: 5% → 20% of its block keys",
		fmt.Sprintf("weir promote: all is well; to block, generation %d: the canary has gone through its steps", began.Generation),
	}
	if got := b.audited(t, 4); !slices.Equal(got, want) {
		t.Errorf("audited\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCanaryFallsBack(t *testing.T) {
	t.Parallel()
	b := newPromotable(t, func(*rules.Document) {})
	began, err := b.change(t, rulestore.ModeChange{Mode: rules.ModeCanary, Override: "tests"})
	if err != nil {
		t.Fatal(err)
	}
	at := b.at(t)
	at.Reason = "known-good sources: 1 of 3 blocks, predicted 0%"
	set, err := b.Rules.FallBack(t.Context(), at)
	if err != nil || !set.Changed || set.Mode != rules.ModeShadow || set.Generation <= began.Generation || set.Canary != nil || set.Share != 0 {
		t.Errorf("%+v, %v", set, err)
	}
	if again, err := b.Rules.FallBack(t.Context(), at); err != nil || again.Changed {
		t.Errorf("again: %+v, %v", again, err)
	}
	if got := b.audited(t, 1)[0]; got != "weir fall-back: "+at.Reason+"; from step 1 of 3, 1% of its block keys" {
		t.Errorf("audited: %s", got)
	}
	if began, err = b.change(t, rulestore.ModeChange{Mode: rules.ModeCanary, Override: "tests"}); err != nil || began.Share != 100 {
		t.Errorf("a canary begins anew: %+v, %v", began, err)
	}
}

// A build that knows of no canary takes such a rule for one that does not block. Its edits act at once, whatever they may block.
func TestAnEditByAnOlderBuildEndsTheCanary(t *testing.T) {
	t.Parallel()
	b := newPromotable(t, func(*rules.Document) {})
	began, err := b.change(t, rulestore.ModeChange{Mode: rules.ModeCanary, Override: "tests"})
	if err != nil {
		t.Fatal(err)
	}
	edit := historytest.Document("flood")
	edit.Limit = 1
	if plan := b.Apply(t, edit); plan.Changes[0].Kind != rulestore.ChangePending || plan.Changes[0].Mode != rules.ModeCanary {
		t.Errorf("an edit of this build: %+v", plan.Changes[0])
	}
	b.Run(t, `INSERT INTO weir.rule_versions (rule, version, lineage, document, source, hash, author, reason)
		SELECT rule, 9, lineage, replace(document, '"limit":5', '"limit":1'), source, hash, 'bob', reason FROM weir.rule_versions WHERE version = 1`)
	modes, err := b.Rules.Modes(t.Context())
	if err != nil || modes[0].Mode != rules.ModeShadow || modes[0].Generation != began.Generation+1 || modes[0].Newest != 9 {
		t.Errorf("%+v, %v", modes, err)
	}
}
