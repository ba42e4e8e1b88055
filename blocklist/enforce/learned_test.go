package enforce

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const flood = "guest-token-flood"

// versionStore has any version of one rule.
type versionStore struct {
	rule  string
	block *rules.Block
	edit  func(v *rules.Version)
}

func (s *versionStore) RuleVersion(_ context.Context, id string, number int) (*rules.Version, bool, error) {
	if id != s.rule {
		return nil, false, nil
	}
	v := &rules.Version{Document: rules.Document{ID: id, Block: s.block}, Number: number}
	if s.edit != nil {
		s.edit(v)
	}
	return v, true, nil
}

// Every version is asked for once, one without a block, too: what is learned ahead goes on while releases wait behind it. A
// version that does not exist may exist a moment later.
func TestAVersionWithoutABlockIsAskedForOnce(t *testing.T) {
	asked := map[int]int{}
	store := &versionStore{rule: flood, block: &rules.Block{TTL: time.Minute, Extend: rules.ExtendOnHit}}
	store.edit = func(v *rules.Version) {
		if asked[v.Number]++; v.Number < 12 {
			v.Block = nil
		}
	}
	now := traffic.Time(1)
	v := newVersions(store, func() traffic.Time { return now }, slog.New(slog.DiscardHandler))
	mode := rules.ModeState{Rule: flood, Mode: rules.ModeBlock, Generation: 1, Promoted: 12, Newest: 12}
	for range 3 {
		v.prefetch(t.Context(), map[string]rules.ModeState{flood: mode}, now)
		now = now.Add(modesMaxAge)
		for number, want := range map[int]string{5: blocklist.ReasonNoSpec, 12: ""} {
			if _, got := v.allows(t.Context(), &detectors.Hit{Rule: flood, RuleVersion: number}, &mode); got != want {
				t.Errorf("version %d: reason %q, want %q", number, got, want)
			}
		}
	}
	for number := 1; number <= 12; number++ {
		if asked[number] != 1 {
			t.Errorf("version %d was asked for %d times, want once", number, asked[number])
		}
	}

	late := &detectors.Hit{Rule: "made-late", RuleVersion: 1}
	mode.Promoted = 1
	if _, got := v.allows(t.Context(), late, &mode); got != blocklist.ReasonNoSpec {
		t.Errorf("a version that does not exist: reason %q, want %q", got, blocklist.ReasonNoSpec)
	}
	store.rule = late.Rule
	store.edit = nil
	if _, got := v.allows(t.Context(), late, &mode); got != "" {
		t.Errorf("the same, now that it exists: reason %q", got)
	}
}
