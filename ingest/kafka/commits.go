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

// groupCommits are the commits of a group for one topic.
type groupCommits struct {
	k            *Client
	group, topic string
}

// memberCommits is a member's access to its group's commits for one generation.
type memberCommits struct {
	groupCommits
	generation int
	member     string
}

var _ ingest.Commits = (*memberCommits)(nil)

// Fetch implements Commits.
func (c *memberCommits) Fetch(ctx context.Context, partitions []int) (map[int]ingest.Commit, error) {
	return c.fetch(ctx, partitions)
}

// Commit implements Commits.
func (c *memberCommits) Commit(ctx context.Context, commits map[int]ingest.Commit) error {
	return c.commit(ctx, &kafka.OffsetCommitRequest{GenerationID: c.generation, MemberID: c.member}, commits)
}

// CommitInitial stores commits for a group that has no members, as `weir migrate` does before a group's first start. A
// group with members refuses.
func (k *Client) CommitInitial(ctx context.Context, group, topic string, commits map[int]ingest.Commit) error {
	c := groupCommits{k, group, topic}
	wait := retry.NewBackoff(100*time.Millisecond, time.Second)
	deadline := time.Now().Add(topicTimeout)
	for {
		err := c.commit(ctx, &kafka.OffsetCommitRequest{GenerationID: -1}, commits)
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
	return groupCommits{k, group, topic}.fetch(ctx, partitions)
}

func (c groupCommits) fetch(ctx context.Context, partitions []int) (map[int]ingest.Commit, error) {
	wait := retry.NewBackoff(50*time.Millisecond, time.Second)
	deadline := time.Now().Add(topicTimeout)
	for {
		commits, err := c.fetchOnce(ctx, partitions)
		if err == nil {
			return commits, nil
		}
		if c.k.life.Err() != nil || !passing(err) || time.Now().After(deadline) || wait.Wait(ctx) != nil {
			return nil, fmt.Errorf("commits of group %s for topic %s: %w", c.group, c.topic, err)
		}
	}
}

func (c groupCommits) fetchOnce(ctx context.Context, partitions []int) (map[int]ingest.Commit, error) {
	if len(partitions) == 0 {
		return map[int]ingest.Commit{}, nil // to Kafka, no partitions would mean all of all topics
	}
	if c.k.life.Err() != nil {
		return nil, errKafkaClosed
	}
	answer, err := c.k.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: c.group, Topics: map[string][]int{c.topic: partitions}})
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
	for _, p := range answer.Topics[c.topic] {
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
func (c groupCommits) commit(ctx context.Context, request *kafka.OffsetCommitRequest, commits map[int]ingest.Commit) error {
	if len(commits) == 0 {
		return nil
	}
	offsets := make([]kafka.OffsetCommit, 0, len(commits))
	for partition, commit := range commits {
		offsets = append(offsets, kafka.OffsetCommit{Partition: partition, Offset: commit.Offset, Metadata: commit.Metadata})
	}
	slices.SortFunc(offsets, func(a, b kafka.OffsetCommit) int { return a.Partition - b.Partition })
	request.GroupID, request.Topics = c.group, map[string][]kafka.OffsetCommit{c.topic: offsets}
	wait := retry.NewBackoff(50*time.Millisecond, time.Second)
	for {
		err := c.commitOnce(ctx, request, commits)
		if err == nil {
			return nil
		}
		if errors.Is(err, errGroupLoading) && wait.Wait(ctx) == nil {
			continue
		}
		c.k.metrics.commitFailed(c.group, err)
		return fmt.Errorf("commit of group %s generation %d for topic %s: %w", c.group, request.GenerationID, c.topic, err)
	}
}

// errGroupLoading says that the coordinator refused every partition because it is still loading the group.
var errGroupLoading = errors.New("the group is being loaded")

func (c groupCommits) commitOnce(ctx context.Context, request *kafka.OffsetCommitRequest, commits map[int]ingest.Commit) error {
	if c.k.life.Err() != nil {
		return errKafkaClosed
	}
	answer, err := c.k.client.OffsetCommit(ctx, request)
	if err != nil {
		return err
	}
	answers := make(map[int]error)
	for _, p := range answer.Topics[c.topic] {
		answers[p.Partition] = p.Error
	}
	return commitVerdict(commits, answers)
}

// commitVerdict turns the partitions' answers into one. A commit is refused only if every partition's was: the coordinator
// checks member and generation once, before it stores anything, and so never gives a mixed answer. Should one come, the
// outcome is unknown.
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

// Lag returns, for each partition of topic, how many offsets lie between group's commit and the end of the log. Without
// a commit that is the whole log.
func (k *Client) Lag(ctx context.Context, group, topic string) (map[int]int64, error) {
	n, err := k.Partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	partitions := ingest.AllPartitions(n)
	// The commits first: what is appended in between makes the lag larger than it was, never smaller.
	commits, err := k.FetchCommits(ctx, group, topic, partitions)
	if err != nil {
		return nil, err
	}
	bounds, err := k.bounds(ctx, topic, partitions)
	if err != nil {
		return nil, err
	}
	lag := make(map[int]int64, n)
	for p, b := range bounds {
		from := b.Start
		if commit, ok := commits[p]; ok {
			from = max(from, commit.Offset)
		}
		lag[p] = max(0, b.End-from)
	}
	return lag, nil
}

// AwaitCaughtUp waits until group has committed everything that topic holds. It is for a topic that nobody writes to any
// more, such as a replay's, and for a group that runs a Consumer: what a Consumer has committed is applied.
func (k *Client) AwaitCaughtUp(ctx context.Context, group, topic string) error {
	wait := retry.NewBackoff(50*time.Millisecond, 500*time.Millisecond)
	for {
		lag, err := k.Lag(ctx, group, topic)
		if err != nil {
			return fmt.Errorf("waiting for group %s: %w", group, err)
		}
		left := int64(0)
		for _, n := range lag {
			left += n
		}
		if left == 0 {
			return nil
		}
		if err := wait.Wait(ctx); err != nil {
			return fmt.Errorf("group %s still has %d records of topic %s to apply: %w", group, left, topic, err)
		}
	}
}
