package service

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/internal/testbed"
)

// A command that waits for a server says so once, and not why: its error does, whichever server it is.
func TestQuietLoggerSaysOnceWhatIsWaitedFor(t *testing.T) {
	const limit = 4 * time.Second // the client of Redis dials several times before it says that nobody answers
	c := config.Default()
	away := fmt.Sprint("127.0.0.1:", testbed.FreePort(t))
	c.Kafka.Brokers, c.Redis.URL, c.Postgres.URL = []string{away}, config.Secret("redis://"+away+"/0"), config.Secret("postgres://weir@"+away+"/weir")
	for server, wait := range map[string]func(context.Context, *slog.Logger) error{
		"PostgreSQL": func(ctx context.Context, log *slog.Logger) error {
			s, err := OpenHistory(ctx, c, log)
			if err != nil {
				return err
			}
			defer s.Close()
			return s.WaitReady(ctx, limit)
		},
		"Redis": func(ctx context.Context, log *slog.Logger) error {
			r, err := OpenRedis(c)
			if err != nil {
				return err
			}
			defer func() { _ = r.Close() }()
			return WaitRedis(ctx, r, limit, log)
		},
		"Kafka": func(ctx context.Context, log *slog.Logger) error {
			k, err := OpenKafka(c, log, nil)
			if err != nil {
				return err
			}
			defer func() { _ = k.Close() }()
			return WaitKafka(ctx, k, limit)
		},
	} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			testbed.Eventually(t, time.Minute, func() error { // who stands still for all of the wait has waited for nothing
				var said bytes.Buffer
				err := wait(t.Context(), NewQuietLogger(config.Log{Level: "info", Format: "text"}, &said))
				if err == nil || !strings.Contains(err.Error(), away) {
					return fmt.Errorf("the error is %w, and does not name %s", err, away)
				}
				if got := said.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `msg="waiting for `+server+`, 10s at most"`) || strings.Contains(got, "refused") {
					return fmt.Errorf("said\n%s", got)
				}
				return nil
			})
		})
		t.Run(server+" for who looks for the cause", func(t *testing.T) {
			t.Parallel()
			testbed.Eventually(t, time.Minute, func() error { // who stands still for all of the wait has looked for nothing
				var all bytes.Buffer
				if _ = wait(t.Context(), NewQuietLogger(config.Log{Level: "debug", Format: "text"}, &all)); !strings.Contains(all.String(), "refused") {
					return fmt.Errorf("said\n%s", all.String())
				}
				return nil
			})
		})
	}
}

// Other lines stay as they are, with what was added to the logger.
func TestQuietLoggerKeepsWarnings(t *testing.T) {
	var said bytes.Buffer
	log := NewQuietLogger(config.Log{Level: "info", Format: "text"}, &said).With("part", "x").WithGroup("g")
	log.Info("all is well")
	log.Warn("the disk is full", "free", 1)
	log.Warn("waiting for Kafka")
	log.Warn("waiting for Kafka")
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], `msg="the disk is full" part=x g.free=1`) || !strings.HasSuffix(lines[1], `msg="waiting for Kafka, 10s at most" part=x`) {
		t.Errorf("said %q", lines)
	}
}
