package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/exactness"
)

// watch follows the hits topic. Of every probe it keeps when it was sent, when its hit was acknowledged, by the broker's
// clock, which is this machine's, and which partitions it came through.
type watch struct {
	stream *exactness.Stream

	mu    sync.Mutex
	seen  map[string]bool // ids: a hit that is sent again is no sign of anything new
	hits  []probeHit
	fresh map[lane]time.Time // when the newest probe was sent that came through
}

type probeHit struct {
	id       string
	stands   int32 // in this partition of hits
	lanes    [2]lane
	sent     time.Time
	appended time.Time
}

// lane is a partition of requests or of the keyed topic.
type lane struct {
	keyed     bool
	partition int
}

func (l lane) String() string {
	if l.keyed {
		return fmt.Sprint("keyed partition ", l.partition)
	}
	return fmt.Sprint("requests partition ", l.partition)
}

// watchHits follows the topic until the test ends.
func watchHits(t testing.TB, stream *exactness.Stream) *watch {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(stream.Brokers...), kgo.ConsumeTopics(stream.Topic("hits")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(250*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{stream: stream, seen: map[string]bool{}, fresh: map[lane]time.Time{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(w.see)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		client.Close()
	})
	return w
}

func (w *watch) see(r *kgo.Record) {
	var hit struct {
		Kind    string `json:"kind"`
		ID      string `json:"id"`
		Subject string `json:"subject"`
		Source  int    `json:"p"`
		Keyed   int    `json:"keyed"`
	}
	if json.Unmarshal(r.Value, &hit) != nil || hit.Kind != "hit" {
		return
	}
	sent, ok := exactness.ProbeSent(hit.Subject)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[hit.ID] {
		return
	}
	w.seen[hit.ID] = true
	h := probeHit{
		id: hit.ID, stands: r.Partition, lanes: [2]lane{{false, hit.Source}, {true, hit.Keyed}}, sent: sent,
		appended: r.Timestamp,
	}
	w.hits = append(w.hits, h)
	for _, l := range h.lanes {
		if sent.After(w.fresh[l]) {
			w.fresh[l] = sent
		}
	}
}

func (w *watch) lanes() []lane {
	var all []lane
	for p := range w.stream.Requests {
		all = append(all, lane{false, p})
	}
	for q := range w.stream.Keyed {
		all = append(all, lane{true, q})
	}
	return all
}

// works is nil when, through every partition, a probe has come that was sent after since.
func (w *watch) works(since time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lanes() {
		if !w.fresh[l].After(since) {
			return fmt.Errorf("no probe that was sent after %v has come through %v", since.UTC().Format(time.TimeOnly), l)
		}
	}
	return nil
}

// first are the ids of the first hits, one in each partition of hits, of probes that were sent after since.
func (w *watch) first(since time.Time) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]string, w.stream.Hits)
	for i := range w.hits {
		if h := &w.hits[i]; ids[h.stands] == "" && h.sent.After(since) {
			ids[h.stands] = h.id
		}
	}
	if p := slices.Index(ids, ""); p >= 0 {
		return nil, fmt.Errorf("no probe that was sent after %v has a hit in partition %d",
			since.UTC().Format(time.TimeOnly), p)
	}
	return ids, nil
}

const (
	// slow is more than a probe takes when nothing is wrong.
	slow = time.Second
	// calm is how long no probe may have been slow before the fault counts as over: what comes after is another story.
	calm = 2 * time.Second
)

// recovery measures, for the fault at an instant and until the next one: how long until, through every partition, the first
// probe had come that was sent after it, and how long until probes came as fast as ever.
func (w *watch) recovery(at, next time.Time) (first, caughtUp time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	came := map[lane]bool{}
	var late []probeHit
	for _, h := range w.hits {
		if h.sent.Before(at) || !h.sent.Before(next) {
			continue
		}
		for _, l := range h.lanes {
			if !came[l] {
				came[l] = true
				first = max(first, h.appended.Sub(at))
			}
		}
		if h.appended.Sub(h.sent) > slow {
			late = append(late, h)
		}
	}
	slices.SortFunc(late, func(a, b probeHit) int { return a.sent.Compare(b.sent) })
	caughtUp = first
	for _, h := range late {
		if h.sent.Sub(at) < caughtUp+calm {
			caughtUp = max(caughtUp, h.appended.Sub(at))
		}
	}
	return first, caughtUp
}

// recorded measures how long after the instant history had the first probe that was sent after it.
func recorded(ctx context.Context, s *exactness.Stream, at time.Time) (time.Duration, error) {
	var first time.Time
	err := s.Query(ctx, `SELECT subject, recorded_at FROM {ns}.hits_all WHERE rule = 'probe' ORDER BY recorded_at`, func(rows pgx.Rows) error {
		var subject string
		var recorded time.Time
		if err := rows.Scan(&subject, &recorded); err != nil {
			return err
		}
		if sent, ok := exactness.ProbeSent(subject); ok && first.IsZero() && !sent.Before(at) {
			first = recorded
		}
		return nil
	})
	return first.Sub(at), err
}
