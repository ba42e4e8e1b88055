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
