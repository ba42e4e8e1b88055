package route

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/ingest"
)

// slowCommits answers after a while.
type slowCommits struct {
	ingest.Commits
	takes time.Duration
}

func (c slowCommits) Commit(ctx context.Context, _ map[int]ingest.Commit) error {
	select {
	case <-time.After(c.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestAStageThatStopsWaitsForItsCommit: what a commit covers is counted by who committed it, so its answer is worth a moment. It is not
// waited for any longer than that.
func TestAStageThatStopsWaitsForItsCommit(t *testing.T) {
	for _, tt := range []struct {
		takes, ends time.Duration // of the commit, and when it is over
		answered    bool
	}{
		{time.Millisecond, time.Millisecond, true},
		{time.Second + commitOutlasts/2, time.Second + commitOutlasts/2, true},
		{time.Hour, time.Second + commitOutlasts, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			s := &session{r: &Router{tally: newTally()}, assignment: ingest.Assignment{Commits: slowCommits{takes: tt.takes}}}
			begun := time.Now()
			err := s.commit(ctx, nil)
			if took := time.Since(begun); took != tt.ends || (err == nil) != tt.answered || err != nil && !errors.Is(err, ingest.ErrRejoin) {
				t.Errorf("a commit of %s: %v after %s", tt.takes, err, took)
			}
			if st := s.r.tally.snapshot(); st.Announcements == 1 != tt.answered || st.UnansweredCommits == 0 != tt.answered {
				t.Errorf("counted as %d answered, %d not", st.Announcements, st.UnansweredCommits)
			}
		})
	}
}
