package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/history"
)

// store is an installation's history with the configuration that led to it.
type store struct {
	*history.Store
	config *config.Config
	log    *slog.Logger
}

// withStore opens the history of the configured installation for a command that asks or changes something.
func (a *app) withStore(cmd *cobra.Command, work func(ctx context.Context, s *store) error) error {
	c, err := a.config(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	log := a.quietLogger(c)
	s, err := service.OpenHistory(ctx, c, log)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.WaitReady(ctx, service.AnswerTimeout); err != nil {
		return err
	}
	return work(ctx, &store{Store: s, config: c, log: log})
}

// quietLogger is the logger of commands that answer on standard output: only what goes wrong is worth a line beside it.
func (a *app) quietLogger(c *config.Config) *slog.Logger {
	quiet := c.Log
	if quiet.Level == "info" {
		quiet.Level = "warn"
	}
	return service.NewLogger(quiet, a.Stderr)
}
