package rules

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
)

// warn reports what is legal in d and probably not meant: a match that no request has, and fields that no event carries. A
// rule that has such a thing may never count anything, and nobody would notice.
func (d *Document) warn(env Environment, report func(Problem)) {
	warnMatch(&d.Match, "match.", report)
	if d.Block != nil {
		if d.Block.Match != nil {
			warnMatch(d.Block.Match, "block.match.", report)
		}
		warnReach(d, report)
	}
	warnUnfilled(d, env, report)
	warnSettled(d, env, report)
	warnChoice(d, env, report)
	carried := func(place string, k traffic.KeyField) {
		for one := range k.Alternatives() {
			if one.OfIdentity() && !env.Identity.Carries(one.Field) {
				report(Problem{Field: place, Got: one.String() + ", for which the identity map has no source: every event lacks it",
					Allowed: "fields that events carry", Hint: "name its header or cookie in identity." + one.String() + " of the configuration"})
			}
		}
	}
	for i, k := range d.Key {
		carried(element("key", i), k)
	}
	if d.Count.Distinct != nil {
		carried("count.distinct", *d.Count.Distinct)
	}
	for _, k := range d.Count.Tuple {
		carried("count.distinct", k)
	}
	d.hazards(report)
	if env.Bounded != nil {
		if p := env.Bounded(d); p != nil {
			report(*p)
		}
	}
}

// warnMatch reports what no request has. The members of m stand under prefix.
func warnMatch(m *Match, prefix string, report func(Problem)) {
	for i, name := range m.Methods {
		if slices.Contains(knownMethods(), name) {
			continue
		}
		p := Problem{Field: prefix + element("method", i), Got: quoteShort(name) + ", which is no registered method",
			Allowed: "methods that requests have, such as GET or POST"}
		if meant := Nearest(name, knownMethods()); meant != "" {
			p.Hint = "did you mean " + meant + "?"
		} else if isStatus(name) {
			p.Hint = "did you mean match.status?"
		}
		report(p)
	}
	if m.Path != "" {
		warnPath(prefix+"path", m.Methods, m.Path, report)
	}
	for i, p := range m.Paths {
		warnPath(prefix+element("path", i), m.Methods, p, report)
	}
	for i, p := range m.Except {
		warnPath(prefix+element("except", i), m.Methods, p, report)
	}
}

// warnPath reports what no request's path has.
func warnPath(field string, methods []string, path string, report func(Problem)) {
	if signs := regexSigns(path); signs != "" {
		p := Problem{Field: field, Got: quoteShort(path) + ", which looks like a regular expression (" + signs + ")",
			Allowed: "segments as requests have them, {name} for any one, and a * at the end"}
		if meant := withoutRegex(path); meant != "" {
			p.Hint = "did you mean " + quoteShort(meant) + "?"
		}
		report(p)
	} else if (&Match{Methods: methods, Path: path}).pathless() {
		report(Problem{Field: field, Got: quoteShort(path) + ", which does not begin with /",
			Allowed: "a path as requests have it, from the first / on", Hint: "did you mean " + quoteShort("/"+path) + "?"})
	}
}

// warnReach reports where a block holds back other requests than the rule counts without saying so, and what gates must be told
// for it to hold any.
func warnReach(d *Document, report func(Problem)) {
	reach := d.Reach()
	if d.Block.Match == nil && (len(d.Match.Statuses) > 0 || d.Match.When != "") {
		report(Problem{Field: "block", Got: "no match, so it holds " + describeMatch(reach) + " whatever status and when say, which a gate cannot know",
			Allowed: "a block.match that says what is held back", Hint: "write block.match, if with the same members"})
	}
	if len(reach.Routes) > 0 {
		report(Problem{Field: "block", Got: "a block of routes: it holds only where the gateway tells the gate its name of the route",
			Allowed: "X-Weir-Route set by the gateway, see docs/gate.md", Hint: "or a block.match by host and path"})
	}
}

// pathless reports whether no path of a request, which begins with a slash, can match. OPTIONS knows the path *, and
// CONNECT has no path but an authority.
func (m *Match) pathless() bool {
	if m.Path == "" || strings.HasPrefix(m.Path, "/") || m.Path == "*" {
		return false
	}
	return !slices.Equal(m.Methods, []string{"CONNECT"})
}

// regexSigns lists the signs of a regular expression in path, which is none: people write them by mistake.
func regexSigns(path string) string {
	var found []string
	for _, sign := range []string{"^", "$", "(", "|", "[", `\`, ".*", "+"} {
		if strings.Contains(path, sign) {
			found = append(found, sign)
		}
	}
	return strings.Join(found, " ")
}

// withoutRegex is the path that a simple regular expression means; "" where path is none, or is not simple.
func withoutRegex(path string) string {
	path = strings.TrimPrefix(path, "^")
	ends := strings.HasSuffix(path, "$")
	path = strings.TrimSuffix(path, "$")
	for _, segment := range []string{"[^/]+", "[^/]*", "([^/]+)", `\d+`, "[0-9]+", `(\d+)`, "([0-9]+)", `\w+`} {
		path = strings.ReplaceAll(path, "/"+segment+"/", "/{id}/")
		if rest, ok := strings.CutSuffix(path, "/"+segment); ok && ends {
			path = rest + "/{id}"
		}
	}
	for _, open := range []string{"(.*)", ".*", ".+"} {
		if rest, ok := strings.CutSuffix(path, open); ok {
			path = rest + "*"
			break
		}
	}
	path = strings.NewReplacer(`\.`, ".", `\/`, "/", `\-`, "-").Replace(path)
	if !strings.HasPrefix(path, "/") || regexSigns(path) != "" || reading.CheckPattern(path) != "" {
		return ""
	}
	return path
}

// isStatus reports whether s looks like a status code.
func isStatus(s string) bool {
	return len(s) == 3 && s[0] >= '1' && s[0] <= '5' && strings.Trim(s, "0123456789X") == ""
}

// knownMethods are the methods of IANA's registry, and the methods that purge caches.
func knownMethods() []string {
	return []string{
		"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
		"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK", "MERGE", "MKACTIVITY", "MKCALENDAR",
		"MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH", "PRI", "PROPFIND", "PROPPATCH", "QUERY", "REBIND", "REPORT", "SEARCH",
		"UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL", "PURGE", "BAN",
	}
}

// pageViewRequests is what a browser may ask for to show one page, within a second or two: documents, scripts, styles, pictures, calls of
// the API.
const pageViewRequests = 50

// hazards reports what is legal in d and would hurt people who do nothing wrong, were the rule promoted. A rule without a block
// hurts nobody. What a block holds is asked of d.Reach, what brings somebody over the limit of d.Match.
func (d *Document) hazards(report func(Problem)) {
	if d.Block == nil {
		return
	}
	hazardOfReach(d, report)
	if passedByAPageView(d) {
		report(Problem{Field: "limit", Got: strconv.Itoa(d.Limit) + " in " + duration.Format(d.Window) + " for requests of every kind, which one page view of a browser may pass",
			Allowed: "a limit that ordinary clients stay below", Hint: "try it on a log: weir backtest LOG -f FILE --sweep limit=10,50,200,1000"})
	}
	hazardOfCooldown(d, report)
	if place := signsInBy(d); d.locksOut() && d.countsFailures() == "" && place != "" {
		report(Problem{Field: "block.key", Got: describeKey(d.Block.Key) + " for a " + place + " where clients sign in: whoever tries a stranger's name often enough has the stranger held",
			Allowed: "a key with the client's own address or device", Hint: "add ip: [" + traffic.FieldUser.String() + ", ip]"})
	}
}

// hazardOfReach is a block that leaves a client nothing.
func hazardOfReach(d *Document, report func(Problem)) {
	reach, place, which := d.Reach(), "match", "a match without path and host, and a block"
	if d.Block.Match != nil {
		place, which = "block.match", "a block.match without path and host"
	}
	if everyPath(&reach) && len(reach.Hosts) == 0 && len(reach.Routes) == 0 {
		report(Problem{Field: place, Got: which + ": it holds every request of a client, to whatever it asks for",
			Allowed: "the paths or the host that are abused", Hint: "name " + place + ".path or " + place + ".host"})
	}
}

// hazardOfCooldown is a cooldown that does not go with the window, or the block.
func hazardOfCooldown(d *Document, report func(Problem)) {
	every := d.UpdateEvery()
	field, got := "cooldown", duration.Format(every)+", longer than the window of "+duration.Format(d.Window)
	if d.Cooldown == 0 {
		field, got = "window", duration.Format(d.Window)+", shorter than the cooldown of "+duration.Format(every)+", which is the default"
	}
	if every > d.Window {
		report(Problem{Field: field, Got: got + ": of a hit that goes on for a whole window nothing is told but its beginning, and its block is not extended meanwhile",
			Allowed: "a cooldown of at most the window", Hint: "write cooldown: " + duration.Format(d.Window)})
	}
	if d.Block.Extend == ExtendOnHit && d.Block.TTL < every {
		report(Problem{Field: "block.ttl", Got: duration.Format(d.Block.TTL) + ", shorter than the cooldown of " + duration.Format(every) + ": between two updates of a running hit the block ends, and a client is let in and out by turns",
			Allowed: "at least the cooldown", Hint: "raise block.ttl, or lower cooldown"})
	}
}

// lockout is the problem of a rule that counts failed attempts and would block the name that was tried, whoever tried it; nil
// where it does not. What was stored before there was a status to match cannot have it, so that only files are asked.
func (d *Document) lockout() *Problem {
	failures := d.countsFailures()
	if !d.locksOut() || failures == "" {
		return nil
	}
	return &Problem{Field: "block.key", Got: describeKey(d.Block.Key) + " for failed attempts (" + failures + "): whoever fails under a stranger's name often enough has the stranger held",
		Allowed: "a key with the client's own address or device", Hint: "add ip: [" + traffic.FieldUser.String() + ", ip]"}
}

// locksOut reports whether a block would hold a user wherever he is.
func (d *Document) locksOut() bool {
	return d.Block != nil && len(d.Block.Key) > 0 &&
		!slices.ContainsFunc(d.Block.Key, func(k traffic.KeyField) bool { return k.Field != traffic.FieldUser })
}

// countsFailures is what says that d counts only requests that were refused, some of them for want of the right credentials; empty
// where nothing does.
func (d *Document) countsFailures() string {
	signsIn := signsInBy(d) != ""
	if wrongCredentials(d.Match.Statuses, signsIn) {
		return "status " + strings.Join(d.Match.Statuses, ", ")
	}
	return refusedStatus(d.Match.When, signsIn)
}

// wrongCredentials reports whether statuses are those of failures only, and one of them is the answer to wrong credentials: 401 or 403
// anywhere, and any of a client's mistakes where clients sign in, as 400 and 422 are for some APIs.
func wrongCredentials(statuses []string, signsIn bool) bool {
	found := false
	for _, status := range statuses {
		switch {
		case status == "401" || status == "403" || status == "4xx" || signsIn && strings.HasPrefix(status, "4"):
			found = true
		case !strings.HasPrefix(status, "4") && !strings.HasPrefix(status, "5"):
			return false
		}
	}
	return found
}

// refusedStatus is the part of a condition that holds of statuses of wrong credentials only, where it is plain to see: one of parts that
// must all hold. Empty for any other condition, also for one that says the same in another way.
func refusedStatus(when string, signsIn bool) string {
	if strings.ContainsAny(when, "|?") || strings.Contains(when, "//") { // an alternative, or a comment
		return ""
	}
	found, bounds, more := "", "", false
	for part := range strings.SplitSeq(when, "&&") {
		part = strings.TrimSpace(part)
		for _, pair := range []string{"()", "[]", "{}"} {
			if strings.Count(part, pair[:1]) != strings.Count(part, pair[1:]) {
				return "" // the && is within something
			}
		}
		if strings.Count(part, `"`)%2+strings.Count(part, "'")%2 > 0 {
			return ""
		}
		switch names, from := statusesOf(strings.ReplaceAll(part, " ", "")); {
		case wrongCredentials(names, signsIn) && from:
			bounds = part
		case wrongCredentials(names, signsIn):
			found = part
		case strings.Contains(part, "status"):
			more = more || !from // some other condition on it may leave these statuses out
		}
	}
	if found == "" && !more {
		return bounds
	}
	return found
}

// statusesOf are the statuses that a part of a condition names, written without spaces; none for any other part. from says that it is a
// bound of statuses: from 400 on they are 4xx and 5xx, and what ends behind 4xx is none.
func statusesOf(part string) (names []string, from bool) {
	rest, ok := strings.CutPrefix(part, "event.status")
	if !ok {
		return nil, false
	}
	switch rest {
	case ">=400", ">399":
		return []string{"4xx", "5xx"}, true
	case "<500", "<=499", "<600", "<=599":
		return nil, true
	}
	if list, ok := strings.CutPrefix(rest, "in["); ok && strings.HasSuffix(list, "]") {
		names = strings.Split(strings.TrimSuffix(list, "]"), ",")
	} else if one, ok := strings.CutPrefix(rest, "=="); ok {
		names = []string{one}
	}
	if slices.ContainsFunc(names, func(s string) bool { return checkStatus(s) != "" || s[1:] == "xx" }) {
		return nil, false
	}
	return names, false
}

// passedByAPageView reports whether one page view may bring a client above the limit.
func passedByAPageView(d *Document) bool {
	m := &d.Match
	if !everyPath(m) || len(m.Routes) > 0 || m.When != "" || len(d.Key) == 0 {
		return false
	}
	if len(m.Statuses) > 0 && !slices.ContainsFunc(m.Statuses, func(s string) bool { return s == "200" || s == "2xx" || s == "304" || s == "3xx" }) {
		return false
	}
	ofPath := func(k traffic.KeyField) bool { return k.Field == traffic.FieldPath }
	if d.Count.Kind() != CountEvents && !slices.ContainsFunc(d.Count.Tuple, ofPath) && (d.Count.Distinct == nil || !ofPath(*d.Count.Distinct)) {
		return false
	}
	reads := len(m.Methods) == 0 || slices.Contains(m.Methods, "GET")
	return reads && max(d.Limit, d.Capacity()) < pageViewRequests
}

// everyPath reports whether m matches every path, but for those that it leaves out.
func everyPath(m *Match) bool {
	paths := m.paths()
	return len(paths) == 0 || slices.Contains(paths, "*") || slices.Contains(paths, "/*")
}

// signsInBy is what of the requests that d counts looks like clients signing in: a path, a host or a route; empty where nothing does. Of
// a rule that counts every path, what it holds is asked.
func signsInBy(d *Document) string {
	m := d.Match
	if reach := d.Reach(); everyPath(&m) && len(m.Hosts)+len(m.Routes) == 0 {
		m = reach
	}
	words := []string{"login", "log-in", "log_in", "logon", "signin", "sign-in", "sign_in", "/session", "/auth", "password", "/token"}
	switch {
	case slices.ContainsFunc(m.paths(), hasOneOf(words)):
		return "path"
	case slices.ContainsFunc(m.Hosts, hasOneOf([]string{"login", "logon", "signin", "sign-in", "auth."})):
		return "host"
	case slices.ContainsFunc(m.Routes, hasOneOf(words)):
		return "route"
	}
	return ""
}

func hasOneOf(words []string) func(text string) bool {
	return func(text string) bool {
		text = strings.ToLower(text)
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
	}
}
