package acceptance

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/testbed"
)

// labelRules count each of the crowd's identities, which is over the limit at once: one rule in shadow over all of them, one
// that blocks a part, also where the machine takes minutes for the crowd.
const labelRules = `
id: every-source
owner: tests
match: {}
key: [ip, device, user]
limit: 0
window: 1h
lateness: 1m
---
id: hot-address
owner: tests
match: {path: /hot}
key: [ip]
limit: 0
window: 1h
lateness: 1m
max_lag: 1h
block: {ttl: 1h}
`

const (
	labelKeyed = 4      // keyed partitions
	crowdFirst = 1_000  // identities after which no new series may come
	crowdBatch = 10_000 // events sent together
	// crowdMark is a part of everything that says who it was; addresses have a pattern of their own.
	crowdMark = "identity"
)

// crowdAll is how many identities there are: what grows with them shows after twenty times as many as were first.
func crowdAll() int {
	if testbed.AtNight() {
		return 100_000
	}
	return 20_000
}

// crowd is as many clients as come, each of another address, device and user, with hostile bytes in what else they send. Of
// twenty of them one does not say its user, one sends what is no event, and two are blocked.
type crowd struct {
	t   *testing.T
	in  *install
	hot []int
	hit int // identities that must be in history as over the limit
}

func crowdAddress(i int) string { return fmt.Sprintf("44.%d.%d.%d", i>>16, i>>8&255, i&255) }

func (c *crowd) event(i int) []byte {
	user := fmt.Sprintf(`"user":"%s-user-%d\u0007",`, crowdMark, i)
	path := fmt.Sprintf("/%s-path-%d/", crowdMark, i) + `\u0000\u202e\"\\{}=,` + "\xff"
	switch i % 20 {
	case 7:
		user = ""
	case 11:
		return []byte(fmt.Sprintf("{%s-bad-%d\x00\xff", crowdMark, i))
	case 5, 15:
		path = "/hot"
		c.hot = append(c.hot, i)
		c.hit++
	default:
		c.hit++
	}
	return []byte(fmt.Sprintf(`{"v":1,"time":%q,"ip":%q,"device":"%s-device-%d\u0000%s",%s"method":"GET","path":"%s","user_agent":"%s-agent-%d\u0000\"}%s","status":200}`,
		time.Now().UTC().Format(time.RFC3339Nano), crowdAddress(i), crowdMark, i, "\xff", user, path, crowdMark, i, "\xfe"))
}

// come sends the events of identities, and waits until all that comes of them is in history.
func (c *crowd) come(from, to int) {
	c.t.Helper()
	for ; from < to; from += crowdBatch {
		var records []*kgo.Record
		for i := from; i < min(to, from+crowdBatch); i++ {
			records = append(records, &kgo.Record{Value: c.event(i), Partition: int32(i % 2)})
		}
		produceAll(c.t, c.in, records)
	}
	testbed.Eventually(c.t, 4*time.Minute, func() error {
		var hits, blocks int
		c.in.query(`SELECT (SELECT count(*) FROM {ns}.hits_all WHERE rule = 'every-source'), (SELECT count(*) FROM {ns}.block_decisions_all WHERE action = 'written')`,
			func(rows pgx.Rows) error { return rows.Scan(&hits, &blocks) })
		if hits != c.hit || blocks != len(c.hot) {
			return fmt.Errorf("%d of %d hits and %d of %d blocks are in history", hits, c.hit, blocks, len(c.hot))
		}
		return nil
	})
}

// ask asks the gate about clients, and an operator to release one of them.
func (c *crowd) ask(identities []int) {
	c.t.Helper()
	status := func(i int) int {
		req, err := http.NewRequest(http.MethodGet, "http://"+c.in.gate+"/v1/forward-auth", nil)
		if err != nil {
			c.t.Fatal(err)
		}
		for name, value := range map[string]string{
			"X-Forwarded-For": crowdAddress(i), "X-Forwarded-Method": "GET", "X-Forwarded-Uri": fmt.Sprintf("/hot?%s-query-%d\xff", crowdMark, i),
			"X-Device-Id": fmt.Sprintf("%s-device-%d", crowdMark, i), "User-Agent": fmt.Sprintf("%s-agent-%d\xfe", crowdMark, i),
		} {
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			c.t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, i := range identities {
		want := http.StatusOK
		if slices.Contains(c.hot[max(0, len(c.hot)-1000):], i) {
			want = http.StatusTooManyRequests
		}
		testbed.Eventually(c.t, 30*time.Second, func() error {
			if got := status(i); got != want {
				return fmt.Errorf("identity %d gets %d, want %d", i, got, want)
			}
			return nil
		})
	}
	last := c.hot[len(c.hot)-1]
	c.in.Weir("blocks", "release", "hot-address", "ip="+crowdAddress(last), "--reason", fmt.Sprintf("%s-reason-%d", crowdMark, last))
}

// metricsAt is where weir run, or weir gate, says that its metrics are.
var metricsAt = regexp.MustCompile(`(?:msg="serving metrics and health" address|metrics)=(\S+)`)

// seriesLabels are the labels of a series as Prometheus' text format writes them.
var seriesLabels = regexp.MustCompile(`[a-zA-Z_]\w*="((?:[^"\\]|\\.)*)"`)

// crowdAddresses are the addresses of the crowd, whole or as a prefix, in whatever is around them.
var crowdAddresses = regexp.MustCompile(`(^|[^\d.])44\.\d+\.\d+\.`)

// series are what a process exposes, without values.
func series(t *testing.T, p *process) map[string]bool {
	t.Helper()
	log, err := os.ReadFile(p.Log())
	if err != nil {
		t.Fatal(err)
	}
	address := metricsAt.FindSubmatch(log)
	if address == nil {
		t.Fatalf("it does not say where its metrics are:\n%s", log)
	}
	resp, err := http.Get("http://" + string(address[1]) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %v", resp.StatusCode, err)
	}
	found := map[string]bool{}
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, "#") {
			found[line[:strings.LastIndexByte(line, ' ')]] = true
		}
	}
	return found
}

// TestNoLabelCarriesAnIdentity lets many thousands of clients through all stages and past a gate, at night a hundred
// thousand: after the first thousand no series is new, and none says anything about who they are.
func TestNoLabelCarriesAnIdentity(t *testing.T) {
	t.Parallel()
	in := newInstall(t, [3]int{2, labelKeyed, 2}, fmt.Sprintf("{url: %q}", testbed.Redis(t)), 0, "history: {rows_per_minute: 0}")
	in.Weir("rules", "apply", "-f", in.Write("rules.yaml", labelRules), "--reason", "tests")
	in.Weir("rules", "promote", "hot-address", "--reason", "tests", "--yes", "--override", "tests")
	stages, gate := in.start("run"), in.start("gate")
	waitForGate(t, in)
	c := &crowd{t: t, in: in}

	c.come(0, crowdFirst)
	c.ask([]int{5, 15, 16, 25, 26})
	testbed.Eventually(t, time.Minute, func() error { // until there is one, no watermark is shown
		shown := slices.Collect(maps.Keys(series(t, stages)))
		for p := range labelKeyed {
			mark := func(s string) bool {
				return strings.HasPrefix(s, "weir_detect_watermark_seconds{") && strings.Contains(s, fmt.Sprintf(`partition="%d"`, p))
			}
			if !slices.ContainsFunc(shown, mark) {
				return fmt.Errorf("keyed partition %d has no watermark yet", p)
			}
		}
		return nil
	})
	before := map[*process]map[string]bool{stages: series(t, stages), gate: series(t, gate)}
	all := crowdAll()
	c.come(crowdFirst, all)
	var asked []int
	for i := all - 1_000; i < all; i++ {
		asked = append(asked, i)
	}
	c.ask(asked)

	for p, had := range before {
		now := series(t, p)
		if len(now) < 50 {
			t.Fatalf("only %d series", len(now))
		}
		for s := range now {
			// A clock shows while its store is heard: of one without work it does not.
			if !had[s] && !strings.HasPrefix(s, "weir_clock_offset_seconds{") {
				t.Errorf("a new series: %s", s)
			}
			for _, label := range seriesLabels.FindAllStringSubmatch(s, -1) {
				if value := label[1]; strings.Contains(value, crowdMark) || crowdAddresses.MatchString(value) || len(value) > 100 {
					t.Errorf("a label says who it was: %s", s)
				}
			}
		}
		t.Logf("%d series after %d identities, %d after %d", len(had), crowdFirst, len(now), all)
	}
	stages.stop()
	gate.stop()
}
