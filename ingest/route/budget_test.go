package route

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// budgetRouting has so many rules of each owner, each with a pattern of its own on the user agent, which watch /v1/x
// by device.
func budgetRouting(owners ...int) *rules.Routing {
	r := conditionRouting()
	model := r.Rules[3]
	r.Format.MaxEventBytes = 1 << 20
	r.Rules = nil
	for owner, n := range owners {
		for i := range n {
			v := model
			v.ID, v.Owner = fmt.Sprintf("%c-%03d", 'a'+owner, i), fmt.Sprintf("team-%d", owner)
			v.Match.When = fmt.Sprintf(`event.user_agent.matches("(?i)bot%d[/ ][0-9]+") || true`, i)
			r.Rules = append(r.Rules, v)
		}
	}
	return r
}

func agentEvent(bytes int) []byte {
	return conditionEvent(`"user_agent":"` + strings.Repeat("x", bytes) + `"`)
}

// TestConditionsHaveABudget has an event whose user agent is as long as a client likes, under more patterns than the
// budget is enough for: what one owner has too many of is beyond, and another one's only rule counts as ever.
func TestConditionsHaveABudget(t *testing.T) {
	t.Parallel()
	const many = 200
	opt := routedOptions(true)
	for _, c := range []struct {
		name          string
		format, agent int
		most          int // of the first owner's rules
	}{
		{"short", rules.BudgetRecordFormat, 60, many},
		{"long", rules.BudgetRecordFormat, 7700, 42},
		{"the longest", rules.BudgetRecordFormat, condition.MaxText, 40},
		{"longer than is judged", rules.BudgetRecordFormat, 4 * condition.MaxText, 40},
		{"under the format before", rules.BudgetRecordFormat - 1, 7700, many},
	} {
		routing := budgetRouting(many, 1)
		routing.RecordFormat = c.format
		v := compiled(t, opt, routing)
		r := eventRouter{live: true, targets: newTargeter(opt.Secret, 1)}
		for range 2 { // memory that is used again
			got := r.read(v, &traffic.Message{Value: agentEvent(c.agent), Appended: noon}, noon)
			counted := len(got.watched)
			if !slices.ContainsFunc(got.watched, func(w watching) bool { return w.rule == many }) {
				t.Errorf("%s: the other owner's rule does not count", c.name)
			}
			if counted-1 > c.most || counted-1 < c.most*9/10 || counted+len(got.turned) != many+1 {
				t.Errorf("%s: %d rules count, %d do not", c.name, counted, len(got.turned))
			}
			for i, turned := range got.turned {
				if turned.fault != condition.FaultBudget || i > 0 && got.turned[i-1].rule >= turned.rule {
					t.Errorf("%s: turned away: %v", c.name, got.turned)
					break
				}
			}
			short := r.read(v, &traffic.Message{Value: agentEvent(10), Appended: noon}, noon)
			if len(short.watched) != many+1 || len(short.turned) != 0 {
				t.Errorf("%s: of the event behind it %d rules count", c.name, len(short.watched))
			}
		}
	}
}

// TestTiersBeyondTheBudget has a tier that is beyond judged as one that cannot be: by the greatest limit.
func TestTiersBeyondTheBudget(t *testing.T) {
	t.Parallel()
	opt := routedOptions(true)
	routing := budgetRouting(100)
	routing.RecordFormat = rules.BudgetRecordFormat
	for i := range routing.Rules {
		rule := &routing.Rules[i]
		rule.Limit, rule.Tiers = 10, []rules.Tier{{When: rule.Match.When, Limit: 50},
			{When: "event.status == 1", Limit: 5}}
		rule.Match.When = ""
	}
	r := eventRouter{live: true, targets: newTargeter(opt.Secret, 1)}
	got := r.read(compiled(t, opt, routing), &traffic.Message{Value: agentEvent(8000), Appended: noon}, noon)
	if len(got.watched) != 100 || len(got.turned) != 0 {
		t.Fatalf("%d rules count, turned away: %v", len(got.watched), got.turned)
	}
	beyond := 0
	for _, w := range got.watched {
		if w.fault == condition.FaultBudget {
			beyond++
		}
		if w.tier != 1 {
			t.Errorf("rule %d is judged by tier %d", w.rule, w.tier)
		}
	}
	if beyond < 55 || beyond > 65 {
		t.Errorf("%d rules are beyond the budget", beyond)
	}
}

// BenchmarkConditionsUnderAttack has events with the longest user agents under patterns of many rules of one owner,
// and counts what is judged of them.
func BenchmarkConditionsUnderAttack(b *testing.B) {
	opt := routedOptions(true)
	for _, c := range []struct{ rules, agent int }{{50, 60}, {50, 7700}, {1000, 60}, {1000, 7700}} {
		b.Run(fmt.Sprintf("%d rules, agents of %d bytes", c.rules, c.agent), func(b *testing.B) {
			routing := budgetRouting(c.rules, 1)
			routing.RecordFormat = rules.BudgetRecordFormat
			v, err := compile(routing, opt)
			if err != nil {
				b.Fatal(err)
			}
			r := eventRouter{live: true, targets: newTargeter(opt.Secret, 1)}
			m := &traffic.Message{Value: agentEvent(c.agent), Appended: noon}
			b.ReportAllocs()
			for b.Loop() {
				got := r.read(v, m, noon)
				if len(got.watched)+len(got.turned) != c.rules+1 {
					b.Fatalf("%d rules count, %d do not", len(got.watched), len(got.turned))
				}
			}
		})
	}
}
