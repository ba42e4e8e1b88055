package arch

import (
	"bytes"
	"go/ast"
	"go/token"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rule is one habit of the house. check looks at one folder and returns what breaks it there.
type rule struct {
	name, why string
	check     func(folder) []string
}

func houseRules() []rule {
	return []rule{
		{
			"floor plan", "A folder is a stage of the stream. A new one is a decision: say in the plan where it stands.",
			onlyPlannedPackages,
		},
		{
			"imports run one way", "What is below knows nothing of what is above, so that each stage can be read, tested and replaced " +
				"by itself. Declare an interface where you need one; let cmd/weir join the parts.",
			importsOneWay,
		},
		{
			"client libraries stay at home", "A store's client is used in one place, which knows its traps (time-outs, retries, what an " +
				"error means). Elsewhere an interface of one to three methods says what is needed.",
			librariesStayHome,
		},
		{
			"names say something", "util, common, helpers, types, models and misc collect what nobody could name. Name the thing.",
			plainNames,
		},
		{
			"detectors are pure", "The same keyed log must give the same hits, byte for byte, live, in a replay and after a crash. " +
				"A clock, a goroutine, randomness or I/O would break that, and one test in a thousand would show it.",
			detectorsArePure,
		},
		{
			"no state in packages", "Two installations in one process, parallel tests and a clean restart need all state to hang on " +
				"values that somebody made and passes on.",
			noGlobals,
		},
		{
			"no init functions", "What runs because of an import runs in an order nobody reads, before there is a configuration or a logger.",
			noInit,
		},
		{
			"one exit, no global logger", "Ctrl-C must drain and close everything in order; only main can do that. And a library's lines " +
				"belong where its user wants them.",
			oneExit,
		},
		{
			"no sleeping", "A sleep in a test is too long on a fast machine and too short on a slow one: poll with a deadline " +
				"(testbed.Eventually) or use synctest. A sleep in the program cannot be cancelled: use a timer and the context.",
			noSleep,
		},
		{
			"a package fits a mind", "A folder with more files is several packages that are told apart by the beginnings of file names. Cut it " +
				"where few names cross; or join files that are halves of one idea.",
			fewFiles,
		},
		{
			"a type has one job", "A type with more methods is several that share a receiver: give the fields that are used together a type of " +
				"their own. An exception stands in the list with its reason.",
			fewMethods,
		},
		{
			"a page a file, a screen a function", "What does not fit a mind does not get read. Split by what changes together.",
			aPageAFile,
		},
		{
			"exported means documented", "Units, defaults, special values and errors are what a reader needs and cannot guess.",
			documented,
		},
	}
}

func TestHouse(t *testing.T) {
	folders := repository(t)
	for _, rule := range houseRules() {
		t.Run(rule.name, func(t *testing.T) {
			var findings []string
			for _, folder := range folders {
				findings = append(findings, rule.check(folder)...)
			}
			if len(findings) > 0 {
				slices.Sort(findings)
				t.Errorf("%s\n\t%s", rule.why, strings.Join(findings, "\n\t"))
			}
		})
	}
}

// An exception that is not needed any more goes.
func TestSleepersSleep(t *testing.T) {
	needed := map[sleeper]bool{}
	for _, f := range repository(t) {
		for _, s := range f.files {
			for _, decl := range s.file.Decls {
				if s.maySleep(decl) && len(s.sleeps(decl)) > 0 {
					for _, x := range sleepers() {
						if strings.HasPrefix(s.path, x.below) && decl.(*ast.FuncDecl).Name.Name == x.function {
							needed[x] = true
						}
					}
				}
			}
		}
	}
	for _, x := range sleepers() {
		if !needed[x] || x.reason == "" {
			t.Errorf("%s of %s does not sleep, or has no reason to", x.function, x.below)
		}
	}
}

// What a package drags in through others counts as well: a single import does not show it.
func TestDependenciesInDepth(t *testing.T) {
	tests := []struct {
		of, why string
		not     []string
		except  string // who may import what nobody else may
	}{
		{
			of: "./traffic ./rules ./detectors", why: "The core runs without any server, so it must not carry the clients of one.",
			not: []string{"github.com/segmentio/", "github.com/redis/", "github.com/jackc/", "github.com/prometheus/", "database/sql"},
		},
		{
			of: "./cmd/weir", why: "The program that is shipped carries no test code.",
			not: []string{"testing", "go.uber.org/goleak", "pgregory.net/rapid", module + "/internal/testbed"},
			// It has a file for its own tests that is no _test file. Importing testing registers no flags.
			except: "github.com/fergusstrange/embedded-postgres",
		},
	}
	for _, test := range tests {
		t.Run(test.of, func(t *testing.T) {
			for importer, names := range importsInDepth(t, strings.Fields(test.of)) {
				for _, name := range names {
					for _, not := range test.not {
						if below(name, not) && !below(importer, not) && importer != test.except {
							t.Errorf("%s depends on %s, which %s imports. %s", test.of, name, importer, test.why)
						}
					}
				}
			}
		})
	}
}

// below reports whether a package is the one named, or under it.
func below(name, root string) bool {
	root = strings.TrimSuffix(root, "/")
	return name == root || strings.HasPrefix(name, root+"/")
}

// importsInDepth lists what each of the packages, and of those that they are made of, imports.
func importsInDepth(t *testing.T, packages []string) map[string][]string {
	t.Helper()
	command := exec.Command("go", append([]string{"list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`}, packages...)...)
	command.Dir = "../.."
	var problems bytes.Buffer
	command.Stderr = &problems
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command.Args, err, problems.Bytes())
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		imports[words[0]] = words[1:]
	}
	return imports
}

// Every rule is shown code that breaks it and code that looks alike and does not.
func TestRulesFindWhatTheyForbid(t *testing.T) {
	checked := map[string]bool{}
	for _, example := range examples() {
		t.Run(example.rule+"/"+example.path, func(t *testing.T) {
			at := slices.IndexFunc(houseRules(), func(r rule) bool { return r.name == example.rule })
			if at < 0 {
				t.Fatalf("there is no rule %q", example.rule)
			}
			checked[example.rule] = true
			name, count, many := strings.Cut(example.path, ",")
			copies, err := strconv.Atoi(count)
			if !many {
				copies, err = 1, nil
			}
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := parse(token.NewFileSet(), name, []byte(example.code))
			if err != nil {
				t.Fatal(err)
			}
			got := houseRules()[at].check(folder{path: path.Dir(name), files: slices.Repeat([]source{parsed}, copies)})
			slices.Sort(got)
			if len(got) != len(example.want) {
				t.Fatalf("findings:\n%s\nwant %d", strings.Join(got, "\n"), len(example.want))
			}
			for i, want := range example.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("finding %q, want it to contain %q", got[i], want)
				}
			}
		})
	}
	for _, rule := range houseRules() {
		if !checked[rule.name] {
			t.Errorf("rule %q has no example", rule.name)
		}
	}
}
