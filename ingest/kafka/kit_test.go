package kafka_test

import (
	"os"

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

func onRealKafka() bool { return os.Getenv(testbed.KafkaKind.Env()) != "" }
