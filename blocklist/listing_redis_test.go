package blocklist_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	protocol "github.com/alicebob/miniredis/v2/server"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// raised has blocks of two rules and by hand, some of one subject, and a release of it.
func raised(t *testing.T, server testbed.RedisServer, beside int) *blocktest.Stage {
	t.Helper()
	s := blocktest.NewStage(t, server)
	s.Rules.States["login-burst"] = rules.ModeState{Rule: "login-burst", Mode: rules.ModeBlock, Generation: 1}
	s.PublishModes()
	s.Decide(s.Hit(), s.Release())
	now := s.Clock.Now()
	var raises []blocklist.Raise
	add := func(subject traffic.Subject, rule, hit string) {
		raises = append(raises, blocklist.Raise{Name: blocklist.Name{Subject: subject, Rule: rule},
			Block: blocklist.NewBlock(rule, 1, hit, now, now.Add(time.Hour))})
	}
	add(blocktest.Viewer, "login-burst", "0000000a")
	add(blocktest.Viewer, rules.ByHand, "0000000b")
	for i := range beside {
		add(traffic.Subject(fmt.Sprintf("ip=198.51.%d.%d%%2F32", i>>8, i&255)), "login-burst", fmt.Sprintf("%08x",
			4096+i))
	}
	if _, err := s.Writer.Raise(t.Context(), raises); err != nil {
		t.Fatal(err)
	}
	return s
}

// What one subject has is asked for by its keys, and is what a walk over all of them finds.
func TestOneSubjectIsListedByItsKeys(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := raised(t, server, 50)
		now := s.Clock.Now()
		for _, f := range []blocklist.Filter{
			{}, {Tombstones: true}, {Rule: "login-burst"}, {Rule: blocktest.FloodRule, Tombstones: true},
			{Rule: "no-rule"},
			{Rule: "no rule"}, {Hit: "0000000b"}, {Hit: "0000000", Tombstones: true},
		} {
			all, err := s.Store.List(t.Context(), now, f)
			if err != nil {
				t.Fatal(err)
			}
			want := slices.DeleteFunc(all.Items, func(l blocklist.Listed) bool { return l.Subject != blocktest.Viewer })
			f.Subject = blocktest.Viewer
			got, err := s.Store.List(t.Context(), now, f)
			if err != nil || got.Cut || len(got.Items) != len(want) {
				t.Fatalf("%+v: %d items, %v; want %d", f, len(got.Items), err, len(want))
			}
			for i := range want {
				a, b := got.Items[i], want[i]
				if a.Compare(&b) != 0 || a.Hit() != b.Hit() || a.InForce != b.InForce || a.Remaining != b.Remaining {
					t.Errorf("%+v: %+v, want %+v", f, a, b)
				}
			}
		}
		both, err := s.Store.List(t.Context(), now, blocklist.Filter{Subject: blocktest.Viewer, Tombstones: true})
		if err != nil || len(both.Items) != 3 {
			t.Errorf("%d items, %v; want two blocks and a release", len(both.Items), err)
		}
		for _, nobody := range []traffic.Subject{"user", "shoe=43", "}x{"} {
			if got, err := s.Store.List(t.Context(), now, blocklist.Filter{Subject: nobody}); err != nil ||
				len(got.Items) != 0 {
				t.Errorf("%s, of which there is no key: %d items, %v", nobody, len(got.Items), err)
			}
		}
	})
}

// A walk ends where whoever asked has enough: no key is read behind it but those that came along.
func TestAWalkEndsWithEnough(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := raised(t, server, 300)
		taken := 0
		take := func(blocklist.Listed) bool { taken++; return taken < 7 }
		if unreadable, err := s.Store.Each(t.Context(), s.Clock.Now(), blocklist.Wanted{}, take); err != nil ||
			unreadable != 0 || taken != 7 {
			t.Errorf("%d were taken, %d unreadable, %v; want 7, none", taken, unreadable, err)
		}
		released := 0
		_, err := s.Store.Each(t.Context(), s.Clock.Now(), blocklist.Wanted{Released: true},
			func(l blocklist.Listed) bool {
				if l.Tombstone == nil {
					t.Errorf("%s is no release", l.Subject)
				}
				released++
				return true
			})
		if err != nil || released != 1 {
			t.Errorf("%d releases, %v; want 1", released, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Store.Each(ctx, s.Clock.Now(), blocklist.Wanted{}, take); !errors.Is(err, context.Canceled) {
			t.Errorf("out of time: %v", err)
		}
	})
}

// Only what is wanted is read, and a server that fails in the middle is an error, not a short list.
func TestAWalkReadsWhatIsWanted(t *testing.T) {
	server := testbed.EmbeddedRedis(t)
	s := raised(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + server.Addr() + "/0"}, 300)
	reads := 0
	server.Server().SetPreHook(func(_ *protocol.Peer, cmd string, args ...string) bool {
		if cmd == "GET" {
			reads++
		}
		return false
	})
	found := 0
	wanted := blocklist.Wanted{Named: func(h blocklist.Name) bool { return h.Subject == blocktest.Viewer }}
	if _, err := s.Store.Each(t.Context(), s.Clock.Now(), wanted,
		func(blocklist.Listed) bool { found++; return true }); err != nil || found != 2 || reads != 2 {
		t.Errorf("%d found by %d reads, %v; want 2 by 2", found, reads, err)
	}
	server.Server().SetPreHook(func(peer *protocol.Peer, cmd string, args ...string) bool {
		if cmd == "GET" {
			peer.WriteError("LOADING")
			return true
		}
		return false
	})
	if _, err := s.Store.Each(t.Context(), s.Clock.Now(), wanted,
		func(blocklist.Listed) bool { return true }); err == nil {
		t.Error("a server that does not answer is none that holds nothing")
	}
}
