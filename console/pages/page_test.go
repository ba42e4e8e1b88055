package pages

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Without a script, a person finds a rule from the overview, considers a limit, and promotes the rule.
func withoutScript(chrome context.Context, t *testing.T) {
	s := newScene()
	address := serve(t, newPages(t, s.options()), admin())
	p := open(chrome, t, address+"/search?q=", looks()[3])
	if _, err := chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	click := func(selector string) { p.do(chromedp.Click(chromedp.CSS(selector))) }
	p.do(chromedp.Navigate(address + "/"))
	click(`a.rule-name[href="/rules/catalogue-scrape"]`)
	p.until(`document.querySelector("h1").textContent === "catalogue-scrape"`)
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#limit").value = "900"`))
	click(`.limit-form button`)
	p.until(`location.search.includes("limit=900") && document.querySelector(".chosen-text")?.textContent === "considered 900"`)
	click(`a.button.chief[href^="/rules/catalogue-scrape/promote"]`)
	p.do(chromedp.SendKeys(chromedp.CSS("#reason"), "nobody good among them"))
	click(`input[name=confirm]`)
	click(`button.chief`)
	p.until(`document.querySelector(".note-ok")?.textContent.startsWith("Promoted")`)
	if len(s.does.did) != 1 {
		t.Errorf("did %+v", s.does.did)
	}
}

// Somebody complains with a block id: six actions later he is released and let pass. Each click, each field that is
// written in, is one.
func letPassInSixActions(chrome context.Context, t *testing.T) {
	s := newScene()
	address := serve(t, newPages(t, s.options()), admin())
	p := open(chrome, t, address+"/", looks()[0])
	if _, err := chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	actions := 0
	act := func(step chromedp.Action[chromedp.Void], until string) {
		t.Helper()
		actions++
		p.do(step)
		p.until(until)
	}
	act(chromedp.SendKeys(chromedp.CSS("#find"), held(s)+"\r"),
		`location.pathname.startsWith("/hits/") && document.querySelector('a[href$="/demote"]')`)
	act(chromedp.Click(chromedp.CSS(`a[href$="pass=30d"]`)),
		`document.querySelector('input[value="30d"]')?.checked && document.querySelector("#part").value === "ip"`)
	act(chromedp.SendKeys(chromedp.CSS("#reason"), "ticket 4711: a school"),
		`document.querySelector("#reason").value.length > 9`)
	act(chromedp.Click(chromedp.CSS(`input[name=confirm]`)), `document.querySelector("input[name=confirm]").checked`)
	act(chromedp.Click(chromedp.CSS(`button.chief`)),
		`document.querySelector(".note-ok")?.textContent.startsWith("Released and let pass")`)
	if entry, ok := s.does.did[0].(acts.AllowRequest); actions > 6 || len(s.does.did) != 2 || !ok ||
		entry.List != "offices" || entry.For != "30d" {
		t.Errorf("%d actions did %+v", actions, s.does.did)
	}
}

// The way to a promotion needs the keyboard alone.
func promoteByKeyboard(chrome context.Context, t *testing.T) {
	s := newScene()
	address := serve(t, newPages(t, s.options()), admin())
	p := open(chrome, t, address+"/rules/catalogue-scrape", looks()[0])
	tabTo := func(condition string) {
		t.Helper()
		for range 60 {
			p.do(chromedp.KeyEvent("\t"))
			if p.text(`String(!!(`+condition+`))`) == "true" {
				return
			}
		}
		t.Fatalf("no number of tabs leads to %s", condition)
	}
	tabTo(`document.activeElement.textContent === "Promote…"`)
	p.do(chromedp.KeyEvent("\r"))
	p.until(`location.pathname.endsWith("/promote") && document.querySelector("#reason")`)
	tabTo(`document.activeElement.id === "reason"`)
	p.do(chromedp.KeyEvent("it is time"))
	tabTo(`document.activeElement.name === "confirm"`)
	p.do(chromedp.KeyEvent(" "))
	tabTo(`document.activeElement.textContent === "Promote"`)
	p.do(chromedp.KeyEvent("\r"))
	p.until(`document.querySelector(".note-ok")?.textContent.startsWith("Promoted")`)
	if len(s.does.did) != 1 {
		t.Errorf("did %+v", s.does.did)
	}
}

// 300 rules, with an id as long as ids may be: the worst stand first, quiet ones are folded, and no width scrolls sideways.
func manyRules(chrome context.Context, t *testing.T) {
	s := newScene().many(299)
	s.rules = append(s.rules, sceneRule("checkout-and-payment-checkout-and-payment-checkout-and-payment-x", "shop", "POST", "/pay", 5, time.Minute, time.Hour, rules.ModeShadow, traffic.FieldIP))
	address := serve(t, newPages(t, s.options()), admin())
	p := open(chrome, t, address+"/?since=24h", looks()[0])
	if first := p.text(`document.querySelector(".column-shadow .rule-name").textContent`); first != "catalogue-scrape" {
		t.Errorf("%s stands first", first)
	}
	p.until(`document.querySelectorAll(".quiet-rules").length === 2 && !document.querySelector(".quiet-rules").open`)
	for _, width := range []int64{320, 360, 768, 1024, 1440} {
		p.do(chromedp.EmulateViewport(width, 900))
		p.until(fmt.Sprintf(`innerWidth === %d`, width))
		p.do(chromedp.Evaluate[chromedp.Void](`for (const d of document.querySelectorAll("details")) d.open = d.className === "quiet-rules"`))
		if wide := p.text(`String(document.documentElement.scrollWidth - innerWidth)`); wide != "0" && wide[0] != '-' {
			t.Errorf("at %d the page scrolls sideways by %s", width, wide)
		}
	}
	if os.Getenv("WEIR_SCREENSHOTS") != "" {
		p.shoot("many", true)
	}
	p.do(chromedp.Navigate(address + "/?q=payment"))
	p.until(`document.querySelectorAll(".column .names a, .column .rule-name").length === 1`)
}

func TestNatural(t *testing.T) {
	for _, pair := range [][2]string{{"rule-2", "rule-10"}, {"rule-10", "rule-10a"}, {"a", "b"}, {"rule-02", "rule-3"}, {"", "a"}} {
		if natural(pair[0], pair[1]) >= 0 || natural(pair[1], pair[0]) <= 0 {
			t.Errorf("%q is not before %q", pair[0], pair[1])
		}
	}
}

// Each page has one first heading, names for its fields, and texts for its links: what axe would ask first.
func pagesAreNamed(chrome context.Context, t *testing.T) {
	s := newScene()
	address := serve(t, newPages(t, s.options()), admin())
	p := open(chrome, t, address+"/", looks()[0])
	for name, at := range addresses(s) {
		p.do(chromedp.Navigate(address + at))
		if got := p.text(`(() => {
			const said = [];
			if (document.querySelectorAll("h1").length !== 1) said.push("h1");
			for (const f of document.querySelectorAll("input:not([type=hidden]), select, textarea")) if (!f.labels.length) said.push("field " + f.name);
			for (const a of document.querySelectorAll("a, button, summary")) if (!(a.textContent.trim() || a.getAttribute("aria-label"))) said.push("empty " + a.outerHTML);
			for (const s of document.querySelectorAll("section")) if (!s.getAttribute("aria-label") && !document.getElementById(s.getAttribute("aria-labelledby"))) said.push("section");
			const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
			if (new Set(ids).size !== ids.length) said.push("ids");
			for (const th of document.querySelectorAll("th")) if (!th.scope || !th.textContent.trim()) said.push("th");
			let level = 1;
			for (const h of document.querySelectorAll("h1, h2, h3")) { const now = +h.tagName[1]; if (now > level + 1) said.push("skips to " + h.textContent); level = now; }
			return said.join(", ");
		})()`); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}
