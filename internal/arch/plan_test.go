package arch

import (
	"slices"
	"strings"
	"testing"
)

// testKits hold servers and parts of the house ready for tests, which hand them their testing.TB.
var testKits = []string{"internal/testbed", "internal/kafkakit", "blocklist/internal/blocktest", "history/historytest", "dashboards/grafana/grafanatest", "console/signin/signintest", "internal/browser"}

// forTests are imported by tests, of any package, and beside them only where the plan names them.
var forTests = []string{"internal/testbed", "internal/kafkakit", "blocklist/internal/blocktest", "history/historytest", "dashboards/grafana/grafanatest", "console/signin/signintest", "internal/browser", "internal/naughty", "internal/oracle", "internal/exactness"}

// libraries lists the packages that may use a client library, or the YAML one; tests and their kits use what they like.
var libraries = []struct {
	prefix string
	users  []string
}{
	{"github.com/segmentio/kafka-go", []string{"ingest/kafka"}},
	{"github.com/redis/go-redis", []string{"blocklist"}},
	{"go.yaml.in/yaml", []string{"internal/yamlnode", "cmd/weir/internal/devserver", "dashboards/alerts"}}, // one reads, two write
	{"cel.dev/cel-go", []string{"rules/condition"}},
	{"github.com/grafana/grafana-foundation-sdk", []string{"dashboards"}},
	{"github.com/jackc/pgx", []string{
		"history", "migrations", "internal/exactness",
		"history/audit", "history/erasure", "history/evidence", "history/explore", "history/orders",
		"history/partitions", "history/postgres", "history/retention", "history/rulestore", "history/savedviews",
		"history/sessions", "history/streams", "history/sums",
	}},
	{"github.com/twmb/franz-go", []string{"internal/local", "internal/exactness"}},
	{"github.com/alicebob/miniredis", []string{"internal/local"}},
	{"github.com/fergusstrange/embedded-postgres", []string{"internal/local"}},
}

// planned returns the plan of a folder, and whether there is one.
func planned(name string) (room, bool) {
	found, ok := plan[name]
	return found, ok
}

func onlyPlannedPackages(f folder) []string {
	if _, ok := planned(f.path); ok {
		return nil
	}
	return []string{f.path + ": is not in the floor plan (internal/arch/floorplan_test.go)"}
}

func importsOneWay(f folder) []string {
	p, ok := planned(f.path)
	if !ok {
		return nil // told already
	}
	var findings []string
	for _, s := range f.files {
		for name, spec := range s.imports() {
			other, ours := strings.CutPrefix(name, module+"/")
			switch {
			case !ours || slices.Contains(p.imports, other):
			case s.test && (other == f.path || slices.Contains(forTests, other) || slices.Contains(p.tests, other)):
			case slices.Contains(forTests, other):
				findings = append(findings, s.at(spec, "%s is for tests only", other))
			case s.test:
				findings = append(findings, s.at(spec, "tests of %s must not import %s; they may import %s", f.path, other, list(slices.Concat(p.imports, p.tests))))
			default:
				findings = append(findings, s.at(spec, "%s must not import %s; it may import %s", f.path, other, list(p.imports)))
			}
		}
	}
	return findings
}

// A fence that is wider than the field guards nothing: each import that the plan allows is one that somebody needs.
func TestPlanIsExact(t *testing.T) {
	used := map[string]map[string]bool{} // by room; in tests as "test NAME"
	for _, f := range repository(t) {
		name := f.path
		if used[name] == nil {
			used[name] = map[string]bool{}
		}
		for _, s := range f.files {
			for imported := range s.imports() {
				other := strings.TrimPrefix(imported, module+"/")
				if s.test {
					other = "test " + other
				}
				used[name][other] = true
			}
		}
	}
	for name, p := range plan {
		if p.what == "" {
			t.Errorf("the plan does not say what %s is", name)
		}
		if used[name] == nil {
			t.Errorf("the plan has %s, which does not exist", name)
			continue
		}
		for _, other := range p.imports {
			if !used[name][other] {
				t.Errorf("%s may import %s and does not", name, other)
			}
		}
		for _, other := range p.tests {
			if !used[name]["test "+other] || slices.Contains(p.imports, other) {
				t.Errorf("tests of %s may import %s, and do not, or the package does", name, other)
			}
		}
	}
}

func librariesStayHome(f folder) []string {
	var findings []string
	if slices.Contains(testKits, f.path) {
		return nil
	}
	for _, s := range f.code() {
		for name, spec := range s.imports() {
			if name == "testing" || strings.HasPrefix(name, "testing/") {
				findings = append(findings, s.at(spec, "%s outside of tests puts test flags and code into the program", name))
			}
			for _, library := range libraries {
				if strings.HasPrefix(name, library.prefix) && !slices.Contains(library.users, f.path) {
					findings = append(findings, s.at(spec, "%s is used in %s only", library.prefix, list(library.users)))
				}
			}
		}
	}
	return findings
}

func plainNames(f folder) []string {
	vague := []string{"util", "utils", "common", "helper", "helpers", "types", "model", "models", "misc"}
	var findings []string
	for element := range strings.SplitSeq(f.path, "/") {
		if slices.Contains(vague, element) {
			findings = append(findings, f.path+": the folder's name says nothing")
		}
	}
	for _, s := range f.files {
		name := strings.TrimSuffix(strings.TrimSuffix(s.path[strings.LastIndexByte(s.path, '/')+1:], ".go"), "_test")
		for word := range strings.SplitSeq(name, "_") {
			if slices.Contains(vague, word) {
				findings = append(findings, s.path+": the file's name says nothing")
			}
		}
	}
	return findings
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing of this repository"
	}
	return strings.Join(names, ", ")
}
