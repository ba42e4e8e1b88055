package rules

import (
	"encoding/hex"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestReachesHoweverThePathIsSpelled asks for paths that servers read as the watched one, and for neighbours that none
// reads so. Both ends are asked: the gate's question and the index by which events are routed.
func TestReachesHoweverThePathIsSpelled(t *testing.T) {
	tokens := Match{Methods: []string{"POST"}, Path: "/v1/guest-tokens"}
	item := Match{Path: "/files/{id}"}
	tree := Match{Path: "/v2/*"}
	folder := Match{Path: "/files/"}
	raw, folded, rawFolded := tokens, tokens, tokens
	raw.PathAs, folded.PathCase = PathRaw, PathCaseIgnore
	rawFolded.PathAs, rawFolded.PathCase = PathRaw, PathCaseIgnore
	tests := []struct {
		match        Match
		method, path string
		want         bool
	}{
		{tokens, "POST", "/v1/guest-tokens", true},
		{tokens, "post", "/v1/guest-tokens?x=1", true},
		{tokens, "GET", "/v1/guest-tokens", false},
		{tokens, "POST", "/v1/%67uest-tokens", true},
		{tokens, "POST", "/v1/guest%2Dtokens", true},
		{tokens, "POST", "/v1%2Fguest-tokens", true},
		{tokens, "POST", "/v1%2fguest-tokens", true},
		{tokens, "POST", "//v1//guest-tokens", true},
		{tokens, "POST", "/v1/./guest-tokens", true},
		{tokens, "POST", "/v1/x/../guest-tokens", true},
		{tokens, "POST", "/v1/x/%2e%2E/guest-tokens", true},
		{tokens, "POST", "/../v1/guest-tokens", true},
		{tokens, "POST", "/v1/guest-tokens/", true},
		{tokens, "POST", "/v1/guest-tokens//", true},
		{tokens, "POST", "/v1/guest-tokens/.", true},
		{tokens, "POST", "/v1/guest-tokens/x/..", true},
		{tokens, "POST", "/v1/guest-tokens#", true},
		{tokens, "POST", "/v1/guest-tokens#/../x?y", true},
		{tokens, "POST", "/v1/guest-tokens;a=b", true},
		{tokens, "POST", "/v1;a/guest-tokens;b=c;d", true},
		{tokens, "POST", "/v1/x/..;/guest-tokens", true},
		{tokens, "POST", `/v1\guest-tokens`, true},
		{tokens, "POST", "http://x/v1/guest-tokens", true},
		{tokens, "POST", "https://user@[::1]:8443/v1/guest-tokens#f", true},
		{tokens, "POST", "HTTP://x/v1/%67uest-tokens", true},
		{tokens, "POST", "foo+bar://x/v1/guest-tokens", true},
		{tokens, "POST", "http:/v1/guest-tokens", true},
		{tokens, "POST", "http:////x/v1/guest-tokens", true},
		{tokens, "POST", "http:///x/v1/guest-tokens", true},
		{tokens, "POST", "http:///v1/guest-tokens", true},
		{tokens, "POST", "//evil.example/v1/guest-tokens", true},
		{tokens, "POST", `/\evil.example\v1\guest-tokens`, true},
		{tokens, "POST", "/v1/guest-tokens\xa0", true},
		{tokens, "POST", "/v1/guest-tokens\x85\xa0 \t", true},
		{tokens, "POST", "/v1/gue\tst-tokens", true},

		{tokens, "POST", "/v1/guest-tokens%3Fx", false},
		{tokens, "POST", "/v1/guest-tokens%23", false},
		{tokens, "POST", "/v1/guest-tokens%20", false},
		{tokens, "POST", "/v1/guest-tokens%09", false},
		{tokens, "POST", "/v1/guest-tokens\u00e0", false},
		{tokens, "POST", "/v1/guest-token", false},
		{tokens, "POST", "/v1/guest-tokens/1", false},
		{tokens, "POST", "/v1/guest-tokens/../1", false},
		{tokens, "POST", "/v1/guest-tokens.", false},
		{tokens, "POST", "/V1/Guest-Tokens", false},
		{tokens, "POST", "/v1/%2567uest-tokens", false}, // twice encoded: nobody decodes twice by right
		{tokens, "POST", "/x#/v1/guest-tokens", false},
		{tokens, "POST", "/?/v1/guest-tokens", false},
		{tokens, "POST", "http://x?/v1/guest-tokens", false},
		{tokens, "POST", "http://x#/v1/guest-tokens", false},
		{tokens, "POST", "//x#/v1/guest-tokens", false},
		{tokens, "POST", "http:v1/guest-tokens", false},
		{tokens, "POST", "v1/guest-tokens", false},
		{tokens, "POST", "%", false},
		{tokens, "POST", "", false},
		{tokens, "POST", "*", false},

		{folded, "POST", "/V1/Guest-Tokens", true},
		{folded, "POST", "/V1/%47UEST-TOKENS/", true},
		{folded, "POST", "/v1/guest-to\u212aens", false}, // the Kelvin sign folds to k in Unicode
		{Match{Path: "/V1/{ID}/X*", PathCase: PathCaseIgnore}, "GET", "/v1/7/xY", true},
		{Match{Path: "/V1/" + strings.Repeat("a", 100), PathCase: PathCaseIgnore}, "GET", "/v1/" + strings.Repeat("A", 100), true},
		{raw, "POST", "/v1/guest-tokens?x", true},
		{raw, "POST", "/v1/guest-tokens/", false},
		{raw, "POST", "/v1/%67uest-tokens", false},
		{rawFolded, "POST", "/V1/Guest-Tokens", true},
		{rawFolded, "POST", "/V1/Guest-Tokens/", false},

		{item, "GET", "/files/a%2Fb", true},
		{item, "GET", `/files/a\b`, true},
		{item, "GET", "/files//a", true},
		{item, "GET", "/files/7/", true},
		{item, "GET", "/files/#", true}, // Go serves it
		{item, "GET", "/files/;", true},
		{item, "GET", "/files/..", true}, // Express does
		{item, "GET", "/files/", false},
		{item, "GET", "/files", false},
		{item, "GET", "/files/a/b", false},
		{folder, "GET", "/files/", true},
		{folder, "GET", "/files", false},
		{tree, "GET", "/v2", false},
		{tree, "GET", "/v2/", true},
		{tree, "GET", "/v1/../v2/a", true},
		{tree, "GET", "/v2/../a", true}, // Express does
		{tree, "GET", "/v1/a", false},
		{Match{Path: "/"}, "GET", "http://x", true},
		{Match{Path: "/"}, "GET", "http://x?q", true},
		{Match{Path: "/"}, "GET", "//x", true}, // new URL takes x for a host
		{Match{Path: "/a b"}, "GET", "/x/../a%20b", true},
		{Match{Path: "/100%"}, "GET", "/100%25", true},
		{Match{Path: "/caf\u00e9"}, "GET", "/caf%C3%A9", true},
		{Match{Path: "/a;v=1/b"}, "GET", "/a;v=1/b", true},
		{Match{}, "GET", "anything", true},
		{Match{Path: "s3.amazonaws.com"}, "CONNECT", "s3.amazonaws.com", true},
		{Match{Path: "h:443"}, "CONNECT", "h:443", true},
		{Match{Path: "*"}, "OPTIONS", "*", true},

		// Patterns from before there was a normal form.
		{Match{Path: "/a%20b"}, "GET", "/x/../a%20b", true},
		{Match{Path: "/%61"}, "GET", "/a", true},
		{Match{Path: "//a/../b"}, "GET", "/b", true},
		{Match{Path: "/%7Bx%7D"}, "GET", "/%7Bx%7D", true},
		{Match{Path: "/%7Bx%7D"}, "GET", "/y", false},
		{Match{Path: "/%2561"}, "GET", "/a", false},
	}
	for _, tt := range tests {
		if got := tt.match.Reaches(tt.method, tt.path); got != tt.want {
			t.Errorf("%s, %s %q: reached %v, want %v", describeMatch(tt.match), tt.method, tt.path, got, tt.want)
		}
		ix := NewIndex([]Version{{Document: Document{Match: tt.match}}})
		if got := ix.Match(nil, tt.method, tt.path); (len(got) == 1) != tt.want {
			t.Errorf("%s, %s %q: routed to %v, want %v", describeMatch(tt.match), tt.method, tt.path, got, tt.want)
		}
	}
}

// TestEachReadingIsNeeded has for each reading, in their order, a path that is served under it and under no other one.
func TestEachReadingIsNeeded(t *testing.T) {
	for i, tt := range [len(readings)]struct{ pattern, path string }{
		{"/{x}/{y}/a", `/../a\%3B..#%2F..%2Fa\a/a`},
		{"/a/b/a", `//a/b/..;%2e%2e\a%2F%2F%2e%2e/a#a\a`},
		{"/{x}/a", "//..%2Fa;%2e%2e%2Fa%2F/..#a#..;a"},
		{"/{x}/{y}/a", `/%5C..#%2e%2e\..\a%2F../a`},
		{"/a", "//%2F#;/..%2Fa"},
		{"/{x}/{y}", `/;..\..\%5C..;a\/..#a/b`},
		{"/{x}", "/../..#%3Ba#%2e%2e%2F..#a"},
		{"/{x}/{y}", `/;a%2F../..\a/#a/b`},
		{"/{x}/{y}/a", `/%2e%2e%2F;a/..\a`},
		{"/{x}/a", `/%2e%2e\a%2F#a`},
		{"/{x}/a", `//a%5C..\a\..//..\a`},
		{"/{x}", `//h/a%2F\../a#%2Fa`},
		{"/a", `/\h\a%2F#a;b`},
		{"/{x}", `/a/\%2e%2e\a%5Ca%2Fb`},
		{"/{x}/{y}/a", `//h/a\a%2F%2e%2e%5Ca/%2e%2e#a#;a%2Fb`},
		{"/{x}/{y}/a", `/..;..%2F..%2Fa%5Ca/a#../%2e%2e\a`},
		{"/a/{x}/a", `//h/a/;a;a\%5C..%2Fa%5C../a`},
		{"/{x}/{y}/a", "//h/%2e%2e/..;..%2Fa"},
		{"/{x}", "//h/..;//%2e%2e/..;a"},
		{"/{x}/a", `//h/..%2F../a;a\b`},
		{"/{x}/a", "//a%2Fa%2F../%2e%2e%2Fa;a"},
		{"/{x}", "//h//a/%2e%2e/;a%2Fa/b"},
		{"/a", "/a/%2e%2e/..#a"},
		{"/{x}/{y}", "/a/a;%2Fa/a"},
		{"/{x}/{y}/a", `/\h\..%5Ca%2Fa;%2e%2e%5C../%2e%2e/a;a#a`},
		{"/{x}/a", "//..%2Fa;a"},
		{"/{x}", `//h//../a%5Ca\a%2Fb`},
		{"/{x}", `//h/%2e%2e\a/%2F..;a%2Fa`},
		{"/{x}/{y}/a", `/\h\%2e%2e%2Fa%5Ca`},
		{"/a", `/\a%5Ca%2F..;a#a`},
		{"/a", "/a%3Ba#a"},
		{"/a", "/a/..%2F%2e%2e/..//..;a"},
		{"/a/a", "//a%2F%2F../a;a"},
	} {
		odd := newOddPath(tt.path)
		for j, r := range readings {
			s := segments{text: odd.text, cuts: odd.read(r), loose: true}
			if got := s.match(tt.pattern, false); got != (i == j) {
				t.Errorf("%q reaches %s under reading %d (%011b): %v; it is there to be reached under %d only", tt.path, tt.pattern, j, r, got, i)
			}
		}
	}
}

// FuzzReading respells a path that is watched, in ways that leave it the same for some server, and holds that both ends see
// it still, and agree on every path.
func FuzzReading(f *testing.F) {
	f.Add("/v1/{id}/*", "/v1/a/b", []byte("\x00\x13\x27"))
	f.Add("/v1/guest-tokens", "/v1/guest-tokens", []byte("respell this often"))
	f.Add("/a%2Fb", "/a%2fb", []byte{})
	f.Add("/A/{x}", "//h/a/;p/..", []byte{7, 7, 7})
	f.Fuzz(func(t *testing.T, pattern, path string, how []byte) {
		versions := make([]Version, 4)
		for i := range versions {
			m := &versions[i].Match
			m.Path = pattern
			if i&1 != 0 {
				m.PathAs = PathRaw
			}
			if i&2 != 0 {
				m.PathCase = PathCaseIgnore
			}
		}
		ix := NewIndex(versions)
		agree := func(path string) (reached [4]bool) {
			var want []int
			for i := range versions {
				if reached[i] = versions[i].Match.Reaches("GET", path); reached[i] {
					want = append(want, i)
				}
			}
			if got := ix.Match(nil, "GET", path); !slices.Equal(got, want) {
				t.Fatalf("%q, %q: routed to %v, reaches %v", pattern, path, got, want)
			}
			if reached[1] && !reached[0] || reached[3] && !reached[2] || reached[0] && !reached[2] {
				t.Fatalf("%q, %q: a reading that takes in less takes in this: %v", pattern, path, reached)
			}
			return reached
		}
		agree(path)
		if !strings.HasPrefix(pattern, "/") || checkPath(pattern) != "" || strings.ContainsAny(pattern, "*{}") {
			return
		}
		// The pattern itself is a path that reaches it, and so is each of its spellings.
		if normal, ok := normalPath(pattern); !ok || normal != pattern || strings.ContainsAny(pattern, `%#;\`) {
			return
		}
		if respelled := respell(pattern, how); !agree(respelled)[0] {
			t.Fatalf("%q is a spelling of %q and does not reach it", respelled, pattern)
		}
	})
}

// respell writes a path in another way, chosen by how, that one server or other reads as the same.
func respell(path string, how []byte) string {
	next := func() byte {
		if len(how) == 0 {
			return 0
		}
		c := how[0]
		how = how[1:]
		return c
	}
	kind := next() % 3 // one server's kind of spelling at a time: which delimiters may be mixed is its business
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c, n := path[i], next()
		switch {
		case n%5 == 0 || c >= utf8.RuneSelf && n%2 == 0:
			b.WriteByte(c)
		case i == 0 && n%5 != 2:
			b.WriteByte(c) // a target begins with a slash
		case c == '/' && n%5 == 1:
			b.WriteString([]string{"//", ";p/", `\`}[kind])
		case c == '/' && n%5 == 2:
			b.WriteString([]string{"/./", "/./", `\.\`}[kind])
		case c == '/' && n%5 == 3:
			b.WriteString([]string{"/x/%2e%2e/", "/x/..;p/", `\x/..\`}[kind])
		case c == '/' && n%5 == 4 && kind == 0:
			b.WriteString([]string{"%2f", "%2F"}[n/5%2])
		case c != '/':
			b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
		default:
			b.WriteByte(c)
		}
	}
	switch n := next(); n % 4 {
	case 1:
		b.WriteString([]string{"#f", ";p", "#f"}[kind])
	case 2:
		b.WriteString("?q=/../x")
	case 3:
		b.WriteString([]string{"/", "/;p", `\`}[kind])
	}
	return []string{"", "http://h:1"}[next()%2] + b.String()
}

// TestTheCostOfAPath holds that ordinary paths cost no memory, and that a path made to be costly is read as often as any
// other odd one, and takes memory in proportion to its length.
func TestTheCostOfAPath(t *testing.T) {
	m := Match{Methods: []string{"POST"}, Path: "/v1/guest-tokens"}
	ix := NewIndex(append(manyRules(100), Version{Document: Document{Match: m}},
		Version{Document: Document{Match: Match{Path: "/V1/guest-tokens", PathCase: PathCaseIgnore}}}))
	dst := make([]int, 0, 16)
	for _, path := range []string{
		"/v1/guest-tokens", "/v1/other/", "/v1/Guest-Tokens?x=%20", "/.well-known/a.b/..c", "http://host.example/v1/guest-tokens", "*", "",
	} {
		if n := testing.AllocsPerRun(100, func() { m.Reaches("POST", path); dst = ix.Match(dst[:0], "POST", path) }); n != 0 {
			t.Errorf("%q: %v allocations", path, n)
		}
	}
	for _, unit := range []string{"%2e%2e;/", "/a/..", "/", `\;#%2F%5C%3B`, "%2e%2e%2F", "/;a%3B/..", "%"} {
		path := "//h/" + strings.Repeat(unit, 8192/len(unit))
		ways := 0
		for s := spellingsOf(path); s.next(); {
			ways++
		}
		if most := 1 + len(readings); ways > most {
			t.Errorf("8 KB of %q are read in %d ways, at most %d", unit, ways, most)
		}
		const most = 100 * 8192
		if took := memory(func() { dst = ix.Match(dst[:0], "POST", path) }); took > most {
			t.Errorf("8 KB of %q take %d bytes of memory, at most %d", unit, took, most)
		}
	}
}

// memory is how many bytes f takes from the heap.
func memory(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// BenchmarkReaches is the cost of one question: of an ordinary path, of odd ones, and of 8 KB made to be costly.
func BenchmarkReaches(b *testing.B) {
	m := Match{Methods: []string{"POST"}, Path: "/v1/guest-tokens"}
	ix := NewIndex(append(manyRules(1000), Version{Document: Document{Match: m}}))
	for _, bb := range []struct{ name, path string }{
		{"ordinary", "/v1/guest-tokens"},
		{"escaped", "/v1/guest%2Dtokens"},
		{"dots", "/v1/x/../guest-tokens"},
		{"everything", `http://h/v1;a/x\..%2F%2e/guest-tokens;b#c`},
		{"8KB", "/v1/guest-tokens/" + strings.Repeat("%2e%2e;/", 1024) + "v1/guest-tokens"},
		{"8KB-mixed", "/v1/guest-tokens/" + strings.Repeat(`x\..;%3B%2F..%5C/`, 512)},
	} {
		want := m.Reaches("POST", bb.path)
		b.Run("gate/"+bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if m.Reaches("POST", bb.path) != want {
					b.Fatal("another answer")
				}
			}
		})
		dst := make([]int, 0, 16)
		b.Run("route/"+bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if dst = ix.Match(dst[:0], "POST", bb.path); slices.Contains(dst, 1000) != want {
					b.Fatal("another answer")
				}
			}
		})
	}
}
