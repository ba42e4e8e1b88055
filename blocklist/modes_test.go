package blocklist

import (
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
