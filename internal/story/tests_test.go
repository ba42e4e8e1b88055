package story_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/story"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const ruleHead = `id: sign-in
owner: identity
match: {method: POST, path: /sign-in}
key: [ip]
limit: 1
window: 1m
block: {ttl: 5m}
tests:
`

// parseTests reads documents with their tests.
func parseTests(src string) ([]story.Test, []rules.Document, error) {
	var kept []story.Test
	docs, err := rules.ParseFiles([]rules.File{{Name: "rule.yaml", Src: []byte(src)}}, rules.Environment{
		Identity: traffic.DefaultIdentityMap(), Tests: &story.Tests{Keep: func(t story.Test) { kept = append(kept, t) }},
	})
	return kept, docs, err
}

// playTest gives what is wrong with the only test of a document.
func playTest(t *testing.T, src string) string {
	t.Helper()
	kept, _, err := parseTests(src)
	if err != nil || len(kept) != 1 {
		t.Fatalf("%d tests, %v", len(kept), err)
	}
	got, err := story.Fold(kept[0].Story)
	if err != nil {
		t.Fatal(err)
	}
	return kept[0].Diff(got)
}

func TestADocumentsTestIsPlayed(t *testing.T) {
	const body = `  - name: two at once
    each: {method: POST, path: /sign-in, ip: 192.0.2.7}
    timeline:
      - {at: 0s, times: 2, every: 10s}
      - {at: 20s, method: GET}
    expect:
      hits: [%s]
%s`
	for _, tt := range []struct{ hits, blocks, diff string }{
		{"{ip: 192.0.2.7, count: 1, first: 10s}", "", ""},
		{"{rule: sign-in, count: 1}", "      blocks: [{ip: 192.0.2.7, until: 5m10s}]\n", ""},
		{"{count: 1}", "      blocks: []\n", "blocks:\n  + {rule: sign-in, ip: 192.0.2.7, until: 5m10s, released: false}   came\n"},
		{"", "", "hits:\n  + {rule: sign-in, ip: 192.0.2.7, count: 1, peak: 2, first: 10s, last: 10s, updates: 0, phase: closed, grouped: false}   came\n"},
		{"{count: 2}", "", "hits:\n  - {rule: sign-in, count: 2}   expected in line 15\n  + {rule: sign-in, ip: 192.0.2.7, count: 1, peak: 2, first: 10s, last: 10s, updates: 0, phase: closed, grouped: false}   came\n"},
	} {
		if got := playTest(t, ruleHead+fmt.Sprintf(body, tt.hits, tt.blocks)); got != tt.diff {
			t.Errorf("%s, %s: got\n%s\nwant\n%s", tt.hits, tt.blocks, got, tt.diff)
		}
	}
}

// A test is no part of the document: its change makes no version.
func TestATestIsNoPartOfTheDocument(t *testing.T) {
	const test = "  - {name: a, timeline: [], expect: {hits: []}}\n"
	_, with, err := parseTests(ruleHead + test)
	if err != nil {
		t.Fatal(err)
	}
	_, without, err := parseTests(strings.TrimSuffix(ruleHead, "tests:\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, errA := with[0].Fingerprint()
	b, errB := without[0].Fingerprint()
	if a != b || errA != nil || errB != nil || !with[0].Equal(&without[0]) || with[0].YAML() != without[0].YAML() {
		t.Errorf("got another document with tests: %s", with[0].YAML())
	}
}

func TestEverythingWrongWithTestsIsToldWithItsPlace(t *testing.T) {
	for body, want := range map[string]string{
		"  {}\n":        "rule.yaml:9:3: tests: got a mapping, allowed a list of at most 100 tests, each with name, timeline and expect",
		"  - a test\n":  `rule.yaml:9:5: tests[0]: got a test, allowed a mapping with name, each, timeline, expect`,
		"  - name: a\n": "rule.yaml:9:5: tests[0].timeline: got nothing, allowed name, timeline and expect in every test\nrule.yaml:9:5: tests[0].expect: got nothing, allowed name, timeline and expect in every test",
		"  - {name: '', timeline: [], expect: {hits: []}}\n":                                                 "rule.yaml:9:12: tests[0].name: got , allowed one line of at most 200 bytes",
		"  - {name: a, timeline: [], expect: {}}\n":                                                          "rule.yaml:9:37: tests[0].expect.hits: got nothing, allowed it in every test; [] where nothing may come",
		"  - {name: a, timeline: [], expect: {hits: [{rule: other}]}}\n":                                     "rule.yaml:9:52: tests[0].expect.hits[0].rule: got other, allowed sign-in",
		"  - {name: a, timeline: [], expect: {hits: [{device: x}]}}\n":                                       "rule.yaml:9:45: tests[0].expect.hits[0].device: got a field that is not of the key, allowed ip, the key of sign-in",
		"  - {name: a, timeline: [{at: 0s, kill: detect}], expect: {hits: []}}\n":                            "rule.yaml:9:26: tests[0].timeline[0].kill: got something else than an event, allowed events: at, comes, times, every, ip",
		"  - {name: a, timeline: [{at: 0s, partition: 0}], expect: {hits: []}}\n":                            "rule.yaml:9:35: tests[0].timeline[0].partition: got an unknown field",
		"  - {name: a, timeline: [{at: 1h}, {at: 1m}], expect: {hits: []}}\n":                                "rule.yaml:9:36: tests[0].timeline[1]: got 1m after 1h",
		"  - {name: a, timeline: [{at: 0s, times: 100001, every: 1s}], expect: {hits: []}}\n":                "rule.yaml:9:42: tests[0].timeline[0].times: got the number 100001, allowed a whole number from 1 to 100000",
		"  - {name: a, timeline: [], expect: {hits: []}}\n  - {name: a, timeline: [], expect: {hits: []}}\n": `rule.yaml:10:5: tests[1].name: got "a" a second time (first at line 9), allowed a name of its own for every test`,
		strings.Repeat("  - {}\n", 101):                                                                      "rule.yaml:9:3: tests: got a list, allowed a list of at most 100 tests",
		// All tests of a file share what there is room for, so that no file asks for more memory than another.
		"  - {name: a, timeline: [{at: 0s, times: 60000, every: 1s}], expect: {hits: []}}\n  - {name: b, timeline: [{at: 0s, times: 60000, every: 1s}], expect: {hits: []}}\n": "rule.yaml:10:42: tests[1].timeline[0].times: got the number 60000, allowed a whole number from 1 to 40000",
	} {
		kept, docs, err := parseTests(ruleHead + body)
		if err == nil || !strings.HasPrefix(err.Error(), want) || docs != nil {
			t.Errorf("%s\ngot %d tests, %v\nwant %s", body, len(kept), err, want)
		}
	}
}

// Without who reads tests they are known to be a list, and what stands in them is nobody's concern.
func TestTestsAreNotReadWhereNobodyAsks(t *testing.T) {
	env := rules.Environment{Identity: traffic.DefaultIdentityMap()}
	for body, good := range map[string]bool{"  - nonsense\n": true, "  {}\n": false, "  - &a x\n": false} {
		if _, err := rules.ParseFiles([]rules.File{{Name: "rule.yaml", Src: []byte(ruleHead + body)}}, env); (err == nil) != good {
			t.Errorf("%s: got %v", body, err)
		}
	}
}

func TestBlocksAreThoseOfTheDocument(t *testing.T) {
	for _, tt := range []struct{ rule, timeline, blocks string }{
		// extend: on-hit, the default: from the last event over the limit on.
		{"block: {ttl: 5m}", "{at: 0s, times: 4, every: 10s}", "{ip: 192.0.2.7, until: 5m30s}"},
		{"block: {ttl: 5m, extend: never}", "{at: 0s, times: 4, every: 10s}", "{ip: 192.0.2.7, until: 5m10s}"},
		// Evidence that comes too late blocks nobody.
		{"block: {ttl: 1h}\nmax_lag: 1m\nlateness: 1h", "{at: 0s, times: 2, every: 1s, comes: 2m}", ""},
		// A block narrower than the key: a hit for each device.
		{"block: {ttl: 5m, key: [ip, device]}\nmax_lag: 2m", "{at: 0s, times: 3, every: 10s, device: a}, {at: 21s, device: b}", "{ip: 192.0.2.7, device: a, until: 5m20s}, {ip: 192.0.2.7, device: b, until: 5m21s}"},
		{"block: {ttl: 5m, key: [ip, device]}", "{at: 0s, times: 3, every: 10s}", ""},
	} {
		src := strings.Replace(ruleHead, "block: {ttl: 5m}", tt.rule, 1) + `  - name: blocks
    each: {method: POST, path: /sign-in, ip: 192.0.2.7}
    timeline: [` + tt.timeline + `]
    expect: {hits: [], blocks: [` + tt.blocks + `]}
`
		if _, got, _ := strings.Cut(playTest(t, src), "blocks:\n"); got != "" {
			t.Errorf("%s, %s: got\n%s", tt.rule, tt.timeline, got)
		}
	}
}

// A test of many days ends soon: ticks are fewer there.
func TestALongTestIsNoMatterOfDays(t *testing.T) {
	src := strings.Replace(ruleHead, "window: 1m", "window: 31d", 1) + `  - name: a month
    each: {method: POST, path: /sign-in, ip: 192.0.2.7}
    timeline: [{at: 0s, times: 2, every: 15d}]
    expect: {hits: [{count: 1, first: 15d}], blocks: [{until: 15d5m}]}
`
	if diff := playTest(t, src); diff != "" {
		t.Error(diff)
	}
}

func FuzzTests(f *testing.F) {
	f.Add("  - {name: a, each: {ip: 192.0.2.1}, timeline: [{at: 0s, times: 3, every: 1s, comes: 2s}], expect: {hits: [{count: 1}], uncounted: [{why: late, count: 1}], blocks: [{until: 1m}]}}\n")
	f.Add("  - {name: a, timeline: [{at: 0s, kill: detect}], expect: {hits: []}}\n")
	f.Fuzz(func(t *testing.T, body string) {
		kept, _, err := parseTests(ruleHead + body)
		if err != nil {
			return
		}
		for _, k := range kept {
			if len(k.Steps) > 2000 {
				continue
			}
			got, err := story.Fold(k.Story)
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			_ = k.Diff(got)
		}
	})
}

// In an event that is repeated, <n> is the number of the repetition, in every text and in the address.
func TestRepeatedEventsAreNumbered(t *testing.T) {
	kept, _, err := parseTests(ruleHead + "  - {name: a, timeline: [{at: 0s, ip: 192.0.2.<n>, device: tv-<n>, path: /<n>/<n>, user: plain, times: 2, every: 1s}, {at: 9s, device: tv-<n>}], expect: {hits: []}}\n")
	if err != nil || len(kept) != 1 || len(kept[0].Steps) != 3 {
		t.Fatalf("%+v, %v", kept, err)
	}
	got := ""
	for _, s := range kept[0].Steps {
		got += fmt.Sprintf("%s %s %s %s; ", s.Request.IP, s.Request.Device, s.Request.Path, s.Request.User)
	}
	if want := "192.0.2.1 tv-1 /1/1 plain; 192.0.2.2 tv-2 /2/2 plain;  tv-<n>  ; "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for body, want := range map[string]string{
		"{at: 0s, ip: 192.0.2.<n>, times: 256, every: 1s}": "tests[0].timeline[0].ip: got 192.0.2.256, allowed addresses: <n> is 1 to times",
		"{at: 0s, ip: 192.0.2.<n>}":                        "tests[0].timeline[0].ip: got 192.0.2.<n>, allowed <n> only in an event with times",
		"{at: 0s, ip: host-<n>, times: 2, every: 1s}":      "tests[0].timeline[0].ip: got host-<n>, allowed an IP address, which may have <n> in it",
	} {
		if _, _, err := parseTests(ruleHead + "  - {name: a, timeline: [" + body + "], expect: {hits: []}}\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", body, err)
		}
	}
}

// Warnings and candidate hits are compared where a test speaks of them: by a line of hits with their kind, or by a list of their own.
func TestATestSpeaksOfWarningsAndCandidateHits(t *testing.T) {
	head := strings.Replace(ruleHead, "limit: 1\n", "limit: 4\nnear: 0.5\ncandidate: {limit: 2}\n", 1)
	const body = `  - name: five
    each: {method: POST, path: /sign-in, ip: 192.0.2.7}
    timeline: [{at: 0s, times: 5, every: 1s}]
    expect: {hits: [%s]%s}
`
	const (
		facts     = "{rule: sign-in, ip: 192.0.2.7, count: "
		nearCame  = "near:\n  + " + facts + "4, peak: 5, first: 1s, last: 4s, updates: 0, phase: closed, grouped: false}   came\n"
		tooMany   = "candidate:\n  - {rule: sign-in, count: 9}   expected in line 14\n  + " + facts + "3, peak: 5, first: 2s, last: 4s, updates: 0, phase: closed, grouped: false}   came\n"
		candidate = "{kind: candidate, ip: 192.0.2.7, count: 3, first: 2s}"
	)
	for _, tt := range []struct{ hits, more, diff string }{
		{"{count: 1}", "", ""},
		{"{kind: hit, count: 1}", "", ""},
		{"{count: 1}, " + candidate, "", ""},
		{candidate + ", {kind: near, count: 4, first: 1s}, {kind: hit, count: 1}", "", ""},
		{"{count: 1}", ", near: [{count: 4}], candidate: [{count: 3, ip: 192.0.2.7}]", ""},
		{"{count: 1}, {kind: near}", ", near: []", ""},
		{"{count: 1}", ", near: []", nearCame},
		{"{count: 1}, {kind: candidate, count: 9}", "", tooMany},
	} {
		got := playTest(t, head+fmt.Sprintf(body, tt.hits, tt.more))
		if got != tt.diff {
			t.Errorf("%s%s: got\n%s\nwant\n%s", tt.hits, tt.more, got, tt.diff)
		}
	}
	for hits, want := range map[string]string{
		"hits: [{kind: near}]":                 "tests[0].expect.hits[0]: got an episode of kind near, allowed those of rules with near, which sign-in has not",
		"hits: [], candidate: [{count: 1}]":    "tests[0].expect.candidate[0]: got an episode of kind candidate, allowed those of rules with candidate, which sign-in has not",
		"hits: [{kind: late}]":                 "tests[0].expect.hits[0].kind: got late, allowed hit, near, candidate",
		"hits: [], near: [{kind: near}]":       "tests[0].expect.near[0].kind: got an unknown field",
		"hits: [], near: [{rule: other}]":      "tests[0].expect.near[0].rule: got other, allowed sign-in",
		"hits: [{device: a, kind: candidate}]": "tests[0].expect.hits[0].device: got a field that is not of the key",
	} {
		if _, _, err := parseTests(ruleHead + "  - {name: a, timeline: [], expect: {" + hits + "}}\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", hits, err, want)
		}
	}
}
