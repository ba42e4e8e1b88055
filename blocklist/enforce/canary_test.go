package enforce_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// inShare is docs/blocks.md's rule of who is within a canary's share, computed another way.
func inShare(subject traffic.Subject, share int64) bool {
	mac := hmac.New(sha256.New, []byte(blocktest.Secret))
	mac.Write([]byte("canary\x00" + blocktest.FloodRule + "\x00" + string(subject) + "\x00"))
	side := new(big.Int).SetBytes(mac.Sum(nil)[:8])
	side.Mul(side, big.NewInt(10_000)).Rsh(side, 64)
	return side.Cmp(big.NewInt(share)) < 0
}

// crowd are addresses, each with an opening hit.
func crowd(s *blocktest.Stage, n int) (hits []detectors.Hit) {
	for i := range n {
		hits = append(hits, s.Hit(func(h *detectors.Hit) {
			h.ID = fmt.Sprintf("%032x", i+1)
			h.Subject = traffic.Subject(fmt.Sprintf("ip=198.51.%d.%d%%2F32", 100+i/200, 1+i%200))
			h.BlockSubject, h.Count = h.Subject, int64(i)
		}))
	}
	return hits
}

// canary has FloodRule in canary at a share.
func canary(s *blocktest.Stage, share int, generation int64) {
	s.Rules.Put(rules.ModeState{Rule: blocktest.FloodRule, Mode: rules.ModeCanary, Generation: generation, Newest: 1, Promoted: 1, Share: share})
	s.PublishModes()
}

// holding are those of hits whose address a gate refuses.
func holding(r blocktest.Finder, s *blocktest.Stage, hits []detectors.Hit) map[traffic.Subject]bool {
	held := map[traffic.Subject]bool{}
	for _, h := range hits {
		address, _, _ := strings.Cut(strings.TrimPrefix(string(h.BlockSubject), "ip="), "%")
		id := traffic.Identity{IP: netip.MustParseAddr(address)}
		if _, found := r.Find(id, rules.Target{Method: "POST", Path: "/v1/guest-tokens"}, s.Clock.Now()); found {
			held[h.BlockSubject] = true
		}
	}
	return held
}

func within(hits []detectors.Hit, share int64) map[traffic.Subject]bool {
	in := map[traffic.Subject]bool{}
	for _, h := range hits {
		if inShare(h.BlockSubject, share) {
			in[h.BlockSubject] = true
		}
	}
	return in
}

// eventuallyHolds waits until the gate refuses these and no others.
func eventuallyHolds(t *testing.T, r blocktest.Finder, s *blocktest.Stage, hits []detectors.Hit, want map[traffic.Subject]bool) {
	t.Helper()
	testbed.Eventually(t, 10*time.Second, func() error {
		if got := holding(r, s, hits); !maps.Equal(got, want) {
			return fmt.Errorf("%d are held, want %d: %v", len(got), len(want), slices.Sorted(maps.Keys(got)))
		}
		return nil
	})
}

// A canary at 10 % holds its own tenth, whoever decides and however often it is started; nobody else is ever refused. The rest is
// withheld, and counted as what would be. A greater share keeps whom the lower one held.
func TestCanaryHoldsItsShare(t *testing.T) {
	s := blocktest.NewStage(t, oneServer(t))
	r := newReplica(t, s)
	hits := crowd(s, 400)
	canary(s, 1000, 2)
	var written, withheld int
	for part := range slices.Chunk(hits, 50) {
		s.Restart()
		for range 2 {
			for _, d := range s.Decide(part...) {
				switch {
				case strings.HasPrefix(d, "written"):
					written++
				case strings.HasPrefix(d, "withheld") && strings.Contains(d, "canary"):
					withheld++
				default:
					t.Fatal(d)
				}
			}
		}
		if held := holding(r, s, hits); !subset(held, within(hits, 1000)) {
			t.Fatal("somebody is held who is not within the tenth")
		}
	}
	tenth := within(hits, 1000)
	if written != len(tenth) || withheld != len(hits)-written || len(tenth) < 15 || len(tenth) > 80 {
		t.Errorf("%d written, %d withheld; %d of %d are within the tenth", written, withheld, len(tenth), len(hits))
	}
	eventuallyHolds(t, r, s, hits, tenth)

	s.Restart()
	s.Decide(hits...)
	rest := float64(len(hits) - len(tenth))
	if got := s.Metric("weir_enforce_decisions_total", "would_write", "shadow", "", blocktest.FloodRule); got != rest {
		t.Errorf("would_write %v, want %v", got, rest)
	}
	if got := s.Metric("weir_blocks", "canary", blocktest.FloodRule); got != float64(len(tenth)) {
		t.Errorf("weir_blocks of the canary: %v", got)
	}
	if got := s.Metric("weir_blocks", "shadow", blocktest.FloodRule); got != rest {
		t.Errorf("weir_blocks of the rest: %v", got)
	}

	// The next step, of the same generation: who is held stays held, and the next hit of half of them blocks.
	canary(s, 5000, 2)
	eventuallyHolds(t, r, s, hits, tenth)
	for i := range hits {
		hits[i].Phase, hits[i].Last = detectors.PhaseUpdate, hits[i].Last.Add(time.Millisecond)
	}
	s.Decide(hits...)
	half := within(hits, 5000)
	if !subset(tenth, half) {
		t.Fatal("the tenth is not within the half")
	}
	eventuallyHolds(t, r, s, hits, half)
	// At the end it blocks, and holds whom it held.
	s.Rules.Put(rules.ModeState{Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 2, Newest: 1, Promoted: 1})
	s.PublishModes()
	for i := range hits {
		hits[i].Last = hits[i].Last.Add(time.Millisecond)
	}
	if got := s.Metric("weir_blocks", "canary", blocktest.FloodRule); got != float64(len(half)) {
		t.Errorf("weir_blocks of the canary: %v, want %d", got, len(half))
	}
	s.Decide(hits...)
	eventuallyHolds(t, r, s, hits, within(hits, 10_000))
	// And in shadow it holds nobody.
	s.Publish(blocktest.FloodRule, rules.ModeShadow)
	eventuallyHolds(t, r, s, hits, map[traffic.Subject]bool{})
}

func subset(some, all map[traffic.Subject]bool) bool {
	for s := range some {
		if !all[s] {
			return false
		}
	}
	return true
}

// What stands against a block stands against it outside the share, too, and is the reason that is told.
func TestOutsideACanaryOtherReasonsComeFirst(t *testing.T) {
	s := blocktest.NewStage(t, oneServer(t))
	canary(s, 0, 2) // nobody, as an entry says that a build wrote which knows of no canary
	for reason, change := range map[string]func(h *detectors.Hit){
		"never_block": func(h *detectors.Hit) { h.BlockSubject = "ip=10.1.2.3%2F32" },
		"max_lag":     func(h *detectors.Hit) { h.First, h.Last = h.First.Add(-2*time.Minute), h.Last.Add(-2*time.Minute) },
		"canary":      func(*detectors.Hit) {},
	} {
		if got := s.Decide(s.Hit(change)); len(got) != 1 || !strings.HasPrefix(got[0], "withheld") || !strings.Contains(got[0], reason) {
			t.Errorf("%s: %v", reason, got)
		}
	}
	if got := s.Decide(s.Hit(func(h *detectors.Hit) { h.Phase = detectors.PhaseClosed })); len(got) > 0 {
		t.Errorf("a closing hit: %v", got)
	}
	if b, _ := s.Stands(); b != nil {
		t.Errorf("%+v stands", b)
	}
}

// openHits is a history of hits.
type openHits struct {
	mu    sync.Mutex
	hits  []detectors.Hit
	asked []traffic.Time
	fail  error
}

func (o *openHits) OpenHits(_ context.Context, rule string, since traffic.Time, most int) ([]detectors.Hit, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, since)
	var found []detectors.Hit
	for _, h := range o.hits {
		if h.Rule == rule && h.Last >= since {
			found = append(found, h)
		}
	}
	slices.SortFunc(found, func(a, b detectors.Hit) int { return int(b.Count - a.Count) })
	return found[:min(len(found), most)], o.fail
}

// Who is over the limit when a rule is promoted is blocked without another hit: by the way of all hits, so not who is never blocked, who was
// released, or whose evidence is old. It happens once for each promotion and step, and again after a restart, which changes nothing.
func TestWhoIsOverWhenARuleBeginsToBlock(t *testing.T) {
	s := blocktest.NewStage(t, oneServer(t))
	s.Publish(blocktest.FloodRule, rules.ModeShadow)
	hits := crowd(s, 40)
	hits[7].BlockSubject, hits[8].Last, hits[8].First = "ip=10.1.2.3%2F32", s.Clock.Now().Add(-2*time.Minute), s.Clock.Now().Add(-3*time.Minute)
	history := &openHits{hits: hits}
	s.Decide(hits...) // in shadow they do nothing
	release, err := blocklist.NewRelease(hits[9].BlockSubject, blocktest.FloodRule, "ops", "a partner", s.Clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	s.Decide(release)
	s.OpenHits = history
	want := within(hits, 5000)
	for _, not := range []int{7, 8, 9} {
		delete(want, hits[not].BlockSubject)
	}
	var r blocktest.Finder = newReplica(t, s)
	start := func() {
		s.Restart()
		blocktest.Run(t, enforce.NewBackfill(s.Enforcer).Run)
		if err := s.Enforcer.RefreshModes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	start()
	eventuallyHolds(t, r, s, hits, map[traffic.Subject]bool{})
	canary(s, 5000, 9)
	if err := s.Enforcer.RefreshModes(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventuallyHolds(t, r, s, hits, want)
	if n, _ := s.Histogram("weir_event_to_block_seconds"); n != 0 {
		t.Errorf("%d of these blocks count as late ones", n)
	}
	for _, d := range s.Log.Take() {
		if strings.Contains(d, "canary") {
			t.Errorf("who is outside the share is told of: %s", d)
		}
	}
	// A process that is started anew finds the same.
	start()
	testbed.Eventually(t, 10*time.Second, func() error {
		if s.Metric("weir_enforce_again_total") == 0 {
			return fmt.Errorf("history was not asked")
		}
		return nil
	})
	eventuallyHolds(t, r, s, hits, want)
	// The end of the canary takes the others.
	s.Rules.Put(rules.ModeState{Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 9, Newest: 1, Promoted: 1})
	s.PublishModes()
	if err := s.Enforcer.RefreshModes(t.Context()); err != nil {
		t.Fatal(err)
	}
	want = within(hits, 10_000)
	for _, not := range []int{7, 8, 9} {
		delete(want, hits[not].BlockSubject)
	}
	eventuallyHolds(t, r, s, hits, want)
}

// The worst come first, and no more than are blocked at once.
func TestTheWorstAreBlockedFirst(t *testing.T) {
	s := blocktest.NewStage(t, oneServer(t))
	hits := crowd(s, 1200)
	s.OpenHits = &openHits{hits: hits}
	s.Restart()
	s.Publish(blocktest.FloodRule, rules.ModeBlock)
	blocktest.Run(t, enforce.NewBackfill(s.Enforcer).Run)
	if err := s.Enforcer.RefreshModes(t.Context()); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 20*time.Second, func() error {
		if got := s.Metric("weir_blocks", "block", blocktest.FloodRule); got != 1000 {
			return fmt.Errorf("%v are blocked", got)
		}
		return nil
	})
	for i, want := range map[int]bool{0: false, 199: false, 200: true, 1199: true} {
		b, _, err := s.Store.Get(t.Context(), hits[i].BlockSubject, blocktest.FloodRule)
		if err != nil || (b != nil) != want {
			t.Errorf("number %d from below: blocked %v, %v", i, b != nil, err)
		}
	}
}
