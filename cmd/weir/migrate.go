package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
)

func (a *app) migrateCommand() *cobra.Command {
	var o migrateOptions
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Make or update topics and schema; safe to run again",
		Long: `Make what an installation needs, or bring it to the form of this build, and say what was done:
the schema in PostgreSQL with the deployment secret, the topics in Kafka, the first routing version, and the first commit
of each partition of requests, without which nothing is routed. identity and events of the configuration take effect here.

What the processes of an installation write for each other keeps its form until --record-format raises it: while processes
of two builds run, the older ones must be able to read all of it. So an upgrade is weir migrate with the new build, then
one process after the other, then weir migrate --record-format.

Run it before the first start, after an upgrade, after a change of identity or events, and after the requests topic was
deleted and made anew: then the stream gets a new generation, so that old offsets are not taken for new ones.`,
		Example: "  weir migrate\n  weir migrate --config /etc/weir/weir.yaml --output json\n  weir migrate --record-format 4",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			return a.migrate(cmd.Context(), conf, o)
		}),
	}
	c.Flags().BoolVar(&o.recreated, "recreated", false,
		"the requests topic was deleted and made anew, although nothing shows it: begin a new generation at its start")
	c.Flags().IntVar(&o.recordFormat, "record-format", 0,
		fmt.Sprintf("record format of the stream from now on, %s; all running processes must know it (default: as it is; the newest for a new stream)",
			detectors.KnownRecordFormats()))
	return c
}

// migrateOptions are what the caller decides beside the configuration.
type migrateOptions struct {
	recreated    bool // the requests topic was made anew
	recordFormat int  // of the stream from now on; 0 keeps what is
}

// migration is one run of weir migrate.
//
//	schema, secret ──▶ topics ──▶ stream, generation ──▶ routing version ──▶ first commits
//
// Each step looks at what is there and does what is missing, so a run that broke off is finished by the next one. The
// commits come last: a router that finds them may start.
type migration struct {
	conf  *config.Config
	opt   migrateOptions
	store *history.Store
	kafka *kafka.Client
	names ingest.TopicNames
	by    string
	did   []string

	topics  topicState
	stream  history.Stream
	isNew   bool                         // this run made the stream
	renewed bool                         // this run began a new generation
	commits map[int]*ingest.Announcement // where routing stands; nil: a commit that is not weir's
	version int64                        // newest routing version
}

func (a *app) migrate(ctx context.Context, c *config.Config, o migrateOptions) error {
	did, err := migrateInstallation(ctx, c, a.quietLogger(c), whoami(a.environ), o)
	if err != nil && len(did) == 0 {
		return err
	}
	if a.Format == "json" {
		err = errors.Join(err, a.WriteJSON(map[string]any{"done": append([]string{}, did...)}))
		return err
	}
	for _, line := range did {
		fmt.Fprintln(a.Stdout, line)
	}
	if err == nil {
		_, err = io.WriteString(a.Stdout, "ready: start weir run\n")
	}
	return err
}

// migrateInstallation runs a migration and gives a line for each thing that it did, also where it failed after some.
func migrateInstallation(ctx context.Context, c *config.Config, log *slog.Logger, by string, o migrateOptions) ([]string, error) {
	if err := ingest.CheckMetadata(c.Kafka.Partitions.Keyed); err != nil {
		return nil, &usage.Error{Err: fmt.Errorf("kafka.partitions.keyed: %w", err)}
	}
	if o.recordFormat != 0 && !detectors.KnowsRecordFormat(o.recordFormat) {
		return nil, usage.Errorf("--record-format: got %d, allowed %s", o.recordFormat, detectors.KnownRecordFormats())
	}
	s, err := service.OpenHistory(ctx, c, log)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	k, err := service.OpenKafka(c, log, nil)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	m := &migration{conf: c, opt: o, store: s, kafka: k, names: ingest.Live.Topics(c.Namespace), by: by}
	if err := service.WaitKafka(ctx, k, service.AnswerTimeout); err != nil {
		return nil, err
	}
	err = m.run(ctx)
	return m.did, err
}

func (m *migration) say(format string, args ...any) {
	m.did = append(m.did, fmt.Sprintf(format, args...))
}

func (m *migration) steps() []func(context.Context) error {
	return []func(context.Context) error{
		m.makeSchema, m.makeTopics, m.makeStream, m.readCommits, m.readLog, m.renew, m.publish, m.writeFirstCommits,
	}
}

func (m *migration) run(ctx context.Context) error {
	for _, step := range m.steps() {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// makeSchema applies the migrations, waiting a little for a server that is just starting.
func (m *migration) makeSchema(ctx context.Context) error {
	patient, cancel := context.WithTimeout(ctx, service.AnswerTimeout)
	defer cancel()
	var refused error
	before := m.store.Ping(ctx) == nil
	err := service.Retry(patient, service.NewLogger(config.Log{Level: "error"}, io.Discard), "", func(ctx context.Context) error {
		err := m.store.Migrate(ctx)
		var away *history.UnreachableError
		if err != nil && !errors.As(err, &away) {
			refused = err // not a matter of waiting
			return nil
		}
		return err
	})
	if err := errors.Join(err, refused); err != nil {
		return err
	}
	if !before {
		m.say("schema %s in PostgreSQL is up to date now", m.store.Schema())
	} else {
		m.say("schema %s in PostgreSQL: nothing to do", m.store.Schema())
	}
	return nil
}

// topicState is what migrate knows about the topics.
type topicState struct {
	requests int // partitions
	hits     int
	made     bool                  // requests was made by this run
	log      map[int]ingest.Bounds // of requests
	unused   bool                  // keyed has never had a record
	// keyedHolds says that keyed holds records now.
	keyedHolds bool
}

func (m *migration) makeTopics(ctx context.Context) error {
	reports, err := m.kafka.EnsureTopics(ctx, m.conf.TopicSettings().Topics(m.names))
	t := &m.topics
	for _, r := range reports {
		m.sayTopic(r)
		switch r.Name {
		case m.names.Requests:
			t.requests, t.made = r.Partitions, r.Created
		case m.names.Hits:
			t.hits = r.Partitions
		}
	}
	if err != nil {
		return err
	}
	keyed, err := m.kafka.Log(m.names.Keyed).Bounds(ctx, upTo(m.conf.Kafka.Partitions.Keyed))
	t.unused = true
	for _, b := range keyed {
		t.unused = t.unused && b.End == 0
		t.keyedHolds = t.keyedHolds || b.End > b.Start
	}
	return err
}

// readLog reads where the requests topic begins and ends. It comes after the commits: routers may be at work, and a log that
// was read before would seem to end before what they have routed since.
func (m *migration) readLog(ctx context.Context) (err error) {
	m.topics.log, err = m.kafka.Log(m.names.Requests).Bounds(ctx, upTo(m.topics.requests))
	return err
}

func (m *migration) sayTopic(r kafka.TopicReport) {
	switch {
	case r.Created:
		m.say("topic %s made with %s", r.Name, terminal.Plural(r.Partitions, "partition"))
	case len(r.Mended) > 0:
		m.say("topic %s corrected: %s", r.Name, strings.Join(r.Mended, "; "))
	default:
		m.say("topic %s: nothing to do", r.Name)
	}
	if r.Note != "" {
		m.say("topic %s: %s", r.Name, r.Note)
	}
}

// upTo lists 0 to n-1.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
