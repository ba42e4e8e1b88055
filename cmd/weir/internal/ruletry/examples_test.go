package ruletry

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/story"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// mutant is a document that says one step more or less than another.
type mutant struct {
	name string
	doc  rules.Document
}

// mutants are the documents one step beside d: a limit, a window, a field of the key, a prefix length, what is counted, the parts
// of the match, and a tier.
func mutants(d rules.Document) []mutant {
	var out []mutant
	add := func(name string, change func(*rules.Document)) {
		m := d
		m.Key, m.Tiers = slices.Clone(d.Key), slices.Clone(d.Tiers)
		change(&m)
		out = append(out, mutant{name, m})
	}
	for _, step := range []int{-1, 1} {
		if d.Limit+step >= 0 {
			add(fmt.Sprintf("limit %+d", step), func(m *rules.Document) { m.Limit += step })
		}
		add(fmt.Sprintf("window %+ds", step), func(m *rules.Document) { m.Window += time.Duration(step) * time.Second })
	}
	keyMutants(d, add)
	countMutants(d, add)
	matchMutants(d, add)
	for i, tier := range d.Tiers {
		place := fmt.Sprintf("tiers[%d]", i)
		for _, step := range []int{-1, 1} {
			add(fmt.Sprintf("%s.limit %+d", place, step), func(m *rules.Document) { m.Tiers[i].Limit += step })
		}
		add("without "+place, func(m *rules.Document) { m.Tiers = slices.Delete(m.Tiers, i, i+1) })
		for _, when := range neighbours(tier.When) {
			add(place+".when "+when, func(m *rules.Document) { m.Tiers[i].When = when })
		}
	}
	return out
}

type addMutant func(name string, change func(*rules.Document))

// keyMutants have a field of an identity more, a field less, and an alternative less.
func keyMutants(d rules.Document, add addMutant) {
	for f := range traffic.NumFields {
		within := func(k traffic.KeyField) bool {
			return slices.ContainsFunc(slices.Collect(k.Alternatives()), func(one traffic.KeyField) bool { return one.Field == f })
		}
		if !slices.ContainsFunc(d.Key, within) {
			field := traffic.KeyField{Field: f}
			if f == traffic.FieldIP {
				field.V4, field.V6 = traffic.DefaultV4, traffic.DefaultV6
			}
			add("key and "+f.String(), func(m *rules.Document) { m.Key = append(m.Key, field) })
		}
	}
	for i, k := range d.Key {
		add("key without "+k.String(), func(m *rules.Document) { m.Key = slices.Delete(m.Key, i, i+1) })
		if k.Field == traffic.FieldFallback {
			for one := range k.Alternatives() {
				add("key with "+one.String()+" alone", func(m *rules.Document) { m.Key[i] = one })
			}
		}
	}
}

// countMutants count events, other prefixes, or combinations of a field less or more.
func countMutants(d rules.Document, add addMutant) {
	if d.Count.Kind() != rules.CountEvents {
		add("count events", func(m *rules.Document) { m.Count = rules.Count{} })
	}
	for i := range d.Count.Tuple {
		add("count.distinct without "+d.Count.Tuple[i].String(), func(m *rules.Document) {
			m.Count.Tuple = slices.Delete(slices.Clone(d.Count.Tuple), i, i+1)
			if len(m.Count.Tuple) == 1 {
				m.Count = rules.Count{Distinct: &m.Count.Tuple[0]}
			}
		})
	}
	f := d.Count.Distinct
	if f == nil {
		return
	}
	differs := map[traffic.Field]bool{ // among the events that match
		traffic.FieldPath: d.Match.Path == "" || strings.ContainsAny(d.Match.Path, "{*"), traffic.FieldMethod: len(d.Match.Methods) != 1,
	}
	for more, does := range differs {
		if does && f.Field != more {
			add("count.distinct and "+more.String(), func(m *rules.Document) { m.Count = rules.Count{Tuple: []traffic.KeyField{*f, {Field: more}}} })
		}
	}
	if f.Field == traffic.FieldIP && (f.V4 != traffic.DefaultV4 || f.V6 != traffic.DefaultV6) {
		for _, step := range []uint8{1, 255} { // 255 is one less
			add(fmt.Sprintf("count.distinct v4 %+d", int8(step)), func(m *rules.Document) {
				m.Count.Distinct = &traffic.KeyField{Field: f.Field, V4: f.V4 + step, V6: f.V6}
			})
			add(fmt.Sprintf("count.distinct v6 %+d", int8(step)), func(m *rules.Document) {
				m.Count.Distinct = &traffic.KeyField{Field: f.Field, V4: f.V4, V6: f.V6 + step}
			})
		}
	}
}

// matchMutants have a member of the match less, or a condition beside theirs.
func matchMutants(d rules.Document, add addMutant) {
	if d.Match.Methods != nil {
		add("match without method", func(m *rules.Document) { m.Match.Methods = nil })
	}
	for i, status := range d.Match.Statuses {
		add("match without status", func(m *rules.Document) { m.Match.Statuses = nil })
		if len(d.Match.Statuses) > 1 {
			add("match without status "+status, func(m *rules.Document) { m.Match.Statuses = slices.Delete(slices.Clone(d.Match.Statuses), i, i+1) })
		}
		add("match of the class of "+status, func(m *rules.Document) { m.Match.Statuses = append(slices.Clone(d.Match.Statuses), status[:1]+"xx") })
	}
	if d.Match.Path != "" || d.Match.Paths != nil {
		add("match without path", func(m *rules.Document) {
			m.Match.Path, m.Match.Paths, m.Match.PathAs, m.Match.PathCase = "", nil, "", ""
		})
	}
	for name, list := range map[string]func(*rules.Match) *[]string{
		"path":   func(m *rules.Match) *[]string { return &m.Paths },
		"except": func(m *rules.Match) *[]string { return &m.Except },
		"host":   func(m *rules.Match) *[]string { return &m.Hosts },
		"route":  func(m *rules.Match) *[]string { return &m.Routes },
	} {
		for i, one := range *list(&d.Match) {
			add("match without "+name+" "+one, func(m *rules.Document) { *list(&m.Match) = slices.Delete(slices.Clone(*list(&m.Match)), i, i+1) })
		}
	}
	if d.Match.When != "" {
		add("match without when", func(m *rules.Document) { m.Match.When = "" })
	}
	for _, when := range neighbours(d.Match.When) {
		add("match.when "+when, func(m *rules.Document) { m.Match.When = when })
	}
}

// neighbours are the conditions one step beside one: an operator turned, a part left out, a number one more or less.
func neighbours(when string) (out []string) {
	for _, turn := range [][2]string{{"==", "!="}, {"!=", "=="}, {">=", ">"}, {"<=", "<"}, {"> ", ">= "}, {"< ", "<= "}, {"&&", "||"}, {"||", "&&"}, {"!(", "("}, {"true", "false"}} {
		for at := range len(when) {
			if rest, ok := strings.CutPrefix(when[at:], turn[0]); ok {
				out = append(out, when[:at]+turn[1]+rest)
			}
		}
	}
	for _, between := range []string{" && ", " || "} {
		if parts := strings.Split(when, between); len(parts) > 1 {
			for i := range parts {
				out = append(out, strings.Join(slices.Delete(slices.Clone(parts), i, i+1), between))
			}
		}
	}
	for _, at := range regexp.MustCompile(`\b[0-9]+\b`).FindAllStringIndex(when, -1) {
		n, _ := strconv.Atoi(when[at[0]:at[1]])
		out = append(out, when[:at[0]]+strconv.Itoa(n-1)+when[at[1]:], when[:at[0]]+strconv.Itoa(n+1)+when[at[1]:])
	}
	return out
}

// library are the examples with their tests.
func library(t *testing.T) ([]rules.Document, map[string][]story.Test) {
	t.Helper()
	tests := map[string][]story.Test{}
	conditions, err := condition.New()
	if err != nil {
		t.Fatal(err)
	}
	env := rules.Environment{
		Identity: traffic.DefaultIdentityMap(), Conditions: conditions, Tests: &story.Tests{Keep: func(one story.Test) { tests[one.Rule] = append(tests[one.Rule], one) }},
		Warn: func(p rules.Problem) { t.Errorf("warning: %v", p) },
	}
	docs, err := rules.LoadDir(os.DirFS(filepath.Join(repository, "examples/rules")), "examples/rules", env)
	if err != nil {
		t.Fatal(err)
	}
	return docs, tests
}

// Each rule of the library passes its tests, and none of them can be loosened, or tightened, by one step without that a test of
// its own fails.
func TestTheLibraryHoldsEveryStep(t *testing.T) {
	docs, tests := library(t)
	if len(docs) < 16 {
		t.Errorf("%d rules", len(docs))
	}
	for _, d := range docs {
		t.Run(d.ID, func(t *testing.T) {
			t.Parallel()
			for _, one := range tests[d.ID] {
				if diff, err := Play(one.Story); diff != "" || err != nil {
					t.Errorf("%s: %v\n%s", one.Name, err, diff)
				}
			}
			for _, m := range mutants(d) {
				if survives(t, m.doc, tests[d.ID]) {
					t.Errorf("%s: no test fails", m.name)
				}
			}
		})
	}
}

// survives reports whether a document passes the tests that another one has. Of blocks nothing is asked: hits are what the
// steps are about.
func survives(t *testing.T, d rules.Document, tests []story.Test) bool {
	t.Helper()
	v, _ := rules.NextVersion(nil, d)
	for _, one := range tests {
		s := *one.Story
		s.Rules, s.Expect.AnyBlocks = []rules.Version{v}, true
		if diff, err := Play(&s); diff != "" || err != nil {
			return false
		}
	}
	return true
}

// Who copies a rule reads when to use it, and what it misses.
func TestTheLibrarySaysWhatItIsFor(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository, "examples/rules/*.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(src), "\nid: ")
		for _, words := range []string{"# Use ", " miss"} {
			if !strings.Contains(head, words) {
				t.Errorf("%s: %q is not in its first lines", name, words)
			}
		}
		for _, line := range strings.Split(head, "\n") {
			if !strings.HasPrefix(line, "#") {
				t.Errorf("%s: %q stands before the rule, and is no comment", name, line)
			}
		}
	}
}
