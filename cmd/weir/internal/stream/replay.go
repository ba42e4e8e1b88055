package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic/format"
)

// replayKeyed and replayHits are the partition counts of a replay's topics. The hits do not depend on them.
const (
	replayKeyed = 8
	replayHits  = 1
)

// ReplayOptions say what a replay is.
type ReplayOptions struct {
	Name       string
	Partitions int             // of requests
	Rules      []rules.Version // nil: those that count in the live stream now, with the allow lists that are stored
	Allow      []rules.AllowList
	Replace    bool // a replay of that name is deleted first
	KeepTopics bool
}

// Replay makes a stream of its own, sends the files through it, waits until all their consequences are recorded, and stores the
// summary. Without an error the summary is complete.
func Replay(ctx context.Context, c *config.Config, log *slog.Logger, registry *service.Registry, r *Reading, o ReplayOptions) (Summary, error) {
	p := &replay{ReplayOptions: o, reading: r, streamName: ingest.Replay(o.Name), begun: time.Now(), settings: replaySettings(c, o.Partitions)}
	if err := CheckReplay(c.Namespace, o.Name); err != nil {
		return Summary{}, err
	}
	defer context.AfterFunc(ctx, func() { p.signalled.Store(time.Now().UnixNano()) })()
	var err error
	if p.Installation, err = service.Open(ctx, c, log, registry, false); err != nil {
		return Summary{}, err
	}
	defer p.Close()
	if err := p.Wait(ctx, service.AnswerTimeout); err != nil {
		return Summary{}, err
	}
	if p.Rules == nil {
		if p.Rules, err = p.liveRules(ctx); err != nil {
			return Summary{}, err
		}
		stored, err := p.History.Rules.AllowLists(ctx)
		if err != nil {
			return Summary{}, err
		}
		for i := range stored {
			p.Allow = append(p.Allow, stored[i].List)
		}
	}
	if err := p.make(ctx); err != nil {
		return Summary{}, p.unmade(ctx, err)
	}
	quiet, err := service.ServeHealthIfAsked(ctx, c, registry, p.Installation)
	if err != nil {
		return Summary{}, p.unmade(ctx, err)
	}
	defer quiet()
	summary, err := p.run(ctx, c)
	if cerr := p.finish(ctx, summary); err == nil {
		err = cerr
	}
	return summary, err
}

// CheckReplay refuses a name that a replay cannot have.
func CheckReplay(namespace, name string) error {
	if err := errors.Join(ingest.CheckNamespace(namespace), ingest.Replay(name).Check()); err != nil {
		return usage.Errorf("--replay: %w", err)
	}
	return nil
}

// replay is one run of Replay.
//
//	files ──▶ sender ──▶ requests ─▶ Router ─▶ keyed ─▶ Detector ─▶ hits ─▶ HitRecorder ──▶ Postgres
//	             │           ▲                              │                    │
//	             └ at the end: an end mark per partition    └ Ended ──▶ caught up ──▶ summary
//
// There is no ENFORCE: a replay blocks nobody.
type replay struct {
	*service.Installation
	ReplayOptions
	reading    *Reading
	streamName ingest.Stream
	settings   ingest.TopicSettings
	dropped    *deadCount
	frequent   frequent // requests of the files
	router     *route.Router
	begun      time.Time
	// begunMaking says that what carries the name is of this run, and not of one before it.
	begunMaking bool
	signalled   atomic.Int64 // when the signal came, in nanoseconds since 1970; 0 before
}

// replaySettings are those of the live topics but for the partition counts.
func replaySettings(c *config.Config, requests int) ingest.TopicSettings {
	s := c.TopicSettings()
	s.RequestsPartitions, s.KeyedPartitions, s.HitsPartitions, s.BlocksPartitions = requests, replayKeyed, replayHits, 1
	return s
}

// liveRules are the newest versions of the rules that count now.
func (p *replay) liveRules(ctx context.Context) ([]rules.Version, error) {
	all, err := p.History.Rules.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []rules.Version
	for i := range all {
		if all[i].Mode != rules.ModeOff {
			out = append(out, all[i].Newest.Version)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("there are no rules to replay: give --rules FILE|DIR, or weir rules apply some first")
	}
	return out, nil
}

// make makes the stream, its topics, its one routing version and the commits that routing and reading start from.
func (p *replay) make(ctx context.Context) error {
	if err := p.makeRoom(ctx); err != nil {
		return err
	}
	p.begunMaking = true
	counts := streams.PartitionCounts{Requests: p.settings.RequestsPartitions, Keyed: replayKeyed, Hits: replayHits,
		Budget: int64(p.Config.Detect.BudgetPerPartition)}
	if _, err := p.History.Streams.Create(ctx, string(p.streamName), counts); err != nil {
		return err
	}
	names := p.streamName.Topics(p.Config.Namespace)
	if _, err := p.Kafka.EnsureTopics(ctx, p.settings.Topics(names)); err != nil {
		return err
	}
	if err := p.Enter(ctx, string(p.streamName), p.settings); err != nil {
		return err
	}
	p.dropped = &deadCount{next: p.DeadLetters, reasons: map[string]int64{}}
	p.DeadLetters = p.dropped
	version, _, err := p.History.Rules.PublishRouting(ctx, string(p.streamName), func(*rules.Routing) (rules.Routing, error) {
		made := rules.Routing{
			Stream: string(p.streamName), Number: 1, RecordFormat: detectors.RecordFormat, SecretID: p.SecretID,
			Rules: p.Rules, Identity: p.Config.Identity, Format: replayFormat(p.Config), KnownGood: string(p.Config.KnownGood),
		}
		made.WithAllow(p.Allow)
		return made, nil
	})
	if err != nil {
		return err
	}
	return p.firstCommits(ctx, version)
}

// replayFormat is what the requests topic of a replay holds. An event may grow when it is converted.
func replayFormat(c *config.Config) rules.Format {
	return rules.Format{Name: format.Weir, MaxEventBytes: 2*c.Events.MaxEventBytes + 4096}
}

// makeRoom removes an older replay of the name, if it may.
func (p *replay) makeRoom(ctx context.Context) error {
	before, err := p.History.Streams.Find(ctx, string(p.streamName))
	topics := p.streamName.Topics(p.Config.Namespace).All()
	switch {
	case errors.Is(err, postgres.ErrNotFound):
	case err != nil:
		return err
	case !p.Replace:
		return fmt.Errorf("replay %s exists since %s: take another name, or --on-exists replace to delete it first",
			p.Name, terminal.Stamp(before.Created))
	default:
		if err := p.History.Streams.Delete(ctx, string(p.streamName)); err != nil {
			return err
		}
	}
	// Topics may be left of a replay that was killed.
	if err := p.Kafka.DeleteTopics(ctx, topics...); err != nil {
		return err
	}
	return p.awaitGone(ctx, topics)
}

// awaitGone waits until deleted topics are known to be: else they would be taken for those of this replay.
func (p *replay) awaitGone(ctx context.Context, topics []string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, topic := range topics {
		err := retry.Do(ctx, p.Log, "waiting for the topics of the replay before to be gone", func(ctx context.Context) error {
			there, err := p.Kafka.TopicExists(ctx, topic)
			if err == nil && there {
				err = fmt.Errorf("topic %s is being deleted", topic)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// firstCommits writes where each group begins. Groups of a replay of the same name may have left commits behind.
func (p *replay) firstCommits(ctx context.Context, version int64) error {
	routed := map[int]ingest.Commit{}
	for q := range p.RequestsPartitions {
		routed[q] = ingest.InitialCommit(p.Stream.Generation, 0, version, p.Stream.Partitions.Keyed)
	}
	if err := p.Kafka.CommitInitial(ctx, p.Group(ingest.StageRoute), p.Names.Requests, routed); err != nil {
		return err
	}
	for _, g := range []struct {
		stage, topic string
		n            int
	}{{ingest.StageDetect, p.Names.Keyed, replayKeyed}, {ingest.StageRecord, p.Names.Hits, p.HitsPartitions}} {
		zero := map[int]ingest.Commit{}
		for q := range g.n {
			zero[q] = ingest.Commit{}
		}
		if err := p.Kafka.CommitInitial(ctx, p.Group(g.stage), g.topic, zero); err != nil {
			return err
		}
	}
	return nil
}

// unmade takes back what was made before cause ended the making, so that the name stays free.
func (p *replay) unmade(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		cause = fmt.Errorf("stopped before anything was sent: %w", ctx.Err())
	}
	if !p.begunMaking {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(cause, p.History.Streams.Delete(ctx, string(p.streamName)),
		p.Kafka.DeleteTopics(ctx, p.streamName.Topics(p.Config.Namespace).All()...))
}

// lastWords is the context of the calls that end a replay, when ctx may have ended. After a signal it lasts for the rest of the
// time that a process has to end, and at least for a second: the stages may have used most of it.
func (p *replay) lastWords(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := 5 * time.Second
	if at := p.signalled.Load(); at != 0 {
		timeout = min(timeout, max(time.Second, service.StopTimeout-time.Second-time.Since(time.Unix(0, at))))
	}
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

// finish stores the summary and removes the topics, also when the run has failed: a replay cannot be taken up again.
func (p *replay) finish(ctx context.Context, s Summary) error {
	ctx, cancel := p.lastWords(ctx)
	defer cancel()
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if !s.Complete && s.Events == 0 {
		err = p.History.Streams.Delete(ctx, string(p.streamName)) // nothing was sent: the name stays free
	} else {
		err = p.History.Streams.Finish(ctx, string(p.streamName), text)
	}
	if !p.KeepTopics {
		err = errors.Join(err, p.Kafka.DeleteTopics(ctx, p.Names.All()...))
	}
	return err
}
