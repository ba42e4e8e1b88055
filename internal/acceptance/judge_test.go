package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/oracle"
)

// logs is everything that the oracles read: the requests and the keyed log, by a client of their own, and what was
// published in Postgres.
type logs struct {
	in       *install
	source   [][]event        // requests by partition and offset
	keyed    [][]oracle.Keyed // keyed log by partition, in order
	fenced   [][]oracle.Keyed // after the fence
	holes    int
	routings map[int64]routingDocument
	secret   []byte

	requests, records, accepted, lost, doubled, extra int
}

func readLogs(t *testing.T, in *install) *logs {
	t.Helper()
	l := &logs{in: in, routings: readRoutings(t, in), secret: readSecret(t, in)}
	for _, records := range readTopic(t, in, in.ns+".requests", 4) {
		var events []event
		for _, r := range records {
			var e event
			if err := json.Unmarshal(r.Value, &e); err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
		l.source = append(l.source, events)
		l.requests += len(events)
	}
	for _, records := range readTopic(t, in, in.ns+".keyed", 6) {
		var keyed []oracle.Keyed
		for _, r := range records {
			k, err := oracle.ReadKeyed(r.Value)
			if err != nil {
				t.Fatal(err)
			}
			if k.Kind == 1 {
				keyed = append(keyed, k)
				l.records++
			}
		}
		l.keyed = append(l.keyed, keyed)
		l.fenced = append(l.fenced, oracle.Fence(keyed, func(oracle.Keyed) { l.holes++ }))
	}
	return l
}

// readTopic reads a topic from its start to the end that it has now.
func readTopic(t *testing.T, in *install, topic string, partitions int) [][]*kgo.Record {
	t.Helper()
	ends := topicEnds(t, in, topic, partitions)
	client, err := kgo.NewClient(kgo.SeedBrokers(in.kafka...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	out := make([][]*kgo.Record, partitions)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for left := true; left; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("reading %s: %v", topic, ctx.Err())
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < ends[r.Partition] {
				out[r.Partition] = append(out[r.Partition], r)
			}
		})
		left = false
		for p, end := range ends {
			if n := len(out[p]); end > 0 && (n == 0 || out[p][n-1].Offset < end-1) {
				left = true
			}
		}
	}
	return out
}

// judge compares the fenced log with an independent routing, event by event.
func (l *logs) judge(t *testing.T) {
	t.Helper()
	if l.holes > 0 {
		t.Errorf("%d records name a predecessor that never came", l.holes)
	}
	got := map[[3]int64][]oracle.Keyed{} // source, offset, keyed partition
	versions := make([]map[int64]int64, len(l.source))
	for q, records := range l.fenced {
		for _, k := range records {
			key := [3]int64{int64(k.Source), k.Offset, int64(q)}
			got[key] = append(got[key], k)
			l.accepted++
			if versions[k.Source] == nil {
				versions[k.Source] = map[int64]int64{}
			}
			if v, ok := versions[k.Source][k.Offset]; ok && v != k.Version {
				t.Errorf("source %d offset %d was routed under versions %d and %d", k.Source, k.Offset, v, k.Version)
			}
			versions[k.Source][k.Offset] = k.Version
		}
	}
	for p, events := range l.source {
		last := int64(0)
		for o, e := range events {
			v, ok := versions[p][int64(o)]
			if !ok {
				l.lost++ // by-ip matches every event
				continue
			}
			if v < last {
				t.Errorf("source %d offset %d: version went back from %d to %d", p, o, last, v)
			}
			last = v
			l.compare(t, p, o, e, v, got)
		}
	}
	l.extra += len(got)
	if l.lost+l.doubled+l.extra > 0 {
		t.Errorf("lost %d, doubled %d, extra %d", l.lost, l.doubled, l.extra)
	}
}

// compare takes the records of one event out of got and holds them against the expected ones.
func (l *logs) compare(t *testing.T, p, o int, e event, version int64, got map[[3]int64][]oracle.Keyed) {
	for q, rules := range l.route(e, version) {
		key := [3]int64{int64(p), int64(o), int64(q)}
		records := got[key]
		delete(got, key)
		switch {
		case len(records) == 0:
			l.lost++
		case len(records) > 1:
			l.doubled++
		case !slices.Equal(records[0].Rules, rules):
			t.Errorf("source %d offset %d on keyed %d: rules %v, want %v", p, o, q, records[0].Rules, rules)
		case records[0].Time != eventTime(t, e):
			t.Errorf("source %d offset %d: time %d, want %d", p, o, records[0].Time, eventTime(t, e))
		case records[0].Device != e.Device || records[0].User != e.User || records[0].IP != netip.MustParseAddr(e.IP):
			t.Errorf("source %d offset %d: identity %+v of event %+v", p, o, records[0], e)
		}
	}
}

// route says which rules of a version an event feeds, per keyed partition.
func (l *logs) route(e event, version int64) map[int][]int {
	out := map[int][]int{}
	for i, r := range l.routings[version].Rules {
		if len(r.Match.Methods) > 0 && !slices.Contains(r.Match.Methods, e.Method) {
			continue
		}
		prefix, wild := strings.CutSuffix(r.Match.Path, "*")
		if wild && !strings.HasPrefix(e.Path, prefix) || !wild && prefix != "" && e.Path != prefix {
			continue
		}
		complete := true
		for _, k := range r.Key {
			complete = complete && e.value(k.Field) != ""
		}
		if complete {
			q := oracle.Dimension(l.secret, r.Key[0].Field, e.value(r.Key[0].Field), len(l.keyed))
			out[q] = append(out[q], i)
		}
	}
	return out
}

func (e event) value(field string) string {
	switch field {
	case "ip":
		return e.IP + "/32"
	case "device":
		return e.Device
	}
	return e.User
}

func eventTime(t *testing.T, e event) int64 {
	at, err := time.Parse(time.RFC3339Nano, e.Time)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}

// expected is what the oracle says of one source of one rule.
type expected struct {
	episodes []oracle.Episode
	inOrder  bool // all of its events came from one source partition, so counts and bounds are exact
}

type expectations map[string]expected

// episodes runs the sliding log's oracle over the fenced keyed log. The load is in order within each source partition
// and no partition stalls, so no event is late.
func (l *logs) episodes(t *testing.T) expectations {
	t.Helper()
	type window struct {
		events  []oracle.Event
		sources map[int]bool
		size    time.Duration
	}
	windows := map[string]*window{}
	for _, records := range l.fenced {
		for _, k := range records {
			for _, i := range k.Rules {
				r := l.routings[k.Version].Rules[i]
				key := fmt.Sprintf("%s/%d %s", r.ID, r.Lineage, subject(r.ID, k))
				w, ok := windows[key]
				if !ok {
					w = &window{sources: map[int]bool{}, size: r.Window}
					windows[key] = w
				}
				w.sources[k.Source] = true
				w.events = append(w.events, oracle.Event{Time: k.Time, Source: k.Source, Offset: k.Offset, Limit: r.Limit})
			}
		}
	}
	out := expectations{}
	for key, w := range windows {
		if e := oracle.Sliding(w.events, w.size.Microseconds(), (24 * time.Hour).Microseconds()); len(e) > 0 {
			out[key] = expected{episodes: e, inOrder: len(w.sources) == 1}
		}
	}
	return out
}

// subject is the published text of a rule's key; the load's values need no percent-encoding but for the prefix.
func subject(rule string, k oracle.Keyed) string {
	ip := "ip=" + k.IP.String() + "%2F32"
	switch rule {
	case "by-ip":
		return ip
	case "by-device":
		return "device=" + k.Device
	}
	return ip + "&user=" + k.User
}
