package ingest

import (
	"fmt"
	"regexp"
	"strings"
)

// Stream is the name of a stream: Live, or that of a replay.
type Stream string

// Live is the stream that gateways feed.
const Live Stream = "live"

const replayPrefix = "replay/"

// Replay is the stream of the replay called name.
func Replay(name string) Stream { return Stream(replayPrefix + name) }

// Replay is the name of the replay that the stream belongs to; ok is false for the live one, which belongs to none.
func (s Stream) Replay() (name string, ok bool) { return strings.CutPrefix(string(s), replayPrefix) }

// The stages, as --stages, consumer groups, metrics and dead letters name them.
const (
	StageRoute   = "route"
	StageDetect  = "detect"
	StageRecord  = "record"
	StageEnforce = "enforce"
	// StageRecordBlocks is RECORD's second half, which stores block decisions: a group of its own, and no stage to choose.
	StageRecordBlocks = "record-blocks"
)

// TopicNames are the names of a stream's topics.
type TopicNames struct {
	Requests, Keyed, Hits, Blocks, Dead string
}

// All lists the topics in the order of the stream.
func (n TopicNames) All() []string { return []string{n.Requests, n.Keyed, n.Hits, n.Blocks, n.Dead} }

// Topics gives the stream's topics: weir.requests, …, of a replay weir.replay.NAME.requests, …. Check says whether Kafka takes
// them.
func (s Stream) Topics(namespace string) TopicNames {
	prefix := s.prefix(namespace)
	return TopicNames{
		Requests: prefix + "requests", Keyed: prefix + "keyed", Hits: prefix + "hits", Blocks: prefix + "blocks", Dead: prefix + "dead",
	}
}

// Group names the consumer group of a stage: weir.route, weir.replay.NAME.route, ….
func (s Stream) Group(namespace, stage string) string { return s.prefix(namespace) + stage }

func (s Stream) prefix(namespace string) string {
	if name, ok := s.Replay(); ok {
		return namespace + ".replay." + name + "."
	}
	return namespace + "."
}

// Check refuses what is not to be the name of a new stream. Dots separate the parts of a topic's name, so that a replay's
// may have none.
func (s Stream) Check() error {
	if s == Live {
		return nil
	}
	name, ok := s.Replay()
	if !ok {
		return fmt.Errorf("stream %q: want %q or %q", string(s), string(Live), replayPrefix+"NAME")
	}
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$`).MatchString(name) {
		return fmt.Errorf("replay name %q: want 1 to 80 letters, digits, _ or -, a letter or digit first", name)
	}
	return nil
}

// CheckNamespace refuses a namespace from which no topic names can be made, or not unambiguously.
func CheckNamespace(namespace string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`).MatchString(namespace) {
		return fmt.Errorf("namespace %q: want 1 to 80 letters, digits, _ or -", namespace)
	}
	return nil
}
