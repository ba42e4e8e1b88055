package route

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// filled is a prefetcher that holds messages already.
func filled(next map[int]int64, messages ...traffic.Message) *prefetcher {
	in := newPrefetcher(nil, 0, 1<<30, make(chan struct{}, 1), func(error) {})
	for p, end := range next {
		in.open(p, end, traffic.BeforeTime, nil)
	}
	for _, m := range messages {
		q := in.queues[m.Partition]
		q.messages = append(q.messages, m)
		q.bytes += len(m.Value)
	}
	return in
}

// routedEvent is an event by address, appended at a given time.
func routedEvent(partition int, offset int64, appended traffic.Time, ip string) traffic.Message {
	return traffic.Message{Partition: partition, Offset: offset, Appended: appended, Value: []byte(`{"v":1,"ip":"` + ip + `","path":"/v1/x"}`)}
}

func sourceAt(partition int, v *routingVersion, offset, end int64) *source {
	prev := sentBefore(0, simKeyed)
	for q := range prev {
		prev[q] = offset - 1
	}
	return &source{partition: partition, version: v, at: ingest.Announcement{
		Generation: 7, Offset: offset, End: end, Version: v.number, Prev: prev, Progress: traffic.BeforeTime,
	}}
}

// oneRule watches everything by ip.
func oneRule() *rules.Routing {
	r := watchRouting()
	r.Rules = r.Rules[:1]
	return r
}

func records(t *testing.T, c *chunk) []detectors.Keyed {
	t.Helper()
	var out []detectors.Keyed
	for _, b := range c.batches {
		for _, v := range b.Values {
			var k detectors.Keyed
			if err := detectors.DecodeKeyed(v, &k); err != nil {
				t.Fatal(err)
			}
			k.Rules = slices.Clone(k.Rules)
			out = append(out, k)
		}
	}
	return out
}

func TestChunkKeepsToAnnouncedEnds(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, oneRule())
	in := filled(map[int]int64{0: 15, 1: 24, 2: 31},
		routedEvent(0, 10, 100, "192.0.2.1"), routedEvent(0, 11, 101, "192.0.2.1"), routedEvent(0, 14, 102, "192.0.2.1"),
		routedEvent(1, 20, 50, "192.0.2.1"), routedEvent(1, 21, 150, "192.0.2.1"),
		routedEvent(2, 30, 1, "192.0.2.1"))
	sources := []*source{
		sourceAt(0, v, 10, 13), // ends within what is queued
		sourceAt(1, v, 20, 40), // ends beyond it
		sourceAt(2, v, 30, 30), // nothing is announced
	}
	c := newBuilder(opt, &hintMemory{}).build(sources, in)
	var got []string
	for _, k := range records(t, c) {
		got = append(got, fmt.Sprintf("%d/%d<%d", k.Source, k.Offset, k.Prev))
	}
	if want := "1/20<19 0/10<9 0/11<10 1/21<20"; strings.Join(got, " ") != want {
		t.Errorf("records: got %v, want %s: by append time, chained by source", got, want)
	}
	for i, want := range [][2]int64{{13, 13}, {24, 40}, {30, 30}} {
		if a := c.next[i]; a.Offset != want[0] || a.End != want[1] {
			t.Errorf("source %d stands at [%d,%d), want [%d,%d)", i, a.Offset, a.End, want[0], want[1])
		}
		if sources[i].at.Prev[0] != sources[i].at.Offset-1 {
			t.Errorf("source %d: building a chunk has changed what is committed: %+v", i, sources[i].at)
		}
	}
	if c.stats.Events != 4 || c.stats.Records != 4 {
		t.Errorf("stats: %+v", c.stats)
	}
}

func TestChunkIsBounded(t *testing.T) {
	v := compiled(t, routedOptions(true), oneRule())
	var messages []traffic.Message
	for o := range int64(10) {
		messages = append(messages, routedEvent(0, o, 100, "192.0.2.1"))
	}
	size := len(messages[0].Value)
	for _, tt := range []struct{ events, bytes, want int }{{4, 1 << 20, 4}, {100, 3 * size, 3}, {1, 1, 1}, {100, 1 << 20, 10}} {
		opt := routedOptions(true)
		opt.MaxChunkEvents, opt.MaxChunkBytes = tt.events, tt.bytes
		c := newBuilder(opt, &hintMemory{}).build([]*source{sourceAt(0, v, 0, 10)}, filled(map[int]int64{0: 10}, messages...))
		if c.next[0].Offset != int64(tt.want) || c.next[0].End != 10 || len(records(t, c)) != tt.want {
			t.Errorf("%d events, %d bytes: got [%d,%d) with %d records, want %d", tt.events, tt.bytes, c.next[0].Offset, c.next[0].End, len(records(t, c)), tt.want)
		}
	}
}

// TestChunkFitsIntoBatches: one hot key must not make a batch that the broker refuses for ever.
func TestChunkFitsIntoBatches(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, oneRule())
	var messages []traffic.Message
	const n = 1500
	for o := range int64(n) {
		m := routedEvent(0, o, 100, "192.0.2.1")
		m.Value = []byte(strings.Replace(string(m.Value), `"v":1`, `"v":1,"user_agent":"`+strings.Repeat("x", 300)+`","attrs":"`+strings.Repeat("y", 1200)+`"`, 1))
		messages = append(messages, m)
	}
	in, src, b := filled(map[int]int64{0: n}, messages...), sourceAt(0, v, 0, n), newBuilder(opt, &hintMemory{})
	chunks, events := 0, 0
	for src.at.Offset < n {
		c := b.build([]*source{src}, in)
		size := 0
		for _, value := range c.batches[0].Values {
			size += len(value) + recordOverhead
		}
		if size > maxBatchBytes {
			t.Fatalf("a batch of %d bytes, allowed: %d", size, maxBatchBytes)
		}
		chunks, events = chunks+1, events+len(records(t, c))
		src.at = c.next[0]
		in.discard(0, src.at.Offset)
	}
	if chunks < 2 || events != n || src.at.End != n {
		t.Errorf("%d events in %d chunks, end %d; want %d in 2 or more", events, chunks, src.at.End, n)
	}
}

func TestChunkRoutesUnderEachSourcesVersion(t *testing.T) {
	opt := routedOptions(true)
	older, newer := oneRule(), oneRule()
	older.Number, newer.Number = 3, 4
	newer.Rules[0].ID = "renamed"
	sources := []*source{sourceAt(0, compiled(t, opt, older), 0, 1), sourceAt(1, compiled(t, opt, newer), 0, 1)}
	c := newBuilder(opt, &hintMemory{}).build(sources, filled(map[int]int64{0: 1, 1: 1}, routedEvent(0, 0, 1, "192.0.2.1"), routedEvent(1, 0, 2, "192.0.2.1")))
	got := records(t, c)
	if len(got) != 2 || got[0].Version != 3 || got[1].Version != 4 {
		t.Errorf("got %+v", got)
	}
	if c.stats.Rules["a-ip"].Matched != 1 || c.stats.Rules["renamed"].Matched != 1 {
		t.Errorf("stats: %+v", c.stats.Rules)
	}
}

func TestChunkPutsPoisonAside(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, oneRule())
	bad := func(o int64, value string) traffic.Message {
		return traffic.Message{Offset: o, Appended: 5, Value: []byte(value)}
	}
	c := newBuilder(opt, &hintMemory{}).build([]*source{sourceAt(0, v, 0, 4)}, filled(map[int]int64{0: 4},
		bad(0, ""), routedEvent(0, 1, 5, "192.0.2.1"), bad(2, "{"), bad(3, strings.Repeat(" ", 5000))))
	var got []string
	for _, l := range c.letters {
		got = append(got, fmt.Sprintf("%s %s %s %d/%d %d", l.Stage, l.Reason, l.Topic, l.Partition, l.Offset, l.Size))
	}
	want := []string{"route empty weir.requests 0/0 0", "route malformed weir.requests 0/2 1", "route oversized weir.requests 0/3 5000"}
	if !slices.Equal(got, want) {
		t.Errorf("letters: got %q, want %q", got, want)
	}
	if c.next[0].Offset != 4 || len(records(t, c)) != 1 || c.stats.DeadLetters["empty"] != 1 {
		t.Errorf("got %+v, %+v", c.next[0], c.stats)
	}
}

// BenchmarkChunk routes events of three rules in two dimensions, from their bytes to the bytes of their keyed records.
func BenchmarkChunk(b *testing.B) {
	opt := routedOptions(true)
	opt.KeyedPartitions = 64
	v, err := compile(watchRouting(), opt)
	if err != nil {
		b.Fatal(err)
	}
	const n = 5000
	var messages []traffic.Message
	for o := range int64(n) {
		value := fmt.Sprintf(`{"v":1,"time":"2027-01-15T08:00:00.123456Z","ip":"10.0.%d.%d","device":"tv-%d","user":"u%d","method":"POST",`+
			`"host":"api.example.com","path":"/v1/guest-tokens","status":201,"user_agent":"Mozilla/5.0 (X11; Linux x86_64)"}`, o>>8, o&255, o%997, o%641)
		messages = append(messages, traffic.Message{Offset: o, Appended: noon, Value: []byte(value)})
	}
	in, builder := filled(map[int]int64{0: n}, messages...), newBuilder(opt, &hintMemory{})
	src := sourceAt(0, v, 0, n)
	src.at.Prev = sentBefore(0, opt.KeyedPartitions)
	b.ReportAllocs()
	for b.Loop() {
		c := builder.build([]*source{src}, in)
		if c.stats.Events != n || c.stats.Records < 2*n-200 {
			b.Fatalf("%+v", c.stats)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/event")
}

func lagsOf(t *testing.T, opt *Options) *ingest.Lags {
	t.Helper()
	lags, err := ingest.NewLags(nil, opt.Clock)
	if err != nil {
		t.Fatal(err)
	}
	return lags
}

// A chunk that was prepared is used only while the sources stand where they stood when it was announced.
func TestAPreparedChunkIsDroppedWhenASourceGoes(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, watchRouting())
	opt.Clock = simNow
	r := &Router{opt: *opt, tally: newTally(), versions: newVersionShelf(opt), lags: lagsOf(t, opt)}
	for _, goes := range []bool{false, true} {
		s := newSession(r, ingest.Assignment{})
		s.prefetcher = filled(map[int]int64{0: 1, 1: 1}, routedEvent(0, 0, 1, "192.0.2.1"))
		s.sources = []*source{sourceAt(0, v, 0, 1), sourceAt(1, v, 0, 0)}
		prepared := &chunk{}
		s.prepared = &preparedChunk{announcedAs: s.standing, chunk: prepared}
		if goes {
			s.drop(1)
		}
		if used := s.nextChunk() == prepared; used == goes {
			t.Errorf("a source goes: %v; the prepared chunk is used: %v", goes, used)
		}
		if s.prepared != nil {
			t.Error("it could be used again")
		}
	}
}

// notedCommits takes every commit, and keeps the newest.
type notedCommits map[int]ingest.Commit

func (c notedCommits) Fetch(context.Context, []int) (map[int]ingest.Commit, error) { return c, nil }

func (c notedCommits) Commit(_ context.Context, commits map[int]ingest.Commit) error {
	maps.Copy(c, commits)
	return nil
}

// The plan of a chunk that was prepared is announced only while the sources stand where it was planned from.
func TestAPreparedPlanIsDroppedWhenASourceGoes(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, watchRouting())
	opt.Clock = simNow
	r := &Router{opt: *opt, tally: newTally(), versions: newVersionShelf(opt), lags: lagsOf(t, opt)}
	for goes, want := range map[bool]int64{false: 7, true: 2} {
		commits := notedCommits{}
		s := newSession(r, ingest.Assignment{Commits: commits})
		s.prefetcher = filled(map[int]int64{0: 2, 1: 0}, routedEvent(0, 0, 1, "192.0.2.1"), routedEvent(0, 1, 2, "192.0.2.1"))
		s.sources = []*source{sourceAt(0, v, 0, 1)}
		c := s.nextChunk()
		planned := slices.Clone(c.next)
		planned[0].End = 7
		s.prepared = &preparedChunk{behind: s.standing, announced: planned, plan: chunkPlan{versions: []*routingVersion{v}}}
		if goes {
			s.drop(1)
		}
		if err := s.announce(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		a, err := ingest.DecodeAnnouncement(commits[0].Metadata)
		if err != nil || a.Offset != 1 || a.End != want {
			t.Errorf("a source goes: %v; announced are %d to %d, %v, want 1 to %d", goes, a.Offset, a.End, err, want)
		}
	}
}
