package detect

import (
	"context"
	"slices"
	"sync"

	"github.com/weirhq/weir/ingest"
)

// readAhead fetches one step ahead of the folding. Its user asks, does something else, and takes the answer; one fetch is
// under way at a time. It is used by one goroutine.
type readAhead struct {
	log     ingest.Log
	under   bool // a fetch is under way, or its answer waits
	answers chan aheadAnswer
	stopped context.CancelFunc
	running sync.WaitGroup
}

type aheadAnswer struct {
	fetched []keyedFetch
	err     error
}

// keyedFetch is one partition's answer, with the offset that was asked for. A partition that is not folded up to that offset
// when the answer is taken must not be given it.
type keyedFetch struct {
	ingest.Fetched
	asked int64
}

func newReadAhead(log ingest.Log) *readAhead {
	return &readAhead{log: log, answers: make(chan aheadAnswer, 1), stopped: func() {}}
}

// ask begins a fetch of positions, unless a fetch is under way or there are no positions. It reports whether a fetch is
// under way now.
func (r *readAhead) ask(ctx context.Context, positions []ingest.Position) bool {
	if r.under || len(positions) == 0 {
		return r.under
	}
	ctx, r.stopped = context.WithCancel(ctx)
	r.under = true
	r.running.Go(func() {
		fetched, err := r.log.Fetch(ctx, positions, maxWait)
		answer := aheadAnswer{err: err, fetched: make([]keyedFetch, 0, len(positions))}
		for _, p := range positions {
			at := slices.IndexFunc(fetched, func(f ingest.Fetched) bool { return f.Partition == p.Partition })
			if at < 0 {
				answer.fetched = append(answer.fetched, keyedFetch{ingest.Fetched{Partition: p.Partition, Err: ingest.ErrSilent}, p.Offset})
				continue
			}
			answer.fetched = append(answer.fetched, keyedFetch{fetched[at], p.Offset})
		}
		r.answers <- answer // never waits: there is room for the one fetch under way
	})
	return true
}

// ready reports whether take would answer at once.
func (r *readAhead) ready() bool { return len(r.answers) > 0 }

// take waits for the answer of the fetch under way.
func (r *readAhead) take(ctx context.Context) ([]keyedFetch, error) {
	select {
	case a := <-r.answers:
		r.under = false
		r.stopped()
		return a.fetched, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stop ends the fetch under way and waits for it.
func (r *readAhead) stop() {
	r.stopped()
	r.running.Wait()
}
