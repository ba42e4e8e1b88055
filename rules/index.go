package rules

import (
	"slices"
	"strings"
)

// Index finds the rules that watch a request. It is a trie over path segments, so that its cost follows the depth of
// the path and the number of rules that match, not the number of rules: 1,000 cost about what 10 do. An Index does not
// change after NewIndex and may be used by any number of goroutines.
type Index struct {
	root node
}

// node is a place in the trie: some segments of a path have been read, the next one decides.
type node struct {
	here     ruleSet          // rules whose pattern ends with the segment that led here
	literals map[string]*node // by the next segment
	param    *node            // {param}: any next segment but the empty one
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
// that is not is read as Match.Matches reads it.
func NewIndex(rules []Version) *Index {
	ix := &Index{}
	for i := range rules {
		ix.root.add(rules[i].Match, i)
	}
	return ix
}

func (n *node) add(m Match, rule int) {
	path := m.Path
	if path == "" {
		path = "*"
	}
	for {
		segment, rest, more := strings.Cut(path, "/")
		if prefix, ok := restPrefix(segment, more); ok {
			n.rest(prefix).add(m.Methods, rule)
			return
		}
		n = n.child(segment)
		if !more {
			n.here.add(m.Methods, rule)
			return
		}
		path = rest
	}
}

func (n *node) rest(prefix string) *ruleSet {
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
// Match.Matches of each rule, and does not allocate when dst has room.
func (ix *Index) Match(dst []int, method, path string) []int {
	var buf [maxMethodBytes]byte
	start := len(dst)
	dst = ix.root.collect(dst, upperMethod(&buf, method), cutQuery(path))
	slices.Sort(dst[start:])
	return dst
}

// collect appends the rules below n that match rest, the part of the path after the segments that led to n. A rule has
// one pattern, so one place in the trie, and is met at most once.
func (n *node) collect(dst []int, method []byte, rest string) []int {
	segment, after, more := strings.Cut(rest, "/")
	for _, l := range n.restLens {
		if l > len(segment) {
			break
		}
		if set := n.rests[segment[:l]]; set != nil {
			dst = set.appendTo(dst, method)
		}
	}
	if c := n.literals[segment]; c != nil {
		dst = c.enter(dst, method, after, more)
	}
	if n.param != nil && segment != "" {
		dst = n.param.enter(dst, method, after, more)
	}
	return dst
}

func (n *node) enter(dst []int, method []byte, rest string, more bool) []int {
	if more {
		return n.collect(dst, method, rest)
	}
	return n.here.appendTo(dst, method)
}
