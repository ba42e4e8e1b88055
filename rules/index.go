package rules

import (
	"slices"
	"strings"

	"github.com/weirhq/weir/rules/reading"
)

// Index finds the rules that watch a request. It is made of tries over path segments, whose leaves ask for the other parts of a
// match one after the other, so that its cost follows the depth of the path and the number of rules that match, not the number of
// rules: 1,000 cost about what 10 do. An Index does not change after it was made and may be used by any number of goroutines.
type Index struct {
	// One trie for each way of comparing; nil where no rule has it. The folding ones are second.
	raw, normal [2]*node
	// guards are the matches of rules of which the tries do not know all, by rule; nil where there is none.
	guards []*guard
	asked  [numQuestions]bool // by some rule
}

// node is a place in the trie: some segments of a path have been read, the next one decides.
type node struct {
	here     ruleSet        // rules whose pattern ends with the segment that led here
	literals branches[node] // by the next segment
	param    *node          // {param} and *: any next segment but the empty one
	below    ruleSet        // rules whose trailing * is the next segment, whatever that is
	// rests are the rules whose trailing * stands in the next segment, by what stands before the *; restLens are the
	// lengths of those prefixes, ascending and distinct, so that a look-up asks once per length.
	rests    branches[ruleSet]
	restLens []int
	// ends are the same for patterns whose next segment is the last one, by how that ends.
	ends    branches[node]
	endLens []int
}

// branches is what stands in an index by texts. The text that came first is compared by itself, which is faster than a map: at
// many places there is no other.
type branches[T any] struct {
	first string
	item  *T // under first; nil: there is nothing at all
	more  map[string]*T
}

func (b *branches[T]) at(text string) *T {
	if text == b.first {
		return b.item
	}
	return b.more[text]
}

// atBytes is at without a copy of the text.
func (b *branches[T]) atBytes(text []byte) *T {
	if string(text) == b.first {
		return b.item
	}
	return b.more[string(text)]
}

// place is what stands under a text, made if need be.
func (b *branches[T]) place(text string) *T {
	if found := b.at(text); found != nil {
		return found
	}
	made := new(T)
	switch {
	case b.item == nil:
		b.first, b.item = text, made
		return made
	case b.more == nil:
		b.more = map[string]*T{}
	}
	b.more[text] = made
	return made
}

// NewIndex builds the index of rules; Match returns positions in this slice. Rules are expected to be valid; a pattern
// that is not is read as Match.Reaches reads it.
func NewIndex(rules []Version) *Index {
	ix := &Index{}
	for i := range rules {
		ix.enter(&rules[i].Match, i)
	}
	return ix
}

// enter puts a rule into the tries.
func (ix *Index) enter(m *Match, rule int) {
	paths := m.paths()
	lists := ix.lists(m, rule, max(len(paths), 1))
	if len(paths) == 0 {
		paths = []string{"*"}
	}
	for _, p := range paths {
		switch {
		case len(m.Except) > 0 || len(m.Paths) > 0: // as they are: no such match was stored before there was a normal form
			tries := &ix.normal
			if m.PathAs == PathRaw {
				tries = &ix.raw
			}
			add(tries, m.folds(), p, &lists, rule)
		case p == "*": // every path as it stands, so that no reading of it is asked
			add(&ix.raw, m.folds(), p, &lists, rule)
		default:
			pattern, ok := m.normalPath()
			if ok {
				add(&ix.normal, m.folds(), pattern, &lists, rule)
			}
			if !ok || pattern != p {
				add(&ix.raw, m.folds(), p, &lists, rule)
			}
		}
	}
}

// Index builds the index by which the records of r are routed: NewIndex, and the paths as they stand under a record format
// of the time when all routers compared them so.
func (r *Routing) Index() *Index {
	if r.RecordFormat >= ReadingRecordFormat {
		return NewIndex(r.Rules)
	}
	ix := &Index{}
	for i := range r.Rules {
		m := r.Rules[i].Match
		m.PathAs = PathRaw
		ix.enter(&m, i)
	}
	return ix
}

func add(tries *[2]*node, folds bool, pattern string, lists *[numQuestions][]string, rule int) {
	trie := &tries[0]
	if folds {
		trie, pattern = &tries[1], string(reading.AppendLower(nil, pattern))
	}
	if *trie == nil {
		*trie = &node{}
	}
	(*trie).add(lists, pattern, rule)
}

func (n *node) add(lists *[numQuestions][]string, path string, rule int) {
	if path == "" {
		path = "*"
	}
	for {
		segment, rest, more := strings.Cut(path, "/")
		if prefix, ok := reading.RestPrefix(segment, more); ok {
			n.rest(prefix).add(lists, askMethod, rule)
			return
		}
		if end, ok := reading.SuffixOf(segment, more); ok {
			n.end(end).here.add(lists, askMethod, rule)
			return
		}
		n = n.child(segment)
		if !more {
			n.here.add(lists, askMethod, rule)
			return
		}
		path = rest
	}
}

func (n *node) rest(prefix string) *ruleSet {
	if prefix == "" {
		return &n.below
	}
	n.restLens = withLength(n.restLens, prefix)
	return n.rests.place(prefix)
}

func (n *node) end(suffix string) *node {
	n.endLens = withLength(n.endLens, suffix)
	return n.ends.place(suffix)
}

func withLength(lens []int, text string) []int {
	if at, found := slices.BinarySearch(lens, len(text)); !found {
		return slices.Insert(lens, at, len(text))
	}
	return lens
}

func (n *node) child(segment string) *node {
	if reading.IsAny(segment) {
		if n.param == nil {
			n.param = &node{}
		}
		return n.param
	}
	return n.literals.place(segment)
}

// Match appends the indexes of the rules that watch a request to dst, ascending: those that it reaches, and whose status is its.
// It agrees with Match.Reaches of each rule, and does not allocate for an ordinary path when dst has room.
func (ix *Index) Match(dst []int, t *Target) []int {
	var buf [maxMethodBytes]byte
	start := len(dst)
	path := reading.CutQuery(t.Path)
	q := query{target: t, guards: ix.guards, method: upperMethod(&buf, t.Method)}
	if ix.asked[askHost] {
		var rooms [2]reading.HostRoom
		q.hosts[0] = reading.Host(&rooms[0], t.Host)
		q.hosts[1] = reading.Host(&rooms[1], reading.HostOf(t.Path, reading.IsConnect(t.Method)))
	}
	q.path = reading.Raw(path)
	dst = q.collect(dst, &ix.raw)
	if ix.normal == [2]*node{} {
		return sorted(dst, start)
	}
	if q.path.Loose = true; reading.Ordinary(path) {
		return sorted(q.collect(dst, &ix.normal), start)
	}
	n := 0
	for s := reading.SpellingsOf(path, reading.IsConnect(t.Method)); s.Next(); n++ {
		q.path, q.unread = s.Segments, n == 0
		dst = q.collect(dst, &ix.normal)
	}
	if n == 1 && len(ix.guards) > 0 { // see readsAs
		q.path, q.unread = reading.Plain(path), false
		dst = q.collect(dst, &ix.normal)
	}
	return sorted(dst, start)
}

// sorted puts the rules after start in order, each once: one may be reached by several readings.
func sorted(dst []int, start int) []int {
	if len(dst)-start < 2 {
		return dst
	}
	slices.Sort(dst[start:])
	return dst[:start+len(slices.Compact(dst[start:]))]
}

// query is one question put to a trie.
type query struct {
	target *Target
	guards []*guard
	method []byte
	hosts  [2][]byte // of the Host header and of the target; empty: none
	path   reading.Segments
	unread bool // the path as it stands, where no server takes it so
	fold   bool
}

func (q *query) collect(dst []int, tries *[2]*node) []int {
	start := len(dst)
	for i, trie := range tries {
		if trie != nil {
			q.fold = i == 1
			dst = trie.collect(dst, q, 0)
		}
	}
	if len(q.guards) > 0 {
		dst = q.pass(dst, start)
	}
	return dst
}

// collect appends the rules below n that match the path from a place on, the one after the segments that led to n. A rule
// has one place in a trie, and is met at most once.
func (n *node) collect(dst []int, q *query, place int) []int {
	segment, next, more := q.path.At(place)
	if !more && q.path.Loose {
		tail := q.path.Tail(segment, q.fold)
		if tail == "" {
			dst = n.here.appendTo(dst, q) // what led here, and a slash at the end
		}
		if len(tail) < len(segment) {
			if c := lookUp(&n.literals, tail, q.fold); c != nil {
				dst = c.here.appendTo(dst, q)
			}
		}
	}
	dst = n.below.appendTo(dst, q)
	if n.endLens != nil {
		dst = n.ending(dst, q, segment, next, more)
	}
	for _, l := range n.restLens {
		if q.fold {
			l = reading.LowerSize(segment, l)
		}
		if l > len(segment) {
			break
		}
		if set := lookUp(&n.rests, segment[:l], q.fold); set != nil {
			dst = set.appendTo(dst, q)
		}
	}
	if c := lookUp(&n.literals, segment, q.fold); c != nil {
		dst = c.enter(dst, q, next, more)
	}
	if n.param != nil && segment != "" {
		dst = n.param.enter(dst, q, next, more)
	}
	return dst
}

// ending appends the rules whose last segment ends as this one does.
func (n *node) ending(dst []int, q *query, segment string, next int, more bool) []int {
	var room [64]byte
	lower := []byte(nil)
	tail := segment
	if !more {
		tail = q.path.Tail(segment, q.fold)
	}
	for {
		if q.fold && reading.HasUpper(segment) {
			lower = reading.AppendLower(room[:0], segment)
		}
		for _, l := range n.endLens {
			var c *node
			switch {
			case lower != nil && l <= len(lower):
				c = n.ends.atBytes(lower[len(lower)-l:])
			case lower == nil && l <= len(segment):
				c = n.ends.at(segment[len(segment)-l:])
			}
			if c != nil {
				dst = c.enter(dst, q, next, more)
			}
		}
		if tail == segment {
			return dst
		}
		segment = tail
	}
}

// lookUp finds what stands in a trie under a text, which is in lower case there if the trie folds.
func lookUp[T any](in *branches[T], text string, fold bool) *T {
	if fold && reading.HasUpper(text) {
		return lookUpLower(in, text)
	}
	return in.at(text)
}

func lookUpLower[T any](in *branches[T], text string) *T {
	var room [64]byte
	return in.atBytes(reading.AppendLower(room[:0], text))
}

func (n *node) enter(dst []int, q *query, place int, more bool) []int {
	if more {
		return n.collect(dst, q, place)
	}
	return n.here.appendTo(dst, q)
}
