package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/testbed"
)

// afar is a distant over a database, and a Redis that tests break; Kafka is not asked.
func afar(t *testing.T, here func() console.Pulse) (*distant, *historytest.Bed) {
	t.Helper()
	b := historytest.New(t)
	return newDistant(Options{Config: config.Default(), Log: slog.New(slog.DiscardHandler), Pulse: here}, b.Store), b
}

// problemOf is what is said of a part; empty: nothing.
func problemOf(p console.Pulse, part string) string {
	for _, one := range p.Problems {
		if one.Part == part {
			return one.Detail
		}
	}
	return ""
}

// How far DETECT is behind is what it reports. That nobody has reported is a problem, but not of a process that has
// just begun to work itself.
func TestWhatIsSaidOfDetect(t *testing.T) {
	for name, here := range map[string]func() console.Pulse{"alone": nil,
		"beside": func() console.Pulse { return console.Pulse{} }} {
		t.Run(name, func(t *testing.T) {
			d, b := afar(t, here)
			d.pulse.Stages = []console.StageLag{{Stage: ingest.StageRoute, Records: 2}, {Stage: ingest.StageDetect,
				Records: 700}}
			look := func() console.Pulse {
				t.Helper()
				if err := d.lookAtPartitions(t.Context()); err != nil {
					t.Fatal(err)
				}
				return d.Pulse()
			}
			p := look()
			if strings.Contains(fmt.Sprint(p.Problems), "has ever reported") != (here == nil) {
				t.Errorf("before anybody has reported: %+v", p.Problems)
			}
			if p.Stages[1].Records != 700 {
				t.Errorf("nobody has reported, and DETECT is behind by %d", p.Stages[1].Records)
			}
			reports := []ingest.PartitionStatus{
				{Side: ingest.SideRequests, Partition: 0, State: ingest.Running, Offset: 1, End: 1000,
					GapOffset: ingest.NoOffset},
				{Side: ingest.SideKeyed, Partition: 0, State: ingest.Running, Offset: 40, End: 100,
					GapOffset: ingest.NoOffset},
				{Side: ingest.SideKeyed, Partition: 1, State: ingest.Halted, Offset: 9, End: 7,
					GapOffset: ingest.NoOffset},
			}
			if err := b.Store.Partitions.Report(t.Context(), history.Live, reports); err != nil {
				t.Fatal(err)
			}
			p = look()
			if p.Stages[0].Records != 2 || p.Stages[1].Records != 60 {
				t.Errorf("behind are %+v, want DETECT by the 60 that it reports", p.Stages)
			}
			if len(p.Problems) != 1 || p.Problems[0] != console.StoppedPartition(string(ingest.SideKeyed), 1) {
				t.Errorf("problems %+v, want the partition that stopped", p.Problems)
			}
		})
	}
}

// Gates are known while Redis tells them, and unknown where it does not, for want of an answer or of a right.
func TestGatesAreUnknownWhereRedisDoesNotTellThem(t *testing.T) {
	mini := testbed.EmbeddedRedis(t)
	store, err := blocklist.Connect(blocklist.Server{URL: "redis://" + mini.Addr() + "/0"}, "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	o := Options{Redis: store, Config: config.Default(), Log: slog.New(slog.DiscardHandler)}
	d := newDistant(o, &history.Store{})
	d.mine = func(context.Context) (string, error) { return "mine", nil }
	d.identity = "0123456789abcdef"
	gate := blocklist.GateReport{
		Instance: "edge-1", Identity: d.identity, Blocks: 3, Missing: 1, Staleness: 2, Started: service.Now(),
		At: service.Now(),
	}
	if err := blocklist.NewGateBook(store).Report(t.Context(), gate); err != nil {
		t.Fatal(err)
	}
	known := func(want bool) {
		t.Helper()
		h := health(d.Pulse())
		if unknown := slices.Contains(h.Unknown, "gates"); unknown == want ||
			len(h.Gates) != map[bool]int{true: 1}[want] {
			t.Fatalf("unknown: %q, gates: %+v, want them known: %v", h.Unknown, h.Gates, want)
		}
		if !want {
			return
		}
		if g := h.Gates[0]; g.Instance != "edge-1" || !g.Ready || g.Behind != 2 || len(g.Doubts) != 1 {
			t.Errorf("told as %+v", g)
		}
		if said := problemOf(d.Pulse(), "Gate edge-1"); !strings.Contains(said, "1 of the 16,384") {
			t.Errorf("its problem is %q", said)
		}
	}
	look := func(away bool) {
		t.Helper()
		if err := d.lookAtRedis(t.Context()); (err != nil) != away {
			t.Fatal(err)
		}
	}
	look(false)
	known(true)
	mini.SetError("LOADING it reads its file")
	look(true)
	known(false)
	mini.SetError("")
	look(false)
	known(true)
	keys, err := blocklist.NewKeys("weir")
	if err != nil {
		t.Fatal(err)
	}
	mini.Del(keys.Gates())
	if err := mini.Set(keys.Gates(), "no sorted set"); err != nil {
		t.Fatal(err)
	}
	look(false) // Redis is well
	known(false)
}

// TestWhoseRedisIsSaid: that Redis is another installation's is a problem, until it is so no more; what cannot be asked
// changes nothing.
func TestWhoseRedisIsSaid(t *testing.T) {
	mini := testbed.EmbeddedRedis(t)
	store, err := blocklist.Connect(blocklist.Server{URL: "redis://" + mini.Addr() + "/0"}, "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	d := newDistant(Options{Redis: store, Config: config.Default(), Log: slog.New(slog.DiscardHandler)},
		&history.Store{})
	var away error
	d.mine = func(context.Context) (string, error) { return "mine", away }
	said := func(want string) {
		t.Helper()
		_ = d.lookAtRedis(t.Context()) // that it does not answer is said elsewhere
		p := d.Pulse()
		if h := health(p); h.Foreign != p.Foreign || !strings.Contains(h.Foreign, want) ||
			(want == "") != (h.Foreign == "") ||
			problemOf(p, partRedis) != h.Foreign || strings.Contains(h.Foreign, mini.Addr()) {
			t.Errorf("said is %q, problems %+v, want %q", h.Foreign, h.Problems, want)
		}
	}
	deed := blocklist.NewOwnership(store)
	said("")
	if err := deed.Take(t.Context(), blocklist.Owner{Installation: "staging", Since: service.Now(),
		By: "somebody"}); err != nil {
		t.Fatal(err)
	}
	const theirs = `belongs to installation "staging"`
	said(theirs)
	away = errors.New("PostgreSQL does not answer")
	said(theirs)
	away = nil
	mini.SetError("LOADING it reads its file")
	said(theirs)
	mini.SetError("")
	if err := deed.Take(t.Context(), blocklist.Owner{Installation: "mine", Since: service.Now(),
		By: "somebody"}); err != nil {
		t.Fatal(err)
	}
	said("")
}

// However many gates have something wrong, a page has a bounded list.
func TestProblemsOfGatesAreBounded(t *testing.T) {
	var gates []console.Gate
	for i := range 20 {
		gates = append(gates, console.Gate{GateReport: blocklist.GateReport{Instance: fmt.Sprint("edge-", i)},
			Doubts: []string{"a", "b"}})
	}
	all := gateProblems(gates, 3)
	if len(all) != shownGateProblems+2 || all[8].Detail != "include 3 whose reports this build cannot read" ||
		all[9].Detail != "have 32 more problems: see the list of them" {
		t.Errorf("%+v", all)
	}
	if all := gateProblems(gates[:1], 0); len(all) != 2 || all[0] != (console.Problem{Part: "Gate edge-0",
		Detail: "a"}) {
		t.Errorf("%+v", all)
	}
}
