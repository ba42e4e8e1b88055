package acceptance

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// What a console is loaded with.
const (
	loadViewers = 200
	loadLists   = 12  // who do nothing but list blocks
	loadBodies  = 600 // of six addresses, which may have 128 connections each: more than a console has
	loadActs    = 8   // demotions, and as many releases
	loadProbes  = 200 // abusers that a gate comes to refuse, one after the other
	loadMemory  = 512 << 20
)

// loadSize is how large history and Redis are: more blocks than a console reads for listings.
func loadSize() (hits, blocks int) {
	if os.Getenv("WEIR_TEST_LOAD") == "full" {
		return 10_000_000, 300_000
	}
	return 200_000, 150_000
}

const loadRule = `
id: %s
owner: identity
match: {method: POST, path: /v1/%[1]s}
key: [ip]
limit: 20
window: 10m
block: {ttl: 24h}
`

// TestActsUnderALoadOfQuestions lets 200 viewers ask what is expensive, 12 list all blocks, and 600 bodies never come,
// while an admin demotes and releases at a real weir console and gates come to refuse abusers. Each act is done, each
// abuser is refused, the memory of the console is bounded, and what all that took is told.
func TestActsUnderALoadOfQuestions(t *testing.T) {
	testbed.Night(t, "200 viewers and 600 open requests take all that a machine has")
	port := testbed.FreePort(t)
	tokens := []string{loadToken("root", "admin"), loadToken("ann", "analyst")}
	for i := range loadViewers {
		tokens = append(tokens, loadToken(fmt.Sprint("v", i), "viewer"))
	}
	in := newInstall(t, [3]int{2, 4, 2}, fmt.Sprintf("{url: %q}", testbed.Redis(t)), 1, fmt.Sprintf(`console:
  listen: 127.0.0.1:%d
  tokens: [%s]
`, port, strings.Join(tokens, ", ")))
	l := &questioning{t: t, in: in, address: fmt.Sprintf("127.0.0.1:%d", port)}
	l.prepare()
	stages, console := in.start("run"), in.start("console")
	awaitConsole(t, "http://"+l.address)
	l.fill()
	gate := newGateProbe(t, in)
	for range 20 {
		gate.probe() // the first ones find connections and plans cold
	}
	quiet, quietGate := l.admin(0, "quiet"), probed(gate)

	clients := startLoadClients(t, l.address)
	testbed.Eventually(t, time.Minute, func() error {
		if now := clients.told(); now.Open < 100 || now.Asked < loadViewers {
			return fmt.Errorf("%d bodies are awaited, %d questions were answered: no load yet", now.Open, now.Asked)
		}
		return nil
	})
	begun, before := time.Now(), clients.told().Asked
	loaded, loadedGate := l.admin(1, "loaded"), probed(gate)
	rate := float64(clients.told().Asked-before) / time.Since(begun).Seconds()
	l.clients = clients.end()

	if len(quiet) != 2*loadActs || len(loaded) != 2*loadActs {
		t.Errorf("%d and %d acts were done, want %d each", len(quiet), len(loaded), 2*loadActs)
	}
	l.judge(console)
	t.Logf("demote and release, quiet: %s; loaded: %s; %.0f answers a second, %v, %d bodies were awaited, "+
		"the admin connected anew %d times", times(quiet), times(loaded), rate,
		l.clients.Answers, l.clients.Bodies, l.again)
	t.Logf("event to gate, quiet: %s; loaded: %s", times(quietGate), times(loadedGate))
	console.stop()
	stages.stop()
}

func loadToken(name, role string) string {
	return fmt.Sprintf("{name: %s, role: %s, sha256: %x, expires: 2099-01-01}", name, role,
		sha256.Sum256([]byte("the-long-token-of-"+name)))
}

// questioning is a console under load.
type questioning struct {
	t       *testing.T
	in      *install
	address string

	clients told // what those who asked say in the end
	again   int  // times that the admin connected anew
}

// prepare stores rules that block: those that are demoted, and one that blocks are released from.
func (l *questioning) prepare() {
	rules, names := []string{fmt.Sprintf(loadRule, "kept"), latencyRule}, []string{"kept", "guest-tokens"}
	for i := range 2 * loadActs {
		names = append(names, fmt.Sprintf("flood-%d", i))
		rules = append(rules, fmt.Sprintf(loadRule, names[len(names)-1]))
	}
	l.in.Weir("rules", "apply", "-f", l.in.Write("rules.yaml", strings.Join(rules, "---")), "--reason", "tests")
	for _, name := range names {
		l.in.Weir("rules", "promote", name, "--reason", "tests", "--yes", "--override", "tests")
	}
}

func loadSubject(i int) traffic.Subject {
	return traffic.Subject(fmt.Sprintf("ip=198.%d.%d.%d%%2F32", 18+i>>16, i>>8&255, i&255))
}

// fill makes history and Redis large.
func (l *questioning) fill() {
	l.t.Helper()
	testbed.Eventually(l.t, time.Minute, func() error { // the day's table is made by RECORD's keeper
		n := 0
		l.in.query(`SELECT count(*) FROM pg_inherits WHERE inhparent = '"{ns}".hits_by_day'::regclass`,
			func(rows pgx.Rows) error { return rows.Scan(&n) })
		if n == 0 {
			return fmt.Errorf("history has no day")
		}
		return nil
	})
	hits, blocks := loadSize()
	const part = 200_000
	for done := 0; done < hits; done += part {
		l.in.query(fmt.Sprintf(`INSERT INTO "{ns}".hits_by_day (day, id, rule, rule_version, lineage, phase, subject,
				block_subject, ip, grouped, rule_limit, window_ms, events, peak, first, last, seen_first, seen_last,
				cut, generation, source_partition, source_offset, keyed_partition, into_id, users, devices, samples,
				samples_rank, at_least, reason, opened, known_good, refused)
			SELECT (at AT TIME ZONE 'UTC')::date, md5(i::text || 'x'), 'kept', 1, 1, 3, s, s, ip, false, 20, 600000,
				30 + i %% 50, 26 + i %% 90, at, at, at, at, false,
				1, 1, i, i %% 4, '', i %% 9, i %% 4, '{}', 9, false, '', at, 0, 0
			FROM (SELECT i, ip, 'ip=' || host(ip) || '%%2F32' AS s,
					day + i * (now() - day) / %d AS at
				FROM (SELECT i, set_masklen('10.0.0.0'::inet + i, 32)::cidr AS ip,
					date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS day
					FROM generate_series(%d, %d) i) a) b`, hits, done+1, done+part), nil)
		if done%2_000_000 == 0 {
			l.t.Logf("%d of %d hits are there", done+part, hits)
		}
	}
	l.in.query(`ANALYZE "{ns}".hits_by_day`, nil)
	redis, err := blocklist.Connect(blocklist.Server{URL: testbed.Redis(l.t)}, l.in.ns)
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = redis.Close() }()
	now, writer := traffic.At(time.Now()), blocklist.NewWriter(redis)
	var raises []blocklist.Raise
	for i := range blocks {
		raises = append(raises, blocklist.Raise{Name: blocklist.Name{Subject: loadSubject(i), Rule: "kept"},
			Block: blocklist.NewBlock("kept", 2, fmt.Sprintf("%032x", i+1), now, now.Add(20*time.Hour))})
	}
	for part := range slices.Chunk(raises, 1000) {
		if _, err := writer.Raise(background(l.t), part); err != nil {
			l.t.Fatal(err)
		}
	}
}

// admin demotes rules and releases blocks, one after the other, and gives what each act took. The second round has
// other rules and other blocks than the first.
func (l *questioning) admin(round int, name string) (took []time.Duration) {
	l.t.Helper()
	client := from(fmt.Sprintf("127.0.4.%d", 1+round))
	defer client.CloseIdleConnections()
	for i := range loadActs {
		at := round*loadActs + i
		for _, act := range []struct {
			path string
			body map[string]any
		}{
			{fmt.Sprintf("rules/flood-%d/demote", at), map[string]any{"reason": "tests"}},
			{"rules/kept/release", map[string]any{"reason": "tests", "subject": loadSubject(at),
				"wait_ns": 30 * time.Second}},
		} {
			begun := time.Now()
			var answer *http.Response
			var err error
			for time.Since(begun) < time.Minute { // where there is no room, a connection is closed at once
				if answer, err = send(background(l.t), client, l.address, "root", http.MethodPost,
					act.path, act.body); err == nil {
					break
				}
				l.again++
				pause(background(l.t))
			}
			if err != nil {
				l.t.Errorf("%s, %s: %v", name, act.path, err)
				continue
			}
			text, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusOK {
				l.t.Errorf("%s, %s: %s, %v: %s", name, act.path, answer.Status, err, text)
				continue
			}
			took = append(took, time.Since(begun))
		}
	}
	return took
}

// judge holds what has come of the load: acts stand, no question went wrong in another way than it may, and memory is
// bounded.
func (l *questioning) judge(console *process) {
	l.t.Helper()
	demoted, released := 0, 0
	l.in.query(`SELECT (SELECT count(*) FROM "{ns}".rule_modes WHERE mode = 'shadow' AND rule LIKE 'flood-%'),
		(SELECT count(*) FROM "{ns}".audit WHERE action = 'release')`,
		func(rows pgx.Rows) error { return rows.Scan(&demoted, &released) })
	if demoted != 2*loadActs || released != 2*loadActs {
		l.t.Errorf("%d rules are demoted, %d releases are audited, want %d each", demoted, released, 2*loadActs)
	}
	for status, n := range l.clients.Answers {
		if !slices.Contains([]string{"200 OK", "404 Not Found", "429 Too Many Requests", "503 Service Unavailable",
			"no answer"}, status) {
			l.t.Errorf("%d questions were answered with %s", n, status)
		}
	}
	if l.clients.Answers["200 OK"] == 0 {
		l.t.Error("no question was answered")
	}
	if most := memoryOf(l.t, console); most > loadMemory {
		l.t.Errorf("the console took %d MiB, want %d at most", most>>20, loadMemory>>20)
	} else {
		l.t.Logf("the console took %d MiB", most>>20)
	}
}

// memoryOf is the most memory that a process had, in bytes.
func memoryOf(t testing.TB, p *process) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if figure, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(figure, "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("the system does not say how much memory a process had")
	return 0
}
