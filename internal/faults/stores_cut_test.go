package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/testbed"
)

// ownKafka starts a broker whose files can be put back.
func (b *stores) ownKafka() {
	if !b.real() {
		testbed.Missing(b, "there is no Apache Kafka to cut a topic of")
	}
	b.ownBroker()
}

// cutHits takes the end of hits away, as a broker does that loses what was in its memory only. What RECORD had not read
// of that it never will: DETECT has let go of what Kafka took. So history must say which offsets it has not read, and
// be right but for what these held. RECORD stands still at the end, so that there are some.
func (b *stores) cutHits() {
	broker, ok := b.brokers.(*java)
	if !ok {
		b.Fatalf("the broker is a %T", b.brokers)
	}
	signal := func(s syscall.Signal) {
		if err := broker.process[0].Signal(s); err != nil {
			b.Fatal(err)
		}
	}
	data, saved := filepath.Join(broker.dirs[0], "data"), b.TempDir()
	b.pause(2 * time.Second)
	signal(syscall.SIGSTOP)
	for p := range b.stream.Hits {
		name := fmt.Sprintf("%s-%d", b.stream.Topic("hits"), p)
		copyFolder(b, filepath.Join(data, name), filepath.Join(saved, name))
	}
	signal(syscall.SIGCONT)
	b.since()
	b.sends(b.form.down / 2)
	recorder := b.stages[slices.Index(stages(), "record")]
	recorder.freeze()
	b.works(time.Now())
	at := b.harmed()
	broker.stop(0, true)
	recorder.revive()
	for p := range b.stream.Hits {
		name := fmt.Sprintf("%s-%d", b.stream.Topic("hits"), p)
		kept, held := filepath.Join(saved, name), filepath.Join(data, name)
		b.lost = append(b.lost, hitsBeyond(b, held, int32(p), endOf(b, kept, int32(p)))...)
		if err := os.RemoveAll(held); err != nil {
			b.Fatal(err)
		}
		copyFolder(b, kept, held)
	}
	if len(b.lost) == 0 {
		b.Error("the power cut has taken no hit: it proves nothing")
	}
	broker.start(0)
	b.works(at)
	for _, rule := range []string{steady, risen, edited} {
		b.abuse(rule)
	}
	b.agree()
}

// endOf is the offset that would follow the last record in a partition's folder.
func endOf(t testing.TB, folder string, partition int32) int64 {
	t.Helper()
	records := recordsIn(t, folder, partition)
	if len(records) == 0 {
		return 0
	}
	return records[len(records)-1].Offset + 1
}

// hitsBeyond are the records of episodes in a partition's folder from an offset on.
func hitsBeyond(t testing.TB, folder string, partition int32, from int64) (all []exactness.HitRecord) {
	t.Helper()
	for _, r := range recordsIn(t, folder, partition) {
		if r.Offset < from {
			continue
		}
		h, ok, err := exactness.ReadHitRecord(r)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			all = append(all, h)
		}
	}
	return all
}

// recordsIn reads the records in a partition's folder, as the broker has written them. What it was about to write when
// it was stopped is none yet.
func recordsIn(t testing.TB, folder string, partition int32) (all []*kgo.Record) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(folder, "*.log"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("%s has no segments: %v", folder, err)
	}
	slices.Sort(segments)
	for _, segment := range segments {
		raw, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		answer := kmsg.NewFetchResponseTopicPartition()
		answer.Partition, answer.RecordBatches = partition, raw
		read, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Partition: partition}, &answer,
			kgo.DefaultDecompressor(), nil)
		if read.Err != nil {
			t.Fatalf("%s: %v", segment, read.Err)
		}
		all = append(all, read.Records...)
	}
	return all
}
