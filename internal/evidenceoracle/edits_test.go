package evidenceoracle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/evidenceoracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
)

// after says what becomes of a rule's evidence when it is edited.
type after int

const (
	keeps  after = iota // all of it: the same is counted
	anew                // what is counted is another thing, in the windows that there are
	colder              // in windows that begin empty
)

// edited is an edit of one member of a document, and what the oracle's rule is after it.
type edited struct {
	member string
	then   after
	edit   func(d *rules.Document)
	oracle func(r *evidenceoracle.Rule)
}

func edits() []edited {
	none := func(*evidenceoracle.Rule) {}
	return []edited{
		{"owner", keeps, func(d *rules.Document) { d.Owner = "others" }, none},
		{"near", keeps, func(d *rules.Document) { d.Near = 50 }, none},
		{"candidate", keeps, func(d *rules.Document) { d.Candidate = &rules.Candidate{Limit: d.Limit + 3} }, none},
		{"cooldown", keeps, func(d *rules.Document) { d.Cooldown += time.Second }, none},
		{"max_lag", keeps, func(d *rules.Document) { d.MaxLag += time.Second }, none},
		{"promote", keeps, func(d *rules.Document) { d.Promote = &promotion.Gates{MinShadow: promotion.Span(time.Hour)} }, none},
		{"canary", keeps, func(d *rules.Document) {
			d.Canary = &promotion.Canary{Steps: []promotion.Share{promotion.All / 2}, Hold: promotion.Span(time.Hour)}
		}, none},
		{"block.ttl", keeps, func(d *rules.Document) { d.Block.TTL += time.Second }, none},
		{"block.extend", keeps, func(d *rules.Document) {
			d.Block.Extend = map[rules.Extend]rules.Extend{rules.ExtendNever: rules.ExtendOnHit,
				rules.ExtendOnHit: rules.ExtendNever}[d.Block.Extend]
		}, none},
		{"limit, lower", anew, func(d *rules.Document) { d.Limit = max(0, d.Limit-2) },
			func(r *evidenceoracle.Rule) { r.Limit = max(0, r.Limit-2) }},
		{"limit, higher", anew, func(d *rules.Document) { d.Limit += 2 },
			func(r *evidenceoracle.Rule) { r.Limit += 2 }},
		// All requests of the logs are.
		{"match", anew, func(d *rules.Document) { d.Match.Methods = []string{"GET"} }, none},
		{"window", colder, func(d *rules.Document) { d.Window += 7 * time.Second },
			func(r *evidenceoracle.Rule) { r.Window += 7 * second }},
		{"algorithm", colder, func(d *rules.Document) { d.Algorithm = rules.AlgorithmSlidingLog }, none},
		{"on_missing", colder, func(d *rules.Document) { d.Missing = rules.MissingGroup }, none},
		{"key", colder, func(d *rules.Document) { slices.Reverse(d.Key) }, none},
	}
}

// Whatever of a rule is edited while sources are over its limit, its dossier has afterwards whom the oracle finds over
// it: of the whole log where the same is counted, else from the edit on.
func TestEvidenceFollowsWhatIsCounted(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	rapid.Check(t, func(rt *rapid.T) {
		sc := drawScene(rt, 150, in.begin())
		change := rapid.SampledFrom(edits()).Draw(rt, "edit")
		if change.member == "key" && len(sc.rule.Key) < 2 || change.member == "limit, lower" && sc.rule.Limit == 0 ||
			change.member == "near" && sc.rule.Limit < 3 {
			rt.Skip("it changes nothing, or there can be no such rule")
		}
		at := rapid.IntRange(0, len(sc.log)).Draw(rt, "edited before")
		when := traffic.At(sc.begin)
		if at > 0 {
			when = traffic.Time(sc.log[at-1].At) + 1
		}
		// What an event says belongs to the version under which it was routed: those of one moment have one.
		for at < len(sc.log) && traffic.Time(sc.log[at].At) < when {
			at++
		}
		before, next := sc.document(rt), sc.document(rt)
		change.edit(&next)
		versions := in.edit(rt, before, next, when)
		record(rt, in.daily(rt, sc), sc.foldEdited(rt, versions, at, int64(in.logs)))
		sc.route(rt, in.bed)
		sc.decide(t, in.bed, nil)

		r := sc.rule
		change.oracle(&r)
		truth := r.Judge(sc.log, nil, 0, 1<<62)
		if change.then == colder {
			truth = r.Judge(sc.log[at:], nil, 0, 1<<62)
		}
		var want []string
		for _, s := range truth.Sources {
			if change.then == keeps || s.Last >= int64(when) {
				want = append(want, sourceName(s, &r))
			}
		}
		from, to := sc.span()
		d := in.gather(rt, from, to.Add(time.Minute))
		var got []string
		for i := range d.Top {
			got = append(got, string(d.Top[i].Subject))
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			rt.Fatalf("%s edited at %s: over the limit are\n%s, want\n%s", change.member, when, strings.Join(got, " "),
				strings.Join(want, " "))
		}
		if n, known := d.Held.Over.Known(); known && int(n) != len(want) {
			rt.Fatalf("%s edited: %+v over, want %d", change.member, d.Held.Over, len(want))
		}
		sc.compareObserved(rt, d, change.then, when)
	})
}

// sourceName is how a dossier names a source of the oracle.
func sourceName(s *evidenceoracle.Source, r *evidenceoracle.Rule) string {
	if s.Name != "" {
		return subjectOf(s.Fields)
	}
	return fmt.Sprint("lacks a field of ", r.Block)
}

// compareObserved asks for the time that min_shadow is about: an edit that keeps the evidence keeps it, another one
// begins anew.
func (sc *scene) compareObserved(t rapid.TB, d *evidence.Dossier, then after, when traffic.Time) {
	missing := map[evidence.GapReason]int64{}
	for _, m := range d.Observed.Missing {
		missing[m.Reason] = m.Minutes
	}
	if then == keeps && missing[evidence.GapBefore]+missing[evidence.GapOther] > 0 {
		t.Fatalf("%+v: nothing was counted otherwise", d.Observed)
	}
	if then != keeps && missing[evidence.GapBefore] != int64(when.Sub(d.Since)/time.Minute) {
		t.Fatalf("%+v: it counts so since %s", d.Observed, when)
	}
}

// edit applies a document and another one in its place from a time on.
func (in *installation) edit(t rapid.TB, before, next rules.Document, when traffic.Time) []rules.Version {
	var out []rules.Version
	for i, d := range []rules.Document{before, next} {
		if _, err := in.bed.Rules.Apply(in.t.Context(), historytest.Documents(d), "ann", "",
			rulestore.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
		rule, err := in.bed.Rules.Find(in.t.Context(), "flood")
		if err != nil {
			t.Fatal(err)
		}
		since := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
		if i == 1 {
			since = when.Std()
		}
		in.bed.Run(in.t, "ALTER TABLE weir.rule_versions DISABLE TRIGGER rule_versions_stay")
		in.bed.Run(in.t, "UPDATE weir.rule_versions SET created_at = $1 WHERE version = $2", since,
			rule.Newest.Version.Number)
		out = append(out, rule.Newest.Version)
	}
	// What other logs have left acted before, and counted nothing of this one.
	in.bed.Run(in.t, "ALTER TABLE weir.rule_versions DISABLE TRIGGER rule_versions_stay")
	in.bed.Run(in.t, "UPDATE weir.rule_versions SET created_at = '2024-12-01', lineage = 0 WHERE version < $1",
		out[0].Number)
	return out
}

// foldEdited is fold with another version from one request on.
func (sc *scene) foldEdited(t rapid.TB, versions []rules.Version, at int, generation int64) []detectors.Hit {
	first := scene{rule: sc.rule, idle: sc.idle, ticks: true, log: sc.log, second: &versions[1], from: at}
	return first.fold(t, &versions[0], generation)
}
