package rules

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// warned parses documents of a deployment whose identity map has a header for the device, and no source for the user.
func warned(t *testing.T, src string) (warnings []string, err error) {
	t.Helper()
	env := Environment{Identity: traffic.DefaultIdentityMap()}
	env.Identity.Device, env.Identity.User = traffic.FieldSource{Header: "X-Device-Id"}, traffic.FieldSource{}
	env.Warn = func(p Problem) { warnings = append(warnings, p.Error()) }
	_, err = ParseFiles([]File{{Name: "r.yaml", Src: []byte(src)}}, env)
	return warnings, err
}

func TestWhatIsProbablyNotMeantIsWarnedAbout(t *testing.T) {
	const registered = "allowed methods that requests have, such as GET or POST"
	for _, tt := range []struct{ match, key, more, want string }{
		{`{method: "404"}`, "[ip]", "", `r.yaml:3:17: match.method[0]: got "404", which is no registered method, ` + registered + `; did you mean match.status?`},
		{`{method: 4xx}`, "[ip]", "", `r.yaml:3:17: match.method[0]: got "4XX", which is no registered method, ` + registered + `; did you mean match.status?`},
		{`{method: [GET, PSOT]}`, "[ip]", "", `r.yaml:3:23: match.method[1]: got "PSOT", which is no registered method, ` + registered + `; did you mean POST?`},
		{`{method: X-FROBNICATE}`, "[ip]", "", `r.yaml:3:17: match.method[0]: got "X-FROBNICATE", which is no registered method, ` + registered},
		{`{path: v1/login}`, "[ip]", "", `r.yaml:3:15: match.path: got "v1/login", which does not begin with /, allowed a path as requests have it, from the first / on; did you mean "/v1/login"?`},
		{`{path: "{tenant}/login"}`, "[ip]", "", `r.yaml:3:15: match.path: got "{tenant}/login", which does not begin with /, allowed a path as requests have it, from the first / on; did you mean "/{tenant}/login"?`},
		{`{path: api*}`, "[ip]", "", `r.yaml:3:15: match.path: got "api*", which does not begin with /, allowed a path as requests have it, from the first / on; did you mean "/api*"?`},
		{`{path: "^/login$"}`, "[ip]", "", noRegex("^/login$", "^ $", "/login")},
		{`{path: "/v1/.*"}`, "[ip]", "", noRegex("/v1/.*", ".*", "/v1/*")},
		{`{path: '^/users/\d+/posts$'}`, "[ip]", "", noRegex(`^/users/\d+/posts$`, `^ $ \ +`, "/users/{id}/posts")},
		{`{path: '/users/([^/]+)$'}`, "[ip]", "", noRegex("/users/([^/]+)$", "^ $ ( [ +", "/users/{id}")},
		{`{path: "/(login|signin)"}`, "[ip]", "", noRegex("/(login|signin)", "( |", "")},
		{`{path: 'login\.php'}`, "[ip]", "", noRegex(`login\.php`, `\`, "")},
		{`{path: "/c++"}`, "[ip]", "", noRegex("/c++", "+", "")},
		{`{path: "/files.txt"}`, "[ip]", "", ""},
		{`{path: "/~ann/a-b_c.d:e@f!g,h;i=j&k"}`, "[ip]", "", ""},
		{`{}`, "[ip, user]", "", `r.yaml:4:11: key[1]: got user, for which the identity map has no source: every event lacks it, allowed fields that events carry; name its header or cookie in identity.user of the configuration`},
		{`{}`, "[ip]", "count: {distinct: user}", `r.yaml:7:19: count.distinct: got user, for which the identity map has no source: every event lacks it, allowed fields that events carry; name its header or cookie in identity.user of the configuration`},
		{`{method: [get, Head, PROPFIND], path: /v1/*}`, "[ip]", "count: {distinct: device}", ""},
		{`{path: "*"}`, "[]", "", ""},
		{`{method: OPTIONS, path: "*"}`, "[ip]", "", ""},
		{`{method: CONNECT, path: "example.com:443"}`, "[ip]", "", ""},
		{`{path: "/{a}/b*"}`, "[{field: ip, v4: 24}]", "", ""},
	} {
		src := "id: r\nowner: tests\nmatch: " + tt.match + "\nkey: " + tt.key + "\nlimit: 1\nwindow: 1m\n" + tt.more + "\n"
		got, err := warned(t, src)
		want := []string{tt.want}
		if tt.want == "" {
			want = nil
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s %s %s: %v\ngot  %q\nwant %q", tt.match, tt.key, tt.more, err, got, want)
		}
	}
}

// noRegex is the warning about a path that holds signs of a regular expression.
func noRegex(path, signs, meant string) string {
	text := "r.yaml:3:15: match.path: got " + strconv.Quote(path) + ", which looks like a regular expression (" + signs + "), " +
		"allowed segments as requests have them, {name} for any one, and a * at the end"
	if meant != "" {
		text += "; did you mean " + strconv.Quote(meant) + "?"
	}
	return text
}

// A document with a problem is not warned about, and one that is warned about is taken.
func TestWarningsAreNoProblems(t *testing.T) {
	const bad = "id: r\nowner: tests\nmatch: {method: \"404\"}\nkey: [ip]\nlimit: -1\nwindow: 1m\n"
	if got, err := warned(t, bad); err == nil || len(got) > 0 {
		t.Errorf("problem %v, warnings %q", err, got)
	}
	d := Document{ID: "r", Owner: "tests", Match: Match{Methods: []string{"404"}, Path: "v1"}, Key: []traffic.KeyField{{Field: traffic.FieldUser}},
		Missing: MissingSkip, Limit: 1, Window: MinWindow, MaxLag: MinMaxLag}
	if err := d.Validate(Environment{Identity: traffic.DefaultIdentityMap()}); err != nil {
		t.Errorf("a stored rule with what is warned about is refused: %v", err)
	}
}

// The rules that weir ships are what a reader starts from.
func TestExamplesAreNotWarnedAbout(t *testing.T) {
	env := testEnvironment()
	env.Warn = func(p Problem) { t.Error(p) }
	for _, src := range []*traffic.FieldSource{&env.Identity.Device, &env.Identity.User, &env.Identity.APIKey, &env.Identity.Session} {
		src.Header = "X-Some"
	}
	if docs, err := LoadDir(os.DirFS("../examples/rules"), ".", env); err != nil || len(docs) == 0 {
		t.Errorf("%d examples, %v", len(docs), err)
	}
}
