package server_test

import (
	"net/http"
	"slices"
)

// The oracle of acts: what docs/access.md and docs/api.md say of who may do what, in words of its own. It asks nothing
// of the program.

// rank is how much somebody may, by the place of his role: nobody, viewer, analyst, owner, admin.
func rank(who string) int {
	if ownersOf(who) != "" {
		who = "owner"
	}
	return slices.Index([]string{"nobody", "viewer", "analyst", "owner", "admin"}, who)
}

// needed is the table of docs/access.md: the lowest role that may, and whether an owner may to his own alone.
func needed(act string) (least int, owned bool) {
	switch act {
	case "release", "reveal", "save-view":
		return 2, false
	case "promote", "demote", "disable", "enable", "apply", "set-limit", "rollback", "allow", "reset":
		return 3, true
	case "block", "never-block", "erase", "resume":
		return 4, false
	}
	return 99, false // an act that is in no table is nobody's
}

// target is what an act is done to.
type target struct{ rule, owner, path string }

// targets are one rule of each kind of owner, each with an allow list of the same owner.
func targets() []target {
	return []target{
		{own, "identity", "/v1/logins"}, {other, "search", "/v1/searches"}, {"edges", "edge", "/edge/in"},
		{"reaching", "edge", "/out/reaching"}, {"orphans", "a-team-that-went", "/v1/orphans"}, {"nowhere", "", ""},
	}
}

// bounds are console.bounds of the installation: the rule reaching is beyond them.
const bounds = "owner=edge path=/edge/*"

// absent is the target that there is not.
func (t target) absent() bool { return t.rule == "nowhere" }

// ownersOf are the owners for whom somebody decides.
func ownersOf(kind string) string {
	return map[string]string{"owner": "identity", "stranger": "search", "bound": "edge"}[kind]
}

// way is how a request says who asks.
type way struct {
	name           string
	bearer, cookie string // "own", "wrong", "admin's"; empty: none
	proof          string // header, field, another's; empty: none
	site, origin   string // what the browser says
}

func ways() []way {
	const home = "https://" + consoleHost
	return []way{
		{name: "nothing"}, {name: "nothing, from another site", site: "cross-site"},
		{name: "token", bearer: "own"},
		{name: "a token that nobody has", bearer: "wrong"},
		{name: "session", cookie: "own", proof: "header", site: "same-origin", origin: home},
		{name: "session, proof in the form", cookie: "own", proof: "field", site: "same-origin", origin: home},
		{name: "session without proof", cookie: "own", site: "same-origin", origin: home},
		{name: "session, proof of another's", cookie: "own", proof: "another's", site: "same-origin", origin: home},
		{name: "session, from another site", cookie: "own", proof: "header", site: "cross-site"},
		{name: "session, from another origin", cookie: "own", proof: "header", origin: "https://evil.example"},
		{name: "session, from no origin", cookie: "own", proof: "header", origin: "null"},
		{name: "token and an admin's session", bearer: "own", cookie: "admin's", site: "cross-site"},
		{name: "wrong token and the session", bearer: "wrong", cookie: "own", proof: "header", site: "same-origin"},
	}
}

// foreign reports whether a browser says that another site's page asks.
func (w *way) foreign() bool {
	return w.site != "" && w.site != "same-origin" || w.origin != "" && w.origin != "https://"+consoleHost
}

// fault is what is wrong with a request.
type fault string

const (
	nothing   fault = "nothing"
	malformed fault = "a malformed body"
	mistyped  fault = "another content type"
	large     fault = "a body that is too large"
	stale     fault = "a state that has changed"
)

func faults() []fault { return []fault{nothing, malformed, mistyped, large, stale} }

// act is one request of the matrix.
type act struct {
	row  *actRow
	kind string // of who asks
	way  way
	on   target
	bad  fault
}

// answer is what is expected: one of the statuses, and how far the request gets.
type answer struct {
	statuses []int
	reach    string // door: nothing but sessions is looked up; looked: stores are read; done
	why      string
}

func expect(a *act) answer {
	page := !a.row.api
	door := func(why string, statuses ...int) answer { return answer{statuses, "door", why} }
	looked := func(why string, statuses ...int) answer { return answer{statuses, "looked", why} }
	// Of pages a form, unless it is called something else; the token against forgery may be in it.
	isForm := page && a.bad != mistyped
	unread := map[fault]int{malformed: http.StatusBadRequest, mistyped: http.StatusUnsupportedMediaType,
		large: http.StatusRequestEntityTooLarge}[a.bad]

	// Who asks, and whether he knows that he does. A token goes before a session.
	switch {
	case a.way.bearer == "wrong":
		return door("nobody's token", http.StatusUnauthorized, http.StatusTooManyRequests)
	case a.way.bearer == "" && a.way.foreign():
		return door("another site asks", http.StatusForbidden)
	case a.way.bearer == "" && a.way.cookie == "":
		return door("nobody is signed in", http.StatusUnauthorized)
	case a.way.bearer == "" && a.way.proof == "field" && isForm && unread != 0:
		return door("a form that cannot be read", unread)
	case a.way.bearer == "" && a.way.cookie != "" && a.way.proof == "" && isForm && unread != 0:
		return door("a form that cannot be read", unread)
	case a.way.bearer == "" && a.way.proof == "field" && !isForm, a.way.bearer == "" && a.way.proof == "",
		a.way.bearer == "" && a.way.proof == "another's":
		return door("without the session's token", http.StatusForbidden)
	}

	// Whether his role may at all: before anything is read of what he sends, or looked up.
	least, owned := needed(a.row.act)
	if rank(a.kind) < least {
		return door("his role may not", http.StatusForbidden)
	}
	if unread != 0 {
		return door("what cannot be read", unread)
	}

	// What it is about, and whose.
	if a.on.absent() && a.row.on != "" && a.row.absent != 0 {
		return looked("there is none", a.row.absent)
	}
	if page && a.row.on == "list" && a.bad == stale && (a.kind == "admin" || a.on.owner == ownersOf(a.kind)) {
		return looked("the entry is not there any more", a.row.staleStatus) // of no list is asked what its rules reach
	}
	if owned && a.kind != "admin" {
		if a.on.owner == "" || a.on.owner != ownersOf(a.kind) {
			return looked("not his", http.StatusForbidden)
		}
		if a.on.rule == "reaching" && a.row.act != "demote" && a.row.act != "disable" {
			return looked("beyond his bounds", http.StatusForbidden)
		}
	}
	if a.bad == stale {
		return looked("it is not so any more", a.row.staleStatus)
	}
	return answer{a.row.ok, "done", "he may"}
}
