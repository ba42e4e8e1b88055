package gate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wanted lists what a user's server may get with gate, by the beginning of the import path, and why. Everything else is a
// dependency that the user did not ask for.
var wanted = []struct{ prefix, why string }{
	{"github.com/weirhq/weir/gate", "the middleware"},
	{"github.com/weirhq/weir/blocklist", "the contract of blocks, and the copy in memory that the gate asks"},
	{"github.com/weirhq/weir/traffic", "whose request it is"},
	{"github.com/weirhq/weir/rules", "modes and matches of rules, which decide which requests a block holds"},
	{"github.com/weirhq/weir/detectors", "a release is a record of the hits topic"},
	{"github.com/weirhq/weir/internal/retry", "waits for Redis"},
	{"github.com/weirhq/weir/internal/clocks", "compares its clock with Redis'"},
	{"github.com/redis/go-redis/v9", "blocks are in Redis"},
	{"go.uber.org/atomic", "of go-redis"},
	{"github.com/prometheus/", "metrics"},
	{"github.com/beorn7/perks", "of Prometheus"},
	{"github.com/cespare/xxhash", "of Prometheus and go-redis"},
	{"github.com/munnerz/goautoneg", "of Prometheus"},
	{"google.golang.org/protobuf", "of Prometheus, and events in Protocol Buffers"},
	{"golang.org/x/sys", "of Prometheus and go-redis"},
	{"github.com/dchest/siphash", "fingerprints of detectors"},
	{"go.yaml.in/yaml/v3", "the documents of rules"},
	{"github.com/weirhq/weir/internal/yamlnode", "their values with their lines"},
	{"github.com/weirhq/weir/internal/nearest", "hints about their names"},
	{"github.com/weirhq/weir/internal/duration", "their windows"},
}

// A user's own server with the middleware is a module that builds with nothing but what is wanted: no Kafka, no Postgres, no
// embedded server, none of weir's stages.
func TestAUsersServerImportsGate(t *testing.T) {
	root, err := filepath.Abs("..")
	must(t, err)
	dir := t.TempDir()
	main, err := os.ReadFile("testdata/apiserver/main.go")
	must(t, err)
	sums, err := os.ReadFile("../go.sum")
	must(t, err)
	own, err := os.ReadFile("../go.mod")
	must(t, err)
	version := goLine(t, string(own))
	must(t, os.WriteFile(filepath.Join(dir, "main.go"), main, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/apiserver\n\n"+version+
		"\n\nrequire github.com/weirhq/weir v0.0.0\n\nreplace github.com/weirhq/weir => "+root+"\n"), 0o600))
	run := func(args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir = dir
		// Offline: whatever is needed, the repository's own build has needed, and compiled in this way (scripts/test.sh).
		command.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=mod -buildvcs=false -trimpath", "CGO_ENABLED=0", "GOWORK=off", "GOTOOLCHAIN=local", "GOSUMDB=off")
		var problems strings.Builder
		command.Stderr = &problems
		out, err := command.Output()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, problems.String())
		}
		return string(out)
	}
	run("build", "-o", filepath.Join(dir, "apiserver"), ".")
	used := make([]bool, len(wanted))
	for name := range strings.Lines(run("list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")) {
		name = strings.TrimSpace(name)
		if name == "" || name == "example.com/apiserver" {
			continue
		}
		at := slices.IndexFunc(wanted, func(w struct{ prefix, why string }) bool {
			return name == w.prefix || strings.HasPrefix(name, strings.TrimSuffix(w.prefix, "/")+"/")
		})
		if at < 0 {
			t.Errorf("a user's server gets %s; it may get what TestAUsersServerImportsGate lists", name)
			continue
		}
		used[at] = true
	}
	for i, is := range used {
		if !is {
			t.Errorf("%s (%s) is not needed any more: take it off the list", wanted[i].prefix, wanted[i].why)
		}
	}
	for _, stage := range []string{"enforce", "reconcile"} {
		if strings.Contains(run("list", "-deps", "."), "blocklist/"+stage) {
			t.Errorf("a user's server gets blocklist/%s, which decides and does not ask", stage)
		}
	}
	// CEL is a parser, a checker and an interpreter. A gate holds the request part of a match, and never asks a condition.
	for _, name := range []string{"cel.dev/cel-go", "github.com/antlr4-go/antlr", "github.com/weirhq/weir/rules/condition"} {
		if strings.Contains(run("list", "-deps", "."), name) {
			t.Errorf("a user's server links %s: gates judge no conditions", name)
		}
	}
}

// goLine is the line of a go.mod that names the version of Go.
func goLine(t *testing.T, mod string) string {
	t.Helper()
	for line := range strings.Lines(mod) {
		if strings.HasPrefix(line, "go ") {
			return strings.TrimSpace(line)
		}
	}
	t.Fatal("go.mod names no version of Go")
	return ""
}
