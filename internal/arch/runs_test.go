package arch

import (
	"fmt"
	"go/ast"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// testFunction is a test with the runs that have it. The long run, `make test-night`, has every test of every package.
type testFunction struct {
	pkg, name string
	raced     bool // a landing runs it under the race detector
	night     bool // a landing leaves it out: it calls testbed.Night
}

func (f testFunction) String() string {
	switch {
	case f.night:
		return fmt.Sprintf("%s %s: night", f.pkg, f.name)
	case f.raced:
		return fmt.Sprintf("%s %s: landing, under the race detector; night", f.pkg, f.name)
	}
	return fmt.Sprintf("%s %s: landing; night", f.pkg, f.name)
}

// TestEachTestHasARun says of every test function which run has it (-v lists them), and that none is in neither.
func TestEachTestHasARun(t *testing.T) {
	how := runsOfPackages(t)
	compiled := compiledTests(t, how)
	var all []testFunction
	for _, f := range repository(t) {
		for _, s := range f.files {
			if !s.test {
				continue
			}
			if !compiled[s.path] {
				t.Errorf("%s: no run compiles it: its build constraints leave it out", s.path)
			}
			if run := how[f.path]; run != "raced" && run != "plain" {
				t.Errorf("%s: scripts/test.sh packages says %q of it, want raced or plain", f.path, run)
			}
			for _, function := range testsOf(t, s) {
				function.raced = how[f.path] == "raced"
				all = append(all, function)
			}
		}
	}
	counts := map[string]int{}
	for _, function := range all {
		t.Log(function)
		_, run, _ := strings.Cut(function.String(), ": ")
		counts[run]++
	}
	t.Logf("%d tests: %v", len(all), counts)
	if len(all) < 1000 {
		t.Errorf("only %d tests found: the wrong place", len(all))
	}
}

// testsOf are the test functions of a file. A call of testbed.Night stands first, where a reader looks for it, and
// nowhere else.
func testsOf(t *testing.T, s source) (all []testFunction) {
	t.Helper()
	for _, decl := range s.file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok || function.Recv != nil || !strings.HasPrefix(function.Name.Name, "Test") || function.Name.Name == "TestMain" {
			continue
		}
		first := false
		for i, statement := range function.Body.List {
			ast.Inspect(statement, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || s.selector(call.Fun) != "testbed.Night" {
					return true
				}
				if i > 0 {
					t.Errorf("%s", s.at(call, "testbed.Night is not the first statement of %s", function.Name.Name))
				}
				first = i == 0
				return true
			})
		}
		all = append(all, testFunction{pkg: path.Dir(s.path), name: function.Name.Name, night: first})
	}
	return all
}

// runsOfPackages asks scripts/test.sh how a landing runs each package, by its path in the repository. No two packages
// have one name: the programs of their tests lie in one folder, and the list of servers names them by it.
func runsOfPackages(t *testing.T) map[string]string {
	t.Helper()
	command := exec.Command("bash", "scripts/test.sh", "packages")
	command.Dir = "../.."
	out, err := command.Output()
	if err != nil {
		t.Fatalf("scripts/test.sh packages: %v", err)
	}
	how, names := map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(out)) {
		run, pkg, _ := strings.Cut(strings.TrimSpace(line), " ")
		pkg = strings.TrimPrefix(pkg, module+"/")
		if how[pkg] != "" {
			t.Errorf("%s is in a landing twice: %s and %s", pkg, how[pkg], run)
		}
		if other := names[path.Base(pkg)]; other != "" {
			t.Errorf("%s and %s have one name", other, pkg)
		}
		how[pkg], names[path.Base(pkg)] = run, pkg
	}
	return how
}

// compiledTests are the files of tests that are compiled with the race detector or without. A file for one of the two
// is of a package that a landing runs without it: what its tests leave out under the race detector would be in no
// landing.
func compiledTests(t *testing.T, how map[string]string) map[string]bool {
	t.Helper()
	files := map[string]bool{}
	for _, flags := range [][]string{{"list"}, {"list", "-race"}} {
		command := exec.Command("go", append(flags, "-f", `{{$p := .ImportPath}}{{range .TestGoFiles}}{{$p}} {{.}}
{{end}}{{range .XTestGoFiles}}{{$p}} {{.}}
{{end}}{{range .IgnoredGoFiles}}{{$p}} {{.}}?
{{end}}`, "./...")...)
		command.Dir, command.Env = "../..", append(os.Environ(), "CGO_ENABLED=1") // which the race detector needs
		out, err := command.Output()
		if err != nil {
			t.Fatalf("go %s: %v", strings.Join(flags, " "), err)
		}
		for _, line := range strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' }) {
			pkg, file, _ := strings.Cut(line, " ")
			pkg = strings.TrimPrefix(pkg, module+"/")
			name, ignored := strings.CutSuffix(file, "?")
			if ignored && strings.HasSuffix(name, "_test.go") && slices.Contains([]string{"raced", ""}, how[pkg]) {
				t.Errorf("%s/%s: not compiled in one of the two, and the package is under the race detector in a landing", pkg, name)
			}
			if !ignored {
				files[pkg+"/"+name] = true
			}
		}
	}
	return files
}
