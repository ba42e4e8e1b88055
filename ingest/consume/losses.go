package consume

import (
	"context"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
)

// tellLoop has what was lost stored, until ctx is done. Records are applied meanwhile, and not committed.
func (s *consumption) tellLoop(ctx context.Context) {
	wait := retry.NewBackoff(100*time.Millisecond, 5*time.Second)
	var trouble retry.Trouble
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.untold:
		}
		if err := s.tell(ctx); err != nil {
			trouble.Failed(s.c.opts.Logger,
				"a loss is not stored, and nothing of its partition committed, trying again", err)
			_ = wait.Wait(ctx)
			ingest.Wake(s.untold)
			continue
		}
		wait.Reset()
		trouble.Over(s.c.opts.Logger, "losses are stored again")
	}
}

// tell stores what the lanes have lost. It ends at the first failure.
func (s *consumption) tell(ctx context.Context) error {
	for _, l := range s.lanes {
		for {
			l.mu.Lock()
			left := l.untold
			l.mu.Unlock()
			if len(left) == 0 {
				break
			}
			if err := s.tellOne(ctx, left[0]); err != nil {
				return err
			}
			l.mu.Lock()
			l.untold = l.untold[1:]
			l.mu.Unlock()
		}
	}
	return nil
}

// tellTimeout bounds one attempt: a store that has taken the question and does not answer is asked again.
const tellTimeout = 10 * time.Second

func (s *consumption) tellOne(ctx context.Context, lost ingest.Loss) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	return s.c.opts.Lost(ctx, lost)
}
