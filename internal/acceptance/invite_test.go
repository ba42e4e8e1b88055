package acceptance

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/browser"
	"github.com/weirhq/weir/internal/testbed"
)

// TestTheFirstMinuteInABrowser is a console of which the configuration names nobody but a script: a command prints a
// link, its button leads to the pages, once; and the script's token opens them, too.
func TestTheFirstMinuteInABrowser(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)
	port := testbed.FreePort(t)
	address := fmt.Sprintf("http://127.0.0.1:%d", port)
	in := newInstall(t, [3]int{2, 4, 2}, fmt.Sprintf("{url: %q}", testbed.Redis(t)), 1, fmt.Sprintf(`console:
  listen: 127.0.0.1:%d
  tokens: [{name: ci, role: viewer, sha256: %x, expires: 2099-01-01}]
`, port, sha256.Sum256([]byte("the token of a script"))))
	stages := in.start("run", "--console")
	awaitConsole(t, address)

	first := newVisitor(chromium, t, address)
	first.opens("/rules/none", `location.pathname == '/signin' && says('main').includes('weir console invite') && document.querySelector('input[type=password]')`)
	var invited struct{ Link, ID, Name string }
	in.json(&invited, "console", "invite", "--for", "mara")
	path, is := strings.CutPrefix(invited.Link, address)
	if !is || !strings.HasPrefix(path, "/signin?invite=") {
		t.Fatalf("the link is %s", invited.Link)
	}
	_, token, _ := strings.Cut(path, "=")
	const button = `[...document.querySelectorAll('button')].find((b) => b.innerText == 'Sign in')`
	second := newVisitor(chromium, t, address)
	second.opens(path, button) // who comes later, and has looked at the link before

	first.opens(path, button)
	first.presses(button)
	first.until(`location.pathname == '/' && says('.menu summary') == 'mara' && document.querySelector('nav.tabs')`)
	first.until(fmt.Sprintf(`!document.referrer.includes(%q) && !document.documentElement.outerHTML.includes(%[1]q)`,
		token))
	first.opens("/audit", `row('sign-in', 'mara', 'invite') && row('invite', 'local')`)

	second.presses(button)
	second.until(`says('h1') == 'This link does not sign in'`)
	second.opens("/", `location.pathname == '/signin'`)
	second.opens(path, button)
	second.presses(button)
	second.until(`says('h1') == 'This link does not sign in'`)

	second.opens("/blocks", `location.pathname == '/signin'`)
	second.presses(`field('input[name=token]', 'guess').form.querySelector('button')`)
	second.until(`says('main').includes('not one of this console')`)
	second.presses(`field('input[name=token]', 'the token of a script').form.querySelector('button')`)
	second.until(`location.pathname == '/blocks' && says('.menu summary') == 'token:ci'`)

	if said := in.Weir("console", "sessions"); !strings.Contains(said, "mara") || !strings.Contains(said, "token:ci") {
		t.Errorf("sessions:\n%s", said)
	}
	in.Weir("console", "sessions", "end", "--of", "mara", "--reason", "a lost laptop")
	first.opens("/", `location.pathname == '/signin' && says('main').includes('Your session has ended')`)
	if said := stages.Said(); strings.Contains(said, token) || strings.Contains(said, "the token of a script") {
		t.Errorf("a token is logged:\n%s", said)
	}
	stages.stop()
}
