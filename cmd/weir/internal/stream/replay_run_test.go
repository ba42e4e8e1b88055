package stream

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir/cmd/weir/internal/service"
)

// A replay of which everything is recorded is complete, however long its stages take to end.
func TestReplayWhoseStagesAreSlowToEnd(t *testing.T) {
	broke := errors.New("broke")
	for name, tc := range map[string]struct {
		sending error // of the part that sends; still at it: it has not come back
		still   bool
		stuck   bool  // whether a stage does not end in time
		failed  error // of another stage
		want    string
	}{
		"whole":                     {nil, false, false, nil, ""},
		"whole, a stage is slow":    {nil, false, true, nil, ""},
		"whole, but a stage failed": {nil, false, false, broke, "route: broke"},
		"both":                      {nil, false, true, broke, "route: broke\ndetect did not end within 7s"},
		"not all was sent":          {broke, false, false, nil, "broke"},
		"and a stage is slow":       {broke, false, true, nil, "broke\ndetect did not end within 7s"},
		"cut short by a stage":      {context.Canceled, false, false, broke, "route: broke"},
		"stopped":                   {context.Canceled, false, false, nil, "context canceled"},
		"still at it":               {nil, true, true, nil, "detect did not end within 7s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := slog.New(slog.DiscardHandler)
				sent := make(chan error, 1)
				if !tc.still {
					sent <- tc.sending
				}
				hung := make(chan struct{})
				defer close(hung)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if tc.failed == nil {
					stop()
				}
				err := outcome(log, sent, service.Serve(ctx, log, service.StageTimeout,
					[]service.Part{{Name: "route", Run: func(ctx context.Context) error {
						if tc.failed == nil {
							<-ctx.Done()
						}
						return tc.failed
					}}},
					[]service.Part{{Name: "detect", Run: func(ctx context.Context) error {
						if <-ctx.Done(); tc.stuck {
							<-hung
						}
						return nil
					}}}))
				got := ""
				if err != nil {
					got = err.Error()
				}
				if !strings.HasPrefix(got, tc.want) || (err == nil) != (tc.want == "") {
					t.Errorf("got %q, want %q", got, tc.want)
				}
			})
		})
	}
}
