package asking

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/letters"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/plural"
)

// Letters is who reads dead letters: the brokers of an installation (ReadLetters), or a server.
type Letters interface {
	Letters(ctx context.Context, f letters.Filter, p explore.Page) (letters.Letters, error)
}

var _ Letters = (*letters.Reader)(nil)

// ReadLetters has work read the dead letters in the brokers of an installation. No other store is asked.
func (p *Program) ReadLetters(ctx context.Context, c *config.Config, work func(context.Context, Letters) error) error {
	logger := service.NewQuietLogger(config.Log{Level: "warn", Format: c.Log.Format}, p.Stderr)
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

// DeadLetters are the subcommands of weir deadletters. The list is weir history dead by its other name.
func DeadLetters(p *Program) []*cobra.Command {
	return []*cobra.Command{p.dead("list", "weir deadletters list"), p.letter()}
}

// dead is the list of dead letters, under a name and with the command line that calls it.
func (p *Program) dead(name, call string) *cobra.Command {
	var f lookFlags
	var which letters.Filter
	c := &cobra.Command{
		Use:   name,
		Short: "List dead letters: what a stage could not use, and why",
		Long: `List the dead letters, the newest first: events that could not be read, and records that PostgreSQL refused, with the stage, the reason, where
each lay, and the beginning of it; weir deadletters show has one in full. They are read from Kafka, which keeps them for kafka.retention.dead. --reason and --stage read all letters
since --since; without --since, all that there are. The topics of a replay, that of its dead letters among them, go when it ends: its summary counts them.
A server leaves out what a letter holds, and the detail of its reason, for roles that are shown pseudonyms.`,
		Example: "  " + call + " --since 24h\n  " + call + " --stage route --reason malformed --limit 10",
		Args:    cobra.NoArgs,
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

// letter shows one dead letter. It is named by the record that it is about, which is what the list shows.
func (p *Program) letter() *cobra.Command {
	return &cobra.Command{
		Use:   "show TOPIC PARTITION OFFSET",
		Short: "Show one dead letter: what it was, where it lay, and why it could not be used",
		Long: `Show what is kept of one record that a stage could not use, the stage, and the reason. TOPIC, PARTITION and OFFSET say where the record lay, as
weir deadletters list does; for a line of a file they are the file, 0 and the number of the line. Letters are looked through from the newest on. A
record that several stages refused has several letters. A server leaves out what a letter holds, and the detail of its reason, for roles that are
shown pseudonyms.`,
		Example: "  weir deadletters show weir.requests 3 18944\n  weir deadletters show access.log 0 17 --output json",
		Args:    cobra.ExactArgs(3),
		RunE: p.Does([]string{"table", "json"}, func(cmd *cobra.Command, args []string) error {
			partition, err := strconv.Atoi(args[1])
			if err != nil || partition < 0 {
				return usage.Errorf("PARTITION: got %q; allowed: a whole number, 0 or more", args[1])
			}
			offset, err := strconv.ParseInt(args[2], 10, 64)
			if err != nil || offset < 0 {
				return usage.Errorf("OFFSET: got %q; allowed: a whole number, 0 or more", args[2])
			}
			return p.AskLetters(cmd, func(ctx context.Context, from Letters) error {
				all, _, err := pages(0, func(page explore.Page) ([]letters.Letter, explore.Total, string, error) {
					part, err := from.Letters(ctx, letters.Filter{}, page)
					about := slices.DeleteFunc(part.Letters, func(l letters.Letter) bool {
						return l.Topic != args[0] || l.Partition != partition || l.Offset != offset
					})
					return about, part.Total, part.Next, err
				})
				if err != nil {
					return worded(err, history.Live)
				}
				if len(all) == 0 {
					return fmt.Errorf("no dead letter is about %s %d %d; weir deadletters list shows all that are kept", args[0], partition, offset)
				}
				if p.Format == "json" {
					return p.WriteJSON(all)
				}
				return p.showLetters(all)
			})
		}),
	}
}

func (p *Program) showLetters(all []letters.Letter) error {
	w := tabwriter.NewWriter(p.Stdout, 0, 8, 2, ' ', 0)
	for i, l := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		kept := plural.Of(l.Size, "byte")
		if len(l.Value) < l.Size {
			kept += fmt.Sprintf(", of which the letter has %d", len(l.Value))
		}
		for _, line := range [][2]string{
			{"AT", terminal.Time(l.At)}, {"STAGE", l.Stage}, {"REASON", l.Reason}, {"DETAIL", l.Detail}, {"TOPIC", l.Topic},
			{"PARTITION", strconv.Itoa(l.Partition)}, {"OFFSET", strconv.FormatInt(l.Offset, 10)}, {"SIZE", kept}, {"VALUE", l.Text},
		} {
			fmt.Fprintf(w, "%s\t%s\n", line[0], terminal.Shown(line[1]))
		}
	}
	return w.Flush()
}

func letterRow(l letters.Letter) []string {
	return []string{
		terminal.Time(l.At), l.Stage, l.Reason, l.Topic, strconv.Itoa(l.Partition), strconv.FormatInt(l.Offset, 10), strconv.Itoa(l.Size),
		terminal.Brief(l.Detail), terminal.Brief(l.Text),
	}
}
