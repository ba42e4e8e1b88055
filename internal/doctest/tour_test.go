package doctest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	namedFile     = regexp.MustCompile("`([a-z_0-9/]+\\.go)`")
	namedFunction = regexp.MustCompile("`((?:[A-Za-z]+\\.)?[A-Za-z]+)\\(\\)`")
)

// Every file that a document names exists, and every function, written as `name()` or `Type.name()`, is in one of the
// files that its paragraph names.
func TestNamedFilesAndFunctions(t *testing.T) {
	files, functions := 0, 0
	for doc, text := range documents(t) {
		if strings.HasPrefix(doc, "docs/adr/") {
			continue // a decision stays as it was made; its files may have gone since, or be of others
		}
		for _, paragraph := range paragraphs(text) {
			var known []string
			for _, m := range namedFile.FindAllStringSubmatch(paragraph, -1) {
				names, err := functionsOf(filepath.Join(repository, m[1]))
				if err != nil {
					t.Errorf("%s: %v", doc, err)
				}
				known, files = append(known, names...), files+1
			}
			for _, m := range namedFunction.FindAllStringSubmatch(paragraph, -1) {
				functions++
				if !slices.Contains(known, m[1]) {
					t.Errorf("%s: no file that the paragraph names has %s(): %q", doc, m[1], firstWords(paragraph))
				}
			}
		}
	}
	if files < 40 || functions < 40 {
		t.Errorf("found %d files and %d functions: the tour names more", files, functions)
	}
}

// paragraphs cuts a document at blank lines and list items.
func paragraphs(text string) []string {
	return regexp.MustCompile(`\n\n|\n(?:- )`).Split(text, -1)
}

func firstWords(text string) string { return text[:min(60, len(text))] }

// functionsOf lists the functions of a Go file: name, or Type.name.
func functionsOf(path string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			receiver, err := typeName(f.Recv.List[0].Type)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", path, name, err)
			}
			name = receiver + "." + name
		}
		names = append(names, name)
	}
	return names, nil
}

func typeName(expr ast.Expr) (string, error) {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name, nil
	}
	return "", errors.New("a receiver of an unknown form")
}

func TestFunctionsOf(t *testing.T) {
	names, err := functionsOf(filepath.Join(repository, "history", "recorder.go"))
	if err != nil || !slices.Contains(names, "recorder.apply") || slices.Contains(names, "apply") {
		t.Errorf("got %s, %v", strings.Join(names, " "), err)
	}
	if _, err := functionsOf("none.go"); err == nil {
		t.Error("a file that does not exist has functions")
	}
}
