package blocklist

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

func TestInspect(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s, err := NewStore(server.Client(t), testbed.Namespace(t))
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Inspect(t.Context(), func() traffic.Time { return traffic.At(time.Now()) })
		if err != nil || len(got.Nodes) == 0 || got.Cluster != (server.Kind == testbed.RedisClusterKind) {
			t.Fatalf("%+v, %v", got, err)
		}
		for _, n := range got.Nodes {
			if n.Clock < n.Asked.Add(-time.Minute) || n.Clock > n.Answered.Add(time.Minute) || n.Asked > n.Answered || n.Address == "" {
				t.Errorf("%+v", n)
			}
			// Embedded servers tell nothing; real ones tell all.
			if n.Version != "" && (n.Role != "master" || n.Policy == "" || n.UsedMemory == 0 || (got.Cluster && got.State != "ok")) {
				t.Errorf("%+v of %q", n, got.State)
			}
		}
	})
}

func TestTheClockOfRedis(t *testing.T) {
	now := func() traffic.Time { return traffic.At(time.Now()) }
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s, err := NewStore(server.Client(t), testbed.Namespace(t))
		if err != nil {
			t.Fatal(err)
		}
		before := now()
		r, heard, err := Clock(s)(t.Context(), now)
		if err != nil || !heard || r.Asked < before || r.Answered < r.Asked || r.Theirs < before.Add(-time.Minute) {
			t.Errorf("%+v, %v, %v", r, heard, err)
		}
	})
	skewed := testbed.EmbeddedRedis(t)
	skewed.SetTime(time.Now().Add(-time.Hour))
	s, err := Connect(Server{URL: "redis://" + skewed.Addr() + "/0"}, testbed.Namespace(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if r, heard, err := Clock(s)(t.Context(), now); err != nil || !heard || r.Apart() > -59*time.Minute {
		t.Errorf("an hour behind: %s apart, %v, %v", r.Apart(), heard, err)
	}
	skewed.Close()
	if _, heard, err := Clock(s)(t.Context(), now); heard || err == nil {
		t.Errorf("one that is away: heard %v, %v", heard, err)
	}
}

func TestInspectOfAServerThatIsAway(t *testing.T) {
	server := testbed.EmbeddedRedis(t)
	s, err := Connect(Server{URL: "redis://:hunter2@" + server.Addr() + "/0"}, testbed.Namespace(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	address := server.Addr()
	server.Close()
	_, err = s.Inspect(t.Context(), func() traffic.Time { return 0 })
	if err == nil || !strings.Contains(err.Error(), address) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestRunIDs(t *testing.T) {
	if got := runID("# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\ntcp_port:6379\r\n"); got != "abc" {
		t.Errorf("run id: %q", got)
	}
}
