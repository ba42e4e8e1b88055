package kafka

import (
	"errors"
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/ingest"
)

func TestCommitVerdict(t *testing.T) {
	both := map[int]ingest.Commit{0: {Offset: 1}, 1: {Offset: 2}}
	for _, tc := range []struct {
		name    string
		answers map[int]error
		refused bool
		ok      bool
	}{
		{name: "taken", answers: map[int]error{0: nil, 1: nil}, ok: true},
		{name: "refused", answers: map[int]error{0: kafka.IllegalGeneration, 1: kafka.IllegalGeneration}, refused: true},
		{name: "unknown member", answers: map[int]error{0: kafka.UnknownMemberId, 1: kafka.UnknownMemberId}, refused: true},
		{name: "rebalance", answers: map[int]error{0: kafka.RebalanceInProgress, 1: kafka.RebalanceInProgress}, refused: true},
		{name: "refused for one only", answers: map[int]error{0: nil, 1: kafka.IllegalGeneration}},
		{name: "left out", answers: map[int]error{0: nil}},
		{name: "refused and left out", answers: map[int]error{0: kafka.IllegalGeneration}},
		{name: "another error", answers: map[int]error{0: kafka.NotCoordinatorForGroup, 1: nil}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := commitVerdict(both, tc.answers)
			if (err == nil) != tc.ok || errors.Is(err, ingest.ErrGenerationOver) != tc.refused {
				t.Errorf("got %v, want taken %v, refused %v", err, tc.ok, tc.refused)
			}
		})
	}
}
