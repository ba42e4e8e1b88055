package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/ingest"
)

// exchangeCompact has r sent and answered with response as kmsg, which shares no code with this package, writes it, and
// has kmsg read what was sent into request.
func exchangeCompact(t *testing.T, r *compactRequest, request kmsg.Request, response kmsg.Response) *compactAnswer {
	t.Helper()
	body := response.AppendTo([]byte{0, 0, 0, 0, 0})
	c := &conversation{}
	c.answer.Reset(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	if !r.Required(map[protocol.ApiKey]int16{r.key: 0}) {
		t.Fatal("the exchange is left to the library")
	}
	answer, err := r.RawExchange(c)
	if err != nil {
		t.Fatal(err)
	}
	sent := c.sent.Bytes()
	head := 4 + 2 + 2 + 4 + 2 + len(clientID) + 1
	if size := int(binary.BigEndian.Uint32(sent)); size != len(sent)-4 || sent[head-1] != 0 {
		t.Fatalf("header % x of %d bytes", sent[:head], len(sent))
	}
	if key, v := int16(binary.BigEndian.Uint16(sent[4:])), binary.BigEndian.Uint16(sent[6:]); key != request.Key() ||
		v != 0 {
		t.Fatalf("request %d of version %d", key, v)
	}
	if err := request.ReadFrom(sent[head:]); err != nil {
		t.Fatal(err)
	}
	if again := request.AppendTo(nil); !bytes.Equal(again, sent[head:]) {
		t.Errorf("sent % x, which is % x", sent[head:], again)
	}
	return answer.(*compactAnswer)
}

func producers(t *testing.T, code int16, starts ...int64) *kmsg.DescribeProducersResponse {
	t.Helper()
	topic, partition := kmsg.NewDescribeProducersResponseTopic(), kmsg.NewDescribeProducersResponseTopicPartition()
	topic.Topic, partition.Partition, partition.ErrorCode = "requests", 3, code
	partition.ErrorMessage = kmsg.StringPtr("why")
	for i, start := range starts {
		p := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		p.ProducerID, p.CurrentTxnStartOffset = int64(100+i), start
		partition.ActiveProducers = append(partition.ActiveProducers, p)
	}
	topic.Partitions = append(topic.Partitions, partition)
	response := kmsg.NewPtrDescribeProducersResponse()
	response.Topics = append(response.Topics, topic)
	response.UnknownTags.Set(9, []byte("a later build's"))
	return response
}

func TestDescribeProducersOnTheWire(t *testing.T) {
	for _, c := range []struct {
		name   string
		starts []int64
		want   ingest.Transaction
	}{
		{"nobody", nil, ingest.Transaction{Start: ingest.NoOffset}},
		{"none is in a transaction", []int64{-1, -1}, ingest.Transaction{Start: ingest.NoOffset}},
		{"the first of several", []int64{-1, 90, 70, 80}, ingest.Transaction{Start: 70, Producer: 102}},
		{"at the log's start", []int64{5, 0}, ingest.Transaction{Start: 0, Producer: 101}},
	} {
		request := kmsg.NewPtrDescribeProducersRequest()
		answer := exchangeCompact(t, &compactRequest{key: describeProducers, body: askProducers("requests", 3)},
			request,
			producers(t, 0, c.starts...))
		got, err := answer.firstOpen(3)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		}
		if len(request.Topics) != 1 || request.Topics[0].Topic != "requests" || request.Topics[0].Partitions[0] != 3 {
			t.Errorf("asked for %+v", request.Topics)
		}
	}
	answer := exchangeCompact(t, &compactRequest{key: describeProducers, body: askProducers("requests", 3)},
		kmsg.NewPtrDescribeProducersRequest(), producers(t, int16(kafka.TopicAuthorizationFailed)))
	if _, err := answer.firstOpen(3); !errors.Is(err, kafka.TopicAuthorizationFailed) {
		t.Errorf("a refusal is read as %v", err)
	}
}

func TestListTransactionsOnTheWire(t *testing.T) {
	response := kmsg.NewPtrListTransactionsResponse()
	for id, producer := range map[string]int64{"payments-1": 102, "another": 103} {
		s := kmsg.NewListTransactionsResponseTransactionState()
		s.TransactionalID, s.ProducerID, s.TransactionState = id, producer, "Ongoing"
		response.TransactionStates = append(response.TransactionStates, s)
	}
	request := kmsg.NewPtrListTransactionsRequest()
	answer := exchangeCompact(t, &compactRequest{key: listTransactions, body: askTransactions(102)}, request, response)
	if id, err := answer.idOf(102); err != nil || id != "payments-1" {
		t.Errorf("got %q, %v", id, err)
	}
	if len(request.ProducerIDFilters) != 1 || request.ProducerIDFilters[0] != 102 || len(request.StateFilters) != 0 {
		t.Errorf("asked for %+v", request)
	}
	response = kmsg.NewPtrListTransactionsResponse()
	response.ErrorCode = int16(kafka.TransactionalIDAuthorizationFailed)
	answer = exchangeCompact(t, &compactRequest{key: listTransactions, body: askTransactions(102)},
		kmsg.NewPtrListTransactionsRequest(), response)
	if _, err := answer.idOf(102); !errors.Is(err, kafka.TransactionalIDAuthorizationFailed) {
		t.Errorf("a refusal is read as %v", err)
	}
}

// A broker that is older than the request is sent nothing.
func TestCompactRequestOfAnOldBroker(t *testing.T) {
	r := &compactRequest{key: describeProducers, body: askProducers("requests", 3)}
	r.Required(map[protocol.ApiKey]int16{protocol.Fetch: 11})
	c := &conversation{}
	if _, err := r.RawExchange(c); !errors.Is(err, errNotTold) || c.sent.Len() > 0 {
		t.Errorf("%v after % x", err, c.sent.Bytes())
	}
}

// Whatever a broker answers about transactions, it is read or refused.
func FuzzTransactionAnswers(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 2, 2, 'q', 2, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 1, 2, 4, 'i', 'd', '1', 0, 0, 0, 0, 0, 0, 0, 102, 1, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, body []byte) {
		answer := func(key protocol.ApiKey) *compactAnswer {
			return &compactAnswer{key: key, answerCursor: answerCursor{rest: bytes.Clone(body)}}
		}
		if found, err := answer(describeProducers).firstOpen(3); err == nil && found.Start != ingest.NoOffset &&
			len(body) < 37 {
			t.Errorf("%d bytes became %+v", len(body), found)
		}
		if id, err := answer(listTransactions).idOf(102); err == nil && !strings.Contains(string(body), id) {
			t.Errorf("% x became %q", body, id)
		}
	})
}
