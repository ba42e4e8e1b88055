package asking

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/why"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/streams"
)

// Questions are what is asked of history.
type Questions interface {
	Hits(ctx context.Context, f explore.Filter, p explore.Page) (explore.Hits, error)
	Groups(ctx context.Context, f explore.Filter, by explore.Group, order explore.Order, p explore.Page) (explore.Groups, error)
	Timeline(ctx context.Context, source string, f explore.Filter, p explore.Page) (explore.Timeline, error)
	Pivots(ctx context.Context, source string, f explore.Filter) (explore.Pivots, error)
	Story(ctx context.Context, id string) (*explore.Story, error)
	Decisions(ctx context.Context, f explore.DecisionFilter, p explore.Page) (explore.Decisions, error)
	Audit(ctx context.Context, f explore.AuditFilter, p explore.Page) (explore.Acts, error)
	Streams(ctx context.Context) ([]streams.Stream, error)
	Late(ctx context.Context, f explore.UncountedFilter, p explore.Page) (explore.LateSums, error)
	Uncounted(ctx context.Context, f explore.UncountedFilter, p explore.Page) (explore.UncountedSums, error)
	Refused(ctx context.Context, f explore.UncountedFilter, p explore.Page) (explore.RefusedSums, error)
}

var _ Questions = (*explore.Explorer)(nil)

// Answers is who answers: the stores of an installation (Local), or a server. Both give the same answers and the same errors.
type Answers interface {
	Questions
	Why(ctx context.Context, q why.Question) (*why.Answer, error)
}

// Local answers from the stores of an installation.
func Local(in *Installation) Answers { return &local{explore.New(in.Store), in} }

type local struct {
	*explore.Explorer
	in *Installation
}

// Why asks Redis, too, where it answers.
func (l *local) Why(ctx context.Context, q why.Question) (*why.Answer, error) {
	r, err := service.OpenRedis(l.in.Config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	t := why.Teller{History: l.Explorer, Blocks: r, Away: service.WaitRedis(ctx, r, service.AnswerTimeout, l.in.Log), Clock: service.Now}
	return t.Why(ctx, q)
}

// ask reads the flags and has work answer.
func (p *Program) ask(cmd *cobra.Command, f *lookFlags, work func(context.Context, Answers, looked) error) error {
	l, err := f.parse(service.Now().Std())
	if err != nil {
		return err
	}
	return p.Ask(cmd, func(ctx context.Context, from Answers) error { return worded(work(ctx, from, l), l.stream) })
}

// worded makes a question that cannot be meant a mistake of the command line, and says of a name that nothing has what lists them.
func worded(err error, stream string) error {
	if bad := (*explore.BadFilterError)(nil); errors.As(err, &bad) {
		return usage.Errorf("--%w", err)
	}
	unknown := (*explore.UnknownError)(nil)
	switch {
	case !errors.As(err, &unknown):
		return err
	case unknown.Thing == "replay":
		return usage.Unknown(unknown.Thing, unknown.Got, unknown.Known, "weir history replays shows them")
	case unknown.Thing == "rule" && stream == history.Live:
		return usage.Unknown(unknown.Thing, unknown.Got, unknown.Known, "weir rules list shows the rules")
	case unknown.Thing == "rule":
		return usage.Unknown(unknown.Thing, unknown.Got, unknown.Known, "weir history replays shows what replays there are")
	}
	return err
}
