package adversary

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// spellings are request targets that some server may take for the watched operation, and neighbours of theirs.
func spellings() []string {
	targets := []string{
		"/v1/guest-tokens", "/v1/guest-tokens?", "/v1/guest-tokens?a=b", "/v1/guest-tokens??x", "/v1/guest-tokens?/../x", "/v1/guest-tokens&a=b",
		// escapes
		"/v1/%67uest-tokens", "/v1/guest%2dtokens", "/v1/guest%2Dtokens", "/%76%31/%67%75%65%73%74%2d%74%6f%6b%65%6e%73", "/v1/guest-token%73",
		"/v1%2fguest-tokens", "/v1%2Fguest-tokens", "%2fv1%2fguest-tokens", "/%2fv1/guest-tokens", "/v1/%2fguest-tokens", "/v1/guest-tokens%2f",
		"/v1/%2e/guest-tokens", "/v1/%2E%2e/v1/guest-tokens", "/v1/x/%2e%2e/guest-tokens", "/v1/x/..%2fguest-tokens", "/v1%2fx%2f..%2fguest-tokens",
		"/v1/guest-tokens%3fa=b", "/v1/guest-tokens%23f", "/v1/guest-tokens%3ba=b", "/v1/guest-tokens%20", "/v1/guest-tokens%09", "/v1/guest-tokens%0a",
		"/v1/guest-tokens%0d%0a", "/v1/guest-tokens%00", "/v1/guest-tokens%00.html", "/v1/%00guest-tokens", "/v1/guest-tokens%", "/v1/guest-tokens%6",
		"/v1/guest-tokens%zz", "/v1/%u0067uest-tokens", "/v1/gu%65st-tokens%", "/v1/guest-tokens%a0", "/v1/guest-tokens%ff", "/v1/guest-tokens%c2%a0",
		// escapes of escapes
		"/v1/%2567uest-tokens", "/v1%252fguest-tokens", "/v1/x/%252e%252e/guest-tokens", "/v1/guest-tokens%253f", "/v1/%252567uest-tokens",
		// empty and dot segments
		"//v1/guest-tokens", "///v1/guest-tokens", "/v1//guest-tokens", "//v1//guest-tokens//", "/v1/guest-tokens/", "/v1/guest-tokens//",
		"/./v1/guest-tokens", "/v1/./guest-tokens", "/v1/guest-tokens/.", "/v1/guest-tokens/./", "/v1/guest-tokens/..", "/v1/x/../guest-tokens",
		"/x/../v1/guest-tokens", "/x/y/../../v1/guest-tokens", "/../v1/guest-tokens", "/../../v1/guest-tokens", "/v1/guest-tokens/x/..",
		"/v1/x/..//guest-tokens", "/v1/x//../guest-tokens", "/v1/.../guest-tokens", "/v1/guest-tokens.", "/v1/guest-tokens..", "/x//../v1/guest-tokens",
		// hosts that are none: a reader of references takes //x for one
		"//x/v1/guest-tokens", "//api.example.com/v1/guest-tokens", "//user@x:80/v1/guest-tokens", "///x/v1/guest-tokens", "//x//v1/guest-tokens", "/\\x/v1/guest-tokens",
		"//x/../v1/guest-tokens", "//v1/v1/guest-tokens", "//x;y/v1/guest-tokens", "//[::1]/v1/guest-tokens", "//x%2fy/v1/guest-tokens",
		// parameters
		"/v1/guest-tokens;a=b", "/v1/guest-tokens;", "/v1/guest-tokens;/", "/v1/guest-tokens;a=b?x", "/v1;a=b/guest-tokens", "/;a=b/v1/guest-tokens",
		"/v1;/guest-tokens;", "/v1/;a/guest-tokens", "/v1/..;/v1/guest-tokens", "/x/..;a=b/v1/guest-tokens", "/v1/x/..;/guest-tokens", "/v1/.;/guest-tokens",
		"/v1/guest-tokens;a=b/c", "/v1/guest-tokens;jsessionid=1;x", "/v1;/../v1/guest-tokens", "/v1/guest-tokens/;a", "/v1/guest-tokens;%2f..", "/v1/x;/../guest-tokens",
		"/v1/guest-tokens;a=b#f", "/v1/guest-tokens/..;/guest-tokens",
		// fragments
		"/v1/guest-tokens#", "/v1/guest-tokens#f", "/v1/guest-tokens#/../x", "/v1/guest-tokens#?x", "/v1/guest-tokens?x#f", "#/v1/guest-tokens", "/#/v1/guest-tokens",
		"/v1/x#/../guest-tokens", "/x#/../v1/guest-tokens", "/v1/guest-tokens/#", "/v1/%67uest-tokens#f", "/v1/guest-tokens%23",
		// backslashes
		"/v1\\guest-tokens", "\\v1\\guest-tokens", "/v1/guest-tokens\\", "/v1%5cguest-tokens", "/v1%5Cguest-tokens", "/v1/x\\..\\guest-tokens", "/v1/x/..\\guest-tokens",
		"/v1/x%5c..%5cguest-tokens", "/\\v1/guest-tokens", "/v1\\/guest-tokens", "/v1/.\\guest-tokens", "/v1/guest-tokens?\\", "/v1/guest-tokens\\..\\guest-tokens",
		// blanks and bytes
		"/v1/guest-tokens\t", "/v1/guest-\ttokens", "\t/v1/guest-tokens", "/v1/guest-tokens\v", "/v1/guest-tokens\x00",
		"/v1/guest-tokens\xa0", "/v1/guest-tokens\x85", "/v1/guest-tokens\u00a0", "/v1/guest-tokens\u3000", "/v1/guest-tokens\ufeff",
		// absolute forms
		"http://api.example.com/v1/guest-tokens", "http://x/v1/guest-tokens", "https://x/v1/guest-tokens", "HTTP://x/v1/guest-tokens", "http://x:8080/v1/guest-tokens",
		"http://user:pass@x/v1/guest-tokens", "http://user@/v1/guest-tokens", "http://@x/v1/guest-tokens", "http:///v1/guest-tokens", "http:/v1/guest-tokens",
		"http:v1/guest-tokens", "http:\\\\x\\v1\\guest-tokens", "http://x\\v1\\guest-tokens", "http://x//v1/guest-tokens", "http://x/v1/../v1/guest-tokens",
		"http://x/v1/guest-tokens#f", "http://x/v1/guest-tokens?a", "http://x?/v1/guest-tokens", "http://x#/v1/guest-tokens", "http://[::1]/v1/guest-tokens",
		"http://x;a=b/v1/guest-tokens", "http://x%2fv1/guest-tokens", "ftp://x/v1/guest-tokens", "x://x/v1/guest-tokens", "file:///v1/guest-tokens",
		"http://x/v1/%67uest-tokens", "ws://x/v1/guest-tokens", "http://a@b@c/v1/guest-tokens", "http://x:/v1/guest-tokens", "javascript:/v1/guest-tokens",
		"http+unix://x/v1/guest-tokens", "http://x/;a/v1/guest-tokens", "http://x/http://x/v1/guest-tokens", "/http://x/v1/guest-tokens", "//http://x/v1/guest-tokens",
		// letters
		"/V1/guest-tokens", "/v1/Guest-Tokens", "/V1/GUEST-TOKENS", "/v1/guest-token%53", "/v1/gue\u017ft-tokens", "/v1/guest-to\u212aens", "/v1/gue%c5%bft-tokens",
		"/v1/\uff47uest-tokens", "/v1\uff0fguest-tokens", "/v1\u2215guest-tokens", "/v1/%ef%bd%87uest-tokens", "/v1/%c1%a7uest-tokens", "/v1%c0%afguest-tokens",
		"/v1/x/%c0%ae%c0%ae/guest-tokens", "/v1/x/%e0%80%ae%e0%80%ae/guest-tokens", "/v1/x/\uff0e\uff0e/guest-tokens", "/v1/guest\u2010tokens", "/v1/guest-tokens\u0301",
		// neither of these
		"*", "", "/", "v1/guest-tokens", "/v1", "/guest-tokens", "x", "?/v1/guest-tokens", "api.example.com:80", ";/v1/guest-tokens", ":/v1/guest-tokens",
		// long ones
		"/v1/" + strings.Repeat("x/../", 500) + "guest-tokens", strings.Repeat("/", 3000) + "v1/guest-tokens", "/v1/guest-tokens?" + strings.Repeat("x", 5000),
		"/v1/guest-tokens;" + strings.Repeat("x", 5000), "/v1" + strings.Repeat("/.", 2000) + "/guest-tokens", "/v1/guest-tokens#" + strings.Repeat("x", 5000),
		"/v1/" + strings.Repeat("x/", 500) + strings.Repeat("../", 500) + "guest-tokens", "/v1/guest-tokens" + strings.Repeat("/", 3000),
	}
	return append(targets, others()...)
}

// others are paths that no server takes for the watched operation, and that are not to be watched either: a rule that
// counts or holds them counts and holds other people's requests.
func others() []string {
	return []string{
		"/v1/guest-tokens2", "/v1/guest", "/other", "/v1/guest-token", "/v1/guest-tokensx", "/v1/guest-tokens-x", "/v1/guest-tokens/x", "/v1/guest_tokens",
		"/v2/guest-tokens", "/v1/guesttokens", "/v1/films", "/v1/films?x=/v1/guest-tokens", "/v1/films?/../guest-tokens", "/v1/films#/v1/guest-tokens",
		"/v1/films;x=/v1/guest-tokens", "/v1/guest-tokens/../films", "/v1/x/guest-tokens", "/v1/guest-tokens/%2e%2e/films", "/v1/guest%20tokens", "/v1/guest.tokens",
		"http://x/v1/films", "http://v1/guest-tokens/films", "/v1/guest-tokens/x;a=b", "/v1/xguest-tokens", "/xv1/guest-tokens", "/api/v1/guest-tokens",
		"/v1/%66ilms", "//v1/films", "/v1\\films", "/v1/guest-tokens.json", "/v1/guest-tokens:reset",
	}
}

// eachByte puts every byte at four places of the path.
func eachByte() []string {
	var targets []string
	for b := range 256 {
		if b == '\n' || b == '\r' || b == ' ' {
			continue // ends the line, or the target
		}
		for _, form := range []string{"/v1/guest-tokens%s", "/v1/guest-tokens%sx", "/v1/guest%s-tokens", "/v1%s/guest-tokens", "%s/v1/guest-tokens"} {
			targets = append(targets, fmt.Sprintf(form, string([]byte{byte(b)})))
		}
		targets = append(targets, fmt.Sprintf("/v1/guest-tokens%%%02x", b), fmt.Sprintf("/v1%%%02Xguest-tokens", b))
	}
	return targets
}

// respelled is the watched path, or a neighbour of it, with some of the means at once by which a client may spell it in
// another way.
func respelled(dice *rand.Rand) string {
	pick := func(from ...string) string { return from[dice.IntN(len(from))] }
	var b strings.Builder
	switch dice.IntN(8) {
	case 0:
		b.WriteString(pick("http://x", "http://api.example.com", "https://u:p@x:8", "//x", "HTTP://x", "http://x;y", "//u@x", "/\\x"))
	case 1:
		b.WriteString(pick("/x/..", "/.", "/", "//", "/;a", "/..", "/%2e", "/x/%2e%2e", "/x\\..", "/x/..;b"))
	}
	for _, segment := range []string{"v1", pick("guest-tokens", "guest-tokens", "guest-tokens", "guest-tokens", "films")} {
		b.WriteString(pick("/", "/", "/", "/", "//", "\\", "%2f", "/./", "/x/../", "%5c", "/%2e/", "/y/..;a/", "/x/%2E%2E/"))
		for _, c := range []byte(segment) {
			switch dice.IntN(40) {
			case 0:
				fmt.Fprintf(&b, "%%%02x", c)
			case 1:
				fmt.Fprintf(&b, "%%%02X", c)
			case 2:
				fmt.Fprintf(&b, "%%25%02x", c)
			case 3:
				b.WriteString(strings.ToUpper(string(c)))
			default:
				b.WriteByte(c)
			}
		}
		if dice.IntN(5) == 0 {
			b.WriteString(pick(";a=b", ";", "%20", ".", ";/..", "%3b", string([]byte{byte(dice.IntN(256))})))
		}
	}
	if dice.IntN(3) == 0 {
		b.WriteString(pick("/", "//", "/.", "#", "#f", "#/../x", "?", "?a=b", "?/../x", "\\", "%2f", "%23", "%3f", ";a", "/x/..", "/..", "\xa0", "\t", "/;b", "%00"))
	}
	return strings.NewReplacer("\n", "", "\r", "", " ", "").Replace(b.String())
}
