package detect_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
)

// promptLog is Kafka's Log in one respect: asked for nothing, it answers at once.
type promptLog struct {
	keyedLog
	asked *atomic.Int64
}

func (l promptLog) Fetch(ctx context.Context, positions []ingest.Position, wait time.Duration) ([]ingest.Fetched, error) {
	if l.asked.Add(1) > 10_000 {
		<-ctx.Done() // a loop that does nothing else would keep the test's clock from moving
	}
	if len(positions) == 0 {
		return nil, ctx.Err()
	}
	return l.keyedLog.Fetch(ctx, positions, wait)
}

// A member without partitions, or whose partitions have all stopped, must not keep a core busy with asking for nothing.
func TestDetectWithoutPartitionsRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		var asked atomic.Int64
		r := w.begin("idle", nil, func(o *detect.Options) { o.Log = promptLog{keyedLog{w}, &asked} })
		pass(10 * time.Second)
		r.stop(t)
		if n := asked.Load(); n > 100 {
			t.Errorf("asked the log %d times in 10 s", n)
		}
	})
}

// frozenStore takes the first question of each kind and never answers it.
type frozenStore struct {
	checkpointStore
	asked *atomic.Int64
}

func (s frozenStore) Take(ctx context.Context, stream string, p int, owner string, held int64) (ingest.Claim, error) {
	if s.asked.Add(1) == 1 {
		<-ctx.Done()
		return ingest.Claim{}, ctx.Err()
	}
	return s.checkpointStore.Take(ctx, stream, p, owner, held)
}

// A store that takes a question and gives no answer, such as a server that is frozen while its successor is up, must not
// keep partitions waiting for ever.
func TestDetectAsksAFrozenStoreAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(20)
		var asked atomic.Int64
		r := w.begin("a", []int{0}, func(o *detect.Options) { o.Checkpoints = frozenStore{checkpointStore{w}, &asked} })
		r.ended(t)
		r.stop(t)
	})
}
