package history

import (
	"testing"

	"github.com/weirhq/weir/ingest"
)

// A stream whose topics could not be named must not be made: nothing would ever run on it. What older builds made is read.
func TestNewStreamsAreNamedAsTheirTopics(t *testing.T) {
	for _, name := range []string{"replay/a.b", "replay/_x"} {
		if _, err := (&Store{}).CreateStream(t.Context(), name, PartitionCounts{}); err == nil {
			t.Errorf("stream %s was made", name)
		}
	}
	if err := CheckStream("replay/a.b"); err != nil {
		t.Errorf("a replay that an older build made: %v", err)
	}
	if ingest.Replay("x") != ReplayPrefix+"x" || Live != string(ingest.Live) {
		t.Error("history and ingest do not name streams alike")
	}
}
