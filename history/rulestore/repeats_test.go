package rulestore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRepeatsAreCounted has the same rule come each two seconds for a day: the first is told, the number of the others,
// and each rule that is new.
func TestRepeatsAreCounted(t *testing.T) {
	t.Parallel()
	p, now := new(Repeats), time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	var told []string
	tell := func(names ...string) repeated {
		r := p.look(nil, names, now)
		p.done(r, now)
		now = now.Add(2 * time.Second)
		return r
	}
	for range 12 * 3600 / 2 {
		if r := tell("lost"); !r.quiet {
			told = append(told, r.count)
		}
	}
	if len(told) != 4*12 || told[0] != "" || told[1] != "the like was done 10 times more since 2026-11-30T00:00:00Z" ||
		!strings.HasPrefix(told[3], "the like was done 1000 times more") ||
		told[4] != "the like was done 1799 times more since 2026-11-30T00:00:00Z" {
		t.Errorf("told %d times: %q", len(told), told[:min(5, len(told))])
	}
	if r := tell("lost", "other"); r.quiet {
		t.Error("of a rule that comes for the first time nothing is told")
	}
	entries := 0
	for i := range 1000 {
		if !tell(fmt.Sprint("made-up-", i)).quiet {
			entries++
		}
	}
	if entries > mostTold+4 || entries < mostTold-10 {
		t.Errorf("of names that are made up there are %d entries", entries)
	}
	for _, rule := range []string{"walk", "run"} { // however many names were made up
		if r := p.look([]string{rule}, []string{"made-up-1"}, now); r.quiet {
			t.Errorf("of rule %s, which the store has, nothing is told", rule)
		} else {
			p.done(r, now)
		}
		if r := p.look([]string{rule}, nil, now); !r.quiet {
			t.Errorf("rule %s is told again", rule)
		}
	}
	if r := p.look([]string{"walk", "new"}, nil, now); r.quiet || !slices.Equal(r.known, []string{"walk"}) {
		t.Errorf("of a new rule beside one that was told: quiet %t, known %q", r.quiet, r.known)
	}
	// What was not stored was not told.
	fresh := new(Repeats)
	for range 3 {
		if fresh.look([]string{"lost"}, nil, now).quiet {
			t.Error("what was not stored counts as told")
		}
	}
	if r := (*Repeats)(nil).look(nil, []string{"lost"}, now); r.quiet || !r.fresh {
		t.Error("nothing is remembered, and it is not told")
	}
}
