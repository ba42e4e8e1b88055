package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// load is a seeded stream of requests: viewers who stay far below every limit, and a few abusers who come in bursts,
// one of them with one device behind many addresses.
type load struct {
	total  int // at least; valid as the number of events sent after wait
	sent   atomic.Int64
	enough chan struct{} // closed: the load ends when total events are sent
	done   chan error
	t      testing.TB
}

// event is the JSON that a gateway would write.
type event struct {
	Time   string `json:"time"`
	ID     string `json:"id"`
	IP     string `json:"ip"`
	Device string `json:"device"`
	User   string `json:"user,omitempty"`
	Method string `json:"method"`
	Path   string `json:"path"`
	Status int    `json:"status"`
}

const (
	loadPartitions = 4
	loadRate       = 2500 // events a second
	viewers        = 1500
)

// startLoad begins to send. It sends total events at least, and goes on until wait is called: what is done to weir
// meanwhile is done under load, however slow the machine.
func startLoad(t testing.TB, in *install, total int) *load {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(in.kafka...), kgo.DefaultProduceTopic(in.ns+".requests"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	l := &load{total: total, enough: make(chan struct{}), done: make(chan error, 1), t: t}
	ctx := background(t)
	go func() {
		defer client.Close()
		l.done <- l.send(ctx, client)
	}()
	return l
}

func (l *load) send(ctx context.Context, client *kgo.Client) error {
	rnd := rand.New(rand.NewPCG(1, 2))
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	n := 0
	for n < l.total || !l.isEnough() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		for range loadRate / 50 {
			e, partition := l.next(rnd, n)
			value, err := json.Marshal(e)
			if err != nil {
				return err
			}
			client.Produce(ctx, &kgo.Record{Partition: int32(partition), Value: value}, func(_ *kgo.Record, err error) {
				if err == nil {
					l.sent.Add(1)
				}
			})
			n++
		}
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	if sent := l.sent.Load(); sent != int64(n) {
		return fmt.Errorf("%d of %d events were acknowledged", sent, n)
	}
	l.total = n
	return nil
}

func (l *load) isEnough() bool {
	select {
	case <-l.enough:
		return true
	default:
		return false
	}
}

// next makes one event. An address always goes to one partition, as with a gateway that keys by client address.
func (l *load) next(rnd *rand.Rand, n int) (event, int) {
	now := time.Now().UTC()
	who := rnd.IntN(viewers)
	e := event{
		Time: now.Format(time.RFC3339Nano), ID: fmt.Sprint("r", n), IP: fmt.Sprintf("198.18.%d.%d", who/250, who%250+1),
		Device: fmt.Sprint("tv-", who), User: fmt.Sprint("viewer-", who), Method: "GET", Path: "/v1/stream", Status: 200,
	}
	if rnd.IntN(3) == 0 {
		e.Method, e.Path = "POST", "/v1/tokens"
	}
	if rnd.IntN(20) == 0 {
		e.User = "" // signed out
	}
	// Abusers send every 20th event, in bursts of eight seconds with ten seconds of rest between.
	if n%20 == 0 && now.Unix()%18 < 8 {
		who = rnd.IntN(4)
		e.IP, e.Device, e.User = fmt.Sprintf("203.0.113.%d", who+1), fmt.Sprint("bot-", who), fmt.Sprint("abuser-", who)
		e.Method, e.Path = "POST", "/v1/tokens"
		if who == 3 { // rotates addresses, keeps the device
			e.IP = fmt.Sprintf("203.0.113.%d", 100+rnd.IntN(100))
		}
	}
	var sum int
	for _, c := range e.IP {
		sum = sum*31 + int(c)
	}
	return e, sum % loadPartitions
}

// wait lets the load come to its end and waits for it.
func (l *load) wait() {
	l.t.Helper()
	close(l.enough)
	timer := time.NewTimer(5 * time.Minute)
	defer timer.Stop()
	select {
	case err := <-l.done:
		if err != nil {
			l.t.Fatal(err)
		}
	case <-timer.C:
		l.t.Fatal("the load does not end")
	}
}
