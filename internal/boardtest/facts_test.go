package boardtest

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/oracle"
)

// facts are what happened, as Kafka's logs, PostgreSQL, Redis, the operating system and the test itself know it: what panels say
// is held against them.
type facts struct {
	g      *grafana
	in     *installation
	load   *load
	played map[string]string // addresses of the processes that are only played, by role
	s      span              // from rest to rest

	rules     []oracle.Rule
	requests  []request
	hits      []told
	decisions []told
	letters   []told
	keyed     []keyedEvent
	blocks    map[string]int     // in Redis, by rule
	sizes     map[string]float64 // of tables, before
}

// request is a record of the requests topic.
type request struct {
	at      time.Time // when Kafka took it
	bad     bool      // no event
	gateway bool      // of the demo's gateway
	refused string    // the rule by which weir refused it
	oracle.Request
}

// old says that an event came minutes after its time.
func (r *request) old() bool { return r.at.UnixMicro()-r.Time > time.Minute.Microseconds() }

// told is a record of another topic, as far as its JSON is looked at here.
type told struct {
	at                                                       time.Time
	ID, Kind, Phase, Rule, Action, Reason, Stage, Hit, Until string
}

// keyedEvent is a record of an event in the keyed topic.
type keyedEvent struct {
	at        time.Time
	partition int
	oracle.Keyed
}

func (f *facts) gather(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	stream := &exactness.Stream{Brokers: f.in.brokers, Postgres: f.in.postgres, Namespace: f.in.schema}
	read := func(topic string, partitions int, see func(*kgo.Record) error) {
		if err := stream.EachRecord(ctx, stream.Topic(topic), partitions, see); err != nil {
			t.Fatal(err)
		}
	}
	read("requests", 2, func(r *kgo.Record) error { f.requests = append(f.requests, readRequest(r)); return nil })
	slices.SortStableFunc(f.requests, func(a, b request) int { return cmp.Compare(a.Time, b.Time) })
	for topic, of := range map[string]*[]told{"hits": &f.hits, "blocks": &f.decisions, "dead": &f.letters} {
		partitions := 2
		if topic == "dead" {
			partitions = 1
		}
		read(topic, partitions, func(r *kgo.Record) error {
			one := told{at: r.Timestamp}
			if err := json.Unmarshal(r.Value, &one); err != nil {
				return err
			}
			*of = append(*of, one)
			return nil
		})
	}
	read("keyed", 8, func(r *kgo.Record) error {
		k, err := oracle.ReadKeyed(r.Value)
		if err == nil && k.Kind == 1 {
			f.keyed = append(f.keyed, keyedEvent{r.Timestamp, int(r.Partition), k})
		}
		return err
	})
	f.wantToldOnce()
	f.blocks = f.in.blocksInRedis()
	for _, row := range f.sql(`SELECT source FROM {}.rules_v WHERE NOT removed`) {
		f.rules = append(f.rules, readRule(t, row[0].(string)))
	}
}

func readRequest(r *kgo.Record) request {
	var event struct {
		V                    int
		Time                 time.Time
		Forwarded            string `json:"forwarded_for"`
		Device, Method, Path string
		Gateway              string
		Verdict              struct{ Rule string }
	}
	q := request{at: r.Timestamp}
	if err := json.Unmarshal(r.Value, &event); err != nil || event.V != 1 {
		q.bad = true
		return q
	}
	client, _ := netip.ParseAddr(event.Forwarded) // who sends none is known by no address
	q.gateway, q.refused = event.Gateway == "demo", event.Verdict.Rule
	q.Request = oracle.Request{
		Time: event.Time.UnixMicro(), Client: client, Device: event.Device, Method: event.Method, Path: event.Path, Refused: q.refused != "",
	}
	return q
}

// readRule reads a rule's document as far as the oracle goes.
func readRule(t *testing.T, text string) oracle.Rule {
	t.Helper()
	var doc struct {
		ID               string
		Match            struct{ Method, Path string }
		Key              []any
		Limit            int
		Window           string
		Algorithm, Count string
	}
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	doc.Algorithm, doc.Count = cmp.Or(doc.Algorithm, "sliding"), cmp.Or(doc.Count, "events")
	window, err := time.ParseDuration(doc.Window)
	if err != nil || doc.Algorithm != "sliding" || doc.Count != "events" {
		t.Fatalf("the oracle does not judge %s (%v)", text, err)
	}
	return oracle.Rule{
		ID: doc.ID, Method: doc.Match.Method, Path: doc.Match.Path, Device: slices.Contains(doc.Key, any("device")), Limit: doc.Limit, Window: window.Microseconds(),
	}
}

// sql asks PostgreSQL as who may read everything.
func (f *facts) sql(text string) [][]any {
	t := f.g.prometheus.t
	t.Helper()
	_, rows, err := (&grafana{postgres: f.in.connect("")}).rows(t.Context(), strings.ReplaceAll(text, "{}", f.in.schema), f.s)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// within says whether something happened in the span.
func (f *facts) within(at time.Time) bool { return at.After(f.s.from) && !at.After(f.s.to) }

// count is how many of all happened in the span and are as wanted.
func count[E any](f *facts, all []E, at func(*E) time.Time, wanted func(*E) bool) float64 {
	n := 0
	for i := range all {
		if f.within(at(&all[i])) && wanted(&all[i]) {
			n++
		}
	}
	return float64(n)
}

func (f *facts) countRequests(wanted func(*request) bool) float64 {
	return count(f, f.requests, func(r *request) time.Time { return r.at }, wanted)
}

func (f *facts) countTold(of []told, wanted func(*told) bool) float64 {
	return count(f, of, func(r *told) time.Time { return r.at }, wanted)
}

// perSecond is a rate over the span.
func (f *facts) perSecond(n float64) float64 { return n / f.s.to.Sub(f.s.from).Seconds() }

// rates turns counts into rates.
func (f *facts) rates(counts []value) []value {
	rates := slices.Clone(counts)
	for i := range rates {
		rates[i].low, rates[i].high = f.perSecond(rates[i].low), f.perSecond(rates[i].high)
	}
	return rates
}

// perStep turns counts into what a bar of the span shows: their rate, for as long as the bar is wide.
func (f *facts) perStep(counts []value) []value {
	bars := f.rates(counts)
	for i := range bars {
		bars[i].low, bars[i].high = bars[i].low*f.s.interval().Seconds(), bars[i].high*f.s.interval().Seconds()
	}
	return bars
}

// everywhere gives values the label of the installation.
func (f *facts) everywhere(values []value) []value {
	for i := range values {
		values[i].labels["namespace"] = f.in.schema
	}
	return values
}

// by counts what was told by the labels that key gives; nil: it is none of them.
func (f *facts) by(of []told, key func(*told) []string) []value {
	var counts []value
	for i := range of {
		if labels := key(&of[i]); labels != nil && f.within(of[i].at) {
			counts = add(counts, 1, labels...)
		}
	}
	return counts
}

// add adds n to the value of some labels.
func add(counts []value, n float64, labels ...string) []value {
	v := is(n, labels...)
	for i := range counts {
		if maps.Equal(counts[i].labels, v.labels) {
			counts[i].low, counts[i].high = counts[i].low+n, counts[i].high+n
			return counts
		}
	}
	return append(counts, v)
}
