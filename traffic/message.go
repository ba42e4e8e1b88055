package traffic

// Message is one record of a log as a stage receives it.
type Message struct {
	Partition int
	Offset    int64
	Appended  Time // the broker's append time
	Value     []byte
}

// DeadLetter is a record that a stage could not use: what it was, where it lay, and why. It is the JSON value of the
// dead-letter topic. Nothing is dropped without one, or without a counter that names the reason.
type DeadLetter struct {
	Version   int    `json:"v"` // DeadLetterVersion
	Stage     string `json:"stage" mask:"-"`
	Reason    string `json:"reason" mask:"-"` // short and countable: malformed, oversized, empty, refused, …
	Detail    string `json:"detail,omitempty" mask:"text"`
	Topic     string `json:"topic" mask:"-"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
	Size      int    `json:"size"`            // bytes of the whole value
	Value     []byte `json:"value,omitempty"` // its first DeadLetterBytes bytes, base64 in JSON
}

// DeadLetterVersion is the format version written into DeadLetter.Version.
const DeadLetterVersion = 1

// DeadLetterBytes is how much of a refused value a dead letter keeps.
const DeadLetterBytes = 16 << 10

// NewDeadLetter describes m, cut to DeadLetterBytes.
func NewDeadLetter(stage, reason, detail, topic string, m Message) DeadLetter {
	value := m.Value
	if len(value) > DeadLetterBytes {
		value = value[:DeadLetterBytes]
	}
	return DeadLetter{
		Version: DeadLetterVersion, Stage: stage, Reason: reason, Detail: detail,
		Topic: topic, Partition: m.Partition, Offset: m.Offset, Size: len(m.Value), Value: value,
	}
}
