package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

const (
	fileLimit     = 400
	functionLimit = 80
	packageLimit  = 22 // files
	methodLimit   = 30
)

// largePackages may have more files than packageLimit, largeTypes more methods than methodLimit; each for the reason that stands here.
var (
	largePackages = map[string]string{
		"detectors": "one pure state machine: seven algorithms, a file each, over one table and one arena, whose unexported names they share",
	}
	largeTypes = map[string]string{}
)

func fewFiles(f folder) []string {
	files := len(f.code())
	if _, ok := largePackages[f.path]; ok || files <= packageLimit {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d files, the limit is %d", f.path, files, packageLimit)}
}

func fewMethods(f folder) []string {
	methods := map[string]int{}
	for _, s := range f.code() {
		for _, decl := range s.file.Decls {
			if function, ok := decl.(*ast.FuncDecl); ok && function.Recv != nil {
				methods[receiver(function.Recv.List[0].Type)]++
			}
		}
	}
	var findings []string
	for name, count := range methods {
		if _, ok := largeTypes[f.path+"."+name]; !ok && count > methodLimit {
			findings = append(findings, fmt.Sprintf("%s: type %s has %d methods, the limit is %d", f.path, name, count, methodLimit))
		}
	}
	return findings
}

// receiver is the name of a receiver's type.
func receiver(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

func aPageAFile(f folder) []string {
	var findings []string
	for _, s := range f.code() {
		if s.generated() {
			continue
		}
		if s.lines > fileLimit {
			findings = append(findings, s.at(s.file.Name, "%d lines, the limit is %d", s.lines, fileLimit))
		}
		for _, decl := range s.file.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if lines := s.line(function.End()) - s.line(function.Pos()) + 1; lines > functionLimit {
				findings = append(findings, s.at(function, "%s has %d lines, the limit is %d", function.Name.Name, lines, functionLimit))
			}
		}
	}
	return findings
}

func noInit(f folder) []string {
	var findings []string
	for _, s := range f.files {
		for _, decl := range s.file.Decls {
			if function, ok := decl.(*ast.FuncDecl); ok && function.Recv == nil && function.Name.Name == "init" {
				findings = append(findings, s.at(function, "func init"))
			}
		}
	}
	return findings
}

// oneExit allows os.Exit in commands and in TestMain only.
func oneExit(f folder) []string {
	if strings.HasPrefix(f.path, "cmd/") || strings.HasPrefix(f.path, "scripts/") || strings.HasPrefix(f.path, "examples/") {
		return nil
	}
	ends := []string{"os.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln"}
	loggers := []string{"slog.Default", "slog.SetDefault", "slog.Debug", "slog.Info", "slog.Warn", "slog.Error", "log.Printf", "log.Println"}
	return calls(f.code(), func(s source, call *ast.CallExpr) string {
		name := s.selector(call.Fun)
		switch {
		case slices.Contains(ends, name):
			return name + " ends the process behind the back of main"
		case slices.Contains(loggers, name):
			return name + " writes to the process-wide logger; take one as a parameter"
		}
		return ""
	})
}

// sleeper is a function that may sleep: below a path, by name.
type sleeper struct{ below, function, reason string }

// sleepers are the exceptions of noSleep. A test holds that each of them is needed.
func sleepers() []sleeper {
	return []sleeper{
		{"cmd/weir/", "stage", "called in synctest bubbles; moves"},
		{"ingest/", "pass", "called in synctest bubbles; moves"},
		{"history/ramp/traffic_test.go", "play", "called in synctest bubbles; moves"},
		{"internal/faults/", "away", "for how long the only broker is away is the fault, and there is nothing to wait for"},
		{"internal/demo/engine_test.go", "run", "the time that stages take, in synctest bubbles; by the clock in the one world with real connections"},
		{"internal/demo/engine_test.go", "promote", "the same"},
		{"internal/demo/world_test.go", "wait", "the same, of a network"},
		{"internal/demo/world_test.go", "RoundTrip", "the same"},
	}
}

// maySleep reports whether a function is one of the exceptions.
func (s source) maySleep(decl ast.Decl) bool {
	function, ok := decl.(*ast.FuncDecl)
	return ok && slices.ContainsFunc(sleepers(), func(x sleeper) bool {
		return strings.HasPrefix(s.path, x.below) && x.function == function.Name.Name
	})
}

// noSleep allows sleeping inside a synctest bubble, where it moves a clock of its own. To wait for a timer and for nothing
// else is to sleep, whatever it is called; a timer beside another case of a select is a timeout.
func noSleep(f folder) []string {
	var findings []string
	for _, s := range f.files {
		for _, decl := range s.file.Decls {
			if !s.maySleep(decl) {
				findings = append(findings, s.sleeps(decl)...)
			}
		}
	}
	return findings
}

// sleeps finds where a declaration sleeps outside of synctest bubbles.
func (s source) sleeps(decl ast.Decl) []string {
	var findings []string
	timeouts := map[ast.Node]bool{} // receives that are one of several cases
	ast.Inspect(decl, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.SelectStmt:
			for _, clause := range n.Body.List {
				if c, ok := clause.(*ast.CommClause); ok && len(n.Body.List) > 1 {
					timeouts[received(c.Comm)] = true
				}
			}
		case *ast.CallExpr:
			switch name := s.selector(n.Fun); name {
			case "synctest.Test":
				return false
			case "time.Sleep":
				findings = append(findings, s.at(n, "%s", name))
			}
		case *ast.UnaryExpr:
			if timer := s.timer(n.X); n.Op == token.ARROW && timer != "" && !timeouts[n] {
				findings = append(findings, s.at(n, "<-%s sleeps", timer))
			}
		}
		return true
	})
	return findings
}

// received is what a case of a select receives.
func received(comm ast.Stmt) ast.Node {
	switch c := comm.(type) {
	case *ast.ExprStmt:
		return c.X
	case *ast.AssignStmt:
		return c.Rhs[0]
	}
	return nil
}

// timer names the timer whose channel an expression is; "" for another expression.
func (s source) timer(expr ast.Expr) string {
	if field, ok := expr.(*ast.SelectorExpr); ok && field.Sel.Name == "C" {
		expr = field.X
	}
	if call, ok := expr.(*ast.CallExpr); ok {
		name := s.selector(call.Fun)
		if slices.Contains([]string{"time.After", "time.Tick", "time.NewTimer", "time.NewTicker"}, name) {
			return name
		}
	}
	return ""
}

// calls looks at every call outside of synctest bubbles.
func calls(files []source, judge func(source, *ast.CallExpr) string) []string {
	var findings []string
	for _, s := range files {
		ast.Inspect(s.file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			if s.selector(call.Fun) == "synctest.Test" {
				return false
			}
			if text := judge(s, call); text != "" {
				findings = append(findings, s.at(call, "%s", text))
			}
			return true
		})
	}
	return findings
}

func documented(f folder) []string {
	var findings []string
	packageComment := false
	for _, s := range f.code() {
		packageComment = packageComment || s.file.Doc != nil
		for _, decl := range s.file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Doc == nil && decl.Name.IsExported() && exportedReceiver(decl) && !wellKnown(decl) {
					findings = append(findings, s.at(decl, "%s has no doc comment", decl.Name.Name))
				}
			case *ast.GenDecl:
				findings = append(findings, undocumented(s, decl)...)
			}
		}
	}
	if len(f.code()) > 0 && !packageComment {
		findings = append(findings, f.path+": the package has no doc comment")
	}
	return findings
}

// undocumented finds exported names of a declaration with no comment above them, above the group or at the line's end.
func undocumented(s source, decl *ast.GenDecl) []string {
	var findings []string
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() && decl.Doc == nil && spec.Doc == nil {
				findings = append(findings, s.at(spec, "type %s has no doc comment", spec.Name.Name))
			}
		case *ast.ValueSpec:
			if decl.Tok == token.IMPORT || decl.Doc != nil || spec.Doc != nil || spec.Comment != nil {
				continue
			}
			for _, name := range spec.Names {
				if name.IsExported() {
					findings = append(findings, s.at(name, "%s has no comment", name.Name))
				}
			}
		}
	}
	return findings
}

// wellKnown methods do what everybody expects of them.
func wellKnown(function *ast.FuncDecl) bool {
	names := []string{"Error", "Unwrap", "String", "ServeHTTP", "Read", "Write", "Len", "Less", "Swap"}
	return function.Recv != nil && slices.Contains(names, function.Name.Name)
}

func exportedReceiver(function *ast.FuncDecl) bool {
	return function.Recv == nil || ast.IsExported(receiver(function.Recv.List[0].Type))
}
