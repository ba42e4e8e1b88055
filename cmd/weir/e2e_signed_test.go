package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/cmd/weir/internal/doctor"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/internal/testbed"
)

// forgeMode does in Redis what whoever may write there can do to block ip by the rule tokens, which is in shadow: it
// writes the mode, a block, and what tells gates. The generation is one that weir never gives.
func forgeMode(t *testing.T, redis *miniredis.Miniredis, namespace, ip string) {
	t.Helper()
	const generation = 9007199254740000
	prefix, now := namespace+":v1:", time.Now().UTC()
	hash := prefix + "rules"
	var mode map[string]any
	if err := json.Unmarshal([]byte(redis.HGet(hash, "tokens")), &mode); err != nil {
		t.Fatal(err)
	}
	delete(mode, "sig") // or left as it is: it is of another text
	mode["mode"], mode["generation"], mode["promoted"] = "block", generation, 1
	text, err := json.Marshal(mode)
	if err != nil {
		t.Fatal(err)
	}
	redis.HSet(hash, "tokens", string(text))
	const form = "2006-01-02T15:04:05.000000Z"
	block := fmt.Sprintf(`{"v":1,"action":"block","scope":"match","rule":"tokens","generation":%d,"hit":"%s",`+
		`"since":%q,"until":%q}`, generation, strings.Repeat("deadbeef", 4), now.Format(form),
		now.Add(time.Hour).Format(form))
	if err := redis.Set(prefix+"block:{ip="+ip+"%2F32}:tokens", block); err != nil {
		t.Fatal(err)
	}
	stream := prefix + "delta:{" + hash + "}:modes"
	last, err := redis.Get(stream + ":last")
	if err != nil {
		t.Fatal(err)
	}
	var number uint64
	if _, err := fmt.Sscanf(last, "%d-", &number); err != nil {
		t.Fatal(err)
	}
	for i, entry := range [][]string{{"op", "mode", "rule", "tokens", "value", string(text)}, {"op", "reload"}} {
		id := fmt.Sprintf("%d-%d", number+uint64(i)+1, 7)
		if err := redis.Set(stream+":last", id); err != nil {
			t.Fatal(err)
		}
		if _, err := redis.XAdd(stream, id, append([]string{"prev", last}, entry...)); err != nil {
			t.Fatal(err)
		}
		last = id
	}
}

// Somebody who may write to Redis blocks a client by a rule in shadow. A gate with the installation's key lets the
// client pass, says so, and doctor does; one without it does as Redis says, until ENFORCE puts the rule store's mode
// there.
func TestAModeThatRedisMakesUp(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + redis.Addr() + "/0"})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule), "--reason", "first")
	trust := decode[service.GateTrust](b, "gate", "trust")
	lines := "gate:\n  modes_key: " + trust.ModesKey + "\n  installation: " + trust.Installation + "\n"
	if said := b.ok("gate", "trust"); said != lines {
		t.Errorf("weir gate trust says\n%s", said)
	}
	enforce := b.start("run", "--stages", "enforce")
	door := func(more ...string) (checks, metrics string) {
		p := b.start(append([]string{"gate", "--listen", "127.0.0.1:0"}, more...)...)
		metrics = p.awaitLog(`forward-auth checks" address=\S+ metrics=(\S+)`)
		awaitMetric(b, metrics, "weir_blocklist_ready", func(v float64) bool { return v == 1 })
		return p.awaitLog(`forward-auth checks" address=(\S+)`), metrics
	}
	careless, _ := door()
	careful, metrics := door("--set", "gate.modes_key="+trust.ModesKey, "--set",
		"gate.installation="+trust.Installation)

	enforce.end() // which would put the rule store's mode in its place, within two seconds
	ip := "198.51.100.7"
	forgeMode(t, redis, b.flag("--namespace"), ip)
	awaitStatus(t, careless, ip, http.StatusTooManyRequests)
	refused := `weir_blocklist_modes_refused_total{namespace="` + b.flag("--namespace") + `",reason="unsigned"`
	awaitMetric(b, metrics, refused, func(v float64) bool { return v >= 1 })
	awaitMetric(b, metrics, "weir_blocklist_rules_held_back", func(v float64) bool { return v == 1 })
	if got := check(t, careful, ip).status; got != http.StatusOK {
		t.Errorf("a gate with the key answers %d for who is blocked by a rule in shadow", got)
	}
	if _, page := fetchPage(t, metrics, "/readyz"); !strings.Contains(page, "rules held as in shadow: 1") {
		t.Errorf("/readyz says %q", page)
	}
	testbed.Eventually(t, 30*time.Second, func() error {
		var found []doctor.Finding
		o := b.weir("doctor", "--output", "json")
		if err := json.Unmarshal([]byte(o.stdout), &found); err != nil {
			return fmt.Errorf("%w: %s%s", err, o.stdout, o.stderr)
		}
		var said []string
		for _, f := range found {
			if strings.Contains(f.Found, "not signed by the rule store: tokens") && f.Status == doctor.Warn ||
				strings.Contains(f.Found, "holds 1 rules as in shadow") && f.Status == doctor.Fail {
				said = append(said, f.Found)
			}
		}
		if len(said) != 2 {
			return fmt.Errorf("doctor says %q", said)
		}
		return nil
	})
	b.start("run", "--stages", "enforce")
	awaitStatus(t, careless, ip, http.StatusOK)
	awaitMetric(b, metrics, "weir_blocklist_rules_held_back", func(v float64) bool { return v == 0 })
}

// The role that docs/security.md gives weir ingest brings events, and may not read the secret, who decides what, nor
// lists of people.
func TestIngestNeedsNoSecret(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule), "--reason", "first")
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	granted := regexp.MustCompile(`(?s)GRANT SELECT ON ([^;]*) TO weir_events;`).FindSubmatch(page)
	if granted == nil || !strings.Contains(string(page), "GRANT weir_events TO weir_ingest;") {
		t.Fatal("docs/security.md does not say what weir_ingest may read")
	}
	schema := `"` + b.flag("--namespace") + `"`
	role, at := b.ownRole()
	b.administer("GRANT USAGE ON SCHEMA "+schema+" TO "+role,
		"GRANT SELECT ON "+strings.ReplaceAll(string(granted[1]), "weir.", schema+".")+" TO "+role)
	b.set("--postgres-url", at)
	b.send("198.51.100.7", 6)

	conn, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, table := range []string{"secrets", "mode_keys", "session_keys", "rule_versions", "rule_modes",
		"pending_versions", "raised_limits", "allow_versions", "hits", "audit"} {
		_, err := conn.Exec(t.Context(), "SELECT FROM "+schema+"."+table)
		if err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s is read by who brings events: %v", table, err)
		}
	}
}
