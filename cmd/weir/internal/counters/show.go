package counters

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func (p *Program) show() *cobra.Command {
	var at string
	c := &cobra.Command{
		Use:   "show RULE [SOURCE…]",
		Short: "Show what a rule has counted of a source, against its limit",
		Long: `Show what a rule has counted of one source by now: asked of the process that counts it, over its http.listen address (GET /v1/counters).
Beside the limit's count stand those of near, a candidate and a pending version. Counts are as of the newest request that the partition has
seen, by the time of requests.

SOURCE is FIELD=VALUE for each field of the rule's key, as for weir counters reset. --at names the process's address where the one that it
reports cannot be reached from here. With --server the console's server asks.`,
		Example: `  weir counters show guest-token-flood ip=192.0.2.1 device=tv-7
  weir counters show all-logins --at http://10.0.3.7:9464 --output json`,
		Args: cobra.MinimumNArgs(1),
	}
	c.RunE = p.Does(func(cmd *cobra.Command, args []string) error {
		base, err := parseAt(at)
		if err != nil {
			return err
		}
		return p.WithCounts(cmd, base, func(ctx context.Context, r desk.Reader, asked api.Counts) error {
			found, err := r.Rule(ctx, args[0])
			if err != nil {
				return desk.Told(err)
			}
			if err := acts.Counts(&found.Rule); err != nil {
				return err
			}
			who, err := source(&found.Rule, args[1:])
			if err != nil {
				return err
			}
			counted, err := asked.Count(ctx, args[0], who)
			if err != nil {
				return told(err)
			}
			return p.sayCounted(&found.Rule, &counted)
		})
	})
	c.Flags().StringVar(&at, "at", "",
		"the process to ask, like http://10.0.3.7:9464 (default: the one that reports the partition)")
	return c
}

// parseAt reads --at: scheme, host and port alone.
func parseAt(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.User != nil || u.Fragment != "" {
		return "", usage.Errorf("--at: got %q; allowed: http://HOST:PORT, the http.listen address of a process that detects", text)
	}
	return u.Scheme + "://" + u.Host, nil
}

// shown is the answer with what the rule does.
type shown struct {
	*api.Count
	Mode rules.Mode `json:"mode"`
}

func (p *Program) sayCounted(rule *rulestore.Rule, c *api.Count) error {
	if p.Format == "json" {
		return p.WriteJSON(shown{c, rule.Mode})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rule %s, %s: %s, in keyed partition %d\n", c.Rule, rule.Mode, whom(c.Subject), c.Partition)
	if c.AsOf == 0 {
		b.WriteString("the partition has seen no request yet\n")
	} else {
		fmt.Fprintf(&b, "as of %s, the newest request seen; none from before %s is waited for\n", terminal.Time(c.AsOf),
			watermark(c.Watermark))
	}
	if c.Reset != 0 {
		fmt.Fprintf(&b, "a reset, of routing version %d, waits for the partition's first request under it\n", c.Reset)
	}
	held := false
	for i := range c.Windows {
		held = held || c.Windows[i].Held
	}
	if !held {
		b.WriteString("nothing counted\n")
	}
	if _, err := io.WriteString(p.Stdout, b.String()); err != nil {
		return err
	}
	head := []string{"OF", "VERSION", "COUNT", "LIMIT", "WINDOW", "FROM", "TO", "OVER SINCE", "HIT"}
	return terminal.List(p.Output, c.Windows, head, windowRow)
}

func watermark(at traffic.Time) string {
	if at == 0 {
		return "then"
	}
	return terminal.Time(at)
}

func windowRow(w detectors.LookWindow) []string {
	count, since, hit := "none", "", ""
	if w.Held {
		count = strconv.FormatInt(w.Count, 10)
	}
	if w.AtLeast {
		count += " or more"
	}
	if n := len(w.Episodes); n > 0 {
		since = terminal.Time(w.Episodes[n-1].First)
		if hits := w.Episodes[n-1].Hits; len(hits) > 0 {
			hit = hits[0]
		}
	}
	limit := strconv.FormatInt(w.Limit, 10)
	for _, t := range w.Tiers {
		limit += fmt.Sprintf(", %d where %s", t.Limit, terminal.Brief(t.When))
	}
	return []string{w.Of, strconv.Itoa(w.Version), count, limit,
		duration.Format(time.Duration(w.WindowMS) * time.Millisecond), terminal.Time(w.From), terminal.Time(w.To),
		since, hit}
}
