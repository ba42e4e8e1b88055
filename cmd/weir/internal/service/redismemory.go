package service

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
)

const (
	redisMemoryEvery   = 15 * time.Second
	redisMemoryTimeout = 5 * time.Second
)

// redisMemory shows how much memory Redis uses, as it was last read: a scrape asks nobody. A server that did not answer, or refuses
// to tell (INFO), has no series.
type redisMemory struct {
	inspect   func(ctx context.Context) (blocklist.Inspected, error)
	used, max *prometheus.Desc

	mu    sync.Mutex
	nodes []blocklist.InspectedNode
}

var _ prometheus.Collector = (*redisMemory)(nil)

func newRedisMemory(inspect func(ctx context.Context) (blocklist.Inspected, error), to prometheus.Registerer) (*redisMemory, error) {
	node := []string{"node"}
	m := &redisMemory{
		inspect: inspect,
		used:    prometheus.NewDesc("weir_redis_memory_bytes", "Memory that Redis uses, of the server or of each master, read every 15 s; absent where it does not tell.", node, nil),
		max:     prometheus.NewDesc("weir_redis_memory_max_bytes", "What Redis may use (maxmemory); 0: without limit.", node, nil),
	}
	if err := to.Register(m); err != nil {
		return nil, fmt.Errorf("memory of Redis: %w", err)
	}
	return m, nil
}

// run reads until ctx ends. That Redis does not answer is told by who needs it.
func (m *redisMemory) run(ctx context.Context) error {
	ticker := time.NewTicker(redisMemoryEvery)
	defer ticker.Stop()
	for {
		m.read(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (m *redisMemory) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, redisMemoryTimeout)
	defer cancel()
	found, _ := m.inspect(ctx) // with an error, it has the servers that did answer
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes = found.Nodes
}

// Describe implements prometheus.Collector.
func (m *redisMemory) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.used
	ch <- m.max
}

// Collect implements prometheus.Collector.
func (m *redisMemory) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.nodes {
		n := &m.nodes[i]
		if n.UsedMemory == 0 { // it did not tell: none runs in no memory
			continue
		}
		ch <- prometheus.MustNewConstMetric(m.used, prometheus.GaugeValue, float64(n.UsedMemory), n.Address)
		ch <- prometheus.MustNewConstMetric(m.max, prometheus.GaugeValue, float64(n.MaxMemory), n.Address)
	}
}
