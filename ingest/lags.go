package ingest

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/traffic"
)

// Lags are the metrics that say of each stage and partition how far behind it is, and whether it has stopped. A process has
// one, which its stages share. Ages are taken at the scrape, so that they grow while a stage hangs.
type Lags struct {
	clock                     func() traffic.Time
	records, seconds, stopped *prometheus.Desc

	mu sync.Mutex
	of map[lagPlace]*Lag
}

var _ prometheus.Collector = (*Lags)(nil)

type lagPlace struct {
	stage     string
	partition int
}

// NewLags makes the metrics, or finds those that another stage of the process has made. registry may be nil.
func NewLags(registry prometheus.Registerer, clock func() traffic.Time) (*Lags, error) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("weir_stage_"+name, help, []string{"stage", "partition"}, nil)
	}
	var err error
	l := Published(registry, &Lags{
		clock: clock, of: map[lagPlace]*Lag{},
		records: desc("lag_records", "Records of a partition that the stage has yet to handle."),
		seconds: desc("lag_seconds", "Age, by the time of its append to Kafka, of the oldest record that the stage has yet to handle; 0 where there is none. Where the stage has not looked for 10 s, it counts from then, also while the process is in no consumer group."),
		stopped: desc("partition_halted", "1 while the stage cannot go on with a partition; see weir partitions list and the log."),
	}, &err)
	return l, err
}

// lookedFor is how long a stage may look for no records without being behind: one that works looks every second or more often.
const lookedFor = 10 * time.Second

// Lag is how far behind a stage is on one partition. A nil one shows nowhere.
type Lag struct {
	clock func() traffic.Time

	mu      sync.Mutex
	records int64
	since   traffic.Time
	looked  traffic.Time
	halted  bool
}

// Run runs a stage's sessions as a member of group, as Group.Run does. A partition is shown from its assignment on, before anything is
// known of it, and until an assignment comes that lacks it, or the end: a generation that ends leaves its partitions to grow older, since
// while Kafka is away nobody gets them.
func (l *Lags) Run(ctx context.Context, stage string, group Group, session func(ctx context.Context, a Assignment) error) error {
	defer l.assign(stage, nil)
	return group.Run(ctx, func(ctx context.Context, a Assignment) error {
		l.assign(stage, a.Partitions)
		defer l.rest(stage, a.Partitions)
		return session(ctx, a)
	})
}

// rest says that a stage's partitions are not worked on: one that nobody works on has not stopped, and another process may read on where this
// one could not.
func (l *Lags) rest(stage string, partitions []int) {
	for _, p := range partitions {
		l.Of(stage, p).Halt(false)
	}
}

// assign makes partitions those of a stage. What the Lags of others are told from then on shows nowhere.
func (l *Lags) assign(stage string, partitions []int) {
	l.mu.Lock()
	maps.DeleteFunc(l.of, func(at lagPlace, _ *Lag) bool { return at.stage == stage && !slices.Contains(partitions, at.partition) })
	l.mu.Unlock()
	for _, p := range partitions {
		l.Of(stage, p)
	}
}

// Of is a stage's lag on one partition, which is shown from the first call on.
func (l *Lags) Of(stage string, partition int) *Lag {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := lagPlace{stage, partition}
	lag := l.of[at]
	if lag == nil {
		lag = &Lag{clock: l.clock, looked: l.clock()}
		l.of[at] = lag
	}
	return lag
}

// Behind is told after each look how many records are yet to be handled, and since when: when the oldest of them was appended, or a time before
// which it was not.
func (l *Lag) Behind(records int64, since traffic.Time) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	if since == traffic.BeforeTime { // nobody knows how old it is: as old as it was known to be here
		if since = now; l.records > 0 {
			since = l.since
		}
	}
	l.records, l.since, l.looked = max(0, records), since, now
}

// Unknown says that the partition is not worked on, and that nobody knows how many records are yet to be handled: none are shown, while
// the age goes on from what it was.
func (l *Lag) Unknown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records > 0 {
		l.records, l.looked = 0, min(l.looked, l.since)
	}
	l.halted = false
}

// Halt says whether the partition has stopped.
func (l *Lag) Halt(halted bool) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.halted = halted
}

// Describe implements prometheus.Collector.
func (l *Lags) Describe(ch chan<- *prometheus.Desc) {
	ch <- l.records
	ch <- l.seconds
	ch <- l.stopped
}

// Collect implements prometheus.Collector.
func (l *Lags) Collect(ch chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	for at, lag := range l.of {
		records, seconds, halted := lag.now(now)
		partition := strconv.Itoa(at.partition)
		ch <- prometheus.MustNewConstMetric(l.records, prometheus.GaugeValue, records, at.stage, partition)
		ch <- prometheus.MustNewConstMetric(l.seconds, prometheus.GaugeValue, seconds, at.stage, partition)
		ch <- prometheus.MustNewConstMetric(l.stopped, prometheus.GaugeValue, halted, at.stage, partition)
	}
}

func (l *Lag) now(now traffic.Time) (records, seconds, halted float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	silent := now.Sub(l.looked)
	switch {
	case l.records > 0:
		seconds = max(0, now.Sub(l.since).Seconds())
	case silent > lookedFor:
		seconds = silent.Seconds()
	}
	if l.halted {
		halted = 1
	}
	return float64(l.records), seconds, halted
}

// NotBefore is a time before which nothing was appended of what stands at Next and behind it, as far as the answer shows;
// BeforeTime where it shows nothing.
func (f *Fetched) NotBefore() traffic.Time {
	if f.Following != 0 {
		return f.Following
	}
	at := traffic.BeforeTime
	if n := len(f.Messages); n > 0 {
		at = f.Messages[n-1].Appended
	}
	if f.Next >= f.HighWatermark { // the log ended there when it was asked
		at = max(at, f.Asked)
	}
	return at
}
