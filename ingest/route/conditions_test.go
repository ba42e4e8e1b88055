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
		{`"status":200,"attrs":{"seats":"6"}`, []int{1, 3}, []int{2, 0}, []turnedAway{{0, 0}, {2, condition.FaultType}}},
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

// Who faults the condition of a tier neither leaves the rule nor gets a lower limit than any value would have given, nor a
// higher one: the greatest counts of the limits that the event may have, with what the other conditions say.
func TestTiersThatCannotBeJudged(t *testing.T) {
	const seats, free, staff = `event.attrs.seats > 5`, `event.plan == "free"`, `event.attrs.staff`
	tiers := func(list ...any) (out []rules.Tier) {
		for i := 0; i < len(list); i += 2 {
			out = append(out, rules.Tier{When: list[i].(string), Limit: list[i+1].(int)})
		}
		return out
	}
	opt := routedOptions(true)
	for _, c := range []struct {
		name    string
		tiers   []rules.Tier // beside the rule's own limit, 100
		members string
		tier    int
		fault   condition.Fault
	}{
		{"the only tier, which is lower", tiers(seats, 2), `"attrs":{"seats":"6"}`, 0, condition.FaultType},
		{"the only tier, which is higher", tiers(seats, 200), `"attrs":{"seats":"6"}`, 1, condition.FaultType},
		{"a tier as high as the rule", tiers(seats, 100), `"attrs":{"seats":"6"}`, 0, condition.FaultType},
		{"before one that holds, which is lower", tiers(seats, 50, free, 2), `"plan":"free","attrs":{"seats":"6"}`, 1, condition.FaultType},
		{"before one that holds, which is higher", tiers(seats, 2, free, 50), `"plan":"free","attrs":{"seats":"6"}`, 2, condition.FaultType},
		{"before one that does not hold", tiers(seats, 50, free, 200), `"attrs":{"seats":"6"}`, 0, condition.FaultType},
		{"after one that does not hold", tiers(free, 200, seats, 50), `"attrs":{"seats":"6"}`, 0, condition.FaultType},
		{"after one that holds", tiers(free, 2, seats, 500), `"plan":"free","attrs":{"seats":"6"}`, 1, condition.Fine},
		{"two, of which the second is greater", tiers(seats, 150, staff, 160), `"attrs":{"seats":"6","staff":1}`, 2, condition.FaultType},
		{"two faults, of which the first is told", tiers(`1 / event.status == 1`, 500, seats, 300), `"attrs":{"seats":"6"}`, 1, condition.FaultValue},
	} {
		routing := conditionRouting()
		routing.Rules = routing.Rules[1:2]
		routing.Rules[0].Limit, routing.Rules[0].Tiers = 100, c.tiers
		r := eventRouter{live: true, targets: newTargeter(opt.Secret, 1)}
		got := r.read(compiled(t, opt, routing), &traffic.Message{Value: conditionEvent(c.members), Appended: noon}, noon)
		if len(got.targets) != 1 || len(got.turned) != 0 || !slices.Equal(got.targets[0].tiers, []int{c.tier}) || got.watched[0].fault != c.fault {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// An event that no rule is left for is one that no rule watches.
func TestConditionsLeaveAnEventUnmatched(t *testing.T) {
	opt := routedOptions(true)
	r := eventRouter{live: true, targets: newTargeter(opt.Secret, 1)}
	for _, kept := range []int{0, 2} { // whose condition does not hold, and whose is at fault
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
	c := newBuilder(opt, &hintMemory{}).build([]*source{sourceAt(0, v, 0, 5)}, filled(map[int]int64{0: 5}, messages...))
	var got [][]int
	for _, k := range records(t, c) {
		got = append(got, append(slices.Clone(k.Rules), k.Tiers...))
	}
	if want := [][]int{{1, 3}, {1, 3, 1, 0}, {1, 3, 2, 0}, {1, 3, 2, 0}, {1, 2, 3, 2, 2, 0}}; !reflect.DeepEqual(got, want) {
		t.Errorf("rules and tiers %v, want %v", got, want)
	}
	if got := c.stats.Rules["b-tiers"]; got.TierFaults[condition.FaultType] != 2 || got.Faults != [condition.NumFaults]int64{} || got.Matched != 5 {
		t.Errorf("b-tiers: %+v", got)
	}
	if got := c.stats.Rules["c-both"]; got.Faults[condition.FaultType] != 2 || got.TierFaults != [condition.NumFaults]int64{} || got.Matched != 1 {
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
	stats.Faults[condition.FaultCost], stats.TierFaults[condition.FaultCost] = 3, 4
	tally.stats.Rules["c-both"] = stats
	for _, m := range []struct {
		name, help string
		rules      []string
		n          int
	}{
		{"weir_route_rule_condition_errors_total", "Events that a rule does not watch since its match.when could not be judged.", []string{"a-when", "c-both"}, 3},
		{"weir_route_rule_tier_errors_total", "Events that a rule judges by the greatest limit that they may have, since the condition of a tier could not be judged.", []string{"b-tiers", "c-both"}, 4},
	} {
		var want strings.Builder
		fmt.Fprintf(&want, "# HELP %s %s\n# TYPE %s counter\n", m.name, m.help, m.name)
		for _, rule := range m.rules {
			for _, reason := range []string{"budget", "cost", "size", "type", "value"} {
				n := 0
				if rule == "c-both" && reason == "cost" {
					n = m.n
				}
				fmt.Fprintf(&want, "%s{reason=%q,rule=%q} %d\n", m.name, reason, rule, n)
			}
		}
		if err := testutil.CollectAndCompare(newRouteCollector(tally, shelf, atZero),
			strings.NewReader(want.String()), m.name); err != nil {
			t.Error(err)
		}
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
	got = e.Explain(&traffic.Message{Value: conditionEvent(`"status":200,"attrs":{"seats":"6"}`), Appended: noon})
	want = []ExplainedRule{{Index: 1, Counts: true, Tier: 2, TierFault: condition.FaultType}, {Index: 3, Counts: true}}
	if !reflect.DeepEqual(got.Rules, want) || !slices.Equal(got.Turned, []TurnedAway{{0, condition.Fine}, {2, condition.FaultType}}) {
		t.Errorf("got %+v, turned %+v", got.Rules, got.Turned)
	}
	r, err := NewReader(conditionRouting(), nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	reading := r.Read(conditionEvent(`"status":200,"attrs":{"seats":"6"}`))
	if len(reading.Targets) != 1 || !slices.Equal(reading.Targets[0].Tiers, []int{2, 0}) || reading.Watched[0].May != rules.TierSet(0).With(0).With(2) || reading.Watched[1].May != 0 {
		t.Errorf("got %+v, %+v", reading.Targets, reading.Watched)
	}
	reading = r.Read(conditionEvent(`"status":200,"attrs":{"seats":6}`))
	if len(reading.Targets) != 1 || !slices.Equal(reading.Targets[0].Tiers, []int{2, 2, 0}) || len(reading.Watched) != 3 {
		t.Errorf("got %+v, %+v", reading.Targets, reading.Watched)
	}
}
