package consume

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// lasting is a group that gives a member partitions 0 and 1 until it leaves, and keeps what it commits.
type lasting struct {
	mu      sync.Mutex
	commits map[int]ingest.Commit
}

func (g *lasting) Run(ctx context.Context, session func(context.Context, ingest.Assignment) error) error {
	return session(ctx, ingest.Assignment{Partitions: []int{0, 1}, Commits: g})
}

func (g *lasting) Fetch(context.Context, []int) (map[int]ingest.Commit, error) { return nil, nil }

func (g *lasting) Commit(_ context.Context, commits map[int]ingest.Commit) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.Copy(g.commits, commits)
	return nil
}

// halfSink takes a batch of partition 0 when it is released, and hangs on one of partition 1.
type halfSink struct {
	inHand  chan int
	release chan struct{}
}

func (s halfSink) Apply(ctx context.Context, batch []traffic.Message) error {
	s.inHand <- batch[0].Partition
	if batch[0].Partition == 0 {
		<-s.release
		return ctx.Err()
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestConsumerDrainsOneBesideAnother: a batch that is done within Drain is committed, though another one hangs, which costs no
// more than Drain.
func TestConsumerDrainsOneBesideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const drain = 4 * time.Second
		group := &lasting{commits: map[int]ingest.Commit{}}
		sink := halfSink{make(chan int, 2), make(chan struct{})}
		c, err := New(Options{Name: "record", Log: newerLog{}, Group: group, Sink: sink, Drain: drain, Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		<-sink.inHand
		<-sink.inHand
		begun := time.Now()
		stop()
		time.Sleep(drain - time.Second)
		close(sink.release)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != drain {
			t.Errorf("stopping took %v, want %v", took, drain)
		}
		if group.commits[0].Offset != 1 || group.commits[1].Offset != 0 {
			t.Errorf("commits %v, want partition 0 done and 1 not", group.commits)
		}
	})
}
