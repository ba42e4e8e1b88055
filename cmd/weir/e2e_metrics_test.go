package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// series reads a page of metrics: values by series, which stand without the namespace and the stream that all of them must have.
func series(namespace, stream, page string) (map[string]float64, error) {
	all := map[string]float64{}
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "weir_") {
			continue
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		for _, own := range []string{`namespace="` + namespace + `"`, `stream="` + stream + `"`} {
			if !strings.Contains(name, own) {
				return nil, fmt.Errorf("%q lacks %s", line, own)
			}
			name = strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(name, own+",", ""), ","+own, ""), own, "")
		}
		name += "}"
		all[name] = n
	}
	return all, nil
}

// awaitSeries waits until a process shows what is wanted. A series wanted at -1 must not be there.
func awaitSeries(b *bed, address string, want map[string]float64) {
	b.t.Helper()
	testbed.Eventually(b.t, 30*time.Second, func() error {
		code, page := fetchPage(b.t, address, "/metrics")
		if code != http.StatusOK {
			return fmt.Errorf("answered %d", code)
		}
		got, err := series(b.flag("--namespace"), "live", page)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			n, ok := got[name]
			if !ok {
				n = -1
			}
			if n != want[name] {
				err = errors.Join(err, fmt.Errorf("%s is %v, want %v", name, n, want[name]))
			}
		}
		return err
	})
}

// What the metrics by rule say while a rule goes from shadow to block, is started anew, and is removed.
func TestMetricsFollowARule(t *testing.T) {
	t.Parallel()
	b := standaloneBed(t)
	const metricsAt, of = `serving metrics and health" address=(\S+)`, `{mode="%s",owner="identity",rule="tokens",version="1"}`
	stages, door := b.start("run"), b.start("gate", "--listen", "127.0.0.1:0")
	address, guard := stages.awaitLog(metricsAt), door.awaitLog(`metrics=(\S+)`)
	checks := door.awaitLog(`forward-auth checks" address=(\S+)`)
	shadow, block := "weir_rule_info"+fmt.Sprintf(of, "shadow"), "weir_rule_info"+fmt.Sprintf(of, "block")
	const wouldWrite = `weir_enforce_decisions_total{action="would_write",mode="shadow",reason="",rule="tokens"}`
	const written = `weir_enforce_decisions_total{action="written",mode="block",reason="",rule="tokens"}`
	const wouldBe, inForce = `weir_blocks{mode="shadow",rule="tokens"}`, `weir_blocks{mode="block",rule="tokens"}`
	awaitSeries(b, address, map[string]float64{shadow: 1, wouldWrite: 0, written: 0, wouldBe: 0, inForce: -1})
	testbed.Eventually(t, 30*time.Second, func() error { // before the blocklist is loaded checks are answered, and counted, otherwise
		if code, body := fetchPage(t, guard, "/readyz"); code != http.StatusOK {
			return fmt.Errorf("/readyz of the gate answers %d %s", code, body)
		}
		return nil
	})

	b.send("198.51.100.7", 6)
	awaitSeries(b, address, map[string]float64{wouldWrite: 1, wouldBe: 1, written: 0, "weir_event_to_block_seconds_count{}": 0})

	b.ok("rules", "promote", "tokens", "--reason", "seen enough", "--yes", "--override", "tests")
	// Who is over the limit when the rule is promoted is held at once.
	awaitSeries(b, address, map[string]float64{shadow: -1, block: 1, wouldBe: -1, inForce: 1, written: 1})
	b.send("198.51.100.8", 6)
	awaitStatus(t, checks, "198.51.100.8", http.StatusTooManyRequests)
	awaitSeries(b, address, map[string]float64{written: 2, inForce: 2, "weir_event_to_block_seconds_count{}": 1})
	awaitSeries(b, guard, map[string]float64{
		`weir_blocklist_blocks{rule="tokens"}`: 2, `weir_gate_decisions_total{decision="refuse",protocol="forward_auth",rule="tokens"}`: 1,
		`weir_gate_decisions_total{decision="fail_open",protocol="forward_auth",rule=""}`: 0,
	})
	server := strings.TrimSuffix(strings.TrimPrefix(b.flag("--redis-url"), "redis://"), "/0")
	tells := os.Getenv(testbed.RedisKind.Env()) != "" // the embedded server knows no memory of its own
	testbed.Eventually(t, 30*time.Second, func() error {
		if _, page := fetchPage(t, address, "/metrics"); strings.Contains(page, `node="`+server) != tells {
			return fmt.Errorf("the memory of Redis at %s is shown: %t, want %t", server, !tells, tells)
		}
		return nil
	})

	stages.end()
	address = b.start("run").awaitLog(metricsAt)
	awaitSeries(b, address, map[string]float64{inForce: 2}) // what stands may be told again: its owner does not know that it was

	b.ok("rules", "demote", "tokens", "--reason", "enough")
	awaitSeries(b, address, map[string]float64{shadow: 1, inForce: -1, wouldBe: 0})
	b.ok("rules", "apply", "--prune", "-f", writeFile(t, "other.yaml", strings.ReplaceAll(tokenRule, "id: tokens", "id: other")))
	awaitSeries(b, address, map[string]float64{shadow: -1, wouldBe: -1, written: -1, wouldWrite: -1, `weir_blocks{mode="shadow",rule="other"}`: 0})
}

// What a condition cannot judge is counted for its rule by its reason, from requests that really come; what it judges is not.
func TestMetricsTellWhatConditionsCannotJudge(t *testing.T) {
	t.Parallel()
	b := standaloneBed(t)
	b.ok("rules", "apply", "--yes", "-f", writeFile(t, "seats.yaml", "id: seats\nowner: tests\nmatch: {path: /seats, when: 'event.attrs.seats > 5 || 10 / event.attrs.share > 5'}\n"+
		"key: [ip]\nlimit: 100\nwindow: 1m\n"))
	stages := b.start("run")
	address := stages.awaitLog(`serving metrics and health" address=(\S+)`)
	const ofType, ofValue = `weir_route_rule_condition_errors_total{reason="type",rule="seats"}`, `weir_route_rule_condition_errors_total{reason="value",rule="seats"}`
	const watched = `weir_route_rule_events_total{outcome="matched",rule="seats"}`
	awaitSeries(b, address, map[string]float64{ofType: 0, ofValue: 0, watched: 0})

	var log strings.Builder
	for _, attrs := range []string{
		`{"seats":6}`, `{"seats":1,"share":1}`, `{"seats":1}`, `{}`, // judged: two hold, and two do not
		`{"seats":"6"}`, `{"seats":"7"}`, `{"seats":"8","share":9}`, // an order between a text and a number
		`{"seats":6,"share":0}`, `{"seats":"6","share":1}`, // the rest decides
		`{"seats":1,"share":0}`, `{"share":0}`, // a division by zero
	} {
		fmt.Fprintf(&log, `{"v":1,"time":%q,"ip":"198.51.100.7","path":"/seats","attrs":%s}`+"\n", time.Now().UTC().Format(time.RFC3339Nano), attrs)
	}
	b.ok("ingest", writeFile(t, "seats.jsonl", log.String()), "--format", "weir", "--live")
	awaitSeries(b, address, map[string]float64{ofType: 3, ofValue: 2, watched: 4})
	stages.end()
}
