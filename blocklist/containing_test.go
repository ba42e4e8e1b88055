package blocklist_test

import (
	protocol "github.com/alicebob/miniredis/v2/server"

	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// An operator who knows an address only finds the blocks that hold it.
func TestContainingFindsTheBlocksOfAPart(t *testing.T) {
	t.Parallel()
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Rules.States["login-burst"] = rules.ModeState{Rule: "login-burst", Mode: rules.ModeBlock, Generation: 1}
		now := s.Clock.Now()
		var raises []blocklist.Raise
		for rule, subjects := range map[string][]traffic.Subject{
			blocktest.FloodRule: {
				blocktest.Viewer, "ip=192.0.2.1%2F32&device=tv-8", "ip=192.0.2.2%2F32&device=tv-7", "ip=2001%3Adb8%3A%3A%2F64&device=tv-7", "device=tv-7",
				traffic.Subject("ip=192.0.2.3%2F32&device=" + blocktest.LongDevice).Stored(),
			},
			"login-burst": {"ip=192.0.2.0%2F24", "ip=192.0.3.1%2F32"},
		} {
			for _, subject := range subjects {
				raises = append(raises, blocklist.Raise{Name: blocklist.Name{Subject: subject, Rule: rule}, Block: blocklist.NewBlock(rule, 1, "a", now, now.Add(time.Hour))})
			}
		}
		if _, err := s.Writer.Raise(t.Context(), raises); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			ask  blocklist.Containing
			want []traffic.Subject
			cut  bool
		}{
			{blocklist.Containing{Subject: "ip=192.0.2.1%2F32"}, []traffic.Subject{"ip=192.0.2.0%2F24", blocktest.Viewer, "ip=192.0.2.1%2F32&device=tv-8"}, false},
			{blocklist.Containing{Subject: "ip=192.0.2.1%2F32", Rule: blocktest.FloodRule}, []traffic.Subject{blocktest.Viewer, "ip=192.0.2.1%2F32&device=tv-8"}, false},
			{blocklist.Containing{Subject: "ip=192.0.2.0%2F31", Rule: blocktest.FloodRule}, []traffic.Subject{blocktest.Viewer, "ip=192.0.2.1%2F32&device=tv-8"}, false},
			{blocklist.Containing{Subject: "device=tv-7"}, []traffic.Subject{"device=tv-7", blocktest.Viewer, "ip=192.0.2.2%2F32&device=tv-7", "ip=2001%3Adb8%3A%3A%2F64&device=tv-7"}, false},
			{blocklist.Containing{Subject: "ip=2001%3Adb8%3A%3A7%2F128"}, []traffic.Subject{"ip=2001%3Adb8%3A%3A%2F64&device=tv-7"}, false},
			{blocklist.Containing{Subject: "device=" + blocktest.LongDevice}, []traffic.Subject{traffic.Subject("ip=192.0.2.3%2F32&device=" + blocktest.LongDevice).Stored()}, false},
			{blocklist.Containing{Subject: "user=nobody"}, nil, false},
			{blocklist.Containing{Subject: "device=tv-7", Limit: 4}, []traffic.Subject{"device=tv-7", blocktest.Viewer, "ip=192.0.2.2%2F32&device=tv-7", "ip=2001%3Adb8%3A%3A%2F64&device=tv-7"}, false},
		} {
			got, err := s.Store.Containing(t.Context(), now, tt.ask)
			if subjects := subjectsOf(got); err != nil || !slices.Equal(subjects, tt.want) || got.Cut != tt.cut {
				t.Errorf("%+v: %v, cut %v, %v; want %v", tt.ask, subjects, got.Cut, err, tt.want)
			}
		}
		got, err := s.Store.Containing(t.Context(), now, blocklist.Containing{Subject: "device=tv-7", Limit: 3})
		if err != nil || len(got.Items) != 3 || !got.Cut {
			t.Errorf("more than asked for: %v, cut %v, %v; want 3 and a word that there are more", subjectsOf(got), got.Cut, err)
		}
		if _, err := s.Store.Containing(t.Context(), now, blocklist.Containing{Subject: "shoe=43"}); err == nil {
			t.Error("a field that does not exist is looked for")
		}
	})
}

// Time that is over cuts the search short, and says so: an incomplete list never looks complete.
func TestContainingEndsWithItsTime(t *testing.T) {
	server := testbed.EmbeddedRedis(t)
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + server.Addr() + "/0"})
	s.Decide(s.Hit())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server.Server().SetPreHook(func(_ *protocol.Peer, cmd string, _ ...string) bool {
		if cmd == "SCAN" {
			cancel()
		}
		return false
	})
	if got, err := s.Store.Containing(ctx, s.Clock.Now(), blocklist.Containing{Subject: blocktest.Viewer}); err != nil || !got.Cut {
		t.Errorf("out of time: %+v, %v", got, err)
	}
	server.SetError("LOADING")
	if got, err := s.Store.Containing(t.Context(), s.Clock.Now(), blocklist.Containing{Subject: blocktest.Viewer}); err == nil {
		t.Errorf("a server that does not answer: %+v", got)
	}
}

func subjectsOf(l blocklist.Listing) (out []traffic.Subject) {
	for i := range l.Items {
		out = append(out, l.Items[i].Subject)
	}
	return out
}

// What a release answers tells a block from nothing.
func TestReleaseTellsWhatStood(t *testing.T) {
	t.Parallel()
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		open := s.Hit()
		s.Decide(open)
		nobody, err := blocklist.NewRelease("ip=192.0.2.1%2F32", blocktest.FloodRule, "ops", "mistyped", s.Clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		right := s.Release()
		if got := fmt.Sprint(s.Decide(nobody, right)); got != "[released released]" {
			t.Fatalf("decisions: %s", got)
		}
		if tomb, err := s.Store.WaitReleased(t.Context(), &nobody); err != nil || tomb.Stood() || tomb.Hit != "" || tomb.StoodUntil != 0 {
			t.Errorf("nothing was blocked: %+v, %v", tomb, err)
		}
		if tomb, err := s.Store.WaitReleased(t.Context(), &right); err != nil || !tomb.Stood() || tomb.Hit != open.ID || tomb.StoodUntil != open.Last.Add(blocktest.TTL) {
			t.Errorf("a block was there: %+v, %v", tomb, err)
		}
		again := s.Release()
		s.Decide(again)
		if tomb, err := s.Store.WaitReleased(t.Context(), &again); err != nil || tomb.Stood() {
			t.Errorf("it has been released already: %+v, %v", tomb, err)
		}
	})
}
