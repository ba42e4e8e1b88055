package rules

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
)

const plainRule = "id: a\nowner: o\nmatch: {path: /a}\nkey: [ip]\nlimit: 10\nwindow: 1m\n"

func parseBeside(t *testing.T, more string) (Document, error) {
	t.Helper()
	docs, err := parse("rule.yaml", []byte(plainRule+more), Environment{Identity: traffic.DefaultIdentityMap()})
	if err != nil {
		return Document{}, err
	}
	return docs[0], nil
}

// near is a share in the two ways of writing one, kept in percent and written back as it reads; candidate is another limit.
func TestNearAndCandidate(t *testing.T) {
	for text, percent := range map[string]int{"0.8": 80, ".8": 80, "0.80": 80, "0.99": 99, "0.11": 11, "80%": 80, "\"15%\"": 15} {
		d, err := parseBeside(t, "near: "+text+"\ncandidate: {limit: 3}\n")
		if err != nil || d.Near != percent || d.Candidate == nil || d.Candidate.Limit != 3 {
			t.Errorf("near %s: %d, %v, %v", text, d.Near, d.Candidate, err)
			continue
		}
		back, err := parse("back.yaml", []byte(d.YAML()), Environment{Identity: traffic.DefaultIdentityMap()})
		if err != nil || !back[0].Equal(&d) {
			t.Errorf("near %s is written as\n%s%v", text, d.YAML(), err)
		}
	}
	for more, want := range map[string]string{
		"near: 8":                            "near: got the number 8, allowed a share of the limit from 0.01 to 0.99, such as 0.8; a share of the limit, not a count",
		"near: 1.0":                          "near: got the number 1.0, allowed",
		"near: 0.0":                          "near: got the number 0.0, allowed",
		"near: .nan":                         "near: got the number .nan, allowed",
		"near: 1e-1":                         "near: got the number 1e-1, allowed",
		"near: 0.805":                        "near: got the number 0.805, allowed",
		"near: \"0.8\"":                      "leave the quotes out",
		"near: 100%":                         "near: got \"100%\", allowed",
		"near: 080%":                         "near: got \"080%\", allowed",
		"near: [0.8]":                        "near: got a list, allowed",
		"near: 0.1":                          "near: got 0.1 of limit 10, allowed a share of the limit above 1: everybody has a first request",
		"near: 0.5\nalgorithm: leaky-bucket": "near: got 0.5 with algorithm leaky-bucket, allowed near with a window",
		"candidate: 3":                       "candidate: got the number 3, allowed a mapping with the members limit",
		"candidate: {}":                      "candidate.limit: got nothing, allowed a whole number from 0 to 1000000; the field is required",
		"candidate: {limit: 10}":             "candidate.limit: got 10, which is the rule's limit, allowed another limit than the rule's",
		"candidate: {limit: -1}":             "candidate.limit: got the number -1, allowed a whole number",
		"candidate: {window: 1m, limit: 3}":  "candidate.window: got an unknown field, allowed limit; did you mean \"window\"?",
	} {
		if _, err := parseBeside(t, more+"\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", more, err, want)
		}
	}
}

// The count at which a window is near a limit is the share rounded up, and never the first event.
func TestNearCount(t *testing.T) {
	for limit, want := range map[int]int{0: 2, 1: 2, 2: 2, 3: 3, 5: 4, 10: 8, 11: 9, MaxLimit: MaxLimit / 5 * 4} {
		d := Document{Near: 80}
		if got := d.NearCount(limit); got != want {
			t.Errorf("80 %% of %d: %d, want %d", limit, got, want)
		}
	}
	if got := (&Document{}).NearCount(100); got != 0 {
		t.Errorf("without near: %d", got)
	}
}

// What stands beside a limit is a change like any other, keeps the windows, and blocks nobody: no second look is needed.
func TestBesideIsAChangeThatBlocksNobody(t *testing.T) {
	plain := storyRule()
	with := plain
	with.Near, with.Candidate = 80, &Candidate{Limit: 0}
	if plain.Equal(&with) || with.Equal(&plain) {
		t.Error("near and candidate make no difference")
	}
	other := with
	other.Candidate = &Candidate{Limit: 1}
	if with.Equal(&other) {
		t.Error("another candidate makes no difference")
	}
	v1, _ := NextVersion(nil, plain)
	v2, changed := NextVersion(&v1, with)
	if !changed || v2.Lineage != v1.Lineage {
		t.Errorf("%+v", v2)
	}
	with.Candidate.Limit = 7
	if v2.Candidate.Limit != 0 {
		t.Error("a version shares its candidate with the document that it came from")
	}
	for _, pair := range [][2]*Document{{&plain, &with}, {&with, &plain}, {&with, &other}} {
		if reasons := MayBlockMore(pair[0], pair[1]); len(reasons) > 0 {
			t.Errorf("%v", reasons)
		}
	}
	if got := Diff(&plain, &other); !slices.Equal(got, []string{"near none → 0.8", "candidate.limit none → 1"}) {
		t.Errorf("%q", got)
	}
}

// Builds of an older record format count nothing beside a limit, and a pending version for a live one: they must not be given
// any of it.
func TestWhatStandsBesideALimitNeedsItsRecordFormat(t *testing.T) {
	for what, change := range map[string]func(r *Routing){
		"near 0.8":              func(r *Routing) { r.Rules[1].Near = 80 },
		"candidate.limit 9":     func(r *Routing) { r.Rules[1].Candidate = &Candidate{Limit: 9} },
		"a limit raised to 900": func(r *Routing) { r.Rules[1].Raised = &Raise{Limit: 900, Until: 1} },
		"a pending version":     addPending,
	} {
		r := goodRouting()
		r.RecordFormat = LanguageRecordFormat - 1
		change(&r)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "got "+what+" in record format 4, allowed from record format 5 on") {
			t.Errorf("%s: %v", what, err)
		}
		r.RecordFormat = LanguageRecordFormat
		b, err := r.Encode()
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		back, err := DecodeRouting(b)
		if err != nil || !reflect.DeepEqual(*back, r) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", what, err, back, r)
		}
	}
}

func addPending(r *Routing) {
	next := r.Rules[1]
	next.Number, next.Lineage, next.Pending = next.Number+1, next.Lineage+1, true
	r.Rules = append(r.Rules, next)
}

// A pending version stands directly after the live one of its rule, which stays what the rule is.
func TestPendingVersionsStandAfterTheLiveOne(t *testing.T) {
	r := goodRouting()
	r.RecordFormat = LanguageRecordFormat
	addPending(&r)
	for i := range r.Rules {
		if v := r.Find(r.Rules[i].ID); v == nil || v.Pending || v.ID != r.Rules[i].ID {
			t.Errorf("%s: %+v", r.Rules[i].ID, v)
		}
	}
	for what, change := range map[string]func(r *Routing){
		"first":              func(r *Routing) { r.Rules[0].Pending = true },
		"before":             func(r *Routing) { r.Rules[1], r.Rules[2] = r.Rules[2], r.Rules[1] },
		"twice":              func(r *Routing) { r.Rules = append(r.Rules, r.Rules[2]) },
		"another rule":       func(r *Routing) { r.Rules[2].ID = "zzz" },
		"the same number":    func(r *Routing) { r.Rules[2].Number = r.Rules[1].Number },
		"the same lineage":   func(r *Routing) { r.Rules[2].Lineage = r.Rules[1].Lineage },
		"two live":           func(r *Routing) { r.Rules[2].Pending = false },
		"raised":             func(r *Routing) { r.Rules[2].Raised = &Raise{Limit: 500, Until: 1} },
		"raised by nothing":  func(r *Routing) { r.Rules[1].Raised = &Raise{Limit: r.Rules[1].Limit, Until: 1} },
		"raised without end": func(r *Routing) { r.Rules[1].Raised = &Raise{Limit: 500} },
		"raised too far":     func(r *Routing) { r.Rules[1].Raised = &Raise{Limit: MaxLimit + 1, Until: 1} },
	} {
		bad := r
		bad.Rules = slices.Clone(r.Rules)
		change(&bad)
		if err := bad.Validate(); err == nil {
			t.Errorf("%s is taken: %s", what, fmt.Sprint(bad.Rules))
		}
	}
}

// Tiers are limits of windows: a bucket would have to leak at two rates.
func TestBucketsHaveNoTiers(t *testing.T) {
	for _, a := range Algorithms() {
		d := storyRule()
		d.Algorithm, d.Tiers = a, []Tier{{When: "true", Limit: 9}}
		said := false
		d.check(Environment{Identity: traffic.DefaultIdentityMap()}, func(p Problem) { said = said || p.Field == "tiers" && strings.Contains(p.Allowed, "one rate") })
		if said != a.bucket() {
			t.Errorf("%s: refused %v", a, said)
		}
	}
}

// What a promotion asks, and how a canary goes on, makes a version, and is nobody's block: a canary that is under way keeps its own.
func TestGatesAndStepsAreAChangeThatBlocksNobody(t *testing.T) {
	plain := storyRule()
	gates, canary := promotion.DefaultGates(), promotion.DefaultCanary()
	spelled := plain
	spelled.Promote, spelled.Canary = &gates, &canary
	if !plain.Equal(&spelled) {
		t.Error("defaults that are written out make a difference")
	}
	other := plain
	other.Promote = &promotion.Gates{MinShadow: promotion.Span(time.Hour), MaxKnownGood: promotion.All}
	other.Canary = &promotion.Canary{Steps: []promotion.Share{9000}, Hold: promotion.Span(time.Second)}
	if got := Diff(&plain, &other); !slices.Equal(got, []string{
		"promote none → {min_shadow: 1h, max_known_good: 100%, min_coverage: 0%, max_traffic_share: 0%}", "canary none → {steps: [90%], hold: 1s}",
	}) || len(MayBlockMore(&plain, &other)) > 0 {
		t.Errorf("%q, %q", got, MayBlockMore(&plain, &other))
	}
	v1, _ := NextVersion(nil, plain)
	v2, changed := NextVersion(&v1, other)
	if !changed || v2.Lineage != v1.Lineage {
		t.Errorf("%+v", v2)
	}
	other.Promote.MaxKnownGood, other.Canary.Steps[0] = 0, 1
	if v2.Promote.MaxKnownGood != promotion.All || v2.Canary.Steps[0] != 9000 {
		t.Error("a version shares its gates with the document that it came from")
	}
	for what, change := range map[string]func(d *Document){
		"promote": func(d *Document) { d.Promote = v2.Promote }, "canary": func(d *Document) { d.Canary = v2.Canary },
	} {
		r := goodRouting()
		r.RecordFormat = PromotionRecordFormat - 1
		change(&r.Rules[1].Document)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "got "+what) || !strings.Contains(err.Error(), "allowed from record format 6 on") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
