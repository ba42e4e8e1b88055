// Package dossier has weir rules evidence: what a version of a rule would have done, had it blocked.
package dossier

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/traffic"
)

// Host is what the command has of the program around it.
type Host struct {
	*terminal.Output
	// Does wraps the command's work.
	Does func(work func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error
	// Open opens the configured installation for it.
	Open func(cmd *cobra.Command, work func(ctx context.Context, in Installation) error) error
}

// Installation is who is asked.
type Installation interface {
	// Gather makes the dossier; the error about another name than a rule's says which one it may have meant.
	Gather(ctx context.Context, q evidence.Question) (*evidence.Dossier, error)
}

// request is the command line.
type request struct {
	version            int
	pending, candidate bool
	since, until       string
	limits             []int
}

// Command is weir rules evidence.
func Command(h *Host) *cobra.Command {
	var r request
	c := &cobra.Command{
		Use:   "evidence RULE",
		Short: "Show what a version of a rule would have done, had it blocked",
		Long: `Show the dossier of a version of a rule: how long it was observed, the requests and sources that its block would have refused, their share of
all traffic, how many of the sources are known to be good and how many could be judged, who is behind an address, what other rules hold
already, what other limits would hold, and the sources with the most. Nothing changes by asking. Each figure is measured, a bound (at least,
at most), or not measurable, with the reason: what is not known is never shown as 0.

Without a version it is about the one that acts. The span is cut to whole minutes, and is 7 days back from now where nothing is said.`,
		Example: `  weir rules evidence guest-token-flood
  weir rules evidence guest-token-flood --since 24h --limits 10,20,50
  weir rules evidence guest-token-flood --pending --output json`,
		Args: cobra.ExactArgs(1),
	}
	c.RunE = h.Does(func(cmd *cobra.Command, args []string) error {
		q, err := r.question(args[0], service.Now())
		if err != nil {
			return err
		}
		return h.Open(cmd, func(ctx context.Context, in Installation) error {
			d, err := in.Gather(ctx, q)
			switch {
			case errors.Is(err, evidence.ErrNoVersion):
				return &usage.Error{Err: err}
			case err != nil:
				return err
			}
			return show(h.Output, d, r.limits)
		})
	})
	c.Flags().IntVar(&r.version, "version", 0, "the version with this number")
	c.Flags().BoolVar(&r.pending, "pending", false, "the version that waits for its promotion")
	c.Flags().BoolVar(&r.candidate, "candidate", false, "the limit on trial of the version that acts")
	c.Flags().StringVar(&r.since, "since", "7d", "from: a duration back from now (24h, 7d) or an RFC 3339 time")
	c.Flags().StringVar(&r.until, "until", "", "up to, as --since; nothing: now")
	c.Flags().IntSliceVar(&r.limits, "limits", nil, "other limits, from the version's own upward, that are asked about")
	return c
}

// question reads the command line.
func (r *request) question(rule string, now traffic.Time) (q evidence.Question, err error) {
	q = evidence.Question{Rule: rule, Version: r.version, Until: now}
	switch {
	case r.version < 0:
		return q, usage.Errorf("--version: got %d; allowed: the number of a version, 1 and more", r.version)
	case r.pending && r.candidate, r.version != 0 && r.pending:
		return q, usage.Errorf("got two of --version, --pending and --candidate; allowed: one, or --version with --candidate")
	case r.pending:
		q.Role = evidence.Pending
	case r.candidate:
		q.Role = evidence.Candidate
	}
	for _, limit := range r.limits {
		if limit < 0 {
			return q, usage.Errorf("--limits: got %d; allowed: whole numbers from 0 on", limit)
		}
	}
	if q.Since, err = readTime("since", r.since, now); err != nil {
		return q, err
	}
	if r.until != "" {
		if q.Until, err = readTime("until", r.until, now); err != nil {
			return q, err
		}
	}
	if span := q.Until.Sub(q.Since); span < time.Minute || span > evidence.MaxSpan {
		return q, usage.Errorf("--since, --until: got %s to %s; allowed: at least a minute, and at most %s", q.Since, q.Until, duration.Format(evidence.MaxSpan))
	}
	return q, nil
}

// readTime reads a duration back from now, or a time.
func readTime(flag, text string, now traffic.Time) (traffic.Time, error) {
	if d, err := duration.Parse(text); err == nil {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, usage.Errorf("--%s: got %q; allowed: a duration like 90m, 24h or 7d, or a time like 2026-01-31T12:00:00Z", flag, text)
	}
	return traffic.At(t), nil
}
