// Package stream has the life of a stream: how the live one is made, corrected and begun anew (migrate), and how a replay is made,
// fed from files, ended, summed up and cleaned away.
package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
)

// MigrateOptions are what the caller decides beside the configuration.
type MigrateOptions struct {
	Recreated    bool // the requests topic was made anew
	CountAgain   bool // also where it reaches as far as it was routed, so that nothing shows it
	RecordFormat int  // of the stream from now on; 0 keeps what is
	TakeRedis    bool // Redis is to be this installation's, whosever it was
}

// Migration is one run of Migrate.
//
//	schema, secret ──▶ topics ──▶ stream, generation ──▶ numbers ──▶ routing version ──▶ first commits
//
// Each step looks at what is there and does what is missing, so a run that broke off is finished by the next one. The
// commits come last: a router that finds them may start.
type Migration struct {
	conf     *config.Config
	opt      MigrateOptions
	store    *history.Store
	kafka    *kafka.Client
	names    ingest.TopicNames
	by       string
	did      []string
	patience func(context.Context) (context.Context, context.CancelFunc) // bounds the wait for a server that is just starting

	topics  topicState
	stream  streams.Stream
	isNew   bool                         // this run made the stream
	renewed bool                         // this run began a new generation
	commits map[int]*ingest.Announcement // where routing stands; nil: a commit that is not weir's
	version int64                        // newest routing version
}

// Migrate runs a migration and gives a line for each thing that it did, also where it failed after some.
func Migrate(ctx context.Context, c *config.Config, log *slog.Logger, by string, o MigrateOptions) ([]string, error) {
	if err := ingest.CheckMetadata(c.Kafka.Partitions.Keyed); err != nil {
		return nil, &usage.Error{Err: fmt.Errorf("kafka.partitions.keyed: %w", err)}
	}
	if o.RecordFormat != 0 && !detectors.KnowsRecordFormat(o.RecordFormat) {
		return nil, usage.Errorf("--record-format: got %d, allowed %s", o.RecordFormat, detectors.KnownRecordFormats())
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
	if err := service.WaitKafka(ctx, k, service.AnswerTimeout); err != nil {
		return nil, err
	}
	m := NewMigration(c, s, k, by, o)
	for _, step := range m.Steps() {
		if err := step(ctx); err != nil {
			return m.Done(), err
		}
	}
	return m.Done(), nil
}

// NewMigration prepares the steps of a migration, in the name of by.
func NewMigration(c *config.Config, s *history.Store, k *kafka.Client, by string, o MigrateOptions) *Migration {
	return &Migration{conf: c, opt: o, store: s, kafka: k, names: ingest.Live.Topics(c.Namespace), by: by, patience: patience}
}

// patience is a question's wait for its server.
func patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, service.AnswerTimeout)
}

// Done has a line for each thing that was done, or needed nothing.
func (m *Migration) Done() []string { return m.did }

func (m *Migration) say(format string, args ...any) {
	m.did = append(m.did, fmt.Sprintf(format, args...))
}

// Steps are to be taken in their order.
func (m *Migration) Steps() []func(context.Context) error {
	return []func(context.Context) error{
		m.makeSchema, m.makeTopics, m.makeStream, m.readCommits, m.readLog, m.renew, m.overtake, m.publish,
		m.writeFirstCommits,
	}
}

// makeSchema applies the migrations, waiting a little for a server that is just starting.
func (m *Migration) makeSchema(ctx context.Context) error {
	patient, cancel := m.patience(ctx)
	defer cancel()
	before := false
	err := retry.Do(patient, slog.New(slog.DiscardHandler), "", func(ctx context.Context) error {
		err := m.store.Ping(ctx)
		before = err == nil
		if away := (*postgres.UnreachableError)(nil); !errors.As(err, &away) {
			return nil // it answers: what the schema lacks the steps bring, and what else is wrong they say
		}
		return err
	})
	if err != nil {
		return err
	}
	// A step takes as long as its tables are large. Nothing ends it but who waits for it.
	if err := m.store.Migrate(ctx); err != nil {
		return err
	}
	days := retention.NewDays(m.store, time.Duration(m.conf.History.Retention), service.Now)
	if err := days.Ahead(ctx); err != nil {
		return err
	}
	news := " is up to date now"
	if before {
		news = ": nothing to do"
	}
	m.say("schema %s in PostgreSQL%s", m.store.Schema(), news)
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

func (m *Migration) makeTopics(ctx context.Context) error {
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
	keyed, err := m.kafka.Log(m.names.Keyed).Bounds(ctx, ingest.AllPartitions(m.conf.Kafka.Partitions.Keyed))
	t.unused = true
	for _, b := range keyed {
		t.unused = t.unused && b.End == 0
		t.keyedHolds = t.keyedHolds || b.End > b.Start
	}
	return err
}

// readLog reads where the requests topic begins and ends, after the commits: routers may be at work, and the end of a log that
// was read first could lie before offsets routed since.
func (m *Migration) readLog(ctx context.Context) (err error) {
	m.topics.log, err = m.kafka.Log(m.names.Requests).Bounds(ctx, ingest.AllPartitions(m.topics.requests))
	return err
}

func (m *Migration) sayTopic(r kafka.TopicReport) {
	switch {
	case r.Created:
		m.say("topic %s made with %s", r.Name, plural.Of(r.Partitions, "partition"))
	case len(r.Corrected) > 0:
		m.say("topic %s corrected: %s", r.Name, strings.Join(r.Corrected, "; "))
	default:
		m.say("topic %s: nothing to do", r.Name)
	}
	if r.Note != "" {
		m.say("topic %s: %s", r.Name, r.Note)
	}
}

// makeStream finds the live stream or makes it.
func (m *Migration) makeStream(ctx context.Context) error {
	st, err := m.store.Streams.Find(ctx, history.Live)
	keyed := m.conf.Kafka.Partitions.Keyed
	switch {
	case errors.Is(err, postgres.ErrNotFound) && m.topics.keyedHolds:
		return fmt.Errorf("topic %s holds records, but schema %s knows no stream that wrote them: they are of an installation whose "+
			"database is gone; delete the topics %s.*, or use another namespace", m.names.Keyed, m.store.Schema(), m.conf.Namespace)
	case errors.Is(err, postgres.ErrNotFound):
		counts := streams.PartitionCounts{Requests: m.topics.requests, Keyed: keyed, Hits: m.topics.hits, Budget: int64(m.conf.Detect.BudgetPerPartition)}
		if st, err = m.store.Streams.Create(ctx, history.Live, counts); err != nil {
			return err
		}
		m.isNew = true
		m.say("stream live made, generation %d", st.Generation)
	case err != nil:
		return err
	case st.Partitions.Keyed != keyed:
		return fmt.Errorf("stream live was made with %d keyed partitions, the configuration says %d: "+
			"the number is fixed, correct kafka.partitions.keyed or use another namespace", st.Partitions.Keyed, keyed)
	}
	m.stream = st
	return m.setBudget(ctx)
}

// setBudget stores what one keyed partition may hold, where the configuration says another number than before.
func (m *Migration) setBudget(ctx context.Context) error {
	before, now := m.stream.Partitions.Budget, m.conf.Detect.BudgetPerPartition
	if before == int64(now) {
		return nil
	}
	if err := m.store.Streams.SetBudget(ctx, history.Live, int64(now), m.by); err != nil {
		return err
	}
	m.stream.Partitions.Budget = int64(now)
	m.say("budget of a keyed partition is %s now, before %s; restart the processes that detect", now, config.Size(before))
	return nil
}

// routeGroup is the consumer group whose commits say where routing stands.
func (m *Migration) routeGroup() string {
	return ingest.Live.Group(m.conf.Namespace, ingest.StageRoute)
}

// readCommits reads where routing stands. A commit that cannot be read as weir's is left to its stage, which refuses the
// partition and says why.
func (m *Migration) readCommits(ctx context.Context) error {
	m.commits = map[int]*ingest.Announcement{}
	if m.isNew {
		return nil // a commit that is there all the same is of an installation whose database is gone
	}
	stored, err := m.kafka.FetchCommits(ctx, m.routeGroup(), m.names.Requests, ingest.AllPartitions(m.topics.requests))
	if err != nil {
		return err
	}
	for p, c := range stored {
		a, err := ingest.DecodeAnnouncement(c.Metadata)
		if err != nil {
			m.say("partition requests/%d: its commit is not weir's (%v); weir partitions list says more", p, err)
			a = nil
		}
		m.commits[p] = a
	}
	return nil
}

// publish makes the routing version that holds the configuration's identity map and event format, with the rules that
// count.
func (m *Migration) publish(ctx context.Context) error {
	secretID, _, err := m.store.Streams.Secret(ctx)
	modes, merr := m.store.Rules.Modes(ctx)
	if err = errors.Join(err, merr); err != nil {
		return err
	}
	format := 0
	number, changed, err := m.store.Rules.PublishRouting(ctx, history.Live, func(prev *rules.Routing) (rules.Routing, error) {
		format = m.recordFormat(prev)
		made := rules.Routing{
			// The number is set where it is stored; the check wants one.
			Stream: history.Live, Number: 1, RecordFormat: format, SecretID: secretID,
			Identity: m.conf.Identity, Format: m.conf.EventFormat(), KnownGood: string(m.conf.KnownGood),
		}
		if prev != nil {
			made.Number, made.Rules, made.Allow, made.Resets = prev.Number+1, prev.Rules, prev.Allow, prev.Resets
			if err := safeFormat(prev.Format, made.Format, modes); err != nil {
				return made, err
			}
		}
		return made, made.Validate()
	})
	if err != nil {
		return err
	}
	m.version = number
	if changed {
		m.say("routing version %d published, record format %d", number, format)
	} else {
		m.say("routing version %d: nothing to do", number)
	}
	if format < detectors.RecordFormat {
		m.say("record format %d is kept; when all processes are of this build: weir migrate --record-format %d", format, detectors.RecordFormat)
	}
	return nil
}

// recordFormat is the format of the next routing version: that of --record-format or, without it, of the version before, since
// running processes may know no newer one. Without a version before, no process runs yet.
func (m *Migration) recordFormat(prev *rules.Routing) int {
	switch {
	case m.opt.RecordFormat != 0:
		return m.opt.RecordFormat
	case prev != nil:
		return prev.RecordFormat
	}
	return detectors.RecordFormat
}

// safeFormat refuses to change how events are read under a rule that blocks: promotion made sure that the format carries
// weir's own verdicts, and must do so again.
func safeFormat(before, after rules.Format, modes []rules.ModeState) error {
	if before.Name == after.Name && config.JoinMap(before.Map) == config.JoinMap(after.Map) {
		return nil
	}
	for _, m := range modes {
		if m.Mode.Blocks() {
			return fmt.Errorf("events: the format changes while rule %s blocks: demote it (weir rules demote %s), run weir migrate, promote it again",
				m.Rule, m.Rule)
		}
	}
	return nil
}

// writeFirstCommits writes the first announcing commit of each partition that has none of this generation. A partition
// that lost its commit after it had been routed is not given another: what that would double or lose is an operator's to
// accept.
func (m *Migration) writeFirstCommits(ctx context.Context) error {
	first := map[int]ingest.Commit{}
	for p, b := range m.topics.log {
		switch a, has := m.commits[p]; {
		case has && a == nil: // reported
		case has && a.Generation == m.stream.Generation: // in use
		case has, m.isNew, m.renewed, m.topics.unused, p >= m.stream.Partitions.Requests:
			first[p] = ingest.InitialCommit(m.stream.Generation, b.Start, m.version, m.conf.Kafka.Partitions.Keyed)
		default:
			m.say("partition requests/%d has lost its commit: weir partitions resume --requests %d accepts that; "+
				"if the topic was deleted and made anew, weir migrate --recreated", p, p)
		}
	}
	if len(first) == 0 {
		m.say("first commits: nothing to do")
		return nil
	}
	err := m.kafka.CommitInitial(ctx, m.routeGroup(), m.names.Requests, first)
	if err != nil && m.renewed {
		return fmt.Errorf("generation %d has begun without its first commits, so nothing is routed: "+
			"stop all of weir run, then run weir migrate again, which writes them: %w", m.stream.Generation, err)
	}
	if err != nil {
		return err
	}
	m.say("first commits written for %s of requests", plural.Of(len(first), "partition"))
	return nil
}
