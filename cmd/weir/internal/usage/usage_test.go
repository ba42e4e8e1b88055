package usage

import (
	"strings"
	"testing"
)

// A name that nothing has is answered with what was probably meant.
func TestUnknownNames(t *testing.T) {
	known := []string{"catalogue-scrape", "guest-token-flood", "login-guessing", "a", "b", "c"}
	for got, want := range map[string]string{
		"guest-token-flod": `there is no rule "guest-token-flod"; did you mean guest-token-flood?; weir rules list shows the rules`,
		"login_guessing":   `there is no rule "login_guessing"; did you mean login-guessing?; weir rules list shows the rules`,
		"zzzzzzzz":         `there is no rule "zzzzzzzz"; known: catalogue-scrape, guest-token-flood, login-guessing, a, b and 1 more; weir rules list shows the rules`,
	} {
		if err := Unknown("rule", got, known, "weir rules list shows the rules"); err.Error() != want {
			t.Errorf("%s: got  %v\nwant %s", got, err, want)
		}
	}
	if err := Unknown("rule", "x", nil, "see there"); err.Error() != `there is no rule "x", and no other` {
		t.Errorf("of none: %v", err)
	}
	actions := []string{"written", "extended", "withheld", "released"}
	if err := OneOf("action", "writtn", actions...); err == nil || !strings.HasSuffix(err.Error(), "; did you mean written?") {
		t.Errorf("an action: %v", err)
	}
	if err := OneOf("action", "withheld", actions...); err != nil {
		t.Error(err)
	}
}
