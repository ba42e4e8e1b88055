package pages

import (
	"context"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
)

// limitSays are the figures that a page says of a limit.
func limitSays(page string) string {
	m := regexp.MustCompile(`would have held <b>([^<]*)</b> sources and refused <b>([^<]*)</b>`).FindStringSubmatch(page)
	if m == nil {
		return "nothing"
	}
	return m[1] + " sources, " + m[2] + " requests"
}

// A limit that is typed or slid to is told without a page being loaded, and told as the server tells it.
func limitsFollow(chrome context.Context, t *testing.T) {
	s := newScene()
	pages := newPages(t, s.options())
	p := open(chrome, t, serve(t, pages, admin())+"/rules/catalogue-scrape?since=7d", looks()[0])
	const says = `(() => { const [held, refused] = document.querySelectorAll("#limit-says b"); return document.querySelector("#limit-says").hidden ? "nothing" : held.textContent + " sources, " + refused.textContent + " requests"; })()`
	p.until(`!document.querySelector("#limit-slider").hidden && document.querySelector(".limit-form button").hidden`)
	p.do(chromedp.Evaluate[chromedp.Void](`window.same = true`))
	check := func(limit string) {
		t.Helper()
		_, page, _ := get(t, pages, admin(), "/rules/catalogue-scrape?since=7d&limit="+limit)
		if want, got := limitSays(page), p.text(says); got != want || want == "nothing" {
			t.Errorf("limit %s: the page says %s, the server %s", limit, got, want)
		}
		if text := p.text(`document.querySelector(".considered:not([hidden]) text")?.textContent ?? ""`); text != "considered "+limit && limit != "600" {
			t.Errorf("limit %s: the chart says %q", limit, text)
		}
	}
	for _, limit := range []string{"601", "777", "1199", "1200", "1201", "2000", "99999", "600"} {
		p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const n = document.querySelector("#limit"); n.value = %q; n.dispatchEvent(new Event("input")); n.dispatchEvent(new Event("change")); }`, limit)))
		check(limit)
	}
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#limit-slider").focus()`))
	before := 600
	for range 5 {
		p.do(chromedp.KeyEvent("\u0303")) // the arrow to the right
		p.until(fmt.Sprintf(`document.querySelector("#limit").valueAsNumber > %d`, before))
		now := p.text(`document.querySelector("#limit").value`)
		check(now)
		before, _ = strconv.Atoi(now)
	}
	if got := p.text(`location.search + window.same`); got != fmt.Sprintf("?since=7d&limit=%dtrue", before) {
		t.Errorf("the address, and whether the page is the same one: %s", got)
	}
	p.do(chromedp.Evaluate[chromedp.Void](`{ const n = document.querySelector("#limit"); n.value = "3"; n.dispatchEvent(new Event("input")); }`))
	if got := p.text(says); got != "nothing" {
		t.Errorf("below the version's own limit it says %s", got)
	}
}

// liveHits are what the console follows of a scene.
type liveHits struct{ *scene }

func (s liveHits) Hits(_ context.Context, q history.HitQuery) ([]history.RecordedHit, error) {
	return explorer(s).found(explore.Filter{Rule: q.Rule, Since: q.Since}), nil
}

// The count of an episode that goes on is shown as history has it: by the stream of the console, in the page as it stands.
func countsFollow(chrome context.Context, t *testing.T) {
	s := newScene()
	h := &s.hits[len(s.hits)-1]
	h.Rule, h.Phase, h.Count = "catalogue-scrape", detectors.PhaseUpdate, 1_000_000
	o := s.options()
	c, err := console.New(console.Options{
		Pages: as(admin(), newPages(t, o).Handler()), Rules: o.Rules, History: liveHits{s}, Blocks: s, Pulse: o.Pulse, Clock: o.Clock, Logger: o.Logger, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(c.Handler())
	t.Cleanup(server.Close)
	p := open(chrome, t, server.URL+"/rules/catalogue-scrape", looks()[0])
	p.do(chromedp.Evaluate[chromedp.Void](`window.same = true`))
	for i, want := range []string{"1000000", "1000001", "1000017", "2000000"} {
		if i > 0 {
			s.mu.Lock()
			h.Count = map[int]int64{1: 1_000_001, 2: 1_000_017, 3: 2_000_000}[i]
			s.mu.Unlock()
		}
		p.until(fmt.Sprintf(`window.same && document.querySelector('[data-list=episodes] [data-key="%s"] b')?.textContent.replace(/\D/g, "") === %q && document.querySelector("#evidence h2")`, h.ID, want))
	}
}

// What changes in history is told when it is polled next, and read by a page at once, or after its pause: two seconds at most, but for how
// long the readings themselves take.
func TestPagesAreTwoSecondsOldAtMost(t *testing.T) {
	script, err := embedded.ReadFile("static/live.js")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`const pause = (\d+);`).FindSubmatch(script)
	if m == nil {
		t.Fatal("the script names no pause")
	}
	pause, err := time.ParseDuration(string(m[1]) + "ms")
	if err != nil || pause+console.PollEvery > 2*time.Second {
		t.Errorf("a pause of %v after each reading, and a poll each %v; %v", pause, console.PollEvery, err)
	}
}
