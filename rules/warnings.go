package rules

import (
	"slices"
	"strconv"
	"strings"
	"time"

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
	warnConditions(d, env, report)
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

// pageViewRequests is what a browser may ask for to show one page: documents, scripts, styles, pictures, calls of the API.
const pageViewRequests = 50

// hazards reports what is legal in d and would hurt people who do nothing wrong, were the rule promoted. A rule without a block
// hurts nobody.
func (d *Document) hazards(report func(Problem)) {
	if d.Block == nil {
		return
	}
	everything := everyPath(&d.Match) && len(d.Match.Hosts) == 0 && len(d.Match.Routes) == 0
	if everything {
		report(Problem{Field: "match", Got: "a match without path and host, and a block: it holds every request of a client, to whatever it asks for",
			Allowed: "the paths or the host that are abused", Hint: "name match.path or match.host"})
	}
	if everything && passedByAPageView(d) {
		report(Problem{Field: "limit", Got: strconv.Itoa(d.Limit) + " in " + duration.Format(d.Window) + " for requests of every kind, which one page view of a browser may pass",
			Allowed: "a limit that ordinary clients stay below", Hint: "try it on a log: weir backtest LOG -f FILE --sweep limit=10,50,200,1000"})
	}
	if d.Cooldown > d.Window {
		report(Problem{Field: "cooldown", Got: duration.Format(d.Cooldown) + ", longer than the window of " + duration.Format(d.Window) + ": a running hit is told of once, however long it goes on",
			Allowed: "at most the window", Hint: leaveOut})
	}
	if every := d.UpdateEvery(); d.Block.Extend == ExtendOnHit && d.Block.TTL < every {
		report(Problem{Field: "block.ttl", Got: duration.Format(d.Block.TTL) + ", shorter than the cooldown of " + duration.Format(every) + ": between two updates of a running hit the block ends, and a client is let in and out by turns",
			Allowed: "at least the cooldown", Hint: "raise block.ttl, or lower cooldown"})
	}
	if d.locksOut() && d.countsFailures() == "" && signsIn(&d.Match) {
		report(Problem{Field: "block.key", Got: describeKey(d.Block.Key) + " for a path where clients sign in: whoever tries a stranger's name often enough has the stranger held",
			Allowed: "a key with the client's own address or device", Hint: "add ip: [" + traffic.FieldUser.String() + ", ip]"})
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

// countsFailures is what says that d counts only requests that were refused for want of the right credentials; empty where
// nothing does.
func (d *Document) countsFailures() string {
	refused := func(status string) bool { return status == "401" || status == "403" || status == "4xx" }
	if len(d.Match.Statuses) > 0 && !slices.ContainsFunc(d.Match.Statuses, func(s string) bool { return !refused(s) }) {
		return "status " + strings.Join(d.Match.Statuses, ", ")
	}
	return refusedStatus(d.Match.When)
}

// refusedStatus is the part of a condition that holds of statuses 401 and 403 only, where it is plain to see: one of parts that
// must all hold. Empty for any other condition, also for one that says the same in another way.
func refusedStatus(when string) string {
	if strings.ContainsAny(when, "|?") || strings.Contains(when, "//") { // an alternative, or a comment
		return ""
	}
	found := ""
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
		switch plain := strings.ReplaceAll(part, " ", ""); plain {
		case "event.status==401", "event.status==403", "event.statusin[401]", "event.statusin[403]", "event.statusin[401,403]", "event.statusin[403,401]":
			found = part
		}
	}
	return found
}

// passedByAPageView reports whether one page view may bring a client above the limit.
func passedByAPageView(d *Document) bool {
	const view = 10 * time.Second // within which a page has what it needs
	if d.Count.Kind() != CountEvents || len(d.Match.Statuses) > 0 || d.Match.When != "" || len(d.Key) == 0 || d.Window < view {
		return false
	}
	reads := len(d.Match.Methods) == 0 || slices.Contains(d.Match.Methods, "GET")
	return reads && max(d.Limit, d.Capacity()) < pageViewRequests
}

// everyPath reports whether m leaves no path out.
func everyPath(m *Match) bool {
	return (m.Path == "" || m.Path == "*" || m.Path == "/*") && len(m.Paths) == 0
}

// signsIn reports whether a path of m looks like one where clients sign in.
func signsIn(m *Match) bool {
	for _, path := range append([]string{m.Path}, m.Paths...) {
		path = strings.ToLower(path)
		for _, word := range []string{"login", "log-in", "logon", "signin", "sign-in", "/session", "/auth", "password", "/token"} {
			if strings.Contains(path, word) {
				return true
			}
		}
	}
	return false
}
