package rules

import "slices"

// question is what a rule may ask beside the path.
type question uint8

const (
	askMethod question = iota
	askHost
	askRoute
	askStatus
	numQuestions
)

// ruleSet holds rule indexes by the answers to the questions that they ask, in the order of questions.
type ruleSet struct {
	rules []int                            // those that ask nothing more
	next  *[numQuestions]branches[ruleSet] // by the next question that they ask, and its answer; nil: none
	other bool                             // another question than that for the method is one of them
}

// maxPlaces bounds the places that one rule has in an index: the product of the lengths of its lists.
const maxPlaces = 1024

// add puts a rule in under all that it asks from a question on.
func (s *ruleSet) add(lists *[numQuestions][]string, from question, rule int) {
	for from < numQuestions && len(lists[from]) == 0 {
		from++
	}
	if from == numQuestions {
		s.rules = append(s.rules, rule)
		return
	}
	if s.next == nil {
		s.next = &[numQuestions]branches[ruleSet]{}
	}
	s.other = s.other || from != askMethod
	for i, answer := range lists[from] {
		if slices.Contains(lists[from][:i], answer) {
			continue
		}
		if suffix, ok := belowHost(answer); ok && from == askHost {
			answer = suffix
		}
		s.next[from].place(answer).add(lists, from+1, rule)
	}
}

func (s *ruleSet) appendTo(dst []int, q *query) []int {
	dst = append(dst, s.rules...)
	if s.next == nil {
		return dst
	}
	if len(q.method) > 0 {
		switch c := s.next[askMethod].atBytes(q.method); {
		case c == nil:
		case c.next == nil:
			dst = append(dst, c.rules...)
		default:
			dst = c.appendTo(dst, q)
		}
	}
	if s.other {
		dst = s.appendOther(dst, q)
	}
	return dst
}

func (s *ruleSet) appendOther(dst []int, q *query) []int {
	if by := &s.next[askHost]; by.item != nil {
		for _, host := range q.hosts {
			dst = appendBelow(dst, by, host, q)
		}
	}
	if q.target.Route != "" {
		if c := s.next[askRoute].at(q.target.Route); c != nil {
			dst = c.appendTo(dst, q)
		}
	}
	if by := &s.next[askStatus]; by.item != nil {
		code, class := statusNames(q.target.Status)
		if c := by.atBytes(code[:]); c != nil {
			dst = c.appendTo(dst, q)
		}
		if c := by.atBytes(class[:]); c != nil {
			dst = c.appendTo(dst, q)
		}
	}
	return dst
}

// appendBelow appends what stands under a host, and under each that it is below.
func appendBelow(dst []int, by *branches[ruleSet], host []byte, q *query) []int {
	for i := range host {
		if i > 0 && host[i] != '.' {
			continue
		}
		if c := by.atBytes(host[i:]); c != nil && (i > 0 || host[0] != '.') {
			dst = c.appendTo(dst, q)
		}
	}
	return dst
}

// guard is what is asked of a rule that the tries have found.
type guard struct {
	match  Match
	except bool // there are paths that are left out, to be judged in each reading
	rest   bool // not all of its lists are in the tries
}

// lists are the answers that a rule asks for. Where their combinations would be too many, the longest lists are left to a guard.
func (ix *Index) lists(m *Match, rule, paths int) (lists [numQuestions][]string) {
	lists = [numQuestions][]string{m.Methods, m.Hosts, m.Routes, m.Statuses}
	g := &guard{match: *m, except: len(m.Except) > 0}
	for {
		places, longest := paths, askMethod
		for ask, list := range lists {
			if places *= max(len(list), 1); len(list) > len(lists[longest]) {
				longest = question(ask)
			}
		}
		if places <= maxPlaces || len(lists[longest]) < 2 {
			break
		}
		lists[longest], g.rest = nil, true
	}
	for ask, list := range lists {
		ix.asked[ask] = ix.asked[ask] || len(list) > 0
	}
	if g.except || g.rest {
		for len(ix.guards) <= rule {
			ix.guards = append(ix.guards, nil)
		}
		ix.guards[rule] = g
	}
	return lists
}

// pass keeps those of the rules after start that their guards let pass.
func (q *query) pass(dst []int, start int) []int {
	kept := dst[:start]
	for _, rule := range dst[start:] {
		if rule >= len(q.guards) || q.guards[rule] == nil || q.passes(q.guards[rule]) {
			kept = append(kept, rule)
		}
	}
	return kept
}

func (q *query) passes(g *guard) bool {
	m := &g.match
	if g.rest && !(m.matchesMethod(q.target.Method) && (len(m.Hosts) == 0 || m.matchesHost(q.target)) &&
		namesRoute(m.Routes, q.target.Route) && namesStatus(m.Statuses, q.target.Status)) {
		return false
	}
	return !g.except || !q.unread && m.admits(&q.path)
}
