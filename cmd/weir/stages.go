package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/blocklist/reconcile"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/consume"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/rules"
)

// The stages, as --stages and consumer groups name them.
const (
	stageRoute   = ingest.StageRoute
	stageDetect  = ingest.StageDetect
	stageRecord  = ingest.StageRecord
	stageEnforce = ingest.StageEnforce
)

// recordBlocks is the group of RECORD's second half, which stores block decisions.
const recordBlocks = ingest.StageRecordBlocks

func allStages() []string { return []string{stageRoute, stageDetect, stageRecord, stageEnforce} }

// parseStages reads --stages.
func parseStages(names []string) ([]string, error) {
	for _, n := range names {
		if !slices.Contains(allStages(), n) {
			return nil, usagef("--stages: got %q; allowed: %s", n, strings.Join(allStages(), ", "))
		}
	}
	if len(names) == 0 {
		return nil, usagef("--stages: got none; allowed: %s", strings.Join(allStages(), ", "))
	}
	return names, nil
}

// router makes ROUTE of the installation's stream.
func (in *installation) router() (*route.Router, error) {
	owner, err := processName()
	if err != nil {
		return nil, err
	}
	made, err := route.New(route.Options{
		Stream: in.stream.Name, Topic: in.names.Requests, Generation: in.stream.Generation,
		Sources: in.stream.Partitions.Requests,
		Live:    in.stream.Name == history.Live, KeyedPartitions: in.stream.Partitions.Keyed,
		Secret: in.secret[:], SecretID: in.secretID,
		Log: in.kafka.Log(in.names.Requests), Keyed: in.kafka.Appender(in.names.Keyed),
		Group:    in.kafka.Group(in.group(stageRoute), in.names.Requests, kafka.GroupOptions{}),
		Routings: in.history.Rules, Partitions: in.history.Partitions, DeadLetters: in.dead, Figures: in.history, Owner: owner,
		Clock: now, Logger: in.log, Registerer: in.registry,
	})
	in.working.note(func(w *working) { w.router = made })
	return made, err
}

// detector makes DETECT of the installation's stream.
func (in *installation) detector() (*detect.Detector, error) {
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
		Stream: in.stream.Name, Owner: owner, Generation: in.stream.Generation,
		Sources: in.stream.Partitions.Requests, Keyed: in.stream.Partitions.Keyed, Secret: in.secret,
		Budget: in.stream.Partitions.Budget, Holding: holdMemory(in.stream.Partitions.Budget, in.log), Retention: in.keyed,
		Log: in.kafka.Log(in.names.Keyed), Hits: in.kafka.Appender(in.names.Hits), HitsCount: in.hits,
		Group:    in.kafka.Group(in.group(stageDetect), in.names.Keyed, kafka.GroupOptions{}),
		Routings: in.history.Rules, Checkpoints: in.history.Partitions, Partitions: in.history.Partitions,
		Clock: now, Logger: in.log, Registerer: in.registry,
	})
	in.working.note(func(w *working) { w.detector = made })
	return made, err
}

// checkBudget refuses to detect within another budget than the stream's: with the same log, all must evict the same keys.
func (in *installation) checkBudget() error {
	if has, want := in.stream.Partitions.Budget, in.conf.Detect.BudgetPerPartition; has != int64(want) {
		return fmt.Errorf("detect.budget_per_partition is %s, stream %s has %s: run weir migrate to change the stream's, or correct the "+
			"configuration", want, in.stream.Name, size(has))
	}
	return nil
}

// checkSnapshots refuses to detect where snapshots might not be stored before the log that they need is gone.
func (in *installation) checkSnapshots() error {
	room := detect.SnapshotRoom{Budget: in.stream.Partitions.Budget, Partitions: in.stream.Partitions.Keyed, Retention: in.keyed}
	if room.Fits() {
		return nil
	}
	problem, mend := lacksRoom(room, in.names.Keyed)
	return fmt.Errorf("detect.budget_per_partition: %s; %s", problem, mend)
}

func (in *installation) group(stage string) string {
	return ingest.Stream(in.stream.Name).Group(in.conf.Namespace, stage)
}

// consumer reads a topic of the stream into a sink.
func (in *installation) consumer(stage, topic string, sink ingest.Sink) (*consume.Consumer, error) {
	made, err := consume.New(consume.Options{
		Name: stage, Log: in.kafka.Log(topic), Group: in.kafka.Group(in.group(stage), topic, kafka.GroupOptions{}),
		Sink: sink, Logger: in.log, Registerer: in.registry,
	})
	if err != nil {
		return nil, err
	}
	in.working.note(func(w *working) { w.consumers = append(w.consumers, stageConsumer{stage, made}) })
	return made, nil
}

// recordHits makes the half of RECORD that stores hits.
func (in *installation) recordHits() (*consume.Consumer, error) {
	sink, err := history.NewHitRecorder(in.history, in.stream.Name, in.names.Hits, in.dead, in.registry)
	if err != nil {
		return nil, err
	}
	return in.consumer(stageRecord, in.names.Hits, sink)
}

// recordDecisions makes the half of RECORD that stores block decisions.
func (in *installation) recordDecisions() (*consume.Consumer, error) {
	sink, err := history.NewDecisionRecorder(in.history, in.stream.Name, in.names.Blocks, in.dead, in.registry)
	if err != nil {
		return nil, err
	}
	return in.consumer(recordBlocks, in.names.Blocks, sink)
}

// enforcement is ENFORCE: the stage itself, the publisher of modes, which the watch tells of a promotion or demotion as
// it does the stage, and the reconciler.
type enforcement struct {
	stage      *enforce.Enforcer
	consumer   *consume.Consumer
	publisher  *reconcile.Publisher
	reconciler *reconcile.Reconciler
}

func (in *installation) enforcement() (*enforcement, error) {
	stage, err := enforce.New(enforce.Options{
		Store: in.redis, Stream: in.stream.Name, Topic: in.names.Hits, Modes: in.lookups.Rules, Rules: in.lookups.Rules,
		Decisions:   &decisionLog{appender: in.kafka.Appender(in.names.Blocks), partitions: in.blocks},
		DeadLetters: in.dead, NeverBlock: in.conf.NeverBlock,
		// A release must be remembered for as long as the hits that it answers can be read again.
		TombstoneTTL: max(time.Duration(in.conf.Kafka.Retention.Hits), enforce.DefaultTombstoneTTL),
		Clock:        now, Logger: in.log, Registerer: in.registry,
	})
	if err != nil {
		return nil, err
	}
	in.working.note(func(w *working) { w.enforcer = stage })
	consumer, err := in.consumer(stageEnforce, in.names.Hits, stage)
	if err != nil {
		return nil, err
	}
	publisher, err := reconcile.NewPublisher(reconcile.PublisherOptions{
		Store: in.redis, Modes: in.lookups.Rules, Clock: now, Logger: in.log, Registerer: in.registry,
	})
	if err != nil {
		return nil, err
	}
	reconciler, err := reconcile.New(reconcile.Options{
		Store: in.redis, Modes: in.history.Rules, Active: in.history, NeverBlock: in.conf.NeverBlock,
		Clock: now, Logger: in.log, Registerer: in.registry,
	})
	if err != nil {
		return nil, err
	}
	return &enforcement{stage, consumer, publisher, reconciler}, nil
}

func (e *enforcement) modesChanged() {
	e.publisher.ModesChanged()
	e.stage.ModesChanged()
}

// decisionLog is the blocks topic as ENFORCE sees it. A decision lies in the partition that its hit lay in.
type decisionLog struct {
	appender   ingest.Appender
	partitions int
}

var _ enforce.DecisionLog = (*decisionLog)(nil)

// Append returns nil after Kafka has acknowledged all decisions.
func (l *decisionLog) Append(ctx context.Context, partition int, decisions []blocklist.Decision) error {
	b := ingest.Batch{Partition: partition % l.partitions}
	for i := range decisions {
		value, err := blocklist.EncodeDecision(&decisions[i])
		if err != nil {
			return err
		}
		b.Values = append(b.Values, value)
	}
	return l.appender.Append(ctx, []ingest.Batch{b})
}

// The stages find in history what they need of it.
var (
	_ ingest.Routings        = (*rulestore.Store)(nil)
	_ ingest.Checkpoints     = (*partitions.Store)(nil)
	_ ingest.Partitions      = (*partitions.Store)(nil)
	_ ingest.Figures         = (*history.Store)(nil)
	_ enforce.Modes          = (*rulestore.Store)(nil)
	_ enforce.RuleVersions   = (*rulestore.Store)(nil)
	_ reconcile.ActiveBlocks = (*history.Store)(nil)
)

// enterLive waits a little for the servers, and gives the routing version under which the live stream takes events.
func (in *installation) enterLive(ctx context.Context, c *config) (*rules.Routing, error) {
	if err := in.wait(ctx, askPatience); err != nil {
		return nil, err
	}
	if err := in.enter(ctx, history.Live, c.topicSettings()); err != nil {
		return nil, err
	}
	return in.checkRouting(ctx)
}

// checkRouting makes sure that the stream has a routing version, and that this process can read it.
func (in *installation) checkRouting(ctx context.Context) (*rules.Routing, error) {
	number, err := in.history.Rules.Newest(ctx, in.stream.Name)
	if err != nil {
		return nil, err
	}
	if number == 0 {
		return nil, fmt.Errorf("stream %s has no routing version yet: run weir migrate", in.stream.Name)
	}
	return in.history.Rules.Routing(ctx, in.stream.Name, number)
}
