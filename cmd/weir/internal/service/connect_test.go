package service

import (
	"slices"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/config"
)

// What readers wait for the end of a transaction in is what gateways write, and nothing that weir writes for itself.
func TestNoReaderOfWeirsOwnTopicsWaitsForATransaction(t *testing.T) {
	c := config.Default()
	c.Namespace = "prod"
	if got := committedTopics(c); !slices.Equal(got, []string{"prod.requests"}) {
		t.Errorf("by default readers of %q wait for transactions, want requests alone", got)
	}
	c.Kafka.RequestsIsolation = config.ReadUncommitted
	if got := committedTopics(c); len(got) > 0 {
		t.Errorf("read_uncommitted, and readers of %q wait for transactions", got)
	}
}
