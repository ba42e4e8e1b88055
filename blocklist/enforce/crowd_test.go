package enforce_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

var claimedDevice = blocklist.Crowds{PerAddress: 3, Claimed: []traffic.Field{traffic.FieldDevice, traffic.FieldUser}}

// claim is a hit of an address that says that it is device n.
func claim(s *blocktest.Stage, address string, n int, change ...func(h *detectors.Hit)) detectors.Hit {
	return s.Hit(append([]func(h *detectors.Hit){func(h *detectors.Hit) {
		h.ID = fmt.Sprintf("d%d", n)
		h.BlockSubject = traffic.Subject(fmt.Sprintf("ip=%s&device=tv-%d", address, n))
	}}, change...)...)
}

// One address that goes on claiming devices has so many blocks and no more, whichever instance decides, however often.
func TestBlocksOfAnAddressAreBounded(t *testing.T) {
	const one, another = "192.0.2.1%2F32", "2001%3Adb8%3A%3A%2F64"
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Store.Bound(claimedDevice)
		if got := fmt.Sprint(s.Decide(claim(s, one, 1), claim(s, one, 2))); got != "[written written]" {
			t.Fatalf("two devices: %s", got)
		}
		s.Restart() // another instance, which takes the log again from its beginning
		if got := fmt.Sprint(s.Decide(claim(s, one, 1, later(2)), claim(s, one, 2, later(2)), claim(s, one, 3), claim(s, one, 4), claim(s, one, 5), claim(s, another, 1))); got != "[extended extended written withheld crowded withheld crowded written]" {
			t.Errorf("a replay, three more devices, and another address: %s", got)
		}
		if got := fmt.Sprint(s.Decide(claim(s, one, 4, later(3)))); got != "[]" {
			t.Errorf("withheld again: %s, want it told once", got)
		}
		gone, err := blocklist.NewRelease("ip=192.0.2.1%2F32&device=tv-2", blocktest.FloodRule, "ops", "false alarm", s.Clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		nobody, err := blocklist.NewRelease("ip=192.0.2.1%2F32&device=tv-5", blocktest.FloodRule, "ops", "nothing there", s.Clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(s.Decide(nobody, gone)); got != "[released released]" {
			t.Errorf("releases: %s", got)
		}
		if got := fmt.Sprint(s.Decide(claim(s, one, 4, later(4)), claim(s, one, 6), claim(s, one, 2, later(4)))); got != "[written withheld crowded withheld crowded]" {
			t.Errorf("after one of three was released: %s", got)
		}
		s.Rules.Set(blocktest.FloodRule, rules.ModeBlock) // promoted anew: what was written before holds nobody
		s.ModesChanged()
		if got := fmt.Sprint(s.Decide(claim(s, one, 7), claim(s, one, 8))); got != "[written written]" {
			t.Errorf("under the next generation: %s", got)
		}
	})
}

// later makes the last over event n seconds later than that of a hit.
func later(n int) func(h *detectors.Hit) {
	return func(h *detectors.Hit) {
		h.Phase, h.Last = detectors.PhaseUpdate, h.Last.Add(time.Duration(n)*time.Second)
	}
}

// What is counted ends with the blocks, and lasts as long as they do.
func TestCountedBlocksExpire(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Store.Bound(claimedDevice)
		const ttl = 1500 * time.Millisecond // of which a hit is a second old
		s.Rules.Block[blocktest.FloodRule].TTL = ttl
		// On a busy machine a block may be over before it is written, or before anybody looks.
		tries, address := 0, ""
		testbed.Eventually(t, 10*time.Second, func() error {
			tries++
			address = fmt.Sprintf("192.0.2.%d%%2F32", tries)
			if got := s.Decide(claim(s, address, 1), claim(s, address, 2), claim(s, address, 3)); fmt.Sprint(got) != "[written written written]" {
				return fmt.Errorf("three devices: %v", got)
			}
			return nil
		})
		keys := func() int {
			n := 0
			for _, generation := range []int64{1} {
				exists, err := s.Client.Exists(t.Context(), s.Keys.Crowd(traffic.Subject("ip="+address), blocktest.FloodRule, generation)).Result()
				if err != nil {
					t.Fatal(err)
				}
				n += int(exists)
			}
			return n
		}
		testbed.Eventually(t, 10*time.Second, func() error {
			fourth := claim(s, address, 4)
			if got := s.Decide(fourth); !slices.Contains(got, "written") {
				return fmt.Errorf("a fourth device: %v", got)
			}
			switch n := keys(); {
			case n == 1:
				return nil
			case s.Clock.Now() < fourth.Last.Add(ttl):
				t.Fatal("nothing counts")
			}
			return errors.New("the fourth block was over before the count was asked for")
		})
		testbed.Eventually(t, 10*time.Second, func() error {
			if keys() != 0 {
				return fmt.Errorf("the count outlives the blocks")
			}
			return nil
		})
	})
}

// Keys that clients cannot choose are not counted, and cost no call.
func TestVouchedKeysAreNotBounded(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	s.Store.Bound(blocklist.Crowds{PerAddress: 1, Claimed: []traffic.Field{traffic.FieldUser}})
	var hits []detectors.Hit
	for i := range 5 {
		hits = append(hits, claim(s, "192.0.2.1%2F32", i))
	}
	for i := range 5 { // no address: the gateway vouches for the whole of it, or there is no such rule
		hits = append(hits, s.Hit(func(h *detectors.Hit) {
			h.ID, h.BlockSubject = fmt.Sprintf("u%d", i), traffic.Subject(fmt.Sprintf("user=u%d", i))
		}))
	}
	if got := s.Decide(hits...); slices.ContainsFunc(got, func(d string) bool { return d != "written" }) {
		t.Errorf("decisions: %v", got)
	}
	sets, err := s.Client.Keys(t.Context(), s.Namespace+":v1:crowd:*").Result()
	if err != nil || len(sets) > 0 {
		t.Errorf("sets that count: %v, %v", sets, err)
	}
}

// A client with one address and any number of devices takes no more of Redis than the bound allows.
func TestOneAddressDoesNotFillRedis(t *testing.T) {
	s := blocktest.NewStage(t, blocktest.FullRedis(t))
	s.Store.Bound(blocklist.Crowds{PerAddress: blocklist.DefaultPerAddress, Claimed: []traffic.Field{traffic.FieldDevice}})
	written, crowded := 0, 0
	for round := range 10 {
		hits := make([]detectors.Hit, 1000)
		for i := range hits {
			id := traffic.Identity{IP: blocktest.ViewerIdentity.IP, Device: fmt.Sprintf("%08d", 1000*round+i) + strings.Repeat("\xff", 248)}
			subject, _ := traffic.MakeSubject(&id, []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}, {Field: traffic.FieldDevice}})
			hits[i] = s.Hit(func(h *detectors.Hit) {
				h.ID, h.BlockSubject, h.Subject = fmt.Sprintf("%032x", 1000*round+i), subject, subject
			})
		}
		for _, d := range s.Decide(hits...) {
			switch d {
			case "written":
				written++
			case "withheld crowded":
				crowded++
			default:
				t.Fatalf("decision: %s", d)
			}
		}
	}
	if written != blocklist.DefaultPerAddress || crowded != 10_000-blocklist.DefaultPerAddress {
		t.Errorf("%d written, %d crowded", written, crowded)
	}
	size, err := s.Client.DBSize(t.Context()).Result()
	if err != nil || size > blocklist.DefaultPerAddress+10 {
		t.Errorf("%d keys, %v", size, err)
	}
	keys, err := s.Client.Keys(t.Context(), "*:block:*").Result()
	if err != nil || slices.ContainsFunc(keys, func(k string) bool { return len(k) > 200 }) {
		t.Errorf("keys of more than 200 bytes, %v", err)
	}
}
