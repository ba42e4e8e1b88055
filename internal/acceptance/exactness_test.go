package acceptance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/testbed"
)

// TestNothingLostNothingDoubled sends a seeded live load through Kafka while weir is killed and restarted and a rule is
// edited, and has two oracles judge what came of it: the keyed log after the fence equals an independent routing of the
// requests, event by event; and the hits equal the oracle over that log.
func TestNothingLostNothingDoubled(t *testing.T) {
	t.Parallel()
	const rate = 2500
	events, kills := 30_000, 3
	if os.Getenv("WEIR_TEST_KAFKA") != "" {
		events, kills = 200_000, 10
	}
	in := newInstall(t, [3]int{4, 6, 4}, "{url: "+fmt.Sprintf("%q", testbed.Redis(t))+"}", 0)
	edits := []string{
		twoRules(30, 20, "/v1/tokens", "15m"),
		twoRules(30, 18, "/v1/tokens", "15m"),
		twoRules(30, 18, "/v1/tokens", "30m"),
		twoRules(30, 18, "/v1/*", "30m"),
		twoRules(28, 18, "/v1/*", "30m"),
		twoRules(28, 16, "/v1/*", "30m"),
	}
	apply := func(n int) {
		in.Weir("rules", "apply", "-f", in.Write("rules.yaml", edits[n]), "--reason", "load test")
	}
	apply(0)
	stream := in.stream([3]int{4, 6, 4})
	ctx := background(t)
	// Events are older than a window and its lateness, so that the load's last ones close all episodes: none waits for the idle margin,
	// which may be so long that no event is late that waits for a busy machine.
	run := []string{"run", "--set", "detect.idle_margin=5m"}
	p := in.start(run...)
	load, err := stream.StartLoad(ctx, exactness.LoadOptions{Events: events, Rate: rate, Seed: 1, Behind: 15 * time.Second, Last: true})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(7, 7))
	for n := range kills {
		waitForProgress(t, stream, load)
		waitForEvents(t, load, rnd.Int64N(rate*3/2)) // some of a second and a half
		p.kill()
		p = in.start(run...)
		if n*5/kills != (n+1)*5/kills { // five edits, spread over the kills
			apply((n + 1) * 5 / kills)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	total, err := load.Finish(bounded)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d events sent, %d kills, 5 edits", total, kills)

	judgeHits(t, stream, judgeRouting(t, stream, total))
	p.stop()
}

func twoRules(ipLimit, deviceLimit int, path, ttl string) string {
	return fmt.Sprintf(`
id: by-ip
owner: edge
match: {}
key: [ip]
limit: %d
algorithm: sliding-log
window: 5s
lateness: 5s
block: {ttl: %s}
---
id: by-device
owner: identity
match: {method: POST, path: "%s"}
key: [device]
limit: %d
algorithm: sliding-log
window: 5s
lateness: 5s
---
id: by-user-and-ip
owner: identity
match: {method: POST}
key: [user, ip]
limit: 20
algorithm: sliding-log
window: 5s
lateness: 5s
`, ipLimit, ttl, path, deviceLimit)
}

// waitForProgress returns when requests have been routed since it was called: the process that was started last works.
func waitForProgress(t *testing.T, stream *exactness.Stream, load *exactness.Load) {
	t.Helper()
	routed := func() int64 {
		n, err := stream.Routed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	start := routed()
	testbed.Eventually(t, time.Minute, func() error {
		if now := routed(); now <= start {
			return fmt.Errorf("requests are routed up to %d offsets, no further; %d are sent", now, load.Sent())
		}
		return nil
	})
}

// waitForEvents lets the load go on for so many events.
func waitForEvents(t *testing.T, load *exactness.Load, more int64) {
	t.Helper()
	goal := load.Sent() + more
	testbed.Eventually(t, time.Minute, func() error {
		if sent := load.Sent(); sent < goal {
			return fmt.Errorf("the load has sent %d events, want %d", sent, goal)
		}
		return nil
	})
}

// judgeRouting compares the keyed log after the fence with an independent routing of requests, all of which are routed.
func judgeRouting(t *testing.T, stream *exactness.Stream, total int) *exactness.Logs {
	t.Helper()
	testbed.Eventually(t, 2*time.Minute, func() error {
		routed, err := stream.Routed(t.Context())
		if err == nil && routed < int64(total) {
			err = fmt.Errorf("%d of %d requests are routed", routed, total)
		}
		return err
	})
	logs := readLogs(t, stream)
	v := logs.JudgeRouting()
	if err := v.Err(); err != nil {
		t.Errorf("routing: %v", err)
	}
	t.Logf("routing: %d requests, %d keyed records, %d accepted by the fence, %d dropped as duplicates; lost %d, doubled %d, extra %d",
		v.Requests, v.Records, v.Accepted, v.Records-v.Accepted, v.Lost, v.Doubled, v.Extra)
	if v.Accepted < v.Requests || v.Requests != total {
		t.Errorf("%d events sent, %d requests, but only %d accepted records: the load proves nothing", total, v.Requests, v.Accepted)
	}
	return logs
}

func readLogs(t *testing.T, stream *exactness.Stream) *exactness.Logs {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	logs, err := stream.ReadLogs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return logs
}

// judgeHits compares history with the oracle over the keyed log, once all episodes are closed.
func judgeHits(t *testing.T, stream *exactness.Stream, logs *exactness.Logs) {
	t.Helper()
	want := logs.Expected()
	if len(want) < 5 {
		t.Fatalf("the oracle finds %d sources over a limit: the load proves nothing", len(want))
	}
	var v exactness.Hits
	testbed.Eventually(t, 3*time.Minute, func() error {
		got, err := stream.ReadHits(t.Context())
		if err != nil {
			return err
		}
		v = want.Judge(got)
		return v.Err()
	})
	t.Logf("hits: %d sources over a limit, %d episodes, %d of them compared with counts and bounds: lost 0, doubled 0, extra 0",
		len(want), v.Episodes, v.Exact)
}

func background(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return ctx
}
