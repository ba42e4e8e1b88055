package enforce_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
)

const decisionsTotal = "weir_enforce_decisions_total"

// reasons are those that package blocklist has for withheld decisions.
func reasons(t *testing.T) (all []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../decision.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		reason, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, reason)
		return true
	})
	return all
}

// wantAllDecisions asks for the series of FloodRule, the only rule: all that there may be, whatever has been decided.
func wantAllDecisions(t *testing.T, s *blocktest.Stage, when string) {
	t.Helper()
	if err := s.RefreshModes(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := 0
	one := func(mode, action, reason string) {
		t.Helper()
		want++
		if s.Series(decisionsTotal, action, mode, reason, blocktest.FloodRule) != 1 {
			t.Errorf("%s: no series of mode %s, action %s, reason %q", when, mode, action, reason)
		}
	}
	for _, action := range []string{"written", "extended", "released"} {
		one("block", action, "")
	}
	for _, reason := range reasons(t) {
		one("block", "withheld", reason)
	}
	one("shadow", "would_write", "")
	for _, reason := range []string{"max_lag", "never_block", "expired", "unknown_version", "no_block_spec"} {
		one("shadow", "would_withhold", reason)
	}
	if got := s.Series(decisionsTotal); got != want {
		t.Errorf("%s: %d series of decisions, want %d", when, got, want)
	}
}

// What is decided all at once, and told once, is seen by a rate: its series was there at 0.
func TestDecisionsOfARuleBeginAtZero(t *testing.T) {
	s := blocktest.NewStage(t, testbed.OwnRedis(t).Server())
	wantAllDecisions(t, s, "at first")
	if n := s.Metric(decisionsTotal); n != 0 {
		t.Errorf("%v decisions before the first one", n)
	}
	var told []string
	decide := func(change func(h *detectors.Hit)) { told = append(told, s.Decide(s.Hit(change))...) }
	decide(func(*detectors.Hit) {})
	decide(func(h *detectors.Hit) { h.Phase, h.Last = detectors.PhaseUpdate, h.Last.Add(time.Second) })
	told = append(told, s.Decide(s.Release())...)
	decide(func(h *detectors.Hit) { h.ID = "again" })
	decide(func(h *detectors.Hit) { h.ID, h.BlockSubject = "private", private })
	room := blocktest.Full(t, s)
	decide(func(h *detectors.Hit) { h.ID, h.BlockSubject = "full", "device=full" })
	room()
	if got, want := fmt.Sprint(told), "[written extended released withheld released withheld never_block withheld full]"; got != want {
		t.Errorf("decided %s, want %s", got, want)
	}
	if n := s.Metric(decisionsTotal); n != float64(len(told)) {
		t.Errorf("%v decisions are counted, want %d", n, len(told))
	}
	wantAllDecisions(t, s, "of many kinds")
}
