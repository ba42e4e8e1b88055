package gate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// nginxHead begins a configuration of nginx, whose last brace it leaves open. Clients name their address in X-Test-Client, and
// the connection's peer is believed to be that. %[1]s: a folder.
const nginxHead = `
pid %[1]s/pid;
error_log stderr warn;
worker_processes 1;
events {}
http {
    client_body_temp_path %[1]s/body;
    proxy_temp_path %[1]s/proxy;
    fastcgi_temp_path %[1]s/fastcgi;
    uwsgi_temp_path %[1]s/uwsgi;
    scgi_temp_path %[1]s/scgi;
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Test-Client;
`

// nginxConfig is a gateway that uses the documented files as they are. %[1]s: a folder, %[2]s: where it listens, %[3]s: the gate, %[4]s: the API,
// %[5]s: where it listens with pages of its own for errors, in the location that docs/gate.md shows, %[6]s, %[7]s: where it
// listens without weir.
const nginxConfig = nginxHead + `
    client_max_body_size 4m;
    large_client_header_buffers 8 1m;
    include weir_log.conf;
    upstream weir_gate { server %[3]s; keepalive 64; }
    server {
        listen %[2]s;
        access_log %[1]s/access.log weir;
        include weir_check.conf;
        location / { proxy_pass http://%[4]s; }
        location /intercepted/ { proxy_intercept_errors on; proxy_pass http://%[4]s/v1/; }
        location /closed/ { deny all; }
        location = /unguarded { auth_request off; return 200 "unguarded"; }
    }
    server {
        listen %[5]s;
        access_log off;
        include weir_check.conf;
        %[6]s
        location = /404.html { internal; return 200 "a page of its own"; }
    }
    server {
        listen %[7]s;
        access_log off;
        location / { proxy_pass http://%[4]s; }
    }
}
`

type gateway struct {
	t       *testing.T
	dir     string
	address string
	pages   string // the address with pages of its own for errors
	plain   string // the address at which no gate is asked
}

func startNginx(t *testing.T, gateAddress string) *gateway {
	t.Helper()
	return startNginxBefore(t, gateAddress, sampleAPI(t), longTimeouts)
}

func startNginxBefore(t *testing.T, gateAddress, api string, edit func(string) string) *gateway {
	t.Helper()
	g := &gateway{t: t, dir: t.TempDir(), address: port(t), pages: port(t), plain: port(t)}
	g.start(fmt.Sprintf(nginxConfig, g.dir, g.address, gateAddress, api, g.pages, documentedLocation(t, api), g.plain), edit)
	return g
}

// start runs nginx with a configuration, and with the documented files beside it for its include lines.
func (g *gateway) start(config string, edit func(string) string) {
	t := g.t
	t.Helper()
	program := testbed.Program(t, "nginx")
	path := place(t, "nginx.conf", config)
	for _, name := range []string{"weir_check.conf", "weir_log.conf"} {
		// Copied, not included from where they are: go test takes a result from its cache unless this process reads a file.
		text, err := os.ReadFile(filepath.Join("..", "deploy", "gateway", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(edit(string(text))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for folder := g.dir; folder != "/tmp" && folder != "/"; folder = filepath.Dir(folder) {
		_ = os.Chmod(folder, 0o755) // as root, nginx's worker is another user, and has bodies to write here
	}
	await(t, testbed.Run(t, exec.Command(program, "-e", "stderr", "-c", path, "-g", "daemon off;")), g.address)
}

// documentedLocation is the location with an error_page of its own that docs/gate.md shows, before this API.
func documentedLocation(t *testing.T, api string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "gate.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, shown := bytes.Cut(text, []byte("  ```nginx\n  location /v1/ {\n"))
	location, _, closed := bytes.Cut(text, []byte("```"))
	const documentedAPI = "127.0.0.1:8081"
	if !shown || !closed || !bytes.Contains(location, []byte("error_page 404 ")) || !bytes.Contains(location, []byte(documentedAPI)) {
		t.Fatalf("docs/gate.md shows no location /v1/ with an error_page before %s: %s", documentedAPI, location)
	}
	return "location /v1/ {\n" + strings.Replace(string(location), documentedAPI, api, 1)
}

func (g *gateway) send(c call) reply {
	g.t.Helper()
	return through(g.t, g.address, c)
}

const (
	theAbuser = "192.0.2.1"
	viewer    = "203.0.113.8"
)

func TestNginxHoldsBack(t *testing.T) {
	d := doorOf(t, newGate(t, abuser(), nil))
	n := startNginx(t, d.address)
	token := call{client: theAbuser, method: "POST", path: "/v1/guest-tokens?free=1", body: strings.Repeat("x", 1<<20)}
	wantHeld(t, n.send(token))
	for _, tt := range []struct {
		name    string
		client  string
		method  string
		path    string
		headers [][2]string
		want    int
	}{
		{name: "another client", client: viewer, method: "POST", path: "/v1/guest-tokens", want: 201},
		{name: "another method", client: theAbuser, method: "GET", path: "/v1/guest-tokens", want: 201},
		{name: "another path", client: theAbuser, method: "POST", path: "/v1/films", want: 200},
		{name: "claims another address", client: theAbuser, method: "POST", path: "/v1/guest-tokens", headers: [][2]string{{"X-Forwarded-For", viewer}}, want: 429},
		{name: "claims the abuser's address", client: viewer, method: "POST", path: "/v1/guest-tokens", headers: [][2]string{{"X-Forwarded-For", theAbuser}}, want: 201},
		{name: "claims another request", client: theAbuser, method: "POST", path: "/v1/guest-tokens", headers: [][2]string{
			{"X-Original-Method", "GET"}, {"X-Original-URI", "/v1/films"}, {"X-Forwarded-Method", "GET"}, {"X-Forwarded-Uri", "/v1/films"}}, want: 429},
		{name: "wants less told", client: theAbuser, method: "POST", path: "/v1/guest-tokens", headers: [][2]string{
			{"Connection", "X-Original-URI, X-Original-Method, X-Forwarded-For"}}, want: 429},
		{name: "claims a verdict", client: viewer, method: "POST", path: "/v1/guest-tokens", headers: [][2]string{{"X-Weir-Status", "429"}, {"X-Weir-Rule", "r"}}, want: 201},
		{name: "asks for the check itself, which is told nothing", client: theAbuser, method: "POST", path: "/_weir/check", want: 200},
		{name: "a long header", client: viewer, method: "GET", path: "/v1/films", headers: [][2]string{{"X-Long", strings.Repeat("x", 7000)}}, want: 200},
		{name: "no check wanted", client: theAbuser, method: "POST", path: "/unguarded", want: 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := n.send(call{client: tt.client, method: tt.method, path: tt.path, headers: tt.headers}); got.status != tt.want {
				t.Errorf("got %d %s, want %d", got.status, got.body, tt.want)
			}
		})
	}
	token.client = viewer
	if got := n.send(token); got.status != 201 || got.body != "the API got 1048576 bytes" || got.header.Get("Retry-After") != "" {
		t.Errorf("a viewer's request became %d %q with %v", got.status, got.body, got.header)
	}
	if c := d.connections(); c > 3 {
		t.Errorf("nginx connected %d times to ask one question after the other; connections are not kept", c)
	}
}

// A 403 is a 429 only if weir said so.
func TestNginxLeavesOtherAnswersAlone(t *testing.T) {
	n := startNginx(t, doorOf(t, newGate(t, abuser(), nil)).address)
	for _, tt := range []struct {
		path string
		want int
		body string
	}{
		{"/v1/staff", 403, "the API got 0 bytes"},
		{"/v1/broken", 500, "the API got 0 bytes"},
		{"/intercepted/staff", 403, "403 Forbidden"}, // nginx's own page, as proxy_intercept_errors wants
		{"/closed/", 403, "403 Forbidden"},
	} {
		got := n.send(call{client: viewer, method: "GET", path: tt.path})
		if got.status != tt.want || !strings.Contains(got.body, tt.body) || got.header.Get("Retry-After") != "" {
			t.Errorf("%s: got %d %q with Retry-After %q, want %d %q", tt.path, got.status, got.body, got.header.Get("Retry-After"), tt.want, tt.body)
		}
	}
}

// A location with pages of its own for errors holds back, too, if it is written as documented, and shows its pages.
func TestNginxHoldsBackBesideOtherErrorPages(t *testing.T) {
	n := startNginx(t, doorOf(t, newGate(t, abuser(), nil)).address)
	wantHeld(t, through(t, n.pages, call{client: theAbuser, method: "POST", path: "/v1/guest-tokens"}))
	for _, tt := range []struct {
		path string
		want int
		body string
	}{
		{"/v1/guest-tokens", 201, "the API got 0 bytes"},
		{"/v1/nothing", 404, "a page of its own"},
		{"/v1/staff", 403, "403 Forbidden"},
		{"/v1/broken", 500, "the API got 0 bytes"}, // no page for this one
	} {
		got := through(t, n.pages, call{client: viewer, method: "POST", path: tt.path})
		if got.status != tt.want || !strings.Contains(got.body, tt.body) || got.header.Get("Retry-After") != "" {
			t.Errorf("%s: got %d %q, want %d %q", tt.path, got.status, got.body, tt.want, tt.body)
		}
	}
}

func TestNginxPassesWhatAGateOnlyObserves(t *testing.T) {
	g := newGate(t, abuser(), func(o *Options, _ *traffic.IdentityMap) { o.Observe = true })
	n := startNginx(t, doorOf(t, g).address)
	if got := n.send(call{client: theAbuser, method: "POST", path: "/v1/guest-tokens"}); got.status != 201 {
		t.Errorf("got %d", got.status)
	}
}

// Whatever becomes of the gate, no request is lost over it, and none waits for long.
func TestNginxPassesWithoutAGate(t *testing.T) {
	g := newGate(t, abuser(), nil)
	gate, d := g.Handler(), doorOf(t, g)
	n := startNginxBefore(t, d.address, sampleAPI(t), asDocumented)
	token := call{client: theAbuser, method: "POST", path: "/v1/guest-tokens", body: strings.Repeat("x", 1<<20)}
	const within = time.Second // nginx gives up after 100 ms
	type outage struct {
		name string
		gate http.Handler
	}
	cases := []outage{{"it never answers", silent(t)}, {"it hangs up", http.HandlerFunc(hangsUp)}}
	for status := 200; status < 600; status++ {
		if http.StatusText(status) != "" && !aboutTheRequest[status] && status != http.StatusRequestTimeout {
			cases = append(cases, outage{strconv.Itoa(status), answers(status)})
		}
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			d.becomes(tt.gate)
			passesSoon(t, n.address, token, within)
			d.becomes(gate)
			wantHeldSoon(t, n.address, token) // and it is asked again as soon as it is back
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		n := startNginxBefore(t, port(t), sampleAPI(t), asDocumented)
		passesSoon(t, n.address, token, within)
	})
}

// aboutTheRequest are the statuses by which a gate, or what stands between, says that it cannot read a request.
var aboutTheRequest = map[int]bool{400: true, 413: true, 414: true, 417: true, 431: true}

// What the gate says about a client's request is no word on the gate, so the client cannot pass by it.
func TestNginxRefusesWhatAGateCannotRead(t *testing.T) {
	g := newGate(t, abuser(), nil)
	d := doorOf(t, g)
	n := startNginx(t, d.address)
	for status := range aboutTheRequest {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			d.becomes(answers(status))
			for _, address := range []string{n.address, n.pages} {
				got := through(t, address, call{client: viewer, method: "POST", path: "/v1/guest-tokens", body: "x"})
				var p Problem
				if err := json.Unmarshal([]byte(got.body), &p); err != nil {
					t.Fatalf("%v in %s", err, got.body)
				}
				if got.status != 400 || p.Status != 400 || p.Title != "Bad Request" || p.Detail == "" || p.Block != "" ||
					got.header.Get("Content-Type") != "application/problem+json" || got.header.Get("Cache-Control") != "no-store" {
					t.Errorf("got %d %s with %v", got.status, got.body, got.header)
				}
			}
			if got := n.send(call{client: viewer, method: "POST", path: "/unguarded"}); got.status != 200 {
				t.Errorf("a location that asks no gate gets %d", got.status)
			}
		})
	}
}

// The gate is told what the file names, whatever a client sends.
func TestNginxTellsTheGateNamedHeaders(t *testing.T) {
	told := make(chan http.Header, 1)
	d := newDoor(t, answers(200))
	n := startNginx(t, d.address)
	d.becomes(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told <- r.Header }))
	headers := map[string]string{
		"X-Device-Id": "d", "X-User-Id": "u", "X-Api-Key": "k", "X-Session-Id": "s", "Cookie": "sid=1; a=b",
		"X-Original-Uri": "/v1/films?q", "X-Original-Method": "POST", "X-Forwarded-For": "203.0.113.5, " + theAbuser,
		"X-Original-Host": "api.example.com",
	}
	c := call{client: theAbuser, method: "POST", path: "/v1/films?q", body: "x", headers: [][2]string{
		{"X-Any", "a"}, {"User-Agent", "a"}, {"Authorization", "a"}, {"Range", "bytes=0-1"}, {"If-Match", "a"}, {"Expect", "100-continue"},
		{"X-Weir-Malformed", "too_large"}, {"X-Forwarded-Method", "GET"}, {"X-Forwarded-Uri", "/"}, {"X-Original-URI", "/"}, {"Upgrade", "h2c"},
		{"X-Original-Host", "other.test"}, {"X-Forwarded-Host", "other.test"}, {"X-Weir-Route", "r"},
	}}
	for name, value := range headers {
		if !strings.HasPrefix(name, "X-Original-") {
			c.headers = append(c.headers, [2]string{name, strings.TrimSuffix(value, ", "+theAbuser)})
		}
	}
	n.send(c)
	got := <-told
	for name := range got {
		if headers[name] == "" {
			t.Errorf("the gate is told %s: %q", name, got[name])
		}
	}
	for name, want := range headers {
		if len(got[name]) != 1 || got[name][0] != want {
			t.Errorf("the gate is told %s: %q, want %q", name, got[name], want)
		}
	}
}

// The access log names the same client and path as the check, and weir's own refusals as such.
func TestNginxLogsTheVerdict(t *testing.T) {
	n := startNginx(t, doorOf(t, newGate(t, abuser(), nil)).address)
	const odd = "/v1//guest-tokens/%2e%2e/a%20b?q=%22x%22"
	n.send(call{client: theAbuser, method: "POST", path: "/v1/guest-tokens?free=1", headers: [][2]string{{"X-Device-Id", `tv "7"`}}})
	n.send(call{client: viewer, method: "POST", path: odd, headers: [][2]string{{"User-Agent", `curl\ü`}, {"X-Forwarded-For", theAbuser}}})
	const refused, served = "/v1/guest-tokens", "/v1//guest-tokens/%2e%2e/a%20b"
	byPath := map[string]traffic.Request{}
	testbed.Eventually(t, 5*time.Second, func() error {
		log, err := os.ReadFile(filepath.Join(n.dir, "access.log"))
		if err != nil {
			return err
		}
		for _, e := range decoded(t, log) {
			byPath[e.Path] = e
		}
		if byPath[refused].Status == 0 || byPath[served].Status == 0 {
			return fmt.Errorf("not yet in the log: %s", log)
		}
		return nil
	})
	held, passed := byPath[refused], byPath[served]
	if held.Verdict != (traffic.Verdict{Rule: "guest-token-flood", Block: "0123456789abcdef"}) || held.Status != 429 ||
		held.IP != theAbuser || held.Method != "POST" || held.Bytes == 0 || held.Host != "api.example.com" {
		t.Errorf("the refusal: %+v", held)
	}
	if passed.Verdict.Refused() || passed.Status != 200 || passed.IP != viewer || passed.Forwarded != theAbuser ||
		passed.UserAgent != `curl\ü` || passed.Host != "api.example.com" {
		t.Errorf("the viewer's request: %+v", passed)
	}
	m := traffic.DefaultIdentityMap()
	x, err := m.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if id, _ := x.FromEvent(&held); id.Device != `tv "7"` || id.IP.String() != theAbuser {
		t.Errorf("the refused client is %+v", id)
	}
	if id, missing := x.FromEvent(&passed); missing[traffic.FieldDevice] == traffic.Present || id.IP.String() != viewer {
		t.Errorf("the viewer is %+v", id)
	}
	if age := time.Since(time.UnixMicro(int64(held.Time))); age < 0 || age > time.Minute {
		t.Errorf("the refusal is %s old", age)
	}
}

// A proxy in front appends its own line to what the client wrote into X-Forwarded-For. Of a request that is not read to
// there, the log must not take the client's word for whose it is.
func TestNginxLogsNoAddressOfAnUnreadRequest(t *testing.T) {
	n := startNginx(t, doorOf(t, newGate(t, abuser(), nil)).address)
	connection, err := net.DialTimeout("tcp", n.address, patience)
	if err != nil {
		t.Fatal(err)
	}
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	// Nothing follows what cannot be read: nginx answers while bytes are on their way, and would reset the connection.
	if _, err := io.WriteString(connection, "GET /unread HTTP/1.1\r\nX-Forwarded-For: "+viewer+"\r\nno header line\x00\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil || answer.StatusCode != http.StatusBadRequest {
		t.Fatalf("answer %+v (%v), want 400", answer, err)
	}
	_ = answer.Body.Close()
	_ = connection.Close() // nginx writes its line when the client has gone
	// The API's own 400 is about a request that was read whole.
	n.send(call{client: viewer, method: "GET", path: "/v1/unclear", headers: [][2]string{{"X-Forwarded-For", theAbuser}}})
	byPath := map[string]traffic.Request{}
	testbed.Eventually(t, 5*time.Second, func() error {
		log, err := os.ReadFile(filepath.Join(n.dir, "access.log"))
		if err != nil {
			return err
		}
		for _, e := range decoded(t, log) {
			byPath[e.Path] = e
		}
		if byPath["/unread"].Status == 0 || byPath["/v1/unclear"].Status == 0 {
			return fmt.Errorf("not yet in the log: %s", log)
		}
		return nil
	})
	if e := byPath["/unread"]; e.Status != 400 || e.Forwarded != "" {
		t.Errorf("the unread request: status %d, forwarded for %q, want 400 and nobody", e.Status, e.Forwarded)
	}
	if e := byPath["/v1/unclear"]; e.Status != 400 || e.Forwarded != theAbuser {
		t.Errorf("the API's refusal: status %d, forwarded for %q, want 400 and %s", e.Status, e.Forwarded, theAbuser)
	}
}

func decoded(t *testing.T, log []byte) []traffic.Request {
	t.Helper()
	decoder, err := format.NewDecoder(format.Nginx, nil, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var events []traffic.Request
	for line := range strings.Lines(string(log)) {
		if !strings.HasSuffix(line, "\n") {
			break // still being written
		}
		var r traffic.Request
		if err := decoder.Decode([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if r.UnknownFields != 0 {
			t.Errorf("%d unknown members in %s", r.UnknownFields, line)
		}
		events = append(events, r)
	}
	return events
}
