package replica

import (
	"encoding/json"
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
		Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 1, Match: rules.Held{Methods: []string{"POST"}, Path: "/v1/guest-tokens"},
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
		if _, held := table.find(&blocktest.ViewerIdentity, &rules.Target{Method: "POST", Path: path}, now); held != want {
			t.Errorf("%s: held is %v, want %v", path, held, want)
		}
	}
}

// A mode as it comes from Redis says which requests a rule's blocks hold, and one that says more than is known holds none.
func TestBlocksHoldWhatTheModeSays(t *testing.T) {
	now := traffic.At(time.Now())
	w, err := blocklist.ParseSubject(blocktest.Viewer)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		mode    string
		request rules.Target
		want    bool
	}{
		{`{"hosts":["*.test"]}`, rules.Target{Method: "GET", Path: "/", Host: "api.test"}, true},
		{`{"hosts":["*.test"]}`, rules.Target{Method: "GET", Path: "/", Host: "api.example"}, false},
		{`{"hosts":["*.test"]}`, rules.Target{Method: "GET", Path: "/"}, false},
		{`{"routes":["r"]}`, rules.Target{Method: "GET", Path: "/", Route: "r"}, true},
		{`{"routes":["r"]}`, rules.Target{Method: "GET", Path: "/"}, false},
		{`{"except":["/health"]}`, rules.Target{Method: "GET", Path: "/x"}, true},
		{`{"except":["/health"]}`, rules.Target{Method: "GET", Path: "/health"}, false},
		{`{"paths":["/a","/b"]}`, rules.Target{Method: "GET", Path: "/b"}, true},
		{`{"paths":["/a","/b"],"cookies":["c"]}`, rules.Target{Method: "GET", Path: "/b"}, false},
	} {
		var mode rules.ModeState
		text := `{"rule":"` + blocktest.FloodRule + `","mode":"block","generation":1,"match":{"methods":[""],"path":"?","reach":` + tt.mode + `}}`
		if err := json.Unmarshal([]byte(text), &mode); err != nil {
			t.Fatal(err)
		}
		table := newTable()
		table.setModes(mode)
		b := blocklist.NewBlock(blocktest.FloodRule, 1, "0123456789abcdef0123456789abcdef", now, now.Add(time.Minute))
		table.put(blocktest.Viewer, &w, &b)
		if _, held := table.find(&blocktest.ViewerIdentity, &tt.request, now); held != tt.want {
			t.Errorf("%s on %+v: held is %v", tt.mode, tt.request, held)
		}
	}
}
