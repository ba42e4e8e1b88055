package versions

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/duration"
)

func setLimitCommand(h *Host) *cobra.Command {
	var until string
	var length time.Duration
	var end bool
	c := &cobra.Command{
		Use:   "set-limit RULE {LIMIT {--until TIME | --for DURATION} | --clear}",
		Short: "Raise a rule's limit for a time",
		Long: `Raise the limit of a rule for requests before a time, 31 days ahead at most: for a sale, or while a partner catches up. It ends by itself, by
the time of requests, and takes the place of a raise that there was; --clear ends it early. It only raises: what is to be lower is an edit
of the document. Edits and promotions meanwhile leave it. Of a rule that blocks it is refused where a higher limit may block more, as it may
with a bucket and with extend: never.`,
		Example: `  weir rules set-limit guest-token-flood 50 --for 2h --reason "the sale"
  weir rules set-limit guest-token-flood 50 --until 2026-12-24T18:00:00Z --reason "the sale"
  weir rules set-limit guest-token-flood --clear --reason "the sale is over"`,
		Args: cobra.RangeArgs(1, 2),
	}
	act := &Act{}
	c.RunE = h.Does(func(cmd *cobra.Command, args []string) error {
		change, err := limitChange(args, until, length, end)
		if err != nil {
			return err
		}
		change.Reason = act.Reason
		return h.Open(cmd, func(ctx context.Context, in Installation) error {
			set, err := in.SetLimit(ctx, desk.Local(act.By), change)
			if err != nil {
				return desk.Told(err)
			}
			if h.Format == "json" {
				return h.WriteJSON(set)
			}
			return showLimit(h.Stdout, &set)
		})
	})
	c.Flags().StringVar(&until, "until", "", "when it ends, like 2026-12-24T18:00:00Z")
	usage.DurationFlag(c, &length, "for", 0, "how long it lasts from now, like 2h")
	c.Flags().BoolVar(&end, "clear", false, "end it now")
	act = h.Audited(c, true)
	return c
}

// limitChange reads the command line.
func limitChange(args []string, until string, length time.Duration, end bool) (c acts.LimitRequest, err error) {
	c.Rule = args[0]
	if end {
		if len(args) > 1 || until != "" || length != 0 {
			return c, usage.Errorf("--clear: got a limit or an end beside it; allowed: --clear alone")
		}
		return c, nil
	}
	if len(args) != 2 {
		return c, usage.Errorf("got no limit; allowed: a limit above the document's with --until or --for, or --clear")
	}
	if c.Limit, err = strconv.Atoi(args[1]); err != nil || c.Limit < 1 {
		return c, usage.Errorf("limit: got %q; allowed: a whole number above the document's limit", args[1])
	}
	switch {
	case (until == "") == (length == 0):
		return c, usage.Errorf("got %s; allowed: one of --until and --for", map[bool]string{true: "neither --until nor --for", false: "--until and --for"}[until == ""])
	case length != 0:
		c.For = duration.Format(length)
		return c, nil
	}
	if c.Until, err = time.Parse(time.RFC3339, until); err != nil {
		return c, usage.Errorf("--until: got %q; allowed: a time like 2026-12-24T18:00:00Z", until)
	}
	return c, nil
}

func showLimit(w io.Writer, set *rulestore.LimitSet) error {
	text := fmt.Sprintf("rule %s: limit %d", set.Rule, set.Limit)
	if set.Raised != nil {
		text = fmt.Sprintf("rule %s: limit %d until %s, then %d again", set.Rule, set.Raised.Limit, terminal.Stamp(set.Raised.Until), set.Limit)
	}
	if !set.Changed {
		text += "; nothing changed"
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
