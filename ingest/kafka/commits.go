package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
)

// memberCommits is a member's access to its group's commits for one generation.
type memberCommits struct {
	k            *Client
	group, topic string
	generation   int
	member       string
}

var _ ingest.Commits = (*memberCommits)(nil)

// Fetch implements Commits.
func (c *memberCommits) Fetch(ctx context.Context, partitions []int) (map[int]ingest.Commit, error) {
	return c.k.FetchCommits(ctx, c.group, c.topic, partitions)
}

// Commit implements Commits.
func (c *memberCommits) Commit(ctx context.Context, commits map[int]ingest.Commit) error {
	return c.k.commit(ctx, &kafka.OffsetCommitRequest{GroupID: c.group, GenerationID: c.generation, MemberID: c.member}, c.topic, commits)
}

// CommitInitial stores commits for a group that has no members, as `weir migrate` does before a group's first start. A
// group with members refuses.
func (k *Client) CommitInitial(ctx context.Context, group, topic string, commits map[int]ingest.Commit) error {
	wait := retry.NewBackoff(100*time.Millisecond, time.Second)
	deadline := time.Now().Add(topicPatience)
	for {
		err := k.commit(ctx, &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1}, topic, commits)
		if errors.Is(err, ingest.ErrGenerationOver) {
			return fmt.Errorf("group %s has running members, and only they may commit: stop them first: %w", group, err)
		}
		// Writing the same again does no harm here, whatever came of the attempt before.
		if err == nil || !passing(err) || time.Now().After(deadline) || wait.Wait(ctx) != nil {
			return err
		}
	}
}

// FetchCommits returns the stored commits of group; a partition without one is absent. While the coordinator moves or
// loads it is asked again, until ctx is done.
func (k *Client) FetchCommits(ctx context.Context, group, topic string, partitions []int) (map[int]ingest.Commit, error) {
	wait := retry.NewBackoff(50*time.Millisecond, time.Second)
	deadline := time.Now().Add(topicPatience)
	for {
		commits, err := k.fetchCommitsOnce(ctx, group, topic, partitions)
		if err == nil {
			return commits, nil
		}
		if k.life.Err() != nil || !passing(err) || time.Now().After(deadline) || wait.Wait(ctx) != nil {
			return nil, fmt.Errorf("commits of group %s for topic %s: %w", group, topic, err)
		}
	}
}

func (k *Client) fetchCommitsOnce(ctx context.Context, group, topic string, partitions []int) (map[int]ingest.Commit, error) {
	if len(partitions) == 0 {
		return map[int]ingest.Commit{}, nil // to Kafka, no partitions would mean all of all topics
	}
	if k.life.Err() != nil {
		return nil, errKafkaClosed
	}
	answer, err := k.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: partitions}})
	if err == nil {
		err = answer.Error
	}
	if errors.Is(err, kafka.GroupIdNotFound) {
		return map[int]ingest.Commit{}, nil // a group that nobody has joined yet has no commits
	}
	if err != nil {
		return nil, err
	}
	answered := make(map[int]bool)
	commits := make(map[int]ingest.Commit)
	for _, p := range answer.Topics[topic] {
		if p.Error != nil {
			return nil, fmt.Errorf("partition %d: %w", p.Partition, p.Error)
		}
		answered[p.Partition] = true
		if p.CommittedOffset >= 0 { // -1: none
			commits[p.Partition] = ingest.Commit{Offset: p.CommittedOffset, Metadata: p.Metadata}
		}
	}
	for _, p := range partitions {
		if !answered[p] {
			return nil, fmt.Errorf("partition %d: %w", p, errNoAnswer)
		}
	}
	return commits, nil
}

// commit sends one OffsetCommit, and again only while the coordinator says that it is still loading, for then it has
// looked at nothing. Every other failure ends it, because the caller must know whether the commit may have been stored.
func (k *Client) commit(ctx context.Context, request *kafka.OffsetCommitRequest, topic string, commits map[int]ingest.Commit) error {
	if len(commits) == 0 {
		return nil
	}
	offsets := make([]kafka.OffsetCommit, 0, len(commits))
	for partition, c := range commits {
		offsets = append(offsets, kafka.OffsetCommit{Partition: partition, Offset: c.Offset, Metadata: c.Metadata})
	}
	slices.SortFunc(offsets, func(a, b kafka.OffsetCommit) int { return a.Partition - b.Partition })
	request.Topics = map[string][]kafka.OffsetCommit{topic: offsets}
	wait := retry.NewBackoff(50*time.Millisecond, time.Second)
	for {
		err := k.commitOnce(ctx, request, topic, commits)
		if err == nil {
			return nil
		}
		if errors.Is(err, errGroupLoading) && wait.Wait(ctx) == nil {
			continue
		}
		k.metrics.commitErrors.WithLabelValues(request.GroupID, errorReason(err)).Inc()
		return fmt.Errorf("commit of group %s generation %d for topic %s: %w", request.GroupID, request.GenerationID, topic, err)
	}
}

// errGroupLoading says that the coordinator refused every partition because it is still loading the group.
var errGroupLoading = errors.New("the group is being loaded")

func (k *Client) commitOnce(ctx context.Context, request *kafka.OffsetCommitRequest, topic string, commits map[int]ingest.Commit) error {
	if k.life.Err() != nil {
		return errKafkaClosed
	}
	answer, err := k.client.OffsetCommit(ctx, request)
	if err != nil {
		return err
	}
	answers := make(map[int]error)
	for _, p := range answer.Topics[topic] {
		answers[p.Partition] = p.Error
	}
	return commitVerdict(commits, answers)
}

// commitVerdict turns the partitions' answers into one. Refused means that all were: the coordinator checks member and
// generation once, before it stores anything, so a mixed answer is none that it gives, and its outcome is unknown.
func commitVerdict(commits map[int]ingest.Commit, answers map[int]error) error {
	var failed error
	refused, loading := 0, 0
	for partition, c := range commits {
		err, answered := answers[partition]
		switch {
		case !answered:
			failed = fmt.Errorf("partition %d: %w", partition, errNoAnswer)
		case err == nil:
		case generationRefused(err):
			refused++
			failed = fmt.Errorf("%w: %w", ingest.ErrGenerationOver, err)
		case errors.Is(err, kafka.GroupLoadInProgress):
			loading++
			failed = fmt.Errorf("%w: %w", errGroupLoading, err)
		case errors.Is(err, kafka.OffsetMetadataTooLarge):
			return fmt.Errorf("partition %d: %d bytes of metadata are more than the broker takes (offset.metadata.max.bytes): %w",
				partition, len(c.Metadata), err)
		default:
			failed = fmt.Errorf("partition %d: %w", partition, err)
		}
	}
	mixed := refused > 0 && refused < len(commits) || loading > 0 && loading < len(commits)
	if mixed {
		return fmt.Errorf("refused for %d of %d partitions only", refused+loading, len(commits))
	}
	return failed
}

// generationRefused says that the coordinator refused the commit for the sake of the member or its generation. Both of
// Kafka's group coordinators decide these before they append to their log (validateOffsetCommit), Rebalance In Progress
// too: the group has a new generation that this member has not synchronized with. Not Coordinator and Coordinator Not
// Available are not among them: they are also answered when the append was begun and failed.
func generationRefused(err error) bool {
	for _, code := range []kafka.Error{kafka.IllegalGeneration, kafka.UnknownMemberId, kafka.RebalanceInProgress, kafka.FencedInstanceID} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}
