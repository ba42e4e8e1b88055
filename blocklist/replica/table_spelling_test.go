package replica

import (
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// A gateway reports the path that it has normalised, and hands the gate the one that the client wrote.
func TestSpellingIsNoWayOutOfABlock(t *testing.T) {
	now := traffic.At(time.Now())
	table := newTable()
	table.setModes(rules.ModeState{
		Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 1, Match: rules.Match{Methods: []string{"POST"}, Path: "/v1/guest-tokens"},
	})
	w, err := blocklist.ParseSubject(blocktest.Viewer)
	if err != nil {
		t.Fatal(err)
	}
	table.put(blocktest.Viewer, &w, &blocklist.Block{Rule: blocktest.FloodRule, Generation: 1, Hit: "h", Since: now, Until: now.Add(time.Minute)})
	for path, want := range map[string]bool{
		"/v1/guest-tokens": true, "/v1/%67uest-tokens": true, "/v1%2fguest-tokens": true, "//v1/./guest-tokens": true,
		"/v1/x/../guest-tokens?a": true, "/v1/guest-tokens/": true, "/v1/other": false, "/v1/%6Fther": false,
	} {
		if _, held := table.find(&blocktest.ViewerIdentity, "POST", path, now); held != want {
			t.Errorf("%s: held is %v, want %v", path, held, want)
		}
	}
}
