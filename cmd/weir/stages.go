package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/consume"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/rules"
)

// The stages, as --stages and consumer groups name them.
const (
	stageRoute   = "route"
	stageDetect  = "detect"
	stageRecord  = "record"
	stageEnforce = "enforce"
)

// recordBlocks is the group of RECORD's second half, which stores block decisions.
const recordBlocks = "record-blocks"

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
	return route.New(route.Options{
		Stream: in.stream.Name, Topic: in.names.Requests, Generation: in.stream.Generation,
		Sources: in.stream.Partitions.Requests,
		Live:    in.stream.Name == history.Live, KeyedPartitions: in.stream.Partitions.Keyed,
		Secret: in.secret[:], SecretID: in.secretID,
		Log: in.kafka.Log(in.names.Requests), Keyed: in.kafka.Appender(in.names.Keyed),
		Group:    in.kafka.Group(in.group(stageRoute), in.names.Requests, kafka.GroupOptions{}),
		Routings: in.history, Partitions: in.history, DeadLetters: in.dead, Figures: in.history, Owner: owner,
		Clock: now, Logger: in.log, Registerer: in.registry,
	})
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
	return detect.New(detect.Options{
		Stream: in.stream.Name, Owner: owner, Generation: in.stream.Generation,
		Sources: in.stream.Partitions.Requests, Keyed: in.stream.Partitions.Keyed, Secret: in.secret,
		Budget: in.stream.Partitions.Budget, Holding: holdMemory(in.stream.Partitions.Budget, in.log), Retention: in.keyed,
		Log: in.kafka.Log(in.names.Keyed), Hits: in.kafka.Appender(in.names.Hits), HitsCount: in.hits,
		Group:    in.kafka.Group(in.group(stageDetect), in.names.Keyed, kafka.GroupOptions{}),
		Routings: in.history, Checkpoints: in.history, Partitions: in.history,
		Clock: now, Logger: in.log, Registerer: in.registry,
	})
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
	return ingest.GroupID(in.conf.Namespace, in.stream.Name, stage)
}

// consumer reads a topic of the stream into a sink.
func (in *installation) consumer(stage, topic string, sink ingest.Sink) (*consume.Consumer, error) {
	return consume.New(consume.Options{
		Name: stage, Log: in.kafka.Log(topic), Group: in.kafka.Group(in.group(stage), topic, kafka.GroupOptions{}),
		Sink: sink, Logger: in.log, Registerer: in.registry,
	})
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
	stage      *blocklist.Enforcer
	consumer   *consume.Consumer
	publisher  *blocklist.ModePublisher
	reconciler *blocklist.Reconciler
}

func (in *installation) enforcement() (*enforcement, error) {
	stage, err := blocklist.NewEnforcer(blocklist.EnforcerOptions{
		Store: in.redis, Stream: in.stream.Name, Topic: in.names.Hits, Modes: in.lookups, Rules: in.lookups,
		Decisions:   &decisionLog{appender: in.kafka.Appender(in.names.Blocks), partitions: in.blocks},
		DeadLetters: in.dead, NeverBlock: in.conf.NeverBlock,
		// A release must be remembered for as long as the hits that it answers can be read again.
		TombstoneTTL: max(time.Duration(in.conf.Kafka.Retention.Hits), blocklist.DefaultTombstoneTTL),
		Clock:        now, Logger: in.log, Registerer: in.registry,
	})
	if err != nil {
		return nil, err
	}
	consumer, err := in.consumer(stageEnforce, in.names.Hits, stage)
	if err != nil {
		return nil, err
	}
	publisher, err := blocklist.NewModePublisher(blocklist.ModePublisherOptions{
		Store: in.redis, Modes: in.lookups, Clock: now, Logger: in.log, Registerer: in.registry,
	})
	if err != nil {
		return nil, err
	}
	reconciler, err := blocklist.NewReconciler(blocklist.ReconcilerOptions{
		Store: in.redis, Modes: in.history, Active: in.history, NeverBlock: in.conf.NeverBlock,
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

var _ blocklist.DecisionLog = (*decisionLog)(nil)

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
	_ ingest.Routings        = (*history.Store)(nil)
	_ ingest.Checkpoints     = (*history.Store)(nil)
	_ ingest.Partitions      = (*history.Store)(nil)
	_ ingest.Figures         = (*history.Store)(nil)
	_ blocklist.Modes        = (*history.Store)(nil)
	_ blocklist.RuleVersions = (*history.Store)(nil)
	_ blocklist.ActiveBlocks = (*history.Store)(nil)
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
	number, err := in.history.Newest(ctx, in.stream.Name)
	if err != nil {
		return nil, err
	}
	if number == 0 {
		return nil, fmt.Errorf("stream %s has no routing version yet: run weir migrate", in.stream.Name)
	}
	return in.history.Routing(ctx, in.stream.Name, number)
}
