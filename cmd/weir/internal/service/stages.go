package service

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/blocklist/reconcile"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/history/ramp"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/consume"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/rules"
)

// AllStages are the stages in the order of the stream, as --stages names them.
func AllStages() []string {
	return []string{ingest.StageRoute, ingest.StageDetect, ingest.StageRecord, ingest.StageEnforce}
}

// RunStages waits for the servers, makes the stages asked for and runs them until ctx ends. It sets started when they begin.
func (in *Installation) RunStages(ctx context.Context, stages []string, started *atomic.Bool) error {
	if err := in.Wait(ctx, forever); err != nil {
		return UnlessStopped(ctx, err)
	}
	groups, err := in.stages(ctx, stages)
	if err != nil {
		return UnlessStopped(ctx, err)
	}
	started.Store(true)
	in.Log.Info("running", "stages", stages, "namespace", in.Config.Namespace, "generation", in.Stream.Generation)
	return Serve(ctx, in.Log, StageTimeout, groups...)
}

// UnlessStopped drops the errors of what a signal has cut short.
func UnlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// stages makes the parts of the stages asked for, in groups that are stopped one after the other: route, then detect, then
// those that read hits.
func (in *Installation) stages(ctx context.Context, stages []string) ([][]Part, error) {
	if err := in.Enter(ctx, history.Live, in.Config.TopicSettings()); err != nil {
		return nil, err
	}
	if _, err := in.checkRouting(ctx); err != nil {
		return nil, err
	}
	if err := in.own(ctx); err != nil {
		return nil, err
	}
	groups := make([][]Part, 3)
	if slices.Contains(stages, ingest.StageRoute) {
		r, err := in.Router()
		if err != nil {
			return nil, err
		}
		groups[0] = append(groups[0], Part{ingest.StageRoute, r.Run}, Part{"watch routing versions", func(ctx context.Context) error {
			in.History.Rules.WatchRoutings(ctx, r.RoutingsChanged)
			return nil
		}})
	}
	if slices.Contains(stages, ingest.StageDetect) {
		d, err := in.Detector()
		if err != nil {
			return nil, err
		}
		groups[1] = append(groups[1], Part{ingest.StageDetect, d.Run})
	}
	watch, err := newRuleWatch(in.History.Rules, in.Log, in.registry)
	if err != nil {
		return nil, err
	}
	sinks, err := in.sinks(ctx, stages, watch)
	groups[2] = append(sinks, watch.parts()...)
	return groups, err
}

// sinks makes what reads hits and decisions. ENFORCE hears of modes by watch.
func (in *Installation) sinks(ctx context.Context, stages []string, watch *ruleWatch) ([]Part, error) {
	var parts []Part
	if slices.Contains(stages, ingest.StageRecord) {
		hits, err := in.RecordHits()
		if err != nil {
			return nil, err
		}
		decisions, err := in.recordDecisions()
		if err != nil {
			return nil, err
		}
		sizes, err := history.NewSizes(in.History, in.registry)
		if err != nil {
			return nil, err
		}
		keeper, err := in.keeper()
		if err != nil {
			return nil, err
		}
		parts = append(parts, Part{ingest.StageRecord, hits.Run}, Part{ingest.StageRecordBlocks, decisions.Run},
			Part{"sizes of history", sizes.Run}, Part{"retention of history", keeper.Run})
	}
	if slices.Contains(stages, ingest.StageEnforce) {
		e, err := in.enforcement(ctx)
		if err != nil {
			return nil, err
		}
		watch.tell, watch.follow = e.modesChanged, e.stage.RefreshModes
		part, err := standingAside(in, []Part{{ingest.StageEnforce, e.consumer.Run}, {"publish modes", e.publisher.Run},
			{"reconcile", e.reconciler.Run}, {"block who is over", enforce.NewBackfill(e.stage).Run},
			{"canaries", e.canaries.Run}, {"blocks by hand", e.carrier.Run}, {"who is never blocked", e.never.run},
			{"watch blocks by hand", watching(in.History.Orders.Watch, e.ordered)},
			{"watch who is never blocked", watching(in.History.Orders.WatchNever, e.never.tell)},
			{"read standing blocks", e.reader.Run}, {"memory of Redis", e.memory.run}})
		return append(parts, part), err
	}
	return parts, nil
}

// Router makes ROUTE of the installation's stream.
func (in *Installation) Router() (*route.Router, error) {
	owner, err := processName()
	if err != nil {
		return nil, err
	}
	made, err := route.New(route.Options{
		Stream: in.Stream.Name, Topic: in.Names.Requests, Generation: in.Stream.Generation,
		Sources: in.Stream.Partitions.Requests, Live: in.Stream.Name == history.Live,
		KeyedPartitions: in.Stream.Partitions.Keyed, Secret: in.secret[:], SecretID: in.SecretID, Clock: Now,
		Log: in.Kafka.Log(in.Names.Requests), Group: in.kafkaGroup(ingest.StageRoute, in.Names.Requests),
		Keyed: in.Kafka.Appender(in.Names.Keyed), Routings: rulestore.StageRoutings{Store: in.History.Rules},
		Partitions: in.History.Partitions, Transactions: kafka.NewTransactions(in.Kafka, in.Names.Requests),
		DeadLetters: in.DeadLetters, Figures: in.History, Owner: owner, Logger: in.Log, Registerer: in.registry,
	})
	if err != nil {
		return nil, err
	}
	in.working.note(func(w *working) { w.router = made })
	return made, nil
}

// Detector makes DETECT of the installation's stream.
func (in *Installation) Detector() (*detect.Detector, error) {
	if err := in.checkBudget(); err != nil {
		return nil, err
	}
	if err := in.checkSnapshots(); err != nil {
		return nil, err
	}
	owner, err := processName()
	if err != nil {
		return nil, err
	}
	made, err := detect.New(detect.Options{
		Stream: in.Stream.Name, Owner: owner, Address: in.address, Generation: in.Stream.Generation,
		Sources: in.Stream.Partitions.Requests, Keyed: in.Stream.Partitions.Keyed, Secret: in.secret,
		IdleMargin: time.Duration(in.Config.Detect.IdleMargin), Budget: in.Stream.Partitions.Budget,
		Holding: holdMemory(in.Stream.Partitions.Budget, in.Log), Retention: in.keyedRetention,
		Log: in.Kafka.Log(in.Names.Keyed), Hits: in.Kafka.Appender(in.Names.Hits), HitsCount: in.HitsPartitions,
		Group:       in.kafkaGroup(ingest.StageDetect, in.Names.Keyed),
		Routings:    rulestore.StageRoutings{Store: in.History.Rules},
		Checkpoints: in.History.Partitions, Partitions: in.History.Partitions,
		Clock: Now, Logger: in.Log, Registerer: in.registry,
	})
	if err != nil {
		return nil, err
	}
	in.working.note(func(w *working) { w.detector = made })
	return made, nil
}

// checkBudget refuses to detect within another budget than the stream's: with the same log, all must evict the same keys.
func (in *Installation) checkBudget() error {
	if has, want := in.Stream.Partitions.Budget, in.Config.Detect.BudgetPerPartition; has != int64(want) {
		return fmt.Errorf("detect.budget_per_partition is %s, stream %s has %s: run weir migrate to change the stream's, or correct the "+
			"configuration", want, in.Stream.Name, config.Size(has))
	}
	return nil
}

// checkSnapshots refuses to detect where snapshots might not be stored before the log that they need is gone.
func (in *Installation) checkSnapshots() error {
	room := detect.SnapshotRoom{Budget: in.Stream.Partitions.Budget, Partitions: in.Stream.Partitions.Keyed, Retention: in.keyedRetention}
	if room.Fits() {
		return nil
	}
	problem, remedy := SnapshotAdvice(room, in.Names.Keyed)
	return fmt.Errorf("detect.budget_per_partition: %s; %s", problem, remedy)
}

// SnapshotAdvice says why snapshots do not fit what the keyed topic keeps, and what to change.
func SnapshotAdvice(room detect.SnapshotRoom, topic string) (problem, remedy string) {
	problem = fmt.Sprintf("%s for each of %d keyed partitions: one process that owns them all stores their snapshots in %s; allowed: %s, a third of "+
		"what topic %s keeps", config.Size(room.Budget), room.Partitions, terminal.Roughly(room.WriteTime()), terminal.Roughly(room.MostTime()), topic)
	// Rounded to what a person would write, in the direction that fits.
	budget := room.MostBudget() >> 20 << 20
	hours := (room.LeastRetention() + time.Hour - 1) / time.Hour * time.Hour
	remedy = fmt.Sprintf("set kafka.retention.keyed to %s or more, or detect.budget_per_partition to %s or less, and run weir migrate", config.Duration(hours), config.Size(budget))
	if budget < config.LeastBudget {
		remedy = fmt.Sprintf("set kafka.retention.keyed to %s or more and run weir migrate", config.Duration(hours))
	}
	return problem, remedy
}

// Group is the consumer group of a stage of this stream.
func (in *Installation) Group(stage string) string {
	return ingest.Stream(in.Stream.Name).Group(in.Config.Namespace, stage)
}

// kafkaGroup is this process's membership in the consumer group of a stage. A replay's group is its own, which nobody comes back to.
func (in *Installation) kafkaGroup(stage, topic string) ingest.Group {
	options := kafka.GroupOptions{}
	if in.Stream.Name == history.Live {
		options.Instance = in.Config.Kafka.InstanceID
	}
	return in.Kafka.Group(in.Group(stage), topic, options)
}

// consumer reads a topic of the stream into a sink, whose store has positions or is no store that has any.
func (in *Installation) consumer(stage, topic string, sink ingest.Sink, assigned func(partitions []int),
	positions consume.Positions) (*consume.Consumer, error) {
	made, err := consume.New(consume.Options{
		Name: stage, Log: in.Kafka.Log(topic), Group: in.kafkaGroup(stage, topic),
		Sink: sink, Positions: positions, Assigned: assigned, Logger: in.Log, Registerer: in.registry,
		Lost: func(ctx context.Context, l ingest.Loss) error {
			return in.History.Streams.KeepLoss(ctx, in.Stream.Name,
				topic, l)
		},
	})
	if err != nil {
		return nil, err
	}
	in.working.note(func(w *working) { w.consumers = append(w.consumers, stageConsumer{stage, made}) })
	return made, nil
}

// days are those under which RECORD keeps rows: of the live stream only, since the times of a replay may be any.
func (in *Installation) days() history.Days {
	if in.Stream.Name != history.Live {
		return nil
	}
	return in.makeDays()
}

func (in *Installation) makeDays() *retention.Days {
	return retention.NewDays(in.History, time.Duration(in.Config.History.Retention), Now)
}

// keeper keeps history within its time.
func (in *Installation) keeper() (*retention.Keeper, error) {
	return retention.NewKeeper(retention.Options{
		DB: in.History.DB, Days: in.makeDays(), Keep: time.Duration(in.Config.History.Retention), Logger: in.Log,
	}, in.registry)
}

// enforcement is ENFORCE: the stage itself, the reconciler, the publisher of modes, the reader of what stands, and the memory of
// Redis that it fills. The watch of modes wakes the stage and the publisher.
type enforcement struct {
	stage      *enforce.Enforcer
	consumer   *consume.Consumer
	publisher  *reconcile.Publisher
	reconciler *reconcile.Reconciler
	reader     *reconcile.Reader
	memory     *redisMemory
	canaries   *ramp.Controller
	carrier    *enforce.Carrier
	never      *neverWatch
}

func (in *Installation) enforcement(ctx context.Context) (*enforcement, error) {
	never, err := in.newNeverWatch(ctx)
	if err != nil {
		return nil, err
	}
	stage, err := enforce.New(enforce.Options{
		Store: in.Redis, Stream: in.Stream.Name, Topic: in.Names.Hits, Modes: allModes{in.lookups},
		Rules: in.lookups.Rules, Orders: in.lookups.Orders,
		Decisions:   &decisionLog{appender: in.Kafka.Appender(in.Names.Blocks), partitions: in.blocksPartitions},
		DeadLetters: in.DeadLetters, Never: never.list, HitsPartitions: in.HitsPartitions, Secret: in.secret[:],
		OpenHits: in.History,
		// A release must be remembered for as long as the hits that it answers can be read again.
		TombstoneTTL: max(time.Duration(in.Config.Kafka.Retention.Hits), enforce.DefaultTombstoneTTL),
		Clock:        Now, Logger: in.Log, Registerer: in.registry,
	})
	if err != nil {
		return nil, err
	}
	in.working.note(func(w *working) { w.enforcer = stage })
	consumer, err := in.consumer(ingest.StageEnforce, in.Names.Hits, stage, stage.Standing().Assigned, nil)
	if err != nil {
		return nil, err
	}
	publisher, err := reconcile.NewPublisher(reconcile.PublisherOptions{
		Store: in.Redis, Modes: allModes{in.lookups}, Clock: Now, Logger: in.Log, Registerer: in.registry,
		Own: in.own, Overtake: overtaking(in.lookups.Rules),
	})
	if err != nil {
		return nil, err
	}
	reconciler, err := reconcile.New(reconcile.Options{
		Store: in.Redis, Modes: allModes{in.History}, Active: in.History, Never: never.list,
		Clock: Now, Logger: in.Log, Registerer: in.registry,
	})
	if err != nil {
		return nil, err
	}
	reader, err := reconcile.NewReader(reconcile.ReaderOptions{
		Modes: allModes{in.History}, Active: in.History, Never: never.list, Standing: stage.Standing(),
		Clock: Now, Logger: in.Log, Registerer: in.registry,
	})
	if err != nil {
		return nil, err
	}
	memory, err := newRedisMemory(func(ctx context.Context) (blocklist.Inspected, error) { return in.Redis.Inspect(ctx, Now) }, in.registry)
	if err != nil {
		return nil, err
	}
	canaries, err := ramp.New(ramp.Options{Canaries: in.History.Rules, Figures: in.History, Logger: in.Log, Registerer: in.registry})
	if err != nil {
		return nil, err
	}
	return &enforcement{stage, consumer, publisher, reconciler, reader, memory, canaries, enforce.NewCarrier(stage),
		never}, nil
}

func (e *enforcement) modesChanged() {
	e.publisher.ModesChanged()
	e.stage.ModesChanged()
}

// The stages find in history what they need of it.
var (
	_ ingest.Routings        = (*rulestore.Store)(nil)
	_ ingest.Checkpoints     = (*partitions.Store)(nil)
	_ ingest.Partitions      = (*partitions.Store)(nil)
	_ ingest.Figures         = (*history.Store)(nil)
	_ enforce.RuleVersions   = (*rulestore.Store)(nil)
	_ enforce.OpenHits       = (*history.Store)(nil)
	_ ramp.Figures           = (*history.Store)(nil)
	_ reconcile.ActiveBlocks = (*history.Store)(nil)
)

// EnterLive waits a little for the servers, and gives the routing version under which the live stream takes events. It
// reads no secret: whoever brings events needs none.
func (in *Installation) EnterLive(ctx context.Context, c *config.Config) (*rules.Routing, error) {
	if err := in.Wait(ctx, AnswerTimeout); err != nil {
		return nil, err
	}
	if err := enterOpenly(ctx, in, history.Live,
		c.TopicSettings().Carriers(ingest.Live.Topics(c.Namespace))); err != nil {
		return nil, err
	}
	return in.checkRouting(ctx)
}

// checkRouting makes sure that the stream has a routing version, and that this process can read it.
func (in *Installation) checkRouting(ctx context.Context) (*rules.Routing, error) {
	number, err := in.History.Rules.Newest(ctx, in.Stream.Name)
	if err != nil {
		return nil, err
	}
	if number == 0 {
		return nil, fmt.Errorf("stream %s has no routing version yet: run weir migrate", in.Stream.Name)
	}
	return in.History.Rules.Routing(ctx, in.Stream.Name, number)
}
