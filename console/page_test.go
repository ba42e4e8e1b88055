package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weirhq/weir/internal/browser"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const (
	isLive     = `document.querySelector("#link").dataset.state === "live"`
	newestOver = `document.querySelector("table.hits tbody").innerText`
	eventsRate = `document.querySelector(".meter .meter-value").textContent`
	remaining  = `document.querySelector("table.blocks tbody .countdown").textContent`
)

// The page changes while traffic flows, on every screen, without a complaint and without asking anybody else.
func TestPageIsLive(t *testing.T) {
	chromium := browser.Start(t)
	for _, l := range looks() {
		t.Run(l.name, func(t *testing.T) {
			s := newScene(55)
			c := newConsole(t, options(s.stores))
			s.before(c)
			address := serve(t, c)
			defer every(100*time.Millisecond, func() { s.flow(0.1) })()
			p := open(chromium, t, address, l)
			p.until(isLive + ` && document.querySelectorAll("table.hits tbody").length > 5`)

			events, left, newest := p.text(eventsRate), p.text(remaining), p.text(newestOver)
			p.until(eventsRate + ` !== ` + quote(events))
			p.until(remaining + ` !== ` + quote(left))
			s.offend()
			p.until(newestOver + ` !== ` + quote(newest))
			p.until(`document.querySelector(".curve .trace").getAttribute("d").split("L").length > 100`)
			p.until(`document.documentElement.scrollWidth <= innerWidth`)
			if !l.phone {
				p.shoot(l.name+"-list", true)
			}
			p.click("table.hits tbody:nth-of-type(3) button.open")
			p.until(`document.querySelectorAll("table.hits .event").length === 3`)
			p.shoot(l.name, true)
			p.blameless(address)
		})
	}
}

// every calls call again and again until the function that it returns is called.
func every(pause time.Duration, call func()) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			select {
			case <-end:
				return
			case <-ticker.C:
				call()
			}
		}
	}()
	return func() { close(end); <-ended }
}

func quote(text string) string {
	return "`" + strings.NewReplacer("`", "\\`", "\\", "\\\\", "$", "\\$").Replace(text) + "`"
}

// opened is a page of a scene on the first screen of looks.
func opened(t *testing.T, o func(s *scene) Options) (*scene, *tab, string) {
	t.Helper()
	s := newScene(30)
	address := serve(t, newConsole(t, o(s)))
	p := open(browser.Start(t), t, address, looks()[0])
	p.until(isLive + ` && document.querySelectorAll("table.hits tbody").length > 5`)
	return s, p, address
}

// What people do on the page: filter, hold the picture still, look at evidence, find the command, all by keyboard.
func TestPageIsUsed(t *testing.T) {
	s, p, address := opened(t, func(s *scene) Options { return options(s.stores) })
	const rows = `[...document.querySelectorAll("table.hits tbody .rule-of")].map(e => e.textContent)`

	p.until(`document.querySelectorAll("#over-rule option").length === 6`)
	p.do(chromedp.Evaluate[chromedp.Void](`{const s = document.querySelector("#over-rule"); s.value = "login-stuffing"; s.dispatchEvent(new Event("change"))}`))
	p.until(rows + `.length > 2 && ` + rows + `.every(r => r === "login-stuffing")`)
	p.do(chromedp.Evaluate[chromedp.Void](`{const s = document.querySelector("#over-rule"); s.value = ""; s.dispatchEvent(new Event("change"))}`))

	// The page is one tab order, and Enter opens evidence where the focus is.
	p.do(chromedp.Focus(chromedp.CSS("table.hits tbody button.open")), chromedp.KeyEvent("\r"))
	p.until(`document.querySelectorAll("table.hits .event").length === 3`)
	p.until(`(b => b.getAttribute("aria-expanded") === "true" && document.getElementById(b.getAttribute("aria-controls")) !== null)(document.activeElement)`)
	p.do(chromedp.KeyEvent("\r"))
	p.until(`document.querySelectorAll("table.hits .event").length === 0`)

	p.click("#shadow-rules .rule-foot button")
	p.until(`document.querySelector("#shadow-rules .command:not([hidden]) code")?.textContent.startsWith("weir rules promote catalogue-scrape ")`)
	p.until(`document.querySelector("#block-rules .pending:not([hidden])").innerText.includes("Version 4 is pending since ")`)
	p.until(`document.querySelector("#block-rules .pending:not([hidden])").innerText.includes("limit 20 → 10")`)
	p.until(`document.querySelectorAll(".pending:not([hidden])").length === 1`)
	p.click("#block-rules .pending:not([hidden]) .button")
	p.until(`document.querySelector("#block-rules .pending .command:not([hidden]) code")?.textContent.startsWith("weir rules promote guest-token-flood --version 4 ")`)
	s.change(func(st *stores) { st.rules[1].Pending = nil })
	p.until(`document.querySelectorAll(".pending:not([hidden])").length === 0`)
	p.click("table.blocks tbody button")
	p.until(`document.querySelector("table.blocks .command code")?.textContent.startsWith("weir blocks release ")`)

	// A promoted rule moves from the one side to the other.
	s.change(func(st *stores) { st.rules[0].Mode = "block" })
	p.until(`document.querySelector("#block-rules .rule-name")?.textContent === "catalogue-scrape"`)
	p.until(`document.querySelectorAll("#shadow-rules .rule").length === 2`)

	p.click("#pause")
	p.until(`document.querySelector("#link-text").textContent === "Paused"`)
	newest := p.text(newestOver)
	heard := p.text(`document.querySelector("#clock").textContent`)
	s.offend()
	p.until(`document.querySelector("#clock").textContent !== ` + quote(heard))
	if got := p.text(`document.querySelector("table.hits tbody").innerText.split("\n")[0]`); got != strings.Split(newest, "\n")[0] {
		t.Errorf("the page was held, and shows %q after %q", got, newest)
	}
	p.click("#pause")
	p.until(newestOver + ` !== ` + quote(newest))
	p.blameless(address)
}

// What clients chose is shown as text and never runs; what cannot be seen is made visible.
func TestPageShowsHostileText(t *testing.T) {
	const hostile = "<img src=x onerror=\"window.pwned=1\"><script>window.pwned=1</script>\u202e\x00"
	_, p, address := opened(t, func(s *scene) Options {
		id := traffic.Identity{Device: hostile}
		subject, _ := traffic.MakeSubject(&id, []traffic.KeyField{{Field: traffic.FieldDevice}})
		text, err := json.Marshal(traffic.Sample{Time: wallClock(), Device: traffic.Printable(hostile), UserAgent: traffic.Printable(hostile), Path: traffic.Printable(hostile)})
		if err != nil {
			t.Fatal(err)
		}
		h := s.hits[len(s.hits)-1]
		h.ID, h.Subject, h.First, h.Last, h.Samples = "ffff", subject, wallClock(), wallClock(), []string{string(text), hostile}
		s.hits = append(s.hits, h)
		s.rules[0].Reason, s.rules[0].ChangedBy = hostile, hostile
		s.listed[0].Subject = subject
		return options(s.stores)
	})
	p.until(`document.querySelector("table.hits tbody .source .value")?.textContent.startsWith("<img src=x onerror=")`)
	p.until(`document.querySelector("table.hits tbody .source .odd")?.textContent === "\\u{202e}"`)
	p.click("table.hits tbody button.open")
	p.until(`document.querySelectorAll("table.hits .event").length === 2`)
	p.until(`window.pwned === undefined && document.images.length === 1 && document.scripts.length === 1`)
	p.until(`!document.body.innerText.includes("\u202e")`)
	p.blameless(address)
}

// Away stores are told of without moving anything; the page finds back to a server that was away.
func TestPageSaysWhatIsAway(t *testing.T) {
	s, p, _ := opened(t, func(s *scene) Options { return options(s.stores) })
	const top = `String(document.querySelector("#rules").getBoundingClientRect().top)`
	p.until(`document.querySelector("#status").innerText === "No problem is reported."`) // all that stands above has come
	before := p.text(top)
	s.change(func(s *stores) {
		s.problems = []Problem{{"Kafka", "does not answer since 12:03:11 UTC; nothing is counted, known blocks hold"}}
	})
	p.until(`document.querySelector("#status").innerText.startsWith("Kafka does not answer since")`)
	if now := p.text(top); now != before {
		t.Errorf("one problem moved the page from %s to %s", before, now)
	}
	s.change(func(s *stores) {
		s.away = map[string]error{partHistory: errors.New("gone"), partBlocks: errors.New("gone")}
	})
	p.until(`document.querySelector("#status").innerText.includes("PostgreSQL does not answer: rules and over-limit sources are those of")`)
	p.until(`document.querySelector("#status").innerText.includes("Redis does not answer: blocks are those of")`)
	p.until(`["#rules-stale", "#over-stale", "#blocks-stale"].every(id => /^as of \d\d:/.test(document.querySelector(id).textContent))`)
	p.until(`document.querySelectorAll("table.hits tbody").length > 5`)
	p.shoot("away", false)
	s.change(func(s *stores) { s.away, s.problems = nil, nil })
	p.until(`document.querySelector("#status").innerText === "No problem is reported."`)
	p.until(`document.querySelector("#rules-stale").hidden`)
}

func TestPageFindsBack(t *testing.T) {
	s := newScene(10)
	address := fmt.Sprint("127.0.0.1:", testbed.FreePort(t)) // not one that the system gives to a client while nobody listens
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	begin := func(l net.Listener) (end func()) {
		c := newConsole(t, options(s.stores))
		stop := run(t, c)
		server := httptest.NewUnstartedServer(c.Handler())
		server.Listener.Close()
		server.Listener = l
		server.Start()
		return func() { stop(); server.Close() }
	}
	end := begin(listener)
	p := open(browser.Start(t), t, "http://"+address, looks()[0])
	p.until(isLive)
	end()
	p.until(`document.querySelector("#status").innerText.startsWith("The console's server does not answer")`)
	if listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	defer begin(listener)()
	p.until(isLive)
	p.until(`document.querySelector("#status").innerText === "No problem is reported."`)
}

// An installation in which nothing has happened says so in every place.
func TestPageIsEmpty(t *testing.T) {
	address := serve(t, newConsole(t, options(&stores{})))
	p := open(browser.Start(t), t, address, looks()[1])
	for _, words := range []string{"Nobody was over a limit in the last 60 minutes.", "Nobody is blocked.", "Nobody has been released.", "No rule is in shadow.", "No rule blocks: nobody is held back."} {
		p.until(`document.body.innerText.includes(` + quote(words) + `)`)
	}
	p.shoot("empty", false)
	p.blameless(address)
}

// No width makes the page scroll sideways or cuts a control off.
func TestPageFitsAllWidths(t *testing.T) {
	_, p, address := opened(t, func(s *scene) Options {
		long := strings.Repeat("checkout-and-payment-", 3) + "x" // as long as an id may be
		s.rules = append(s.rules, sceneRule(long, "shop", "POST", "/pay", 5, time.Minute, time.Hour, rules.ModeShadow, traffic.FieldIP))
		return options(s.stores)
	})
	p.click("table.hits tbody button.open")
	p.click("#shadow-rules .rule-foot button")
	p.click("table.blocks tbody button")
	p.until(`document.querySelectorAll("table.hits .event").length === 3`)
	for _, width := range []int64{320, 390, 600, 768, 800, 1024, 1100, 1280, 1920} {
		p.do(chromedp.EmulateViewport(width, 900))
		p.until(fmt.Sprintf(`innerWidth === %d`, width))
		if wide := p.text(`[...document.querySelectorAll("body *")].filter(e => e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 1 &&
			!e.closest(".hidden, .curve, .tops, thead, .skip")).map(e => e.tagName + "." + e.className).slice(0, 5).join(" ")`); wide != "" {
			t.Errorf("at %d pixels these stick out: %s", width, wide)
		}
		p.until(`document.documentElement.scrollWidth <= innerWidth`)
		if aligned := p.text(`getComputedStyle(document.querySelector("table.blocks .command")).textAlign`); aligned == "right" {
			t.Errorf("at %d pixels the command of a block is ragged left", width)
		}
		p.until(`[...document.querySelectorAll(".tops .pill")].every(e => e.getBoundingClientRect().right <= e.closest(".tops").getBoundingClientRect().right + 1)`)
		p.until(`[...document.querySelectorAll(".meter-name, .meter-value, .meter-note")].every(e => e.scrollWidth <= e.clientWidth)`)
		p.shoot(fmt.Sprintf("width-%d", width), false)
	}
	p.blameless(address)
}
