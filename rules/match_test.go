package rules

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules/reading"
)

// drawMatch draws a match that a file may hold, of few parts, so that matches overlap.
func drawMatch(t *rapid.T, label string) Match {
	paths := func(what string, most int) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
			"/a", "/b", "/a/b", "/a/*", "/a*", "/{x}", "/a/{x}", "/*/b", "/a/*/", "/*.php", "/a/*.php", "/*b", "/A/b",
		}), 0, most, rapid.ID).Draw(t, label+what)
	}
	some := func(what string, from ...string) []string {
		if rapid.IntRange(0, 2).Draw(t, label+what+" is asked") > 0 {
			return nil
		}
		return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, 3, rapid.ID).Draw(t, label+what)
	}
	m := Match{
		Methods: drawMethods(t, label+" methods"), Paths: paths(" paths", 3), Except: paths(" except", 2),
		Hosts:    some(" hosts", "a.test", "*.a.test", "b.a.test", "*.test"),
		Routes:   some(" routes", "r", "s", "orders@docker"),
		Statuses: some(" statuses", "404", "401", "4xx", "2xx"),
	}
	if len(m.Paths) == 1 {
		m.Path, m.Paths = m.Paths[0], nil
	}
	if len(m.paths())+len(m.Except) > 0 {
		m.PathAs, m.PathCase = drawReading(t)
	}
	if m.exceptsAll() {
		m.Except = nil
	}
	if len(m.paths()) == 0 && len(m.Except) == 0 {
		m.PathAs, m.PathCase = "", ""
	}
	return m
}

func shuffledMatch(t *rapid.T, m Match) Match {
	for _, list := range setsOf(&m) {
		*list = rapid.Permutation(*list).Draw(t, "order")
	}
	return m
}

func drawTarget(t *rapid.T) Target {
	path := "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "A", "c", "x.php", "ab", "", "a.", "b\n"}), 0, 4).Draw(t, "path"), "/")
	if rapid.IntRange(0, 3).Draw(t, "odd") == 0 {
		path = drawOddPath(t)
	}
	return Target{
		Method: rapid.SampledFrom([]string{"GET", "post", "", "CONNECT"}).Draw(t, "method"), Path: path,
		Host:   rapid.SampledFrom([]string{"", "a.test", "A.TEST:80", "b.a.test.", "c.b.a.test", "test", ".test", "x.test", "h"}).Draw(t, "host"),
		Route:  rapid.SampledFrom([]string{"", "r", "s", "R"}).Draw(t, "route"),
		Status: rapid.SampledFrom([]int{0, 200, 401, 404, 499, 4, 40400}).Draw(t, "status"),
	}
}

// naively is the documented meaning of a match, said once more: over lists of segments, without a trie, without cuts.
func naively(m *Match, t *Target) bool {
	lower := strings.NewReplacer("\u212a", "k", "\u017f", "s")
	fold := func(s string) string {
		if m.PathCase != PathCaseIgnore {
			return s
		}
		return strings.Map(func(r rune) rune {
			if r >= 'A' && r <= 'Z' {
				return r + 'a' - 'A'
			}
			return r
		}, lower.Replace(s))
	}
	matches := func(pattern string, path []string) bool {
		want := strings.Split(pattern, "/")
		last := want[len(want)-1]
		if start, open := strings.CutSuffix(last, "*"); open && last != "" {
			if len(path) < len(want) {
				return false
			}
			path = slices.Clone(path[:len(want)])
			if !strings.HasPrefix(fold(path[len(want)-1]), fold(start)) {
				return false
			}
			want, path = want[:len(want)-1], path[:len(want)-1]
		} else if end, ok := strings.CutPrefix(last, "*"); ok && len(path) == len(want) {
			if !strings.HasSuffix(fold(path[len(want)-1]), fold(end)) {
				return false
			}
			want, path = want[:len(want)-1], path[:len(want)-1]
		}
		if len(want) != len(path) {
			return false
		}
		for i := range want {
			switch {
			case want[i] == "*" || len(want[i]) > 2 && want[i][0] == '{':
				if path[i] == "" {
					return false
				}
			case fold(want[i]) != fold(path[i]):
				return false
			}
		}
		return true
	}
	anyOf := func(patterns []string, path []string, loose bool) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			return matches(p, path) || loose && len(path) > 1 && path[len(path)-1] == "" && matches(p, path[:len(path)-1])
		})
	}
	paths := m.Paths
	if len(paths) == 0 {
		paths = []string{m.Path}
		if m.Path == "" {
			paths = []string{"*"}
		}
	}
	one := func(path []string, loose bool) bool {
		return anyOf(paths, path, loose) && !anyOf(m.Except, path, loose)
	}
	path, _, _ := strings.Cut(t.Path, "?")
	reaches := false
	if m.PathAs == PathRaw {
		reaches = one(strings.Split(path, "/"), false)
	} else {
		var ways [][]string
		for s := reading.SpellingsOf(path, strings.EqualFold(t.Method, "CONNECT")); s.Next(); {
			var way []string
			for place, more := 0, true; more; {
				var segment string
				segment, place, more = s.At(place)
				way = append(way, segment)
			}
			ways = append(ways, way)
		}
		if !reading.Ordinary(path) && len(ways) > 1 {
			ways = ways[1:] // the path as it stands
		}
		for _, way := range ways {
			end := way[len(way)-1]
			tail := strings.TrimSuffix(end, "\n")
			if m.PathCase == PathCaseIgnore {
				tail = strings.TrimRight(end, ". \n")
			}
			cut := append(slices.Clone(way[:len(way)-1]), tail)
			reaches = reaches || one(way, true) || one(cut, true)
		}
	}
	hosts := []string{t.Host}
	if scheme, rest, ok := strings.Cut(path, "://"); ok && !strings.ContainsAny(scheme, `/\`) {
		hosts = append(hosts, rest[:len(rest)-len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz.:0123456789"))])
	} else if strings.EqualFold(t.Method, "CONNECT") && !strings.HasPrefix(path, "/") {
		hosts = append(hosts, strings.TrimRight(path, "/"))
	}
	host := len(m.Hosts) == 0
	for _, h := range hosts {
		h, _, _ = strings.Cut(strings.ToLower(h), ":")
		h = strings.TrimSuffix(h, ".")
		for _, name := range m.Hosts {
			end, below := strings.CutPrefix(name, "*")
			host = host || name == h || below && strings.HasSuffix(h, end) && h != end
		}
	}
	method := len(m.Methods) == 0 || slices.Contains(m.Methods, strings.ToUpper(t.Method))
	route := len(m.Routes) == 0 || t.Route != "" && slices.Contains(m.Routes, t.Route)
	return method && route && host && reaches
}

func naiveStatus(m *Match, status int) bool {
	text := fmt.Sprint(status)
	return len(m.Statuses) == 0 || len(text) == 3 && (slices.Contains(m.Statuses, text) || slices.Contains(m.Statuses, text[:1]+"xx"))
}

func TestMatchesAgainstANaiveOne(t *testing.T) {
	reached, left := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		versions := make([]Version, rapid.IntRange(1, 12).Draw(t, "rules"))
		for i := range versions {
			versions[i].Match = drawMatch(t, fmt.Sprint("rule ", i))
		}
		ix := NewIndex(versions)
		for range 20 {
			target := drawTarget(t)
			var want []int
			for i := range versions {
				m := &versions[i].Match
				got := m.Reaches(&target)
				if naive := naively(m, &target); got != naive {
					t.Fatalf("%s on %+v: got %v, naively %v", m, target, got, naive)
				}
				if got {
					reached++
				} else {
					left++
				}
				if got && naiveStatus(m, target.Status) {
					want = append(want, i)
				}
			}
			if got := ix.Match(nil, &target); !slices.Equal(got, want) {
				t.Fatalf("%+v of\n%v\ngot %v, want %v", target, versions, got, want)
			}
		}
	})
	if reached < 50 || left < 50 {
		t.Errorf("%d reached, %d not: the test said nothing", reached, left)
	}
}

// What a request that reaches a narrow match reaches, a match that includes it is reached by.
func TestIncludesIsSound(t *testing.T) {
	included := 0
	rapid.Check(t, func(t *rapid.T) {
		wide, narrow := drawMatch(t, "wide"), drawMatch(t, "narrow")
		switch rapid.IntRange(0, 6).Draw(t, "narrow is") {
		case 0:
			narrow = wide
		case 1:
			narrow = wide
			narrow.Except = drawMatch(t, "more").Except
		case 2:
			narrow = wide
			narrow.Hosts, narrow.Statuses = drawMatch(t, "more").Hosts, drawMatch(t, "more").Statuses
		}
		wide, narrow = wide.normal(), narrow.normal()
		if !wide.Includes(narrow) {
			return
		}
		included++
		for range 20 {
			target := drawTarget(t)
			if narrow.Reaches(&target) && naiveStatus(&narrow, target.Status) && !(wide.Reaches(&target) && naiveStatus(&wide, target.Status)) {
				t.Fatalf("%s is said to include %s, and only the latter watches %+v", wide, narrow, target)
			}
		}
	})
	if included == 0 {
		t.Error("no match included another: the test said nothing")
	}
}

func TestWhatIsLeftOut(t *testing.T) {
	any := Match{Except: []string{"/health", "/static/*"}}
	for _, c := range []struct {
		match Match
		path  string
		want  bool
	}{
		{any, "/health", false},
		{any, "/health/", false},
		{any, "/health?x", false},
		{any, "/static/a.js", false},
		{any, "/v1/guest-tokens", true},
		{any, "*", true},
		// Spelled so that all servers read it as what is left out.
		{any, "/%68ealth", false},
		{any, "/static/%2561", false},
		{any, "http://h/health", false},
		// Spelled as what is left out, and read as something else by some server.
		{any, "/health/../v1/guest-tokens", true},
		{any, "/static/../v1/guest-tokens", true},
		{any, "/static/..%2fv1/guest-tokens", true},
		{any, `/static/..\v1/guest-tokens`, true},
		{any, "/static/..;/v1/guest-tokens", true},
		{any, "//static/v1/guest-tokens", true},
		{any, "//static/static/a", false},
		{any, "//health/health", true},
		{any, "http://h/static/../v1/guest-tokens", true},
		// A pattern that takes anything in a segment is one that odd ends hide in.
		{Match{Path: "/v1/tokens*", Except: []string{"/v1/tokens/{id}"}}, "/v1/tokens/7", false},
		{Match{Path: "/v1/tokens*", Except: []string{"/v1/tokens/{id}"}}, "/v1/tokens/.", true},
		{Match{Path: "/v1/tokens*", Except: []string{"/v1/tokens/{id}"}}, "/v1/tokens/;x", true},
		{Match{Path: "/v1/tokens*", Except: []string{"/v1/tokens/{id}"}}, "/v1/tokens/%0A", true},
		{Match{Path: "/v1/tokens*", Except: []string{"/v1/tokens/{id}"}, PathCase: PathCaseIgnore}, "/v1/tokens/%20", true},
		{Match{Path: "/v1/*", Except: []string{"/v1/*.css"}, PathCase: PathCaseIgnore}, "/V1/A.CSS", false},
		{Match{Path: "/v1/*", Except: []string{"/v1/*.css"}}, "/v1/a.CSS", true},
		{Match{Except: []string{"/health"}, PathAs: PathRaw}, "/%68ealth", true},
		{Match{Except: []string{"/health"}, PathAs: PathRaw}, "/health/", true},
		{Match{Except: []string{"/health"}, PathAs: PathRaw}, "/health", false},
	} {
		target := Target{Method: "POST", Path: c.path}
		if got := c.match.Reaches(&target); got != c.want {
			t.Errorf("%s on %q: got %v, want %v", c.match, c.path, got, c.want)
		}
		if got := NewIndex([]Version{{Document: Document{Match: c.match}}}).Match(nil, &target); (len(got) == 1) != c.want {
			t.Errorf("index of %s on %q: got %v, want %v", c.match, c.path, got, c.want)
		}
	}
}

func TestStars(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"/a/*/b", "/a/x/b", true},
		{"/a/*/b", "/a//b", false},
		{"/a/*/b", "/a/x/y/b", false},
		{"/a/*/", "/a/x/", true},
		{"/a/*/", "/a/x", false},
		{"/a/*/*", "/a/x/", true},
		{"/*.php", "/x.php", true},
		{"/*.php", "/.php", true},
		{"/*.php", "/x.php?a", true},
		{"/*.php", "/x.php/", true},
		{"/*.php", "/x.php/y", false},
		{"/*.php", "/a/x.php", false},
		{"/*.php", "/x.phps", false},
		{"/*.php", "/x.PHP", false},
		{"/*.php", "/x%2Ephp", true},
		{"/*.php", "/x.php;y", true},
		{"/*.php", "/x.php%0a", true},
		{"/a/{x}/*.php", "/a/b/c.php", true},
	} {
		m := Match{Path: c.pattern}
		if problem := reading.CheckPattern(c.pattern); problem != "" {
			t.Errorf("%q is refused: %s", c.pattern, problem)
		}
		target := Target{Path: c.path}
		if got := m.Reaches(&target); got != c.want {
			t.Errorf("%q on %q: got %v, want %v", c.pattern, c.path, got, c.want)
		}
		if got := NewIndex([]Version{{Document: Document{Match: m}}}).Match(nil, &target); (len(got) == 1) != c.want {
			t.Errorf("index of %q on %q: got %v, want %v", c.pattern, c.path, got, c.want)
		}
	}
	folding := Match{Path: "/*.PHP", PathCase: PathCaseIgnore}
	for _, path := range []string{"/x.php", "/X.Php", "/x.php.", "/x.php%20"} {
		if !folding.Reaches(&Target{Path: path}) {
			t.Errorf("%s does not match %q", folding, path)
		}
	}
	for _, pattern := range []string{"/a*/b", "/*a/b", "/a*b", "/**", "/*.*", "/a/**/b", "/*{x}"} {
		if reading.CheckPattern(pattern) == "" {
			t.Errorf("%q is taken", pattern)
		}
	}
}

func TestHosts(t *testing.T) {
	m := Match{Hosts: []string{"*.example.com", "[2001:db8::1]", "api.test"}}
	for _, c := range []struct {
		host, target string
		want         bool
	}{
		{"api.test", "/", true},
		{"API.test:8443", "/", true},
		{"api.test.", "/", true},
		{"api.test.:80", "/", true},
		{"api.test:", "/", true},
		{"api.test:x", "/", false},
		{"xapi.test", "/", false},
		{"", "/", false},
		{"a.example.com", "/", true},
		{"a.b.example.com", "/", true},
		{"example.com", "/", false},
		{".example.com", "/", false},
		{"badexample.com", "/", false},
		{"[2001:DB8:0::1]:443", "/", true},
		{"[2001:db8::2]", "/", false},
		{"[", "/", false},
		{"[::1", "/", false},
		{strings.Repeat("a", 300) + ".example.com", "/", false},
		// The host of the target and that of the header: servers differ on which is right.
		{"other.test", "http://api.test/", true},
		{"api.test", "http://other.test/", true},
		{"other.test", "http://other.test/api.test", false},
		{"other.test", "HTTPS://u:p@API.test:443?x", true},
		{"other.test", "http://other.test@api.test/", true},
		{"other.test", `http:\\api.test\`, true},
		{"other.test", "//api.test/", false}, // a path for all but a few programs, and those do not choose hosts by it
		{"", "/http://api.test/", false},
	} {
		target := Target{Method: "GET", Path: c.target, Host: c.host}
		if got := m.Reaches(&target); got != c.want {
			t.Errorf("host %q, target %q: got %v, want %v", c.host, c.target, got, c.want)
		}
		if got := NewIndex([]Version{{Document: Document{Match: m}}}).Match(nil, &target); (len(got) == 1) != c.want {
			t.Errorf("index, host %q, target %q: got %v, want %v", c.host, c.target, got, c.want)
		}
	}
	if !m.Reaches(&Target{Method: "CONNECT", Path: "api.test:443"}) {
		t.Error("the authority of CONNECT is no host")
	}
}

// TestAMatchWithoutItsPart is about events and requests that do not have what a rule names.
func TestAMatchWithoutItsPart(t *testing.T) {
	whole := Target{Method: "GET", Path: "/a", Host: "a.test", Route: "r", Status: 404}
	for _, m := range []Match{{Hosts: []string{"a.test"}}, {Routes: []string{"r"}}, {Statuses: []string{"404"}}, {Statuses: []string{"4xx"}}} {
		ix := NewIndex([]Version{{Document: Document{Match: m}}})
		if len(ix.Match(nil, &whole)) != 1 {
			t.Errorf("%s does not match %+v", m, whole)
		}
		if len(ix.Match(nil, &Target{Method: "GET", Path: "/a"})) != 0 {
			t.Errorf("%s matches a request that has no such part", m)
		}
	}
	if m := (Match{Statuses: []string{"404"}}); !m.Reaches(&Target{Method: "GET", Path: "/a"}) {
		t.Error("a request does not reach a rule for its status, which it does not have yet")
	}
}

// TestARuleOfManyCombinations has more places than an index gives to one rule.
func TestARuleOfManyCombinations(t *testing.T) {
	var m Match
	for i := range maxAlternatives {
		m.Paths = append(m.Paths, fmt.Sprintf("/p%d", i))
		m.Hosts = append(m.Hosts, fmt.Sprintf("h%d.test", i))
		m.Routes = append(m.Routes, fmt.Sprintf("r%d", i))
		m.Statuses = append(m.Statuses, fmt.Sprint(400+i))
	}
	ix := NewIndex([]Version{{Document: Document{Match: Match{}}}, {Document: Document{Match: m}}})
	places := 0
	var count func(n *node)
	count = func(n *node) {
		var in func(s *ruleSet)
		in = func(s *ruleSet) {
			places += len(s.rules)
			if s.next != nil {
				for _, by := range s.next {
					for c := range by.all() {
						in(c)
					}
				}
			}
		}
		in(&n.here)
		for c := range n.literals.all() {
			count(c)
		}
	}
	count(ix.normal[0])
	if places == 0 || places > maxPlaces {
		t.Errorf("got %d places, want at most %d", places, maxPlaces)
	}
	for i := range maxAlternatives {
		good := Target{Method: "GET", Path: m.Paths[i], Host: m.Hosts[63-i], Route: m.Routes[i], Status: 400 + i}
		if got := ix.Match(nil, &good); !slices.Equal(got, []int{0, 1}) {
			t.Fatalf("%+v: got %v", good, got)
		}
		for _, change := range []func(t *Target){
			func(t *Target) { t.Host = "x" }, func(t *Target) { t.Route = "x" }, func(t *Target) { t.Status = 200 }, func(t *Target) { t.Path = "/x" },
		} {
			bad := good
			change(&bad)
			if got := ix.Match(nil, &bad); !slices.Equal(got, []int{0}) {
				t.Fatalf("%+v: got %v", bad, got)
			}
		}
	}
}

// oldMode is what gates of builds before LanguageRecordFormat read of a mode.
type oldMode struct {
	Rule  string `json:"rule"`
	Match struct {
		Methods  []string `json:"methods"`
		Path     string   `json:"path"`
		PathAs   PathAs   `json:"path_as"`
		PathCase PathCase `json:"path_case"`
	} `json:"match"`
}

func TestAnOldGateHoldsNoMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reach := drawMatch(t, "reach")
		reach.Statuses = nil
		text, err := json.Marshal(ModeState{Rule: "r", Mode: ModeBlock, Generation: 1, Match: Held(reach)})
		if err != nil {
			t.Fatal(err)
		}
		var old oldMode
		if err := json.Unmarshal(text, &old); err != nil {
			t.Fatal(err)
		}
		var now ModeState
		if err := json.Unmarshal(text, &now); err != nil {
			t.Fatal(err)
		}
		if back := Match(now.Match); !sameMatch(back, reach) {
			t.Fatalf("%s is read back as %s", reach, back)
		}
		if again, err := json.Marshal(now); err != nil || string(again) != string(text) {
			t.Fatalf("%s is written again as %s (%v)", text, again, err)
		}
		held := Match{Methods: old.Match.Methods, Path: old.Match.Path, PathAs: old.Match.PathAs, PathCase: old.Match.PathCase}
		for range 20 {
			target := drawTarget(t)
			if held.Reaches(&target) && !reach.Reaches(&target) {
				t.Fatalf("%s, told as %s: an old gate holds %+v", reach, text, target)
			}
		}
	})
}

func TestAModeWithWhatIsNotKnownHoldsNothing(t *testing.T) {
	for _, text := range []string{
		`{"rule":"r","mode":"block","generation":1,"match":{"path":"/a","cookies":["x"]}}`,
		`{"rule":"r","mode":"block","generation":1,"match":{"methods":[""],"path":"?","reach":{"hosts":["a.test"],"cookies":["x"]}}}`,
		`{"rule":"r","mode":"block","generation":1,"match":{"methods":[""],"path":"?","reach":5}}`,
		`{"rule":"r","mode":"block","generation":1,"match":{"methods":[""],"path":"?","reach":{"statuses":["404"]}}}`,
		`{"rule":"r","mode":"block","generation":1,"match":[]}`,
	} {
		var m ModeState
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for _, target := range []Target{{}, {Method: "GET", Path: "/a", Host: "a.test"}, {Path: "%3F"}, {Path: "?"}, {Path: "/?"}, {Method: "", Path: "*"}} {
			if m.Match.Reaches(&target) {
				t.Errorf("%s holds %+v", text, target)
			}
		}
		if m.Mode != ModeBlock || m.Generation != 1 {
			t.Errorf("%s: the rest is not read: %+v", text, m)
		}
	}
	for _, text := range []string{`{"rule":"r","mode":"block","later":1}`, `{"rule":"r","mode":"block","match":null}`, `{"rule":"r","mode":"block","match":{}}`} {
		var m ModeState
		if err := json.Unmarshal([]byte(text), &m); err != nil || !m.Match.Reaches(&Target{Method: "GET", Path: "/a"}) {
			t.Errorf("%s does not hold every request (%v)", text, err)
		}
	}
}

// Whatever older builds would misread is refused under their record formats.
func TestAMatchOfTheLanguageNeedsItsRecordFormat(t *testing.T) {
	block := &Block{Match: &Match{Path: "/b"}}
	for text, d := range map[string]Document{
		"/a,/b":                {Match: Match{Paths: []string{"/a", "/b"}}},
		"except /a":            {Match: Match{Except: []string{"/a"}}},
		"host a.test":          {Match: Match{Hosts: []string{"a.test"}}},
		"route r":              {Match: Match{Routes: []string{"r"}}},
		"status 404":           {Match: Match{Statuses: []string{"404"}}},
		"/a/*/b":               {Match: Match{Path: "/a/*/b"}},
		"/*.php":               {Match: Match{Path: "/*.php"}},
		"block.match any":      {Block: block},
		"block.match any meth": {Match: Match{Path: "/a"}, Block: block},
	} {
		for format := 1; format <= LanguageRecordFormat; format++ {
			r := Routing{RecordFormat: format, Rules: []Version{{Document: d}}}
			err := r.CheckRecordFormat()
			if format >= LanguageRecordFormat && err != nil {
				t.Errorf("%s in format %d: %v", text, format, err)
			}
			if format < LanguageRecordFormat && (err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), "record format 5")) {
				t.Errorf("%s in format %d: got %v", text, format, err)
			}
		}
	}
	for _, m := range []Match{{}, {Path: "/a*"}, {Path: "*"}, {Methods: []string{"GET"}, Path: "/{x}/"}} {
		r := Routing{RecordFormat: 1, Rules: []Version{{Document: Document{Match: m}}}}
		if err := r.CheckRecordFormat(); err != nil {
			t.Errorf("%s: %v", m, err)
		}
	}
}

func TestReach(t *testing.T) {
	watched := Match{Methods: []string{"POST"}, Path: "/login", Hosts: []string{"a.test"}, Statuses: []string{"401"}, When: "event.status == 401"}
	d := Document{Match: watched, Block: &Block{}}
	want := watched
	want.Statuses, want.When = nil, ""
	if got := d.Reach(); got.String() != want.String() || got.When != "" || !d.HoldsApart() {
		t.Errorf("got %s, want %s", got, want)
	}
	if len(d.Match.Statuses) != 1 {
		t.Error("the document was changed")
	}
	d.Block.Match = &Match{Hosts: []string{"b.test"}}
	if got := d.Reach(); got.String() != "any method any path, host b.test" || !d.HoldsApart() {
		t.Errorf("got %s", got)
	}
	d = Document{Match: Match{Path: "/a"}, Block: &Block{}}
	if got := d.Reach(); got.Path != "/a" || d.HoldsApart() {
		t.Errorf("got %s", got)
	}
	// A block.match that says what is the default is no difference.
	e := d
	e.Block = &Block{Match: &Match{Path: "/a", PathAs: PathNormal}}
	if !d.Equal(&e) || len(Diff(&d, &e)) != 0 {
		t.Errorf("differ: %q", Diff(&d, &e))
	}
	e.Block = &Block{Match: &Match{Path: "/b"}}
	if lines := Diff(&d, &e); d.Equal(&e) || !slices.Equal(lines, []string{"block.match none → any method /b"}) {
		t.Errorf("got %q", lines)
	}
	if reasons := MayBlockMore(&d, &e); len(reasons) != 1 || !strings.HasPrefix(reasons[0], "block.match any method /a → any method /b") {
		t.Errorf("got %q", reasons)
	}
}

// The stored form of what could be said before is what it was.
func TestOlderDocumentsKeepTheirCanonicalForm(t *testing.T) {
	d := Document{ID: "a", Owner: "o", Match: Match{Methods: []string{"PUT", "GET"}, Path: "/a/{x}*"}, Missing: MissingSkip}
	got, err := d.Canonical()
	const want = `{"id":"a","owner":"o","match":{"methods":["GET","PUT"],"path":"/a/{x}*"},"key":[],"on_missing":"skip","limit":0,"window":0,"lateness":0,"max_lag":0}`
	if err != nil || string(got) != want {
		t.Errorf("got %s (%v)", got, err)
	}
}

// all yields what stands under any text.
func (b *branches[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		if b.item == nil || !yield(b.item) {
			return
		}
		for _, item := range b.more {
			if !yield(item) {
				return
			}
		}
	}
}
