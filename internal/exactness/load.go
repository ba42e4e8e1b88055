package exactness

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// LoadOptions say what a load is like. Events and Rate are required.
type LoadOptions struct {
	Events int           // so many at least
	Rate   int           // events a second
	Probes int           // probes a second, besides: see ProbeSent; default none
	Seed   uint64        // who does what, in which order
	Behind time.Duration // how much older than the clock events are; default 0

	// Last makes the load end with one event of the present in every partition, the only ones whose method is HEAD. With
	// Behind longer than window and lateness they move the watermark past all episodes but their own, so that these close at
	// once and not when the stream has been idle for long enough.
	Last bool
}

// Load is a stream of requests: viewers who stay below every limit, or nearly so, and a few abusers who come in bursts, one
// of them with one device behind many addresses.
type Load struct {
	options    LoadOptions
	partitions int
	viewers    int
	rnd        *rand.Rand
	n          int
	sent       atomic.Int64
	enough     chan struct{} // closed: the load ends when all events are sent
	done       chan error
}

// A load is sent in so many portions a second.
const portions = 50

// StartLoad begins to send. It sends all events, and goes on until Finish is called: what is done to weir meanwhile is done
// under load, however slow the machine.
func (s *Stream) StartLoad(ctx context.Context, o LoadOptions) (*Load, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Brokers...), kgo.DefaultProduceTopic(s.Topic("requests")),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(250*time.Millisecond), kgo.UnknownTopicRetries(-1))
	if err != nil {
		return nil, err
	}
	l := s.newLoad(o)
	go func() {
		defer client.Close()
		l.done <- l.send(ctx, client)
	}()
	return l, nil
}

func (s *Stream) newLoad(o LoadOptions) *Load {
	return &Load{
		options: o, partitions: s.Requests, viewers: max(200, o.Rate*3/5),
		rnd: rand.New(rand.NewPCG(o.Seed, 2)), enough: make(chan struct{}), done: make(chan error, 1),
	}
}

// Sent is how many events are acknowledged.
func (l *Load) Sent() int64 { return l.sent.Load() }

// Finish lets the load come to its end, waits for that, and returns how many events there were.
func (l *Load) Finish(ctx context.Context) (int, error) {
	close(l.enough)
	select {
	case err := <-l.done:
		return l.n, err
	case <-ctx.Done():
		return 0, fmt.Errorf("the load does not end, %d events are acknowledged: %w", l.Sent(), ctx.Err())
	}
}

func (l *Load) send(ctx context.Context, client *kgo.Client) error {
	ticker := time.NewTicker(time.Second / portions)
	defer ticker.Stop()
	probes := 0
	for portion := 0; l.n < l.options.Events || !l.isEnough(); portion++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		for range l.options.Rate / portions {
			e, partition := l.next(time.Now())
			if err := l.give(ctx, client, partition, &e); err != nil {
				return err
			}
		}
		for ; probes*portions < l.options.Probes*portion; probes++ {
			if err := l.probe(ctx, client, probes, time.Now()); err != nil {
				return err
			}
		}
	}
	for p := range l.partitions {
		if !l.options.Last {
			break
		}
		e := Event{Time: stamp(time.Now()), ID: fmt.Sprint("last", p), IP: fmt.Sprint("192.0.2.", p), Device: "last", Method: "HEAD", Path: "/last", Status: 200}
		if err := l.give(ctx, client, p, &e); err != nil {
			return err
		}
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	if sent := l.Sent(); sent != int64(l.n) {
		return fmt.Errorf("%d of %d events were acknowledged", sent, l.n)
	}
	return nil
}

func (l *Load) isEnough() bool {
	select {
	case <-l.enough:
		return true
	default:
		return false
	}
}

// give hands an event to the client, which keeps the order of each partition.
func (l *Load) give(ctx context.Context, client *kgo.Client, partition int, e *Event) error {
	value, err := json.Marshal(e)
	if err != nil {
		return err
	}
	l.n++
	client.Produce(ctx, &kgo.Record{Partition: int32(partition), Value: value}, func(_ *kgo.Record, err error) {
		if err == nil {
			l.sent.Add(1)
		}
	})
	return nil
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// next makes one event. An address always goes to one partition, as with a gateway that keys by client address.
func (l *Load) next(clock time.Time) (Event, int) {
	at := clock.Add(-l.options.Behind)
	who := l.rnd.IntN(l.viewers)
	e := Event{
		Time: stamp(at), ID: fmt.Sprint("r", l.n), IP: fmt.Sprintf("198.%d.%d.%d", 18+who/62_500, who/250%250, who%250+1),
		Device: fmt.Sprint("tv-", who), User: fmt.Sprint("viewer-", who), Method: "GET", Path: "/v1/stream", Status: 200,
	}
	if l.rnd.IntN(3) == 0 {
		e.Method, e.Path = "POST", "/v1/tokens"
	}
	if l.rnd.IntN(20) == 0 {
		e.User = "" // signed out
	}
	// Abusers send every 20th event, in bursts of eight seconds with ten seconds of rest between.
	if l.n%20 == 0 && at.Unix()%18 < 8 {
		who = l.rnd.IntN(4)
		e.IP, e.Device, e.User = fmt.Sprintf("203.0.113.%d", who+1), fmt.Sprint("bot-", who), fmt.Sprint("abuser-", who)
		e.Method, e.Path = "POST", "/v1/tokens"
		if who == 3 { // rotates addresses, keeps the device
			e.IP = fmt.Sprintf("203.0.113.%d", 100+l.rnd.IntN(100))
		}
	}
	var sum int
	for _, c := range e.IP {
		sum = sum*31 + int(c)
	}
	return e, sum % l.partitions
}

// ProbeRule finds every probe. It belongs to the rules of a stream whose load has some.
const ProbeRule = `
id: probe
owner: tests
match: {method: POST, path: /v1/probe}
key: [device]
limit: 1
algorithm: sliding-log
window: 5s
lateness: 5s
`

// probe sends a device that no one has seen before twice: the second event is over ProbeRule's limit, and its hit, on the
// hits topic, says that everything up to detection works for the partitions that it came through.
func (l *Load) probe(ctx context.Context, client *kgo.Client, n int, clock time.Time) error {
	for range 2 {
		e := Event{
			Time: stamp(clock.Add(-l.options.Behind)), ID: fmt.Sprint("p", l.n), IP: fmt.Sprintf("100.%d.%d.%d", 64+n/62_500, n/250%250, n%250+1),
			Device: fmt.Sprintf("probe-%d-%d", clock.UnixMicro(), n), Method: "POST", Path: "/v1/probe", Status: 200,
		}
		if err := l.give(ctx, client, n%l.partitions, &e); err != nil {
			return err
		}
	}
	return nil
}

// ProbeSent reads from a hit's subject when its probe was sent; false for a hit that is no probe's.
func ProbeSent(subject string) (time.Time, bool) {
	text, ok := strings.CutPrefix(subject, "device=probe-")
	if !ok {
		return time.Time{}, false
	}
	micros, _, _ := strings.Cut(text, "-")
	at, err := strconv.ParseInt(micros, 10, 64)
	return time.UnixMicro(at), err == nil
}
