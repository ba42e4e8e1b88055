package service

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/weirhq/weir/cmd/weir/internal/config"
)

// NewQuietLogger makes the logger of a command that answers on standard output: only what goes wrong is worth a line beside it. While the
// command waits for a server it says so once, without the reason: the error that ends the command tells that, if it does not come.
func NewQuietLogger(c config.Log, w io.Writer) *slog.Logger {
	if c.Level == "info" {
		c.Level = "warn"
	}
	log := NewLogger(c, w)
	if c.Level == "debug" {
		return log // who looks for the cause is told of each try
	}
	return slog.New(&quietHandler{Handler: log.Handler(), said: &sync.Map{}})
}

// quietHandler says once of each server that it is waited for.
type quietHandler struct {
	slog.Handler
	said *sync.Map // names of servers
}

// waitedFor is the server that a message tells of a failed try to reach it, "" for any other message.
func waitedFor(message string) string {
	switch message {
	case "PostgreSQL is not ready, trying again":
		return "PostgreSQL"
	case "Redis is not ready, trying again":
		return "Redis"
	case "waiting for Kafka":
		return "Kafka"
	}
	return ""
}

// Handle writes a record, of tries to reach a server the first.
func (h *quietHandler) Handle(ctx context.Context, r slog.Record) error {
	if server := waitedFor(r.Message); server != "" {
		if _, again := h.said.LoadOrStore(server, true); again {
			return nil
		}
		r = slog.NewRecord(r.Time, r.Level, "waiting for "+server+", "+AnswerTimeout.String()+" at most", r.PC)
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs is that of the handler within.
func (h *quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &quietHandler{Handler: h.Handler.WithAttrs(attrs), said: h.said}
}

// WithGroup is that of the handler within.
func (h *quietHandler) WithGroup(name string) slog.Handler {
	return &quietHandler{Handler: h.Handler.WithGroup(name), said: h.said}
}
