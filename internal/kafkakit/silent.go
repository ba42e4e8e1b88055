package kafkakit

import (
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Silent is a static member of a group, put there with another client's library, that says nothing from then on, as a process that was
// killed: to the broker it is a member until its session is over.
type Silent struct {
	kit        *Kit
	client     *kgo.Client
	group      string
	instance   string
	Member     string
	Generation int32
	Partitions []int
}

// Silence joins group, waits until its leader has shared out topic, and falls silent. Where it is the leader itself, it takes all n partitions.
func (kit *Kit) Silence(group, topic, instance string, n int) *Silent {
	kit.T.Helper()
	s := &Silent{kit: kit, client: kit.producer(), group: group, instance: instance}
	kit.T.Cleanup(s.client.Close)
	for {
		err := s.join(topic, n)
		if err == nil {
			return s
		}
		if !errors.Is(err, kerr.RebalanceInProgress) && !kerr.IsRetriable(err) {
			kit.T.Fatal(err)
		}
	}
}

func (s *Silent) join(topic string, n int) error {
	subscription := kmsg.NewConsumerMemberMetadata()
	subscription.Version, subscription.Topics = 1, []string{topic}
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "weir-sticky", subscription.AppendTo(nil)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.InstanceID, join.MemberID, join.ProtocolType = s.group, &s.instance, s.Member, "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = int32(GroupOptions().SessionTimeout/time.Millisecond), 30_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{protocol}
	joined, err := join.RequestWith(s.kit.Ctx, s.client)
	if err == nil {
		err = kerr.ErrorForCode(joined.ErrorCode)
	}
	if err != nil {
		return err
	}
	s.Member, s.Generation = joined.MemberID, joined.Generation
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.InstanceID, sync.MemberID, sync.Generation = s.group, &s.instance, s.Member, s.Generation
	sync.ProtocolType, sync.Protocol = joined.ProtocolType, joined.Protocol
	if joined.LeaderID == s.Member {
		share := kmsg.NewConsumerMemberAssignmentTopic()
		share.Topic = topic
		for p := range n {
			share.Partitions = append(share.Partitions, int32(p))
		}
		all := kmsg.NewConsumerMemberAssignment()
		all.Version, all.Topics = 1, []kmsg.ConsumerMemberAssignmentTopic{share}
		mine := kmsg.NewSyncGroupRequestGroupAssignment()
		mine.MemberID, mine.MemberAssignment = s.Member, all.AppendTo(nil)
		sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{mine}
	}
	synced, err := sync.RequestWith(s.kit.Ctx, s.client)
	if err == nil {
		err = kerr.ErrorForCode(synced.ErrorCode)
	}
	if err != nil {
		return err
	}
	var given kmsg.ConsumerMemberAssignment
	if err := given.ReadFrom(synced.MemberAssignment); err != nil {
		return err
	}
	for _, t := range given.Topics {
		for _, p := range t.Partitions {
			s.Partitions = append(s.Partitions, int(p))
		}
	}
	slices.Sort(s.Partitions)
	return nil
}

// Commit sends a commit that the member had on its way, and returns the coordinator's answer.
func (s *Silent) Commit(topic string, partition int, offset int64) error {
	s.kit.T.Helper()
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = int32(partition), offset
	of := kmsg.NewOffsetCommitRequestTopic()
	of.Topic, of.Partitions = topic, []kmsg.OffsetCommitRequestTopicPartition{p}
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.MemberID, request.Generation = s.group, s.Member, s.Generation // as weir's commits: without the instance
	request.Topics = []kmsg.OffsetCommitRequestTopic{of}
	answer, err := request.RequestWith(s.kit.Ctx, s.client)
	if err != nil {
		s.kit.T.Fatal(err)
	}
	return kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
}
