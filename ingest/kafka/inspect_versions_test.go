package kafka

import (
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

func TestLackingRequests(t *testing.T) {
	takes := map[protocol.ApiKey]kafka.ApiVersionsResponseApiKey{}
	for key := protocol.Produce; key <= protocol.IncrementalAlterConfigs; key++ {
		takes[key] = kafka.ApiVersionsResponseApiKey{MaxVersion: 100}
	}
	if lacks := lackingRequests(takes); len(lacks) != 0 {
		t.Errorf("of a cluster that takes all versions: %q", lacks)
	}
	delete(takes, protocol.IncrementalAlterConfigs)
	takes[protocol.Fetch] = kafka.ApiVersionsResponseApiKey{MinVersion: 90, MaxVersion: 100}
	lacks := lackingRequests(takes)
	if len(lacks) != 2 || !strings.HasPrefix(lacks[0], "Fetch ") || !strings.HasSuffix(lacks[0], "(it takes 90-100)") || lacks[1] != "IncrementalAlterConfigs" {
		t.Errorf("got %q", lacks)
	}
}
