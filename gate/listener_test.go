package gate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/traffic"
)

// wire is a connection whose other end has sent all it will.
type wire struct {
	net.Conn
	in *bytes.Reader
	at int // bytes after which a deadline passes, once; 0: none does
}

func (w *wire) Read(p []byte) (int, error) {
	if read := int(w.in.Size()) - w.in.Len(); w.at > 0 && read < w.at {
		p = p[:min(len(p), w.at-read)]
	} else if w.at > 0 {
		w.at = 0
		return 0, os.ErrDeadlineExceeded
	}
	return w.in.Read(p)
}

// anew is what conn writes of raw, with a deadline that passes after so many bytes, and reports how it ends.
func anew(t testing.TB, g *Gate, raw string, deadline int) (string, error) {
	t.Helper()
	l, ok := g.Listener(nil).(*listener)
	if !ok {
		t.Fatal("Listener makes another listener")
	}
	w := &wire{in: bytes.NewReader([]byte(raw)), at: deadline}
	c := &conn{Conn: w, raw: bufio.NewReaderSize(w, rawBuffer), keep: l.keep}
	out, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		var rest []byte
		rest, err = io.ReadAll(c)
		out = append(out, rest...)
	}
	return string(out), err
}

func TestHeadsAreWrittenAnew(t *testing.T) {
	const told = "X-Forwarded-Method: POST\r\nX-Forwarded-Uri: /x\r\n"
	g := newGate(t, abuser(), withSession)
	for _, tt := range []struct{ name, raw, want string }{
		{"what is looked at", "GET /v1/forward-auth HTTP/1.1\r\nHost: h\r\nX-Any: 1\r\n" + told + "x-device-ID:\t d \r\nCOOKIE: sid=1\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: gate\r\n" + told + "X-Device-Id: d\r\nCookie: sid=1\r\n\r\n"},
		{"nginx", "GET /v1/auth-request?x HTTP/1.0\r\nX-Original-URI: /\x01\r\nX-Original-Method: A B\r\n\r\n",
			"GET /v1/auth-request HTTP/1.0\r\nHost: gate\r\nX-Original-Uri: /\xff\r\nX-Original-Method: A B\r\nConnection: close\r\n\r\n"},
		{"the request itself", "P{}ST http://x/%zz HTTP/1.1\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: gate\r\nX-Forwarded-Method: P{}ST\r\nX-Forwarded-Uri: http://x/%zz\r\n\r\n"},
		{"no body is wanted", "HEAD /x HTTP/1.1\r\n\r\n", "HEAD / HTTP/1.1\r\nHost: gate\r\nX-Forwarded-Method: HEAD\r\nX-Forwarded-Uri: /x\r\n\r\n"},
		{"empty is not told", "GET /x HTTP/1.1\r\nX-Forwarded-Uri:\r\nX-Forwarded-Method: \r\n\r\n",
			"GET / HTTP/1.1\r\nHost: gate\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /x\r\n\r\n"},
		{"repeated lines stay lines", "GET / HTTP/1.1\r\n" + told + "X-Device-Id: a\r\nX-Device-Id: b\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: gate\r\n" + told + "X-Device-Id: a\r\nX-Device-Id: b\r\n\r\n"},
		{"names that are none", "GET / HTTP/1.1\r\n" + told + "X-Device-Id : a\r\n: b\r\nX-Dev\x01ice-Id: c\r\nno colon\r\n X-Device-Id: d\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: gate\r\n" + told + "Connection: close\r\n\r\n"},
		{"folded lines", "GET / HTTP/1.1\r\n" + told + "X-Device-Id: a\r\n\t b\r\nX-Any: c\r\n d\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: gate\r\n" + told + "X-Device-Id: a b\r\n\r\n"},
		{"bare ends of lines", "GET / HTTP/1.1\n" + strings.ReplaceAll(told, "\r", "") + "X-Device-Id: a\n\n",
			"GET / HTTP/1.1\r\nHost: gate\r\n" + told + "X-Device-Id: a\r\n\r\n"},
		{"a bare return may end a line", "GET / HTTP/1.1\r\n" + told + "X-Device-Id: a\rb\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: gate\r\n" + told + "X-Device-Id: a\xffb\r\nConnection: close\r\n\r\n"},
		{"bodies are skipped", "POST /x HTTP/1.1\r\nContent-Length: 18\r\n\r\nGET /b HTTP/1.1\r\n\r\n\r\nPOST /x HTTP/1.1\r\nConnection: a, Close\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: gate\r\n" + told + "\r\nGET / HTTP/1.1\r\nHost: gate\r\n" + told + "Connection: close\r\n\r\n"},
		{"chunks end it", "POST /x HTTP/1.1\r\nContent-Length: 0\r\ntransfer-encoding: x\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: gate\r\n" + told + "Connection: close\r\n\r\n"},
		{"two lengths end it", "POST /x HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: gate\r\n" + told + "Connection: close\r\n\r\n"},
		{"no length ends it", "POST /x HTTP/1.1\r\nContent-Length: +0\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: gate\r\n" + told + "Connection: close\r\n\r\n"},
		{"a body that may not come ends it", "POST /x HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: gate\r\n" + told + "Connection: close\r\n\r\n"},
		{"a tunnel ends it", "CONNECT x:1 HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: gate\r\nX-Forwarded-Method: CONNECT\r\nX-Forwarded-Uri: x:1\r\nConnection: close\r\n\r\n"},
		{"kept as it was in 1.0", "POST /x HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
			"GET / HTTP/1.0\r\nHost: gate\r\n" + told + "Connection: keep-alive\r\n\r\n"},
		{"empty lines before it", "\r\n\nPOST /x HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: gate\r\n" + told + "\r\n"},
		{"no HTTP", "\x16\x03\x01\n", "GET / HTTP/1.1\r\nHost: gate\r\nX-Weir-Malformed: not_http\r\nConnection: close\r\n\r\n"},
		{"another HTTP", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\nHost: gate\r\nX-Weir-Malformed: not_http\r\nConnection: close\r\n\r\n"},
		{"who may say that it is none", "POST /x HTTP/1.1\r\nX-Weir-Malformed: too_large\r\n\r\n", "GET / HTTP/1.1\r\nHost: gate\r\n" + told + "\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for deadline := range len(tt.raw) { // a read that was broken off goes on where it was
				if got, err := anew(t, g, tt.raw, deadline); err != nil || got != tt.want {
					t.Fatalf("broken off after %d bytes: got %q, %v, want %q", deadline, got, err, tt.want)
				}
			}
		})
	}
}

// A body is a request for nobody, however the line is written that says that there is one, and however large the lines before it are.
func TestNoBodyBecomesARequest(t *testing.T) {
	g := newGate(t, abuser(), withSession)
	const within = "GET /within HTTP/1.1\r\n\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(within))
	heads := map[string]string{"a dropped continuation": strings.TrimSuffix(length, "\r\n") + "\r\n " + strings.Repeat(" ", maxHead) + "\r\n"}
	for _, odd := range []string{"Content-Length : %d\r\n", "Content-Length\t: %d\r\n", "Content-Length\x00: %d\r\n", "X-A: b\rContent-Length: %d\r\n",
		"X-A: b\r\r\nContent-Length: %d\r\n", " Content-Length: %d\r\n", "\tContent-Length: %d\r\n", "\x00Content-Length: %d\r\n",
		"X-A: " + strings.Repeat("a", 3*rawBuffer) + "\rContent-Length: %d\r\n", "X-A\x00" + strings.Repeat("a", 2*rawBuffer) + ":\r\n%d\r\n"} {
		heads[fmt.Sprintf("%.60q", odd)] = fmt.Sprintf(odd, len(within))
	}
	for at := range len("GET / HTTP/1.1\r\nX-Device-Id: \r\n") + len(length) { // each byte of the line crosses the bound
		heads[fmt.Sprintf("%d bytes too large", at)] = "X-Device-Id: " + strings.Repeat("x", maxHead-at-len("GET / HTTP/1.1\r\nX-Device-Id: \r\n")+len(length)) + "\r\n" + length
	}
	for at := range rawBuffer + 8 { // a buffer ends at each byte of a bare return and what follows
		if at < rawBuffer-8 {
			continue
		}
		heads[fmt.Sprintf("a return after %d bytes", at)] = strings.Repeat("x", at-len("GET / HTTP/1.1\r\n")) + ":\rContent-Length: 25\r\n"
	}
	for name, lines := range heads {
		out, err := anew(t, g, "GET / HTTP/1.1\r\n"+lines+"\r\n"+within+within, 0)
		if n := strings.Count(out, "\r\n\r\n"); err != nil || n != 1 && (n != 2 || strings.Contains(out, "too_large")) {
			t.Errorf("%s: %d requests, %v: %.300q", name, n, err, out)
		}
		if strings.Count(out, "/within") == 2 {
			t.Errorf("%s: the body became a request: %.300q", name, out)
		}
	}
}

// BenchmarkHead reads the head of a sub-request as nginx sends it, and writes it anew.
func BenchmarkHead(b *testing.B) {
	raw := []byte("GET /v1/auth-request HTTP/1.1\r\nHost: weir_gate\r\nX-Original-Method: POST\r\nX-Original-URI: /v1/guest-tokens\r\n" +
		"X-Forwarded-For: 192.0.2.1\r\nX-Device-Id: 0123456789abcdef0123456789abcdef\r\nX-User-Id: alice\r\nUser-Agent: bench\r\n\r\n")
	l, ok := newGate(b, abuser(), withSession).Listener(nil).(*listener)
	if !ok {
		b.Fatal("Listener makes another listener")
	}
	w := &wire{in: bytes.NewReader(nil)}
	c := &conn{Conn: w, raw: bufio.NewReaderSize(w, rawBuffer), keep: l.keep}
	room := make([]byte, rawBuffer)
	b.ReportAllocs()
	for b.Loop() {
		w.in.Reset(raw)
		n, err := c.Read(room)
		for more := 0; err == nil; n += more {
			more, err = c.Read(room[n:])
		}
		if out := room[:n]; !bytes.HasPrefix(out, []byte("GET /v1/auth-request HTTP/1.1\r\nHost: gate\r\n")) || !bytes.HasSuffix(out, []byte("X-User-Id: alice\r\n\r\n")) {
			b.Fatalf("%q, %v", out, err)
		}
	}
}

// watchedValues are the values of the headers that a gate looks at.
func watchedValues(h http.Header) string {
	return fmt.Sprintf("%q %q %q", h.Values("X-Forwarded-For"), h.Values("X-Device-Id"), h.Values("Cookie"))
}

// FuzzHeads: whatever a proxy sends, net/http finds in what is written anew only requests that it takes, and answers
// nothing by itself; and where net/http could have read what was sent, the requests and their values are the same, and no
// byte of a body becomes one.
func FuzzHeads(f *testing.F) {
	f.Add("GET / HTTP/1.1\r\nHost: h\r\nX-Device-Id: a\r\nX-Forwarded-For: 192.0.2.1\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\nCookie: sid=1\r\n\r\n")
	f.Add("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 18\r\n\r\nGET /b HTTP/1.1\r\n\r\nGET /c HTTP/1.0\r\n\r\n")
	f.Add("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n")
	f.Add("POST /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabcGET /c HTTP/1.1\r\nHost: h\r\nX-Device-Id: \r\n a\r\n\r\n")
	f.Add("GET / HTTP/1.1\nHost: h\nX-Device-Id: a\rb\x00\x7f\xff\n\nGET\x01 //x HTTP/1.1\r\n\r\n")
	f.Add("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length : 18\r\n\r\nGET /b HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n")
	f.Add("POST /x HTTP/1.1\r\nHost: h\r\nX-Any: a\rContent-Length: 18\r\n\r\nGET /b HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n")
	f.Add("00 * HTTP/2.0\r\n\r\n0 /0 HTTP/0.0\r\n\r\n")
	loneCR := regexp.MustCompile("\r[^\n]|\r$")
	g := newGate(f, abuser(), withSession)
	f.Fuzz(func(t *testing.T, raw string) {
		out, err := anew(t, g, raw, 0)
		if err != nil {
			t.Fatalf("the end of a connection became %v", err)
		}
		var clean []string
		ended := false
		for in := bufio.NewReader(strings.NewReader(out)); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("net/http says %v to %q, made of %q", err, out, raw)
				}
				break
			}
			if ended {
				t.Fatalf("%q goes on after its last request, made of %q", out, raw)
			}
			if r.Host != "gate" || r.ContentLength != 0 || len(r.TransferEncoding) > 0 || r.URL.Path != "/" && r.URL.Path != PathAuthRequest {
				t.Fatalf("%q, made of %q", out, raw)
			}
			clean, ended = append(clean, watchedValues(r.Header)), r.Close
		}
		var plain []string
		ended = false
		for in := bufio.NewReader(strings.NewReader(raw)); !ended; {
			r, err := http.ReadRequest(in)
			if err != nil || r.ProtoMajor != 1 { // the server's answer to another is 505, and the end
				break
			}
			unsure := len(r.TransferEncoding) > 0 || r.ContentLength > 0 && r.Header.Get("Expect") != "" || r.Method == http.MethodConnect
			for name := range r.Header { // ReadRequest takes names that the server does not
				unsure = unsure || strings.ContainsFunc(name, func(c rune) bool { return c >= utf8.RuneSelf || !traffic.TokenByte(byte(c)) })
			}
			plain, ended = append(plain, watchedValues(r.Header)), r.Close || unsure
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				break
			}
		}
		for i := range plain {
			if i >= len(clean) {
				if !loneCR.MatchString(raw) { // which may end a line for another reader, so nothing after it is read
					t.Fatalf("%d requests of %d: %q, made of %q", len(clean), len(plain), out, raw)
				}
			} else if !strings.ContainsFunc(raw, odd) && clean[i] != plain[i] {
				t.Fatalf("request %d: %s became %s in %q, made of %q", i, plain[i], clean[i], out, raw)
			}
		}
		if ended && len(clean) > len(plain) {
			t.Fatalf("%d requests of %d: %q, made of %q", len(clean), len(plain), out, raw)
		}
	})
}

// odd is a character that is cleaned, or that the two readings trim in other ways.
func odd(r rune) bool { return r < ' ' && r != '\r' && r != '\n' || r >= 0x7f }

// serving serves a gate as weir gate does.
func serving(t *testing.T, g *Gate) string {
	t.Helper()
	return doorOf(t, g).address
}

// send writes raw on one connection and reads the statuses of so many answers, or until the end.
func send(t *testing.T, address, raw string, answers int) (statuses []int, bodies []string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, raw)
		written <- err
	}()
	for in := bufio.NewReader(c); len(statuses) < answers; {
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("after %d answers: %v", len(statuses), err)
			}
			break
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Error(err)
		}
		_ = answer.Body.Close()
		statuses, bodies = append(statuses, answer.StatusCode), append(bodies, string(body))
	}
	if err := <-written; err != nil {
		t.Errorf("the gate stopped reading: %v", err)
	}
	return statuses, bodies
}

const heldHead = "GET /v1/forward-auth HTTP/1.1\r\nHost: gate\r\nX-Forwarded-Method: POST\r\nX-Forwarded-Uri: /v1/guest-tokens\r\nX-Forwarded-For: 192.0.2.1\r\n"

// A gate takes what its proxies take, however large, so that nobody is refused, or passes, over the size of a header.
func TestGateTakesLargeHeaders(t *testing.T) {
	g := newGate(t, abuser(), withSession)
	address := serving(t, g)
	for _, size := range []int{70 << 10, 200 << 10, 1 << 20, maxHead - 4<<10} {
		for _, name := range []string{"X-Any", "X-Device-Id", "Cookie"} {
			large := heldHead + name + ": " + strings.Repeat("x", size) + "\r\n\r\n"
			if got, _ := send(t, address, large+large, 2); fmt.Sprint(got) != "[429 429]" {
				t.Errorf("%d bytes of %s: got %d, want 429 twice", size, name, got)
			}
		}
		many := heldHead + strings.Repeat("X-Device-Id: "+strings.Repeat("x", 980)+"\r\n", size/1000) + "\r\n"
		if got, _ := send(t, address, many, 1); fmt.Sprint(got) != "[429]" {
			t.Errorf("%d bytes in many lines: got %d, want 429", size, got)
		}
	}
	// What nobody looks at is not kept, and may be of any size.
	if got, _ := send(t, address, heldHead+"X-Any: "+strings.Repeat("x", 16<<20)+"\r\n\r\n", 1); fmt.Sprint(got) != "[429]" {
		t.Errorf("16 MiB that nobody looks at: got %d, want 429", got)
	}
	if n := testutil.ToFloat64(g.metrics.tooLarge); n != 0 {
		t.Errorf("%v heads counted as too large, want none", n)
	}
}

// What is too large all the same, or no HTTP, is refused by weir's own answer, counted, and read to its end, so that the
// proxy does not take the gate for dead.
func TestGateRefusesWhatItCannotRead(t *testing.T) {
	g := newGate(t, abuser(), withSession)
	address := serving(t, g)
	great := strings.Repeat("x", maxHead)
	for _, raw := range []string{
		heldHead + "X-Device-Id: " + great + "\r\n\r\n",
		heldHead + strings.Repeat("X-Device-Id: "+strings.Repeat("x", 1000)+"\r\n", maxHead/1000) + "\r\n",
		heldHead + "X-Device-Id: a\r\n" + strings.Repeat(" "+strings.Repeat("x", 1000)+"\r\n", maxHead/1000) + "\r\n",
		heldHead + "X-Device-Id: a\r\n " + great + "\r\n\r\n",
		heldHead + strings.Repeat("Cookie:\n", maxHead/8) + "\r\n",
		"GET /" + great + " HTTP/1.1\r\n\r\n",
	} {
		before := testutil.ToFloat64(g.metrics.tooLarge)
		got, bodies := send(t, address, raw+heldHead+"\r\n", 2)
		if fmt.Sprint(got) != "[431]" || !strings.Contains(bodies[0], `"status":431`) {
			t.Errorf("%.60q: got %d %s, want 431 and the end", raw, got, bodies)
		}
		if n := testutil.ToFloat64(g.metrics.tooLarge) - before; n != 1 {
			t.Errorf("%.60q: counted %v times as too large", raw, n)
		}
	}
	for i, raw := range []string{"\x16\x03\x01\x02\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /\r\n", "GET  HTTP/1.1\r\n", "hello\n"} {
		got, bodies := send(t, address, raw, 2)
		if fmt.Sprint(got) != "[400]" || !strings.Contains(bodies[0], `"status":400`) {
			t.Errorf("%q: got %d %s, want 400 and the end", raw, got, bodies)
		}
		if n := testutil.ToFloat64(g.metrics.notHTTP); n != float64(i+1) {
			t.Errorf("%q: %v counted as no HTTP, want %d", raw, n, i+1)
		}
	}
	if n := decided(t, g, "forward_auth", "pass", "") + decided(t, g, "auth_request", "pass", ""); n != 0 {
		t.Errorf("%v of them passed", n)
	}
}

// An answer reaches who sends a body that nobody reads.
func TestGateAnswersBesideBodies(t *testing.T) {
	address := serving(t, newGate(t, abuser(), nil))
	body := strings.Repeat("GET / HTTP/1.1\r\n\r\n", 10<<10)
	for _, tt := range []struct{ name, raw, want string }{
		{"a length", heldHead + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body + heldHead + "Connection: close\r\n\r\n", "[429 429]"},
		{"a length, and the end", heldHead + fmt.Sprintf("Connection: close\r\nContent-Length: %d\r\n\r\n", len(body)) + body, "[429]"},
		{"chunks", heldHead + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", len(body)) + body + "\r\n0\r\n\r\n", "[429]"},
	} {
		for range 20 {
			if got, _ := send(t, address, tt.raw, 3); fmt.Sprint(got) != tt.want {
				t.Errorf("%s: got %d, want %s", tt.name, got, tt.want)
			}
		}
	}
}

// Every byte, at every place of a sub-request, is answered by the gate itself, and held like the others.
func TestGateTakesEveryByte(t *testing.T) {
	list := holding("192.0.2.1")
	address := serving(t, newGate(t, list, withSession))
	for name, at := range map[string]string{
		"value":  "X-Device-Id: a%sb\r\n\r\n",
		"cookie": "Cookie: sid=a%sb\r\n\r\n",
		"chain":  "X-Forwarded-For: 203.0.113.5%s, 192.0.2.1\r\n\r\n",
		"name":   "X%sY: v\r\n\r\n",
		"host":   "Host: h%s\r\n\r\n",
		"method": "X-Forwarded-Method: %s\r\n\r\n",
		"uri":    "X-Forwarded-Uri: /%s\r\n\r\n",
	} {
		for b := range 256 {
			if name == "chain" && b == '\n' {
				continue // a line of its own, and what is left of the chain ends with another address
			}
			raw := "GET /v1/forward-auth HTTP/1.1\r\nX-Forwarded-For: 192.0.2.1\r\n" + fmt.Sprintf(at, string([]byte{byte(b)}))
			if got, _ := send(t, address, raw, 1); fmt.Sprint(got) != "[429]" {
				t.Errorf("%s: byte %#02x: got %d, want 429", name, b, got)
			}
		}
	}
	for b := range 256 {
		for _, raw := range []string{"GE" + string([]byte{byte(b)}) + " /x HTTP/1.1", "GET /x" + string([]byte{byte(b)}) + " HTTP/1.1"} {
			want := "[429]"
			if b == '\n' {
				want = "[400]"
			}
			if got, _ := send(t, address, raw+"\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n", 1); fmt.Sprint(got) != want {
				t.Errorf("%q: got %d, want %s", raw, got, want)
			}
		}
	}
}

func TestWhatGatesLookAtIsReadFromTheRequest(t *testing.T) {
	w := httptest.NewRecorder()
	newGate(t, abuser(), nil).Server().Handler.ServeHTTP(w, asked("/", [2]string{"X-Weir-Malformed", "?"}))
	if w.Code != 400 {
		t.Errorf("a head that says it is malformed: got %d", w.Code)
	}
}
