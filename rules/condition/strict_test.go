package condition

import (
	"testing"

	"github.com/weirhq/weir/traffic"
)

// A strict condition is judged only where the event has what decides it, as closures and as a program.
func TestStrictConditions(t *testing.T) {
	l := language(t)
	paid := traffic.Request{Plan: "paid", Attrs: []byte(`{"staff":true,"tier":3,"o":{"n":1}}`), Status: 200}
	bare := traffic.Request{}
	free := traffic.Request{Plan: "free"}
	const (
		holds   = "holds"
		not     = "does not hold"
		unknown = "is not judged"
	)
	for expr, want := range map[string][3]string{ // of paid, free, bare
		`event.plan == "paid"`:                              {holds, not, unknown},
		`event.plan != "free"`:                              {holds, not, unknown},
		`!(event.plan == "free")`:                           {holds, not, unknown},
		`"paid" == event.plan`:                              {holds, not, unknown},
		`event.plan in ["paid", "team"]`:                    {holds, not, unknown},
		`event.plan.startsWith("p")`:                        {holds, not, unknown},
		`event.plan.matches("^p")`:                          {holds, not, unknown},
		`event.plan == "paid" || event.attrs.staff`:         {holds, unknown, unknown},
		`event.plan == "paid" && event.attrs.staff`:         {holds, not, unknown},
		`event.attrs.staff`:                                 {holds, unknown, unknown},
		`!event.attrs.staff`:                                {not, unknown, unknown},
		`event.attrs.tier > 2`:                              {holds, unknown, unknown},
		`event.attrs.tier > "a"`:                            {unknown, unknown, unknown},
		`event.attrs.o.n == 1`:                              {holds, unknown, unknown},
		`has(event.attrs.staff) && event.attrs.staff`:       {holds, not, not},
		`has(event.attrs.staff) ? event.attrs.staff : true`: {holds, holds, holds},
		`has(event.plan) && event.plan == "paid"`:           {holds, not, not},
		`has(event.plan) ? event.plan == "paid" : true`:     {holds, not, holds},
		`event.plan != ""`:                                  {holds, holds, not},
		`"" == event.plan`:                                  {not, not, holds},
		`event.plan == "" ? true : event.plan == "paid"`:    {holds, not, holds},
		`event.status == 200`:                               {holds, unknown, unknown},
		`event.status != 0`:                                 {holds, not, not},
		`event.latency_ms < 10.0`:                           {unknown, unknown, unknown},
		`event.headers["x-app"] == "tv"`:                    {unknown, unknown, unknown},
		`event.time > timestamp("1960-01-01T00:00:00Z")`:    {holds, holds, holds},
		`true`: {holds, holds, holds},
		`event.plan + event.user == "paid" || event.status == 200`: {holds, unknown, unknown},
	} {
		for _, program := range []bool{false, true} {
			c, err := l.compile(expr, mode{program, true})
			if err != nil {
				t.Fatalf("%s: %v", expr, err)
			}
			for i, q := range []*traffic.Request{&paid, &free, &bare} {
				var e Event
				e.Reset(q, &traffic.Identity{})
				yes, fault := c.Holds(&e)
				got := map[bool]string{true: holds, false: not}[yes]
				if fault != Fine {
					got = unknown
				}
				if got != want[i] {
					t.Errorf("%s of event %d, program %v: %s, want %s", expr, i, program, got, want[i])
				}
			}
		}
	}
}

// One event is judged by both kinds of conditions in turn: what one knows of it is nothing that the other does not.
func TestStrictBesideOrdinary(t *testing.T) {
	l := language(t)
	var e Event
	e.Reset(&traffic.Request{}, &traffic.Identity{})
	for range 3 {
		for _, strict := range []bool{true, false} {
			c, err := l.compile(`event.plan + "x" == "x"`, mode{true, strict})
			if err != nil {
				t.Fatal(err)
			}
			if holds, fault := c.Holds(&e); holds == strict || (fault != Fine) != strict {
				t.Errorf("strict %v: %v, %v", strict, holds, fault)
			}
		}
	}
}

func TestStrictPartsSayWhatIsMissing(t *testing.T) {
	p, err := language(t).StrictParts(`event.plan == "paid" || event.attrs.staff`)
	if err != nil {
		t.Fatal(err)
	}
	var e Event
	e.Reset(&traffic.Request{Plan: "free"}, &traffic.Identity{})
	got := p.Judge(&e)
	if got.Holds || got.Fault == "" || len(got.Parts) != 2 || got.Parts[0].Fault != "" || got.Parts[1].Fault == "" || !got.Parts[1].Reads[0].Missing {
		t.Errorf("%+v", got)
	}
	e.Reset(&traffic.Request{}, &traffic.Identity{})
	if got := p.Judge(&e); !got.Parts[0].Reads[0].Missing || got.Parts[0].Fault == "" {
		t.Errorf("without a plan: %+v", got)
	}
}
