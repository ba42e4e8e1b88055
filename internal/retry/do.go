package retry

import (
	"context"
	"log/slog"
	"time"
)

// Do calls work until it succeeds or ctx ends, with waits from 100 ms to 5 s. Failures are logged as Trouble does, with
// message. The error is the last one from before ctx ended: it says what is wrong, rather than that time ran out.
func Do(ctx context.Context, log *slog.Logger, message string, work func(ctx context.Context) error) error {
	var trouble Trouble
	backoff := NewBackoff(100*time.Millisecond, 5*time.Second)
	var last error
	for {
		err := work(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if ctx.Err() == nil {
			trouble.Failed(log, message, err)
		}
		if backoff.Wait(ctx) != nil {
			return last
		}
	}
}
