package story_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/story"
)

// whole is a story in which nothing is wrong.
const whole = `story: one is too many
rules:
  - id: one
    owner: docs
    match: {}
    key: [ip, device]
    limit: 0
    window: 1m
    block: {ttl: 5m}
  - id: all
    owner: docs
    match: {}
    key: []
    limit: 9
    window: 1m
timeline:
  - {at: 10s, ip: 192.0.2.1, device: 7}
expect:
  hits:
    - {rule: one, ip: 192.0.2.1, device: 7, count: 1}
`

var errNoFile = errors.New("no such file")

func noFiles(string) ([]byte, error) { return nil, errNoFile }

func TestParse(t *testing.T) {
	if _, err := story.Parse("a.yaml", []byte(whole), noFiles); err != nil {
		t.Fatal(err)
	}
	step := func(text string) [2]string {
		return [2]string{"  - {at: 10s, ip: 192.0.2.1, device: 7}", "  - " + text}
	}
	hit := func(text string) [2]string {
		return [2]string{"    - {rule: one, ip: 192.0.2.1, device: 7, count: 1}", "    - " + text}
	}
	tests := []struct {
		name   string
		change [2]string
		want   string
	}{
		{"nothing", [2]string{whole, ""}, "a.yaml:1:1: got nothing, allowed one YAML document that is a mapping"},
		{"no mapping", [2]string{whole, "- a\n"}, "a.yaml:1:1: got a list, allowed one YAML document that is a mapping"},
		{"two documents", [2]string{"expect:", "---\nexpect:"}, "a second document"},
		{"a second document that is no YAML", [2]string{"count: 1}\n", "count: 1}\n---\nx: {\n"}, "a.yaml:22:4: got a text that is not YAML"},
		{"no YAML", [2]string{"story: one", "story: {"}, "not YAML"},
		{"an anchor", [2]string{"story: one", "story: &a one"}, "a.yaml:1:8: got the YAML anchor &a, allowed values written out"},
		{"an alias", [2]string{"story: one", "teaches: &a x\nstory: *a\nx: one"}, "a.yaml:2:8: got the YAML alias *a, allowed values written out"},
		{"a tag", [2]string{"story: one", "story: !mine one"}, "a.yaml:1:8: got the YAML tag !mine, allowed values without a tag"},
		{"a mistyped member", [2]string{"timeline:", "timelin:"}, `a.yaml:16:1: timelin: got an unknown field, allowed story, teaches, rules, partitions, each, timeline, expect; did you mean "timeline"?`},
		{"a member twice", [2]string{"expect:", "story: two\nexpect:"}, "a.yaml:18:1: story: got it a second time (first at line 1), allowed each field once"},
		{"no timeline", [2]string{"timeline:\n  - {at: 10s, ip: 192.0.2.1, device: 7}\n", ""}, "a.yaml:1:1: timeline: got nothing"},
		{"a rule's mistake", [2]string{"limit: 9", "limit: -9"}, "a.yaml:14:12: limit: got the number -9, allowed a whole number from 0 to 1000000"},
		{"a file that is not there", [2]string{"  - id: all", "  - all.yaml\n  - id: all"}, "a.yaml:10:5: rules[1]: got all.yaml (no such file), allowed a file that can be read"},
		{"rules in one line", [2]string{"rules:", "partitions: 1\nrules: [a.yaml]\neach: {}\nx:"}, "a.yaml:3:8: rules: got a list, allowed 1 to 100 rule documents"},
		{"an unknown field of an event", step("{at: 1s, devise: 1}"), "a.yaml:17:14: timeline[0].devise: got an unknown field, allowed at, comes, times, every, partition, ip, device"},
		{"no time", step("{ip: 192.0.2.1}"), "a.yaml:17:5: timeline[0].at: got nothing, allowed it in every step of this kind"},
		{"a number for a time", step("{at: 10}"), "a.yaml:17:10: timeline[0].at: got the number 10, allowed a duration from 0s to 31d, such as 90s, 5m or 1h30m"},
		{"no address", step("{at: 1s, ip: host}"), "a.yaml:17:18: timeline[0].ip: got host, allowed an IP address"},
		{"before it happens", step("{at: 2m, comes: 1m}"), "timeline[0].comes: got 1m, allowed a time from 2m on, when the event happens"},
		{"out of order", step("{at: 2m}\n  - {at: 1m}"), "a.yaml:18:5: timeline[1]: got 1m after 2m, allowed steps in the order in which they come"},
		{"times alone", step("{at: 2m, times: 3}"), "timeline[0]: got one of times and every, allowed both"},
		{"too many", step("{at: 2m, times: 100001, every: 1s}"), "timeline[0].times: got the number 100001, allowed a whole number from 1 to 100000"},
		{"too long", step("{at: 2m, times: 100000, every: 1h}"), "timeline[0].every: got more than 31 days in all"},
		{"a partition that is not there", step("{at: 2m, partition: 1}"), "timeline[0].partition: got the number 1, allowed a whole number from 0 to 0"},
		{"attrs that JSON cannot say", step("{at: 2m, attrs: {x: .nan}}"), "timeline[0].attrs: got a mapping that cannot be read"},
		{"an unknown stage", step("{at: 2m, kill: router}"), "timeline[0].kill: got router, allowed route, detect, record, enforce"},
		{"another stage's moment", step("{at: 2m, kill: detect, when: mid-chunk}"), "timeline[0].when: got mid-chunk of detect, allowed now of every stage"},
		{"a freeze without end", step("{at: 2m, freeze: detect}"), "timeline[0].for: got nothing"},
		{"an unknown rule", step("{at: 2m, promote: two}"), "timeline[0].promote: got two, allowed all, one"},
		{"a release of nobody", step("{at: 2m, release: one, ip: 192.0.2.1}"), "timeline[0]: got not every field of the block's key, allowed ip, device"},
		{"a release without a block", step("{at: 2m, release: all}"), "timeline[0]: got rule all, which has no block, allowed a rule with one"},
		{"two acts in one", step("{at: 2m, kill: route, freeze: detect}"), "got an unknown field"},
		{"a hit of another key", hit("{rule: one, user: ann}"), "a.yaml:20:7: expect.hits[0].user: got a field that is not of the key, allowed ip, device, the key of one"},
		{"a hit of no rule", hit("{ip: 192.0.2.1}"), "expect.hits[0].rule: got nothing"},
		{"a phase that no story ends with", hit("{rule: one, phase: open}"), "expect.hits[0].phase: got open, allowed closed, merged"},
		{"a count that is none", hit("{rule: one, count: many}"), "expect.hits[0].count: got many, allowed a whole number from 0"},
		{"an unknown reason", [2]string{"  hits:", "  uncounted:\n    - {rule: one, why: lazy}\n  hits:"}, "expect.uncounted[0].why: got lazy, allowed late, out_of_order, missing_field, missing_value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := strings.Replace(whole, tt.change[0], tt.change[1], 1)
			if src == whole {
				t.Fatalf("the story has no %q", tt.change[0])
			}
			_, err := story.Parse("a.yaml", []byte(src), noFiles)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got:\n%v\nwant:\n%s", err, tt.want)
			}
		})
	}
}

// A line ends where YAML says it does, also for the places in messages.
func TestParseKnowsYAMLsLines(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r", "\u0085", "\u2028", "\u2029"} {
		if _, err := story.Parse("a.yaml", []byte(strings.ReplaceAll(whole, "\n", end)), noFiles); err != nil {
			t.Errorf("lines that end with %q: %v", end, err)
		}
		wrong := strings.ReplaceAll(strings.Replace(whole, "limit: 9", "limit: -9", 1), "\n", end)
		if _, err := story.Parse("a.yaml", []byte(wrong), noFiles); err == nil || !strings.HasPrefix(err.Error(), "a.yaml:14:12: limit: ") {
			t.Errorf("lines that end with %q: got %v, want the mistake in line 14", end, err)
		}
	}
}

// A difference shows what is as expected, what did not come and what came instead.
func TestDiff(t *testing.T) {
	src := strings.Replace(whole, "  - {at: 10s, ip: 192.0.2.1, device: 7}", "  - {at: 10s, ip: 192.0.2.1, device: 7, times: 2, every: 2m}\n  - {at: 5m, ip: 2001:db8::7, device: 8}", 1)
	src += "    - {rule: one, ip: 192.0.2.1, device: 7, first: 2m}\n"
	s, err := story.Parse("a.yaml", []byte(src), noFiles)
	if err != nil {
		t.Fatal(err)
	}
	got, err := story.Fold(s)
	if err != nil {
		t.Fatal(err)
	}
	const want = `hits:
    {rule: one, ip: 192.0.2.1, device: 7, count: 1}
  - {rule: one, ip: 192.0.2.1, device: 7, first: 2m}   expected in line 22
  + {rule: one, ip: 192.0.2.1, device: 7, count: 1, peak: 1, first: 2m10s, last: 2m10s, updates: 0, phase: closed, grouped: false}   came
  + {rule: one, ip: 2001:db8::/64, device: 8, count: 1, peak: 1, first: 5m, last: 5m, updates: 0, phase: closed, grouped: false}   came
`
	if diff := s.Diff(got); diff != want {
		t.Errorf("got:\n%s\nwant:\n%s", diff, want)
	}
}

// Which of several lines a hit is that would do for more than one of them makes no difference.
func TestDiffPairs(t *testing.T) {
	line := func(facts ...string) story.Line {
		var l story.Line
		for _, f := range facts {
			name, text, _ := strings.Cut(f, "=")
			l.Facts = append(l.Facts, story.Fact{Name: name, Text: text})
		}
		return l
	}
	s := &story.Story{Expect: story.Expect{Hits: []story.Line{line("rule=a"), line("rule=a", "count=1")}}}
	came := story.Outcome{Expect: story.Expect{Hits: []story.Line{line("rule=a", "count=1"), line("rule=a", "count=2")}}}
	if diff := s.Diff(&came); diff != "" {
		t.Error(diff)
	}
}

// Whatever the file holds: a story that can be played, or problems that each name a line of a file.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	for _, file := range files(f) {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		s, err := story.Parse("a.yaml", src, noFiles)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "a.yaml:") {
					t.Errorf("a problem without a place: %s", line)
				}
			}
			return
		}
		if s.End() > time.Hour || len(s.Steps) > 1000 || s.Partitions > 3 {
			return // it would take its time
		}
		got, err := story.Fold(s)
		if err != nil {
			t.Fatal(err)
		}
		if diff := s.Diff(got); diff == "" && len(s.Expect.Hits) != len(got.Hits) {
			t.Errorf("%d hits came, %d were expected, and nothing differs", len(got.Hits), len(s.Expect.Hits))
		}
	})
}
