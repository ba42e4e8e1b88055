package asking

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// Letter is a dead letter with its place in the topic of dead letters.
type Letter struct {
	At traffic.Time `json:"at"` // when Kafka took it
	traffic.DeadLetter
	Text string `json:"text"` // the beginning of the value, as far as it is text
}

func (p *Program) dead() *cobra.Command {
	var f deadFlags
	c := &cobra.Command{
		Use:   "dead",
		Short: "List dead letters: what a stage could not use, and why",
		Long: `List the dead letters, the newest first: events that could not be read, and records that PostgreSQL refused, with the stage, the reason, where
each lay, and the beginning of it. They are read from Kafka, which keeps them for kafka.retention.dead. --reason and --stage read all letters
since --since; without --since, all that there are. The topics of a replay, that of its dead letters among them, go when it ends: its summary counts them.`,
		Example: `  weir history dead --since 24h
  weir history dead --stage route --reason malformed --limit 10`,
		Args: cobra.NoArgs,
		RunE: p.Does(lists(), func(cmd *cobra.Command, _ []string) error {
			q, err := f.parse(time.Now())
			if err != nil {
				return err
			}
			conf, err := p.Config(cmd)
			if err != nil {
				return err
			}
			found, err := readDead(cmd.Context(), conf, p, q)
			if err != nil {
				return err
			}
			if err := found.known(f.stage, f.reason); err != nil {
				return err
			}
			if err := terminal.List(p.Output, found.letters, []string{"AT", "STAGE", "REASON", "TOPIC", "PARTITION", "OFFSET", "SIZE", "DETAIL", "VALUE"}, letterRow); err != nil {
				return err
			}
			p.cut("newest", len(found.letters), f.limit, explore.Total{N: found.matching})
			return nil
		}),
	}
	flags := c.Flags()
	flags.StringVar(&f.since, "since", "", "taken by Kafka not before: "+explore.TimesAllowed)
	flags.StringVar(&f.stage, "stage", "", "only of this stage: ingest, route, record, enforce")
	flags.StringVar(&f.reason, "reason", "", "only of this reason: malformed, oversized, refused, …")
	flags.IntVar(&f.limit, "limit", explore.DefaultLimit, "at most so many, the newest; 0 for all")
	return c
}

type deadFlags struct {
	since, stage, reason string
	limit                int
}

// deadQuery is deadFlags, understood.
type deadQuery struct {
	deadFlags
	from traffic.Time
}

func (f *deadFlags) parse(now time.Time) (deadQuery, error) {
	l, err := (&lookFlags{since: f.since, limit: f.limit}).parse(now)
	return deadQuery{deadFlags: *f, from: l.since}, err
}

func (q *deadQuery) filtered() bool { return q.stage != "" || q.reason != "" }

// deadFound are the newest letters that match, and what there is.
type deadFound struct {
	letters  []Letter
	matching int64
	stages   []string // of all letters that were read
	reasons  []string
}

// known refuses a stage or a reason that no letter has, while there are letters.
func (d *deadFound) known(stage, reason string) error {
	for _, c := range []struct {
		flag, got string
		has       []string
	}{{"stage", stage, d.stages}, {"reason", reason, d.reasons}} {
		if c.got == "" || len(c.has) == 0 || slices.Contains(c.has, c.got) {
			continue
		}
		slices.Sort(c.has)
		return usage.OneOf(c.flag, c.got, c.has...)
	}
	return nil
}

// readDead reads the topic of dead letters. Where nothing but the newest are wanted it begins as many before the end.
func readDead(ctx context.Context, c *config.Config, p *Program, q deadQuery) (*deadFound, error) {
	logger := service.NewLogger(config.Log{Level: "warn", Format: c.Log.Format}, p.Stderr)
	k, err := service.OpenKafka(c, logger, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = k.Close() }() // nothing is under way any more
	if err := service.WaitKafka(ctx, k, service.AnswerTimeout); err != nil {
		return nil, err
	}
	topic := ingest.Live.Topics(c.Namespace).Dead
	n, err := k.Partitions(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	log, all := k.Log(topic), ingest.AllPartitions(n)
	bounds, err := log.Bounds(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	since := map[int]int64{}
	if q.from != 0 {
		if since, err = log.OffsetsAt(ctx, all, q.from); err != nil {
			return nil, fmt.Errorf("dead letters: %w", err)
		}
	}
	r := deadReader{q: q, log: log, next: map[int]int64{}, end: map[int]int64{}}
	for _, part := range all {
		r.begin(part, bounds[part], since)
	}
	return r.read(ctx)
}

// deadReader reads partitions of the topic up to where they ended when it began.
type deadReader struct {
	q         deadQuery
	log       ingest.Log
	next, end map[int]int64 // of partitions that are not read to the end
	found     deadFound
}

func (r *deadReader) begin(part int, b ingest.Bounds, since map[int]int64) {
	start := b.Start
	if r.q.from != 0 {
		if start = since[part]; start == ingest.NoOffset {
			return
		}
	}
	if !r.q.filtered() {
		r.found.matching += b.End - start
		if r.q.limit > 0 {
			start = max(start, b.End-int64(r.q.limit))
		}
	}
	if start < b.End {
		r.next[part], r.end[part] = start, b.End
	}
}

// deadPatience is how long the reading waits for a partition whose leader is away.
const deadPatience = 10 * time.Second

func (r *deadReader) read(ctx context.Context) (*deadFound, error) {
	for moved := time.Now(); len(r.next) > 0; {
		var positions []ingest.Position
		for part, offset := range r.next {
			positions = append(positions, ingest.Position{Partition: part, Offset: offset})
		}
		fetched, err := r.log.Fetch(ctx, positions, ingest.DefaultFetchWait)
		if err != nil {
			return nil, fmt.Errorf("dead letters: %w", err)
		}
		for i := range fetched {
			if r.take(&fetched[i]) {
				moved = time.Now()
			}
		}
		if time.Since(moved) > deadPatience {
			return nil, fmt.Errorf("dead letters: partition of %d left gave no answer for %v", len(r.next), deadPatience)
		}
	}
	r.shorten()
	slices.Reverse(r.found.letters)
	return &r.found, nil
}

// take takes what one partition answered, and reports whether it went on.
func (r *deadReader) take(f *ingest.Fetched) bool {
	if f.Err != nil || f.Next <= r.next[f.Partition] && len(f.Messages) == 0 {
		return false
	}
	for i := range f.Messages {
		r.letter(&f.Messages[i])
	}
	if r.next[f.Partition] = f.Next; f.Next >= r.end[f.Partition] {
		delete(r.next, f.Partition)
	}
	const room = 10_000 // of which the newest are kept
	if r.q.limit > 0 && len(r.found.letters) > r.q.limit+room {
		r.shorten()
	}
	return true
}

func (r *deadReader) letter(m *traffic.Message) {
	l := Letter{At: m.Appended}
	if err := json.Unmarshal(m.Value, &l.DeadLetter); err != nil {
		l.DeadLetter = traffic.DeadLetter{Stage: "unknown", Reason: "unreadable", Detail: err.Error(), Value: m.Value, Size: len(m.Value)}
	}
	l.Text = traffic.Printable(string(l.Value))
	note := func(names *[]string, name string) {
		if !slices.Contains(*names, name) {
			*names = append(*names, name)
		}
	}
	note(&r.found.stages, l.Stage)
	note(&r.found.reasons, l.Reason)
	if r.q.stage != "" && l.Stage != r.q.stage || r.q.reason != "" && l.Reason != r.q.reason {
		return
	}
	if r.q.filtered() {
		r.found.matching++
	}
	r.found.letters = append(r.found.letters, l)
}

// shorten keeps the newest letters, in order of time.
func (r *deadReader) shorten() {
	letters := r.found.letters
	slices.SortStableFunc(letters, func(a, b Letter) int { return cmp.Compare(a.At, b.At) })
	if r.q.limit > 0 && len(letters) > r.q.limit {
		letters = slices.Delete(letters, 0, len(letters)-r.q.limit)
	}
	r.found.letters = letters
}

func letterRow(l Letter) []string {
	return []string{
		terminal.Time(l.At), l.Stage, l.Reason, l.Topic, strconv.Itoa(l.Partition), strconv.FormatInt(l.Offset, 10), strconv.Itoa(l.Size),
		terminal.Brief(l.Detail), terminal.Brief(l.Text),
	}
}
