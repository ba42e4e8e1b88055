package arch

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// processWide are the exceptions from noGlobals, each with its reason at its declaration.
var processWide = map[string][]string{
	"cmd/weir":         {"linkedVersion"},
	"internal/testbed": {"shared"},
}

// makers are functions whose result nobody can change.
var makers = []string{
	"errors.New", "fmt.Errorf", "regexp.MustCompile", "template.Must", "netip.MustParsePrefix", "netip.MustParseAddr",
	"crc32.MakeTable", "redis.NewScript", "strings.NewReplacer",
}

// noGlobals allows these package-level variables, as long as no line of the package assigns to them or takes their
// address:
//
//	var _ I = (*T)(nil)                 an assertion
//	var ErrGone = errors.New("…")       a sentinel; regexps, prefixes, scripts and the like too: see makers
//	//go:embed *.sql                    an embedded file
//	var names = [...]string{"a", "b"}   a table: a literal with something in it, or a conversion of a string
//	var order = binary.LittleEndian     another name for a package's value
func noGlobals(f folder) []string {
	var findings []string
	constant := map[types.Object]bool{}
	info := resolve(f.code())
	for _, s := range f.code() {
		for _, decl := range s.file.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok || general.Tok != token.VAR {
				continue
			}
			for _, spec := range general.Specs {
				value, ok := spec.(*ast.ValueSpec)
				if !ok {
					continue
				}
				allowed := embedded(general, value) || table(s, value)
				for _, name := range value.Names {
					if name.Name == "_" || slices.Contains(processWide[f.path], name.Name) {
						continue
					}
					if !allowed {
						findings = append(findings, s.at(name, "package-level variable %s can hold state", name.Name))
					}
					constant[info.Defs[name]] = true
				}
			}
		}
	}
	for _, s := range f.code() {
		findings = append(findings, changes(s, info, constant)...)
	}
	return findings
}

func embedded(decl *ast.GenDecl, value *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{decl.Doc, value.Doc} {
		if doc == nil {
			continue
		}
		for _, comment := range doc.List {
			if strings.HasPrefix(comment.Text, "//go:embed ") {
				return true
			}
		}
	}
	return false
}

func table(s source, spec *ast.ValueSpec) bool {
	for _, value := range spec.Values {
		switch value := value.(type) {
		case *ast.CompositeLit:
			if len(value.Elts) == 0 { // an empty map or slice is there to be filled
				return false
			}
		case *ast.CallExpr:
			_, conversion := value.Fun.(*ast.ArrayType)
			if !conversion && !slices.Contains(makers, s.selector(value.Fun)) {
				return false
			}
		case *ast.SelectorExpr:
			if s.selector(value) == "" {
				return false
			}
		default:
			return false
		}
	}
	return len(spec.Values) > 0
}

// changes finds the lines that assign to a variable of vars or to a part of it, or take its address.
func changes(s source, info *types.Info, vars map[types.Object]bool) []string {
	var findings []string
	check := func(expr ast.Expr, how string) {
		root := rootOf(expr)
		if root == nil {
			return
		}
		if object := info.Uses[root]; object != nil && vars[object] {
			findings = append(findings, s.at(expr, "%s %s, a package-level variable", how, root.Name))
		}
	}
	ast.Inspect(s.file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.AssignStmt:
			for _, left := range node.Lhs {
				check(left, "changes")
			}
		case *ast.IncDecStmt:
			check(node.X, "changes")
		case *ast.UnaryExpr:
			if node.Op == token.AND {
				check(node.X, "takes the address of")
			}
		case *ast.CallExpr:
			name, ok := node.Fun.(*ast.Ident)
			if ok && len(node.Args) > 0 && slices.Contains([]string{"delete", "clear", "copy"}, name.Name) {
				check(node.Args[0], "changes")
			}
		}
		return true
	})
	return findings
}

func rootOf(expr ast.Expr) *ast.Ident {
	for {
		switch e := expr.(type) {
		case *ast.Ident:
			return e
		case *ast.SelectorExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.ParenExpr:
			expr = e.X
		case *ast.StarExpr:
			expr = e.X
		case *ast.SliceExpr:
			expr = e.X
		default:
			return nil
		}
	}
}

// resolve finds out what identifiers mean, as far as that needs no other package: enough to tell a package's variable
// from a local one of the same name.
func resolve(files []source) *types.Info {
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	if len(files) == 0 {
		return info
	}
	config := types.Config{Importer: noImports{}, Error: func(error) {}}
	var parsed []*ast.File
	for _, s := range files {
		parsed = append(parsed, s.file)
	}
	_, _ = config.Check("p", files[0].set, parsed, info) // what comes of other packages cannot be resolved, as said
	return info
}

type noImports struct{}

var _ types.Importer = noImports{}

func (noImports) Import(string) (*types.Package, error) {
	return nil, errors.New("other packages are not looked at")
}
