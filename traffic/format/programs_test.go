package format

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// program is a gateway that may be on this machine, and how it runs with the configuration of its page in docs/gateways.
type program struct {
	format string
	names  []string // of the program, or paths in the home folder
	asks   bool     // it asks the gate
	start  func(t *testing.T, path string, g *gatewayRun) *exec.Cmd
}

func programs() []program {
	return []program{
		{Nginx, []string{"nginx", "/usr/sbin/nginx"}, true, startNginx},
		{Envoy, []string{"envoy"}, false, startEnvoy},
		{Caddy, []string{"caddy"}, true, startCaddy},
		{Traefik, []string{"traefik"}, true, startTraefik},
		{HAProxy, []string{"haproxy", "/usr/sbin/haproxy"}, false, startHAProxy},
	}
}

// gatewayRun is one run of a gateway in front of an API and, for those that ask one, a gate.
type gatewayRun struct {
	t       *testing.T
	dir     string
	listen  string // host:port of the gateway
	origin  string // host:port of API and gate
	proxied string // the peer that is named by the PROXY protocol; "" for none
	running *testbed.Running
}

// TestPrograms runs each gateway that is on this machine with exactly the documented configuration, sends it a request that
// passes and one that is refused, and reads its log. The lines must have the shape of the samples in testdata/gateways.
// WEIR_UPDATE_SAMPLES=1 writes the samples anew.
func TestPrograms(t *testing.T) {
	for _, p := range programs() {
		path := ""
		for _, name := range p.names {
			if found, err := exec.LookPath(name); err == nil && path == "" {
				path = found
			}
		}
		if path == "" {
			t.Logf("%s is not on this machine: its sample is only read", p.format)
			continue
		}
		t.Run(p.format, func(t *testing.T) {
			g := &gatewayRun{t: t, dir: t.TempDir(), origin: apiAndGate(t, p.asks)}
			g.listen = fmt.Sprintf("127.0.0.1:%d", testbed.FreePort(t))
			for folder := g.dir; folder != "/tmp" && folder != "/"; folder = filepath.Dir(folder) {
				_ = os.Chmod(folder, 0o755) // a worker may be another user
			}
			g.running = testbed.Run(t, p.start(t, path, g))
			lines := g.traffic()
			checkLines(t, p.format, cmp.Or(g.proxied, "127.0.0.1"), lines)
			compareSamples(t, p.format, lines)
		})
	}
}

// apiAndGate answers for the API, and for the gate at its two endpoints. The device tv-held is held back: by the gate where it is
// asked, and by the API, as if it had asked itself, where it is not. So a gateway that did not wait for the gate has let it pass.
func apiAndGate(t *testing.T, asked bool) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held := r.Header.Get("X-Device-Id") == "tv-held" && !(asked && r.URL.Path == "/v1/guest-tokens")
		if held {
			w.Header().Set("X-Weir-Rule", "guest-token-flood")
			w.Header().Set("X-Weir-Block", "0123456789abcdef")
			w.Header().Set("Retry-After", "60")
		}
		switch {
		case held && r.URL.Path == "/v1/auth-request":
			w.Header().Set("X-Weir-Status", "429")
			w.WriteHeader(http.StatusForbidden)
		case held:
			w.WriteHeader(http.StatusTooManyRequests)
		case strings.HasSuffix(r.URL.Path, "-request"):
		case strings.HasSuffix(r.URL.Path, "-auth"):
			w.Header().Set("X-Weir-Status", "200") // by which Caddy knows the gate's word
		default:
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"token":"t-1"}`)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// traffic sends both requests as soon as the gateway answers, and waits for their lines.
func (g *gatewayRun) traffic() []string {
	g.t.Helper()
	testbed.Eventually(g.t, 20*time.Second, func() error {
		if err := g.running.Alive(); err != nil {
			return err
		}
		c, err := net.Dial("tcp", g.listen)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	testbed.Eventually(g.t, 10*time.Second, func() error { return g.send("tv-7", http.StatusCreated) })
	testbed.Eventually(g.t, 10*time.Second, func() error { return g.send("tv-held", http.StatusTooManyRequests) })
	var passed, refused string
	testbed.Eventually(g.t, 20*time.Second, func() error {
		log, err := os.ReadFile(filepath.Join(g.dir, "access.log"))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			switch {
			case !strings.HasSuffix(line, "}\n"):
			// A gateway that has just begun may have answered otherwise first.
			case strings.Contains(line, "tv-7") && strings.Contains(line, strconv.Itoa(http.StatusCreated)):
				passed = strings.TrimSpace(line)
			case strings.Contains(line, "tv-held") && strings.Contains(line, strconv.Itoa(http.StatusTooManyRequests)):
				refused = strings.TrimSpace(line)
			}
		}
		if passed == "" || refused == "" {
			return errors.New("no line for both requests yet: " + string(log))
		}
		return nil
	})
	return []string{passed, refused}
}

func (g *gatewayRun) send(device string, want int) error {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil && g.proxied != "" {
			_, err = io.WriteString(c, "PROXY TCP4 "+g.proxied+" 127.0.0.1 40000 80\r\n")
		}
		return c, err
	}}
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, "http://"+g.listen+"/v1/guest-tokens?free=1", http.NoBody)
	if err != nil {
		return err
	}
	r.Host = "api.example.com"
	r.Header.Set("User-Agent", `tv/3.1 "beta" é`)
	r.Header.Set("X-Forwarded-For", "192.0.2.66, 203.0.113.9")
	r.Header.Set("X-Device-Id", device)
	r.Header.Set("X-Request-Id", "req-of-the-client")
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil {
		return err
	}
	if answer.StatusCode != want {
		return fmt.Errorf("got %s for %s, want %d", answer.Status, device, want)
	}
	return nil
}

// checkLines reads the log as weir does.
func checkLines(t *testing.T, format, from string, lines []string) {
	t.Helper()
	d := mustDecoder(t, format, nil)
	m := traffic.DefaultIdentityMap()
	m.IP.TrustedProxies.Hops = 1
	x, err := m.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range lines {
		var r traffic.Request
		if err := d.Decode([]byte(line), &r); err != nil {
			t.Fatalf("%s\n%v", line, err)
		}
		device, status, verdict := "tv-7", http.StatusCreated, traffic.Verdict{}
		if i == 1 {
			device, status, verdict = "tv-held", http.StatusTooManyRequests, traffic.Verdict{Rule: "guest-token-flood", Block: "0123456789abcdef"}
		}
		peer, ok := traffic.ParseClient(r.IP)
		id, _ := x.FromEvent(&r)
		if age := time.Since(r.Time.Std()); !r.HasTime || age < -time.Second || age > 10*time.Minute {
			t.Errorf("time %s is %s ago", r.Time, age)
		}
		if !ok || peer.String() != from || r.Forwarded != "192.0.2.66, 203.0.113.9" || id.IP.String() != "203.0.113.9" || id.Device != device {
			t.Errorf("ip %q, forwarded %q, identity %+v", r.IP, r.Forwarded, id)
		}
		if r.Method != "POST" || r.Host != "api.example.com" || r.Path != "/v1/guest-tokens" || r.Status != status || r.ID == "" ||
			r.UserAgent != `tv/3.1 "beta" é` || r.Verdict != verdict || r.LatencyUS > 30e6 || r.UnknownFields != 0 {
			t.Errorf("%s\ngot %+v", line, r)
		}
		if t.Failed() {
			t.Logf("%s", line)
		}
	}
}

// compareSamples holds the members of the lines to those of the samples, or writes these.
func compareSamples(t *testing.T, format string, lines []string) {
	t.Helper()
	if os.Getenv("WEIR_UPDATE_SAMPLES") != "" {
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(strings.Join(lines, "\n")+"\n", host, "edge-3")
		if err := os.WriteFile(sampleFile(format), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	samples := sampleLines(t, format)
	for i := range lines {
		if got, want := shape(t, lines[i]), shape(t, samples[i]); !slices.Equal(got, want) {
			t.Errorf("line %d has other members than %s\ngot  %v\nwant %v", i+1, sampleFile(format), got, want)
		}
	}
}

func sampleFile(format string) string { return filepath.Join("testdata", "gateways", format+".jsonl") }

func sampleLines(t testing.TB, format string) []string {
	t.Helper()
	b, err := os.ReadFile(sampleFile(format))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) != 2 {
		t.Fatalf("%s has %d lines, want one that passed and one that was refused", sampleFile(format), len(lines))
	}
	return lines
}

// shape is the sorted paths of a line's members.
func shape(t *testing.T, line string) []string {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal([]byte(line), &members); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	var walk func(prefix string, members map[string]any) []string
	walk = func(prefix string, members map[string]any) (paths []string) {
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if nested, ok := members[name].(map[string]any); ok {
				paths = append(paths, walk(prefix+name+".", nested)...)
			} else {
				paths = append(paths, prefix+name)
			}
		}
		return paths
	}
	return walk("", members)
}

// documentedConfigs are the fenced blocks of one language on a format's page.
func documentedConfigs(t testing.TB, format, language string) []string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "gateways", format+".md"))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, b := range regexp.MustCompile("(?s)```"+language+"(?: file=[^\n]*)?\n(.*?)```").FindAllStringSubmatch(string(doc), -1) {
		blocks = append(blocks, b[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("docs/gateways/%s.md has no block of %s", format, language)
	}
	return blocks
}

// adapt puts the run's addresses and files in the place of the documented ones, each of which must be there.
func (g *gatewayRun) adapt(text string, more ...string) string {
	g.t.Helper()
	pairs := append([]string{"127.0.0.1:8080", g.origin}, more...)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			g.t.Fatalf("the documented configuration has no %s:\n%s", pairs[i], text)
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// place writes a file of the run.
func (g *gatewayRun) place(name, text string) string {
	g.t.Helper()
	path := filepath.Join(g.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		g.t.Fatal(err)
	}
	return path
}

func (g *gatewayRun) log() string { return filepath.Join(g.dir, "access.log") }

func startNginx(t *testing.T, path string, g *gatewayRun) *exec.Cmd {
	files, err := filepath.Abs("../../deploy/gateway")
	if err != nil {
		t.Fatal(err)
	}
	server := g.adapt(documentedConfigs(t, Nginx, "nginx")[0], "127.0.0.1:8000", g.listen, "127.0.0.1:9465", g.origin,
		"/var/log/nginx/weir.log", g.log(), "include ", "include "+files+"/")
	temporary := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temporary += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, g.dir, kind)
	}
	config := g.place("nginx.conf", "pid "+g.dir+"/pid;\nerror_log stderr info;\nworker_processes 1;\nevents {}\nhttp {\n"+temporary+server+"}\n")
	return exec.Command(path, "-e", "stderr", "-c", config, "-g", "daemon off;")
}

// envoyConfig takes clients' addresses from the PROXY protocol: for a peer on loopback Envoy would write its own node's
// address into X-Forwarded-For. %[1]s: port, %[2]s: the documented part, %[3]s: port of the API.
const envoyConfig = `
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: %[1]s}}
    listener_filters:
    - name: envoy.filters.listener.proxy_protocol
      typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: api
          route_config:
            virtual_hosts:
            - {name: api, domains: ["*"], routes: [{name: guest, match: {prefix: "/"}, route: {cluster: api}}]}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
%[2]s
  clusters:
  - name: api
    type: STATIC
    load_assignment:
      cluster_name: api
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %[3]s}}}}]}]
`

func startEnvoy(t *testing.T, path string, g *gatewayRun) *exec.Cmd {
	documented := documentedConfigs(t, Envoy, "yaml")[0]
	documented = strings.ReplaceAll(documented, "/var/log/envoy/access.log", g.log())
	documented = "          " + strings.ReplaceAll(strings.TrimSpace(documented), "\n", "\n          ")
	_, port, _ := strings.Cut(g.listen, ":")
	_, origin, _ := strings.Cut(g.origin, ":")
	g.proxied = "198.51.100.2"
	config := g.place("envoy.yaml", fmt.Sprintf(envoyConfig, port, documented, origin))
	return exec.Command(path, "-c", config, "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning")
}

func startCaddy(t *testing.T, path string, g *gatewayRun) *exec.Cmd {
	_, port, _ := strings.Cut(g.listen, ":")
	site := g.adapt(documentedConfigs(t, Caddy, "caddyfile")[0], "127.0.0.1:9465", g.origin,
		"/var/log/caddy/access.log", g.log(), "http://api.example.com {", "http://api.example.com {\n\tbind 127.0.0.1")
	config := g.place("Caddyfile", "{\n\tadmin off\n\thttp_port "+port+"\n}\n"+site)
	command := exec.Command(path, "run", "--adapter", "caddyfile", "--config", config)
	command.Env = append(os.Environ(), "HOME="+g.dir, "XDG_DATA_HOME="+g.dir, "XDG_CONFIG_HOME="+g.dir)
	return command
}

func startTraefik(t *testing.T, path string, g *gatewayRun) *exec.Cmd {
	blocks := documentedConfigs(t, Traefik, "yaml")
	dynamic := g.place("dynamic.yaml", g.adapt(blocks[1], "127.0.0.1:9465", g.origin))
	static := "global: {checkNewVersion: false, sendAnonymousUsage: false}\n" +
		strings.NewReplacer("127.0.0.1:8000", g.listen, "/etc/traefik/dynamic.yaml", dynamic, "/var/log/traefik/access.log", g.log()).Replace(blocks[0])
	return exec.Command(path, "--configFile="+g.place("traefik.yaml", static))
}

func startHAProxy(t *testing.T, path string, g *gatewayRun) *exec.Cmd {
	config := g.place("haproxy.cfg", g.adapt(documentedConfigs(t, HAProxy, "haproxy")[0], "127.0.0.1:8000", g.listen))
	return exec.Command("/bin/sh", "-c", `exec "$1" -f "$2" >"$3"`, "sh", path, config, g.log())
}
