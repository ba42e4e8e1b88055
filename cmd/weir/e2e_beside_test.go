package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/internal/testbed"
)

// A source that is near the limit of a rule that blocks, and over the limit on trial beside it, is recorded as that and passes
// every gate; history tells it apart from who is over the limit, and why says that nothing comes of it.
func TestNearAndCandidateAreRecordedAndBlockNobody(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	beside := strings.Replace(tokenRule, "limit: 3\n", "limit: 8\nnear: 0.5\ncandidate: {limit: 3}\n", 1)
	if beside == tokenRule {
		t.Fatal("the rule has no limit of 3")
	}
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", beside))
	b.ok("rules", "promote", "tokens", "--reason", "test", "--yes", "--override", "tests")
	stages := b.start("run")
	door := b.start("gate", "--listen", "127.0.0.1:0")
	address := door.awaitLog(`forward-auth checks" address=(\S+)`)
	const suspect, abuser = "198.51.100.8", "198.51.100.9"
	b.send(suspect, 6)
	b.send(abuser, 12)
	awaitStatus(t, address, abuser, 429)
	var found []history.RecordedHit
	for kind, sources := range map[string]int{"hit": 1, "near": 2, "candidate": 2} {
		testbed.Eventually(t, 30*time.Second, func() error {
			found = decode[[]history.RecordedHit](b, "history", "hits", "--kind", kind)
			if len(found) != sources || string(found[0].Kind) != kind {
				return fmt.Errorf("kind %s: %d hits, want %d: %+v", kind, len(found), sources, found)
			}
			return nil
		})
	}
	for _, kind := range []string{"near", "candidate"} { // ENFORCE has seen what RECORD has
		awaitMetric(b, stages.address(), `weir_enforce_records_total{kind="`+kind+`"`, func(v float64) bool { return v >= 2 })
	}
	found = decode[[]history.RecordedHit](b, "history", "hits", "--kind", "candidate", "--source", suspect)
	if len(found) != 1 || found[0].Limit != 3 || found[0].BlockSubject == "" {
		t.Fatalf("%+v", found)
	}
	awaitWhy(b, found[0].ID, "over a limit on trial, from ", "limit 3 in 1m", "nothing comes of a hit of kind candidate", "none in history")
	if listed := b.ok("blocks", "list"); strings.Contains(listed, suspect) {
		t.Errorf("blocked for a limit on trial:\n%s", listed)
	}
	awaitStatus(t, address, suspect, 200)
	if o := b.weir("history", "hits", "--kind", "neer"); o.code == exitOK || !strings.Contains(o.stderr, "near") {
		t.Errorf("an unknown kind: exit code %d, %s", o.code, o.stderr)
	}
}
