package doctest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// block is one fenced block of a document.
type block struct {
	doc  string // docs/rules.md
	line int    // of the first line within
	kind string // first word after the fence; empty for none
	more string // what follows it
	text string // without the indentation of the fence
}

func (b *block) at() string { return fmt.Sprintf("%s:%d", b.doc, b.line) }

// documents are README.md and everything below docs, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	read := func(path string) {
		text, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			t.Fatal(err)
		}
		found[path] = string(text)
	}
	read("README.md")
	err := fs.WalkDir(os.DirFS(repository), "docs", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".md") {
			read(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// blocksOf finds the fenced blocks of a document. Outside of them nothing is indented by four columns, which in Markdown
// makes a block that has no kind, so that nobody could hold it to its word.
func blocksOf(doc, text string) ([]block, error) {
	var all []block
	var open *block
	var fence, indent string
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case open == nil && strings.HasPrefix(trimmed, "```") && len(line)-len(trimmed) < 4:
			info := strings.TrimLeft(trimmed, "`")
			fence, indent = trimmed[:len(trimmed)-len(info)], line[:len(line)-len(trimmed)]
			kind, more, _ := strings.Cut(strings.TrimSpace(info), " ")
			open = &block{doc: doc, line: i + 2, kind: kind, more: strings.TrimSpace(more)}
		case open != nil && strings.TrimSpace(line) == fence:
			all, open = append(all, *open), nil
		case open == nil && trimmed != "" && (strings.HasPrefix(trimmed, "\t") || len(line)-len(trimmed) >= 4):
			return nil, fmt.Errorf("%s:%d: %q is indented; a block is fenced, with its kind: ```sh", doc, i+1, strings.TrimSpace(line))
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s: the block is never closed", open.at())
	}
	return all, nil
}

// Every block of every document is what it is shown as.
func TestDocuments(t *testing.T) {
	docs := documents(t)
	names := make([]string, 0, len(docs))
	for name := range docs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			blocks, err := blocksOf(name, docs[name])
			if err != nil {
				t.Fatal(err)
			}
			s := &session{t: t, ready: !strings.Contains(docs[name], "weir migrate\n") && !strings.Contains(docs[name], "make dev\n")}
			for i := range blocks {
				if b := &blocks[i]; b.kind == "console" || b.kind == "sh" {
					s.runBlock(b)
				} else if err := readBlock(b); err != nil {
					t.Errorf("%s: %v", b.at(), err)
				} else if file, ok := strings.CutPrefix(b.more, "file="); ok {
					s.keep(b, file)
				}
			}
			s.end()
		})
	}
}

// What weir dev needs is said in the same words wherever it is said.
func TestWhatDevNeedsIsSaidOnce(t *testing.T) {
	const needs = "needs Go; PostgreSQL's programs are found on the machine, or fetched unless you are root."
	docs := documents(t)
	for _, name := range []string{"README.md", "docs/quickstart.md", "docs/dev.md"} {
		if !strings.Contains(strings.Join(strings.Fields(docs[name]), " "), needs) {
			t.Errorf("%s does not say that weir dev %s", name, needs)
		}
	}
}

func TestBlocksOf(t *testing.T) {
	const text = "a\n```yaml file=x.yaml\nid: x\n```\n\n- item\n  ```console\n  $ weir\n  ```\n````text\n```\n````\n"
	got, err := blocksOf("d.md", text)
	want := []block{
		{"d.md", 3, "yaml", "file=x.yaml", "id: x\n"}, {"d.md", 8, "console", "", "$ weir\n"}, {"d.md", 11, "text", "", "```\n"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"```sh\nweir\n", "a\n\n    weir run\n", "a\n\n\tweir run\n", "a\n\n  \tweir run\n", "- a\n\n      weir run\n", "    ```sh\n    weir\n    ```\n"} {
		if got, err := blocksOf("d.md", bad); err == nil {
			t.Errorf("%q: got %+v", bad, got)
		}
	}
}
