package simulation

import (
	"testing"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/ingest"
)

// The contract of blocks must not depend on ingest, and keeps its own word for the stream that may write them.
func TestTheStreamThatMayBlockIsTheLiveOne(t *testing.T) {
	if blocklist.StreamLive != string(ingest.Live) {
		t.Errorf("blocks come of stream %q, gateways feed %q", blocklist.StreamLive, ingest.Live)
	}
}
