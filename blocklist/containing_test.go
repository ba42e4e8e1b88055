package blocklist

import (
	protocol "github.com/alicebob/miniredis/v2/server"

	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// An operator who knows an address only finds the blocks that hold it.
func TestContainingFindsTheBlocksOfAPart(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		s.rules.modes["login-burst"] = rules.ModeState{Rule: "login-burst", Mode: rules.ModeBlock, Generation: 1}
		now := s.clock.now()
		var raises []raise
		for rule, subjects := range map[string][]traffic.Subject{
			floodRule: {
				viewer, "ip=192.0.2.1%2F32&device=tv-8", "ip=192.0.2.2%2F32&device=tv-7", "ip=2001%3Adb8%3A%3A%2F64&device=tv-7", "device=tv-7",
				traffic.Subject("ip=192.0.2.3%2F32&device=" + longDevice).Stored(),
			},
			"login-burst": {"ip=192.0.2.0%2F24", "ip=192.0.3.1%2F32"},
		} {
			for _, subject := range subjects {
				raises = append(raises, raise{held: held{subject, rule}, block: NewBlock(rule, 1, "a", now, now.Add(time.Hour))})
			}
		}
		if _, err := s.writer.raiseAll(t.Context(), raises); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			ask  Containing
			want []traffic.Subject
			cut  bool
		}{
			{Containing{Subject: "ip=192.0.2.1%2F32"}, []traffic.Subject{"ip=192.0.2.0%2F24", viewer, "ip=192.0.2.1%2F32&device=tv-8"}, false},
			{Containing{Subject: "ip=192.0.2.1%2F32", Rule: floodRule}, []traffic.Subject{viewer, "ip=192.0.2.1%2F32&device=tv-8"}, false},
			{Containing{Subject: "ip=192.0.2.0%2F31", Rule: floodRule}, []traffic.Subject{viewer, "ip=192.0.2.1%2F32&device=tv-8"}, false},
			{Containing{Subject: "device=tv-7"}, []traffic.Subject{"device=tv-7", viewer, "ip=192.0.2.2%2F32&device=tv-7", "ip=2001%3Adb8%3A%3A%2F64&device=tv-7"}, false},
			{Containing{Subject: "ip=2001%3Adb8%3A%3A7%2F128"}, []traffic.Subject{"ip=2001%3Adb8%3A%3A%2F64&device=tv-7"}, false},
			{Containing{Subject: "device=" + longDevice}, []traffic.Subject{traffic.Subject("ip=192.0.2.3%2F32&device=" + longDevice).Stored()}, false},
			{Containing{Subject: "user=nobody"}, nil, false},
			{Containing{Subject: "device=tv-7", Limit: 4}, []traffic.Subject{"device=tv-7", viewer, "ip=192.0.2.2%2F32&device=tv-7", "ip=2001%3Adb8%3A%3A%2F64&device=tv-7"}, false},
		} {
			got, err := s.store.Containing(t.Context(), now, tt.ask)
			if subjects := subjectsOf(got); err != nil || !slices.Equal(subjects, tt.want) || got.Cut != tt.cut {
				t.Errorf("%+v: %v, cut %v, %v; want %v", tt.ask, subjects, got.Cut, err, tt.want)
			}
		}
		got, err := s.store.Containing(t.Context(), now, Containing{Subject: "device=tv-7", Limit: 3})
		if err != nil || len(got.Items) != 3 || !got.Cut {
			t.Errorf("more than asked for: %v, cut %v, %v; want 3 and a word that there are more", subjectsOf(got), got.Cut, err)
		}
		if _, err := s.store.Containing(t.Context(), now, Containing{Subject: "shoe=43"}); err == nil {
			t.Error("a field that does not exist is looked for")
		}
	})
}

// Time that is over cuts the search short, and says so: an incomplete list never looks complete.
func TestContainingEndsWithItsTime(t *testing.T) {
	server := testbed.EmbeddedRedis(t)
	s := newStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + server.Addr() + "/0"})
	s.apply(s.hit())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server.Server().SetPreHook(func(_ *protocol.Peer, cmd string, _ ...string) bool {
		if cmd == "SCAN" {
			cancel()
		}
		return false
	})
	if got, err := s.store.Containing(ctx, s.clock.now(), Containing{Subject: viewer}); err != nil || !got.Cut {
		t.Errorf("out of time: %+v, %v", got, err)
	}
	server.SetError("LOADING")
	if got, err := s.store.Containing(t.Context(), s.clock.now(), Containing{Subject: viewer}); err == nil {
		t.Errorf("a server that does not answer: %+v", got)
	}
}

func subjectsOf(l Listing) (out []traffic.Subject) {
	for i := range l.Items {
		out = append(out, l.Items[i].Subject)
	}
	return out
}

// What a release answers tells a block from nothing.
func TestReleaseTellsWhatStood(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		open := s.hit()
		s.apply(open)
		nobody, err := NewRelease("ip=192.0.2.1%2F32", floodRule, "ops", "mistyped", s.clock.now())
		if err != nil {
			t.Fatal(err)
		}
		right := s.release()
		if got := fmt.Sprint(s.apply(nobody, right)); got != "[released released]" {
			t.Fatalf("decisions: %s", got)
		}
		if tomb, err := s.store.WaitReleased(t.Context(), &nobody); err != nil || tomb.Stood() || tomb.Hit != "" || tomb.StoodUntil != 0 {
			t.Errorf("nothing was blocked: %+v, %v", tomb, err)
		}
		if tomb, err := s.store.WaitReleased(t.Context(), &right); err != nil || !tomb.Stood() || tomb.Hit != open.ID || tomb.StoodUntil != open.Last.Add(ttl) {
			t.Errorf("a block was there: %+v, %v", tomb, err)
		}
		again := s.release()
		s.apply(again)
		if tomb, err := s.store.WaitReleased(t.Context(), &again); err != nil || tomb.Stood() {
			t.Errorf("it has been released already: %+v, %v", tomb, err)
		}
	})
}
