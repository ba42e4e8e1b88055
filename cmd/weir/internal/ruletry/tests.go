package ruletry

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/internal/story"
	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// CheckTests reads the tests of documents for the sake of what is wrong with them.
func CheckTests() rules.TestReader { return &story.Tests{} }

// tester runs tests.
type tester struct {
	pattern string
	verbose bool
}

// testResult is what came of one test.
type testResult struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	Rule string `json:"rule,omitempty"` // empty for a story
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Diff string `json:"diff,omitempty"` // what was expected (-) and what came (+)
}

// title is what --run looks at.
func (r *testResult) title() string {
	if r.Rule == "" {
		return r.Name
	}
	return r.Rule + "/" + r.Name
}

// testReport is what came of all.
type testReport struct {
	Passed   int          `json:"passed"`
	Failed   int          `json:"failed"`
	Tests    []testResult `json:"tests"`
	Untested []string     `json:"untested"` // rules without a test
}

func (t *tester) run(h *Host, c *config.Config, paths []string) error {
	wanted, err := regexp.Compile(t.pattern)
	if err != nil {
		return usage.Errorf("--run: got %q (%w); allowed: a regular expression, as of RE2", t.pattern, err)
	}
	all, untested, err := readTests(paths, c.Identity)
	if err != nil {
		return err
	}
	report := testReport{Tests: []testResult{}, Untested: append([]string{}, untested...)}
	for _, one := range all {
		r := testResult{File: one.File, Line: one.Line, Rule: one.Rule, Name: one.Name}
		if !wanted.MatchString(r.title()) {
			continue
		}
		if r.Diff, err = Play(one.Story); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", r.File, r.Line, r.title(), err)
		}
		if r.OK = r.Diff == ""; r.OK {
			report.Passed++
		} else {
			report.Failed++
		}
		report.Tests = append(report.Tests, r)
	}
	if err := none(len(all), len(report.Tests), t.pattern); err != nil {
		return err
	}
	if err := t.show(h.Output, &report); err != nil {
		return err
	}
	if report.Failed > 0 {
		return h.Failed
	}
	return nil
}

// none is the error of a run that tests nothing: in a pipeline it would pass for ever, and nobody would notice.
func none(all, ran int, pattern string) error {
	switch {
	case ran > 0:
		return nil
	case all == 0:
		return errors.New("no test in the files given; allowed: tests in rule documents, and stories")
	}
	return fmt.Errorf("--run: none of %s has %q in its RULE/NAME", plural.Of(all, "test"), pattern)
}

// Play gives the difference between what a test expects and what comes of it; empty: none.
func Play(s *story.Story) (string, error) {
	got, err := story.Fold(s)
	if err != nil {
		return "", err
	}
	return s.Diff(got), nil
}

// show writes the results as go test does: a file a line, with the tests that failed above it.
func (t *tester) show(o *terminal.Output, r *testReport) error {
	if o.Format == "json" {
		return o.WriteJSON(r)
	}
	var b strings.Builder
	for from := 0; from < len(r.Tests); {
		to, failed := from, 0
		for ; to < len(r.Tests) && r.Tests[to].File == r.Tests[from].File; to++ {
			one := &r.Tests[to]
			switch {
			case !one.OK:
				failed++
				fmt.Fprintf(&b, "--- FAIL: %s\n    %s:%d\n", terminal.Safe(one.title()), one.File, max(one.Line, 1))
				for _, line := range strings.Split(strings.TrimRight(one.Diff, "\n"), "\n") {
					fmt.Fprintf(&b, "    %s\n", terminal.Safe(line))
				}
			case t.verbose:
				fmt.Fprintf(&b, "--- PASS: %s\n", terminal.Safe(one.title()))
			}
		}
		n := int64(to - from)
		if failed > 0 {
			fmt.Fprintf(&b, "FAIL  %s  %d of %s failed\n", r.Tests[from].File, failed, plural.Of(n, "test"))
		} else {
			fmt.Fprintf(&b, "ok    %s  %s\n", r.Tests[from].File, plural.Of(n, "test"))
		}
		from = to
	}
	for _, id := range r.Untested {
		fmt.Fprintf(&b, "?     %s  no tests\n", id)
	}
	_, err := io.WriteString(o.Stdout, b.String())
	return err
}

// readTests reads the tests of documents and the stories in files and folders, in the order of the files. untested are rules
// without one.
func readTests(paths []string, identity traffic.IdentityMap) (all []story.Test, untested []string, err error) {
	names, err := filesOf(paths)
	if err != nil {
		return nil, nil, err
	}
	var files []rules.File
	var stories []story.Test
	var problems []error
	for _, name := range names {
		src, err := readBounded(name)
		if err != nil {
			return nil, nil, err
		}
		if !isStory(src) {
			files = append(files, rules.File{Name: name, Src: src})
			continue
		}
		s, err := story.Parse(name, src, func(other string) ([]byte, error) { return readBounded(filepath.Join(filepath.Dir(name), other)) })
		if err != nil {
			problems = append(problems, err)
			continue
		}
		stories = append(stories, story.Test{File: name, Line: 1, Story: s})
	}
	conditions, err := condition.New()
	if err != nil {
		return nil, nil, err
	}
	all, untested, err = DocumentTests(files, nil, rules.Environment{Identity: identity, Conditions: conditions}, 0)
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, nil, err
	}
	all = append(all, stories...)
	slices.SortStableFunc(all, func(a, b story.Test) int {
		return slices.Index(names, a.File) - slices.Index(names,
			b.File)
	})
	return all, untested, nil
}

// TooManyError says that tests have more events than can be run at once.
type TooManyError struct{ Got, Most int }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("tests: got %d events in all documents, allowed %d at once", e.Got, e.Most)
}

// DocumentTests reads the tests of documents, in the order of the files. Rules may name stored allow lists, and those
// of the files take the place of those of the same id. untested are rules without a test. What is wrong is
// rules.Problems; that the tests have more events in all than most is a *TooManyError; 0 is no bound.
func DocumentTests(files []rules.File, stored []rules.AllowList, env rules.Environment, most int) (all []story.Test,
	untested []string, err error) {
	tested, events := map[string]bool{}, 0
	env.Tests, env.AllowLists = &story.Tests{Keep: func(t story.Test) {
		tested[t.Rule] = true
		if events += len(t.Steps); most > 0 && events > most {
			all = nil // they are let go of: the rest is counted alone
			return
		}
		all = append(all, t)
	}}, []string{}
	for i := range stored {
		env.AllowLists = append(env.AllowLists, stored[i].ID)
	}
	set, err := rules.ParseSet(files, env)
	if err != nil {
		return nil, nil, err
	}
	if most > 0 && events > most {
		return nil, nil, &TooManyError{events, most}
	}
	for i := range set.Rules {
		if id := set.Rules[i].ID; !tested[id] {
			untested = append(untested, id)
		}
	}
	lists := set.Lists(stored)
	for i := range all {
		all[i].Allow = lists
	}
	return all, untested, nil
}

// filesOf are the files at paths, and the *.yaml and *.yml files of folders, as weir rules apply takes them, each once.
func filesOf(paths []string) ([]string, error) {
	var out []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			out = append(out, path)
			continue
		}
		before := len(out)
		err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
			base, ext := filepath.Base(name), filepath.Ext(name)
			switch {
			case err != nil:
				return err
			case strings.HasPrefix(base, ".") && name != path && entry.IsDir():
				return fs.SkipDir
			case !entry.IsDir() && !strings.HasPrefix(base, ".") && (ext == ".yaml" || ext == ".yml"):
				out = append(out, name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(out) == before {
			return nil, fmt.Errorf("%s: got no *.yaml or *.yml file; allowed: a folder of rules or stories", path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// readBounded reads a file up to one byte more than is allowed, at which the parser refuses it.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	src, err := io.ReadAll(io.LimitReader(f, rules.MaxFileBytes+1))
	return src, errors.Join(err, f.Close())
}

// isStory reports whether a file's first document has a member that only stories have.
func isStory(src []byte) bool {
	if len(src) > rules.MaxFileBytes {
		return false // and refused as rules
	}
	for n, err := range yamlnode.Documents(src) {
		if err != nil {
			return false
		}
		return slices.ContainsFunc(n.Members(), func(m yamlnode.Member) bool {
			return m.Name.Value() == "story" || m.Name.Value() == "timeline"
		})
	}
	return false
}
