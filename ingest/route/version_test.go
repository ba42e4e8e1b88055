package route

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// diverseRouting has n rules of which each has a dimension, and fields beside the identity, of its own.
func diverseRouting(n int, when string) *rules.Routing {
	r := watchRouting()
	r.RecordFormat, r.Rules = rules.LanguageRecordFormat, nil
	for i := range n {
		r.Rules = append(r.Rules, rules.Version{Number: 1, Lineage: 1, Document: rules.Document{
			ID: fmt.Sprintf("rule-%05d", i), Owner: "tests", Match: rules.Match{Path: fmt.Sprintf("/service-%d/{id}", i), When: when},
			Key:     []traffic.KeyField{{Field: traffic.FieldParam, Name: "id"}, {Field: traffic.FieldAttr, Name: fmt.Sprintf("tenant%d", i)}},
			Missing: rules.MissingSkip, Limit: 10, Window: time.Minute, Lateness: time.Minute, MaxLag: time.Minute,
		}})
	}
	return r
}

// Rules have one dimension exactly where they find its values in the same places.
func TestDimensionsAreThoseOfTheFirstFields(t *testing.T) {
	r := diverseRouting(3, "")
	ip := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}
	r.Rules[1].Match = r.Rules[0].Match // so that {id} is that of the first rule
	for i, key := range [][]traffic.KeyField{{ip}, {ip, {Field: traffic.FieldHost}}, {{Field: traffic.FieldIP, V4: 24, V6: 64}}, {}, {{Field: traffic.FieldFallback, Name: "{id}|ip", V4: 32, V6: 64}}} {
		v := r.Rules[0]
		v.ID, v.Key = fmt.Sprintf("s%d", i), key
		r.Rules = append(r.Rules, v)
	}
	v := compiled(t, routedOptions(true), r)
	for i, want := range []int{0, 0, 1, 2, 2, 3, ruleDimension, 4} {
		if got := v.rules[i].dimension; got != want {
			t.Errorf("rule %s: dimension %d, want %d", v.rules[i].id, got, want)
		}
	}
	if len(v.dimensions) != 5 {
		t.Errorf("%d dimensions", len(v.dimensions))
	}
}

// An edit of one rule compiles its condition, and none of those that were there.
func TestAnEditCompilesWhatIsNew(t *testing.T) {
	opt := routedOptions(true)
	r := diverseRouting(3, `event.plan == "a"`)
	r.Rules[1].Match.When = `event.plan == "b"`
	first := compiled(t, opt, r)
	r.Rules[1].Match.When = `event.plan == "c"`
	second, err := compileAfter(first, r, opt)
	if err != nil {
		t.Fatal(err)
	}
	if first.rules[0].when != first.rules[2].when || second.rules[0].when != first.rules[0].when || len(second.conditions) != 2 {
		t.Error("a condition was compiled twice, or one that is gone is kept")
	}
	if got := second.rules[1].when.Source(); got != `event.plan == "c"` {
		t.Errorf("the edited rule has %s", got)
	}
}

// BenchmarkEdit is what a router does with an edit of one rule of many: ten times the rules shall take ten times as long.
func BenchmarkEdit(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			r, opt := diverseRouting(n, ""), routedOptions(true)
			for i := range r.Rules {
				r.Rules[i].Match.When = fmt.Sprintf(`event.status == 402 && event.attrs.model.startsWith("large%d")`, i)
			}
			before, err := compile(r, opt)
			if err != nil {
				b.Fatal(err)
			}
			r.Rules[n/2].Match.When = `event.status == 403`
			text, err := r.Encode()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				next, err := rules.DecodeRouting(text)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := compileAfter(before, next, opt); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/rule")
		})
	}
}

// BenchmarkCompile is what a router does before it can go on under an edited rule set: ten times the rules shall take ten times
// as long.
func BenchmarkCompile(b *testing.B) {
	for _, when := range []string{"", `event.status == 402 && event.attrs.model.startsWith("large")`} {
		for _, n := range []int{100, 1000, 10_000} {
			b.Run(fmt.Sprintf("when=%t/rules=%d", when != "", n), func(b *testing.B) {
				r, opt := diverseRouting(n, when), routedOptions(true)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := compile(r, opt); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/rule")
			})
		}
	}
}

// What an event costs does not grow with the rules that it does not meet: it forgets no more of the event before than that found out.
func TestAnEventForgetsWhatWasFoundOutAlone(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, diverseRouting(1000, ""))
	reader := eventRouter{live: true, targets: newTargeter(opt.Secret, opt.KeyedPartitions)}
	for _, i := range []int{3, 999, 3} {
		m := &traffic.Message{Appended: noon, Value: fmt.Appendf(nil, `{"v":1,"time":"%s","ip":"192.0.2.1","path":"/service-%d/7","attrs":{"tenant%d":"a"}}`, noon, i, i)}
		got := reader.read(v, m, noon)
		if got.fate != FateRouted || len(got.targets) != 1 || len(got.targets[0].extra) != 2 {
			t.Fatalf("event %d: %+v", i, got)
		}
		if len(reader.found) != 1 || len(reader.extra.found) != 2 {
			t.Errorf("event %d: found %v and %v", i, reader.found, reader.extra.found)
		}
		for j := range v.extras {
			if known := reader.extra.known[j]; known.read != (j/2 == i) {
				t.Errorf("event %d: field %d %+v", i, j, known)
			}
		}
	}
}

// BenchmarkReadAmongRules shows that the number of rules hardly matters: the event meets one of them.
func BenchmarkReadAmongRules(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			opt := routedOptions(true)
			v, err := compile(diverseRouting(n, ""), opt)
			if err != nil {
				b.Fatal(err)
			}
			reader := eventRouter{live: true, targets: newTargeter(opt.Secret, opt.KeyedPartitions)}
			m := &traffic.Message{Appended: noon, Value: fmt.Appendf(nil, `{"v":1,"time":"%s","ip":"192.0.2.1","path":"/service-50/7","attrs":{"tenant50":"a"}}`, noon)}
			b.ReportAllocs()
			for b.Loop() {
				if got := reader.read(v, m, noon); got.fate != FateRouted {
					b.Fatal(got.fate)
				}
			}
		})
	}
}
