package counters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const (
	askTimeout = 3 * time.Second  // of one question to a process
	askWait    = 10 * time.Second // for a partition that moves, and an owner that is busy
	askAgain   = time.Second
	maxAnswer  = 1 << 20
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
reports cannot be reached from here.`,
		Example: `  weir counters show guest-token-flood ip=192.0.2.1 device=tv-7
  weir counters show all-logins --at http://10.0.3.7:9464 --output json`,
		Args: cobra.MinimumNArgs(1),
	}
	c.RunE = p.Does(func(cmd *cobra.Command, args []string) error {
		base, err := parseAt(at)
		if err != nil {
			return err
		}
		return p.WithStore(cmd, func(ctx context.Context, in *Installation) error {
			rule, err := in.Named(ctx, args[0])
			if err != nil {
				return err
			}
			if rule.Removed || rule.Mode == rules.ModeOff {
				return fmt.Errorf("rule %s counts nothing: it is %s", args[0], map[bool]string{true: "removed", false: "off"}[rule.Removed])
			}
			who, err := source(&rule, args[1:])
			if err != nil {
				return err
			}
			q := question{in: in, rule: &rule, who: who, at: base, client: newClient()}
			counted, err := q.ask(ctx)
			if err != nil {
				return err
			}
			return p.sayCounted(&rule, counted)
		})
	})
	c.Flags().StringVar(&at, "at", "", "the process to ask, like http://10.0.3.7:9464 (default: the one that reports the partition)")
	return c
}

// parseAt reads --at: scheme, host and port alone.
func parseAt(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil || u.Fragment != "" {
		return "", usage.Errorf("--at: got %q; allowed: http://HOST:PORT, the http.listen address of a process that detects", text)
	}
	return u.Scheme + "://" + u.Host, nil
}

// newClient follows no redirect: an answer is the owner's, or none.
func newClient() *http.Client {
	return &http.Client{Timeout: askTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// question is about one source.
type question struct {
	in     *Installation
	rule   *rulestore.Rule
	who    traffic.Subject
	at     string // empty: whoever reports the partition
	client *http.Client
}

// busy is an answer after which it is worth to ask again.
type busy struct{ error }

// ask asks until there is an answer, for askWait at most: partitions move, and owners are busy.
func (q *question) ask(ctx context.Context) (*service.Counted, error) {
	partition, err := q.partition(ctx)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(askWait); ; {
		base, owner := q.at, ""
		if base == "" {
			if base, owner, err = q.owner(ctx, partition); err != nil {
				return nil, err
			}
		}
		counted, err := q.askAt(ctx, base, owner)
		if err == nil || !errors.As(err, new(busy)) || time.Now().Add(askAgain).After(end) {
			return counted, err
		}
		if err := retry.Sleep(ctx, askAgain); err != nil {
			return nil, err
		}
	}
}

// partition is the keyed partition that counts the source.
func (q *question) partition(ctx context.Context) (int, error) {
	stream, err := q.in.Streams.Find(ctx, history.Live)
	if err != nil {
		return 0, err
	}
	_, secret, err := q.in.Streams.Secret(ctx)
	if err != nil {
		return 0, err
	}
	var unfit error
	for _, key := range q.rule.Keys() {
		partition, err := route.TargetOf(secret[:], stream.Partitions.Keyed, q.rule.Newest.Version.ID, key, q.who)
		if err == nil {
			return partition, nil
		}
		unfit = err
	}
	return 0, unfit
}

// owner finds who has the partition, and where it answers.
func (q *question) owner(ctx context.Context, partition int) (base, owner string, err error) {
	p, found, err := service.OwnerOf(ctx, q.in.Partitions, history.Live, partition)
	switch {
	case err != nil:
		return "", "", err
	case !found:
		return "", "", fmt.Errorf("nobody has reported keyed partition %d, which counts this source: is weir run --stages detect running? "+
			"What was counted before is in its snapshot, and goes on with it", partition)
	case p.Address == "":
		return "", "", fmt.Errorf("keyed partition %d is %s's, which does not say where it answers: name its http.listen address with --at", partition, terminal.Safe(p.Owner))
	}
	return p.Address, fmt.Sprintf("%s, which reported keyed partition %d at %s", terminal.Safe(p.Owner), partition, terminal.Stamp(p.Reported)), nil
}

// askAt asks one process.
func (q *question) askAt(ctx context.Context, base, owner string) (*service.Counted, error) {
	values := url.Values{"rule": {q.rule.Newest.Version.ID}, "key": {string(q.who)}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+service.CountersPath+"?"+values.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", terminal.Safe(base), err)
	}
	if owner != "" {
		owner = " (" + owner + ")"
	}
	response, err := q.client.Do(r)
	if err != nil {
		var wrapped *url.Error // which would repeat the whole of the URL
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("%s%s does not answer: %w. Its http.listen address must be reached from here; --at names another one", terminal.Safe(base), owner, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s%s: its answer breaks off: %w", terminal.Safe(base), owner, err)
	}
	if response.StatusCode == http.StatusOK {
		counted := &service.Counted{}
		if err := json.Unmarshal(body, counted); err != nil || counted.Rule != q.rule.Newest.Version.ID || counted.Subject != q.who {
			return nil, fmt.Errorf("%s%s gives no answer of a weir that detects: %w", terminal.Safe(base), owner, errors.Join(err, errors.New("not what was asked for")))
		}
		return counted, nil
	}
	return nil, refusal(response.StatusCode, body, base, owner)
}

// refusal is the error of an answer other than the count.
func refusal(code int, body []byte, base, owner string) error {
	var said service.NotCounted
	if json.Unmarshal(body, &said) != nil || said.Problem == "" {
		return fmt.Errorf("%s%s answers %d, which no weir does that detects and knows this question: upgrade it, or name another with --at", terminal.Safe(base), owner, code)
	}
	text := said.Problem
	if said.Owner != "" {
		text += ": " + said.Owner
		if said.Address != "" {
			text += " at " + said.Address
		}
	}
	err := fmt.Errorf("%s%s: %s", terminal.Safe(base), owner, terminal.Cell(text))
	switch code {
	case http.StatusMisdirectedRequest, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return busy{err}
	}
	return err
}

// shown is the answer with what the rule does.
type shown struct {
	*service.Counted
	Mode rules.Mode `json:"mode"`
}

func (p *Program) sayCounted(rule *rulestore.Rule, c *service.Counted) error {
	if p.Format == "json" {
		return p.WriteJSON(shown{c, rule.Mode})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rule %s, %s: %s, in keyed partition %d\n", c.Rule, rule.Mode, whom(c.Subject), c.Partition)
	if c.AsOf == 0 {
		b.WriteString("the partition has seen no request yet\n")
	} else {
		fmt.Fprintf(&b, "as of %s, the newest request seen; none from before %s is waited for\n", terminal.Time(c.AsOf), watermark(c.Watermark))
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
	return []string{w.Of, strconv.Itoa(w.Version), count, limit, duration.Format(time.Duration(w.WindowMS) * time.Millisecond), terminal.Time(w.From), terminal.Time(w.To), since, hit}
}
