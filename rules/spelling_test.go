package rules

import "testing"

func TestReaches(t *testing.T) {
	tokens := Match{Methods: []string{"POST"}, Path: "/v1/guest-tokens"}
	item := Match{Path: "/files/{id}"}
	tree := Match{Path: "/v2/*"}
	tests := []struct {
		match        Match
		method, path string
		want         bool
	}{
		{tokens, "POST", "/v1/guest-tokens", true},
		{tokens, "post", "/v1/guest-tokens?x=1", true},
		{tokens, "GET", "/v1/guest-tokens", false},
		{tokens, "POST", "/v1/%67uest-tokens", true},
		{tokens, "POST", "/v1/guest%2Dtokens", true},
		{tokens, "POST", "/v1%2Fguest-tokens", true},
		{tokens, "POST", "/v1%2fguest-tokens", true},
		{tokens, "POST", "//v1//guest-tokens", true},
		{tokens, "POST", "/v1/./guest-tokens", true},
		{tokens, "POST", "/v1/x/../guest-tokens", true},
		{tokens, "POST", "/v1/x/%2e%2E/guest-tokens", true},
		{tokens, "POST", "/v1/guest-tokens/", true},
		{tokens, "POST", "/v1/guest-tokens/.", true},
		{tokens, "POST", "/v1/guest-tokens%3Fx", false},
		{tokens, "POST", "/v1/guest-token", false},
		{tokens, "POST", "/v1/guest-tokens/1", false},
		{tokens, "POST", "/v1/%2567uest-tokens", false}, // twice encoded: nobody decodes twice by right
		{tokens, "POST", "%", false},
		{tokens, "POST", "", false},
		{item, "GET", "/files/a%2Fb", true},
		{item, "GET", "/files//a", true},
		{item, "GET", "/files/", false},
		{tree, "GET", "/v2", false},
		{tree, "GET", "/v1/../v2/a", true},
		{tree, "GET", "/v1/a", false},
		{Match{Path: "/a%20b"}, "GET", "/x/../a%20b", true},
		{Match{}, "GET", "anything", true},
	}
	for _, tt := range tests {
		if got := tt.match.Reaches(tt.method, tt.path); got != tt.want {
			t.Errorf("%+v reaches %s %q: %v, want %v", tt.match, tt.method, tt.path, got, tt.want)
		}
	}
	plain := testing.AllocsPerRun(100, func() { tokens.Reaches("POST", "/v1/other"); tokens.Reaches("POST", "/v1/guest-tokens") })
	if plain != 0 {
		t.Errorf("%v allocations for ordinary paths", plain)
	}
}

// FuzzReaches holds that nothing which matches is let go.
func FuzzReaches(f *testing.F) {
	f.Add("/v1/{id}/*", "/v1/a/b")
	f.Add("/a%2Fb", "/a%2fb")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		m := Match{Path: pattern}
		if m.Matches("GET", path) && !m.Reaches("GET", path) {
			t.Errorf("%q matches %q and does not reach it", pattern, path)
		}
	})
}
