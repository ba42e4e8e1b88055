package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/internal/testbed"
)

// token is what the configuration says of a token, whose text is its name behind "secret-of-".
func token(name, role, owners string) string {
	sum := sha256.Sum256([]byte("secret-of-" + name))
	if owners != "" {
		owners = " owners=" + owners
	}
	return fmt.Sprintf("name=%s role=%s%s sha256=%s expires=2099-01-01", name, role, owners, hex.EncodeToString(sum[:]))
}

// consoleTokens are those of an owner of identity, an owner of another team, and an analyst.
func consoleTokens() string {
	return "console.tokens=" + strings.Join([]string{token("otto", "owner", "identity"), token("olga", "owner", "payments"), token("anna", "analyst", "")}, ",")
}

// console starts weir console, or another command with one, and gives its address.
func (b *bed) console(args ...string) (p *process, address string) {
	b.t.Helper()
	p = b.start(append(args, "--console-listen", "127.0.0.1:0", "--set", consoleTokens())...)
	return p, "http://" + p.awaitLog(`serving the console" address=(\S+)`)
}

// at is somebody with a token for a server, and with nothing else: no configuration, no address of a store.
func (b *bed) at(server, name string) *bed {
	return &bed{t: b.t, flags: []string{"--server", server, "--token-file", writeFile(b.t, name, "secret-of-"+name+"\n")}}
}

// TestOwnersNeedNoStores: who has a token promotes, raises, applies, releases and looks through the console, by the commands that work on the
// stores otherwise, with the same output; the audit trail has their names, and the rules of others stay out of reach.
func TestOwnersNeedNoStores(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	const office = "---\nkind: allow\nid: office\nowner: identity\nentries:\n  - {cidr: 192.0.2.0/24, reason: ours}\n"
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", floodRule+office))
	b.ok("allow", "add", "office", "cidr=198.51.100.0/28", "--reason", "a test lab")
	web, server := b.console("console")
	otto, olga, anna := b.at(server, "otto"), b.at(server, "olga"), b.at(server, "anna")

	for _, args := range [][]string{{"rules", "list"}, {"rules", "list", "--output", "json"}, {"rules", "show",
		"flood"}, {"rules", "show", "flood", "--output", "json"}, {"rules", "history", "flood"}, {"rules", "diff",
		"flood", "1"}, {"history", "audit", "--rule", "flood"}, {"history", "hits", "--output", "csv"},
		{"allow", "list"}, {"allow", "list", "--output", "json"}, {"allow", "show", "office"},
		{"allow", "show", "office", "--output", "json"}, {"allow", "show", "office", "--version", "1"}} {
		if here, there := b.ok(args...), anna.ok(args...); strings.TrimSpace(here) != strings.TrimSpace(withoutRevision(there)) {
			t.Errorf("weir %s\nsays here\n%s\nand through the server\n%s", strings.Join(args, " "), here, there)
		}
	}
	if o := anna.weir("rules", "evidence", "flod"); o.code != exitError || !strings.Contains(o.stderr, "did you mean flood?") {
		t.Errorf("evidence through the server: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	for _, args := range [][]string{{"allow", "show", "ofice"}, {"allow", "show", "office", "--version", "9"},
		{"allow", "show", "office", "--version", "0"}} {
		here, there := b.weir(args...), anna.weir(args...)
		if here != there || here.code == exitOK {
			t.Errorf("weir %s\nsays here\n%+v\nand through the server\n%+v", strings.Join(args, " "), here, there)
		}
	}
	for _, refused := range []*bed{olga, anna} {
		if o := refused.weir("rules", "promote", "flood", "--yes", "--override", "tests", "--reason", "mine"); o.code != exitError || !strings.Contains(o.stderr, "promote needs the role owner") {
			t.Errorf("somebody else's rule: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
		}
	}
	if o := otto.weir("rules", "promote", "flood", "--yes", "--override", "tests", "--reason", "seen enough"); o.code != exitOK || !strings.Contains(o.stdout, "rule flood: mode block, generation 2") {
		t.Fatalf("his own rule: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	if m := b.publishedMode("flood"); m.Generation != 2 {
		t.Errorf("gates know %+v", m)
	}
	if o := otto.weir("rules", "set-limit", "flood", "90", "--for", "1h", "--reason", "the sale"); o.code != exitOK || !strings.Contains(o.stdout, "limit 90 until") {
		t.Errorf("set-limit: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	otto.ok("rules", "set-limit", "flood", "--clear", "--reason", "over")
	if o := olga.weir("rules", "apply", "-f", writeFile(t, "rules.yaml", strings.Replace(floodRule, "identity", "payments", 1)), "--yes"); o.code != exitError {
		t.Errorf("a rule taken over: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}

	stages := b.start("run")
	b.flood("198.51.100.7", "tv-7")
	awaitBlocks(b, 1)
	if there := decode[[]shownBlock](anna, "blocks", "list"); len(there) != 1 || there[0].Rule != "flood" {
		t.Errorf("the blocks through the server are %+v", there)
	}
	done := decode[acts.ReleaseDone](anna, "blocks", "release", "flood", "ip=198.51.100.7", "device=tv-7", "--reason", "ticket 4711")
	if !done.Done || done.Blocked == nil || !*done.Blocked {
		t.Errorf("released: %+v", done)
	}
	awaitBlocks(b, 0)
	testbed.Eventually(t, 20*time.Second, func() error {
		by := map[string]bool{}
		for _, e := range append(decode[[]audit.Entry](b, "rules", "history", "flood"), b.audited(server)...) {
			by[e.Action+" by "+e.Actor] = true
		}
		if !by["promote by token:otto"] || !by["release by token:anna"] || !by["set-limit by token:otto"] {
			return fmt.Errorf("the audit trail has %v", by)
		}
		return nil
	})
	b.weir("ingest", writeFile(t, "bad.jsonl", "no JSON\n"), "--format", "weir", "--live")
	testbed.Eventually(t, 20*time.Second, func() error {
		if here, there := b.ok("history", "dead", "--output", "json"), anna.ok("history", "dead", "--output", "json"); here != there || !strings.Contains(here, "no JSON") {
			return fmt.Errorf("the dead letters are here\n%s\nand through the server\n%s", here, there)
		}
		return nil
	})
	stages.end()
	web.end()
	if o := otto.weir("rules", "demote", "flood", "--reason", "a partner"); o.code != exitError || !strings.Contains(o.stderr, "does not answer") || strings.Contains(o.stderr, "secret-of") {
		t.Errorf("no server: exit code %d\n%s", o.code, o.stderr)
	}
}

// withoutRevision leaves out what the API has beside what commands show.
func withoutRevision(text string) string {
	var kept []string
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), `"revision"`) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// audited is the audit trail as the API tells it.
func (b *bed) audited(server string) []audit.Entry {
	b.t.Helper()
	var page api.Page[audit.Entry]
	if code := ask(b.t, server+"/api/v1/audit?limit=50", "anna", &page); code != http.StatusOK {
		b.t.Errorf("audit: %d", code)
	}
	return page.Items
}

func ask(t *testing.T, url, name string, into any) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if name != "" {
		r.Header.Set("Authorization", "Bearer secret-of-"+name)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil && response.StatusCode == http.StatusOK {
		t.Error(err)
	}
	return response.StatusCode
}

// TestRunServesTheConsole: beside the stages it knows what they count, and nobody gets in without a token.
func TestRunServesTheConsole(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	_, server := b.console("run", "--console")
	var h api.Health
	testbed.Eventually(t, 20*time.Second, func() error {
		if code := ask(t, server+"/api/v1/health", "anna", &h); code != http.StatusOK || len(h.Stages) == 0 || len(h.Unknown) > 0 {
			return fmt.Errorf("%d %+v", code, h)
		}
		return nil
	})
	for _, path := range []string{"/api/v1/health", "/api/v1/rulebook", "/api/v1/openapi.json", "/api/v1/stream"} {
		if code := ask(t, server+path, "", &struct{}{}); code != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d", path, code)
		}
	}
	if code := ask(t, server+"/api/v1/rulebook", "nobody", &struct{}{}); code != http.StatusUnauthorized {
		t.Errorf("an unknown token: %d", code)
	}
}

// TestWhatCannotAskAServerSaysSo: a command that works on the stores does not do so silently where a server was named.
func TestWhatCannotAskAServerSaysSo(t *testing.T) {
	t.Parallel()
	b := &bed{t: t, flags: []string{"--server", "http://127.0.0.1:1", "--token-file", writeFile(t, "token", "x")}}
	for _, args := range [][]string{{"rules", "export", "-o", "-"}, {"run"},
		{"doctor"}} {
		if o := b.weir(args...); o.code != exitUsage || !strings.Contains(o.stderr, "--server") {
			t.Errorf("weir %s: exit code %d\n%s", strings.Join(args, " "), o.code, o.stderr)
		}
	}
	for _, bad := range [][]string{{"--server", "http://console.example"}, {"--server", "https://user:pass@console.example"}, {"--server", "console.example"}} {
		b := &bed{t: t, flags: append(bad, "--token-file", writeFile(t, "token", "x"))}
		if o := b.weir("rules", "list"); o.code != exitUsage || strings.Contains(o.stderr, "pass") {
			t.Errorf("%v: exit code %d\n%s", bad, o.code, o.stderr)
		}
	}
	if o := (&bed{t: t, flags: []string{"--server", "http://127.0.0.1:1", "--token-file", writeFile(t, "token", "x")}}).weir("rules", "demote", "flood", "--by", "bob", "--reason", "no"); o.code != exitUsage || !strings.Contains(o.stderr, "--by") {
		t.Errorf("--by: exit code %d\n%s", o.code, o.stderr)
	}
}
