package arch

import (
	"fmt"
	"strings"
)

type example struct {
	rule, path, code string   // "path,n": a folder of n such files
	want             []string // a part of each finding, in their order as text
}

func examples() []example {
	long := "// Package p is long.\npackage p\n" + strings.Repeat("\n", fileLimit)
	screen := "// Package p is long.\npackage p\n\nfunc f() {\n" + strings.Repeat("\n", functionLimit) + "}\n"
	ours := `package p; import "` + module
	return []example{
		{"floor plan", "detectors/a.go", "package detectors", nil},
		{"floor plan", "cache/a.go", "package cache", []string{"cache: is not in the floor plan"}},

		{"imports run one way", "detectors/a.go", ours + `/rules"`, nil},
		{"imports run one way", "detectors/a_test.go", ours + `/internal/oracle"`, nil},
		{"imports run one way", "detectors/b_test.go", ours + `/detectors"`, nil},
		{"imports run one way", "cmd/weir/a.go", ours + `/history"`, nil},
		{"imports run one way", "traffic/a.go", ours + `/rules"`, []string{"traffic must not import rules"}},
		{"imports run one way", "ingest/a_test.go", ours + `/history"`, []string{"ingest must not import history"}},
		{"imports run one way", "cmd/weir/b.go", ours + `/internal/testbed"`, []string{"for tests only"}},
		{"imports run one way", "internal/oracle/a.go", ours + `/detectors"`, []string{"may import nothing"}},

		{"client libraries stay at home", "ingest/kafka/a.go", `package p; import "github.com/segmentio/kafka-go/protocol"`, nil},
		{"client libraries stay at home", "gate/a_test.go", `package p; import "github.com/redis/go-redis/v9"`, nil},
		{"client libraries stay at home", "gate/a.go", `package p; import "github.com/redis/go-redis/v9"`, []string{"in blocklist only"}},
		{"client libraries stay at home", "cmd/weir/a.go", `package p; import "github.com/jackc/pgx/v5"`, []string{"history, migrations"}},
		{"client libraries stay at home", "rules/a.go", `package p; import "go.yaml.in/yaml/v3"`, []string{"in internal/yamlnode"}},
		{"client libraries stay at home", "rules/a.go", `package p; import "testing"`, []string{"test flags"}},

		{"names say something", "history/model_hit.go", "package p", []string{"file's name says nothing"}},
		{"names say something", "history/helpers_test.go", "package p", []string{"file's name says nothing"}},
		{"names say something", "internal/util/clock.go", "package p", []string{"folder's name says nothing"}},
		{"names say something", "history/modelling.go", "package p", nil},

		{"detectors are pure", "detectors/a.go", `package p; import "time"; const d = time.Minute`, nil},
		{"detectors are pure", "ingest/a.go", `package p; import "time"; func f() { go time.Now() }`, nil},
		{"detectors are pure", "detectors/b.go", `package p; import "time"; func f() { go time.Now() }`, []string{"goroutine", "time.Now"}},
		{"detectors are pure", "detectors/c.go", `package p; import ("os"; "hash/maphash"; "net/netip")`, []string{"maphash", "imports os"}},
		{"detectors are pure", "detectors/d.go", `package p; import s "sync"; var wg s.WaitGroup`, []string{"sync.WaitGroup"}},

		{"no state in packages", "gate/a.go", constants, nil},
		{"no state in packages", "gate/b.go", `package p; var n int; var m = map[string]int{}; var f = func() {}`,
			[]string{"variable f ", "variable m ", "variable n "}},
		{"no state in packages", "gate/c.go", "package p\nvar m = map[string]int{`a`: 1}\nfunc f() { m[`b`] = 2\n delete(m, `a`)\n _ = &m }",
			[]string{":3: changes m", ":4: changes m", ":5: takes the address of m"}},
		{"no state in packages", "gate/d.go", "package p\nvar m = map[string]int{`a`: 1}\nfunc f(m map[string]int) { m[`b`] = 2 }", nil},
		{"no state in packages", "internal/testbed/a.go", `package p; var shared server`, nil},

		{"no init functions", "gate/a.go", `package p; func init() {}`, []string{"func init"}},
		{"no init functions", "gate/b.go", `package p; type t struct{}; func (t) init() {}`, nil},

		{"one exit, no global logger", "gate/a.go", `package p; import "os"; func f() { os.Exit(1) }`, []string{"os.Exit"}},
		{"one exit, no global logger", "gate/b.go", `package p; import "log/slog"; func f(l *slog.Logger) { slog.Info("x"); l.Info("y") }`,
			[]string{"slog.Info"}},
		{"one exit, no global logger", "cmd/weir/a.go", `package p; import "os"; func f() { os.Exit(1) }`, nil},

		{"no sleeping", "gate/a_test.go", `package p; import "time"; func f() { time.Sleep(1) }`, []string{"time.Sleep"}},
		{"no sleeping", "gate/b_test.go", `package p; import ("testing/synctest"; "time")
			func f() { synctest.Test(nil, func() { time.Sleep(1); <-time.After(1) }) }`, nil},
		{"no sleeping", "gate/c_test.go", `package p; import "time"; func f() { <-time.After(1); _ = <-time.NewTimer(1).C; for { <-time.Tick(1) } }`,
			[]string{"<-time.After sleeps", "<-time.NewTimer sleeps", "<-time.Tick sleeps"}},
		{"no sleeping", "gate/d_test.go", `package p; import "time"
			func f(done chan int) { select { case <-done: case <-time.After(1): } }`, nil},
		{"no sleeping", "gate/e_test.go", `package p; import "time"
			func f() { select { case <-time.After(1): } }`, []string{"<-time.After sleeps"}},

		{"a package fits a mind", "gate/a.go", "package p", nil},
		{"a package fits a mind", "gate/a.go,23", "package p", []string{"gate: 23 files, the limit is 22"}},
		{"a package fits a mind", "gate/a_test.go,23", "package p", nil},
		{"a package fits a mind", "detectors/a.go,23", "package p", nil},

		{"a type has one job", "gate/a.go", "package p" + methods(methodLimit), nil},
		{"a type has one job", "gate/b.go", "package p" + methods(methodLimit+1), []string{"type t has 31 methods, the limit is 30"}},

		{"a page a file, a screen a function", "gate/a.go", long, []string{"402 lines, the limit is 400"}},
		{"a page a file, a screen a function", "gate/a_test.go", long, nil},
		{"a page a file, a screen a function", "gate/b.go", screen, []string{"f has 82 lines"}},

		{"exported means documented", "gate/a.go", `package p; type A struct{}; func (A) F() {}; func G() {}; const C = 1`,
			[]string{"1: C has no", "1: F has no", "1: G has no", "1: type A", "gate: the package"}},
		{"exported means documented", "gate/b.go", documentedCode, nil},
	}
}

// methods is code of a type with so many of them, some with a pointer as the receiver.
func methods(n int) string {
	var code strings.Builder
	code.WriteString("\ntype t[K any] struct{}\n")
	for i := range n {
		fmt.Fprintf(&code, "func (%st[K]) f%d() {}\n", []string{"", "*"}[i%2], i)
	}
	return code.String()
}

const constants = `package p
import ("errors"; "regexp"; "encoding/binary")
var _ I = (*T)(nil)
var ErrGone = errors.New("gone")
var word = regexp.MustCompile("a+")
var order = binary.LittleEndian
var names = [...]string{"a", "b"}
var magic = []byte("weir")
//go:embed a.sql
var text string
`

const documentedCode = `// Package p is one.
package p
// A is one.
type A struct{}
// F is one.
func (A) F() {}
func (A) Error() string { return "" }
type b struct{}
func (b) String() string { return "" }
// Kinds.
const (
	One = iota
	Two
)
const (
	Three = 3 // three
)
`
