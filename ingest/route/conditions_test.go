package route

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// conditionRouting has a rule with a condition, one with tiers, one with both, and one with neither; all but the last watch
// /v1/x by device.
func conditionRouting() *rules.Routing {
	r := watchRouting()
	other := r.Rules[4]
	r.Rules = nil
	tiers := []rules.Tier{{When: `event.plan == "partner"`, Limit: 50}, {When: `event.attrs.seats > 5`, Limit: 20}}
	for _, d := range []rules.Document{
		{ID: "a-when", Match: rules.Match{Path: "/v1/x", When: `event.status >= 400 && event.attrs.staff != true`}},
		{ID: "b-tiers", Match: rules.Match{Path: "/v1/x"}, Tiers: tiers},
		{ID: "c-both", Match: rules.Match{Path: "/v1/x", When: `event.attrs.seats < 100`}, Tiers: tiers},
		{ID: "d-plain", Match: rules.Match{Path: "/v1/x"}},
	} {
		d.Owner, d.Key, d.Missing, d.Limit, d.Window, d.Lateness = "team", other.Key, other.Missing, other.Limit, other.Window, other.Lateness
		r.Rules = append(r.Rules, rules.Version{Document: d, Number: 1, Lineage: 1})
	}
	return r
}

func conditionEvent(members string) []byte {
	return []byte(`{"v":1,"time":"` + noon.String() + `","device":"tv","path":"/v1/x",` + members + `}`)
}

// Which rules count an event, under which tier, and which are at fault.
func TestConditionsDecideWhatIsRouted(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, conditionRouting())
	r := eventRouter{live: true, targets: newTargeter(opt.Secret, 1)}
	for _, c := range []struct {
		members string
		rules   []int
		tiers   []int
		turned  []turnedAway
	}{
		{`"status":200`, []int{1, 3}, nil, []turnedAway{{0, 0}, {2, 0}}},
		{`"status":401`, []int{1, 3}, nil, []turnedAway{{0, 0}, {2, 0}}}, // no attrs: a comparison with what is missing is false
		{`"status":401,"attrs":{"staff":false,"seats":1}`, []int{0, 1, 2, 3}, nil, nil},
		{`"status":401,"attrs":{"staff":true,"seats":6}`, []int{1, 2, 3}, []int{2, 2, 0}, []turnedAway{{0, 0}}},
		{`"status":200,"plan":"partner","attrs":{"seats":6}`, []int{1, 2, 3}, []int{1, 1, 0}, []turnedAway{{0, 0}}},
		{`"status":200,"attrs":{"seats":"6"}`, []int{3}, nil, []turnedAway{{0, 0}, {2, condition.FaultType}, {1, condition.FaultType}}},
		{`"status":200,"plan":"partner","attrs":{"seats":"6"}`, []int{1, 3}, []int{1, 0}, []turnedAway{{0, 0}, {2, condition.FaultType}}},
	} {
		for range 2 { // memory that is used again
			got := r.read(v, &traffic.Message{Value: conditionEvent(c.members), Appended: noon}, noon)
			if got.fate != FateRouted || len(got.targets) != 1 {
				t.Fatalf("%s: fate %v, %d targets", c.members, got.fate, len(got.targets))
			}
			target := &got.targets[0]
			tiers := []int(nil)
			if target.tiered {
				tiers = target.tiers
			}
			if !slices.Equal(target.rules, c.rules) || !slices.Equal(tiers, c.tiers) || !slices.Equal(got.turned, c.turned) {
				t.Errorf("%s: rules %v, tiers %v, turned %v", c.members, target.rules, tiers, got.turned)
			}
		}
	}
}

// An event that no rule is left for is one that no rule watches.
func TestConditionsLeaveAnEventUnmatched(t *testing.T) {
	opt := routedOptions(true)
	r := eventRouter{live: true, targets: newTargeter(opt.Secret, 1)}
	for _, kept := range []int{0, 1} { // whose condition does not hold, whose tiers are at fault
		routing := conditionRouting()
		routing.Rules = routing.Rules[kept : kept+1]
		got := r.read(compiled(t, opt, routing), &traffic.Message{Value: conditionEvent(`"attrs":{"seats":"6"}`), Appended: noon}, noon)
		if got.fate != FateUnmatched || len(got.watched)+len(got.targets) > 0 {
			t.Errorf("rule %d: %+v", kept, got)
		}
	}
}

// A version with a condition that this build cannot compile is unfit, never routed without it.
func TestConditionsThatDoNotCompile(t *testing.T) {
	for name, change := range map[string]func(*rules.Version){
		`rule a-when: match.when: line 1, column 1: got "event.plann"`:    func(v *rules.Version) { v.Match.When = `event.plann == "free"` },
		`rule a-when: tiers[0].when: line 1, column 1: got "event.plann"`: func(v *rules.Version) { v.Tiers = []rules.Tier{{When: `event.plann == "free"`}} },
		`rule "a-when": got match any method /v1/x, when `:                nil, // under a record format of builds that know none
	} {
		r := conditionRouting()
		if change == nil {
			r.RecordFormat = rules.LanguageRecordFormat - 1
		} else {
			change(&r.Rules[0])
		}
		_, err := compile(r, routedOptions(true))
		if _, unfit := err.(*unfitError); !unfit || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

// A chunk's records carry the tiers, and its counts the faults.
func TestConditionsInRecordsAndCounts(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, conditionRouting())
	var messages []traffic.Message
	for i, members := range []string{`"status":200`, `"plan":"partner"`, `"attrs":{"seats":"6"}`, `"attrs":{"seats":"7"}`, `"attrs":{"seats":7}`} {
		messages = append(messages, traffic.Message{Offset: int64(i), Appended: noon, Value: conditionEvent(members)})
	}
	c := newBuilder(opt).build([]*source{sourceAt(0, v, 0, 5)}, filled(map[int]int64{0: 5}, messages...))
	var got [][]int
	for _, k := range records(t, c) {
		got = append(got, append(slices.Clone(k.Rules), k.Tiers...))
	}
	if want := [][]int{{1, 3}, {1, 3, 1, 0}, {3}, {3}, {1, 2, 3, 2, 2, 0}}; !reflect.DeepEqual(got, want) {
		t.Errorf("rules and tiers %v, want %v", got, want)
	}
	if got := c.stats.Rules["b-tiers"]; got.Faults[condition.FaultType] != 2 || got.Matched != 3 {
		t.Errorf("b-tiers: %+v", got)
	}
	if got := c.stats.Rules["c-both"]; got.Faults[condition.FaultType] != 2 || got.Matched != 1 {
		t.Errorf("c-both: %+v", got)
	}
	if got := c.stats.Rules["a-when"]; !reflect.DeepEqual(got, RuleStats{}) {
		t.Errorf("a condition that does not hold is counted: %+v", got)
	}
}

// The counter has a series for each reason of each rule with conditions, from the beginning.
func TestConditionsMetric(t *testing.T) {
	opt := routedOptions(true)
	shelf := newVersionShelf(opt)
	shelf.advance(compiled(t, opt, conditionRouting()))
	tally := newTally()
	var stats RuleStats
	stats.Faults[condition.FaultCost] = 3
	tally.stats.Rules["c-both"] = stats
	var want strings.Builder
	want.WriteString("# HELP weir_route_rule_condition_errors_total Events that a rule does not watch since one of its conditions could not be judged.\n" +
		"# TYPE weir_route_rule_condition_errors_total counter\n")
	for _, rule := range []string{"a-when", "b-tiers", "c-both"} {
		for _, reason := range []string{"cost", "size", "type", "value"} {
			n := 0
			if rule == "c-both" && reason == "cost" {
				n = 3
			}
			fmt.Fprintf(&want, "weir_route_rule_condition_errors_total{reason=%q,rule=%q} %d\n", reason, rule, n)
		}
	}
	if err := testutil.CollectAndCompare(newRouteCollector(tally, shelf), strings.NewReader(want.String()), "weir_route_rule_condition_errors_total"); err != nil {
		t.Error(err)
	}
}

// Explainer and Reader tell the condition's verdict and the tier.
func TestConditionsAreExplained(t *testing.T) {
	e, err := NewExplainer(conditionRouting(), true)
	if err != nil {
		t.Fatal(err)
	}
	got := e.Explain(&traffic.Message{Value: conditionEvent(`"status":200,"attrs":{"seats":6}`), Appended: noon})
	want := []ExplainedRule{{Index: 1, Counts: true, Tier: 2}, {Index: 2, Counts: true, Tier: 2}, {Index: 3, Counts: true}}
	if !reflect.DeepEqual(got.Rules, want) || !slices.Equal(got.Turned, []TurnedAway{{0, condition.Fine}}) {
		t.Errorf("got %+v, turned %+v", got.Rules, got.Turned)
	}
	r, err := NewReader(conditionRouting(), nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	reading := r.Read(conditionEvent(`"status":200,"attrs":{"seats":6}`))
	if len(reading.Targets) != 1 || !slices.Equal(reading.Targets[0].Tiers, []int{2, 2, 0}) || len(reading.Watched) != 3 {
		t.Errorf("got %+v, %+v", reading.Targets, reading.Watched)
	}
}
