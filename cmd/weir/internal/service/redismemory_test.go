package service

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/blocklist"
)

// What was read last is shown, of the masters that answered.
func TestMemoryOfRedisIsShownByNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var nodes []blocklist.InspectedNode
		var away error
		answer := func(err error, all ...blocklist.InspectedNode) {
			mu.Lock()
			defer mu.Unlock()
			nodes, away = all, err
		}
		registry := prometheus.NewPedanticRegistry()
		m, err := newRedisMemory(func(context.Context) (blocklist.Inspected, error) {
			mu.Lock()
			defer mu.Unlock()
			return blocklist.Inspected{Nodes: nodes}, away
		}, registry)
		if err != nil {
			t.Fatal(err)
		}
		shows := func(when, used, most string) {
			t.Helper()
			want := ""
			if used != "" {
				want = "# HELP weir_redis_memory_bytes Memory that Redis uses, of the server or of each master, read every 15 s; absent where it does not tell.\n# TYPE weir_redis_memory_bytes gauge\n" + used +
					"# HELP weir_redis_memory_max_bytes What Redis may use (maxmemory); 0: without limit.\n# TYPE weir_redis_memory_max_bytes gauge\n" + most
			}
			if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "weir_redis_memory_bytes", "weir_redis_memory_max_bytes"); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		shows("before it was read", "", "")
		first := blocklist.InspectedNode{Address: "r1:6379", UsedMemory: 100, MaxMemory: 400}
		answer(nil, first, blocklist.InspectedNode{Address: "r2:6379", UsedMemory: 30})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.run(ctx) }()
		synctest.Wait()
		shows("two masters", "weir_redis_memory_bytes{node=\"r1:6379\"} 100\nweir_redis_memory_bytes{node=\"r2:6379\"} 30\n",
			"weir_redis_memory_max_bytes{node=\"r1:6379\"} 400\nweir_redis_memory_max_bytes{node=\"r2:6379\"} 0\n")
		answer(errors.New("r2:6379 does not answer"), first)
		time.Sleep(redisMemoryEvery)
		synctest.Wait()
		shows("one of them away", "weir_redis_memory_bytes{node=\"r1:6379\"} 100\n", "weir_redis_memory_max_bytes{node=\"r1:6379\"} 400\n")
		refuses := blocklist.InspectedNode{Address: "r2:6379"}
		answer(nil, first, refuses)
		time.Sleep(redisMemoryEvery)
		synctest.Wait()
		shows("one of them refuses INFO", "weir_redis_memory_bytes{node=\"r1:6379\"} 100\n", "weir_redis_memory_max_bytes{node=\"r1:6379\"} 400\n")
		answer(nil, refuses)
		time.Sleep(redisMemoryEvery)
		synctest.Wait()
		shows("all refuse it", "", "")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
