package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
)

func (e *examination) lookAtKafka(ctx context.Context) []finding {
	c, err := e.kafka.InspectCluster(ctx)
	if err != nil {
		return []finding{failed("kafka", err, "start Kafka, or correct kafka.brokers")}
	}
	e.kafkaUp = true
	text := fmt.Sprintf("%s (%s); it speaks %s", terminal.Plural(len(c.Brokers), "broker"), terminal.FirstFew(c.Brokers), c.Speaks)
	if len(c.Lacks) > 0 {
		return []finding{failing("kafka", "use Apache Kafka 2.3 or newer, or a build of weir that speaks what it takes",
			"%s; it does not take what weir sends: %s", text, strings.Join(c.Lacks, ", "))}
	}
	return []finding{fine("kafka", "%s", text)}
}

// lookAtTopics holds the live stream's topics against the configuration.
func (e *examination) lookAtTopics(ctx context.Context) []finding {
	if !e.kafkaUp {
		return nil
	}
	topics, err := e.kafka.InspectTopics(ctx, e.conf.TopicSettings().Topics(e.names))
	e.topics = map[string]kafka.InspectedTopic{}
	var found []finding
	for _, t := range topics {
		e.topics[t.Name] = t
		found = append(found, judgeTopic(&t))
	}
	if err != nil {
		found = append(found, failed("topics", err, "see the brokers' logs"))
	}
	return found
}

// judgeTopic says the worst about a topic.
func judgeTopic(t *kafka.InspectedTopic) finding {
	name := "topic " + t.Name
	text := fmt.Sprintf("%s, %s", terminal.Plural(t.Partitions, "partition"), terminal.Plural(t.Replicas, "replica"))
	switch {
	case !t.Exists:
		return failing(name, "run weir migrate", "it does not exist")
	case len(t.Leaderless) > 0:
		return failing(name, "start the brokers that hold them", "%s; nobody leads partitions %s", text, numbered(t.Leaderless))
	case len(t.Wrong) > 0:
		mend := "run weir migrate"
		if slices.ContainsFunc(t.Wrong, func(d ingest.TopicDifference) bool { return d.Fixed }) {
			mend = "correct kafka.partitions.keyed, or use another namespace: the count is fixed when the topic is made"
		}
		return failing(name, mend, "%s; %s", text, joined(t.Wrong))
	case len(t.Behind) > 0:
		return warning(name, "see what became of the brokers that hold the other replicas", "%s; replicas of partitions %s are not in sync",
			text, numbered(t.Behind))
	case len(t.Differs) > 0:
		return warning(name, "weir migrate sets retention; for partitions, correct kafka.partitions", "%s; %s", text, joined(t.Differs))
	}
	return fine(name, "%s, settings as they should be", text)
}

func joined(differences []ingest.TopicDifference) string {
	texts := make([]string, len(differences))
	for i, d := range differences {
		texts[i] = d.String()
	}
	return strings.Join(texts, "; ")
}

func numbered(partitions []int) string {
	names := make([]string, len(partitions))
	for i, p := range partitions {
		names[i] = fmt.Sprint(p)
	}
	return terminal.FirstFew(names)
}
