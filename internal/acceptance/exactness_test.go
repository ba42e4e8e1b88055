package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/testbed"
)

// TestNothingLostNothingDoubled sends a seeded live load through Kafka while weir is killed and restarted and a rule is
// edited, and has two oracles judge what came of it: the keyed log after the fence equals an independent routing of the
// requests, event by event; and the hits equal the oracle over that log.
func TestNothingLostNothingDoubled(t *testing.T) {
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
		in.weir("rules", "apply", "-f", in.write("rules.yaml", edits[n]), "--reason", "load test")
	}
	apply(0)
	load := startLoad(t, in, events)
	p := in.start("run")
	rnd := rand.New(rand.NewPCG(7, 7))
	for n := range kills {
		waitForProgress(t, in, load)
		pauseFor(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		p.kill()
		p = in.start("run")
		if n*5/kills != (n+1)*5/kills { // five edits, spread over the kills
			apply((n + 1) * 5 / kills)
		}
	}
	load.wait()
	t.Logf("%d events sent, %d kills, 5 edits", load.total, kills)

	judgeRouting(t, in, load)
	judgeHits(t, in)
	p.stop()
}

func twoRules(ipLimit, deviceLimit int, path, ttl string) string {
	return fmt.Sprintf(`
id: by-ip
owner: edge
match: {}
key: [ip]
limit: %d
window: 5s
lateness: 5s
block: {ttl: %s}
---
id: by-device
owner: identity
match: {method: POST, path: "%s"}
key: [device]
limit: %d
window: 5s
lateness: 5s
---
id: by-user-and-ip
owner: identity
match: {method: POST}
key: [user, ip]
limit: 20
window: 5s
lateness: 5s
`, ipLimit, ttl, path, deviceLimit)
}

// waitForProgress returns when requests have been routed since it was called: the process that was started last works.
func waitForProgress(t *testing.T, in *install, load *load) {
	t.Helper()
	routed := func() (sum int64) {
		in.query(`SELECT coalesce(sum(log_offset), 0)::bigint FROM {ns}.partition_states WHERE stream = 'live' AND side = 'requests'`,
			func(rows pgx.Rows) error { return rows.Scan(&sum) })
		return sum
	}
	start := routed()
	testbed.Eventually(t, time.Minute, func() error {
		if now := routed(); now <= start {
			return fmt.Errorf("requests are routed up to %d offsets, no further; %d are sent", now, load.sent.Load())
		}
		return nil
	})
}

func pauseFor(d time.Duration) { <-time.After(d) }

// judgeRouting compares the keyed log after the fence with an independent routing of requests.
func judgeRouting(t *testing.T, in *install, load *load) {
	t.Helper()
	testbed.Eventually(t, 2*time.Minute, func() error {
		left := load.total
		in.query(`SELECT log_offset FROM {ns}.partition_states WHERE stream = 'live' AND side = 'requests'`, func(rows pgx.Rows) error {
			var offset int64
			err := rows.Scan(&offset)
			left -= int(offset)
			return err
		})
		if left > 0 {
			return fmt.Errorf("%d of %d requests are not routed", left, load.total)
		}
		return nil
	})
	j := readLogs(t, in)
	j.judge(t)
	t.Logf("routing: %d requests, %d keyed records, %d accepted by the fence, %d dropped as duplicates; lost %d, doubled %d, extra %d",
		j.requests, j.records, j.accepted, j.records-j.accepted, j.lost, j.doubled, j.extra)
	if j.accepted < j.requests {
		t.Errorf("%d requests, but only %d accepted records: the load proves nothing", j.requests, j.accepted)
	}
}

// judgeHits compares history with the oracle over the keyed log. Episodes close about 70 s after the last event: the
// idle margin, a window and the lateness.
func judgeHits(t *testing.T, in *install) {
	t.Helper()
	want := readLogs(t, in).episodes(t)
	if len(want) < 5 {
		t.Fatalf("the oracle finds %d sources over a limit: the load proves nothing", len(want))
	}
	testbed.Eventually(t, 3*time.Minute, func() error { return want.compare(readHits(in)) })
	episodes, exact := 0, 0
	for _, w := range want {
		episodes += len(w.episodes)
		if w.inOrder {
			exact += len(w.episodes)
		}
	}
	t.Logf("hits: %d sources over a limit, %d episodes, %d of them compared with counts and bounds: lost 0, doubled 0, re-opened 0",
		len(want), episodes, exact)
}

// hitRow is what history says of one episode.
type hitRow struct {
	rule, subject string
	lineage       int64
	closed        bool
	first, last   time.Time
	events        int64
}

func readHits(in *install) []hitRow {
	var out []hitRow
	in.query(`SELECT rule, lineage, subject, phase = 3, first, last, events FROM {ns}.hits WHERE stream = 'live' AND phase <> 4`,
		func(rows pgx.Rows) error {
			var h hitRow
			err := rows.Scan(&h.rule, &h.lineage, &h.subject, &h.closed, &h.first, &h.last, &h.events)
			out = append(out, h)
			return err
		})
	return out
}

// compare says how history differs from what is expected.
func (want expectations) compare(got []hitRow) error {
	bySource := map[string][]hitRow{}
	for _, h := range got {
		if !h.closed {
			return fmt.Errorf("%s %s is still open", h.rule, h.subject)
		}
		key := fmt.Sprintf("%s/%d %s", h.rule, h.lineage, h.subject)
		bySource[key] = append(bySource[key], h)
	}
	for key, hits := range bySource {
		if _, ok := want[key]; !ok {
			return fmt.Errorf("%s: %d episodes that the oracle does not have", key, len(hits))
		}
	}
	for key, w := range want {
		hits := bySource[key]
		slices.SortFunc(hits, func(a, b hitRow) int { return a.first.Compare(b.first) })
		if len(hits) != len(w.episodes) {
			return fmt.Errorf("%s: %d episodes, the oracle has %d", key, len(hits), len(w.episodes))
		}
		for i, e := range w.episodes {
			h := hits[i]
			if w.inOrder && (h.first.UnixMicro() != e.First || h.last.UnixMicro() != e.Last || h.events != e.Count) {
				return fmt.Errorf("%s episode %d: %d events from %v to %v, the oracle says %d from %v to %v", key, i,
					h.events, h.first.UTC(), h.last.UTC(), e.Count, time.UnixMicro(e.First).UTC(), time.UnixMicro(e.Last).UTC())
			}
		}
	}
	return nil
}

// routingDocument is the published part of a routing version that the oracle needs.
type routingDocument struct {
	Rules []struct {
		ID      string `json:"id"`
		Lineage int    `json:"lineage"`
		Match   struct {
			Methods []string `json:"methods"`
			Path    string   `json:"path"`
		} `json:"match"`
		Key []struct {
			Field string `json:"field"`
		} `json:"key"`
		Limit    int           `json:"limit"`
		Window   time.Duration `json:"window"`
		Lateness time.Duration `json:"lateness"`
	} `json:"rules"`
}

func readRoutings(t *testing.T, in *install) map[int64]routingDocument {
	t.Helper()
	out := map[int64]routingDocument{}
	in.query(`SELECT number, document FROM {ns}.routing_versions WHERE stream = 'live'`, func(rows pgx.Rows) error {
		var number int64
		var document string
		if err := rows.Scan(&number, &document); err != nil {
			return err
		}
		var d routingDocument
		err := json.Unmarshal([]byte(document), &d)
		out[number] = d
		return err
	})
	return out
}

func readSecret(t *testing.T, in *install) (secret []byte) {
	t.Helper()
	in.query(`SELECT value FROM {ns}.secrets`, func(rows pgx.Rows) error { return rows.Scan(&secret) })
	if len(secret) == 0 {
		t.Fatal("the installation has no secret")
	}
	return secret
}

func background(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return ctx
}
