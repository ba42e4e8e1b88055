package ruletry

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/story"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

var errFailed = errors.New("failed")

// outcome is what a command said.
type outcome struct {
	stdout string
	err    error
}

// call runs one of the commands as weir does.
func call(t *testing.T, format, stdin string, args ...string) outcome {
	t.Helper()
	var out bytes.Buffer
	h := &Host{
		Output: &terminal.Output{Stdout: &out, Stderr: io.Discard, Format: format}, Stdin: func() io.Reader { return strings.NewReader(stdin) },
		Config: func(*cobra.Command) (*config.Config, error) { return config.Load(config.Source{}) },
		Does:   func(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error { return work },
		Documents: func(paths []string, env rules.Environment) (*rules.Set, error) {
			var files []rules.File
			for _, path := range paths {
				src, err := os.ReadFile(path)
				if err != nil {
					return nil, err
				}
				files = append(files, rules.File{Name: path, Src: src})
			}
			return rules.ParseSet(files, env)
		},
		Failed: errFailed,
	}
	root := &cobra.Command{Use: "rules", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(h.Commands()...)
	root.SetArgs(args)
	err := root.Execute()
	return outcome{out.String(), err}
}

// readSource reads the tests of one text.
func readSource(src string) ([]story.Test, []rules.Document, error) {
	var kept []story.Test
	docs, err := rules.ParseFiles([]rules.File{{Name: "rule.yaml", Src: []byte(src)}}, rules.Environment{
		Identity: traffic.DefaultIdentityMap(), Tests: &story.Tests{Keep: func(t story.Test) { kept = append(kept, t) }},
	})
	return kept, docs, err
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	signIn  = "id: sign-in\nowner: a\nmatch: {}\nkey: [ip]\nlimit: 1\nwindow: 1m\n"
	passing = signIn + "tests:\n  - {name: two, each: {ip: 192.0.2.1}, timeline: [{at: 0s, times: 2, every: 1s}], expect: {hits: [{count: 1}]}}\n"
	mixed   = passing + "  - {name: three, each: {ip: 192.0.2.1}, timeline: [{at: 0s, times: 3, every: 1s}], expect: {hits: [{count: 1}]}}\n"
	tale    = "story: Two are one too many\nrules: [rule.yaml]\ntimeline: [{at: 0s, ip: 192.0.2.1, times: 2, every: 1s}]\nexpect: {hits: [{rule: sign-in, count: 1}]}\n"
)

func TestTestsAreRunAndShown(t *testing.T) {
	dir := t.TempDir()
	tale := strings.Replace(tale, "[rule.yaml]", "\n  - rule.yaml", 1)
	write(t, dir, map[string]string{
		"good/rule.yaml": passing, "good/tale.yml": tale, "good/.hidden.yaml": "nonsense", "good/.git/x.yaml": "nonsense", "good/notes.txt": "nonsense",
		"bad/rule.yaml": mixed, "none/rule.yaml": signIn, "wrong/rule.yaml": strings.Replace(passing, "hits", "hist", 1), "empty/notes.txt": "",
		"both/rule.yaml": passing + "---\n" + strings.Replace(signIn, "sign-in", "other", 1), "wrongtale/tale.yaml": "story: a\n",
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	failed := "--- FAIL: sign-in/three\n    " + at("bad/rule.yaml") + ":9\n    hits:\n      - {rule: sign-in, count: 1}   expected in line 9\n" +
		"      + {rule: sign-in, ip: 192.0.2.1, count: 2, peak: 3, first: 1s, last: 2s, updates: 0, phase: closed, grouped: false}   came\n"
	for _, tt := range []struct {
		args   []string
		stdout string
		err    string
	}{
		{[]string{at("good")}, "ok    " + at("good/rule.yaml") + "  1 test\nok    " + at("good/tale.yml") + "  1 test\n", ""},
		{[]string{at("good"), "-v", at("good/tale.yml")}, "--- PASS: sign-in/two\nok    " + at("good/rule.yaml") + "  1 test\n--- PASS: Two are one too many\nok    " + at("good/tale.yml") + "  1 test\n", ""},
		{[]string{at("bad")}, failed + "FAIL  " + at("bad/rule.yaml") + "  1 of 2 tests failed\n", "failed"},
		{[]string{at("bad"), "-v"}, "--- PASS: sign-in/two\n" + failed + "FAIL  " + at("bad/rule.yaml") + "  1 of 2 tests failed\n", "failed"},
		{[]string{at("bad"), "--run", "sign-in/two$"}, "ok    " + at("bad/rule.yaml") + "  1 test\n", ""},
		{[]string{at("bad"), "--run", "four"}, "", `--run: none of 2 tests has "four" in its RULE/NAME`},
		{[]string{at("bad"), "--run", "("}, "", `--run: got "("`},
		{[]string{at("both")}, "ok    " + at("both/rule.yaml") + "  1 test\n?     other  no tests\n", ""},
		{[]string{at("none")}, "", "no test in the files given"},
		{[]string{at("empty")}, "", "got no *.yaml or *.yml file"},
		{[]string{at("absent")}, "", "no such file"},
		{[]string{at("wrong"), at("good")}, "", at("wrong/rule.yaml") + ":8:92: tests[0].expect.hist: got an unknown field, allowed hits, near, candidate, uncounted, blocks; did you mean \"hits\"?"},
		{[]string{at("wrongtale")}, "", at("wrongtale/tale.yaml") + ":1:1: "},
		{[]string{at("good/rule.yaml"), at("bad/rule.yaml")}, "", `id: got "sign-in" a second time`},
	} {
		got := call(t, "table", "", append([]string{"test"}, tt.args...)...)
		text := ""
		if got.err != nil {
			text = got.err.Error()
		}
		if got.stdout != tt.stdout || !strings.Contains(text, tt.err) || (tt.err == "") != (got.err == nil) {
			t.Errorf("%v: got\n%s%v\nwant\n%s%s", tt.args, got.stdout, got.err, tt.stdout, tt.err)
		}
	}
	got := call(t, "json", "", "test", at("bad"))
	for _, want := range []string{`"passed": 1,`, `"failed": 1,`, `"name": "three",`, `"ok": false,`, `"untested": []`} {
		if !strings.Contains(got.stdout, want) || !errors.Is(got.err, errFailed) {
			t.Errorf("%s is not in\n%s%v", want, got.stdout, got.err)
		}
	}
}

// What stands in a name, or in what an event sent, moves no cursor.
func TestNamesAreSafeForATerminal(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"rule.yaml": signIn + "tests:\n  - {name: \"\\x1b[2Jx\", each: {ip: 192.0.2.1}, timeline: [{at: 0s, times: 2, every: 1s}], expect: {hits: []}}\n"})
	if got := call(t, "table", "", "test", dir); strings.Contains(got.stdout, "\x1b") || !strings.Contains(got.stdout, "·[2Jx") {
		t.Errorf("got %q", got.stdout)
	}
}

// A rule is tested with the allow lists of the files given, wherever they stand: as a document's test, and as a story.
func TestTestsKnowAllowLists(t *testing.T) {
	dir := t.TempDir()
	const (
		list    = "kind: allow\nid: offices\nowner: a\nentries: [{cidr: 192.0.2.0/24, reason: our office, until: 2000-01-01T00:01:00Z}]\n"
		rule    = signIn + "allow: [offices]\n"
		tests   = "tests:\n  - {name: let pass, each: {ip: 192.0.2.1}, timeline: [{at: 0s, times: 3, every: 1s}, {at: 58s, times: 4, every: 1s}], expect: {hits: [{count: 1, first: 1m1s}]}}\n"
		outside = "  - {name: not let pass, each: {ip: 198.51.100.1}, timeline: [{at: 0s, times: 2, every: 1s}], expect: {hits: [{count: 1}]}}\n"
		tale    = "story: Three are let pass\nrules:\n  - rule.yaml\n  - lists.yaml\neach: {ip: 192.0.2.1}\ntimeline: [{at: 0s, times: 3, every: 1s}, {at: 1m, times: 2, every: 1s}]\nexpect: {hits: [{rule: sign-in, count: 1, first: 1m1s}]}\n"
	)
	write(t, dir, map[string]string{
		"apart/rule.yaml": rule + tests + outside, "apart/lists.yaml": list, "apart/z.yaml": tale, "one/rule.yaml": list + "---\n" + rule + tests + outside, "without/rule.yaml": rule + tests,
		"shorter/rule.yaml": strings.Replace(list, "00:01:00", "00:00:01", 1) + "---\n" + rule + tests, "other/rule.yaml": strings.Replace(list, "192.0.2.0/24", "192.0.2.1", 1) + "---\n" + rule + tests + outside,
	})
	for name, want := range map[string]string{
		"apart": "ok    apart/rule.yaml  2 tests\nok    apart/z.yaml  1 test\n", "one": "ok    one/rule.yaml  2 tests\n", "other": "ok    other/rule.yaml  2 tests\n",
		"shorter": "FAIL  shorter/rule.yaml  1 of 1 test failed\n", "without": "which no allow list has as its id",
	} {
		got := call(t, "table", "", "test", filepath.Join(dir, name))
		said := strings.ReplaceAll(got.stdout, dir+"/", "")
		if got.err != nil {
			said += got.err.Error()
		}
		if !strings.Contains(said, want) || (got.err == nil) != strings.HasPrefix(want, "ok") {
			t.Errorf("%s: got\n%s\nwant\n%s", name, said, want)
		}
	}
}
