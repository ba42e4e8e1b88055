package gate

import (
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// caddyfile is the documented configuration of docs/gate.md with the addresses of a test.
func caddyfile(t *testing.T, gate, open, api, address string) string {
	t.Helper()
	doc, err := os.ReadFile("../docs/gate.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```caddyfile\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	if len(blocks) != 1 {
		t.Fatalf("docs/gate.md has %d blocks of a Caddyfile, want 1", len(blocks))
	}
	text := blocks[0][1]
	for _, s := range [][2]string{
		{"127.0.0.1:9465", gate}, {"127.0.0.1:9466", open}, {"http://:9466", "http://:" + after(open)},
		{"127.0.0.1:8081", api}, {"api.example.com {", "http://api.example.com:" + after(address) + " {"},
	} {
		if !strings.Contains(text, s[0]) {
			t.Fatalf("the Caddyfile of docs/gate.md lacks %s", s[0])
		}
		text = strings.ReplaceAll(text, s[0], s[1])
	}
	return "{\n\tadmin off\n\tdefault_bind 127.0.0.1\n}\n" + text
}

// after is the port of an address.
func after(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

func startCaddy(t *testing.T, gate string) string {
	t.Helper()
	address, _ := startCaddyBefore(t, gate, sampleAPI(t), longTimeouts)
	return address
}

// startCaddyBefore starts Caddy in front of an API, at an address where a gate is asked, and at one where none is.
func startCaddyBefore(t *testing.T, gate, api string, edit func(string) string) (address, plain string) {
	t.Helper()
	program := testbed.Program(t, "caddy")
	address, plain = port(t), port(t)
	path := place(t, "Caddyfile", edit(caddyfile(t, gate, port(t), api, address))+
		"http://api.example.com:"+after(plain)+" {\n\treverse_proxy "+api+"\n}\n")
	command := exec.Command(program, "run", "--config", path, "--adapter", "caddyfile")
	home := t.TempDir()
	command.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	await(t, testbed.Run(t, command), address)
	return address, plain
}

// Caddy sees the address that a connection comes from: a loopback address other than the usual one stands for the abuser.
const loopbackAbuser = "127.0.0.2"

func TestCaddyHoldsBack(t *testing.T) {
	list := abuser()
	list.ip = netip.MustParseAddr(loopbackAbuser)
	address := startCaddy(t, doorOf(t, newGate(t, list, nil)).address)
	token := call{from: loopbackAbuser, method: "POST", path: "/v1/guest-tokens?free=1", body: "x"}
	wantHeld(t, through(t, address, token))
	token.headers = [][2]string{{"X-Forwarded-For", viewer}, {"X-Forwarded-Method", "GET"}, {"X-Forwarded-Uri", "/v1/films"}}
	wantHeld(t, through(t, address, token)) // whatever it claims
	token.headers = [][2]string{{"Connection", "X-Forwarded-For, X-Forwarded-Method, X-Forwarded-Uri"}}
	wantHeld(t, through(t, address, token)) // nor is it asked about less than Caddy says
	token.from, token.headers = "127.0.0.1", [][2]string{{"X-Forwarded-For", loopbackAbuser}}
	if got := through(t, address, token); got.status != 201 || got.body != "the API got 1 bytes" {
		t.Errorf("a viewer gets %d %q", got.status, got.body)
	}
	if got := through(t, address, call{method: "GET", path: "/v1/staff"}); got.status != 403 {
		t.Errorf("the API's 403 became %d", got.status)
	}
}

// A connection that Caddy has begun to the API may be taken for one to the gate. Here every check goes to an API, which
// answers 200 to whatever it does not know.
func TestCaddyTakesNobodyElsesWordForTheGates(t *testing.T) {
	address := startCaddy(t, sampleAPI(t))
	got := through(t, address, call{method: "POST", path: "/v1/guest-tokens", body: "x"})
	if got.status != 200 || got.body != "the API got 0 bytes" { // the API's answer to the check
		t.Errorf("got %d %q: the request has passed without a word of the gate", got.status, got.body)
	}
}

func TestCaddyPassesWithoutAGate(t *testing.T) {
	d := newDoor(t, silent(t))
	for _, tt := range []struct{ name, gate string }{{"nobody listens", port(t)}, {"it never answers", d.address}} {
		t.Run(tt.name, func(t *testing.T) {
			address, _ := startCaddyBefore(t, tt.gate, sampleAPI(t), asDocumented)
			for range 3 {
				passesSoon(t, address, call{method: "POST", path: "/v1/guest-tokens", body: "x"}, 2*time.Second)
			}
		})
	}
}
