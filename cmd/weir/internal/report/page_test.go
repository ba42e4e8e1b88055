package report

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/internal/browser"
)

// The page shows its chart on every screen, in both schemes, and nothing that a client has sent is more than text.
func TestPageInABrowser(t *testing.T) {
	chromium := browser.Start(t)
	windows := sweep(t)
	windows.Sweep = backtest.SweepWindow
	for i := range windows.Result.Rules {
		windows.Result.Rules[i].Peaks = windows.Result.Rules[0].Peaks
	}
	for name, r := range map[string]*Report{"rules": scene(t), "limits": sweep(t), "windows": windows} {
		file := filepath.Join(t.TempDir(), name+".html")
		var text bytes.Buffer
		if err := errors.Join(r.Page(&text), os.WriteFile(file, text.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{1280, 390} {
				t.Run(name+"-"+scheme+map[int64]string{390: "-phone"}[width], func(t *testing.T) { look(chromium, t, file, scheme, width) })
			}
		}
	}
}

func look(chromium context.Context, t *testing.T, file, scheme string, width int64) {
	ctx, cancel := chromedp.NewContext(chromium)
	defer cancel()
	ctx, end := context.WithTimeout(ctx, 2*time.Minute) // longer says that it hangs
	defer end()
	var mu sync.Mutex
	var asked, said []string
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			asked = append(asked, e.Request.URL)
		case *log.EventEntryAdded:
			said = append(said, e.Entry.Text)
		}
	}))
	must(chromedp.Do(ctx, chromedp.EmulateViewport(width, 900)))
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	must(err)
	must(chromedp.Do(ctx, chromedp.Navigate("file://"+file)))
	for claim, script := range map[string]string{
		"the style sheet holds":          `getComputedStyle(document.body).backgroundColor === "` + map[string]string{"light": "rgb(243, 245, 246)", "dark": "rgb(13, 19, 23)"}[scheme] + `"`,
		"bars are as long as they claim": `[...document.querySelectorAll("rect")].every(r => { const part = parseFloat(r.getAttribute("width")) / 100; return Math.abs(r.getBoundingClientRect().width - part * r.parentElement.clientWidth) < 1 })`,
		"the longest bar is seen":        `Math.max(...[...document.querySelectorAll("rect")].map(r => r.getBoundingClientRect().width)) > 60`,
		"bars over a limit stand out":    `getComputedStyle(document.querySelector("tr.over rect")).fill !== getComputedStyle(document.querySelector("tr:not(.over) rect")).fill`,
		"a limit has its line":           `/^limit \d+: \d+ sources? over it$/.test(document.querySelector("tr.limit").innerText.trim())`,
		"there are sources":              `document.querySelectorAll("details.sources tbody bdi").length > 0`,
		"the chart needs no scrolling":   `[...document.querySelectorAll(".chart")].every(c => c.scrollWidth <= c.parentElement.clientWidth)`,
		"nothing sticks out":             `document.documentElement.scrollWidth <= innerWidth`,
		"texts made no elements":         `document.querySelectorAll("script, img, b, iframe, form, [onerror], [style]").length === 0`,
		"nothing moves texts about":      `!/[\u202a-\u202e\u2066-\u2069\u001b]/.test(document.documentElement.textContent)`,
	} {
		holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script))
		must(err)
		if !holds {
			t.Errorf("not so: %s", claim)
		}
	}
	if folder := os.Getenv("WEIR_SCREENSHOTS"); folder != "" {
		picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
		must(err)
		must(errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "backtest-"+filepath.Base(t.Name())+".png"), picture, 0o644)))
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 1 || len(said) != 0 {
		t.Errorf("the page asked for %q, and the browser says %q", asked, said)
	}
}

// Whatever stands in a log, the page has no script, no handler and no address: also where no browser enforces its policy.
func TestPageHasNothingToRunOrFetch(t *testing.T) {
	var out bytes.Buffer
	if err := scene(t).Page(&out); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	for _, word := range []string{"<script", "<img", "<b>", "javascript:", "http://", "https://", "url(", "@import", "ZgotmplZ", "\x1b", "\u202e"} {
		if strings.Contains(page, word) {
			t.Errorf("the page has %q", word)
		}
	}
	if on := regexp.MustCompile(`<[^>]*\s(on[a-z]+|src|href|style)=`).FindString(page); on != "" {
		t.Errorf("the page has a handler, an address or a style: %s", on)
	}
	if !strings.Contains(page, "default-src &#39;none&#39;; style-src &#39;sha256-") {
		t.Error("the page has no policy")
	}
	if n := strings.Count(page, "so the chart is an estimate"); n != 1 || !strings.Contains(page, "one in 16 was followed") {
		t.Errorf("%d charts are estimates, want that of device-flood", n)
	}
	for _, shown := range []string{"&lt;script&gt;alert(1)&lt;/script&gt;", "&lt;img src=x onerror=alert(1)&gt;", "A block would have refused 30 requests: 0.3 % of all, 7.1 % of those that the rule watches."} {
		if !strings.Contains(page, shown) {
			t.Errorf("the page does not show %s", shown)
		}
	}
}

// A sweep's chart is that of the greatest limit, under which most is kept, with a line for each.
func TestPageOfASweep(t *testing.T) {
	var out bytes.Buffer
	if err := sweep(t).Page(&out); err != nil {
		t.Fatal(err)
	}
	rest := out.String()
	for _, shown := range []string{"more than 1, 5 or 10 events in 1m, by ip", "limit 1: 335", "3 to 5", "limit 5: 1", "9 to 16", "limit 10: 1", "limit=10: 1 of 1 source,", "limit=1: 1 of 335 sources,"} {
		at := strings.Index(rest, shown)
		if at < 0 {
			t.Fatalf("the page does not show %s, or not there", shown)
		}
		rest = rest[at:]
	}
	if got := wouldHave(&backtest.BlockResult{}); got != "A block would have refused nothing." {
		t.Error(got)
	}
}

// The colours are the console's, whose contrast is tested there, under names of what they mean here.
func TestColoursAreTheConsoles(t *testing.T) {
	sheet, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "console", "pages", "static", "tokens.css"))
	if err != nil {
		t.Fatal(err)
	}
	colour := regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`)
	consoles := map[string][]string{} // light, dark
	for _, m := range regexp.MustCompile(`--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);`).FindAllStringSubmatch(string(sheet), -1) {
		consoles[m[1]] = m[2:]
	}
	names := map[string]string{"under": "curve", "over": "block", "over-soft": "block-soft"}
	ours := map[string][]string{}
	for _, m := range colour.FindAllStringSubmatch(pageCSS, -1) {
		ours[m[1]] = append(ours[m[1]], m[2])
	}
	for name, got := range ours {
		known := name
		if other := names[name]; other != "" {
			known = other
		}
		if len(got) != 2 || strings.Join(got, " ") != strings.Join(consoles[known], " ") {
			t.Errorf("--%s is %v, the console's --%s is %v", name, got, known, consoles[known])
		}
	}
	if len(ours) != 10 {
		t.Errorf("%d colours: %v", len(ours), ours)
	}
}
