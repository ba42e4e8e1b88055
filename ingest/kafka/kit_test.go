package kafka_test

import (
	"os"
	"time"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

func values(messages []traffic.Message) []string {
	out := make([]string, len(messages))
	for i, m := range messages {
		out[i] = string(m.Value)
	}
	return out
}

// patience is when a test says that what it waits for does not come: a busy broker keeps members waiting for their session's end.
const patience = 3 * time.Minute

func onRealKafka() bool { return os.Getenv(testbed.KafkaKind.Env()) != "" }
