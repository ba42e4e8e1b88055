package arch

import (
	"slices"
	"strings"
)

// plan lists every package and what else of this repository it may import:
//
//	traffic ← rules ← detectors ← {ingest, blocklist, history} ← {gate, console} ← cmd
var plan = map[string][]string{
	"traffic":        {},
	"rules":          {"traffic", "internal/yamlnode", "internal/duration"},
	"detectors":      {"traffic", "rules"},
	"ingest":         {"traffic", "rules", "detectors"}, // the ports; what implements and uses them is below
	"ingest/kafka":   {"traffic", "ingest", "internal/retry"},
	"ingest/route":   {"traffic", "rules", "detectors", "ingest", "internal/retry"},
	"ingest/detect":  {"traffic", "rules", "detectors", "ingest", "internal/retry"},
	"ingest/consume": {"traffic", "detectors", "ingest", "internal/retry"},
	"ingest/archive": {"traffic", "ingest", "internal/retry"},
	"blocklist":      {"traffic", "rules", "detectors", "internal/retry"},
	"history":        {"traffic", "rules", "detectors", "ingest", "blocklist", "migrations", "internal/retry"},
	"migrations":     {},
	"gate":           {"traffic", "rules", "detectors", "ingest", "blocklist", "history", "internal/retry"},
	"console":        {"traffic", "rules", "detectors", "ingest", "blocklist", "history", "internal/retry"},
	"dashboards":     {},

	"cmd/weir": {"*"},
	// What all that is set is called, and where it is read.
	"cmd/weir/internal/config": {"traffic", "rules", "detectors", "blocklist", "ingest", "internal/yamlnode", "internal/duration"},
	// Opens the servers, makes the stages, runs and stops them.
	"cmd/weir/internal/service": {"traffic", "rules", "detectors", "ingest", "ingest/kafka", "ingest/route", "ingest/detect", "ingest/consume",
		"blocklist", "history", "gate", "internal/retry", "cmd/weir/internal/config", "cmd/weir/internal/terminal", "cmd/weir/internal/usage"},
	"cmd/weir/internal/terminal": {"traffic"},                                                          // what commands show: tables, times, progress
	"cmd/weir/internal/usage":    {"rules", "internal/duration", "cmd/weir/internal/terminal"},         // mistakes in what weir is told
	"cmd/weir/internal/subject":  {"traffic", "cmd/weir/internal/terminal", "cmd/weir/internal/usage"}, // subjects as words of a shell
	// The life of a stream: migrate, and replays from files.
	"cmd/weir/internal/stream": {"traffic", "rules", "detectors", "ingest", "ingest/kafka", "ingest/route", "ingest/detect", "ingest/archive", "history", "internal/duration",
		"cmd/weir/internal/config", "cmd/weir/internal/service", "cmd/weir/internal/terminal", "cmd/weir/internal/usage"},
	// weir doctor: looks at everything that an installation needs, and says what to do.
	"cmd/weir/internal/doctor": {"traffic", "rules", "detectors", "ingest", "ingest/kafka", "ingest/route", "ingest/detect", "blocklist", "history",
		"cmd/weir/internal/config", "cmd/weir/internal/service", "cmd/weir/internal/stream", "cmd/weir/internal/terminal"},
	// weir dev: all of weir in one process, and a demo.
	"cmd/weir/internal/devserver": {"rules", "detectors", "ingest", "blocklist", "history", "gate", "console", "internal/demo", "internal/local",
		"cmd/weir/internal/config", "cmd/weir/internal/service", "cmd/weir/internal/stream", "cmd/weir/internal/subject", "cmd/weir/internal/terminal", "cmd/weir/internal/usage"},

	"examples":          {"traffic", "gate"}, // and below: what users import too
	"internal/retry":    {},                  // backoff, and what to log meanwhile
	"internal/yamlnode": {},                  // YAML values with their lines, for rules and the configuration
	"internal/duration": {},                  // 90s, 1d12h: in rules, settings and flags
	"internal/local":    {},                  // servers of this machine, for weir dev and tests
	"internal/testbed":  {"internal/local"},
	"internal/kafkakit": {"traffic", "ingest", "ingest/kafka", "internal/testbed"}, // a client and topics for a test
	"internal/oracle":   {},                                                        // judges the detectors, so shares nothing with them
	// A load and what is true of it; judges, so asks the oracle. The windows that it judges are for its tests.
	"internal/loadgen": {"traffic", "rules", "detectors", "internal/oracle"},
	// A load against what an installation has in history of it.
	"internal/loadgen/verify": {"traffic", "rules", "detectors", "ingest", "history", "internal/loadgen", "internal/retry"},
	// The demo and its judge, who asks the oracle; rules and detectors are for its tests.
	"internal/demo":       {"traffic", "rules", "detectors", "blocklist", "gate", "internal/oracle"},
	"internal/arch":       {},
	"scripts/testreport":  {},
	"internal/doctest":    {"traffic", "rules"}, // what the documents show, read and run; tests only
	"internal/deploy":     {"internal/testbed"}, // what docker-compose.yml mounts, run by real programs; tests only
	"internal/simulation": {"*"},                // the stages over fakes, by seeds; tests only
	// What a simulated stream must have come to: judges, so asks the oracle and shares nothing else.
	"internal/simulation/judge": {"internal/oracle"},
	"internal/peers":            {"traffic", "rules", "detectors"}, // other limiters' cases, run through our windows; tests only
	"internal/order":            {"traffic", "rules", "detectors"}, // the windows under every order of events; tests only
	"internal/acceptance":       {"*"},                             // whole streams judged from outside; tests only
	"internal/adversary":        {"traffic", "rules", "blocklist"}, // clients that want past a block, and real servers; tests only
	"internal/exactness":        {"internal/oracle"},               // a load, and the judges of what came of it
	"internal/faults":           {"internal/local"},                // real processes and servers killed, frozen and restarted; tests only
}

// forTests are imported by tests, of any package, and beside them only where the plan names them.
var forTests = []string{"internal/testbed", "internal/kafkakit", "internal/oracle", "internal/exactness"}

// alsoInTests lists what the tests of a package import beside what the plan names: a stage over the log and the neighbour that
// it really has.
var alsoInTests = map[string][]string{
	"ingest/consume": {"ingest/kafka"},
	"ingest/route":   {"ingest/kafka", "ingest/consume"},
	"ingest/detect":  {"ingest/kafka", "ingest/route"},
}

// libraries lists the packages that may use a client library; tests and internal/testbed use what they like.
var libraries = []struct {
	prefix string
	users  []string
}{
	{"github.com/segmentio/kafka-go", []string{"ingest/kafka"}},
	{"github.com/redis/go-redis", []string{"blocklist"}},
	{"github.com/jackc/pgx", []string{"history", "migrations", "internal/exactness"}},
	{"github.com/twmb/franz-go", []string{"internal/local", "internal/exactness"}},
	{"github.com/alicebob/miniredis", []string{"internal/local"}},
	{"github.com/fergusstrange/embedded-postgres", []string{"internal/local"}},
}

// planned returns what a folder may import, and whether it is in the plan.
func planned(name string) ([]string, bool) {
	if strings.HasPrefix(name, "examples/") {
		name = "examples"
	}
	allowed, ok := plan[name]
	return allowed, ok
}

func onlyPlannedPackages(f folder) []string {
	if _, ok := planned(f.path); ok {
		return nil
	}
	return []string{f.path + ": is not in the floor plan (internal/arch/plan_test.go)"}
}

func importsOneWay(f folder) []string {
	allowed, ok := planned(f.path)
	if !ok {
		return nil // told already
	}
	var findings []string
	for _, s := range f.files {
		for name, spec := range s.imports() {
			if name != module && !strings.HasPrefix(name, module+"/") {
				continue
			}
			other := strings.TrimPrefix(strings.TrimPrefix(name, module), "/")
			switch {
			case slices.Contains(forTests, other):
				if !s.test && !slices.Contains(allowed, other) {
					findings = append(findings, s.at(spec, "%s is for tests only", other))
				}
			case s.test && (other == f.path || slices.Contains(alsoInTests[f.path], other)):
			case slices.Contains(allowed, "*") || slices.Contains(allowed, other):
			default:
				findings = append(findings, s.at(spec, "%s must not import %s; it may import %s", f.path, other, list(allowed)))
			}
		}
	}
	return findings
}

func librariesStayHome(f folder) []string {
	var findings []string
	if f.path == "internal/testbed" || f.path == "internal/kafkakit" {
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
