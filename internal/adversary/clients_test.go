package adversary

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// client is somebody who sends requests. Most come through an edge, a proxy that the gateways trust: it adds their address to
// X-Forwarded-For and says in X-User-Id who is signed in, whatever they have written there. The others have found the
// gateways' own addresses, and send what they like.
type client struct {
	name    string
	ip      netip.Addr
	edge    bool
	user    string // signed in; empty: nobody
	session string
	device  string // as it is sent; empty: another one with each request
	// blocked says by what the client is blocked: "ip", "user", "session", "ip and device"; empty: by nothing.
	blocked string
	victim  bool // others name its address, its user and its session
}

const (
	blockedUser, blockedSession, blockedDevice = "blocked-user", "blocked-session", "tv\xff7"
	victimUser, victimSession, victimAddress   = "victim", "victim-session", "203.0.113.9"
)

func clients() []*client {
	ip := netip.MustParseAddr
	all := []*client{
		{name: "blocked address", ip: ip("198.51.100.1"), edge: true, blocked: "ip"},
		{name: "blocked address, signed in", ip: ip("198.51.100.2"), edge: true, user: "u2", session: "s2", blocked: "ip"},
		{name: "blocked address of version 6", ip: ip("2001:db8:1:2::3"), edge: true, session: "s3", blocked: "ip"},
		{name: "blocked user", ip: ip("198.51.100.4"), edge: true, user: blockedUser, blocked: "user"},
		{name: "blocked session", ip: ip("198.51.100.5"), edge: true, session: blockedSession, blocked: "session"},
		{name: "blocked session past the edge", ip: ip("127.0.0.5"), session: blockedSession, blocked: "session"},
		{name: "blocked device", ip: ip("198.51.100.6"), edge: true, device: blockedDevice, blocked: "ip and device"},
		{name: "victim", ip: ip(victimAddress), edge: true, user: victimUser, session: victimSession, victim: true},
	}
	for i := range 6 {
		all = append(all, &client{name: fmt.Sprintf("free %d", i), ip: ip(fmt.Sprintf("198.51.100.%d", 11+i)), edge: true})
		if i%2 == 0 {
			all[len(all)-1].user = fmt.Sprintf("free-%d", i)
		}
		if i%3 == 0 {
			all[len(all)-1].session = fmt.Sprintf("session-%d", i)
		}
	}
	for i := range 2 {
		all = append(all, &client{name: fmt.Sprintf("free, past the edge %d", i), ip: ip(fmt.Sprintf("127.0.0.%d", 11+i)), session: fmt.Sprintf("past-%d", i)})
	}
	return all
}

// request is one of a client's: its bytes, and who has sent it.
type request struct {
	number  int
	client  *client
	gateway int // of the gateways
	api     int // of the APIs behind them
	plain   bool
	text    string
	// What the request says about its client, as both ends of weir have to read it. The session is empty where it says nothing,
	// the device also where it says two things.
	session, device string
	repeated        bool // the device
}

// odd are header lines by which clients try to be somebody else, to have another request judged, or to upset who reads them.
func odd(dice *rand.Rand) string {
	pick := func(from ...string) string { return from[dice.IntN(len(from))] }
	named := pick(victimAddress, victimAddress, "198.51.100.1", "127.0.0.1", "10.0.0.1", "::1", "unknown", "\""+victimAddress+"\"", victimAddress+":80",
		victimAddress+", 127.0.0.1", "127.0.0.1, "+victimAddress, ", ,", "", "x\x01y", "\xff", strings.Repeat(victimAddress+", ", 60)+victimAddress)
	switch dice.IntN(12) {
	case 0, 1, 2:
		return pick("X-Forwarded-For", "x-forwarded-for", "X-FORWARDED-FOR", "X-Forwarded-For", "X_Forwarded_For", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip",
			"Cf-Connecting-Ip", "Forwarded-For", "X-Test-Client", "Client-Ip") + ": " + named
	case 3:
		return "Forwarded: for=" + named
	case 4:
		return pick("X-Original-Uri", "X-Forwarded-Uri", "X-Original-Url", "X-Rewrite-Url", "X-Forwarded-Path", "X-Original-URI", "X-Envoy-Original-Path") + ": " +
			pick("/v1/films", "/", "/_weir/check", "", "\x01", "/v1/films\x7f")
	case 5:
		return pick("X-Original-Method", "X-Forwarded-Method", "X-Http-Method-Override", "X-Method-Override", "X-HTTP-Method") + ": " + pick("GET", "HEAD", "", "\x02", "OPTIONS")
	case 6:
		return pick("X-Weir-Status: 429", "X-Weir-Block: 0123456789abcdef", "X-Weir-Rule: tokens-by-ip", "X-Weir-Would-Block: x", "X-Weir-Status: 200", "X-Forwarded-Host: x",
			"X-Forwarded-Proto: ftp", "X-Forwarded-Prefix: /x", "Host: other.example.com", "X-Request-Id: a\"b\\c", "X-Forwarded-Port: 1", "X-Forwarded-Server: x")
	case 7:
		return pick("Authorization: Basic dmljdGltOng=", "Authorization: Basic dmljdGltOg==", "Proxy-Authorization: Basic dmljdGltOng=", "Authorization: Basic \x01", "Authorization: Digest username=\"victim\"")
	case 8:
		return pick("X_User_Id", "X-Userid", "Remote-User", "X-Remote-User", "X-User_Id") + ": " + victimUser
	case 9:
		return pick("X-Any", "X-Any", "Referer", "Accept", "Origin", "Accept-Language", "\x80", "X-A(b)", "x\x7fy") + ": a" + string([]byte{byte(dice.IntN(256))}) + "b"
	case 10:
		return pick("X-Large: ", "Accept: ") + strings.Repeat(pick("x", "\xff", "a, "), dice.IntN(3000))
	default:
		return pick("Range: bytes=0-", "If-Match: *", "If-None-Match: *", "Expect: 100-continue", "TE: trailers", "Accept-Encoding: gzip", "Upgrade: h2c", "X-Fold: a\r\n b", ":", "no colon",
			"Content-Encoding: gzip", "Trailer: X-User-Id", "Max-Forwards: 0", "Via: 1.1 x", "Content-Type: \x01", "Early-Data: 1", "Priority: u=1", "Pragma: \x1f")
	}
}

// identityLines are the lines of a client's session and device, and of others', with what they say.
func identityLines(dice *rand.Rand, c *client) (lines []string, session, device string, repeated bool) {
	pick := func(from ...string) string { return from[dice.IntN(len(from))] }
	if c.session != "" {
		session = c.session
		own := pick("sid="+session, "sid="+session, " sid="+session+" ", "sid=\""+session+"\"", "a=b; sid="+session, "a=b;sid="+session, "; sid="+session, "SID="+victimSession+"; sid="+session,
			"xsid="+victimSession+"; sid="+session, "a=\x01; sid="+session, "a=\xff;sid="+session)
		switch dice.IntN(4) {
		case 0:
			lines = append(lines, "Cookie: "+own+pick("; sid=", ";sid=", "; a=b; sid=")+pick(victimSession, blockedSession, "x", ""))
		case 1:
			lines = append(lines, "Cookie: "+own, pick("Cookie: ", "cookie: ", "COOKIE:")+"sid="+pick(victimSession, "x", ""))
		case 2:
			lines = append(lines, "cookie: a=b", "Cookie: "+own, "Cookie: sid="+pick(victimSession, "x"))
		default:
			lines = append(lines, "Cookie: "+own)
		}
	}
	sent := c.device
	if sent == "" && dice.IntN(2) == 0 {
		sent = pick("tv-7", "phone", "t\x01v", "t"+string([]byte{byte(0x80 + dice.IntN(128))})+"v", "caf\u00e9", "a\u0085b", "x\x7fy", "\xc3", "\xed\xa0\x80", "a b", "a,b", "a;b", "\"q\"", "a\\b")
	}
	if sent != "" {
		lines = append(lines, pick("X-Device-Id", "x-device-id", "X-DEVICE-ID")+pick(": ", ":", ":  \t")+sent+pick("", " ", "\t"))
		device = readable(sent)
		if c.device == "" && dice.IntN(6) == 0 {
			lines = append(lines, "X-Device-Id: "+pick("other", sent))
			device, repeated = "", true
		}
	}
	return lines, session, device, repeated
}

// readable is an identity's value as weir keeps it: each byte that is no UTF-8, and each control character, is U+FFFD.
func readable(value string) string {
	var b strings.Builder
	for _, r := range value {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			r = utf8.RuneError
		}
		b.WriteRune(r)
	}
	return b.String()
}

// draw makes one request of a client, the last one of its connection or not.
func draw(dice *rand.Rand, number int, c *client, last bool) request {
	pick := func(from ...string) string { return from[dice.IntN(len(from))] }
	r := request{number: number, client: c, plain: c.victim || dice.IntN(10) == 0}
	method, target, version := "POST", operation, "HTTP/1.1"
	lines := []string{"Host: api.example.com", fmt.Sprintf("User-Agent: request-%d", number)}
	if r.plain {
		if r.session = c.session; c.session != "" {
			lines = append(lines, "Cookie: sid="+c.session)
		}
		if r.device = readable(c.device); c.device != "" {
			lines = append(lines, "X-Device-Id: "+c.device)
		}
	} else {
		switch dice.IntN(12) {
		case 0:
			table := spellings()
			target = table[dice.IntN(len(table))]
		case 1:
			table := eachByte()
			target = table[dice.IntN(len(table))]
		case 2, 3, 4, 5, 6:
			target = respelled(dice)
		default: // so that its headers are looked at
		}
		if dice.IntN(16) == 0 {
			method = pick("post", "Post", "pOST", "GET", "PUT", "HEAD", "OPTIONS", "POSTX", "P\x01", "CONNECT", "TRACE", "BREW")
		}
		if dice.IntN(16) == 0 {
			version = pick("HTTP/1.0", "HTTP/1.0", "HTTP/1.2", "http/1.1", "HTTP/2.0", "HTTP/0.9", "HTTP/1.1 ", "")
		}
		var own []string
		own, r.session, r.device, r.repeated = identityLines(dice, c)
		lines = append(lines, own...)
		for range dice.IntN(3) {
			lines = append(lines, odd(dice))
		}
		if dice.IntN(40) == 0 { // more than some of those who read it take
			for range dice.IntN(30) {
				lines = append(lines, "X-Large: "+strings.Repeat("x", dice.IntN(7500)))
			}
		}
		if !c.edge && dice.IntN(4) == 0 {
			lines = append(lines, "Connection: "+pick("X-Forwarded-For", "Cookie", "X-Forwarded-Uri, X-Forwarded-Method", "X-Device-Id", "Host", "X-Original-Uri", "close, X-Forwarded-For"))
		}
		if dice.IntN(5) == 0 {
			// Whose request it is, the order of these lines alone says.
			others := append(slices.Clone(lines[:2]), lines[2+len(own):]...)
			dice.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
			at := dice.IntN(len(others) + 1)
			lines = slices.Concat(others[:at], own, others[at:])
		}
	}
	if c.edge {
		// What an edge does: its own word comes last, and X-User-Id is its own alone.
		lines = append(lines, "X-Forwarded-For: "+c.ip.String())
		if c.user != "" {
			lines = append(lines, "X-User-Id: "+c.user)
		}
	}
	body := ""
	if !r.plain && dice.IntN(6) == 0 {
		body = pick("x", strings.Repeat("x", 9000), "POST "+operation+" HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: hidden\r\n\r\n")
	}
	switch {
	case !r.plain && dice.IntN(20) == 0:
		lines = append(lines, "Transfer-Encoding: chunked")
		body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", max(len(body), 1), max(body, "x"))
	default:
		lines = append(lines, fmt.Sprintf("Content-Length: %d", len(body)))
	}
	if last {
		lines = append(lines, "Connection: close")
	} else {
		lines = append(lines, "Connection: keep-alive")
	}
	r.text = strings.TrimRight(method+" "+target+" "+version, " ") + "\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n" + body
	return r
}
