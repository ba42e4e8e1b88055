package rules

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

func TestWhatWouldHurtPeopleIsWarnedAbout(t *testing.T) {
	const (
		whole  = "match: got a match without path and host, and a block: it holds every request of a client, to whatever it asks for, allowed the paths or the host that are abused; name match.path or match.host"
		page   = "limit: got 49 in 1m for requests of every kind, which one page view of a browser may pass, allowed a limit that ordinary clients stay below; try it on a log: weir backtest LOG -f FILE --sweep limit=10,50,200,1000"
		slow   = "limit: got 9 in 2s for requests of every kind, which one page view of a browser may pass, allowed a limit that ordinary clients stay below; try it on a log: weir backtest LOG -f FILE --sweep limit=10,50,200,1000"
		held   = "block.match: got a block.match without path and host: it holds every request of a client, to whatever it asks for, allowed the paths or the host that are abused; name block.match.path or block.match.host"
		longer = "cooldown: got 2m, longer than the window of 1m: of a hit that goes on for a whole window nothing is told but its beginning, and its block is not extended meanwhile, allowed a cooldown of at most the window; write cooldown: 1m"
		lapses = "block.ttl: got 30s, shorter than the cooldown of 1m: between two updates of a running hit the block ends, and a client is let in and out by turns, allowed at least the cooldown; raise block.ttl, or lower cooldown"
		named  = "block.key: got [user] for a path where clients sign in: whoever tries a stranger's name often enough has the stranger held, allowed a key with the client's own address or device; add ip: [user, ip]"
	)
	for _, tt := range []struct {
		match, more string
		limit       string
		block       string
		want        []string
	}{
		{"{}", "", "49", "{ttl: 1m}", []string{whole, page}},
		// What is held is that of the block's own match, where it has one.
		{"{path: /v1/*}", "", "9", "{ttl: 1m, match: {}}", []string{held}},
		{"{path: /v1/*}", "", "9", "{ttl: 1m, match: {method: POST}}", []string{held}},
		{"{path: /v1/*}", "", "9", `{ttl: 1m, match: {path: ["/*", /v1]}}`, []string{held}},
		{"{path: /v1/*}", "", "9", "{ttl: 1m, match: {host: a.example.com}}", nil},
		{"{path: /v1/*}", "", "9", "{ttl: 1m, match: {path: /v1/a}}", nil},
		{"{}", "", "50", "{ttl: 1m, match: {path: /v1/a}}", nil},
		{"{}", "", "49", "{ttl: 1m, match: {path: /v1/a}}", []string{page}},
		{"{}", "", "50", "{ttl: 1m, match: {path: [/v1/a, \"/*\"]}}", []string{held}},
		{`{path: ["/*", /v1/a]}`, "", "49", "{ttl: 1m}", []string{whole, page}},
		// A page view of one host, of its answers or of its paths is one, too, and it does not take ten seconds.
		{"{host: a.example.com}", "", "49", "{ttl: 1m}", []string{page}},
		{"{host: a.example.com}", "", "50", "{ttl: 1m}", nil},
		{"{host: a.example.com, path: /v1/a}", "", "49", "{ttl: 1m}", nil},
		{"{route: films}", "", "49", "{ttl: 1m, match: {path: /films}}", nil},
		{"{host: a.example.com}", "cooldown: 2s\nwindow: 2s", "9", "{ttl: 1m}", []string{slow}},
		{"{host: a.example.com, status: [2xx, 304]}", "", "49", "{ttl: 1m, match: {host: a.example.com}}", []string{page}},
		{"{host: a.example.com, status: [404, 5xx]}", "", "49", "{ttl: 1m, match: {host: a.example.com}}", nil},
		{"{host: a.example.com}", "count: {distinct: path}", "49", "{ttl: 1m}", []string{page}},
		{"{host: a.example.com}", "count: {distinct: [method, path]}", "49", "{ttl: 1m}", []string{page}},
		{"{host: a.example.com}", "count: {distinct: device}", "49", "{ttl: 1m}", nil},
		// Where clients sign in.
		{"{path: /users/sign_in}", "", "49", "{ttl: 1m, key: [user]}", []string{named}},
		{"{path: /films, host: login.example.com}", "", "49", "{ttl: 1m, key: [user]}", []string{strings.Replace(named, "a path", "a host", 1)}},
		{"{path: /films, route: do-login}", "", "49", "{ttl: 1m, key: [user], match: {path: /films}}", []string{strings.Replace(named, "a path", "a route", 1)}},
		{"{}", "", "50", "{ttl: 1m, key: [user], match: {path: /login}}", []string{named}},
		{"{path: /films}", "", "50", "{ttl: 1m, key: [user], match: {path: /login}}", nil}, // no stranger's name is tried there
		{"{}", "", "49", "", nil}, // nobody is held
		{"{}", "", "50", "{ttl: 1m}", []string{whole}},
		{"{}", "count: {distinct: device}", "49", "{ttl: 1m}", []string{whole}},
		{"{}", "algorithm: token-bucket\nburst: 50", "49", "{ttl: 1m}", []string{whole}},
		{"{method: POST}", "", "49", "{ttl: 1m}", []string{whole}},
		{"{method: [GET, POST]}", "", "49", "{ttl: 1m}", []string{whole, page}},
		{`{path: "/*"}`, "", "49", "{ttl: 1m}", []string{whole, page}},
		{"{path: /v1/*}", "", "49", "{ttl: 1m}", nil},
		{"{path: /v1/*}", "cooldown: 2m", "49", "{ttl: 2m}", []string{longer}},
		{"{path: /v1/*}", "cooldown: 1m", "49", "{ttl: 1m}", nil},
		{"{path: /v1/*}", "", "49", "{ttl: 30s}", []string{lapses}},
		{"{path: /v1/*}", "", "49", "{ttl: 30s, extend: never}", nil},
		{"{path: /v1/*}", "cooldown: 30s", "49", "{ttl: 30s}", nil},
		{"{path: /Login}", "", "49", "{ttl: 1m, key: [user]}", []string{named}},
		{"{path: /v1/sessions}", "", "49", "{ttl: 1m, key: [user]}", []string{named}},
		{"{path: /Login}", "", "49", "{ttl: 1m, key: [ip, user]}", nil},
		{"{path: /Login}", "", "49", "{ttl: 1m, key: [ip]}", nil},
		{"{path: /films}", "", "49", "{ttl: 1m, key: [user]}", nil},
	} {
		src := "id: r\nowner: tests\nmatch: " + tt.match + "\nkey: [ip, user]\nlimit: " + tt.limit + "\n" + tt.more + "\n"
		if !strings.Contains(tt.more, "window") {
			src += "window: 1m\n"
		}
		if tt.block != "" {
			src += "block: " + tt.block + "\n"
		}
		env := Environment{Identity: traffic.DefaultIdentityMap()}
		env.Identity.User = traffic.FieldSource{Header: "X-User", Vouched: true}
		var got []string
		env.Warn = func(p Problem) {
			text := p.Error()
			got = append(got, text[strings.Index(text, ": ")+2:])
		}
		if _, err := ParseFiles([]File{{Name: "r.yaml", Src: []byte(src)}}, env); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s\n%v\ngot  %q\nwant %q", src, err, got, tt.want)
		}
	}
}

func TestFailedAttemptsBlockNobodyByNameAlone(t *testing.T) {
	user, ip := traffic.KeyField{Field: traffic.FieldUser}, traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}
	for _, tt := range []struct {
		statuses []string
		key      []traffic.KeyField
		refused  bool
	}{
		{[]string{"401"}, []traffic.KeyField{user}, true},
		{[]string{"401", "403"}, []traffic.KeyField{user}, true},
		{[]string{"4xx"}, []traffic.KeyField{user}, true},
		{[]string{"200", "401"}, []traffic.KeyField{user}, false},
		{[]string{"401", "422"}, []traffic.KeyField{user}, true},
		{[]string{"4xx", "5xx"}, []traffic.KeyField{user}, true},
		{[]string{"404", "422"}, []traffic.KeyField{user}, false}, // of what is no sign-in
		{[]string{"5xx"}, []traffic.KeyField{user}, false},
		{nil, []traffic.KeyField{user}, false},
		{[]string{"401"}, []traffic.KeyField{ip, user}, false},
		{[]string{"401"}, []traffic.KeyField{ip}, false},
	} {
		d := Document{Match: Match{Statuses: tt.statuses}, Key: tt.key, Block: &Block{Key: tt.key}}
		p := d.lockout()
		if (p != nil) != tt.refused {
			t.Errorf("status %v, block key %s: got %v", tt.statuses, describeKey(tt.key), p)
		}
		if p != nil && (p.Field != "block.key" || !strings.Contains(p.Error(), "has the stranger held") || !strings.Contains(p.Hint, "add ip")) {
			t.Errorf("%v", p)
		}
		if d.Block = nil; d.lockout() != nil {
			t.Errorf("status %v without a block", tt.statuses)
		}
	}
}

// Where clients sign in, any of a client's mistakes is a failed attempt.
func TestFailedSignInsHaveOtherStatuses(t *testing.T) {
	for match, refused := range map[string]bool{
		"{path: /login, status: 422}": true, "{path: /login, status: [400, 429]}": true, "{path: /login, status: 4XX}": true, "{path: /films, status: 422}": false,
		"{path: /login, when: event.status == 422}": true, "{path: /login, when: event.status == 200}": false, "{path: /login, status: [200, 422]}": false,
		`{path: /login, status: ""}`: true, // it is no status, and no failure either
	} {
		src := "id: r\nowner: tests\nmatch: " + match + "\nkey: [user]\nlimit: 9\nwindow: 1m\nblock: {ttl: 1m, match: {path: /login}}\n"
		env := testEnvironment()
		env.Identity.User.Vouched = true
		_, err := ParseFiles([]File{{Name: "r.yaml", Src: []byte(src)}}, env)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "for failed attempts (") && !strings.Contains(match, `""`) {
			t.Errorf("%s: got %v, want refused %v", match, err, refused)
		}
	}
}

// Windows below the default of cooldown are told of: nobody has written what is above them.
func TestAShortWindowWithTheDefaultCooldown(t *testing.T) {
	env := testEnvironment()
	var got []string
	env.Warn = func(p Problem) { got = append(got, p.Error()) }
	src := "id: r\nowner: tests\nmatch: {path: /login}\nkey: [ip]\nlimit: 9\nwindow: 59s\nblock: {ttl: 1m}\n"
	if _, err := ParseFiles([]File{{Name: "r.yaml", Src: []byte(src)}}, env); err != nil || len(got) != 1 ||
		!strings.HasPrefix(got[0], "r.yaml:6:9: window: got 59s, shorter than the cooldown of 1m, which is the default: ") || !strings.HasSuffix(got[0], "; write cooldown: 59s") {
		t.Errorf("%q, %v", got, err)
	}
}

// A condition on the status is the same as a status, where it is plain to see. Nobody is refused for one that is not.
func TestFailuresAreSeenInPlainConditions(t *testing.T) {
	for when, refused := range map[string]bool{
		"event.status == 401":                              true,
		"event.status==403":                                true,
		"event.status in [401, 403]":                       true,
		"event.method == 'POST' && event.status == 401":    true,
		"event.status == 401 && event.attrs.mfa == false":  true,
		"(event.attrs.a + 1 > 2) && event.status in [403]": true,
		"":                    false,
		"event.status == 200": false,
		"event.status != 401": false,
		"event.status == 401 || event.status == 200":                           false,
		"event.method == 'POST' && (event.status == 401 || event.user == 'a')": false,
		"!(event.user == 'a' && event.status == 401 && event.host == 'b')":     false,
		`event.path == "a && event.status == 401 && b"`:                        false,
		"event.status == 401 ? false : true":                                   false,
		"event.user == 'a' // && event.status == 401":                          false,
		"event.status in [401, 404]":                                           true,
		"event.status in [401, 200]":                                           false,
		"event.status in [404, 422]":                                           false,
		"event.status >= 400 && event.status < 500":                            true,
		"event.status > 399":                                                   true,
		"event.status >= 400 && event.status != 401 && event.status != 403":    false,
		"event.status >= 500":                                                  false,
	} {
		src := "id: r\nowner: tests\nmatch: {path: /x, when: " + quoteYAML(when) + "}\nkey: [user]\nlimit: 9\nwindow: 1m\nblock: {ttl: 1m, match: {path: /x}}\n"
		if when == "" {
			src = strings.Replace(src, ", when: ''", "", 1)
		}
		env := testEnvironment()
		env.Identity.User.Vouched = true
		_, err := ParseFiles([]File{{Name: "r.yaml", Src: []byte(src)}}, env)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "for failed attempts (event.status") {
			t.Errorf("%s: got %v, want refused %v", when, err, refused)
		}
	}
}

func quoteYAML(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
