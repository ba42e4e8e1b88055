package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/console/signin/signintest"
	"github.com/weirhq/weir/internal/browser"
	"github.com/weirhq/weir/internal/testbed"
)

// attack is of two sources that never pause, on a path of each rule.
type attack struct {
	t        *testing.T
	producer *kgo.Client
	paths    int
	target   atomic.Int64 // the path that they come to most
}

func attackPath(i int) string { return fmt.Sprintf("/v1/tokens-%d", i) }

func (a *attack) event(ip, plan string, path int, at time.Time) *kgo.Record {
	raw, err := json.Marshal(map[string]any{
		"v": 1, "time": at.UTC().Format(time.RFC3339Nano), "ip": "10.0.0.1", "forwarded_for": ip,
		"method": "POST", "path": attackPath(path), "status": 200, "plan": plan,
	})
	if err != nil {
		a.t.Error(err)
	}
	return &kgo.Record{Value: raw}
}

// before is what had come five minutes ago: viewers who pay, and the two.
func (a *attack) before() {
	a.t.Helper()
	then := time.Now().Add(-5 * time.Minute)
	var all []*kgo.Record
	for path := range a.paths {
		for i := range 10 {
			all = append(all, a.event(fmt.Sprintf("198.51.100.%d", i+1), "paid", path, then))
		}
		for range 6 {
			all = append(all, a.event("203.0.113.1", "free", path, then), a.event("203.0.113.2", "free", path, then))
		}
	}
	if err := a.producer.ProduceSync(background(a.t), all...).FirstErr(); err != nil {
		a.t.Fatal(err)
	}
}

// goesOn until ctx ends.
func (a *attack) goesOn(ctx context.Context) {
	for round := 0; ctx.Err() == nil; round++ {
		at, now := int(a.target.Load()), time.Now()
		err := a.producer.ProduceSync(ctx,
			a.event("203.0.113.1", "free", at, now), a.event("203.0.113.2", "free", at, now), a.event("203.0.113.1",
				"free", round%a.paths, now),
		).FirstErr()
		if err != nil && ctx.Err() == nil {
			a.t.Errorf("the attack: %v", err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestPromotionsUnderAnAttack promotes rules by their pages while their sources never pause: none is refused, each is
// by what its page had shown, and the page says what has come since.
func TestPromotionsUnderAnAttack(t *testing.T) {
	t.Parallel()
	promotions := 6
	if testbed.AtNight() {
		promotions = 50
	}
	chromium := browser.Start(t)
	port := testbed.FreePort(t)
	address := fmt.Sprintf("http://127.0.0.1:%d", port)
	in := newInstall(t, [3]int{2, 4, 2}, fmt.Sprintf("{url: %q}", testbed.Redis(t)), 1, consoleOf(port, address,
		signintest.Start(t, address)))
	var rules []string
	for i := range promotions {
		rules = append(rules, strings.NewReplacer("id: guest-tokens", fmt.Sprintf("id: tokens-%d", i),
			"/v1/guest-tokens", attackPath(i)).Replace(storyRule))
	}
	in.Weir("rules", "apply", "-f", in.Write("rules.yaml", strings.Join(rules, "---")), "--reason", "tests")
	for i := range promotions {
		in.watches(fmt.Sprintf("tokens-%d", i))
	}
	stages := in.start("run", "--console")
	awaitConsole(t, address)

	a := &attack{t: t, producer: newStreet(t, in).producer, paths: promotions}
	a.before()
	ctx, stop := context.WithCancel(background(t))
	var going sync.WaitGroup
	going.Go(func() { a.goesOn(ctx) })
	defer going.Wait()
	defer stop()

	olga := newPerson(chromium, t, address, signintest.Owner)
	grown := 0
	for i := range promotions {
		a.target.Store(int64(i))
		rule := fmt.Sprintf("tokens-%d", i)
		olga.opens("/rules/"+rule+"/promote",
			`[...document.querySelectorAll('main td .tag')].map((tag) => tag.innerText).join() == 'passed,passed,passed,passed' && row('203.0.113.1', 'no') && row('203.0.113.2', 'no')`)
		looked := olga.reads(`document.querySelector('[name=dossier]').value`)
		olga.presses(`document.querySelector('input[name=to][value=block]')`)
		olga.decides("an attack that goes on")
		olga.until(`location.search.includes('did=promote') && says('[data-part=state]').includes('Blocking')`)
		if said := olga.reads(`document.querySelector('.note-ok').innerText`); strings.Contains(said, " more event") {
			grown++
		}
		detail := ""
		in.query(`SELECT detail FROM {ns}.audit WHERE action = 'promote' AND object = 'rule `+rule+`'`,
			func(rows pgx.Rows) error { return rows.Scan(&detail) })
		if !strings.Contains(detail, "dossier "+looked) {
			t.Errorf("%s was promoted by another dossier than %s: %s", rule, looked, detail)
		}
	}
	if grown == 0 {
		t.Errorf("of %d promotions none says that more has come: the attack proves nothing", promotions)
	}
	stop()
	going.Wait()
	stages.stop()
}

// reads gives what a script finds in the page.
func (p *person) reads(script string) (text string) {
	p.t.Helper()
	testbed.Eventually(p.t, patience, func() (err error) {
		bounded, cancel := context.WithTimeout(p.ctx, answers)
		defer cancel()
		text, err = chromedp.Run(bounded, chromedp.Evaluate[string](script))
		return err
	})
	return text
}
