package condition

import "testing"

// What a condition costs beside the rest of an event's way. `closures` is the common subset, `program` the same through CEL.
func BenchmarkHolds(b *testing.B) {
	l := language(b)
	for _, bench := range []struct{ name, expr string }{
		{"two fields", `event.plan == "free" && event.status >= 400`},
		{"two texts", `event.route in ["login", "signup"] && !event.path.startsWith("/health")`},
		{"two attrs", `event.attrs.country == "DE" && event.attrs.cost > 5`},
	} {
		for _, program := range []bool{false, true} {
			c, err := l.compile(bench.expr, mode{program: program})
			if err != nil {
				b.Fatal(err)
			}
			if !program && c.clause == nil {
				b.Fatal(bench.expr + " is no closure")
			}
			name := bench.name + map[bool]string{false: "/closures", true: "/program"}[program]
			b.Run(name, func(b *testing.B) {
				e := event()
				r, id := e.request, e.identity
				b.ReportAllocs()
				for b.Loop() {
					e.Reset(r, id)
					if holds, _ := c.Holds(e); !holds {
						b.Fatal(bench.expr + " does not hold")
					}
				}
			})
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	l := language(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Compile(`event.plan == "free" && event.status >= 400`); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		language(b)
	}
}

// The common subset has no memory of its own.
func TestClosuresDoNotAllocate(t *testing.T) {
	l, e := language(t), event()
	r, id := e.request, e.identity
	for _, expr := range []string{
		`event.plan == "free" && event.status >= 400`, `event.ip.startsWith("203.") && event.headers["x-app-version"] == "2.1"`,
		`event.attrs.country == "DE" && event.attrs.cost > 5 && !(event.attrs.none == 1) && has(event.attrs.ratio)`,
	} {
		c, err := l.Compile(expr)
		if err != nil {
			t.Fatal(err)
		}
		n := testing.AllocsPerRun(100, func() {
			e.Reset(r, id)
			if holds, _ := c.Holds(e); !holds {
				t.Fatal(expr)
			}
		})
		if c.clause == nil || n != 0 {
			t.Errorf("%s: %v allocations", expr, n)
		}
	}
}
