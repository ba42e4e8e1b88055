package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
)

// lookAtTopics holds the live stream's topics against the configuration.
func (e *examination) lookAtTopics(ctx context.Context) []Finding {
	if !e.kafkaUp {
		return nil
	}
	specs := e.conf.TopicSettings().Topics(e.names)
	for i := range specs {
		specs[i].Replication = max(specs[i].Replication, safeReplicas) // so that min.insync.replicas is looked at, whoever made the topic
	}
	topics, err := e.kafka.InspectTopics(ctx, specs)
	e.topics = map[string]kafka.InspectedTopic{}
	var found []Finding
	for _, t := range topics {
		e.topics[t.Name] = t
		found = append(found, judgeTopic(&t, e.conf.Kafka.Replication, e.brokers))
	}
	if err != nil {
		found = append(found, failed("topics", err, "see the brokers' logs"))
	}
	return found
}

// safeReplicas is how many replicas, with min.insync.replicas 2, let any one broker go without a loss and without a stop: weir appends
// with acks=all, which is as many as are in sync.
const (
	safeReplicas  = 3
	minInsync     = "min.insync.replicas"
	insyncRemedy  = "set min.insync.replicas=2 for it; with kafka.replication: 3 weir migrate does"
	replicaRemedy = "kafka-reassign-partitions.sh gives a topic more replicas; weir migrate only makes new ones with kafka.replication"
)

// judgeTopic says the worst about a topic, which is to have some replicas, of a cluster of some brokers.
func judgeTopic(t *kafka.InspectedTopic, replicas, brokers int) Finding {
	name := "topic " + t.Name
	insync := slices.IndexFunc(t.Wrong, func(d ingest.TopicDifference) bool { return d.Setting == minInsync })
	thin := ""
	if insync >= 0 {
		thin = t.Wrong[insync].Got
		t.Wrong = slices.Delete(t.Wrong, insync, insync+1)
	}
	text := fmt.Sprintf("%s, %s", plural.Of(t.Partitions, "partition"), plural.Of(t.Replicas, "replica"))
	switch {
	case !t.Exists:
		return failing(name, "run weir migrate", "it does not exist")
	case len(t.Leaderless) > 0:
		return failing(name, "start the brokers that hold them", "%s; nobody leads partitions %s", text, numbered(t.Leaderless))
	case len(t.Wrong) > 0:
		remedy := "run weir migrate"
		if slices.ContainsFunc(t.Wrong, func(d ingest.TopicDifference) bool { return d.Fixed }) {
			remedy = "correct kafka.partitions.keyed, or use another namespace: the count is fixed when the topic is made"
		}
		return failing(name, remedy, "%s; %s", text, joined(t.Wrong))
	case t.Replicas < replicas:
		return warning(name, replicaRemedy, "%s; kafka.replication says %d", text, replicas)
	case t.Replicas == 1 && brokers > 1:
		return warning(name, replicaRemedy+"; set kafka.replication: 3", "%s on %s; with the broker that has it goes what it holds; wanted: %d replicas", text, plural.Of(brokers, "broker"), min(brokers, safeReplicas))
	case t.Replicas >= safeReplicas && thin != "":
		return warning(name, insyncRemedy, "%s; min.insync.replicas is %s, want 2: what one broker alone has acknowledged is lost with it", text, thin)
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

// lookAtWindows holds what the keyed topic keeps against the windows that are counted from it.
func (e *examination) lookAtWindows(context.Context) []Finding {
	if e.routing == nil || len(e.routing.Rules) == 0 || !e.topics[e.names.Keyed].Exists {
		return nil
	}
	return []Finding{judgeWindows(e.routing.Rules, e.topics[e.names.Keyed].Retention.Time, e.names.Keyed)}
}

// judgeWindows is about a topic that keeps records so long; 0 is for ever. Beside its window a rule waits for what is late.
func judgeWindows(all []rules.Version, keeps time.Duration, topic string) Finding {
	const name = "windows"
	longest := &all[0]
	for i := range all {
		if all[i].Window+all[i].Lateness > longest.Window+longest.Lateness {
			longest = &all[i]
		}
	}
	need := longest.Window + longest.Lateness
	if keeps > 0 && keeps < need {
		return warning(name, fmt.Sprintf("set kafka.retention.keyed to %s or more and run weir migrate", config.Duration(need)),
			"rule %s counts over %s, and %s keeps %s, want %s: where both snapshots of a partition are lost, it counts too little for a window",
			terminal.Safe(longest.ID), config.Duration(longest.Window), topic, config.Duration(keeps), config.Duration(need))
	}
	kept := "for ever"
	if keeps > 0 {
		kept = config.Duration(keeps).String()
	}
	return fine(name, "the longest, with lateness, is %s (rule %s); %s keeps %s", config.Duration(need), terminal.Safe(longest.ID), topic, kept)
}
