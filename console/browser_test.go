package console

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// tab is one page with everything that it complained about and asked for.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	messages []string
	hosts    []string
}

// open opens address in a tab of its own, as a screen of this size and scheme would.
func open(browser context.Context, t *testing.T, address string, look look) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		t.Fatal(err)
	}
	listening, stop := context.WithCancel(ctx)
	heard := chromedp.Console(listening)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for m, err := range heard {
			if err != nil {
				return
			}
			p.mu.Lock()
			p.messages = append(p.messages, fmt.Sprintf("%s: %s (%s:%d)", m.Type, m.Text, m.URL, m.Line))
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
	look.apply(ctx, t)
	p.do(chromedp.Navigate(address))
	return p
}

// hear notes every request that the page makes.
func (p *tab) hear(event any) {
	if sent, ok := event.(*network.EventRequestWillBeSent); ok {
		host := sent.Request.URL
		if u, err := url.Parse(host); err == nil && u.Host != "" {
			host = u.Host
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hosts = append(p.hosts, host)
	}
}

// patience is when a page that does not come to what is asked of it is given up: its end says that it hangs, not that the machine is busy.
const patience = 2 * time.Minute

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	bounded, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(bounded, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// text is what the script says.
func (p *tab) text(script string) string {
	p.t.Helper()
	bounded, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(bounded, chromedp.Evaluate[string](script))
	if err != nil {
		p.t.Fatalf("%s: %v", script, err)
	}
	return out
}

// click clicks the first element that the selector finds.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void]("document.querySelector(" + quote(selector) + ").click()"))
}

// until waits for a condition of the page.
func (p *tab) until(condition string) {
	p.t.Helper()
	bounded, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(bounded, chromedp.Poll[chromedp.Void](condition, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience/2)))
	if err != nil {
		p.t.Fatalf("never came true: %s: %v", condition, err)
	}
}

// blameless fails the test if the page complained, or asked anybody but its own server for anything.
func (p *tab) blameless(address string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.messages) > 0 {
		p.t.Errorf("the browser's console says:\n%s", strings.Join(p.messages, "\n"))
	}
	own := strings.TrimPrefix(address, "http://")
	if len(p.hosts) == 0 {
		p.t.Error("no request was seen at all: nothing is proved about other hosts")
	}
	if others := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(p.hosts))), func(h string) bool { return h == own }); len(others) > 0 {
		p.t.Errorf("requests to other hosts: %v", others)
	}
}

// shoot keeps a picture of the whole page in WEIR_SCREENSHOTS, or the test's own folder.
func (p *tab) shoot(name string, whole bool) {
	p.t.Helper()
	folder := os.Getenv("WEIR_SCREENSHOTS")
	if folder == "" {
		folder = p.t.TempDir()
	}
	action := chromedp.CaptureScreenshot()
	if whole {
		action = chromedp.FullScreenshot(100)
	}
	bounded, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	picture, err := chromedp.Run(bounded, action)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644)); err != nil {
		p.t.Fatal(err)
	}
}

// look is a screen.
type look struct {
	name, scheme  string
	width, height int64
	phone         bool
}

func looks() []look {
	return []look{
		{"wide-light", "light", 1440, 1000, false}, {"wide-dark", "dark", 1440, 1000, false},
		{"phone-light", "light", 390, 844, true}, {"phone-dark", "dark", 390, 844, true},
	}
}

func (l look) apply(ctx context.Context, t *testing.T) {
	t.Helper()
	var how []chromedp.EmulateViewportOption
	if l.phone {
		how = append(how, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2))
	}
	err := chromedp.Do(ctx, chromedp.EmulateViewport(l.width, l.height, how...))
	if err == nil {
		_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func serve(t *testing.T, c *Console) (address string) {
	t.Helper()
	c.slowAfter = patience // a busy machine's browser is not dropped
	server := httptest.NewServer(c.Handler())
	t.Cleanup(server.Close)
	run(t, c) // ends before the server is closed, which waits for streams
	return server.URL
}
