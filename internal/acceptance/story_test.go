package acceptance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weirhq/weir/console/signin/signintest"
	"github.com/weirhq/weir/internal/browser"
	"github.com/weirhq/weir/internal/testbed"
)

// storyRule counts events that are minutes old, and their window is still running when it is promoted.
const storyRule = `
id: guest-tokens
owner: identity
match: {method: POST, path: /v1/guest-tokens}
key: [ip]
limit: 2
window: 10m
lateness: 10m
max_lag: 20m
block: {ttl: 1h}
promote: {min_shadow: 1m, max_traffic_share: 100%}
`

// TestTheStoryInABrowser is what weir is for, as its two people do it: the owner of a rule in shadow looks at the evidence and promotes it,
// the abuser is refused by a real gate, and support finds the block by its id and releases it. The audit trail has both names.
func TestTheStoryInABrowser(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)
	port := testbed.FreePort(t)
	address := fmt.Sprintf("http://127.0.0.1:%d", port)
	in := newInstall(t, [3]int{2, 4, 2}, fmt.Sprintf("{url: %q}", testbed.Redis(t)), 1, consoleOf(port, address, signintest.Start(t, address)))
	in.Weir("rules", "apply", "-f", in.Write("rules.yaml", storyRule), "--reason", "tests")
	in.watches("guest-tokens")
	stages, gate := in.start("run", "--console"), in.start("gate")
	waitForGate(t, in)
	awaitConsole(t, address)

	const abuser, worse = "203.0.113.1", "203.0.113.2"
	s := newStreet(t, in)
	s.traffic(abuser, worse)

	olga := newPerson(chromium, t, address, signintest.Owner)
	olga.opens("/rules/guest-tokens?since=1h", `says('#evidence .observed').includes('1 min of 1 h observed') && says('#limit-says').includes('held 2 sources and refused 12 requests') && says('#evidence').includes('12 of 28')`)
	olga.until(`field('#limit-slider', document.querySelector('[data-stops]').dataset.stops.split(' ').findLastIndex((stop) => stop <= 8)) && says('#limit-says').includes('held 1 source')`)
	olga.presses(`link('Promote…')`)
	olga.until(`[...document.querySelectorAll('main td .tag')].map((tag) => tag.innerText).join() == 'passed,passed,passed,passed' && row("203.0.113.1") && row("203.0.113.2") && says('main').includes('would have refused about 12 requests a minute')`)
	olga.presses(`document.querySelector('input[name=to][value=block]')`)
	olga.decides("only scripts among the hits")
	olga.until(`says('[data-part=state]').includes('Blocking') && says('[data-part=state]').includes('only scripts among the hits')`)

	s.answers(abuser, http.StatusTooManyRequests)
	s.answers(worse, http.StatusTooManyRequests)
	s.answers("198.51.100.1", http.StatusOK)
	refusal := s.ask(abuser, "/v1/guest-tokens")
	if err := refusal.Body.Close(); err != nil {
		t.Fatal(err)
	}

	ana := newPerson(chromium, t, address, signintest.Analyst)
	ana.presses(fmt.Sprintf(`field('#find', %q).form.querySelector('button')`, refusal.Header.Get("X-Weir-Block")))
	ana.until(fmt.Sprintf(`location.pathname.startsWith('/hits/') && says('main').includes(%q)`, abuser))
	ana.presses(`link('Release…')`)
	ana.decides("ticket 4711: a hotel")
	ana.until(`says('main').includes('Released') && says('main').includes('ana@example.com')`)
	s.answers(abuser, http.StatusOK)
	if got := s.status(worse, "/v1/guest-tokens"); got != http.StatusTooManyRequests {
		t.Errorf("whom nobody released is answered %d", got)
	}

	ana.opens("/audit", fmt.Sprintf(`row('promote', 'guest-tokens', %q, 'only scripts among the hits') && row('release', %q, %q, 'ticket 4711: a hotel')`,
		signintest.Email(signintest.Owner), abuser, signintest.Email(signintest.Analyst)))
	stages.stop()
	gate.stop()
}

// consoleOf is the configuration of a console whose people are known to a provider, and of who is known to be good.
func consoleOf(port int, address string, provider *signintest.Provider) string {
	pairs := func(of map[string]string) string {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(of)) {
			all = append(all, name+": "+of[name])
		}
		return "{" + strings.Join(all, ", ") + "}"
	}
	roles := map[string]string{}
	for group, role := range signintest.Roles() {
		roles[group] = role.String()
	}
	return fmt.Sprintf(`known_good: event.plan == "paid"
console:
  listen: 127.0.0.1:%d
  public_url: %s
  oidc: {issuer: %q, client_id: %q, client_secret: %q, roles: %s, owners: %s}
`, port, address, provider.Issuer, provider.ClientID, provider.ClientSecret, pairs(roles), pairs(signintest.Owners()))
}

func awaitConsole(t *testing.T, address string) {
	t.Helper()
	testbed.Eventually(t, time.Minute, func() error {
		answer, err := http.Get(address + "/signin")
		if err != nil {
			return err
		}
		if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
			return fmt.Errorf("the console answers %s, %v", answer.Status, err)
		}
		return nil
	})
}

// watches makes a rule as old as if somebody had applied it an hour ago: evidence begins with its version.
func (in *install) watches(rule string) {
	in.t.Helper()
	in.execute("ALTER TABLE {ns}.rule_versions DISABLE TRIGGER rule_versions_stay")
	in.execute(`UPDATE {ns}.rule_versions SET created_at = created_at - interval '1 hour' WHERE rule = '` + rule + `'`)
}

// traffic is that of viewers who pay, and of two who take too many tokens, one far more than the other. All of it is five minutes old: what
// a rule is promoted by ends three minutes ago.
func (s *street) traffic(abuser, worse string) {
	s.t.Helper()
	then := time.Now().Add(-5 * time.Minute)
	for i := range 10 {
		s.requestOf(fmt.Sprintf("198.51.100.%d", i+1), "paid", then)
	}
	for range 6 {
		s.requestOf(abuser, "free", then)
	}
	for range 12 {
		s.requestOf(worse, "free", then)
	}
}

// person is somebody at a browser of their own, signed in.
type person struct {
	t       *testing.T
	ctx     context.Context
	address string
}

// newVisitor is somebody whom the console does not know.
func newVisitor(chromium context.Context, t *testing.T, address string) *person {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil { // a tab lives as long as the context of what is first done in it
		t.Fatal(err)
	}
	return &person{t, ctx, address}
}

// newPerson signs somebody in by the form of the identity provider.
func newPerson(chromium context.Context, t *testing.T, address, name string) *person {
	t.Helper()
	p := newVisitor(chromium, t, address)
	p.opens("/", `document.querySelector('a[href^="/signin/start"]')`)
	p.presses(`document.querySelector('a[href^="/signin/start"]')`)
	p.until(`document.querySelector('#username') && document.querySelector('#password')`)
	p.presses(fmt.Sprintf(`field('#username', %q) && field('#password', %q).form.querySelector('button')`, name, signintest.Password))
	p.until(fmt.Sprintf(`location.origin == %q && says('.menu summary') == %q`, address, signintest.Email(name)))
	return p
}

// pageWords is what scripts of this test say of a page.
const pageWords = `
const says = (of) => document.querySelector(of)?.innerText ?? '';
const field = (of, text) => { const f = document.querySelector(of); f.value = text; f.dispatchEvent(new Event('input', {bubbles: true})); return f };
const link = (text) => [...document.querySelectorAll('main a')].find((a) => a.innerText.trim() == text);
const row = (...words) => [...document.querySelectorAll('tr')].some((r) => words.every((w) => r.innerText.includes(w)));
`

// patience is when a page that does not come to what is asked of it is given up: its end says that it hangs, not that the machine is busy.
const patience = 2 * time.Minute

// answers is when a browser is asked again: what it was asked while a page gave way to the next one has no answer.
const answers = 5 * time.Second

// run runs a script in the page.
func (p *person) run(script string) (bool, error) {
	bounded, cancel := context.WithTimeout(p.ctx, answers)
	defer cancel()
	return chromedp.Run(bounded, chromedp.Evaluate[bool](fmt.Sprintf("(() => { %s\nreturn !!(() => { %s })() })()", pageWords, script)))
}

// presses clicks on what a script finds, wherever a page that draws itself anew has it by then. What comes of it is waited for: a click that
// leads away may have no answer.
func (p *person) presses(found string) {
	p.t.Helper()
	testbed.Eventually(p.t, patience, func() error {
		there, err := p.run(fmt.Sprintf("const e = %s; if (e) setTimeout(() => e.click()); return e", found))
		if errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		if err == nil && !there {
			err = errors.New("not there")
		}
		if err != nil {
			return fmt.Errorf("pressing %s: %w\n%s", found, err, p.page())
		}
		return nil
	})
}

// until waits for a condition of the page, or of the page that it goes to.
func (p *person) until(condition string) {
	p.t.Helper()
	testbed.Eventually(p.t, patience, func() error {
		held, err := p.run("return " + condition)
		if err == nil && !held {
			err = errors.New("never came true: " + condition + "\n" + p.page())
		}
		return err
	})
}

// page is what somebody reads, for who looks why a test failed.
func (p *person) page() string {
	bounded, cancel := context.WithTimeout(p.ctx, answers)
	defer cancel()
	text, err := chromedp.Run(bounded, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// opens asks for a page until it is as it should be.
func (p *person) opens(path, condition string) {
	p.t.Helper()
	testbed.Eventually(p.t, patience, func() error {
		bounded, cancel := context.WithTimeout(p.ctx, patience)
		defer cancel()
		if err := chromedp.Do(bounded, chromedp.Navigate(p.address+path)); err != nil {
			return err
		}
		held, err := p.run("return " + condition)
		if err == nil && !held {
			err = errors.New("never came true: " + condition + "\n" + p.page())
		}
		return err
	})
}

// decides fills in the form of an act, with the reason alone, and sends it.
func (p *person) decides(reason string) {
	p.t.Helper()
	p.until(`document.querySelector('form #reason')`)
	p.presses(fmt.Sprintf(`(document.querySelector('input[name=confirm]').checked = true) && field('#reason', %q).form.querySelector('button')`, reason))
}
