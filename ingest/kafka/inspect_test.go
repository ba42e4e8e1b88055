package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/internal/testbed"
)

func TestInspectCluster(t *testing.T) {
	kit := kafkakit.New(t)
	got, err := kit.K.InspectCluster(kit.Ctx)
	if err != nil || len(got.Brokers) == 0 || len(got.Lacks) != 0 || !strings.HasPrefix(got.Speaks, "Produce ") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestInspectTopics(t *testing.T) {
	kit := kafkakit.New(t)
	name := testbed.Namespace(t)
	spec := ingest.TopicSpec{Name: name, Partitions: 3, FixedPartitions: true, Replication: 1, Retention: time.Hour, MaxMessageBytes: 1 << 20}
	absent := spec
	absent.Name += ".absent"
	if _, err := kit.K.EnsureTopics(kit.Ctx, []ingest.TopicSpec{spec}); err != nil {
		t.Fatal(err)
	}
	got, err := kit.K.InspectTopics(kit.Ctx, []ingest.TopicSpec{spec, absent})
	want := []kafka.InspectedTopic{
		{Name: spec.Name, Exists: true, Partitions: 3, Replicas: 1, Retention: ingest.Retention{Time: time.Hour}}, {Name: absent.Name},
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	other := spec
	other.Partitions, other.Retention, other.MaxMessageBytes = 4, 2*time.Hour, 2<<20
	got, err = kit.K.InspectTopics(kit.Ctx, []ingest.TopicSpec{other})
	if err != nil || len(got) != 1 || !slices.Equal(texts(got[0].Wrong), []string{"it has 3 partitions, want 4", "max.message.bytes is 1048576, want 2097152"}) ||
		!slices.Equal(texts(got[0].Differs), []string{"retention.ms is 3600000, want 7200000"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	other.FixedPartitions = false
	if got, err = kit.K.InspectTopics(kit.Ctx, []ingest.TopicSpec{other}); err != nil || len(got[0].Wrong) != 1 || len(got[0].Differs) != 2 {
		t.Errorf("a count that is not fixed: %+v, %v", got, err)
	}
	if there, err := kit.K.TopicExists(kit.Ctx, absent.Name); there || err != nil {
		t.Errorf("looking for a topic has made it (%v), or %v", there, err)
	}
}

// A topic that was deleted just now is gone, though a broker that has not learned it yet tells its layout.
func TestInspectTopicJustDeleted(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 1)
	topic := kit.Topic(2)
	spec := ingest.TopicSpec{Name: topic, Partitions: 2, Replication: 1, Retention: time.Hour, MaxMessageBytes: 1 << 20}
	refused := func(code int16) {
		cluster.ControlKey(int16(kmsg.DescribeConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
			answer := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
			answer.Resources = []kmsg.DescribeConfigsResponseResource{{ErrorCode: code, ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic}}
			return answer, nil, true
		})
	}
	refused(kerr.UnknownTopicOrPartition.Code)
	got, err := kit.K.InspectTopics(kit.Ctx, []ingest.TopicSpec{spec})
	if want := []kafka.InspectedTopic{{Name: topic}}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	refused(kerr.TopicAuthorizationFailed.Code)
	if _, err := kit.K.InspectTopics(kit.Ctx, []ingest.TopicSpec{spec}); err == nil {
		t.Error("settings that may not be read are no error")
	}
}

func TestInspectGroup(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2)
	testbed.Eventually(t, 30*time.Second, func() error { // the first question has a new cluster make the topic of its groups
		got, err := kit.K.InspectGroup(kit.Ctx, topic+".absent")
		if err == nil && got != (kafka.InspectedGroup{State: "Dead"}) {
			t.Fatalf("a group that nobody has joined: %+v", got)
		}
		return err
	})
	ctx, leave := context.WithCancel(kit.Ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- kit.K.Group(topic+".watched", topic, kafka.GroupOptions{}).Run(ctx, func(ctx context.Context, _ ingest.Assignment) error {
			<-ctx.Done()
			return nil
		})
	}()
	testbed.Eventually(t, 30*time.Second, func() error {
		got, err := kit.K.InspectGroup(kit.Ctx, topic+".watched")
		if err == nil && got != (kafka.InspectedGroup{State: "Stable", Members: 1}) {
			err = fmt.Errorf("got %+v", got)
		}
		return err
	})
	leave()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestTailReadsTheLastRecords(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(3)
	kit.Put(topic, map[int][]string{0: kafkakit.Numbered("a", 10), 2: kafkakit.Numbered("c", 2)})
	log := kit.K.Log(topic)
	bounds, err := log.Bounds(kit.Ctx, []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	kit.Put(topic, map[int][]string{0: {"later"}}) // behind the bounds
	got, err := ingest.Tail(kit.Ctx, log, bounds, 3)
	if want := []string{"a7", "a8", "a9", "c0", "c1"}; err != nil || !slices.Equal(values(got), want) {
		t.Errorf("got %q, %v; want %q", values(got), err, want)
	}
	if got, err := ingest.Tail(kit.Ctx, log, map[int]ingest.Bounds{1: bounds[1]}, 3); err != nil || len(got) != 0 {
		t.Errorf("of an empty partition: %q, %v", values(got), err)
	}
	over, cancel := context.WithCancel(kit.Ctx)
	cancel()
	if _, err := ingest.Tail(over, log, bounds, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context has ended: %v", err)
	}
}

func texts(differences []ingest.TopicDifference) []string {
	var out []string
	for _, d := range differences {
		out = append(out, d.String())
	}
	return out
}
