package rules

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/traffic"
)

// Bounds of rule documents that are read together.
const (
	MaxFileBytes = 1 << 20  // of one file
	MaxSetBytes  = 64 << 20 // of all files
	// MaxRules bounds the rules of a set, and of a routing version with those that are pending: a keyed record names as many.
	MaxRules = 1 << 16
)

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
	// Bounded, unless it is nil, says what of a document reaches beyond what its owner's rules may; nil: nothing does.
	// It is warned about.
	Bounded func(*Document) *Problem
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
	// Texts are the rules by id as they are written, comments and tests included. One whose text cannot be told from its neighbours' is
	// not among them.
	Texts map[string]string
}

// Lists are the allow lists of a set and those of stored ones whose ids it has not.
func (s *Set) Lists(stored []AllowList) []AllowList {
	all := slices.Clone(s.AllowLists)
	for i := range stored {
		if !slices.ContainsFunc(s.AllowLists, func(l AllowList) bool { return l.ID == stored[i].ID }) {
			all = append(all, stored[i])
		}
	}
	return all
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
// wrong, but for what is beyond a bound: then it says how much, and no document is returned.
func ParseSet(files []File, env Environment) (*Set, error) {
	if p := checkSize(files); p != nil {
		return nil, Problems{*p}
	}
	var summed warningBound
	env.Warn = summed.around(env.Warn)
	var all []located
	var problems Problems
	for _, f := range files {
		docs, found := parseFile(f, env)
		all = append(all, docs...)
		problems = append(problems, found.bounded()...)
		if len(problems) >= 10*maxSetProblems {
			break
		}
	}
	problems = append(problems, repeatedIDs(all).cut(maxProblems)...)
	set := &Set{Texts: map[string]string{}}
	for i := range all {
		if all[i].allow != nil {
			set.AllowLists = append(set.AllowLists, *all[i].allow)
		} else {
			set.Rules = append(set.Rules, all[i].doc)
		}
	}
	problems = append(problems, unknownLists(all, set.AllowLists, env).cut(maxProblems)...)
	if n := len(set.Rules); n > MaxRules {
		problems = append(problems, Problem{Got: strconv.Itoa(n) + " rules", Allowed: "at most " + strconv.Itoa(MaxRules)})
	}
	summed.tell()
	if len(problems) > 0 {
		return nil, problems.cut(maxSetProblems)
	}
	for _, f := range files {
		textsOf(string(f.Src), set.Texts)
	}
	slices.SortFunc(set.Rules, func(a, b Document) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(set.AllowLists, func(a, b AllowList) int { return cmp.Compare(a.ID, b.ID) })
	return set, nil
}

// checkSize refuses files that are too many, or too great, to be read together.
func checkSize(files []File) *Problem {
	total := 0
	for _, f := range files {
		if total += len(f.Src); total > MaxSetBytes {
			return &Problem{File: f.Name, Line: 1, Got: fmt.Sprintf("more than %d MiB of files, with this one", MaxSetBytes>>20),
				Allowed: fmt.Sprintf("at most %d MiB of rules together", MaxSetBytes>>20)}
		}
	}
	return nil
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

// ReadDir finds the files that LoadDir parses. It stops where they are more than ParseSet takes.
func ReadDir(fsys fs.FS, dir string) ([]File, error) {
	var files []File
	total := 0
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
		if total += len(src); total > MaxSetBytes {
			return fs.SkipAll
		}
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

// textsOf finds the text of each rule in a file. A line that begins with --- parts documents wherever it stands: no text within one, of
// whatever notation, may have it. A file of one document is its text as a whole.
func textsOf(src string, into map[string]string) {
	if strings.HasPrefix(src, "%") || strings.Contains(src, "\n%") || strings.Contains(src, "\ufeff") {
		return // a directive or a mark that is the file's, and may not stand in another one
	}
	var parts []string
	from := 0
	for at := 0; at < len(src); {
		end := len(src)
		if i := strings.IndexByte(src[at:], '\n'); i >= 0 {
			end = at + i
		}
		if line := strings.TrimRight(src[at:end], "\r"); line == "---" || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "---\t") {
			parts, from = append(parts, src[from:at]), at+len("---")
			if strings.TrimSpace(src[from:end]) == "" {
				from = min(end+1, len(src))
			}
		}
		at = end + 1
	}
	found := map[string]string{}
	documents := 0
	for _, part := range append(parts, src[from:]) {
		ids, n := ruleIDs(part)
		if documents += n; n == 1 && len(ids) == 1 {
			found[ids[0]] = part
		}
	}
	for id, part := range found {
		if documents == 1 {
			part = src
		}
		into[id] = part
	}
}

// ruleIDs are the ids of the rules in a text, and how many documents it has.
func ruleIDs(text string) (ids []string, documents int) {
	for n, err := range yamlnode.Documents([]byte(text)) {
		if err != nil {
			return nil, documents + 1
		}
		if n.Kind() == yamlnode.Null {
			continue
		}
		documents++
		for _, m := range n.Members() {
			if m.Name.Value() == "id" && kindOf(n) != kindAllow {
				ids = append(ids, m.Value.Value())
			}
		}
	}
	return ids, documents
}
