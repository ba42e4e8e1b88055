package archive

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/traffic"
)

func TestPaceFollowsEventTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPace(10)
		begin := time.Now()
		for _, tc := range []struct {
			second int64
			want   time.Duration
		}{{100, 0}, {110, time.Second}, {105, time.Second}, {130, 3 * time.Second}, {130, 3 * time.Second}} {
			if err := p.Wait(t.Context(), traffic.Time(tc.second)*1e6); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(begin); got != tc.want {
				t.Errorf("event of second %d went out after %s, want %s", tc.second, got, tc.want)
			}
		}
	})
}

func TestPaceEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := NewPace(1)
		if err := p.Wait(ctx, 0); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(ctx, 3600*1e6); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}
