package condition

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// settled lists what Settled reports of a condition, one line for each.
func settled(l *Language, expr string) []string {
	var out []string
	l.Settled(expr, func(line, column int, got, allowed, hint string) {
		text := fmt.Sprintf("%d:%d: got %s, allowed %s", line, column, got, allowed)
		if hint != "" {
			text += "; " + hint
		}
		out = append(out, text)
	})
	return out
}

func TestSettledComparisons(t *testing.T) {
	const (
		method  = ", allowed a method in upper case, as conditions see each"
		host    = ", allowed a host in lower case and without port, as conditions see each"
		address = ", allowed an address in its canonical form, such as 203.0.113.9 or 2001:db8::1"
		path    = ", allowed a path without its query, as events have it"
		status  = ", allowed 0 to 999, 0 where the event does not tell it"
		number  = ", allowed 0 and more, 0 where the event does not tell it"
		never   = ", which never holds"
	)
	l := language(t)
	for _, tt := range []struct {
		expr string
		want []string
	}{
		{`event.method == "post"`, []string{`1:17: got event.method == "post"` + never + method + `; write "POST"`}},
		{`"post" == event.method`, []string{`1:1: got event.method == "post"` + never + method + `; write "POST"`}},
		{`event.method != "Get"`, []string{`1:17: got event.method != "Get", which always holds` + method + `; write "GET"`}},
		{"event.status == 401 &&\n  event.method in [\"GET\", \"head\",\n  'post']", []string{
			`2:27: got "head" in the list for event.method, which it never is` + method + `; write "HEAD"`,
			`3:3: got "post" in the list for event.method, which it never is` + method + `; write "POST"`,
		}},
		{`event.plan == "a" ? event.method.startsWith("po") : !event.method.contains("x")`, []string{
			`1:45: got event.method.startsWith("po")` + never + method + `; write "PO"`,
			`1:76: got event.method.contains("x")` + never + method + `; write "X"`,
		}},
		{`event.method.matches("^(get|post)$")`, []string{
			`1:22: got event.method.matches("^(get|post)$")` + never + method + "; (?i) at the beginning of a pattern takes letters of either case"}},
		{`event.method.matches("^(get|POST)$") || event.method.matches("(?i)^get") || event.method.matches("")`, nil},
		{`event.method == "POST" || event.method == "" || event.method == "M-SEARCH" || event.method > "a"`, nil},
		{`event.host == "Example.COM"`, []string{`1:15: got event.host == "Example.COM"` + never + host + `; write "example.com"`}},
		{`event.host == "example.com:8443"`, []string{`1:15: got event.host == "example.com:8443"` + never + host + `; write "example.com"`}},
		{`event.host in [" example.com"]`, []string{`1:16: got " example.com" in the list for event.host, which it never is` + host + `; write "example.com"`}},
		{`event.host.endsWith(".Example.com")`, []string{`1:21: got event.host.endsWith(".Example.com")` + never + host + `; write ".example.com"`}},
		{`event.host == "example.com." || event.host == "[::1]" || event.host == "::1" || event.host == "münchen.example" || event.host.endsWith(":1") || event.host == ""`, nil},
		{`event.ip == "2001:DB8::1"`, []string{`1:13: got event.ip == "2001:DB8::1"` + never + address + `; write "2001:db8::1"`}},
		{`event.ip == "2001:db8:0:0:0:0:0:1"`, []string{`1:13: got event.ip == "2001:db8:0:0:0:0:0:1"` + never + address + `; write "2001:db8::1"`}},
		{`event.ip in ["::ffff:192.0.2.1", "192.0.2.1:443", "[::1]", "fe80::1%eth0"]`, []string{
			`1:14: got "::ffff:192.0.2.1" in the list for event.ip, which it never is` + address + `; write "192.0.2.1"`,
			`1:34: got "192.0.2.1:443" in the list for event.ip, which it never is` + address + `; write "192.0.2.1"`,
			`1:51: got "[::1]" in the list for event.ip, which it never is` + address + `; write "::1"`,
			`1:60: got "fe80::1%eth0" in the list for event.ip, which it never is` + address + `; write "fe80::1"`,
		}},
		{`event.ip == "10.1.0.0/16"`, []string{`1:13: got event.ip == "10.1.0.0/16"` + never + address + `; conditions compare texts: event.ip.startsWith("10.1.") asks for 10.1.0.0/16`}},
		{`event.ip == "10.1.0.0/12"`, []string{`1:13: got event.ip == "10.1.0.0/12"` + never + address + "; conditions compare texts, and know no prefixes of addresses"}},
		{`event.ip == "::ffff:10.0.0.1/128"`, []string{`1:13: got event.ip == "::ffff:10.0.0.1/128"` + never + address + `; write "10.0.0.1"`}},
		{`event.ip != "0.0.0.0"`, []string{`1:13: got event.ip != "0.0.0.0", which always holds` + address + `; "" is what an event has that does not tell its address`}},
		{`event.ip == "localhost"`, []string{`1:13: got event.ip == "localhost"` + never + address}},
		{`event.ip.startsWith("2001:DB8:")`, []string{`1:21: got event.ip.startsWith("2001:DB8:")` + never + address + `; write "2001:db8:"`}},
		{`event.ip.startsWith("10.*")`, []string{`1:21: got event.ip.startsWith("10.*")` + never + address}},
		{`event.ip.matches("^10-")`, []string{`1:18: got event.ip.matches("^10-")` + never + address}},
		{`event.ip == "203.0.113.9" || event.ip == "" || event.ip.startsWith("10.") || event.ip.matches("^10[.](1|2)[.]") || event.ip == "::1"`, nil},
		{`event.path == "/search?q=x"`, []string{`1:15: got event.path == "/search?q=x"` + never + path + `; write "/search"`}},
		{`event.path.contains("?")`, []string{`1:21: got event.path.contains("?")` + never + path + "; the query is no part of event.path"}},
		{`matches(event.path, "^/search\\?q=")`, []string{`1:21: got event.path.matches("^/search\\?q=")` + never + path + "; the query is no part of event.path"}},
		{`event.path.matches("^/v[0-9]?/a") || event.path == "/a%3Fb" || event.path.endsWith("Ä")`, nil},
		{`event.status == 1000`, []string{`1:17: got event.status == 1000` + never + status}},
		{`event.status == -1 || event.status > 999 || 0 > event.status || event.status <= -0.5 || event.status >= 1000u`, []string{
			"1:17: got event.status == -1" + never + status + "; 0 is what an event has that does not tell it",
			"1:38: got event.status > 999" + never + status,
			"1:45: got event.status < 0" + never + status,
			"1:81: got event.status <= -0.5" + never + status + "; 0 is what an event has that does not tell it",
			"1:105: got event.status >= 1000u" + never + status,
		}},
		{`event.status in [401, 4040] && event.status != 4040`, []string{
			"1:23: got 4040 in the list for event.status, which it never is" + status,
			"1:48: got event.status != 4040, which always holds" + status,
		}},
		// Gateways write a status that is none of HTTP's, and decoders take it. A bound that always holds does no harm.
		{`event.status == 9 || event.status == 42 || event.status > 599 || event.status == 0 || event.status >= 0 || event.status <= 999 || event.status < 1`, nil},
		{`event.bytes < 0 || event.latency_ms == -1.0`, []string{
			"1:15: got event.bytes < 0" + never + number, "1:40: got event.latency_ms == -1" + never + number + "; 0 is what an event has that does not tell it"}},
		{`event.bytes > 9223372036854775806 || event.bytes <= 0 || event.latency_ms > 1e18`, nil},
		// Of these nothing is known.
		{`event.user == "A b" || event.route == "Ü" || event.attrs.method == "post" || event.headers["host"] == "A:1" || event.id == "?" || event.user_agent.contains("?")`, nil},
		{`has(event.method) && has(event.status) && event.method == event.attrs.m && string(event.status) == "42" && event.host.size() == -1 && event.method + "x" == "x"`, nil},
		{`event.method ==`, nil}, {strings.Repeat("!", 300) + "true", nil},
	} {
		if got := settled(l, tt.expr); !slices.Equal(got, tt.want) {
			t.Errorf("%s\ngot  %s\nwant %s", tt.expr, strings.Join(got, "\n     "), strings.Join(tt.want, "\n     "))
		}
	}
}

// Whatever a client sends, a text that is said never to be a field's is none: of all short hosts, methods and addresses of some letters
// that make a difference. And what none of them comes out as is said.
func TestSettledTextsAreThoseThatNoEventHas(t *testing.T) {
	words := []string{""}
	for longest := words; len(longest[0]) < 5; {
		var longer []string
		for _, w := range longest {
			for _, c := range "aA.:[]1 " {
				longer = append(longer, w+string(c))
			}
		}
		words, longest = append(words, longer...), longer
	}
	identify, err := (&traffic.IdentityMap{}).Compile()
	if err != nil {
		t.Fatal(err)
	}
	forms := textForms()
	for f, see := range map[field]func(sent string) string{
		fieldHost:   reading.PlainHost,
		fieldMethod: upper,
		fieldIP: func(sent string) string {
			e := &Event{}
			id, _ := identify.FromEvent(&traffic.Request{IP: sent})
			e.Reset(&traffic.Request{}, &id)
			return e.text(fieldIP)
		},
	} {
		form, seen := forms[f], map[string]bool{}
		for _, sent := range words {
			seen[see(sent)] = true
		}
		for _, text := range words {
			if len(text) > 3 { // longer ones come of what is longer than words
				break
			}
			if fits := form.fits("_==_", text, nil); fits != seen[text] {
				t.Errorf("event.%s: %q is told to be possible: %v, and is one of what clients send: %v", fieldNames[f], text, fits, seen[text])
			}
		}
	}
}

// A pattern is said to be found nowhere only if it is in no text of those letters.
func TestFindablePatterns(t *testing.T) {
	const letters = "aB?é"
	var texts []string
	for longest := []string{""}; len(texts) < 1000; {
		var longer []string
		for _, w := range longest {
			for _, c := range letters {
				longer = append(longer, w+string(c))
			}
		}
		texts, longest = append(texts, longest...), longer
	}
	for _, pattern := range []string{"", "a", "^a$", "b", "(?i)b", "^$", "a?B", `\?`, "é", "[^a-z]", "[a-z]", `\ba\b`, "^(a|b)+$", "[0-9]", ".", "^..$", "x|é", "[é-ü]", "(?m)^a$", `\pL\d`} {
		p, err := compilePattern(pattern, MaxPatternTable)
		if err != nil {
			t.Fatal(err)
		}
		for left := range letters {
			has := func(c rune) bool {
				return strings.ContainsRune(letters[:left], c) || c >= 0x80 && strings.ContainsFunc(letters[:left], func(of rune) bool { return of >= 0x80 })
			}
			found := slices.ContainsFunc(texts, func(text string) bool {
				return !strings.ContainsFunc(text, func(c rune) bool { return !has(c) }) && p.match(text)
			})
			if got := p.findable(has); got != found {
				t.Errorf("%q in texts of %q: told to be found %v, is found %v", pattern, letters[:left], got, found)
			}
		}
	}
}

// The bounds of numbers, and the end of paths, are those of the decoders.
func TestFormsAreThoseOfTheDecoders(t *testing.T) {
	for _, name := range []string{format.Weir, format.JSON, format.HAProxy} {
		d, err := format.NewDecoder(name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		decode := func(member string) (r traffic.Request, err error) {
			err = d.Decode([]byte(`{"method": "GET", `+member+`}`), &r)
			return r, err
		}
		for member, f := range map[string]field{"status": fieldStatus, "bytes": fieldBytes, "latency_ms": fieldLatency} {
			form := numberForms()[f]
			for _, n := range []float64{-2, -0.5, 0, 1, 42, 599, 999, 1000, 1e6} {
				if n != float64(int64(n)) && f != fieldLatency {
					continue
				}
				_, err := decode(`"` + member + `": ` + strconv.FormatFloat(n, 'f', -1, 64))
				if fits := form.fits("_==_", n); fits != (err == nil) {
					t.Errorf("%s: event.%s == %v is told to be possible: %v, and an event with it: %v", name, member, n, fits, err)
				}
			}
		}
		if r, err := decode(`"path": "/a?b?c"`); err != nil || r.Path != "/a" {
			t.Errorf("%s: path %q, %v", name, r.Path, err)
		}
	}
}
