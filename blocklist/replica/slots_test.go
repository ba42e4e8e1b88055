package replica

import (
	"strings"
	"testing"
)

// A node has those slots to itself that it names and that are not on their way.
func TestOwnSlots(t *testing.T) {
	const other = "07c37d 127.0.0.1:7001@17001 master - 0 1 2 connected 5461-10922\n"
	own := func(slots string) string {
		return other + "e7d1ee 127.0.0.1:7000@17000,host myself,master - 0 0 1 connected" + slots + "\n"
	}
	for _, tt := range []struct {
		name, nodes string
		want        []int // first and last of each run
		bad         string
	}{
		{"a run and single slots", own(" 0-3 7 9"), []int{0, 3, 7, 7, 9, 9}, ""},
		{"none", own(""), nil, ""},
		{"all", own(" 0-16383"), []int{0, slotCount - 1}, ""},
		{"one goes away", own(" 0-3 [2->-07c37d]"), []int{0, 1, 3, 3}, ""},
		{"one arrives", own(" 0-3 [8-<-07c37d]"), []int{0, 3}, ""},
		{"nobody says that it is the node", other, nil, "does not name itself"},
		{"too high", own(" 0-16384"), nil, "allowed: 0 to 16383"},
		{"backwards", own(" 3-2"), nil, "allowed"},
		{"no number", own(" a-b"), nil, `slots "a-b"`},
	} {
		got, err := ownSlots(tt.nodes)
		if tt.bad != "" {
			if err == nil || !strings.Contains(err.Error(), tt.bad) {
				t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.bad)
			}
			continue
		}
		var want slotSet
		for i := 0; i < len(tt.want); i += 2 {
			for slot := tt.want[i]; slot <= tt.want[i+1]; slot++ {
				want.add(slot)
			}
		}
		if err != nil || got != want {
			t.Errorf("%s: %d slots, error %v; want %d", tt.name, got.size(), err, want.size())
		}
	}
}
