package kafka

import (
	"slices"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// abortedTransaction is what a fetch answer tells about a transaction that was aborted: the producer's records from
// first up to its next abort marker do not count.
type abortedTransaction struct {
	producer int64
	first    int64
}

// recordSet is what a fetch answer holds for one partition, decoded.
type recordSet struct {
	messages  []traffic.Message
	next      int64        // after the last batch that was looked at, or the asked offset
	following traffic.Time // append time of the batch at next, whose header was there; else 0
	control   int          // control batches passed by
	aborted   int          // records of aborted transactions passed by
}

// decodeRecords reads a partition's batches as a read-committed consumer does (Kafka's own: CompletedFetch): control batches
// and aborted records are skipped, as are the records below the offset that was asked for, because brokers answer whole
// batches. A batch cut off at the end is left for the next fetch. Batches before a bad one are delivered, and the next fetch
// starts at the bad one; it is an error only at the beginning of the set. Batches for which there is no room are left as they
// came; the next fetch asks for them again. A nil room has no bound.
func decodeRecords(room *fetchRoom, at ingest.Position, set []byte, aborts []abortedTransaction, c *codecs) (recordSet, error) {
	partition, asked := at.Partition, at.Offset
	out := recordSet{next: asked, messages: make([]traffic.Message, 0, recordHint(set))}
	aborts = slices.Clone(aborts)
	slices.SortFunc(aborts, func(a, b abortedTransaction) int {
		switch {
		case a.first < b.first:
			return -1
		case a.first > b.first:
			return 1
		}
		return 0
	})
	open := make(map[int64]bool) // producers inside an aborted transaction
	held := 0
	for len(set) > 0 && room.admits(at, held) {
		batch, rest, whole, err := nextBatch(set)
		if err == nil && !whole {
			break
		}
		before := len(out.messages)
		if err == nil {
			for len(aborts) > 0 && aborts[0].first <= batch.last() {
				open[aborts[0].producer] = true
				aborts = aborts[1:]
			}
			err = out.add(partition, &batch, asked, open, c)
		}
		if err != nil {
			if out.next > asked {
				return out, nil // without its time: what a bad batch says is not believed
			}
			if rest, ok := passedBy(set, asked); ok {
				set = rest
				continue
			}
			return recordSet{next: asked}, err
		}
		held += room.take(out.messages[before:])
		out.next = max(out.next, batch.last()+1)
		set = rest
	}
	out.following = appendTimeOf(set)
	return out, nil
}

// add decodes one batch; on an error out is as before.
func (s *recordSet) add(partition int, batch *batchHeader, asked int64, open map[int64]bool, c *codecs) error {
	if batch.attributes&attributeControl != 0 {
		aborted, err := batch.abortMarker(c)
		if err != nil {
			return err
		}
		if aborted {
			delete(open, batch.producer)
		}
		s.control++
		return nil
	}
	if batch.last() < asked {
		return nil
	}
	if batch.attributes&attributeTransactional != 0 && open[batch.producer] {
		s.aborted += int(batch.count)
		return nil
	}
	before := len(s.messages)
	err := batch.eachRecord(c, func(offset, ms int64, _, value []byte) error {
		if offset >= asked {
			s.messages = append(s.messages, traffic.Message{
				Partition: partition, Offset: offset, Appended: recordTime(ms), Value: value,
			})
		}
		return nil
	})
	if err != nil {
		s.messages = s.messages[:before]
	}
	return err
}
