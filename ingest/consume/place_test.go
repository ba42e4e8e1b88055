package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

func TestConsumerLostRecords(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 1)
	topic := kit.Topic(1)
	kit.Put(topic, map[int][]string{0: kafkakit.Numbered("e", 10)})
	if err := kit.K.CommitInitial(kit.Ctx, topic, topic, map[int]ingest.Commit{0: {Offset: 2}}); err != nil {
		t.Fatal(err)
	}
	if err := cluster.DeleteRecords(topic, 0, 7); err != nil {
		t.Fatal(err)
	}
	sink := newNoteSink(t)
	stop := startConsumer(kit, kit.K, topic, sink)
	if err := kit.K.AwaitCaughtUp(kit.Ctx, topic, topic); err != nil {
		t.Fatal(err)
	}
	stop()
	if got := sink.offsets(0); !slices.Equal(got, []int64{7, 8, 9}) {
		t.Errorf("applied %v", got)
	}
	if n := testutil.ToFloat64(kit.Counter(t, "weir_stage_lost_records_total")); n != 5 {
		t.Errorf("%v lost records counted, want 5", n)
	}
}

// Records deleted under a running consumer that cannot keep up are counted too.
func TestConsumerLostRecordsWhileRunning(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 1)
	topic := kit.Topic(1)
	kit.Put(topic, map[int][]string{0: {"a"}})
	sink := newNoteSink(t)
	stop := startConsumer(kit, kit.K, topic, sink)
	if err := kit.K.AwaitCaughtUp(kit.Ctx, topic, topic); err != nil {
		t.Fatal(err)
	}
	away := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: topic, Err: kerr.NotLeaderForPartition, Count: -1})
	if err := away.Wait(kit.Ctx, 1); err != nil {
		t.Fatal(err)
	}
	kit.Put(topic, map[int][]string{0: kafkakit.Numbered("e", 4)})
	if err := cluster.DeleteRecords(topic, 0, 3); err != nil {
		t.Fatal(err)
	}
	away.Remove()
	if err := kit.K.AwaitCaughtUp(kit.Ctx, topic, topic); err != nil {
		t.Fatal(err)
	}
	stop()
	if got := sink.offsets(0); !slices.Equal(got, []int64{0, 3, 4}) {
		t.Errorf("applied %v", got)
	}
	if n := testutil.ToFloat64(kit.Counter(t, "weir_stage_lost_records_total")); n != 2 {
		t.Errorf("%v lost records counted, want 2", n)
	}
}

// A commit beyond the end of the log is no reason to skip what is written next: the stage says so, and goes on with
// all that the log has.
func TestConsumerCommitBeyondEnd(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2)
	kit.Put(topic, map[int][]string{0: {"a"}, 1: {"b"}})
	if err := kit.K.CommitInitial(kit.Ctx, topic, topic, map[int]ingest.Commit{0: {Offset: 3}}); err != nil {
		t.Fatal(err)
	}
	sink, told := newNoteSink(t), make(chan ingest.Loss, 9)
	stop := startConsumer(kit, kit.K, topic, sink, func(o *Options) {
		o.Lost = func(_ context.Context, l ingest.Loss) error { told <- l; return nil }
	})
	testbed.Eventually(t, 20*time.Second, func() error {
		if len(sink.offsets(1)) == 0 {
			return errors.New("the other partition is not read")
		}
		return nil
	})
	alarm := "# HELP weir_stage_stranded_partition 1 while the commit lies beyond the end of the log: for 5 " +
		"seconds, then the stage goes on.\n" +
		"# TYPE weir_stage_stranded_partition gauge\n" + `weir_stage_stranded_partition{partition="0",stage="test"} `
	const calm = `weir_stage_stranded_partition{partition="1",stage="test"} 0` + "\n"
	testbed.Eventually(t, 20*time.Second, func() error {
		if got := sink.offsets(0); !slices.Equal(got, []int64{0}) {
			return fmt.Errorf("applied %v", got)
		}
		return nil
	})
	kit.Put(topic, map[int][]string{0: {"c"}})
	if err := kit.K.AwaitCaughtUp(kit.Ctx, topic, topic); err != nil {
		t.Fatal(err)
	}
	if got := sink.offsets(0); !slices.Equal(got, []int64{0, 1}) {
		t.Errorf("applied %v", got)
	}
	if err := testutil.GatherAndCompare(kit.Registry, strings.NewReader(alarm+"0\n"+calm), "weir_stage_stranded_partition"); err != nil {
		t.Error(err)
	}
	expectHalted(t, kit, 0, 0)
	stop()
	if l := <-told; l.Stage != "test" || l.Partition != 0 || l.From != 3 || l.Next != 0 ||
		l.Log != (ingest.Bounds{End: 1}) || len(told) != 0 {
		t.Errorf("told %+v, and %d more", l, len(told))
	}
}

// expectHalted asks which of the partitions 0 and 1 are said to have stopped.
func expectHalted(t *testing.T, kit *kafkakit.Kit, first, second int) {
	t.Helper()
	const name = "weir_stage_partition_halted"
	want := "# HELP " + name + " 1 while the stage cannot go on with a partition; see weir partitions list and the log.\n# TYPE " + name + " gauge\n" +
		fmt.Sprintf("%[1]s{partition=\"0\",stage=\"test\"} %[2]d\n%[1]s{partition=\"1\",stage=\"test\"} %[3]d\n", name, first, second)
	if err := testutil.GatherAndCompare(kit.Registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}

// A record that a newer build wrote holds its partition, which a gauge shows until a process takes it.
func TestConsumerShowsWhatWaitsForAnUpgrade(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2)
	kit.Put(topic, map[int][]string{0: {"newer"}, 1: {"b"}})
	sink, upgraded := newNoteSink(t), make(chan struct{})
	sink.before = func(_ context.Context, batch []traffic.Message) error {
		select {
		case <-upgraded:
			return nil
		default:
		}
		if batch[0].Partition == 0 {
			return fmt.Errorf("recording: %w", &detectors.UnknownFormatError{What: "hit", Got: "2", Known: "1"})
		}
		return nil
	}
	stop := startConsumer(kit, kit.K, topic, sink)
	alarm := func(waits int) error {
		const name = "weir_stage_newer_format_partition"
		want := "# HELP " + name + " 1 while a record that a newer build wrote waits for an upgrade of this process.\n# TYPE " + name + " gauge\n" +
			fmt.Sprintf("%[1]s{partition=\"0\",stage=\"test\"} %[2]d\n%[1]s{partition=\"1\",stage=\"test\"} 0\n", name, waits)
		return testutil.GatherAndCompare(kit.Registry, strings.NewReader(want), name)
	}
	testbed.Eventually(t, 20*time.Second, func() error {
		if len(sink.offsets(1)) == 0 {
			return errors.New("the other partition is not read")
		}
		return alarm(1)
	})
	if commits, err := kit.K.FetchCommits(kit.Ctx, topic, topic, []int{0}); err != nil || commits[0].Offset != 0 {
		t.Errorf("committed past it: %+v, %v", commits, err)
	}
	close(upgraded)
	testbed.Eventually(t, 20*time.Second, func() error { return alarm(0) })
	stop()
	if got := sink.offsets(0); !slices.Equal(got, []int64{0}) {
		t.Errorf("applied %v", got)
	}
}

// Commits move over what is no record, so that a log that ends with a marker counts as read.
func TestConsumerPassesControlRecords(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(1)
	kit.Put(topic, map[int][]string{0: {"a"}})
	kit.Transact(topic, false, "aborted")
	sink := newNoteSink(t)
	committed := kit.Client(func(c *kafka.Config) { c.Committed, c.Registerer = []string{topic}, nil })
	stop := startConsumer(kit, committed, topic, sink)
	if err := kit.K.AwaitCaughtUp(kit.Ctx, topic, topic); err != nil {
		t.Fatal(err)
	}
	stop()
	if got := sink.offsets(0); !slices.Equal(got, []int64{0}) {
		t.Errorf("applied %v", got)
	}
}

// A commit without an answer makes the consumer join anew, and go on.
func TestConsumerCommitUnanswered(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 1)
	topic := kit.Topic(1)
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errors.New("cut"), true })
	kit.Put(topic, map[int][]string{0: {"a"}})
	stop := startConsumer(kit, kit.K, topic, newNoteSink(t))
	if err := kit.K.AwaitCaughtUp(kit.Ctx, topic, topic); err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(kit.Counter(t, "weir_kafka_group_rejoins_total")); n != 1 {
		t.Errorf("%v rejoins counted, want 1", n)
	}
	stop()
}
