package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/ingest"
)

func TestSplitRequests(t *testing.T) {
	batch := func(partition int, leader int32, size int) encodedBatch {
		return encodedBatch{partition: partition, leader: leader, set: make([]byte, size)}
	}
	for _, tc := range []struct {
		name    string
		batches []encodedBatch
		want    []string
	}{
		{"nothing", nil, nil},
		{"small ones together", []encodedBatch{batch(0, 1, 10), batch(1, 1, 10), batch(2, 1, 10)}, []string{"1: 0 1 2"}},
		{"by leader", []encodedBatch{batch(0, 1, 10), batch(1, 2, 10), batch(2, 1, 10)}, []string{"1: 0 2", "2: 1"}},
		{"much in a few", []encodedBatch{batch(0, 1, 3<<20), batch(1, 1, 3<<20), batch(2, 1, 3<<20), batch(3, 1, 3<<20), batch(4, 1, 3<<20),
			batch(5, 1, 3<<20), batch(6, 1, 3<<20), batch(7, 1, 3<<20)}, []string{"1: 0 1", "1: 2 3", "1: 4 5", "1: 6 7"}},
		{"a large one alone", []encodedBatch{batch(0, 1, 31<<20), batch(1, 1, 31<<20)}, []string{"1: 0", "1: 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, request := range splitRequests(tc.batches) {
				text, size := fmt.Sprint(request[0].leader, ":"), 0
				for _, b := range request {
					text += fmt.Sprint(" ", b.partition)
					size += len(b.set)
				}
				if size > mostRequestBytes {
					t.Errorf("a request of %d bytes", size)
				}
				got = append(got, strings.Replace(text, " :", ":", 1))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Who may send a batch again without writing it twice goes by the type: only what the leader checks before it appends has
// certainly not been written.
func TestAppendErrorTellsWhatIsNotWritten(t *testing.T) {
	for code, unwritten := range map[kafka.Error]bool{
		kafka.LeaderNotAvailable: true, kafka.NotLeaderForPartition: true, kafka.UnknownTopicOrPartition: true, kafka.NotEnoughReplicas: true,
		kafka.NotEnoughReplicasAfterAppend: false, kafka.RequestTimedOut: false, kafka.MessageSizeTooLarge: false,
	} {
		err := produceError(code, "says the broker")
		if !errors.Is(err, code) || errors.As(err, new(*ingest.UnwrittenError)) != unwritten {
			t.Errorf("%v: got %#v, want unwritten %v", code, err, unwritten)
		}
	}
	if err := produceError(0, ""); err != nil {
		t.Error(err)
	}
}
