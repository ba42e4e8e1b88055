package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/testbed"
)

// restoreBed is an installation with one router and one detector.
type restoreBed struct {
	b      *testing.B
	in     *install
	stream *exactness.Stream
	kafka  *kgo.Client
	owner  *process
	keyed  int
	sent   int64 // events that Kafka has acknowledged
	thirds int   // keys that have had their third event
	probes int
	over   map[string]bool   // who was sent over the limit, by one event
	hits   map[string]string // by whom: the offence's id
	last   time.Time         // when the newest first hit of anybody was appended
}

func newRestoreBed(b *testing.B, keyed int) *restoreBed {
	partitions := [3]int{restoreSources, keyed, 1}
	r := &restoreBed{
		b: b, in: newInstall(b, partitions, fmt.Sprintf("{url: %q}", testbed.Redis(b)), 0), keyed: keyed,
		over: map[string]bool{}, hits: map[string]string{},
	}
	r.in.Weir("rules", "apply", "-f", r.in.Write("rules.yaml", restoreRule), "--reason", "bench")
	r.stream = r.in.stream(partitions)
	var err error
	r.kafka, err = kgo.NewClient(kgo.SeedBrokers(r.in.kafka...), kgo.DefaultProduceTopic(r.stream.Topic("requests")),
		kgo.ConsumeTopics(r.stream.Topic("hits")), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(r.kafka.Close)
	r.in.start("run", "--stages", "route")
	r.owner = r.in.start("run", "--stages", "detect")
	return r
}

// send sends n events, each of one device, and returns when Kafka has them all.
func (r *restoreBed) send(n int, device func(i int) string) {
	r.b.Helper()
	var failed atomic.Pointer[error]
	for i := range n {
		key := device(i)
		value := fmt.Appendf(nil, `{"v":1,"time":"%s","device":"%s","method":"GET","host":"api.example.com","path":"/"}`,
			time.Now().UTC().Format(time.RFC3339Nano), key)
		r.kafka.Produce(r.b.Context(), &kgo.Record{Key: []byte(key), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := r.kafka.Flush(r.b.Context()); err != nil {
		r.b.Fatal(err)
	}
	if err := failed.Load(); err != nil {
		r.b.Fatal(*err)
	}
	r.sent += int64(n)
}

// sendKeys sends an event of each of n keys.
func (r *restoreBed) sendKeys(first, n int) {
	r.b.Helper()
	r.send(n, func(i int) string { return fmt.Sprint("key-", first+i) })
}

// probe sends new keys over their limit, after all that was sent before is routed: behind it in every keyed partition.
func (r *restoreBed) probe() {
	r.b.Helper()
	testbed.Eventually(r.b, restoreTimeout, func() error {
		routed, err := r.stream.Routed(r.b.Context())
		if err == nil && routed < r.sent {
			err = fmt.Errorf("%d of %d events are routed", routed, r.sent)
		}
		return err
	})
	n := restoreProbes * r.keyed
	for range 4 {
		r.send(n, func(i int) string { return fmt.Sprint("probe-", r.probes+i) })
	}
	for i := range n {
		r.over[fmt.Sprint("probe-", r.probes+i)] = true
	}
	r.probes += n
}

// await reads hits until each source that is over has one, and returns when the last of them was appended.
func (r *restoreBed) await() time.Time {
	r.b.Helper()
	ctx, cancel := context.WithTimeout(r.b.Context(), restoreTimeout)
	defer cancel()
	for len(r.hits) < len(r.over) && !r.b.Failed() {
		r.kafka.PollFetches(ctx).EachRecord(r.see)
		if ctx.Err() != nil {
			r.b.Fatalf("hits of %d sources, want %d: some of their events are lost", len(r.hits), len(r.over))
		}
	}
	return r.last
}

// see takes a record of the hits topic. After a kill the same hits come again.
func (r *restoreBed) see(record *kgo.Record) {
	var hit struct {
		ID, Kind, Subject string
		Count             int64
	}
	if err := json.Unmarshal(record.Value, &hit); err != nil || hit.Kind != "hit" {
		r.b.Fatalf("a record of kind %q, %v: %s", hit.Kind, err, record.Value)
	}
	source := strings.TrimPrefix(hit.Subject, "device=")
	h, known := r.hits[source]
	switch {
	case !known && !r.over[source]:
		r.b.Errorf("%s has a hit: some of its events are counted twice", source)
	case hit.Count != 1 || known && h != hit.ID:
		r.b.Errorf("%s is over by %d events in %s, want one in %s", source, hit.Count, hit.ID, h)
	case !known:
		r.last = record.Timestamp // one partition: the log's order is that of append times
	}
	r.hits[source] = hit.ID
}

// What a detector's log says of its partitions: they were given to it, and their state is there.
var (
	partitionsGiven = regexp.MustCompile(`(?m)^time=(\S+) level=INFO msg="consumer group generation" .* partitions="?\[([0-9 ]*)\]`)
	partitionsTaken = regexp.MustCompile(`(?m)^time=(\S+) level=INFO msg="keyed partitions taken" .* partitions=(\d+)`)
	metricsAddress  = regexp.MustCompile(`msg="serving metrics and health" address=(\S+)`)
)

// taken waits until the owner has the state of all partitions, and returns when it was given them and when it had it.
func (r *restoreBed) taken() (given, restored time.Time) {
	r.b.Helper()
	testbed.Eventually(r.b, restoreTimeout, func() error {
		log := r.log()
		a, b := partitionsGiven.FindAllStringSubmatch(log, -1), partitionsTaken.FindAllStringSubmatch(log, -1)
		if len(b) == 0 || b[len(b)-1][2] != strconv.Itoa(r.keyed) {
			return errors.New("the state of the partitions is not restored")
		}
		if len(a) != len(b) || len(strings.Fields(a[len(a)-1][2])) != r.keyed {
			r.b.Fatalf("the detector was given partitions %d times and took them %d times", len(a), len(b))
		}
		var err error
		if given, err = time.Parse(time.RFC3339, a[len(a)-1][1]); err == nil {
			restored, err = time.Parse(time.RFC3339, b[len(b)-1][1])
		}
		return err
	})
	return given, restored
}

func (r *restoreBed) log() string {
	r.b.Helper()
	raw, err := os.ReadFile(r.owner.Log())
	if err != nil {
		r.b.Fatal(err)
	}
	return string(raw)
}

// holds waits until the owner says that it holds all keys, and makes sure that it has them from snapshots.
func (r *restoreBed) holds() {
	r.b.Helper()
	address := metricsAddress.FindStringSubmatch(r.log())
	if address == nil {
		r.b.Fatal("the detector does not say where its metrics are")
	}
	want := restoreKeys + r.probes
	testbed.Eventually(r.b, restoreTimeout, func() error {
		keys, restored, err := scrape("http://" + address[1] + "/metrics")
		if err == nil && (keys != want || restored != r.keyed) {
			err = fmt.Errorf("%d keys in %d restored partitions, want %d in %d", keys, restored, want, r.keyed)
		}
		return err
	})
}

// scrape reads from a detector's metrics how many keys it holds and how many partitions it has restored from snapshots.
func scrape(url string) (keys, restored int, err error) {
	response, err := http.Get(url)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		n, bad := strconv.ParseFloat(value, 64)
		switch {
		case bad != nil:
		case strings.HasPrefix(name, "weir_detect_keys{"):
			keys += int(n)
		case strings.HasPrefix(name, "weir_detect_restores_total{") && strings.Contains(name, `outcome="restored"`):
			restored += int(n)
		}
	}
	return keys, restored, err
}
