package testbed

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
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
	server := miniredis.RunT(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		age(server, stop)
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	return server
}

// age makes the server's keys expire: in miniredis time stands still unless it is told. Telling it costs a walk over all
// keys, so that a server with many is told less often and never spends more than a tenth of its time on it.
func age(server *miniredis.Miniredis, stop <-chan struct{}) {
	const pause = 100 * time.Millisecond
	last := time.Now()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		now := time.Now()
		server.FastForward(now.Sub(last))
		last = now
		timer.Reset(max(pause, 10*time.Since(now)))
	}
}

// RedisServer is one of the two forms in which Redis is run.
type RedisServer struct {
	Kind  Kind     // RedisKind or RedisClusterKind
	URL   string   // of the standalone server; empty for a cluster
	Addrs []string // of the cluster's nodes, or of the one server
}

// Client returns a client for the server, of the kind that fits, closed when the test ends.
func (s RedisServer) Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	var client redis.UniversalClient
	if s.Kind == RedisClusterKind {
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs})
	} else {
		options, err := redis.ParseURL(s.URL)
		if err != nil {
			t.Fatalf("%s: %v", RedisKind.Env(), err)
		}
		client = redis.NewClient(options)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("closing the redis client: %v", err)
		}
	})
	return client
}

// EachRedis runs a test twice, as subtests named by the kind: on a standalone server and on a cluster.
func EachRedis(t *testing.T, test func(t *testing.T, server RedisServer)) {
	t.Helper()
	t.Run(string(RedisKind), func(t *testing.T) {
		url := Redis(t)
		options, err := redis.ParseURL(url)
		if err != nil {
			t.Fatalf("%s: %v", RedisKind.Env(), err)
		}
		test(t, RedisServer{Kind: RedisKind, URL: url, Addrs: []string{options.Addr}})
	})
	t.Run(string(RedisClusterKind), func(t *testing.T) {
		test(t, RedisServer{Kind: RedisClusterKind, Addrs: RedisCluster(t)})
	})
}
