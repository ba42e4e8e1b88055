package rules

import (
	"slices"
	"strings"
)

// Index finds the rules that watch a request. It is made of tries over path segments, so that its cost follows the depth of
// the path and the number of rules that match, not the number of rules: 1,000 cost about what 10 do. An Index does not
// change after it was made and may be used by any number of goroutines.
type Index struct {
	// One trie for each way of comparing; nil where no rule has it. The folding ones are second.
	raw, normal [2]*node
}

// node is a place in the trie: some segments of a path have been read, the next one decides.
type node struct {
	here     ruleSet          // rules whose pattern ends with the segment that led here
	literals map[string]*node // by the next segment
	param    *node            // {param}: any next segment but the empty one
	below    ruleSet          // rules whose trailing * is the next segment, whatever that is
	// rests are the rules whose trailing * stands in the next segment, by what stands before the *; restLens are the
	// lengths of those prefixes, ascending and distinct, so that a look-up asks once per length.
	rests    map[string]*ruleSet
	restLens []int
}

// ruleSet holds rule indexes by the methods that they watch.
type ruleSet struct {
	all      []int
	byMethod map[string][]int
}

// NewIndex builds the index of rules; Match returns positions in this slice. Rules are expected to be valid; a pattern
// that is not is read as Match.Reaches reads it.
func NewIndex(rules []Version) *Index {
	ix := &Index{}
	for i := range rules {
		m := rules[i].Match
		if m.Path == "" || m.Path == "*" { // every path as it stands, so that no reading of it is asked
			add(&ix.raw, m, "*", i)
			continue
		}
		pattern, ok := m.normalPath()
		if ok {
			add(&ix.normal, m, pattern, i)
		}
		if !ok || pattern != m.Path {
			add(&ix.raw, m, m.Path, i)
		}
	}
	return ix
}

// Index builds the index by which the records of r are routed: NewIndex, and the paths as they stand under a record format
// of the time when all routers compared them so.
func (r *Routing) Index() *Index {
	if r.RecordFormat >= ReadingRecordFormat {
		return NewIndex(r.Rules)
	}
	ix := &Index{}
	for i := range r.Rules {
		add(&ix.raw, r.Rules[i].Match, r.Rules[i].Match.Path, i)
	}
	return ix
}

func add(tries *[2]*node, m Match, pattern string, rule int) {
	trie := &tries[0]
	if m.folds() {
		trie, pattern = &tries[1], string(appendLower(nil, pattern))
	}
	if *trie == nil {
		*trie = &node{}
	}
	(*trie).add(m.Methods, pattern, rule)
}

func (n *node) add(methods []string, path string, rule int) {
	if path == "" {
		path = "*"
	}
	for {
		segment, rest, more := strings.Cut(path, "/")
		if prefix, ok := restPrefix(segment, more); ok {
			n.rest(prefix).add(methods, rule)
			return
		}
		n = n.child(segment)
		if !more {
			n.here.add(methods, rule)
			return
		}
		path = rest
	}
}

func (n *node) rest(prefix string) *ruleSet {
	if prefix == "" {
		return &n.below
	}
	if set, ok := n.rests[prefix]; ok {
		return set
	}
	if n.rests == nil {
		n.rests = map[string]*ruleSet{}
	}
	if at, found := slices.BinarySearch(n.restLens, len(prefix)); !found {
		n.restLens = slices.Insert(n.restLens, at, len(prefix))
	}
	set := &ruleSet{}
	n.rests[prefix] = set
	return set
}

func (n *node) child(segment string) *node {
	if isParam(segment) {
		if n.param == nil {
			n.param = &node{}
		}
		return n.param
	}
	if n.literals == nil {
		n.literals = map[string]*node{}
	}
	c := n.literals[segment]
	if c == nil {
		c = &node{}
		n.literals[segment] = c
	}
	return c
}

func (s *ruleSet) add(methods []string, rule int) {
	if len(methods) == 0 {
		s.all = append(s.all, rule)
		return
	}
	if s.byMethod == nil {
		s.byMethod = map[string][]int{}
	}
	for i, m := range methods {
		if m != "" && !slices.Contains(methods[:i], m) { // a rule is in the set of a request at most once
			s.byMethod[m] = append(s.byMethod[m], rule)
		}
	}
}

func (s *ruleSet) appendTo(dst []int, method []byte) []int {
	dst = append(dst, s.all...)
	if len(s.byMethod) > 0 {
		dst = append(dst, s.byMethod[string(method)]...)
	}
	return dst
}

// Match appends the indexes of the rules that watch a request of this method and path to dst, ascending. It agrees with
// Match.Reaches of each rule, and does not allocate for an ordinary path when dst has room.
func (ix *Index) Match(dst []int, method, path string) []int {
	var buf [maxMethodBytes]byte
	start := len(dst)
	path = cutQuery(path)
	q := query{method: upperMethod(&buf, method)}
	q.path = segments{text: path}
	dst = q.collect(dst, &ix.raw)
	if ix.normal == [2]*node{} {
		return sorted(dst, start)
	}
	if q.path.loose = true; ordinary(path) {
		return sorted(q.collect(dst, &ix.normal), start)
	}
	for s := spellingsOf(path, isConnect(method)); s.next(); {
		q.path = s.segments
		dst = q.collect(dst, &ix.normal)
	}
	return sorted(dst, start)
}

// sorted puts the rules after start in order, each once: one may be reached by several readings.
func sorted(dst []int, start int) []int {
	slices.Sort(dst[start:])
	return dst[:start+len(slices.Compact(dst[start:]))]
}

// query is one question put to a trie.
type query struct {
	method []byte
	path   segments
	fold   bool
}

func (q *query) collect(dst []int, tries *[2]*node) []int {
	for i, trie := range tries {
		if trie != nil {
			q.fold = i == 1
			dst = trie.collect(dst, q, 0)
		}
	}
	return dst
}

// collect appends the rules below n that match the path from a place on, the one after the segments that led to n. A rule
// has one place in a trie, and is met at most once.
func (n *node) collect(dst []int, q *query, place int) []int {
	segment, next, more := q.path.at(place)
	if !more && q.path.loose {
		tail := q.path.tail(segment, q.fold)
		if tail == "" {
			dst = n.here.appendTo(dst, q.method) // what led here, and a slash at the end
		}
		if len(tail) < len(segment) {
			if c := lookUp(n.literals, tail, q.fold); c != nil {
				dst = c.here.appendTo(dst, q.method)
			}
		}
	}
	dst = n.below.appendTo(dst, q.method)
	for _, l := range n.restLens {
		if q.fold {
			l = lowerSize(segment, l)
		}
		if l > len(segment) {
			break
		}
		if set := lookUp(n.rests, segment[:l], q.fold); set != nil {
			dst = set.appendTo(dst, q.method)
		}
	}
	if c := lookUp(n.literals, segment, q.fold); c != nil {
		dst = c.enter(dst, q, next, more)
	}
	if n.param != nil && segment != "" {
		dst = n.param.enter(dst, q, next, more)
	}
	return dst
}

// lookUp finds what stands in a trie under a text, which is in lower case there if the trie folds.
func lookUp[T any](in map[string]*T, text string, fold bool) *T {
	if fold && hasUpper(text) {
		return lookUpLower(in, text)
	}
	return in[text]
}

func lookUpLower[T any](in map[string]*T, text string) *T {
	var room [64]byte
	return in[string(appendLower(room[:0], text))]
}

func (n *node) enter(dst []int, q *query, place int, more bool) []int {
	if more {
		return n.collect(dst, q, place)
	}
	return n.here.appendTo(dst, q.method)
}
