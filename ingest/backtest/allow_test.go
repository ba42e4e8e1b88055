package backtest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// TestAllowListsLeaveEventsOut: a rule with a list finds what it finds without one in the log from which somebody has taken the events
// of the listed sources by hand, each by its own time; the rule beside it finds all.
func TestAllowListsLeaveEventsOut(t *testing.T) {
	const doc = "id: %s\nowner: tests\nmatch: {path: /a}\nkey: [ip]\nlimit: 3\nwindow: 20s\nlateness: 60s\n"
	end := begin.Add(10 * time.Minute)
	list := rules.AllowList{ID: "office", Owner: "tests", Entries: []rules.AllowEntry{
		{Kind: rules.AllowCIDR, Value: "192.0.2.0/28", Reason: "r", Until: traffic.At(end)},
		{Kind: rules.AllowCIDR, Value: "192.0.2.7", Reason: "r"},
	}}
	random := rand.New(rand.NewPCG(1, 2))
	var whole, rest strings.Builder
	left := int64(0)
	for i := range 6000 {
		at := begin.Add(time.Duration(i)*200*time.Millisecond - time.Duration(random.IntN(30))*time.Second)
		host := random.IntN(32)
		line := lineOf(at, fmt.Sprintf("192.0.2.%d", host), "d", "u", "/a")
		whole.WriteString(line)
		if host == 7 || host < 16 && at.Before(end) {
			left++
		} else {
			rest.WriteString(line)
		}
	}
	both := parseRules(t, fmt.Sprintf(doc, "alone"), fmt.Sprintf(doc, "listed"))
	both[1].Allow = []string{"office"}
	o := Options{Format: "weir", Rules: both, Allow: []rules.AllowList{list}, Workers: 3}
	got := run1(t, o, inMemory("whole", []byte(whole.String())))
	all := run1(t, Options{Format: "weir", Rules: parseRules(t, fmt.Sprintf(doc, "alone"))}, inMemory("whole", []byte(whole.String())))
	without := run1(t, Options{Format: "weir", Rules: parseRules(t, fmt.Sprintf(doc, "listed"))}, inMemory("rest", []byte(rest.String())))
	equalRules(t, "alone", &got.Rules[0], &all.Rules[0])
	listed := got.Rules[1]
	if want := map[string]int64{"office": left}; !maps.Equal(listed.Allowed, want) || left < 1000 || listed.Episodes == 0 {
		t.Errorf("let pass %v, want %v; %d episodes", listed.Allowed, want, listed.Episodes)
	}
	listed.Matched -= left
	equalRules(t, "listed", &listed, &without.Rules[0])
	if got.Rules[0].Allowed != nil {
		t.Errorf("a rule without lists let pass %v", got.Rules[0].Allowed)
	}
	o.Sweep = Sweep{Field: SweepLimit, Limits: []int{3, 100000}}
	if swept := run1(t, o, inMemory("whole", []byte(whole.String()))); swept.Rules[2].Episodes != listed.Episodes || swept.Rules[3].Allowed["office"] != left {
		t.Errorf("swept: %+v", swept.Rules)
	}
}
