package stream

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

func TestInterruptibleReader(t *testing.T) {
	t.Run("gives everything, and tells of silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			from, to := io.Pipe()
			silences := 0
			r := newInterruptibleReader(t.Context(), from, func() error { silences++; return nil })
			go func() {
				_, _ = io.WriteString(to, "one\n")
				time.Sleep(10 * sendAfter)
				_, _ = io.WriteString(to, "two\n")
				_ = to.Close()
			}()
			got, err := io.ReadAll(r)
			if err != nil || string(got) != "one\ntwo\n" {
				t.Errorf("read %q, %v", got, err)
			}
			if silences == 0 {
				t.Error("nobody was told of the silence between")
			}
			_ = r.Close()
		})
	})
	t.Run("ends with its context while nothing comes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			from, to := io.Pipe()
			r := newInterruptibleReader(ctx, from, func() error { return nil })
			if _, err := r.Read(make([]byte, 10)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want the context's error", err)
			}
			_ = r.Close()
			_ = to.Close()
		})
	})
}
