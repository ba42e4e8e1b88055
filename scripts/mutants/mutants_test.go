package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEachMutantIsOfWhatThereIs: its line is there once, what it becomes is still Go, its promise still stands in the
// document, and the test that has to notice it is there. The night tries them.
func TestEachMutantIsOfWhatThereIs(t *testing.T) {
	t.Chdir("../..")
	all := mutants()
	if len(all) < 20 {
		t.Errorf("got %d mutants; allowed: 20 and more", len(all))
	}
	docs, seen := map[string]bool{}, map[string]bool{}
	for _, m := range all {
		docs[m.doc] = true
		if said := flat(t, m.doc); m.promise == "" || !strings.Contains(said, m.promise) {
			t.Errorf("%s does not say any more: %q", m.doc, m.promise)
		}
		if seen[m.doc+m.promise] {
			t.Errorf("%s: %q is broken twice", m.doc, m.promise)
		}
		seen[m.doc+m.promise] = true
		text, err := os.ReadFile(m.file)
		if err != nil {
			t.Error(err)
			continue
		}
		if n := strings.Count(string(text), m.line); n != 1 || m.line == m.becomes {
			t.Errorf("%s: %q is there %d times; allowed: once, and that it becomes another", m.file, m.line, n)
			continue
		}
		changed := strings.Replace(string(text), m.line, m.becomes, 1)
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, changed, 0); err != nil {
			t.Errorf("%s with %q: %v", m.file, m.becomes, err)
		}
		if !isTest(t, m.pack(), m.test) {
			t.Errorf("%s has no %s", m.pack(), m.test)
		}
	}
	for _, doc := range []string{"access", "api", "blocks", "events", "gate", "history", "operations", "rules",
		"security"} {
		if !docs["docs/"+doc+".md"] {
			t.Errorf("no promise of docs/%s.md is broken", doc)
		}
	}
}

// flat is a document with each line's end as a blank.
func flat(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// isTest reports whether a package has a test of that name.
func isTest(t *testing.T, pack, name string) bool {
	t.Helper()
	files, err := filepath.Glob(pack + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ` + name + `\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if declared.Match(text) {
			return true
		}
	}
	return false
}
