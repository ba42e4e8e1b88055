package doctor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// saidElsewhere are the lines that only servers bring about, by their remedy, with the test that breaks these.
func saidElsewhere() map[string]string {
	return map[string]string{
		"try again with more --timeout": "TestRoundsEndInTime",
		"they were not looked at: the routing version by which they are read is not known": "TestDoctorWithServersAway",

		"run weir migrate, which switches it off there":                                                    "ahead_test.go",
		"run weir migrate, which numbers the rule store's above; and look who writes to Redis beside weir": "likewise",
		"run weir migrate, which numbers routing versions above; then apply what was lost " +
			"again": "ahead_test.go",

		"look who writes to Redis beside weir; ENFORCE writes the ":    "signatures_test.go",
		"have weir run with enforce, of this build, which signs them ": "likewise",

		"it has not been made":                   "a schema without a stream: weir migrate makes both",
		"it has no routing version":              "likewise",
		"PostgreSQL at %s cannot be reached: %s": "TestDoctorWithServersAway of cmd/weir",
		"of the newest %s, up to %d were beyond what conditions may cost together, and not judged by: " +
			"%s": "TestRulesBeyondTheBudgetAreNamed",
		"Redis has %s, and the rule store does not: PostgreSQL has come back " +
			"older": "TestEntriesThatTheRuleStoreHasLostAreFailures",
		"weir migrate lists all of them, each with the command that adds it " +
			"again": "TestEntriesThatTheRuleStoreHasLostAreFailures",
	}
}

// wantAllSaid holds what the rows said against the source: each line that warns or fails is broken by a row.
func wantAllSaid(t *testing.T, said []Finding) {
	t.Helper()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	set, lines, elsewhere := token.NewFileSet(), 0, saidElsewhere()
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(set, file.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 3 {
				return true
			}
			of, ok := call.Fun.(*ast.Ident)
			st, known := map[string]Status{"warning": Warn, "failing": Fail}[identName(of, ok)]
			if !known || file.Name() == "findings.go" {
				return true
			}
			lines++
			remedy, text := literal(call.Args[1]), literal(call.Args[2])
			for _, known := range []string{remedy, text} {
				if elsewhere[known] != "" {
					delete(elsewhere, known)
					return true
				}
			}
			if !wasSaid(said, st, remedy, text) {
				t.Errorf("%s: no row breaks what says %q, %q", set.Position(call.Pos()), text, remedy)
			}
			return true
		})
	}
	for text := range elsewhere {
		t.Errorf("nothing says %q any more", text)
	}
	if lines < 50 {
		t.Errorf("only %d lines are found in the source", lines)
	}
}

func identName(id *ast.Ident, ok bool) string {
	if !ok {
		return ""
	}
	return id.Name
}

// literal is the first string written in an expression; empty: it has none.
func literal(e ast.Expr) (text string) {
	ast.Inspect(e, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && text == "" {
			text, _ = strconv.Unquote(l.Value)
		}
		return text == ""
	})
	return text
}

// verbs finds those of a format.
var verbs = regexp.MustCompile(`%[a-z]`)

func wasSaid(said []Finding, st Status, remedy, text string) bool {
	pattern := func(format string) *regexp.Regexp {
		quoted := verbs.ReplaceAllString(regexp.QuoteMeta(strings.ReplaceAll(format, "%%", "%")), `(?s:.*)`)
		return regexp.MustCompile(quoted)
	}
	for _, f := range said {
		if f.Status == st && pattern(text).MatchString(f.Found) && pattern(remedy).MatchString(f.Remedy) {
			return true
		}
	}
	return false
}
