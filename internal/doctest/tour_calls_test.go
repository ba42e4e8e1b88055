package doctest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// aside begins a list item of the tour that another goroutine, process or command comes to: no function before it calls its first one.
const aside = "*Beside it:*"

// docs/tour.md walks down the calls: within a section, each function that it names is called by one that the section named
// before. The first function of a section, and of an item that begins with aside, is where a reader enters: the program comes to
// it from main.
func TestTourFollowsTheCalls(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "docs", "tour.md"))
	if err != nil {
		t.Fatal(err)
	}
	graph := loadCalls(t)
	graph.start("main in cmd/weir/main.go")
	walked := 0
	for _, section := range strings.Split(string(text), "\n## ") {
		findings, steps := graph.follow(section)
		walked += steps
		title, _, _ := strings.Cut(section, "\n")
		for _, finding := range findings {
			t.Errorf("docs/tour.md, %q: %s", title, finding)
		}
	}
	if walked < 40 {
		t.Errorf("the tour goes down %d calls only", walked)
	}
}

// A tour that leaves out a step, turns one round, or names what is nowhere is found.
func TestTourThatLeavesTheCallsIsFound(t *testing.T) {
	graph := &calls{functions: map[string][]string{"a.go": {"Run", "session.step"}, "b.go": {"session.deliver", "send", "forgotten"}}, edges: map[string][]string{
		"Run in a.go":             {"session.step in a.go"},
		"session.step in a.go":    {"session.deliver in b.go"},
		"session.deliver in b.go": {"send in b.go"},
	}}
	graph.start("Run in a.go")
	for _, test := range []struct {
		tour  string
		want  string // a part of the only finding; none if empty
		steps int
	}{
		{"- `a.go`: `Run()`, then `session.step()`.\n- `b.go`: `session.deliver()`, `send()`", "", 3},
		{"- `a.go`: `Run()`, `session.step()`.\n- `b.go`: `send()`", "none of the functions named before calls send() of b.go", 1},
		{"- `b.go`: `send()`. `session.deliver()`", "none of the functions named before calls session.deliver()", 0},
		{"- `a.go`: `Run()`.\n- " + aside + " `b.go`: `send()`", "", 0},
		{"- `a.go`: `send()`", "no file that the paragraph names has send()", 0},
		{"- `b.go`: `forgotten()`", "the program never comes to forgotten() of b.go", 0},
		{"- `a.go`: `Run()`.\n- " + aside + " `a.go`: `session.step()`", "is nothing beside the way, Run in a.go calls it", 0},
		{"- `a.go`: `Run()`.\n- " + aside + " `b.go`: `forgotten()`", "the program never comes to forgotten() of b.go", 0},
	} {
		findings, steps := graph.follow(test.tour)
		if steps != test.steps || (len(findings) == 0) != (test.want == "") || len(findings) > 0 && !strings.Contains(findings[0], test.want) {
			t.Errorf("%q: %q, %d steps; want %q, %d", test.tour, findings, steps, test.want, test.steps)
		}
	}
}

// calls says which functions a file has and which function calls which; a function is called "Type.name in folder/file.go".
type calls struct {
	functions map[string][]string // by file
	edges     map[string][]string
	reached   map[string]bool // from where the program starts
}

// start finds what the program comes to from a function.
func (c *calls) start(from string) {
	c.reached = map[string]bool{from: true}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range c.edges[queue[0]] {
			if !c.reached[next] {
				c.reached[next] = true
				queue = append(queue, next)
			}
		}
	}
}

// follow walks through a section. steps is how many of its functions were reached by a call.
func (c *calls) follow(section string) (findings []string, steps int) {
	var before []string
	for _, paragraph := range paragraphs(section) {
		enter := len(before) == 0 || strings.HasPrefix(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(paragraph), "- ")), aside)
		var files []string
		for _, m := range namedFile.FindAllStringSubmatch(paragraph, -1) {
			files = append(files, m[1])
		}
		for _, m := range namedFunction.FindAllStringSubmatch(paragraph, -1) {
			at := slices.IndexFunc(files, func(file string) bool { return slices.Contains(c.functions[file], m[1]) })
			if at < 0 {
				findings = append(findings, fmt.Sprintf("no file that the paragraph names has %s()", m[1]))
				continue
			}
			name := m[1] + " in " + files[at]
			switch {
			case slices.Contains(before, name):
			case enter && c.callerOf(name, before) != "":
				findings = append(findings, fmt.Sprintf("%s() of %s is nothing beside the way, %s calls it", m[1], files[at], c.callerOf(name, before)))
			case enter && !c.reached[name]:
				findings = append(findings, fmt.Sprintf("the program never comes to %s() of %s", m[1], files[at]))
			case enter:
			case c.callerOf(name, before) != "":
				steps++
			default:
				findings = append(findings, fmt.Sprintf("none of the functions named before calls %s() of %s%s", m[1], files[at], c.way(before, name)))
			}
			before, enter = append(before, name), false
		}
	}
	return findings, steps
}

// callerOf is the first of some functions that calls the named one, "" for none.
func (c *calls) callerOf(name string, before []string) string {
	at := slices.IndexFunc(before, func(caller string) bool { return slices.Contains(c.edges[caller], name) })
	if at < 0 {
		return ""
	}
	return before[at]
}

// way tells whoever writes the tour how to get there: the shortest chain of calls from one of the functions.
func (c *calls) way(from []string, to string) string {
	caller := map[string]string{}
	queue := slices.Clone(from)
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if at == to {
			chain := to
			for !slices.Contains(from, at) {
				at = caller[at]
				chain = at + ", " + chain
			}
			return "; the way is: " + chain
		}
		for _, next := range c.edges[at] {
			if _, seen := caller[next]; !seen && !slices.Contains(from, next) {
				caller[next] = at
				queue = append(queue, next)
			}
		}
	}
	return "; no way leads there"
}

// loadCalls reads and type-checks the program. A method of an interface stands for the method of each type that has it;
// a function that is passed on counts as called.
func loadCalls(t *testing.T) *calls {
	t.Helper()
	const module = "github.com/weirhq/weir"
	command := exec.Command("go", "list", "-export", "-deps", "-f", `{{.ImportPath}}|{{.Export}}|{{.Dir}}|{{join .GoFiles " "}}`, "./...")
	command.Dir = repository
	var problems bytes.Buffer
	command.Stderr = &problems
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command.Args, err, problems.Bytes())
	}
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{set: token.NewFileSet(), exports: map[string]string{}, ours: map[string]*types.Package{}, root: root}
	p.others = importer.ForCompiler(p.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(p.exports[path]) })
	for line := range strings.Lines(string(out)) { // what a package imports comes before it
		part := strings.Split(strings.TrimSpace(line), "|")
		if part[0] != module && !strings.HasPrefix(part[0], module+"/") {
			p.exports[part[0]] = part[1]
			continue
		}
		if err := p.check(part[0], part[2], strings.Fields(part[3])); err != nil {
			t.Fatal(err)
		}
	}
	return p.calls()
}

type program struct {
	set     *token.FileSet
	exports map[string]string // import path -> compiled package
	others  types.Importer
	ours    map[string]*types.Package
	info    []*types.Info
	files   [][]*ast.File // as info
	root    string
}

var _ types.Importer = (*program)(nil)

// Import finds a package of this module among those that were checked already, so that each object exists once.
func (p *program) Import(path string) (*types.Package, error) {
	if found, ok := p.ours[path]; ok {
		return found, nil
	}
	return p.others.Import(path)
}

func (p *program) check(path, dir string, names []string) error {
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(p.set, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	checked, err := (&types.Config{Importer: p}).Check(path, p.set, files, info)
	if err != nil {
		return fmt.Errorf("checking %s: %w", path, err)
	}
	p.ours[path], p.info, p.files = checked, append(p.info, info), append(p.files, files)
	return nil
}

// name is what the tour calls a function; empty: it is none of ours.
func (p *program) name(f *types.Func) string {
	at := p.set.Position(f.Pos())
	file, err := filepath.Rel(p.root, at.Filename)
	if err != nil || strings.HasPrefix(file, "..") {
		return ""
	}
	name := f.Name()
	if receiver := f.Signature().Recv(); receiver != nil {
		kind := receiver.Type()
		if pointer, ok := kind.(*types.Pointer); ok {
			kind = pointer.Elem()
		}
		if named, ok := kind.(*types.Named); ok {
			name = named.Obj().Name() + "." + name
		}
	}
	return name + " in " + filepath.ToSlash(file)
}

func (p *program) calls() *calls {
	graph := &calls{functions: map[string][]string{}, edges: map[string][]string{}}
	methods := p.methods()
	for i, files := range p.files {
		for _, file := range files {
			for _, decl := range file.Decls {
				function, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				caller := p.name(p.info[i].Defs[function.Name].(*types.Func))
				name, at, _ := strings.Cut(caller, " in ")
				graph.functions[at] = append(graph.functions[at], name)
				ast.Inspect(function, func(node ast.Node) bool {
					id, ok := node.(*ast.Ident)
					if !ok {
						return true
					}
					if used, ok := p.info[i].Uses[id].(*types.Func); ok {
						graph.edges[caller] = append(graph.edges[caller], p.targets(used.Origin(), methods)...)
					}
					return true
				})
			}
		}
	}
	return graph
}

// methods lists the methods of all types of ours by name.
func (p *program) methods() map[string][]*types.Func {
	found := map[string][]*types.Func{}
	for _, pkg := range p.ours {
		for _, name := range pkg.Scope().Names() {
			named, ok := pkg.Scope().Lookup(name).Type().(*types.Named)
			if !ok || types.IsInterface(named) {
				continue
			}
			for method := range named.Methods() {
				found[method.Name()] = append(found[method.Name()], method)
			}
		}
	}
	return found
}

// targets is what a use of f may call.
func (p *program) targets(f *types.Func, methods map[string][]*types.Func) []string {
	receiver := f.Signature().Recv()
	if receiver == nil || !types.IsInterface(receiver.Type()) {
		return []string{p.name(f)}
	}
	var names []string
	wanted, ok := receiver.Type().Underlying().(*types.Interface)
	if !ok {
		return nil
	}
	for _, method := range methods[f.Name()] {
		if kind := method.Signature().Recv().Type(); types.Implements(kind, wanted) || types.Implements(types.NewPointer(kind), wanted) {
			names = append(names, p.name(method))
		}
	}
	return names
}
