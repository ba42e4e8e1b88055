package asking

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/console/letters"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/ingest"
)

// Letters is who reads dead letters: the brokers of an installation (ReadLetters), or a server.
type Letters interface {
	Letters(ctx context.Context, f letters.Filter, p explore.Page) (letters.Letters, error)
}

var _ Letters = (*letters.Reader)(nil)

// ReadLetters has work read the dead letters in the brokers of an installation. No other store is asked.
func (p *Program) ReadLetters(ctx context.Context, c *config.Config, work func(context.Context, Letters) error) error {
	logger := service.NewLogger(config.Log{Level: "warn", Format: c.Log.Format}, p.Stderr)
	k, err := service.OpenKafka(c, logger, nil)
	if err != nil {
		return err
	}
	defer func() { _ = k.Close() }() // nothing is under way any more
	if err := service.WaitKafka(ctx, k, service.AnswerTimeout); err != nil {
		return err
	}
	topic := ingest.Live.Topics(c.Namespace).Dead
	return work(ctx, letters.New(k, k.Log(topic), topic))
}

func (p *Program) dead() *cobra.Command {
	var f lookFlags
	var which letters.Filter
	c := &cobra.Command{
		Use:   "dead",
		Short: "List dead letters: what a stage could not use, and why",
		Long: `List the dead letters, the newest first: events that could not be read, and records that PostgreSQL refused, with the stage, the reason, where
each lay, and the beginning of it. They are read from Kafka, which keeps them for kafka.retention.dead. --reason and --stage read all letters
since --since; without --since, all that there are. The topics of a replay, that of its dead letters among them, go when it ends: its summary counts them.
A server leaves out what a letter holds, and the detail of its reason, for roles that are shown pseudonyms.`,
		Example: `  weir history dead --since 24h
  weir history dead --stage route --reason malformed --limit 10`,
		Args: cobra.NoArgs,
		RunE: p.Does(lists(), func(cmd *cobra.Command, _ []string) error {
			l, err := f.parse(service.Now().Std())
			if err != nil {
				return err
			}
			which.Since = l.since
			return p.AskLetters(cmd, func(ctx context.Context, from Letters) error {
				all, total, err := pages(f.limit, func(page explore.Page) ([]letters.Letter, explore.Total, string, error) {
					part, err := from.Letters(ctx, which, page)
					return part.Letters, part.Total, part.Next, err
				})
				if err != nil {
					return worded(err, l.stream)
				}
				if err := terminal.List(p.Output, all, []string{"AT", "STAGE", "REASON", "TOPIC", "PARTITION", "OFFSET", "SIZE", "DETAIL", "VALUE"}, letterRow); err != nil {
					return err
				}
				p.cut("newest", len(all), f.limit, total)
				return nil
			})
		}),
	}
	flags := c.Flags()
	flags.StringVar(&f.since, "since", "", "taken by Kafka not before: "+explore.TimesAllowed)
	flags.StringVar(&which.Stage, "stage", "", "only of this stage: ingest, route, record, enforce")
	flags.StringVar(&which.Reason, "reason", "", "only of this reason: malformed, oversized, refused, …")
	flags.IntVar(&f.limit, "limit", explore.DefaultLimit, "at most so many, the newest; 0 for all")
	return c
}

func letterRow(l letters.Letter) []string {
	return []string{
		terminal.Time(l.At), l.Stage, l.Reason, l.Topic, strconv.Itoa(l.Partition), strconv.FormatInt(l.Offset, 10), strconv.Itoa(l.Size),
		terminal.Brief(l.Detail), terminal.Brief(l.Text),
	}
}
