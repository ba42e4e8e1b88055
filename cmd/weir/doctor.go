package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/doctor"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/internal/plural"
)

// doctorTimeout bounds a whole run of weir doctor, unless --timeout says otherwise.
const doctorTimeout = 20 * time.Second

func doctorCommand(a *app) *cobra.Command {
	var timeout time.Duration
	var events int
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look at everything an installation needs, and name the remedy for what is wrong",
		Long: `Look at everything an installation needs, and say of each thing whether it is as it should be, and the remedy if not:
the configuration, Kafka with its topics and groups, Redis, PostgreSQL, their clocks, the stages and their partitions, dead
letters, and the newest events: which identities they carry, whether their times are right, which rules match none of them.

A server that is away is one line; all that can be looked at without it still is. Nothing is changed anywhere.
The exit code is 1 if anything fails; warnings alone leave it 0.`,
		Example: "  weir doctor\n  weir doctor --output json --timeout 10s",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return usage.Errorf("--timeout: got %s; allowed: above 0s", timeout)
			}
			if events < 1 || events > 10_000 {
				return usage.Errorf("--events: got %d; allowed: 1 to 10000", events)
			}
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			return runDoctor(cmd.Context(), a, conf, timeout, events)
		}),
	}
	usage.DurationFlag(c, &timeout, "timeout", doctorTimeout, "how long all of it may take")
	c.Flags().IntVar(&events, "events", 200, "how many of the newest events of each partition to look at")
	return c
}

func runDoctor(parent context.Context, a *app, c *config.Config, timeout time.Duration, events int) error {
	ctx, forget := service.UntilSignal(parent, a.quietLogger(c))
	defer forget()
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := doctor.Examine(bounded, c, readBuildVersion().Version, events)
	if err != nil {
		return err
	}
	if err := showFindings(a, found); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopped: %w", ctx.Err())
	}
	for _, f := range found {
		if f.Status == doctor.Fail {
			return errSaid
		}
	}
	return nil
}

// showFindings writes a line for each finding, and what they amount to.
func showFindings(a *app, found []doctor.Finding) error {
	if a.Format == "json" {
		return a.WriteJSON(found)
	}
	width, count := 0, map[doctor.Status]int{}
	for _, f := range found {
		width = max(width, utf8.RuneCountInString(f.Check))
		count[f.Status]++
	}
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%-4s  %-*s  %s", f.Status, width, terminal.Safe(f.Check), terminal.Safe(f.Found))
		if f.Remedy != "" {
			fmt.Fprintf(&b, " ▸ %s", terminal.Safe(f.Remedy))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d ok, %s, %d failed\n", count[doctor.OK], plural.Of(count[doctor.Warn], "warning"), count[doctor.Fail])
	_, err := io.WriteString(a.Stdout, b.String())
	return err
}
