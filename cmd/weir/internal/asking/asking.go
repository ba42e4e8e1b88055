// Package asking has the commands that ask history: weir history and weir why. What they ask, package explore answers; here it is read from
// the command line and written for people, as JSON and as CSV.
package asking

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/erasure"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Program is what the commands take from the program that has them.
type Program struct {
	*terminal.Output
	// Does wraps a command's work, which may write the named forms of output: from there on a failure is the work's.
	Does func(formats []string, work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error
	// Ask opens who answers: the server that was named, else the stores of the configured installation.
	Ask func(cmd *cobra.Command, work func(context.Context, Answers) error) error
	// AskLetters opens who reads dead letters: the server that was named, else the brokers of the configured installation.
	AskLetters func(cmd *cobra.Command, work func(context.Context, Letters) error) error
	// Release is the command that releases a block, to be pasted.
	Release func(rule string, source traffic.Subject) string
	// Acts gives a command the flags --by and --reason, which is required, and the function that reads them.
	Acts func(*cobra.Command) func() (by, reason string)
	// Erase takes a person out of history.
	Erase func(cmd *cobra.Command, e Erasure) (erasure.Done, error)
}

// Installation is what is asked.
type Installation struct {
	*history.Store
	Config *config.Config
	Log    *slog.Logger
}

// History are the subcommands of weir history.
func History(p *Program) []*cobra.Command {
	return []*cobra.Command{
		p.hits(), p.sources(), p.top(), p.timeline(), p.show(), p.late(), p.uncounted(), p.refused(), p.decisions(),
		p.audit(), p.dead("dead", "weir history dead"), p.replays(), p.erase(),
	}
}

// lists are the forms of output of a list.
func lists() []string { return []string{"table", "json", "csv"} }

// lookFlags select rows of history.
type lookFlags struct {
	since, until, rule, source, replay string
	limit                              int
}

func (f *lookFlags) register(c *cobra.Command, withSource bool) {
	flags := c.Flags()
	flags.StringVar(&f.since, "since", "", "not before: "+explore.TimesAllowed)
	flags.StringVar(&f.until, "until", "", "before: likewise")
	flags.StringVar(&f.rule, "rule", "", "only this rule")
	flags.StringVar(&f.replay, "replay", "", "of this replay instead of the live stream")
	flags.IntVar(&f.limit, "limit", explore.DefaultLimit, "at most so many, the newest; 0 for all")
	if withSource {
		flags.StringVar(&f.source, "source", "", "only this source: 192.0.2.1, 192.0.2.0/24, user=alice, a value of any field, or a canonical subject")
	}
}

// looked is lookFlags, understood.
type looked struct {
	stream, rule, source string
	since, until         traffic.Time
}

func (f *lookFlags) parse(now time.Time) (looked, error) {
	l := looked{stream: history.Live, rule: f.rule, source: f.source}
	if f.limit < 0 {
		return l, usage.Errorf("--limit: got %d; allowed: 0 and more", f.limit)
	}
	if f.replay != "" {
		l.stream = string(ingest.Replay(f.replay))
		if err := ingest.Stream(l.stream).Check(); err != nil {
			return l, usage.Errorf("--replay: %w", err)
		}
	}
	var err error
	if l.since, err = Time("since", f.since, now); err != nil {
		return l, err
	}
	if l.until, err = Time("until", f.until, now); err != nil {
		return l, err
	}
	if l.since != 0 && l.until != 0 && l.since >= l.until {
		return l, usage.Errorf("--until: got %q; allowed: a time after --since, %s", f.until, l.since)
	}
	if f.source != "" {
		if _, err := history.ParseSource(f.source); err != nil {
			return l, usage.Errorf("--source: %w", err)
		}
	}
	return l, nil
}

// Time reads a flag that is a time, see explore.ParseTime; 0 for none. A since that lies ahead is refused.
func Time(flag, text string, now time.Time) (traffic.Time, error) {
	t, err := explore.ParseTime("--"+flag, text, now)
	if err != nil {
		return 0, &usage.Error{Err: err}
	}
	if flag == "since" && t > traffic.At(now) {
		return 0, usage.Errorf("--%s: got %s, which lies ahead of now, %s; allowed: a time before", flag, text, now.UTC().Format(time.RFC3339))
	}
	return t, nil
}

// filterFlags select episodes beyond lookFlags.
type filterFlags struct {
	lookFlags
	kind, owner, mode, field, state string
}

func (f *filterFlags) register(c *cobra.Command) {
	f.lookFlags.register(c, true)
	flags := c.Flags()
	flags.StringVar(&f.kind, "kind", string(detectors.KindHit), "episodes of this kind: hit, near, candidate")
	flags.StringVar(&f.owner, "owner", "", "only of rules of this owner")
	flags.StringVar(&f.mode, "mode", "", "only of rules that are in this mode now: off, shadow, canary, block")
	flags.StringVar(&f.field, "field", "", "only sources that have this field: ip, device, user, api_key, session")
	flags.StringVar(&f.state, "state", "", "only episodes that are running, or closed")
}

// check refuses values that are none before any server is asked.
func (f *filterFlags) check() error {
	if err := usage.OneOf("kind", f.kind, explore.Kinds()...); err != nil {
		return err
	}
	if err := usage.OneOf("field", f.field, append(explore.Fields(), "")...); err != nil {
		return err
	}
	return usage.OneOf("state", f.state, append(explore.States(), "")...)
}

func (f *filterFlags) filter(l *looked) explore.Filter {
	return explore.Filter{
		Stream: l.stream, Kind: detectors.Kind(f.kind), Rule: l.rule, Owner: f.owner, Mode: rules.Mode(f.mode), Source: l.source, Field: f.field,
		State: history.State(f.state), Since: l.since, Until: l.until,
	}
}

// pages reads up to limit rows, 0 for all, page by page.
func pages[T any](limit int, read func(explore.Page) (rows []T, total explore.Total, next string, err error)) ([]T, explore.Total, error) {
	all, p := []T{}, explore.Page{}
	for first := (explore.Total{}); ; {
		p.Limit = explore.MostLimit
		if limit > 0 {
			p.Limit = min(limit-len(all), explore.MostLimit)
		}
		rows, total, next, err := read(p)
		if err != nil {
			return nil, first, err
		}
		if p.Cursor == "" {
			first = total
		}
		all = append(all, rows...)
		if p.Cursor = next; next == "" || limit > 0 && len(all) >= limit {
			return all, first, nil
		}
	}
}

// cut says how many rows were left out.
func (p *Program) cut(order string, shown int, limit int, total explore.Total) {
	if limit == 0 {
		return
	}
	if total.More { // the number at which counting stopped
		p.Cut(order, shown, total.N+1, total.N+1)
		return
	}
	p.Cut(order, shown, total.N, history.CountCap)
}

// leftOut says what history does not have of what was asked for.
func (p *Program) leftOut(f *explore.Filter, left explore.LeftOut) {
	text := left.String()
	if f.Source != "" || f.Field != "" {
		text = left.OfAnyone()
	}
	if text != "" {
		fmt.Fprintf(p.Stderr, "weir: %s\n", text)
	}
}

func length(ms int64) string { return duration.Format(time.Duration(ms) * time.Millisecond) }
