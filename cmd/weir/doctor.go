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
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
)

// doctorPatience bounds a whole run of weir doctor, unless --timeout says otherwise.
const doctorPatience = 20 * time.Second

func (a *app) doctorCommand() *cobra.Command {
	var patience time.Duration
	var events int
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look at everything an installation needs, and say how to mend what is wrong",
		Long: `Look at everything an installation needs, and say of each thing whether it is as it should be, and how to mend it if not:
the configuration, Kafka with its topics and groups, Redis, PostgreSQL, their clocks, the stages and their partitions, dead
letters, and the newest events: which identities they carry, whether their times are right, which rules match none of them.

A server that is away is one line; all that can be looked at without it still is. Nothing is changed anywhere.
The exit code is 1 if anything fails; warnings alone leave it 0.`,
		Example: "  weir doctor\n  weir doctor --output json --timeout 10s",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if patience <= 0 {
				return usage.Errorf("--timeout: got %s; allowed: above 0s", patience)
			}
			if events < 1 || events > 10_000 {
				return usage.Errorf("--events: got %d; allowed: 1 to 10000", events)
			}
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			return a.doctor(cmd.Context(), conf, patience, events)
		}),
	}
	usage.DurationFlag(c, &patience, "timeout", doctorPatience, "how long all of it may take")
	c.Flags().IntVar(&events, "events", 200, "how many of the newest events of each partition to look at")
	return c
}

// status is what a finding means.
type status string

const (
	statusOK   status = "ok"
	statusWarn status = "warn" // it works, and somebody should know
	statusFail status = "fail" // something that weir is for does not work
)

// finding is one line of weir doctor.
type finding struct {
	Check  string `json:"check"`
	Status status `json:"status"`
	Found  string `json:"found"`
	Mend   string `json:"mend,omitempty"` // what to do about it; empty where nothing is to be done
}

func fine(check, format string, args ...any) finding {
	return finding{Check: check, Status: statusOK, Found: fmt.Sprintf(format, args...)}
}

func warning(check, mend, format string, args ...any) finding {
	return finding{Check: check, Status: statusWarn, Found: fmt.Sprintf(format, args...), Mend: mend}
}

func failing(check, mend, format string, args ...any) finding {
	return finding{Check: check, Status: statusFail, Found: fmt.Sprintf(format, args...), Mend: mend}
}

// failed is the finding of a check that could not be made. weir's errors say behind their last semicolon what to do.
func failed(check string, err error, otherwise string) finding {
	text := oneProblem(err)
	if at := strings.LastIndex(text, "; "); at > 0 {
		return failing(check, text[at+2:], "%s", text[:at])
	}
	return failing(check, otherwise, "%s", text)
}

func (a *app) doctor(parent context.Context, c *config.Config, patience time.Duration, events int) error {
	ctx, forget := service.UntilSignal(parent, a.quietLogger(c))
	defer forget()
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e, err := newExamination(bounded, c, events)
	if err != nil {
		return err
	}
	found := e.run(bounded)
	service.CloseAll(e.closers)
	if err := a.showFindings(found); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopped: %w", ctx.Err())
	}
	for _, f := range found {
		if f.Status == statusFail {
			return errSaid
		}
	}
	return nil
}

// showFindings writes a line for each finding, and what they amount to.
func (a *app) showFindings(found []finding) error {
	if a.Format == "json" {
		return a.WriteJSON(found)
	}
	width, count := 0, map[status]int{}
	for _, f := range found {
		width = max(width, utf8.RuneCountInString(f.Check))
		count[f.Status]++
	}
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%-4s  %-*s  %s", f.Status, width, terminal.Safe(f.Check), terminal.Safe(f.Found))
		if f.Mend != "" {
			fmt.Fprintf(&b, " ▸ %s", terminal.Safe(f.Mend))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d ok, %s, %d failed\n", count[statusOK], terminal.Plural(count[statusWarn], "warning"), count[statusFail])
	_, err := io.WriteString(a.Stdout, b.String())
	return err
}
