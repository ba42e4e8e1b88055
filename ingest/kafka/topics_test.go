package kafka_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/internal/testbed"
)

func TestEnsureTopics(t *testing.T) {
	kit := kafkakit.New(t)
	names := ingest.Live.Topics(testbed.Namespace(t))
	settings := ingest.TopicSettings{RequestsPartitions: 3, KeyedPartitions: 8, HitsPartitions: 2, BlocksPartitions: 2, Replication: 1,
		KeyedRetention: 48 * time.Hour, DeadRetention: -1}
	specs := settings.Topics(names)
	if err := kit.K.VerifyTopics(kit.Ctx, specs); err == nil || strings.Count(err.Error(), "does not exist, or this user may not describe it: run weir migrate") != 5 {
		t.Errorf("before: %v, want five topics missing", err)
	}
	reports, err := kit.K.EnsureTopics(kit.Ctx, specs)
	if err != nil || len(reports) != 5 {
		t.Fatal(reports, err)
	}
	for i, want := range []int{3, 8, 2, 2, 1} {
		if r := reports[i]; !r.Created || r.Partitions != want || len(r.Corrected) > 0 || r.Note != "" || r.Name != specs[i].Name {
			t.Errorf("report %+v, want %s created with %d partitions", r, specs[i].Name, want)
		}
	}
	for topic, want := range map[string]map[string]string{
		names.Requests: {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "4194304", "cleanup.policy": "delete"},
		names.Keyed:    {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "33554432", "retention.ms": "172800000"},
		names.Dead:     {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "33554432", "retention.ms": "-1"},
	} {
		has, err := kit.K.TopicSettings(kit.Ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range want {
			if has[key] != value {
				t.Errorf("%s: %s is %s, want %s", topic, key, has[key], value)
			}
		}
	}
	if err := kit.K.VerifyTopics(kit.Ctx, specs); err != nil {
		t.Errorf("after: %v", err)
	}
	reports, err = kit.K.EnsureTopics(kit.Ctx, specs)
	for _, r := range reports {
		if r.Created || len(r.Corrected) > 0 {
			t.Errorf("the second time: %+v", r)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

func TestEnsureTopicsMends(t *testing.T) {
	kit := kafkakit.New(t)
	specs := []ingest.TopicSpec{{Name: testbed.Namespace(t) + ".keyed", Partitions: 2, MaxMessageBytes: 1 << 20, Retention: time.Hour, FixedPartitions: true}}
	name := specs[0].Name
	_, err := kit.K.Raw().CreateTopics(kit.Ctx, &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{{Topic: name, NumPartitions: 2, ReplicationFactor: 1,
		ConfigEntries: []kafkago.ConfigEntry{{ConfigName: "message.timestamp.type", ConfigValue: "CreateTime"}, {ConfigName: "max.message.bytes", ConfigValue: "1000"},
			{ConfigName: "retention.ms", ConfigValue: "1234"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := kit.K.VerifyTopics(kit.Ctx, specs); err == nil || !strings.Contains(err.Error(), "message.timestamp.type is CreateTime, want LogAppendTime: run weir migrate") ||
		!strings.Contains(err.Error(), "max.message.bytes is 1000, want 1048576") || strings.Contains(err.Error(), "retention") {
		t.Errorf("verify: %v", err)
	}
	reports, err := kit.K.EnsureTopics(kit.Ctx, specs)
	if err != nil || len(reports) != 1 || reports[0].Created || len(reports[0].Corrected) != 3 {
		t.Fatalf("%+v, %v, want three settings corrected", reports, err)
	}
	testbed.Eventually(t, 5*time.Second, func() error { return kit.K.VerifyTopics(kit.Ctx, specs) })
	setTopic(kit, name, "max.message.bytes", "2000000")
	testbed.Eventually(t, 5*time.Second, func() error {
		if has, err := kit.K.TopicSettings(kit.Ctx, name); err != nil || has["max.message.bytes"] != "2000000" {
			return errors.Join(err, errors.New("not set yet"))
		}
		return nil
	})
	if err := kit.K.VerifyTopics(kit.Ctx, specs); err != nil {
		t.Errorf("a greater bound: %v", err)
	}
	specs[0].Partitions = 3
	for what, err := range map[string]error{"verify": kit.K.VerifyTopics(kit.Ctx, specs), "ensure": second(kit.K.EnsureTopics(kit.Ctx, specs))} {
		if err == nil || !strings.Contains(err.Error(), "has 2 partitions, the configuration says 3: its partition count is fixed") {
			t.Errorf("%s with another partition count: %v", what, err)
		}
	}
	specs[0].FixedPartitions = false
	if reports, err := kit.K.EnsureTopics(kit.Ctx, specs); err != nil || reports[0].Note == "" || reports[0].Partitions != 2 {
		t.Errorf("where the count is free: %+v, %v", reports, err)
	}
}

func second[A, B any](_ A, b B) B { return b }

func TestEnsureTopicsRefuses(t *testing.T) {
	kit := kafkakit.New(t)
	for _, tc := range []struct {
		spec ingest.TopicSpec
		want string
	}{
		{ingest.TopicSpec{Partitions: 1, MaxMessageBytes: 1}, "without a name"},
		{ingest.TopicSpec{Name: "x", MaxMessageBytes: 1}, "0 partitions"},
		{ingest.TopicSpec{Name: "x", Partitions: 1}, "0 bytes"},
		{ingest.TopicSpec{Name: testbed.Namespace(t) + ".x", Partitions: 1, MaxMessageBytes: 1 << 20, Replication: 5}, "start more brokers"},
	} {
		if _, err := kit.K.EnsureTopics(kit.Ctx, []ingest.TopicSpec{tc.spec}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.spec, err, tc.want)
		}
	}
}

func TestDeleteTopics(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(1)
	if err := kit.K.DeleteTopics(kit.Ctx, topic, topic+".missing"); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 10*time.Second, func() error {
		if _, err := kit.K.Partitions(kit.Ctx, topic); !errors.Is(err, kafkago.UnknownTopicOrPartition) {
			return errors.Join(errors.New("still there"), err)
		}
		return nil
	})
	// And again under the same name, as a replay that is repeated does.
	if _, err := kit.K.EnsureTopics(kit.Ctx, []ingest.TopicSpec{{Name: topic, Partitions: 2, MaxMessageBytes: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
	kit.Put(topic, map[int][]string{1: {"x"}})
	if err := kit.K.DeleteTopics(kit.Ctx); err != nil {
		t.Errorf("nothing to delete: %v", err)
	}
}
