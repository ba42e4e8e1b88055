package rules

import (
	"slices"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// warn reports what is legal in d and probably not meant: a match that no request has, and fields that no event carries. A
// rule that has such a thing may never count anything, and nobody would notice.
func (d *Document) warn(env Environment, report func(Problem)) {
	for i, m := range d.Match.Methods {
		if slices.Contains(knownMethods(), m) {
			continue
		}
		p := Problem{Field: element("match.method", i), Got: quoteShort(m) + ", which is no registered method",
			Allowed: "methods that requests have, such as GET or POST"}
		if meant := Nearest(m, knownMethods()); meant != "" {
			p.Hint = "did you mean " + meant + "?"
		} else if isStatus(m) {
			p.Hint = "a status cannot be matched"
		}
		report(p)
	}
	if signs := regexSigns(d.Match.Path); signs != "" {
		p := Problem{Field: "match.path", Got: quoteShort(d.Match.Path) + ", which looks like a regular expression (" + signs + ")",
			Allowed: "segments as requests have them, {name} for any one, and a * at the end"}
		if meant := withoutRegex(d.Match.Path); meant != "" {
			p.Hint = "did you mean " + quoteShort(meant) + "?"
		}
		report(p)
	} else if d.Match.pathless() {
		report(Problem{Field: "match.path", Got: quoteShort(d.Match.Path) + ", which does not begin with /",
			Allowed: "a path as requests have it, from the first / on", Hint: "did you mean " + quoteShort("/"+d.Match.Path) + "?"})
	}
	carried := func(place string, k traffic.KeyField) {
		if !env.Identity.Carries(k.Field) {
			report(Problem{Field: place, Got: k.Field.String() + ", for which the identity map has no source: every event lacks it",
				Allowed: "fields that events carry", Hint: "name its header or cookie in identity." + k.Field.String() + " of the configuration"})
		}
	}
	for i, k := range d.Key {
		carried(element("key", i), k)
	}
	if d.Count.Distinct != nil {
		carried("count.distinct", *d.Count.Distinct)
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
	if !strings.HasPrefix(path, "/") || regexSigns(path) != "" || checkPath(path) != "" {
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
