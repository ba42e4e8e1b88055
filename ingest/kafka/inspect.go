package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/describegroups"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/weirhq/weir/ingest"
)

// InspectedCluster is what a Kafka cluster says about itself.
type InspectedCluster struct {
	Brokers []string // as they advertise themselves, host:port, ascending by id
	// Speaks names how far the cluster's protocol goes, by the two requests that carry records: "Produce 0-12, Fetch 4-17".
	// Kafka does not tell its version.
	Speaks string
	// Lacks names the requests that weir sends and the cluster does not take.
	Lacks []string
}

// InspectCluster asks who the brokers are and what they speak. It changes nothing, as all of Inspect….
func (k *Client) InspectCluster(ctx context.Context) (InspectedCluster, error) {
	if err := k.Ping(ctx); err != nil {
		return InspectedCluster{}, err
	}
	answer, err := k.client.ApiVersions(ctx, &kafka.ApiVersionsRequest{})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		return InspectedCluster{}, fmt.Errorf("kafka at %s does not tell what it speaks: %w", k.addresses(), err)
	}
	layout, err := k.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{}})
	if err != nil {
		return InspectedCluster{}, fmt.Errorf("kafka at %s does not tell its brokers: %w", k.addresses(), err)
	}
	var found InspectedCluster
	slices.SortFunc(layout.Brokers, func(a, b kafka.Broker) int { return a.ID - b.ID })
	for _, b := range layout.Brokers {
		found.Brokers = append(found.Brokers, net.JoinHostPort(b.Host, strconv.Itoa(b.Port)))
	}
	takes := make(map[protocol.ApiKey]kafka.ApiVersionsResponseApiKey, len(answer.ApiKeys))
	for _, key := range answer.ApiKeys {
		takes[protocol.ApiKey(key.ApiKey)] = key
	}
	produce, fetch := takes[protocol.Produce], takes[protocol.Fetch]
	found.Speaks = fmt.Sprintf("Produce %d-%d, Fetch %d-%d", produce.MinVersion, produce.MaxVersion, fetch.MinVersion, fetch.MaxVersion)
	found.Lacks = lackingRequests(takes)
	return found, nil
}

// lackingRequests compares what weir sends with what a cluster takes.
func lackingRequests(takes map[protocol.ApiKey]kafka.ApiVersionsResponseApiKey) []string {
	sent := []protocol.ApiKey{
		protocol.Produce, protocol.Fetch, protocol.ListOffsets, protocol.Metadata, protocol.OffsetCommit, protocol.OffsetFetch,
		protocol.FindCoordinator, protocol.JoinGroup, protocol.Heartbeat, protocol.LeaveGroup, protocol.SyncGroup,
		protocol.CreateTopics, protocol.DeleteTopics, protocol.DescribeConfigs, protocol.IncrementalAlterConfigs,
	}
	var lacks []string
	for _, key := range sent {
		got, known := takes[key]
		if !known {
			lacks = append(lacks, key.String())
			continue
		}
		if got.MaxVersion < int(key.MinVersion()) || got.MinVersion > int(key.MaxVersion()) {
			lacks = append(lacks, fmt.Sprintf("%s %d-%d (it takes %d-%d)", key, key.MinVersion(), key.MaxVersion(), got.MinVersion, got.MaxVersion))
		}
	}
	return lacks
}

// InspectedTopic is a topic as the cluster has it, compared with its spec.
type InspectedTopic struct {
	Name       string
	Exists     bool
	Partitions int
	Replicas   int                      // of the partition that has the fewest
	Leaderless []int                    // partitions that nobody leads: they can be neither read nor written
	Behind     []int                    // partitions with a replica that is not in sync
	Wrong      []ingest.TopicDifference // what weir depends on: settings, and a partition count where it is fixed
	Differs    []ingest.TopicDifference // what is the operator's business: see TopicDifference.OperatorsChoice
	Retention  ingest.Retention         // what it keeps
}

// InspectTopics looks at topics without changing them. A topic that does not exist is no error.
func (k *Client) InspectTopics(ctx context.Context, specs []ingest.TopicSpec) ([]InspectedTopic, error) {
	found := make([]InspectedTopic, 0, len(specs))
	for _, spec := range specs {
		t, err := k.admin().inspectTopic(ctx, spec)
		if err != nil {
			return found, err
		}
		found = append(found, t)
	}
	return found, nil
}

func (a topicAdmin) inspectTopic(ctx context.Context, spec ingest.TopicSpec) (InspectedTopic, error) {
	t := InspectedTopic{Name: spec.Name}
	layout, err := a.topicLayout(ctx, spec.Name)
	if errors.Is(err, kafka.UnknownTopicOrPartition) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	settings, err := a.topicSettings(ctx, spec.Name)
	if errors.Is(err, kafka.UnknownTopicOrPartition) {
		return t, nil // it was deleted just now: brokers learn that one after the other
	}
	t.Exists = true
	t.read(layout)
	if err != nil {
		return t, err
	}
	t.Retention = ingest.ParseRetention(settings)
	differences := spec.Differences(settings)
	if d, differs := spec.PartitionDifference(t.Partitions); differs {
		differences = slices.Insert(differences, 0, d)
	}
	for _, d := range differences {
		if d.OperatorsChoice() {
			t.Differs = append(t.Differs, d)
		} else {
			t.Wrong = append(t.Wrong, d)
		}
	}
	return t, nil
}

func (t *InspectedTopic) read(partitions []metadata.ResponsePartition) {
	t.Partitions = len(partitions)
	for i, p := range partitions {
		if i == 0 || len(p.ReplicaNodes) < t.Replicas {
			t.Replicas = len(p.ReplicaNodes)
		}
		if p.LeaderID < 0 {
			t.Leaderless = append(t.Leaderless, int(p.PartitionIndex))
		} else if len(p.IsrNodes) < len(p.ReplicaNodes) {
			t.Behind = append(t.Behind, int(p.PartitionIndex))
		}
	}
}

func (a topicAdmin) topicLayout(ctx context.Context, topic string) ([]metadata.ResponsePartition, error) {
	answer, err := a.k.roundTrip(ctx, a.k.cfg.RequestTimeout, &metadata.Request{TopicNames: []string{topic}})
	if err != nil {
		return nil, fmt.Errorf("layout of topic %s: %w", topic, err)
	}
	layout, ok := answer.(*metadata.Response)
	if !ok || len(layout.Topics) != 1 {
		return nil, fmt.Errorf("layout of topic %s: unexpected answer %T", topic, answer)
	}
	if code := layout.Topics[0].ErrorCode; code != 0 {
		return nil, fmt.Errorf("layout of topic %s: %w", topic, kafka.Error(code))
	}
	return layout.Topics[0].Partitions, nil
}

// InspectedGroup is what a consumer group's coordinator says of it.
type InspectedGroup struct {
	State   string // Stable, Empty, PreparingRebalance, CompletingRebalance; Dead: nobody has ever joined or committed
	Members int
}

// InspectGroup asks for the state of a consumer group. A group that does not exist is Dead.
func (k *Client) InspectGroup(ctx context.Context, group string) (InspectedGroup, error) {
	// kafka-go's own call fails on metadata of members that it cannot decode; they are not needed here.
	answer, err := k.roundTrip(ctx, k.cfg.RequestTimeout, &describegroups.Request{Groups: []string{group}})
	if err != nil {
		return InspectedGroup{}, fmt.Errorf("group %s: %w", group, err)
	}
	response, ok := answer.(*describegroups.Response)
	if !ok || len(response.Groups) != 1 {
		return InspectedGroup{}, fmt.Errorf("group %s: unexpected answer %T", group, answer)
	}
	g := response.Groups[0]
	if err := kafka.Error(g.ErrorCode); g.ErrorCode != 0 && !errors.Is(err, kafka.GroupIdNotFound) {
		return InspectedGroup{}, fmt.Errorf("group %s: %w", group, err)
	}
	state := g.GroupState
	if state == "" {
		state = "Dead"
	}
	return InspectedGroup{State: state, Members: len(g.Members)}, nil
}
