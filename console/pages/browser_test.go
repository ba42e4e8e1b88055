package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/savedviews"
	"github.com/weirhq/weir/internal/browser"
	"github.com/weirhq/weir/internal/testbed"
)

// view is one page with everything that it complained about and asked for.
type view struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	messages []string
	hosts    []string
}

// open opens address in a view of its own, as a screen of this size and scheme would.
func open(browser context.Context, t *testing.T, address string, look look) *view {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	p := &view{t: t, ctx: ctx}
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
func (p *view) hear(event any) {
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

func (p *view) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	bounded, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(bounded, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// text is what the script says.
func (p *view) text(script string) string {
	p.t.Helper()
	bounded, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(bounded, chromedp.Evaluate[string](script))
	if err != nil {
		p.t.Fatalf("%s: %v", script, err)
	}
	return out
}

// until waits for a condition of the page, or of the page that it goes to, once all of it is there: what comes next
// may be further down.
func (p *view) until(condition string) {
	p.t.Helper()
	testbed.Eventually(p.t, patience/2, func() error {
		bounded, cancel := context.WithTimeout(p.ctx, patience)
		defer cancel()
		held, err := chromedp.Run(bounded,
			chromedp.Evaluate[bool](`document.readyState === "complete" && !!(`+condition+")"))
		if err == nil && !held {
			err = errors.New("never came true: " + condition)
		}
		return err
	})
}

// blameless fails the test if the page complained, or asked anybody but its own server for anything.
func (p *view) blameless(address string) {
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
func (p *view) shoot(name string, whole bool) {
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
		{"wide-light", "light", 1280, 900, false}, {"wide-dark", "dark", 1280, 900, false},
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

// serve serves pages as the console does, to one person.
func serve(t *testing.T, p *Pages, v access.Visit) (address string) {
	t.Helper()
	server := httptest.NewServer(behind(v, p.Handler()))
	t.Cleanup(server.Close)
	return server.URL
}

// behind is a handler with the headers of the console, and a stream that says nothing.
func behind(v access.Visit, to http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("retry: 60000\n\nevent: pulse\ndata: {\"at\":\"2026-11-21T14:30:08Z\"}\n\n"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.Handle("/", as(v, to))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		console.Secure(w.Header())
		mux.ServeHTTP(w, r)
	})
}

// addresses are all pages of a scene.
func addresses(s *scene) map[string]string {
	hit := s.hits[len(s.hits)-1]
	return map[string]string{
		"overview": "/?since=24h", "explore-rule": "/explore?since=7d", "explore-source": "/explore?by=source&since=7d&rule=login-stuffing", "explore-episode": "/explore?by=episode&top=20",
		"rule": "/rules/guest-token-flood?since=7d&limit=40", "rule-shadow": "/rules/catalogue-scrape?since=24h", "promote": "/rules/catalogue-scrape/promote?version=3", "source": "/sources?of=ip%3D203.0.113.7", "hit": "/hits/" + hit.ID, "blocks": "/blocks",
		"audit": "/audit", "health": "/health", "search": "/search?q=", "failure": "/nowhere", "failure-filter": "/explore?by=colour",
		"rule-canary": "/rules/search-hammer?since=7d", "demote": "/rules/guest-token-flood/demote", "release": "/release?rule=login-stuffing&subject=ip%3D203.0.113.7%252F32", "failure-rule": "/rules/login-stufing",
		"allow": "/allow", "allowed": "/allow/offices", "enter": "/allow/offices/change",
		"remove-entry": "/allow/offices/change?version=4&remove=1",
		"limit":        "/rules/login-stuffing/limit", "rollback": "/rules/login-stuffing/rollback?to=2",
		"reset":      "/rules/login-stuffing/reset?subject=ip%3D203.0.113.7%252F32",
		"partitions": "/partitions", "resume": "/partitions/keyed/12/resume",
		"hit-held": "/hits/" + held(s), "write": "/write", "edit": "/rules/login-stuffing/edit",
	}
}

// In one browser, since to start one takes longer than most of what is looked at in it.
func TestInBrowser(t *testing.T) {
	chrome := browser.Start(t)
	for _, one := range []struct {
		name string
		test func(chrome context.Context, t *testing.T)
	}{
		{"looks", looksRight}, {"named", pagesAreNamed}, {"without script", withoutScript},
		{"keyboard", promoteByKeyboard}, {"six actions", letPassInSixActions}, {"many rules", manyRules},
		{"writes a rule", writesARule}, {"limits", limitsFollow}, {"hostile text", hostileTextIsShown},
		{"counts", countsFollow},
	} {
		t.Run(one.name, func(t *testing.T) { one.test(chrome, t) })
	}
}

// Every page in every look: no complaint of the browser, no request to another host, no sideways scroll. A landing has each width and each
// scheme once. Pictures are kept where WEIR_SCREENSHOTS names a folder.
func looksRight(chrome context.Context, t *testing.T) {
	s := newScene()
	_ = s.views.Save(t.Context(), savedviews.View{By: "mara", Name: "Login attacks of the week, by source", Query: "by=source&rule=login-stuffing&since=7d"})
	_ = s.views.Save(t.Context(), savedviews.View{By: "jonas", Name: "What canaries find", Query: "by=source&mode=canary", Shared: true})
	address, empty := serve(t, newPages(t, s.options()), admin()), serve(t, newPages(t, emptyScene().options()), admin())
	for i, look := range looks() {
		if crossed := i == 1 || i == 2; crossed && !testbed.AtNight() && os.Getenv("WEIR_SCREENSHOTS") == "" {
			continue
		}
		t.Run(look.name, func(t *testing.T) {
			p := open(chrome, t, address+"/search?q=", look)
			for name, at := range addresses(s) {
				p.looksRight(name, address, at, look)
			}
			for name, at := range map[string]string{"empty": "/", "empty-explore": "/explore", "empty-blocks": "/blocks", "empty-audit": "/audit", "empty-health": "/health"} {
				p.looksRight(name, empty, at, look)
			}
		})
	}
}

func (p *view) looksRight(name, server, at string, look look) {
	p.t.Helper()
	p.mu.Lock()
	p.messages, p.hosts = nil, nil
	p.mu.Unlock()
	p.do(chromedp.Navigate(server + at))
	p.until(`document.readyState === "complete"`)
	if wide := p.text(`String(document.documentElement.scrollWidth - document.documentElement.clientWidth)`); wide != "0" {
		p.t.Errorf("%s scrolls sideways by %s px", name, wide)
	}
	if os.Getenv("WEIR_SCREENSHOTS") != "" {
		p.shoot(name+"-"+look.name, true)
	}
	if !strings.HasPrefix(name, "failure") { // of which the browser says that the server answered so
		p.blameless(server)
	}
}
