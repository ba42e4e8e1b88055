package doctest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Code points at a section of docs/DESIGN.md by its number, and that section exists. Where the pointer quotes a heading
// or a sentence, in quotation marks right behind it, the section has these words.
func TestCodePointsIntoTheDesign(t *testing.T) {
	design, err := os.ReadFile(filepath.Join(repository, "docs", "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(design), "\n## ")[1:] {
		number, _, _ := strings.Cut(section, ".")
		sections[number] = oneLine(section)
	}
	pointers := 0
	err = fs.WalkDir(os.DirFS(repository), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasPrefix(name, "internal/doctest/") {
			return err
		}
		code, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil || !bytes.Contains(code, []byte("DESIGN")) {
			return err
		}
		text := oneLine(strings.ReplaceAll(string(code), "\n//", "\n"))
		for _, at := range regexp.MustCompile(`DESIGN`).FindAllStringIndex(text, -1) {
			around := text[max(0, at[0]-5):min(len(text), at[1]+120)]
			pointer := regexp.MustCompile(`^docs/DESIGN\.md §(\d)(?:,? "([^"]+)")?`).FindStringSubmatch(around)
			if pointer == nil {
				t.Errorf("%s: %q does not say where, as docs/DESIGN.md §2 would", name, around)
				continue
			}
			pointers++
			section, ok := sections[pointer[1]]
			if !ok {
				t.Errorf("%s: docs/DESIGN.md has no section %s", name, pointer[1])
			}
			if !strings.Contains(section, pointer[2]) {
				t.Errorf("%s: docs/DESIGN.md §%s does not say %q", name, pointer[1], pointer[2])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pointers < 3 {
		t.Errorf("%d pointers found: the pattern does not meet them any more", pointers)
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
