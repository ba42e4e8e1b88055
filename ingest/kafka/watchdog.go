package kafka

import (
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/ingest"
)

// silentAfter is how long a partition may go unanswered while others are answered before that is an alarm. kafka-go's
// issues #387, #847 and #955 tell of readers that stall for ever after a broker restart.
const silentAfter = 30 * time.Second

// silence watches that every partition that is asked for gets answers.
type silence struct {
	after time.Duration

	mu     sync.Mutex
	asked  map[int]unanswered
	latest time.Time // of any answer
}

type unanswered struct {
	since    time.Time // asked without an answer since then
	reported time.Time // last time in an alarm
	recent   time.Time // asked last
}

func newSilence(after time.Duration) *silence {
	return &silence{after: after, asked: make(map[int]unanswered)}
}

// observe takes in one fetch. silent are the partitions in alarm now, ascending; report are those of them to log: at
// first, and again each time the period has passed.
func (s *silence) observe(now time.Time, positions []ingest.Position, answers []ingest.Fetched) (silent, report []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range positions {
		a, known := s.asked[p.Partition]
		if !known || now.Sub(a.recent) > s.after {
			a = unanswered{since: now} // it may well have been another owner's in between
		}
		a.recent = now
		s.asked[p.Partition] = a
	}
	for _, f := range answers {
		s.asked[f.Partition] = unanswered{since: now, recent: now}
		s.latest = now
	}
	for partition, a := range s.asked {
		switch {
		case now.Sub(a.recent) > s.after:
			delete(s.asked, partition) // no longer asked for
		case now.Sub(a.since) >= s.after && s.latest.After(a.since):
			silent = append(silent, partition)
			if now.Sub(a.reported) >= s.after {
				a.reported = now
				s.asked[partition] = a
				report = append(report, partition)
			}
		}
	}
	slices.Sort(silent)
	slices.Sort(report)
	return silent, report
}

func (l *topicLog) observe(positions []ingest.Position, answers []ingest.Fetched) {
	silent, report := l.watch.observe(time.Now(), positions, answers)
	l.k.metrics.silent.WithLabelValues(l.topic).Set(float64(len(silent)))
	if len(report) > 0 {
		l.k.log.Error("partitions give no answer while others do", "topic", l.topic, "partitions", report, "for_at_least", l.watch.after)
	}
}
