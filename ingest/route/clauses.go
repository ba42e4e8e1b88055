package route

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Clause is one condition of a rule's match, and what an event has for it.
type Clause struct {
	Name string `json:"name"` // as in documents: match.path
	Rule string `json:"rule"` // what the rule asks for
	Got  string `json:"event"`
	Held bool   `json:"held"`
}

// clause is how one member of a match is asked alone.
type clause struct {
	name  string
	rule  func(*rules.Match) string // empty: the rule does not ask for it
	got   func(*traffic.Request) string
	alone func(rules.Match) rules.Match // the match that asks for nothing else
}

// clauses are the members of a match, the cheap ones first.
func clauses() []clause {
	list := func(of func(*rules.Match) []string) func(*rules.Match) string {
		return func(m *rules.Match) string { return strings.Join(of(m), ", ") }
	}
	return []clause{
		{
			"match.method", list(func(m *rules.Match) []string { return m.Methods }),
			func(q *traffic.Request) string { return q.Method },
			func(m rules.Match) rules.Match { return rules.Match{Methods: m.Methods} },
		},
		{
			"match.path", pathText,
			func(q *traffic.Request) string { return q.Path },
			func(m rules.Match) rules.Match {
				return rules.Match{Path: m.Path, Paths: m.Paths, PathAs: m.PathAs, PathCase: m.PathCase}
			},
		},
		{
			"match.except", list(func(m *rules.Match) []string { return m.Except }),
			func(q *traffic.Request) string { return q.Path },
			func(m rules.Match) rules.Match {
				return rules.Match{Except: m.Except, PathAs: m.PathAs, PathCase: m.PathCase}
			},
		},
		{
			"match.host", list(func(m *rules.Match) []string { return m.Hosts }),
			func(q *traffic.Request) string { return q.Host },
			func(m rules.Match) rules.Match { return rules.Match{Hosts: m.Hosts} },
		},
		{
			"match.route", list(func(m *rules.Match) []string { return m.Routes }),
			func(q *traffic.Request) string { return q.Route },
			func(m rules.Match) rules.Match { return rules.Match{Routes: m.Routes} },
		},
		{
			"match.status", list(func(m *rules.Match) []string { return m.Statuses }),
			func(q *traffic.Request) string {
				if q.Status == 0 {
					return ""
				}
				return strconv.Itoa(q.Status)
			},
			func(m rules.Match) rules.Match { return rules.Match{Statuses: m.Statuses} },
		},
	}
}

// pathText is a path with how it is compared, where that is not the default.
func pathText(m *rules.Match) string {
	text := m.Path
	if len(m.Paths) > 0 {
		text = strings.Join(m.Paths, ", ")
	}
	if text == "" {
		return ""
	}
	if as := cmp.Or(m.PathAs, rules.PathNormal); as != rules.PathNormal {
		text += " (path_as: " + string(as) + ")"
	}
	if how := cmp.Or(m.PathCase, rules.PathCaseExact); how != rules.PathCaseExact {
		text += " (path_case: " + string(how) + ")"
	}
	return text
}

// Clauses asks each part of a match alone, as the index of rules does, and gives those that the match has. A rule watches the
// request if all of them hold; a match without any watches every request.
func Clauses(m *rules.Match, q *traffic.Request) []Clause {
	target := rules.Target{Method: q.Method, Path: q.Path, Host: q.Host, Route: q.Route, Status: q.Status}
	var out []Clause
	for _, c := range clauses() {
		want := c.rule(m)
		if want == "" {
			continue
		}
		index := rules.NewIndex([]rules.Version{{Document: rules.Document{Match: c.alone(*m)}}})
		out = append(out, Clause{Name: c.name, Rule: want, Got: c.got(q), Held: len(index.Match(nil, &target)) > 0})
	}
	return out
}
