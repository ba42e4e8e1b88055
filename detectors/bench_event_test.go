package detectors_test

import (
	"fmt"
	"net/url"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// eventGroup is how many events are read before their records are folded, as from a chunk.
const eventGroup = 500

// benchLimit is what a source of the benchmark may do in a window of a minute: a few do more.
const benchLimit = 60

// eventOrigin is where a minute of the clock begins, so that fixed windows hold the whole load.
const eventOrigin = origin - origin%(60*second)

// eventLoad is JSON events of about 350 bytes and what is true of them.
type eventLoad struct {
	messages []traffic.Message
	over     map[string]bool // "field value" of the sources above the limit, by counting
	keys     map[traffic.Field]int
}

// newEventLoad makes n events within the minute of one window, of 20,021 addresses, 20,011 devices and 50,021 users, of
// which each hundredth is of one of a few busy sources.
func newEventLoad(n int) *eventLoad {
	l := &eventLoad{over: map[string]bool{}, keys: map[traffic.Field]int{}}
	counts := map[string]int{}
	for i := range n {
		at := eventOrigin + traffic.Time(i)*200
		who := i * 7919
		if i%100 == 99 {
			who = i / 100 % 20
		}
		ip, device, user := fmt.Sprintf("203.0.%d.%d", who%20_021>>8, who%20_021&255), fmt.Sprintf("tv-%05d", who%20_011), fmt.Sprintf("user-%06d", who%50_021)
		l.messages = append(l.messages, traffic.Message{Offset: int64(i), Appended: at, Value: fmt.Appendf(nil,
			`{"v":1,"time":"%s","id":"req-%08d","ip":"%s","device":"%s","user":"%s",`+
				`"method":"POST","host":"api.example.com","path":"/v1/guest-tokens","status":%d,`+
				`"user_agent":"Mozilla/5.0 (Linux; Android 9; AFTT) AppleWebKit/537.36 (KHTML, like Gecko)","latency_ms":12.%03d,"bytes":%d,"plan":"free","gateway":"gw-3"}`,
			at.Std().UTC().Format("2006-01-02T15:04:05.000000Z"), i, ip, device, user, 200+i%5, i%1000, i)})
		for _, v := range []struct {
			field  traffic.Field
			source string
		}{{traffic.FieldIP, "ip=" + ip + "/32"}, {traffic.FieldDevice, "device=" + device}, {traffic.FieldUser, "user=" + user}} {
			counts[v.source]++
			if counts[v.source] == 1 {
				l.keys[v.field]++
			}
			if counts[v.source] > benchLimit {
				l.over[v.source] = true
			}
		}
	}
	return l
}

// eventRules watch one request in a window by address, by device and by user; a fourth one is by address again.
func eventRules(a rules.Algorithm, n int) []rules.Version {
	var out []rules.Version
	for i, f := range []traffic.Field{traffic.FieldIP, traffic.FieldDevice, traffic.FieldUser, traffic.FieldIP}[:n] {
		v := rule(benchLimit, time.Minute, 10*time.Second)
		v.ID, v.Algorithm, v.Match = fmt.Sprintf("r%d", i), a, rules.Match{Methods: []string{"POST"}, Path: "/v1/guest-*"}
		v.Key = []traffic.KeyField{{Field: f}}
		if f == traffic.FieldIP {
			v.Key[0].V4, v.Key[0].V6 = 32, 64
		}
		v.Block = nil
		out = append(out, v)
	}
	return out
}

// eventReader is ROUTE and DETECT in one goroutine, without the logs between them. parts are keyed partitions: one that has
// all dimensions, or one for each.
type eventReader struct {
	decoder    format.Decoder
	identifier *traffic.Identifier
	index      *rules.Index
	versions   []rules.Version
	parts      []*detectors.Partition
	records    [][]detectors.Record
	prev       []int64
	progress   traffic.Time
	request    traffic.Request
	matched    []int
	hits       []detectors.Hit
}

func newEventReader(b *testing.B, versions []rules.Version, parts int) *eventReader {
	b.Helper()
	decoder, err := format.NewDecoder(format.Weir, nil, 0)
	if err != nil {
		b.Fatal(err)
	}
	identity := traffic.DefaultIdentityMap()
	identifier, err := identity.Compile()
	if err != nil {
		b.Fatal(err)
	}
	r := &eventReader{decoder: decoder, identifier: identifier, index: rules.NewIndex(versions), versions: versions, progress: traffic.BeforeTime}
	for q := range parts {
		p := detectors.NewPartition(detectors.Config{Keyed: q, Sources: 1, Generation: 1, Secret: detectors.Secret{1}, Budget: detectors.DefaultBudget})
		p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: versions}))
		records := make([]detectors.Record, eventGroup)
		for i := range records {
			records[i].Keyed.Rules = make([]int, 0, len(versions))
		}
		r.parts, r.records, r.prev = append(r.parts, p), append(r.records, records[:0]), append(r.prev, detectors.NoOffset)
	}
	return r
}

// read decodes, identifies and matches an event and makes its records.
func (r *eventReader) read(m *traffic.Message) error {
	if err := r.decoder.Decode(m.Value, &r.request); err != nil {
		return err
	}
	if !r.request.HasTime {
		r.request.Time = m.Appended
	}
	r.progress = max(r.progress, r.request.Time)
	identity, missing := r.identifier.FromEvent(&r.request)
	if r.request.Verdict.Refused() {
		return nil
	}
	r.matched = r.index.Match(r.matched[:0], &rules.Target{Method: r.request.Method, Path: r.request.Path})
	for _, i := range r.matched {
		field := r.versions[i].Key[0].Field
		if missing[field] != traffic.Present {
			continue
		}
		q := int(field) % len(r.parts)
		if r.prev[q] != m.Offset {
			r.begin(q, m, &identity)
		}
		k := &r.records[q][len(r.records[q])-1].Keyed
		k.Rules = append(k.Rules, i)
	}
	return nil
}

// begin makes the event's record for a keyed partition, in the memory of an earlier one.
func (r *eventReader) begin(q int, m *traffic.Message, identity *traffic.Identity) {
	n := len(r.records[q])
	r.records[q] = r.records[q][:n+1]
	rec := &r.records[q][n]
	rec.Appended = m.Appended
	rec.Keyed = detectors.Keyed{
		Kind: detectors.KeyedEvent, Generation: 1, Offset: m.Offset, Prev: r.prev[q], Time: r.request.Time, Progress: r.progress,
		Version: 1, Rules: rec.Keyed.Rules[:0], Identity: *identity,
	}
	r.prev[q] = m.Offset
}

func (r *eventReader) readAll(messages []traffic.Message) error {
	for group := range slices.Chunk(messages, eventGroup) {
		for i := range group {
			if err := r.read(&group[i]); err != nil {
				return err
			}
		}
		for q, p := range r.parts {
			_, hits, err := p.FoldAll(r.records[q], r.hits)
			if err != nil {
				return err
			}
			r.hits, r.records[q] = hits, r.records[q][:0]
		}
	}
	return nil
}

// check holds the windows and the hits against what is true of the load.
func (r *eventReader) check(b *testing.B, l *eventLoad) {
	b.Helper()
	counted, keys, wantKeys := int64(0), 0, 0
	for _, p := range r.parts {
		counted, keys = counted+p.Counts().Counted, keys+p.Keys()
	}
	for i := range r.versions {
		wantKeys += l.keys[r.versions[i].Key[0].Field]
	}
	if counted != int64(len(r.versions)*len(l.messages)) || keys != wantKeys {
		b.Fatalf("%d windows updated, %d keys; want %d and %d", counted, keys, len(r.versions)*len(l.messages), wantKeys)
	}
	got := map[string]bool{}
	for i := range r.hits {
		h := &r.hits[i]
		if source, err := url.PathUnescape(string(h.Subject)); err == nil && h.Kind == detectors.KindHit && h.Rule != "r3" {
			got[source] = true
		}
	}
	if len(got) != len(l.over) || len(got) == 0 {
		b.Fatalf("%d sources over the limit, want %d", len(got), len(l.over))
	}
	for source := range l.over {
		if !got[source] {
			b.Fatalf("%s is over the limit and was not found", source)
		}
	}
}

// spent is the processor time of this process, its garbage collection included.
func spent(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkEvent is the way of one JSON event of about 350 bytes through decoding, identities, matching and three windows
// of different dimensions, in one goroutine: on one keyed partition, which is one record, and on three, which are three.
// A round of it is followed by a round with a fourth rule, on the first one's key; an operation is both. The least is that
// of the best round, for machines that others use.
func BenchmarkEvent(b *testing.B) {
	const n = 300_000
	l := newEventLoad(n)
	for _, a := range []rules.Algorithm{rules.AlgorithmSliding, rules.AlgorithmFixed} {
		for _, parts := range []int{1, 3} {
			b.Run(fmt.Sprintf("%s/partitions=%d", a, parts), func(b *testing.B) {
				var cpu, least [2]time.Duration
				rounds := 0
				for b.Loop() {
					for more := range 2 {
						b.StopTimer()
						r := newEventReader(b, eventRules(a, 3+more), parts)
						before := spent(b)
						b.StartTimer()
						if err := r.readAll(l.messages); err != nil {
							b.Fatal(err)
						}
						b.StopTimer()
						used := spent(b) - before
						cpu[more] += used
						if rounds == 0 || used < least[more] {
							least[more] = used
						}
						r.check(b, l)
						b.StartTimer()
					}
					rounds++
				}
				each := func(d time.Duration, rounds int) float64 { return float64(d.Nanoseconds()) / float64(rounds) / n }
				b.ReportMetric(each(b.Elapsed(), 2*rounds), "ns/event")
				b.ReportMetric(each(cpu[0], rounds), "cpu-ns/event")
				b.ReportMetric(each(cpu[1]-cpu[0], rounds), "cpu-ns/more-rule")
				b.ReportMetric(each(least[0], 1), "least-cpu-ns/event")
				b.ReportMetric(each(least[1]-least[0], 1), "least-cpu-ns/more-rule")
			})
		}
	}
}
