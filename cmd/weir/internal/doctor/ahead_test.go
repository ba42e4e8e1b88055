package doctor

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Redis is compared with the rule store both ways: what is later there is a failure, what it lacks is not.
func TestModesThatRedisHasLaterAreFailures(t *testing.T) {
	stored := []rules.ModeState{
		{Rule: "ahead", Mode: rules.ModeShadow, Generation: 3, Newest: 1}, {Rule: "edited", Mode: rules.ModeBlock,
			Generation: 2, Newest: 1},
		{Rule: "same", Mode: rules.ModeBlock, Generation: 2, Newest: 1}, {Rule: "late", Mode: rules.ModeBlock,
			Generation: 5, Newest: 1},
		{Rule: "new", Mode: rules.ModeShadow, Generation: 1, Newest: 1},
	}
	inRedis := []rules.ModeState{
		{Rule: "ahead", Mode: rules.ModeBlock, Generation: 6, Newest: 1}, {Rule: "edited", Mode: rules.ModeBlock,
			Generation: 2, Newest: 2},
		{Rule: "same", Mode: rules.ModeBlock, Generation: 2, Newest: 1}, {Rule: "late", Mode: rules.ModeShadow,
			Generation: 4, Newest: 1},
		{Rule: "stranger", Mode: rules.ModeBlock, Generation: 1}, {Rule: "gone", Mode: rules.ModeOff, Generation: 7},
		{Rule: rules.ByHand, Mode: rules.ModeBlock, Generation: 1},
	}
	var told []string
	for _, f := range judgeModes(inRedis, stored) {
		if f.Status != Fail || !strings.Contains(f.Remedy, "weir migrate") {
			t.Errorf("%+v", f)
		}
		told = append(told, strings.Fields(f.Found)[1])
	}
	if got := strings.Join(told, " "); got != "ahead: edited: stranger:" {
		t.Errorf("told of %s", got)
	}
}

// A commit names a routing version that the rule store has lost.
func TestACommitOfALostRoutingVersionIsAFailure(t *testing.T) {
	commit := (&ingest.Announcement{Generation: 1, Offset: 10, End: 12, Version: 3, Prev: []int64{9, -1}}).Commit()
	for stored, want := range map[int64]Status{2: Fail, 3: OK, 4: OK, 0: OK} {
		p := progressOf{stored: stored, commits: map[int]ingest.Commit{0: commit},
			bounds: map[int]ingest.Bounds{0: {Start: 0, End: 20}}}
		f := judgeRouteCommits("stage route", p, &streams.Stream{Generation: 1})
		if f.Status != want || want == Fail && !strings.Contains(f.Found,
			"names routing version 3, and the rule store's newest is 2") {
			t.Errorf("stored %d: %+v", stored, f)
		}
	}
}

// An entry of the never-block list that Redis has and a rule store of before has not is a failure, with the command
// that adds it again; more than fit are counted.
func TestEntriesThatTheRuleStoreHasLostAreFailures(t *testing.T) {
	const now = traffic.Time(1_000_000)
	told := &blocklist.NeverEntries{Revision: 20}
	for i := range shownGates + 2 {
		told.Entries = append(told.Entries, blocklist.NeverEntry{
			Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32)})
	}
	stored := &blocklist.NeverEntries{Revision: 3, Entries: told.Entries[:1]}
	found := judgeNever(told, stored, now)
	if len(found) != shownGates+1 || !strings.Contains(found[shownGates].Found, "1 more like these") {
		t.Fatalf("%+v", found)
	}
	for _, f := range found[:shownGates] {
		if f.Status != Fail || !strings.Contains(f.Remedy, "weir never-block add 192.0.2.") {
			t.Errorf("%+v", f)
		}
	}
	if found := judgeNever(stored, told, now); len(found) > 0 {
		t.Errorf("what Redis has not heard of yet: %+v", found)
	}
}
