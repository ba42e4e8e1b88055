package server_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/signin/signintest"
)

// expectation is who may ask for a route.
type expectation struct {
	least access.Role
	own   bool // an owner may for what is his own alone
}

// expected is testdata/routes.txt: METHOD PATTERN ROLE, and behind the role "of its own" where an owner may for his own rules alone. What
// routes say of themselves is not asked, so that a route that says less than it should is found.
func expected(t *testing.T) map[string]expectation {
	t.Helper()
	text, err := os.ReadFile("testdata/routes.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]expectation{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		e := expectation{own: strings.Join(fields[3:], " ") == "of its own"}
		if role := fields[2]; role != "everybody" {
			if err := e.least.UnmarshalText([]byte(role)); err != nil {
				t.Fatal(line, err)
			}
		}
		all[fields[0]+" "+fields[1]] = e
	}
	return all
}

// may judges by testdata/routes.txt.
func may(t *testing.T) func(route access.Route, actor access.Actor, owner string) bool {
	t.Helper()
	all := expected(t)
	return func(route access.Route, actor access.Actor, owner string) bool {
		e, ok := all[route.Method+" "+route.Pattern]
		return ok && actor.Role >= e.least && (!e.own || actor.Owns(owner))
	}
}

// TestWhoMayAskForWhat asks the server that weir console serves for every route as everybody: no session, an unknown token, each role by
// session and by token, an owner's own rule and another's, without the token against forgery and with somebody else's; and by other
// spellings and methods.
func TestWhoMayAskForWhat(t *testing.T) {
	b := newBed(t)
	b.prepare(own, other)
	m := b.matrix()
	t.Run("each route is expected", func(t *testing.T) { eachIsExpected(t, m) })
	t.Run("each route as everybody", func(t *testing.T) {
		straight := m.Straight(t)
		b.prepare(own, other) // what was let in has changed them
		crooked := m.Crooked(t)
		t.Logf("%d routes, %d requests by their paths, %d by other spellings and methods", len(m.Routes()), straight, crooked)
		if straight < 1000 || crooked < 5000 {
			t.Error("the matrix has become small")
		}
	})
	t.Run("owners within bounds, acts with entries", func(t *testing.T) { reachesByToken(t, b) })
	t.Run("every path into blocking", func(t *testing.T) {
		// Of a server of its own: a sign-in takes 400 wrong tokens at once, of all clients together, and the one above has been sent most of them.
		b := newBed(t)
		b.prepare(own, other)
		everyPathIntoBlocking(t, b, b.matrix())
	})
}

func eachIsExpected(t *testing.T, m *signintest.Matrix) {
	all := expected(t)
	for _, route := range m.Routes() {
		key := route.Method + " " + route.Pattern
		e, ok := all[key]
		if !ok {
			t.Errorf("%s is not in testdata/routes.txt: who may ask for it?", key)
			continue
		}
		delete(all, key)
		if least, own, _ := access.Least(route.Act); least != e.least || own != e.own {
			t.Errorf("%s is %s, which needs the role %s (of its own: %t); testdata/routes.txt says %s (%t)", key, route.Act, least, own, e.least, e.own)
		}
	}
	undone := unserved()
	for _, act := range access.Acts() {
		if !slices.ContainsFunc(m.Routes(), func(r access.Route) bool { return r.Act == act }) && undone[act] == "" {
			t.Errorf("%s is an act that no route does: it is declared and not there", act)
		}
	}
	for key := range all {
		t.Errorf("%s is in testdata/routes.txt, and no route", key)
	}
}

// unserved are acts that are done, or will be, elsewhere than by a route of this server.
func unserved() map[access.Act]string {
	return map[access.Act]string{access.SaveView: "the explorer's page"}
}
