package rules

import (
	"encoding/hex"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirhq/weir/rules/reading"
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

		// without a slash in front
		{tokens, "POST", "v1/guest-tokens", true},
		{tokens, "POST", "./v1/guest-tokens", true},
		{tokens, "POST", "../v1/guest-tokens", true},
		{tokens, "POST", "%2fv1/guest-tokens", true},
		{tokens, "POST", "%2Fv1%2Fguest-tokens", true},
		{tokens, "POST", "http:v1/guest-tokens", true},
		{tokens, "POST", "http:%2fv1/guest-tokens", true},
		{tokens, "POST", "https:x/v1/guest-tokens", true}, // new URL takes x for a host
		{tokens, "POST", `http:\\x\v1\guest-tokens`, true},
		// hosts that end where programs differ
		{tokens, "POST", "http://x%2fv1/guest-tokens", true},
		{tokens, "POST", "HTTPS://u:p@x:8%2Fv1/./guest-tokens", true},
		{tokens, "POST", "//u@x%2fv1/guest-tokens", true},
		{tokens, "POST", `http://x\y/v1/guest-tokens`, true},
		{tokens, "POST", `http://x\v1\guest-tokens`, true},
		{tokens, "POST", "http://x%2fy/v1/guest-tokens", true},
		{tokens, "POST", "http://%2fv1/guest-tokens", true},
		{tokens, "POST", "//h%2Fx/v1%2Fguest-tokens", true},
		{tokens, "POST", "/%2fv1/guest-tokens", true},
		{tokens, "CONNECT", "x:80/v1/guest-tokens", false}, // its method is another one
		// white space and controls in front
		{tokens, "POST", "\x00/v1/guest-tokens", true},
		{tokens, "POST", "\x1f \v/v1/guest-tokens", true},
		{tokens, "POST", "\x85\xa0/v1/%67uest-tokens", true},
		{tokens, "POST", "\xa0http://x/v1/guest-tokens", true},
		{tokens, "POST", "ht\ttp://x/v1\r/guest\n-tokens", true},
		{Match{Path: "/{t}/v1/guest"}, "POST", " http:/v1/guest", true}, // with the blank it is no scheme
		{tokens, "POST", "\x7f/v1/guest-tokens", false},
		{tokens, "POST", "\u00a0/v1/guest-tokens", false},
		{tokens, "POST", "/v1/guest-tokens/x/..\xa0", true},    // Python
		{tokens, "POST", "/./v1%2fguest-tokens;/..\xa0", true}, // nginx before Node
		// two servers in a row
		{tokens, "POST", `/x/../v1/x/../guest-tokens;/..\`, true},
		{tokens, "POST", "/v1/a;b/../guest-tokens;x/a", true},
		{tokens, "POST", "/v1/guest-tokens%3Ba=b", true},
		{tokens, "POST", `/v1/x/..%3ba%2fguest-tokens`, true},
		{tokens, "POST", "/v1;b%2Fguest-tokens", true}, // the next server sees a slash there
		{tokens, "POST", "/v1;%2Fguest-tokens", true},
		{tokens, "POST", "/%5Ch/v1/guest-tokens", true},
		{tokens, "POST", "/v1%3Bx/guest-tokens;y", true},
		{tokens, "POST", "/v1/guest-tokens%23;a", false}, // an escape of "#" is passed on as one
		{tokens, "POST", `/v1/%2567uest-tokens\..%2f`, false},
		// escapes of UTF-16, and a line break at the end
		{tokens, "POST", "/v1/%u0067uest-tokens", true},
		{tokens, "POST", "/v1%U002Fguest-tokens", true},
		{Match{Path: "/caf\u00e9"}, "GET", "/caf%u00E9", true},
		{tokens, "POST", "/v1/%u067uest-tokens", false},
		{tokens, "POST", "/v1/guest-tokens%u", false},
		{tokens, "POST", "/v1/guest-tokens%0a", true},
		{tokens, "POST", "/v1/guest-tokens%0A#f", true},
		{tokens, "POST", "/v1/guest-tokens/%0a", true},
		{tokens, "POST", "/v1/guest-tokens%0a%0a", false},
		{tokens, "POST", "/v1/guest-tokens%0d", false},
		{tokens, "POST", "/v1%0a/guest-tokens", false},
		{item, "GET", "/files/%0a", true},
		{folder, "GET", "/files/%0a", true},

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
		{tokens, "POST", "%", false},
		{tokens, "POST", "", false},
		{tokens, "POST", "*", false},

		{folded, "POST", "/V1/Guest-Tokens", true},
		{folded, "POST", "/V1/%47UEST-TOKENS/", true},
		{folded, "POST", "/v1/guest-to\u212aens", true},
		{folded, "POST", "/v1/gue%c5%bft-tokens", true},
		{folded, "POST", "/v1/guest-to\u212ben\u017f", false},
		{folded, "POST", "/v1/guest-tokens.", true},
		{folded, "POST", "/V1/guest-tokens%2e.%20", true},
		{folded, "POST", "/v1/guest-tokens%20%0a", true},
		{folded, "POST", "/v1/guest-tokens/.", true},
		{folded, "POST", "/v1./guest-tokens", false},
		{folded, "POST", "/v1/guest-tokens.x", false},
		{folded, "POST", "/v1/guest-tokens.json", false},
		{folded, "POST", "/v1/guest-tokens./x", false},
		{tokens, "POST", "/v1/guest-to\u212aens", false},
		{Match{Path: "/files/{id}", PathCase: PathCaseIgnore}, "GET", "/files/.", true},
		{Match{Path: "/to\u212aens/{x}/\u017f*", PathCase: PathCaseIgnore}, "GET", "/TOKENS/7/Sx", true},
		{Match{Path: "/task*", PathCase: PathCaseIgnore}, "GET", "/ta\u017f\u212ax", true},
		{Match{Path: "/task*", PathCase: PathCaseIgnore}, "GET", "/ta\u017f", false},
		{rawFolded, "POST", "/V1/guest-to\u212aens", true},
		{rawFolded, "POST", "/V1/guest-tokens.", false},
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
		{Match{Path: "/*"}, "OPTIONS", "*", false},
		{Match{Path: "/*"}, "CONNECT", "h:443", false},
		{Match{Path: "/*"}, "connect", "s3.amazonaws.com", false},
		{Match{Path: "/a"}, "CONNECT", "h:443/a", true}, // Go serves it
		{Match{Path: "/a"}, "CONNECT", "http://h:443/a", true},
		{Match{Path: "/443"}, "GET", "h:443", true}, // not the form of a GET's target

		// Patterns from before there was a normal form.
		{Match{Path: "/a%20b"}, "GET", "/x/../a%20b", true},
		{Match{Path: "/%61"}, "GET", "/a", true},
		{Match{Path: "//a/../b"}, "GET", "/b", true},
		{Match{Path: "/%7Bx%7D"}, "GET", "/%7Bx%7D", true},
		{Match{Path: "/%7Bx%7D"}, "GET", "/y", false},
		{Match{Path: "/%2561"}, "GET", "/a", false},
		{Match{Path: "/a%2A"}, "GET", "/ab", false},
	}
	for _, tt := range tests {
		if got := tt.match.Reaches(&Target{Method: tt.method, Path: tt.path}); got != tt.want {
			t.Errorf("%s, %s %q: reached %v, want %v", describeMatch(tt.match), tt.method, tt.path, got, tt.want)
		}
		ix := NewIndex([]Version{{Document: Document{Match: tt.match}}})
		if got := ix.Match(nil, &Target{Method: tt.method, Path: tt.path}); (len(got) == 1) != tt.want {
			t.Errorf("%s, %s %q: routed to %v, want %v", describeMatch(tt.match), tt.method, tt.path, got, tt.want)
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
				if reached[i] = versions[i].Match.Reaches(&Target{Method: "GET", Path: path}); reached[i] {
					want = append(want, i)
				}
			}
			if got := ix.Match(nil, &Target{Method: "GET", Path: path}); !slices.Equal(got, want) {
				t.Fatalf("%q, %q: routed to %v, reaches %v", pattern, path, got, want)
			}
			if reached[1] && !reached[0] || reached[3] && !reached[2] || reached[0] && !reached[2] {
				t.Fatalf("%q, %q: a reading that takes in less takes in this: %v", pattern, path, reached)
			}
			return reached
		}
		agree(path)
		if !strings.HasPrefix(pattern, "/") || reading.CheckPattern(pattern) != "" || strings.ContainsAny(pattern, "*{}") {
			return
		}
		// The pattern itself is a path that reaches it, and so is each of its spellings.
		if normal, ok := reading.Normal(pattern); !ok || normal != pattern || strings.ContainsAny(pattern, `%#;\`) {
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

// TestTheCostOfAPath holds that ordinary paths cost no memory, and that a path made to be costly takes memory in proportion to its
// length.
func TestTheCostOfAPath(t *testing.T) {
	m := Match{Methods: []string{"POST"}, Path: "/v1/guest-tokens"}
	ix := NewIndex(append(manyRules(100), Version{Document: Document{Match: m}},
		Version{Document: Document{Match: Match{Path: "/V1/guest-tokens", PathCase: PathCaseIgnore}}}))
	dst := make([]int, 0, 16)
	for _, path := range []string{
		"/v1/guest-tokens", "/v1/other/", "/v1/Guest-Tokens?x=%20", "/.well-known/a.b/..c", "http://host.example/v1/guest-tokens", "*", "",
	} {
		if n := testing.AllocsPerRun(100, func() {
			m.Reaches(&Target{Method: "POST", Path: path})
			dst = ix.Match(dst[:0], &Target{Method: "POST", Path: path})
		}); n != 0 {
			t.Errorf("%q: %v allocations", path, n)
		}
	}
	for _, unit := range []string{"%2e%2e;/", "/a/..", "/", `\;#%2F%5C%3B`, "%2e%2e%2F", "/;a%3B/..", "%", `%u005c;x\..%2F#%2e%2e//`, "..;\xa0"} {
		path := "//h/" + strings.Repeat(unit, 8192/len(unit))
		const most = 100 * 8192
		if took := memory(func() { dst = ix.Match(dst[:0], &Target{Method: "POST", Path: path}) }); took > most {
			t.Errorf("8 KB of %q take %d bytes of memory, at most %d", unit, took, most)
		}
	}
}

// A rule about every path costs the same for whatever path a client writes: once, and in no way of reading it.
func TestRulesForEveryPathAreMetOnce(t *testing.T) {
	versions := make([]Version, 1000)
	for i := range versions {
		versions[i].Match.Path = []string{"", "*"}[i%2]
	}
	ix, dst := NewIndex(versions), make([]int, 0, len(versions))
	const path = `/%2e%2e;/a\b%2F..%5C//#/;a%3B/..%2f\;#`
	if n := testing.AllocsPerRun(10, func() { dst = ix.Match(dst[:0], &Target{Method: "GET", Path: path}) }); n != 0 || len(dst) != len(versions) {
		t.Errorf("%d of %d rules are reached, with %v allocations", len(dst), len(versions), n)
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
		want := m.Reaches(&Target{Method: "POST", Path: bb.path})
		b.Run("gate/"+bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if m.Reaches(&Target{Method: "POST", Path: bb.path}) != want {
					b.Fatal("another answer")
				}
			}
		})
		dst := make([]int, 0, 16)
		b.Run("route/"+bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if dst = ix.Match(dst[:0], &Target{Method: "POST", Path: bb.path}); slices.Contains(dst, 1000) != want {
					b.Fatal("another answer")
				}
			}
		})
	}
}
