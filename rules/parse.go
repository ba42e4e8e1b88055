package rules

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/traffic"
)

// MaxFileBytes bounds one file of rule documents.
const MaxFileBytes = 1 << 20

// Environment is what a rule document is judged against besides itself.
type Environment struct {
	// Identity is the deployment's identity map: which fields the gateway vouches for, and the address prefixes that a
	// plain `ip` stands for. A prefix of 0 stands for the default, 32 and 64.
	Identity traffic.IdentityMap
	// Warn, unless it is nil, is told what is legal in the documents of files and probably not meant, in the order of the
	// files. A document with a problem is not warned about.
	Warn func(Problem)
}

// File is one file of rule documents.
type File struct {
	Name string // as messages name it
	Src  []byte
}

// located is a document and the place of its id.
type located struct {
	doc  Document
	file string
	line int
}

// Parse reads the rule documents of one file, in the order of the file. Documents are separated by `---`; empty ones are
// passed over. The error is a Problems with everything that is wrong, and then no document is returned.
func Parse(name string, src []byte, env Environment) ([]Document, error) {
	docs, problems := parseFile(File{Name: name, Src: src}, env)
	problems = append(problems, repeatedIDs(docs)...)
	if len(problems) > 0 {
		return nil, problems.bounded()
	}
	return documents(docs), nil
}

// ParseFiles reads the rule documents of several files, ascending by id. An id that occurs twice, in whichever files, is
// a problem that names both places. The error is a Problems with everything that is wrong, and then no document is
// returned.
func ParseFiles(files []File, env Environment) ([]Document, error) {
	var all []located
	var problems Problems
	for _, f := range files {
		docs, found := parseFile(f, env)
		all = append(all, docs...)
		problems = append(problems, found.bounded()...)
	}
	problems = append(problems, repeatedIDs(all)...)
	if len(problems) > 0 {
		return nil, problems
	}
	slices.SortFunc(all, func(a, b located) int { return cmp.Compare(a.doc.ID, b.doc.ID) })
	return documents(all), nil
}

// LoadDir reads all *.yaml and *.yml files of fsys and its folders, except those whose name starts with a dot, as
// ParseFiles does. dir is put before the file names in messages; empty for none. A tree without any rule is an error:
// it is a mistyped directory more often than a wish to have no rules.
func LoadDir(fsys fs.FS, dir string, env Environment) ([]Document, error) {
	var files []File
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if strings.HasPrefix(base, ".") && name != "." {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if ext := path.Ext(base); entry.IsDir() || ext != ".yaml" && ext != ".yml" {
			return nil
		}
		src, err := readBounded(fsys, name)
		if err != nil {
			return err
		}
		files = append(files, File{Name: path.Join(dir, name), Src: src})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("rules directory %q: %w", cmp.Or(dir, "."), err)
	}
	docs, err := ParseFiles(files, env)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("rules directory %q: got no rules in %d files, allowed at least one rule in *.yaml or *.yml files",
			cmp.Or(dir, "."), len(files))
	}
	return docs, nil
}

// readBounded reads a file, and one byte more than is allowed of one that is too big, so that the parser refuses it.
func readBounded(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	src, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	return src, errors.Join(err, f.Close())
}

func documents(all []located) []Document {
	docs := make([]Document, len(all))
	for i := range all {
		docs[i] = all[i].doc
	}
	return docs
}

func repeatedIDs(all []located) Problems {
	var problems Problems
	first := map[string]located{}
	for _, l := range all {
		if l.doc.ID == "" {
			continue // reported as missing
		}
		if f, ok := first[l.doc.ID]; ok {
			problems = append(problems, Problem{
				File: l.file, Line: l.line, Field: "id",
				Got:     fmt.Sprintf("%s a second time (first at %s:%d)", quoteShort(l.doc.ID), f.file, f.line),
				Allowed: "an id of its own for every rule",
			})
			continue
		}
		first[l.doc.ID] = l
	}
	return problems
}

// parseFile reads one file. Documents with problems are returned too, for the sake of repeatedIDs.
func parseFile(f File, env Environment) ([]located, Problems) {
	if p := checkSource(f.Src); p != nil {
		p.File = f.Name
		return nil, Problems{*p}
	}
	var docs []located
	var problems Problems
	for n, err := range yamlnode.Documents(f.Src) {
		if err != nil {
			return docs, append(problems, syntaxProblem(f, err))
		}
		if n.Kind() == yamlnode.Null {
			continue
		}
		d := &decoder{file: f.Name, env: env, lines: map[string]int{}, bad: map[string]bool{}}
		d.document(n)
		problems = append(problems, d.problems...)
		docs = append(docs, located{doc: d.doc, file: f.Name, line: d.line("id")})
		if len(problems) >= 10*maxProblems {
			break
		}
	}
	return docs, problems
}

// checkSource refuses what YAML cannot hold before the YAML reader sees it, which would not name the line.
func checkSource(src []byte) *Problem {
	if len(src) > MaxFileBytes {
		return &Problem{Line: 1, Got: "a file that is too big", Allowed: fmt.Sprintf("at most %d bytes", MaxFileBytes)}
	}
	line := 1
	for i := 0; i < len(src); {
		r, size := utf8.DecodeRune(src[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return &Problem{Line: line, Got: fmt.Sprintf("byte 0x%02X, which is not UTF-8", src[i]), Allowed: "UTF-8 text"}
		case r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f:
			return &Problem{Line: line, Got: fmt.Sprintf("control character U+%04X", r), Allowed: "text"}
		case r == '\n':
			line++
		}
		i += size
	}
	return nil
}

// syntaxProblem is an error of yamlnode.Documents as a problem of f.
func syntaxProblem(f File, err error) Problem {
	p := Problem{File: f.Name, Line: 1, Allowed: "YAML, one mapping per rule"}
	text := err.Error()
	if e := (*yamlnode.SyntaxError)(nil); errors.As(err, &e) {
		p.Line, text = max(e.Line, 1), e.Reason
	}
	p.Got = "YAML that cannot be read (" + text + ")"
	return p
}
