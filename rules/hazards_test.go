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
		longer = "cooldown: got 2m, longer than the window of 1m: a running hit is told of once, however long it goes on, allowed at most the window; leave the field out for the default"
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
		src := "id: r\nowner: tests\nmatch: " + tt.match + "\nkey: [ip, user]\nlimit: " + tt.limit + "\nwindow: 1m\n" + tt.more + "\n"
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
		"event.status in [401, 404]":                                           false,
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
