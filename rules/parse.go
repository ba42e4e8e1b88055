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
	// Conditions judges conditions. Without it ParseFiles refuses `when` and tiers, and Validate takes any text for one.
	Conditions Conditions
	// Format is the deployment's event format, for warnings; the zero value is not known.
	Format Format
	// Warn, unless it is nil, is told what is legal in the documents of files and probably not meant, in the order of the
	// files. A document with a problem is not warned about.
	Warn func(Problem)
	// AllowLists are the ids of the allow lists that there are beside those of the files. With nil, which ones there are is
	// not known, and a rule that names one which the files have not is warned about; else it is a problem.
	AllowLists []string
	// Tests, unless it is nil, reads the tests of each document without a problem. Without it, tests are only known to be a list.
	Tests TestReader
}

// TestReader reads what a document says under tests. The language is that of stories, which this package does not know.
type TestReader interface {
	// ReadTests reads the tests of d, which stand in file, and reports what is wrong with them: File, Line, Column and Field are of the file.
	ReadTests(d *Document, file string, tests yamlnode.Node, report func(Problem))
}

// MaxTests bounds the tests of one document.
const MaxTests = 100

// File is one file of rule documents.
type File struct {
	Name string // as messages name it
	Src  []byte
}

// located is a document and the place of its id: a rule or, with allow, an allow list.
type located struct {
	doc   Document
	allow *AllowList
	file  string
	at    yamlnode.Place
	nodes map[string]yamlnode.Node // what the document's fields say
}

// id is that of the rule or list, with what it is.
func (l *located) id() (kind, id string) {
	if l.allow != nil {
		return "allow list", l.allow.ID
	}
	return "rule", l.doc.ID
}

// place is where field stands, else the document's id.
func (l *located) place(field string) yamlnode.Place {
	if n, ok := l.nodes[field]; ok {
		return n.Place()
	}
	return l.at
}

// Set is what files hold: rules and allow lists, each ascending by id.
type Set struct {
	Rules      []Document
	AllowLists []AllowList
}

// ParseFiles is ParseSet for who has no use for the allow lists of the files.
func ParseFiles(files []File, env Environment) ([]Document, error) {
	set, err := ParseSet(files, env)
	if err != nil {
		return nil, err
	}
	return set.Rules, nil
}

// ParseSet reads the documents of files. In a file they are separated by `---`; empty ones are passed over. An id that
// occurs twice, in whichever files, is a problem that names both places. The error is a Problems with everything that is
// wrong, and then no document is returned.
func ParseSet(files []File, env Environment) (*Set, error) {
	var all []located
	var problems Problems
	for _, f := range files {
		docs, found := parseFile(f, env)
		all = append(all, docs...)
		problems = append(problems, found.bounded()...)
	}
	problems = append(problems, repeatedIDs(all)...)
	set := &Set{}
	for i := range all {
		if all[i].allow != nil {
			set.AllowLists = append(set.AllowLists, *all[i].allow)
		} else {
			set.Rules = append(set.Rules, all[i].doc)
		}
	}
	problems = append(problems, unknownLists(all, set.AllowLists, env)...)
	if len(problems) > 0 {
		return nil, problems
	}
	slices.SortFunc(set.Rules, func(a, b Document) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(set.AllowLists, func(a, b AllowList) int { return cmp.Compare(a.ID, b.ID) })
	return set, nil
}

// LoadDir reads all *.yaml and *.yml files of fsys and its folders, except those whose name starts with a dot, as
// ParseFiles does. dir is put before the file names in messages; empty for none. A tree without any rule is an error:
// it is a mistyped directory more often than a wish to have no rules.
func LoadDir(fsys fs.FS, dir string, env Environment) ([]Document, error) {
	files, err := ReadDir(fsys, dir)
	if err != nil {
		return nil, err
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

// ReadDir finds the files that LoadDir parses.
func ReadDir(fsys fs.FS, dir string) ([]File, error) {
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
	return files, nil
}

// readBounded reads a file up to one byte more than is allowed, at which the parser refuses it.
func readBounded(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	src, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	return src, errors.Join(err, f.Close())
}

func repeatedIDs(all []located) Problems {
	var problems Problems
	first := map[[2]string]located{}
	for _, l := range all {
		kind, id := l.id()
		if id == "" {
			continue // reported as missing
		}
		if f, ok := first[[2]string{kind, id}]; ok {
			problems = append(problems, Problem{
				Field: "id", Got: fmt.Sprintf("%s a second time (first at %s:%d:%d)", quoteShort(id), f.file, f.at.Line, f.at.Column),
				Allowed: "an id of its own for every " + kind,
			}.At(l.file, l.at))
			continue
		}
		first[[2]string{kind, id}] = l
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
		d := &decoder{file: f.Name, env: env, nodes: map[string]yamlnode.Node{}, bad: map[string]bool{}}
		l := located{file: f.Name}
		if kindOf(n) == kindAllow {
			list := allowDocument(d, n)
			l.allow = &list
		} else {
			d.document(n)
			l.doc, l.nodes = d.doc, d.nodes
		}
		l.at = d.place("id")
		problems = append(problems, d.problems...)
		docs = append(docs, l)
		if len(problems) >= 10*maxProblems {
			break
		}
	}
	return docs, problems
}

// checkSource refuses what YAML cannot hold before the YAML reader sees it, which would not name the line.
func checkSource(src []byte) *Problem {
	if len(src) > MaxFileBytes {
		return &Problem{Line: 1, Column: 1, Got: "a file that is too big", Allowed: fmt.Sprintf("at most %d bytes", MaxFileBytes)}
	}
	line, column := 1, 1
	for i := 0; i < len(src); {
		r, size := utf8.DecodeRune(src[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return &Problem{Line: line, Column: column, Got: fmt.Sprintf("byte 0x%02X, which is not UTF-8", src[i]), Allowed: "UTF-8 text"}
		case r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f:
			return &Problem{Line: line, Column: column, Got: fmt.Sprintf("control character U+%04X", r), Allowed: "text"}
		case r == '\n':
			line, column = line+1, 0
		}
		i, column = i+size, column+1
	}
	return nil
}

// syntaxProblem is an error of yamlnode.Documents as a problem of f.
func syntaxProblem(f File, err error) Problem {
	p := Problem{File: f.Name, Line: 1, Allowed: "YAML, one mapping per rule"}
	text := err.Error()
	if e := (*yamlnode.SyntaxError)(nil); errors.As(err, &e) {
		p.Line, p.Column, p.Hint, text = max(e.Line, 1), e.Column, e.Hint, e.Reason
	}
	p.Got = "YAML that cannot be read (" + text + ")"
	return p
}
