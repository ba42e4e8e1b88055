package adversary

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// gateway is one of the proxies that clients talk to.
type gateway struct {
	name      string
	format    string   // of its access log
	logs      []string // paths
	addresses []string // one for each API behind it
}

// identityMap is that of all tests here: an edge whose word is believed, users by the header that it sets, sessions by a
// cookie, devices by what clients say. It is JSON, and so YAML too.
const identityMap = `{"ip": {"trusted_proxies": ["127.0.0.1/32"]}, "device": {"header": "X-Device-Id"},
  "user": {"header": "X-User-Id", "vouched": true}, "session": {"header": "", "cookie": "sid", "vouched": true}}`

// The rules watch one operation, and count it by who asks for it.
const (
	ruleLimit = 5
	ruleText  = `
id: tokens-by-%[1]s
owner: tests
match: {method: POST, path: ` + operation + `}
key: [%[2]s]
limit: %[3]d
window: 1h
block: {ttl: 1h}
`
)

func ruleNames() map[string]string { // and their keys
	return map[string]string{"tokens-by-ip": "ip", "tokens-by-user": "user", "tokens-by-session": "session", "tokens-by-device": "ip, device"}
}

func ruleDocuments() string {
	var b strings.Builder
	for name, key := range ruleNames() {
		fmt.Fprintf(&b, "---"+ruleText, strings.TrimPrefix(name, "tokens-by-"), key, ruleLimit)
	}
	return b.String()
}

// startGate runs weir gate over a Redis in which the clients that are blocked are blocked, and returns where it answers.
func startGate(t *testing.T, all []*client) string {
	t.Helper()
	url, namespace := testbed.Redis(t), testbed.Namespace(t)
	place(t, url, namespace, all)
	w := testbed.NewWorkplace(t)
	listen, metrics := address(t), address(t)
	w.Write("weir.yaml", fmt.Sprintf("namespace: %s\nredis: {url: %q}\nhttp: {listen: %q}\ngate: {listen: %q}\nidentity: %s\n", namespace, url, metrics, listen, identityMap))
	running := testbed.Run(t, w.Command(context.Background(), "gate"))
	testbed.Eventually(t, time.Minute, func() error {
		if err := running.Alive(); err != nil {
			t.Fatal(err)
		}
		return exec.Command("curl", "-sf", "http://"+metrics+"/readyz").Run()
	})
	return listen
}

// place writes the blocks as docs/blocks.md describes them.
func place(t *testing.T, url, namespace string, all []*client) {
	t.Helper()
	client := testbed.RedisServer{Kind: testbed.RedisKind, URL: url}.Client(t)
	keys, err := blocklist.NewKeys(namespace)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	stamp := func(at time.Time) string { return at.Format("2006-01-02T15:04:05.000000Z") }
	set := func(command redis.Cmder) {
		if command.Err() != nil {
			t.Fatal(command.Err())
		}
	}
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	set(client.Set(t.Context(), keys.Epoch(), "tests", 0))
	for rule := range ruleNames() {
		set(client.HSet(t.Context(), keys.Rules(), rule, text(map[string]any{
			"rule": rule, "mode": "block", "generation": 1, "match": map[string]any{"methods": []string{"POST"}, "path": operation},
		})))
	}
	for _, c := range all {
		if c.blocked == "" {
			continue
		}
		fields, rule, shape := blockOf(c)
		id := traffic.Identity{IP: c.ip, User: c.user, Session: c.session, Device: readable(c.device)}
		subject, _ := traffic.MakeSubject(&id, fields)
		value := text(map[string]any{
			"v": 1, "action": "block", "scope": "match", "rule": rule, "generation": 1, "hit": "0123456789abcdef0123456789abcdef",
			"since": stamp(now), "until": stamp(now.Add(time.Hour)),
		})
		set(client.Set(t.Context(), keys.Block(subject, rule), value, time.Hour))
		set(client.SAdd(t.Context(), keys.Shapes(), shape))
	}
}

// blockOf says what a client's block is keyed on, by which rule, and in which shape.
func blockOf(c *client) (key []traffic.KeyField, rule, shape string) {
	ip := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}
	ipShape := "ip4/32"
	if c.ip.Is6() {
		ipShape = "ip6/64"
	}
	switch c.blocked {
	case "user":
		return []traffic.KeyField{{Field: traffic.FieldUser}}, "tokens-by-user", "match:user"
	case "session":
		return []traffic.KeyField{{Field: traffic.FieldSession}}, "tokens-by-session", "match:session"
	case "ip and device":
		return []traffic.KeyField{ip, {Field: traffic.FieldDevice}}, "tokens-by-device", "match:" + ipShape + "&device"
	}
	return []traffic.KeyField{ip}, "tokens-by-ip", "match:" + ipShape
}

// longTimeouts gives a gate that is asked on a busy machine more time than the shipped files do: that a gate which does not
// answer in time lets pass is the subject of other tests.
func longTimeouts(t *testing.T, text string) string {
	t.Helper()
	changed := regexp.MustCompile(`\b(50|100|500)ms\b`).ReplaceAllString(text, "20s")
	return changed
}

func shipped(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// replaced is a text with a part of it changed, which must be there.
func replaced(t *testing.T, text string, oldAndNew ...string) string {
	t.Helper()
	for i := 0; i < len(oldAndNew); i += 2 {
		if !strings.Contains(text, oldAndNew[i]) {
			t.Fatalf("the shipped text has no %q to be replaced:\n%s", oldAndNew[i], text)
		}
		text = strings.ReplaceAll(text, oldAndNew[i], oldAndNew[i+1])
	}
	return text
}

// nginxHead begins a configuration of nginx, whose last brace it leaves open. %[1]s: a folder.
const nginxHead = `
pid %[1]s/pid;
error_log stderr crit;
worker_processes 1;
events {}
http {
    client_body_temp_path %[1]s/body;
    proxy_temp_path %[1]s/proxy;
    fastcgi_temp_path %[1]s/fastcgi;
    uwsgi_temp_path %[1]s/uwsgi;
    scgi_temp_path %[1]s/scgi;
`

const nginxGateway = nginxHead + `
    include weir_log.conf;
    upstream weir_gate { server %[2]s; keepalive 64; }
%[3]s
}
`

const nginxSite = `
    server {
        listen %[1]s;
        access_log %[2]s/access.log weir;
        include weir_check.conf;
        location / { proxy_pass http://%[3]s; }
    }
`

// startNginx starts nginx with the shipped files. The log gets the members of the identity map's header and cookie, as
// docs/gateways/nginx.md says, and the user of Basic authentication, as in many logs: the client's own word.
func startNginx(t *testing.T, gate string, apis []string) *gateway {
	t.Helper()
	program, dir := testbed.Program(t, "nginx"), t.TempDir()
	open(dir)
	g := &gateway{name: "nginx", format: format.Nginx, logs: []string{filepath.Join(dir, "access.log")}}
	var sites strings.Builder
	for _, api := range apis {
		at := address(t)
		g.addresses = append(g.addresses, at)
		fmt.Fprintf(&sites, nginxSite, at, dir, api)
	}
	write(t, filepath.Join(dir, "nginx.conf"), fmt.Sprintf(nginxGateway, dir, gate, sites.String()))
	write(t, filepath.Join(dir, "weir_check.conf"), longTimeouts(t, shipped(t, "deploy/gateway/weir_check.conf")))
	write(t, filepath.Join(dir, "weir_log.conf"), replaced(t, shipped(t, "deploy/gateway/weir_log.conf"),
		`"headers":{`, `"remote_user":"$remote_user","headers":{"X-User-Id":"$http_x_user_id","Cookie":"$http_cookie",`))
	running := testbed.Run(t, exec.Command(program, "-e", "stderr", "-c", filepath.Join(dir, "nginx.conf"), "-g", "daemon off;"))
	for _, at := range g.addresses {
		awaitServer(t, running, at)
	}
	return g
}

// startCaddy starts Caddy with the documented site, once for each API.
func startCaddy(t *testing.T, gate string, apis []string) *gateway {
	t.Helper()
	dir := t.TempDir()
	g := &gateway{name: "caddy", format: format.Caddy}
	documented := regexp.MustCompile("(?s)```caddyfile\n(.*?)```").FindAllStringSubmatch(shipped(t, "docs/gateways/caddy.md"), -1)
	if len(documented) == 0 {
		t.Fatal("docs/gateways/caddy.md shows no Caddyfile")
	}
	file := "{\n\tadmin off\n\tauto_https off\n\tservers {\n\t\tlog_credentials\n\t}\n}\n"
	for _, api := range apis {
		at := address(t)
		log := filepath.Join(dir, portOf(at)+".log") // each site needs one of its own
		g.addresses, g.logs = append(g.addresses, at), append(g.logs, log)
		file += longTimeouts(t, replaced(t, documented[0][1], "http://api.example.com {", "http://:"+portOf(at)+" {\n\tbind 127.0.0.1",
			"127.0.0.1:9465 {", gate+" {\n\t\ttrusted_proxies 127.0.0.1/32", "127.0.0.1:8080", api, "/var/log/caddy/access.log", log))
	}
	config := filepath.Join(dir, "Caddyfile")
	write(t, config, file)
	running := testbed.Run(t, caddyCommand(t, dir, config))
	for _, at := range g.addresses {
		awaitServer(t, running, at)
	}
	return g
}

// loopback reports whether an address is one of this machine's own, from which a client of a test can connect.
func loopback(a netip.Addr) bool { return a.IsLoopback() }
