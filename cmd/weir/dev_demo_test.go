package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/internal/demo"
	"github.com/weirhq/weir/internal/testbed"
)

// takeToken asks the demo's gateway for a guest token, as curl does.
func takeToken(t *testing.T, gateway, ip, device string) verdictOfGateway {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+gateway+"/v1/guest-tokens", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", ip)
	r.Header.Set("X-Device-Id", device)
	answer := exchange(t, r)
	return verdictOfGateway{answer.status, answer.header.Get(gate.HeaderBlock), string(answer.body)}
}

// verdictOfGateway is what a client of the demo's gateway is told.
type verdictOfGateway struct {
	status int
	block  string
	body   string
}

// abuse takes tokens until the gateway refuses, and gives that answer.
func abuse(t *testing.T, gateway, ip string) (last verdictOfGateway) {
	t.Helper()
	testbed.Eventually(t, 30*time.Second, func() error {
		if last = takeToken(t, gateway, ip, "mine"); last.status != http.StatusTooManyRequests {
			return fmt.Errorf("the gateway answers %d to one who asks all the time", last.status)
		}
		return nil
	})
	return last
}

// From the start over the first visible hit and the promotion to a block that curl meets; then kill -9, and on.
func TestDevDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	dir, begun := testbed.Folder(t), time.Now()
	p := startDev(t, dir)
	gateway := p.await(`gateway +http://(\S+)`)
	b := p.bed()
	testbed.Eventually(t, time.Minute, func() error {
		if len(hitIDs(b)) == 0 {
			return errors.New("no hit is in history")
		}
		return nil
	})
	t.Logf("the first hit was in history %s after the start", time.Since(begun).Round(10*time.Millisecond))
	var blocking []sight
	if got := modes(b); len(got) != 4 {
		t.Errorf("the rules begin as %v", got)
	} else if slices.Contains(slices.Collect(maps.Values(got)), "block") {
		blocking = append(blocking, sight{time.Now(), fmt.Sprintf("the rules are %v", got)})
	}
	for range 10 { // in shadow
		if got := takeToken(t, gateway, "198.51.100.77", "early"); got.status != http.StatusOK {
			blocking = append(blocking, sight{time.Now(), fmt.Sprintf("the gateway answers %d", got.status)})
		}
	}
	p.await(`promoted rule guest-tokens`)
	promoted := firstPromotion(b)
	for _, s := range blocking { // the demo promotes after some ten seconds: a busy machine may have been no sooner
		if s.at.Before(promoted) {
			t.Errorf("%s at %s, in shadow: the first rule was promoted at %s", s.what, s.at, promoted)
		}
	}
	refused := abuse(t, gateway, "198.51.100.78")
	if len(refused.block) != 16 || !strings.Contains(refused.body, refused.block) {
		t.Errorf("refused with block %q and body %s", refused.block, refused.body)
	}
	if got := takeToken(t, gateway, "198.51.100.79", "theirs"); got.status != http.StatusOK {
		t.Errorf("another viewer is answered %d", got.status)
	}
	for rule, mode := range modes(b) { // two are promoted while somebody watches, one after the other; two are left
		if mode == "block" && !slices.Contains(demo.WatchedPromotions(), rule) || mode != "block" && rule == demo.WatchedPromotions()[0] {
			t.Errorf("after the first promotion %s is in mode %s", rule, mode)
		}
	}
	first := hitIDs(b)

	p.kill()
	p = startDev(t, dir)
	gateway = p.await(`gateway +http://(\S+)`)
	p.await(`rules that an earlier run promoted go on blocking: guest-tokens`)
	b = p.bed()
	// Redis has lost what it was told last, and the reconciler writes it again. Nobody asks meanwhile: who asks and is let in is counted anew, which
	// makes another block where all this took longer than the window.
	wantBlock(b, refused.block)
	testbed.Eventually(t, time.Minute, func() error { // the gate follows Redis
		if got := takeToken(t, gateway, "198.51.100.78", "mine"); got.status != http.StatusTooManyRequests || got.block != refused.block {
			return fmt.Errorf("after kill -9 whom a block holds for minutes is answered %+v, want block %s", got, refused.block)
		}
		return nil
	})
	now := hitIDs(b)
	for _, id := range first {
		if !slices.Contains(now, id) {
			t.Errorf("after kill -9 hit %s is gone", id)
		}
	}
	abuse(t, gateway, "198.51.100.80")
	p.interrupt()
}

// sight is something that was seen.
type sight struct {
	at   time.Time // by when it was
	what string
}

// firstPromotion is when the first of the rules was promoted that block.
func firstPromotion(b *bed) (first time.Time) {
	b.t.Helper()
	for _, r := range decode[[]struct {
		Mode    string
		Changed time.Time
	}](b, "rules", "list") {
		if r.Mode == "block" && (first.IsZero() || r.Changed.Before(first)) {
			first = r.Changed
		}
	}
	if first.IsZero() {
		b.t.Fatal("no rule blocks")
	}
	return first
}

// modes are those of all rules.
func modes(b *bed) map[string]string {
	b.t.Helper()
	all := map[string]string{}
	for _, r := range decode[[]struct {
		Mode   string
		Newest struct{ Document struct{ ID string } }
	}](b, "rules", "list") {
		all[r.Newest.Document.ID] = r.Mode
	}
	return all
}
