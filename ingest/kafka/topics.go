package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
)

// TopicReport says what EnsureTopics did for one topic.
type TopicReport struct {
	Name       string
	Partitions int      // what it has now
	Created    bool     // else it was there
	Corrected  []string // settings that were changed: "message.timestamp.type is CreateTime, want LogAppendTime"
	Note       string   // something that an operator should know, or ""
}

// topicTimeout bounds how long a new topic may take until all its partitions have leaders.
const topicTimeout = 30 * time.Second

// EnsureTopics creates the topics that are missing, and corrects the settings of those that are there: times must be the
// broker's (LogAppendTime), batches of MaxMessageBytes must fit, records must not be compacted, and retention must be
// what configuration says, if it says anything. A wrong partition count where it is fixed is an error, for the records
// that are there lie by the old one. Reports are in the order of specs, as far as it came.
func (k *Client) EnsureTopics(ctx context.Context, specs []ingest.TopicSpec) ([]TopicReport, error) {
	for _, spec := range specs {
		if err := spec.Check(); err != nil {
			return nil, err
		}
	}
	created, err := k.admin().createTopics(ctx, specs)
	if err != nil {
		return nil, err
	}
	var reports []TopicReport
	for _, spec := range specs {
		report := TopicReport{Name: spec.Name, Created: created[spec.Name]}
		if report.Partitions, err = k.admin().awaitLeaders(ctx, spec.Name); err != nil {
			return reports, err
		}
		if report.Note, err = spec.CheckPartitions(report.Partitions); err != nil {
			return reports, err
		}
		if report.Corrected, err = k.admin().correctTopic(ctx, spec); err != nil {
			return reports, err
		}
		reports = append(reports, report)
	}
	return reports, nil
}

// VerifyTopics changes nothing: it is for the start of a stage. The error lists everything that is wrong and says what
// to do; a shorter or longer retention is the operator's business and no error.
func (k *Client) VerifyTopics(ctx context.Context, specs []ingest.TopicSpec) error {
	var wrong []error
	for _, spec := range specs {
		has, err := k.Partitions(ctx, spec.Name)
		if errors.Is(err, kafka.UnknownTopicOrPartition) {
			wrong = append(wrong, fmt.Errorf("topic %s does not exist, or this user may not describe it: run weir migrate, or see docs/security.md", spec.Name))
			continue
		}
		if err != nil {
			return err
		}
		if _, err := spec.CheckPartitions(has); err != nil {
			wrong = append(wrong, err)
		}
		settings, err := k.admin().topicSettings(ctx, spec.Name)
		if err != nil {
			return err
		}
		for _, d := range spec.Differences(settings) {
			if !d.OperatorsChoice() {
				wrong = append(wrong, fmt.Errorf("topic %s: %s: run weir migrate", spec.Name, d))
			}
		}
	}
	return errors.Join(wrong...)
}

// topicAdmin is the work on topics, one request each.
type topicAdmin struct{ k *Client }

func (k *Client) admin() topicAdmin { return topicAdmin{k} }

// createTopics creates what is missing and returns which those were. It always asks, because the cached layout may be
// as old as MetadataTTL.
func (a topicAdmin) createTopics(ctx context.Context, specs []ingest.TopicSpec) (map[string]bool, error) {
	request := &kafka.CreateTopicsRequest{}
	for _, spec := range specs {
		topic := kafka.TopicConfig{Topic: spec.Name, NumPartitions: spec.Partitions, ReplicationFactor: -1}
		if spec.Replication > 0 {
			topic.ReplicationFactor = spec.Replication
		}
		settings := spec.Settings()
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: key, ConfigValue: settings[key]})
		}
		request.Topics = append(request.Topics, topic)
	}
	answer, err := a.k.client.CreateTopics(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("creating topics: %w", err)
	}
	created := make(map[string]bool)
	for _, topic := range request.Topics {
		err, answered := answer.Errors[topic.Topic]
		if !answered {
			err = errNoAnswer
		}
		if err == nil {
			created[topic.Topic] = true
			continue
		}
		if _, missing := a.k.Partitions(ctx, topic.Topic); missing == nil || errors.Is(err, kafka.TopicAlreadyExists) {
			continue // it is there; that it must not be created, by rights or policy, does not matter
		}
		if errors.Is(err, kafka.InvalidReplicationFactor) {
			err = fmt.Errorf("%w: lower the replication factor %d, or start more brokers", err, topic.ReplicationFactor)
		}
		return nil, fmt.Errorf("creating topic %s: %w", topic.Topic, err)
	}
	return created, nil
}

// awaitLeaders waits until every partition of topic has a leader and returns how many there are.
func (a topicAdmin) awaitLeaders(ctx context.Context, topic string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, topicTimeout)
	defer cancel()
	wait := retry.NewBackoff(20*time.Millisecond, 500*time.Millisecond)
	for {
		leaders, err := a.k.leaders(ctx, topic)
		if err == nil {
			without := slices.Index(leaders, -1)
			if without < 0 && len(leaders) > 0 {
				// Brokers are told of new partitions a little after clients are: the leaders themselves must answer.
				_, err := a.k.bounds(ctx, topic, ingest.AllPartitions(len(leaders)))
				return len(leaders), err
			}
			err = fmt.Errorf("topic %s partition %d has no leader: %w", topic, max(0, without), kafka.LeaderNotAvailable)
		}
		if !passing(err) || wait.Wait(ctx) != nil {
			return 0, err
		}
	}
}

func (a topicAdmin) topicSettings(ctx context.Context, topic string) (map[string]string, error) {
	answer, err := a.k.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}},
	})
	if err != nil {
		return nil, fmt.Errorf("settings of topic %s: %w", topic, err)
	}
	if len(answer.Resources) != 1 {
		return nil, fmt.Errorf("settings of topic %s: %w", topic, errNoAnswer)
	}
	if err := answer.Resources[0].Error; err != nil {
		return nil, fmt.Errorf("settings of topic %s: %w", topic, err)
	}
	settings := make(map[string]string)
	for _, entry := range answer.Resources[0].ConfigEntries {
		settings[entry.ConfigName] = entry.ConfigValue
	}
	return settings, nil
}

// Retention asks for what a topic keeps.
func (k *Client) Retention(ctx context.Context, topic string) (ingest.Retention, error) {
	settings, err := k.admin().topicSettings(ctx, topic)
	if err != nil {
		return ingest.Retention{}, err
	}
	return ingest.ParseRetention(settings), nil
}

// correctTopic sets what differs and returns what it was.
func (a topicAdmin) correctTopic(ctx context.Context, spec ingest.TopicSpec) ([]string, error) {
	settings, err := a.topicSettings(ctx, spec.Name)
	if err != nil {
		return nil, err
	}
	differences := spec.Differences(settings)
	if len(differences) == 0 {
		return nil, nil
	}
	corrected := []string(nil)
	resource := kafka.IncrementalAlterConfigsRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: spec.Name}
	for _, d := range differences {
		resource.Configs = append(resource.Configs, kafka.IncrementalAlterConfigsRequestConfig{
			Name: d.Setting, Value: d.Want, ConfigOperation: kafka.ConfigOperationSet,
		})
		corrected = append(corrected, d.String())
	}
	answer, err := a.k.client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{resource},
	})
	if err == nil && len(answer.Resources) != 1 {
		err = errNoAnswer
	}
	if err == nil {
		err = answer.Resources[0].Error
	}
	if err != nil {
		return nil, fmt.Errorf("topic %s: %s, and cannot be changed: %w", spec.Name, strings.Join(corrected, ", "), err)
	}
	return corrected, nil
}

// DeleteTopics removes topics; one that is not there is no error.
func (k *Client) DeleteTopics(ctx context.Context, topics ...string) error {
	if len(topics) == 0 {
		return nil
	}
	answer, err := k.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: topics})
	if err != nil {
		return fmt.Errorf("deleting topics %s: %w", strings.Join(topics, ", "), err)
	}
	var failed []error
	for _, topic := range topics {
		if err := answer.Errors[topic]; err != nil && !errors.Is(err, kafka.UnknownTopicOrPartition) {
			failed = append(failed, fmt.Errorf("deleting topic %s: %w", topic, err))
		}
	}
	return errors.Join(failed...)
}

// TopicExists says whether the cluster knows topic. The answer may be as old as Config.MetadataTTL, so a caller that
// waits for a deletion asks until it is false.
func (k *Client) TopicExists(ctx context.Context, topic string) (bool, error) {
	_, err := k.Partitions(ctx, topic)
	if errors.Is(err, kafka.UnknownTopicOrPartition) {
		return false, nil
	}
	return err == nil, err
}
