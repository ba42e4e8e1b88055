package testbed

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Documented gives the blocks for a shell in a section of a page in docs/, for a test two folders below the root.
func Documented(t testing.TB, page, section string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(raw), "\n### "+section+"\n")
	if !ok {
		t.Fatalf("docs/%s has no section %q", page, section)
	}
	text, _, _ = strings.Cut(text, "\n### ")
	var commands []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		commands = append(commands, block[1])
	}
	if len(commands) == 0 {
		t.Fatalf("docs/%s has no block for a shell in its section %q", page, section)
	}
	return commands
}
