package acceptance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/testbed"
)

// TestEditsOfEveryKind edits rules in every way that there is while weir runs under load, and kills it around the edits. Two oracles judge
// what came of it, which take rules, versions that are pending, candidates, tiers, allow lists and raised limits from the routing version that each record of
// the keyed log names; and an edit acts within two seconds.
func TestEditsOfEveryKind(t *testing.T) {
	t.Parallel()
	const rate = 1500
	in := newInstall(t, [3]int{4, 6, 4}, "{url: "+fmt.Sprintf("%q", testbed.Redis(t))+"}", 0)
	weir := func(args ...string) { in.Weir(append(args, "--reason", "load test")...) }
	set := func(args ...string) { weir(append([]string{"rules"}, args...)...) }
	apply := func(ipLimit, deviceLimit int, more string) {
		text := twoRules(ipLimit, deviceLimit, "/v1/tokens", "15m")
		text = strings.Replace(text, "id: by-device\n", "id: by-device\nallow: [friends]\n"+more, 1)
		set("apply", "-f", in.Write("rules.yaml", text), "--yes")
	}
	set("apply", "-f", in.Write("friends.yaml", "kind: allow\nid: friends\nowner: edge\nentries: []\n"), "--yes")
	apply(30, 20, "")
	set("promote", "by-ip", "--yes", "--override", "load test")
	stream := in.stream([3]int{4, 6, 4})
	ctx := background(t)
	run := []string{"run", "--set", "detect.idle_margin=10s"}
	p := in.start(run...)
	load, err := stream.StartLoad(ctx, exactness.LoadOptions{Events: 30_000, Rate: rate, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	waitForProgress(t, stream, load)
	killed := func() {
		p.kill()
		p = in.start(run...)
		waitForProgress(t, stream, load)
	}
	edits, began := 0, time.Now()
	edit := func(do func()) {
		do()
		edits++
		waitForEvents(t, load, rate)
	}
	const candidate = "candidate: {limit: 9}\n"
	for round := range 4 {
		ip, device := 32+round, 18-round
		tiers := fmt.Sprintf("tiers:\n  - {when: 'event.device == \"bot-%d\"', limit: %d}\n  - {when: 'event.device == \"bot-3\"', limit: 40}\n", round%3, 6+round)
		friend := fmt.Sprintf("cidr=203.0.113.%d", 1+round%3)
		edit(func() { apply(ip, device, "") })                                                     // a limit
		edit(func() { apply(ip, device, candidate) })                                              // a candidate
		edit(func() { apply(ip, device, candidate+tiers) })                                        // tiers
		edit(func() { weir("allow", "add", "friends", friend, "--until", "3s") })                  // an allow entry that ends by itself
		edit(func() { apply(16, device, candidate+tiers) })                                        // a version that is pending
		edit(func() { set("set-limit", "by-ip", "60", "--for", "4s") })                            // a limit that is raised, and ends by itself
		edit(func() { apply(16, device, strings.Replace(candidate, "9", "12", 1)+tiers) })         // a candidate of another limit
		edit(func() { weir("allow", "add", "friends", "cidr=203.0.113.150", "cidr=203.0.113.3") }) // entries without end
		edit(func() { set("set-limit", "by-device", "40", "--for", "1h") })                        // tiers are raised, too
		switch round {
		case 0, 1:
			killed() // beside a pending version, while a limit is raised
		case 2:
			edit(func() { apply(12, device, candidate) }) // another version that is pending
			edit(func() { set("rollback", "by-ip") })     // and its rollback
			edit(func() { apply(16, device, candidate+tiers) })
		}
		edit(func() { set("promote", "by-ip", "--pending", "--yes", "--override", "load test") })
		if round == 3 {
			killed() // after the promotion
		}
		edit(func() { set("set-limit", "by-device", "--clear") })
		edit(func() { weir("allow", "remove", "friends", "cidr=203.0.113.150", "cidr=203.0.113.3") })
	}
	edit(func() { set("demote", "by-ip") })
	t.Logf("%d edits and 3 kills in %v", edits, time.Since(began).Round(time.Second))
	if edits < 50 {
		t.Errorf("%d edits, want 50", edits)
	}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	total, err := load.Finish(bounded)
	if err != nil {
		t.Fatal(err)
	}
	logs := judgeRouting(t, stream, total)
	judgeHits(t, stream, logs)
	judgeDelays(t, stream, logs)
	if n := logs.Expected().Count(" candidate"); n < 5 {
		t.Errorf("the oracle finds %d sources over a limit on trial: the load proves nothing", n)
	}
	p.stop()
}

// judgeDelays holds that edits act within two seconds: half of them do on a machine that is busy with other tests, all do that are not made
// around a kill on one that is not.
func judgeDelays(t *testing.T, stream *exactness.Stream, logs *exactness.Logs) {
	t.Helper()
	delays, err := stream.Delays(t.Context(), logs)
	if err != nil {
		t.Fatal(err)
	}
	var sorted []time.Duration
	for _, d := range delays {
		sorted = append(sorted, d)
	}
	slices.Sort(sorted)
	in := 0
	for _, d := range sorted {
		if d <= 2*time.Second {
			in++
		}
	}
	median := sorted[len(sorted)/2]
	t.Logf("edits act after %v in the median, %d of %d within 2 s; all: %v", median.Round(time.Millisecond), in, len(sorted), sorted)
	if median > 2*time.Second {
		t.Errorf("half of %d edits act after %v, want 2 s at most", len(sorted), median)
	}
}
