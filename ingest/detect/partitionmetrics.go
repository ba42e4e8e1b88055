package detect

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/traffic"
)

// partitionMetrics are the metrics by keyed partition. Ages are taken at the scrape, so that they grow while the stage hangs.
type partitionMetrics struct {
	clock  func() traffic.Time
	budget int64
	age    partitionGauge
	gauges []partitionGauge // the others

	mu     sync.Mutex
	shown  map[int]*partitionShown
	left   map[int]*partitionShown // of sessions before this one
	newest map[int]storedSnapshot  // of partitions that were taken
}

var _ prometheus.Collector = (*partitionMetrics)(nil)

// partitionShown is what is known of one partition.
type partitionShown struct {
	keys      int
	bytes     int64
	stalled   int // source partitions
	skew      time.Duration
	watermark traffic.Time
	blind     bool
	offset    int64        // the next keyed offset to fold
	began     traffic.Time // when the first record was appended that memory without a snapshot has folded; 0: none
	newest    storedSnapshot
}

// storedSnapshot is the newest snapshot of a partition that the store has.
type storedSnapshot struct {
	offset int64        // the first keyed offset that is not in it; 0: there is none
	at     traffic.Time // when it was stored; 0: there is none
}

// partitionGauge is one metric; read has nothing to show where ok is false.
type partitionGauge struct {
	desc *prometheus.Desc
	read func(s *partitionShown, now traffic.Time) (value float64, ok bool)
}

func newPartitionMetrics(opt *Options) *partitionMetrics {
	m := &partitionMetrics{clock: opt.Clock, budget: opt.Budget, shown: map[int]*partitionShown{}, left: map[int]*partitionShown{}, newest: map[int]storedSnapshot{}}
	gauge := func(name, help string, read func(s *partitionShown, now traffic.Time) (float64, bool)) {
		m.gauges = append(m.gauges, partitionGauge{prometheus.NewDesc("weir_detect_"+name, help, []string{"partition"}, nil), read})
	}
	always := func(read func(s *partitionShown) float64) func(*partitionShown, traffic.Time) (float64, bool) {
		return func(s *partitionShown, _ traffic.Time) (float64, bool) { return read(s), true }
	}
	gauge("keys", "Windows held in memory.", always(func(s *partitionShown) float64 { return float64(s.keys) }))
	gauge("bytes", "Bytes that the windows held in memory take of the partition's budget.", always(func(s *partitionShown) float64 { return float64(s.bytes) }))
	gauge("budget_bytes", "Bytes that the windows of the partition may take; beyond, keys are evicted.", always(func(*partitionShown) float64 { return float64(m.budget) }))
	gauge("stalled_sources", "Source partitions that the watermark does not wait for.", always(func(s *partitionShown) float64 { return float64(s.stalled) }))
	gauge("skew_seconds", "How far the source partitions that are not stalled lie apart in event time.", always(func(s *partitionShown) float64 { return s.skew.Seconds() }))
	gauge("blind", "1 when the fence has dropped every event record for 10 s.", always(func(s *partitionShown) float64 { return truth(s.blind) }))
	gauge("watermark_seconds", "The watermark, as a Unix time.", func(s *partitionShown, _ traffic.Time) (float64, bool) {
		return float64(s.watermark) / 1e6, s.marked()
	})
	gauge("watermark_delay_seconds", "How far the watermark is behind the clock.", func(s *partitionShown, now traffic.Time) (float64, bool) {
		return now.Sub(s.watermark).Seconds(), s.marked()
	})
	m.age = partitionGauge{prometheus.NewDesc("weir_detect_snapshot_age_seconds", "Time since the newest snapshot was stored, by whichever process; where there is none, "+
		"since the first record was appended to Kafka that was folded. 0 while the newest one holds all that was folded. What it lacks grows older also while the process is in no consumer group.",
		[]string{"partition"}, nil), snapshotAge}
	return m
}

func snapshotAge(s *partitionShown, now traffic.Time) (float64, bool) {
	at := s.newest.at
	if at == 0 {
		at = s.began
	}
	if at == 0 || s.newest.offset >= s.offset {
		return 0, true
	}
	return max(0, now.Sub(at).Seconds()), true
}

// marked reports whether the watermark is a time: it is none before the first event, and after the end of a replay.
func (s *partitionShown) marked() bool {
	return s.watermark != traffic.BeforeTime && s.watermark != traffic.EndOfTime
}

// took notes the snapshot that a partition's memory was made of.
func (m *partitionMetrics) took(partition int, from storedSnapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.newest[partition] = from
}

// observe shows how a partition is that was taken.
func (m *partitionMetrics) observe(partition int, s partitionShown) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.newest = m.newest[partition]
	m.shown[partition] = &s
	delete(m.left, partition)
}

// assign shows nothing more of partitions that are not this process's.
func (m *partitionMetrics) assign(partitions []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.left, func(p int, _ *partitionShown) bool { return !slices.Contains(partitions, p) })
}

// stored shows that a snapshot of a partition, up to offset, was stored just now.
func (m *partitionMetrics) stored(partition int, offset int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.newest[partition] = storedSnapshot{offset, m.clock()}
	if s := m.shown[partition]; s != nil {
		s.newest = m.newest[partition]
	}
}

// forget shows no more of a partition than the age of a snapshot that lacks something: while Kafka is away nobody gets the partition, and
// what is to be folded again grows older. Of one that lacks nothing an owner may know more by now.
func (m *partitionMetrics) forget(partition int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.shown[partition]; s != nil && s.newest.offset < s.offset {
		m.left[partition] = s
	}
	delete(m.shown, partition)
}

// Describe implements prometheus.Collector.
func (m *partitionMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.age.desc
	for _, g := range m.gauges {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (m *partitionMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	send := func(g *partitionGauge, partition int, s *partitionShown) {
		if value, ok := g.read(s, now); ok {
			ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, strconv.Itoa(partition))
		}
	}
	for partition, s := range m.shown {
		send(&m.age, partition, s)
		for i := range m.gauges {
			send(&m.gauges[i], partition, s)
		}
	}
	for partition, s := range m.left {
		send(&m.age, partition, s)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
