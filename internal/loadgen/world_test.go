package loadgen

import (
	"bytes"
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

var dawn = traffic.At(time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC))

// settings of a small load.
func settings(seed uint64) Settings {
	return Settings{
		Seed: seed, Rate: 20, Duration: 90 * time.Second, Viewers: 50, Zipf: 0.5, Abusers: 5, AbuseRate: 2, Patterns: Patterns(),
		IPv6: 0.3, SignedOut: 0.2, Mix: []Call{{"GET", "/v1/stream", 3}, {"POST", "/v1/guest-tokens", 1}},
		Abuse: Call{"POST", "/v1/guest-tokens", 1},
	}
}

func drawSettings(t *rapid.T) Settings {
	s := settings(rapid.Uint64().Draw(t, "seed"))
	s.Rate = rapid.Float64Range(0.5, 60).Draw(t, "rate")
	s.Duration = time.Duration(rapid.IntRange(1, 70).Draw(t, "seconds")) * time.Second
	s.Events = rapid.Int64Range(1, 500).Draw(t, "events")
	s.Viewers = rapid.IntRange(1, 200).Draw(t, "viewers")
	s.Zipf = rapid.Float64Range(0, 2).Draw(t, "zipf")
	s.Abusers = rapid.IntRange(0, 12).Draw(t, "abusers")
	s.AbuseRate = rapid.Float64Range(0.1, 8).Draw(t, "abuse rate")
	s.Patterns = rapid.SliceOfN(rapid.SampledFrom(Patterns()), 1, 5).Draw(t, "patterns")
	s.IPv6 = rapid.Float64Range(0, 1).Draw(t, "ipv6")
	s.SignedOut = rapid.Float64Range(0, 1).Draw(t, "signed out")
	s.Disorder = time.Duration(rapid.SampledFrom([]int{0, 0, 1, 5, 30}).Draw(t, "disorder")) * time.Second
	s.Proxies = rapid.IntRange(0, 3).Draw(t, "proxies")
	s.Format = rapid.SampledFrom(append(Formats(), "")).Draw(t, "format")
	return s
}

func allEvents(s Settings) []Event {
	st := NewStream(s)
	var all []Event
	for e := (Event{}); st.Next(&e); {
		all = append(all, e)
	}
	return all
}

// memorySink takes everything, or fails where it is told to.
type memorySink struct {
	values   [][]byte
	failAt   int   // chunk, from 1; 0: never
	ackOf    int   // events acknowledged of the chunk that fails
	fails    error // of this chunk; nil: it is taken
	chunks   int
	onChunk  func(ctx context.Context)
	finished error
}

var _ Sink = (*memorySink)(nil)

func (m *memorySink) Send(ctx context.Context, events []Outgoing) (int, error) {
	m.chunks++
	if m.onChunk != nil {
		m.onChunk(ctx)
	}
	if m.chunks == m.failAt {
		return min(m.ackOf, len(events)), errRefused
	}
	if m.fails != nil {
		return min(m.ackOf, len(events)), m.fails
	}
	for _, e := range events {
		m.values = append(m.values, e.Value)
	}
	m.finished = ctx.Err()
	return len(events), nil
}

// written runs a load that is not paced and gives its truth as text.
func written(t testing.TB, s Settings, h Header, sink Sink) (string, Outcome, error) {
	t.Helper()
	var text bytes.Buffer
	h.Started, h.Parameters = dawn, s
	w, err := NewTruthWriter(&text, h)
	if err != nil {
		t.Fatal(err)
	}
	at := dawn.Add(s.Duration)
	out, err := Run(t.Context(), RunOptions{
		Settings: s, Start: dawn, Sink: sink, Truth: w, Clock: func() traffic.Time { return at }, Sent: func(int, int) {},
	})
	if eerr := w.End(End{At: at, Events: out.Events, Complete: out.Complete}); eerr != nil {
		t.Fatal(eerr)
	}
	return text.String(), out, err
}

// truthOf is the truth of a load that was written to a file without trouble.
func truthOf(t testing.TB, s Settings) *Truth {
	t.Helper()
	text, _, err := written(t, s, Header{}, &memorySink{})
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, text)
}

func parsed(t testing.TB, text string) *Truth {
	t.Helper()
	truth, err := ReadTruth("truth", bytes.NewReader([]byte(text)))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return truth
}

func parseRule(t testing.TB, yaml string) rules.Version {
	t.Helper()
	docs, err := rules.ParseFiles([]rules.File{{Name: "rule.yaml", Src: []byte(yaml)}}, rules.Environment{Identity: traffic.DefaultIdentityMap()})
	if err != nil {
		t.Fatal(err)
	}
	return rules.Version{Document: docs[0], Number: 1, Lineage: 1}
}
