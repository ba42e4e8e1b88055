package blocklist

import (
	"encoding/json"
	"testing"

	"github.com/weirhq/weir/rules"
)

// A version that the rule store of this process has not heard of yet is not replaced by an older one.
func TestAModeOfANewerVersionIsNotBehind(t *testing.T) {
	ahead := rules.ModeState{Rule: someRule, Mode: rules.ModeShadow, Generation: 3, Newest: 7, Match: rules.Held{Path: "/v1/guest-tokens"}}
	stale := rules.ModeState{Rule: someRule, Mode: rules.ModeBlock, Generation: 3, Newest: 1, Match: rules.Held{Path: "/v0"}}
	if isBehind, err := modeIsBehind(encode(&ahead), &stale); err != nil || isBehind {
		t.Errorf("a version that the publisher has not seen yet counts as behind: %v", err)
	}
}

// olderMode is an entry of the modes as a build reads and writes it that knows of no canary.
type olderMode struct {
	Rule       string     `json:"rule"`
	Mode       string     `json:"mode"`
	Generation int64      `json:"generation"`
	Match      rules.Held `json:"match"`
	Promoted   int        `json:"promoted,omitempty"`
	Newest     int        `json:"newest,omitempty"`
}

// Two builds publish side by side: what one writes of a canary the other one leaves, or makes whole, and neither goes on for ever. A gate of
// the older build refuses nobody for a canary, whoever wrote the entry.
func TestACanaryBesideAnOlderBuild(t *testing.T) {
	ours := rules.ModeState{Rule: someRule, Mode: rules.ModeCanary, Generation: 3, Newest: 1, Promoted: 1, Share: 1000, Match: rules.Held{Path: "/a"}}
	var theirs olderMode
	if err := json.Unmarshal([]byte(encode(&ours)), &theirs); err != nil {
		t.Fatal(err)
	}
	if theirs.Mode == "block" || theirs.Mode == "shadow" || theirs.Generation != 3 {
		t.Errorf("a gate of the older build reads %+v", theirs)
	}
	// They read the same columns of the rule store, and write what they know.
	theirText := encode(&theirs)
	if isBehind, err := modeIsBehind(theirText, &ours); err != nil || !isBehind {
		t.Errorf("the share that the older build left out is not put back: %v", err)
	}
	if again := encode(&theirs); again != theirText {
		t.Errorf("the older build would write %s over ours", again)
	}
	// Within a generation a canary goes on and never back, whoever is late.
	next, end := ours, ours
	next.Share, end.Mode, end.Share = 5000, rules.ModeBlock, 0
	for _, tt := range []struct {
		what         string
		known, given *rules.ModeState
		behind       bool
	}{
		{"a step", &ours, &next, true}, {"a late step", &next, &ours, false},
		{"the end", &next, &end, true}, {"a step after the end", &end, &next, false}, {"the same", &next, &next, false},
	} {
		if got, err := modeIsBehind(encode(tt.known), tt.given); err != nil || got != tt.behind {
			t.Errorf("%s: behind is %v, %v", tt.what, got, err)
		}
	}
	block := Block{Generation: 3}
	for m, holds := range map[*rules.ModeState]bool{&ours: true, &end: true, {Mode: rules.ModeCanary, Generation: 4}: false, {Mode: rules.ModeShadow, Generation: 3}: false} {
		if got := block.InForce(m); got != holds {
			t.Errorf("under mode %s, generation %d: %v", m.Mode, m.Generation, got)
		}
	}
}
