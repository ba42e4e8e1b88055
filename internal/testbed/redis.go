package testbed

import (
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/internal/local"
)

// Redis returns the URL of the real server in WEIR_TEST_REDIS, or of an embedded one that lives as long as the test.
func Redis(t testing.TB) string {
	t.Helper()
	if real := configured(t, RedisKind); real != "" {
		return real
	}
	return "redis://" + embedded(t, RedisKind).Addr() + "/0"
}

// RedisCluster returns node addresses of the real cluster in WEIR_TEST_REDIS_CLUSTER, or of an embedded one-node cluster
// that a cluster client can use and that lives as long as the test.
func RedisCluster(t testing.TB) []string {
	t.Helper()
	if real := configured(t, RedisClusterKind); real != "" {
		return list(real)
	}
	return []string{embedded(t, RedisClusterKind).Addr()}
}

// EmbeddedRedis starts a server inside the process, on a loopback port, whatever the environment says: for tests that
// stop it, flush it or make it fail. It stops with the test. Keys expire by the wall clock, to a tenth of a second.
func EmbeddedRedis(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	return embedded(t, RedisKind)
}

func embedded(t testing.TB, kind Kind) *miniredis.Miniredis {
	t.Helper()
	Record(t, kind, Embedded)
	server, err := local.StartRedis(t.Context(), local.RedisOptions{Tick: 100 * time.Millisecond})
	if err != nil {
		t.Fatalf("embedded Redis: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("embedded Redis: %v", err)
		}
	})
	return server.Server()
}

// RedisServer is one of the two forms in which Redis is run.
type RedisServer struct {
	Kind  Kind     // RedisKind or RedisClusterKind
	URL   string   // of the standalone server; empty for a cluster
	Addrs []string // of the cluster's nodes, or of the one server
	// Patient has clients of a cluster wait as those of a standalone server do. Where a master is taken away, they should not.
	Patient bool
}

// Client returns a client for the server, of the kind that fits, closed when the test ends. That of a standalone server waits for an answer
// for as long as a busy machine may need: it would send the command again, which may have been executed, and get another answer.
func (s RedisServer) Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	var client redis.UniversalClient
	if s.Kind == RedisClusterKind {
		options := &redis.ClusterOptions{Addrs: slices.Clone(s.Addrs)}
		if s.Patient {
			options.DialTimeout, options.ReadTimeout, options.WriteTimeout = patience, patience, patience
		}
		client = redis.NewClusterClient(options)
	} else {
		options, err := redis.ParseURL(s.URL)
		if err != nil {
			t.Fatalf("%s: %v", RedisKind.Env(), err)
		}
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = patience, patience, patience
		client = redis.NewClient(options)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("closing the redis client: %v", err)
		}
	})
	return client
}

// EachRedis runs a test on a cluster, and in the long run on a standalone server, too; as subtests named by the kind.
// It is for what weir does by the same code on both: a cluster refuses more. What differs by kind asks BothRedis.
func EachRedis(t *testing.T, test func(t *testing.T, server RedisServer)) {
	t.Helper()
	if AtNight() {
		standalone(t, test)
	}
	cluster(t, test)
}

// BothRedis runs a test twice, as subtests named by the kind: on a standalone server and on a cluster. It is for
// scripts, slots and failovers.
func BothRedis(t *testing.T, test func(t *testing.T, server RedisServer)) {
	t.Helper()
	standalone(t, test)
	cluster(t, test)
}

func standalone(t *testing.T, test func(t *testing.T, server RedisServer)) {
	t.Helper()
	t.Run(string(RedisKind), func(t *testing.T) {
		url := Redis(t)
		options, err := redis.ParseURL(url)
		if err != nil {
			t.Fatalf("%s: %v", RedisKind.Env(), err)
		}
		test(t, RedisServer{Kind: RedisKind, URL: url, Addrs: []string{options.Addr}})
	})
}

func cluster(t *testing.T, test func(t *testing.T, server RedisServer)) {
	t.Helper()
	t.Run(string(RedisClusterKind), func(t *testing.T) {
		test(t, RedisServer{Kind: RedisClusterKind, Addrs: RedisCluster(t)})
	})
}
