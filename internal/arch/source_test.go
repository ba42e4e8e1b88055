package arch

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/weirhq/weir"

// folder is one directory with Go files: a package with its tests.
type folder struct {
	path  string // from the root of the repository, with slashes; "" is the root itself
	files []source
}

type source struct {
	path  string // from the root of the repository, with slashes
	test  bool
	lines int
	file  *ast.File
	set   *token.FileSet
}

// at makes a finding: where it is and what is wrong there.
func (s source) at(node ast.Node, format string, arguments ...any) string {
	return fmt.Sprintf("%s:%d: %s", s.path, s.line(node.Pos()), fmt.Sprintf(format, arguments...))
}

func (s source) line(pos token.Pos) int { return s.set.Position(pos).Line }

// generated says whether a program wrote the file; nobody has to read those.
func (s source) generated() bool { return ast.IsGenerated(s.file) }

// imports returns the import specs by path.
func (s source) imports() map[string]*ast.ImportSpec {
	found := map[string]*ast.ImportSpec{}
	for _, spec := range s.file.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil {
			found[name] = spec
		}
	}
	return found
}

// selector returns "pkg.Name" for an expression of that form whose pkg is an imported package, under the package's own
// name even where the import renames it.
func (s source) selector(expr ast.Expr) string {
	selector, ok := expr.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	qualifier, ok := selector.X.(*ast.Ident)
	if !ok {
		return ""
	}
	for name, spec := range s.imports() {
		local := packageName(name)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == qualifier.Name {
			return packageName(name) + "." + selector.Sel.Name
		}
	}
	return ""
}

// packageName guesses a package's name from its import path: the last element that is not a major version.
func packageName(name string) string {
	base := path.Base(name)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(name))
	}
	return base
}

// code returns the files that are not tests.
func (f folder) code() []source {
	var code []source
	for _, s := range f.files {
		if !s.test {
			code = append(code, s)
		}
	}
	return code
}

func parse(set *token.FileSet, name string, text []byte) (source, error) {
	file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	lines := strings.Count(string(text), "\n")
	return source{path: name, test: strings.HasSuffix(name, "_test.go"), lines: lines, file: file, set: set}, nil
}

// repository parses every Go file of the repository.
func repository(t *testing.T) []folder {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var folders []folder
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		base := entry.Name()
		if name != root && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "bin") {
			return filepath.SkipDir
		}
		found, err := readFolder(set, root, name)
		if err != nil {
			return err
		}
		if len(found.files) > 0 {
			folders = append(folders, found)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(folders) < 5 {
		t.Fatalf("only %d folders with Go files below %s: the wrong place", len(folders), root)
	}
	return folders
}

func readFolder(set *token.FileSet, root, name string) (folder, error) {
	relative, err := filepath.Rel(root, name)
	if err != nil {
		return folder{}, err
	}
	found := folder{path: strings.TrimPrefix(filepath.ToSlash(relative), ".")}
	names, err := filepath.Glob(filepath.Join(name, "*.go"))
	if err != nil {
		return folder{}, err
	}
	var errs []error
	for _, file := range names {
		text, err := os.ReadFile(file)
		if err != nil {
			return folder{}, err
		}
		s, err := parse(set, path.Join(found.path, filepath.Base(file)), text)
		errs = append(errs, err)
		if err == nil {
			found.files = append(found.files, s)
		}
	}
	return found, errors.Join(errs...)
}
