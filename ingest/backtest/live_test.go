package backtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// keptLog is a topic in memory. Answers have as many messages as a random number says.
type keptLog struct {
	parts    [][]traffic.Message // by partition; the index of a message is its offset
	start    []int64
	ends     []int64 // nil: what parts have
	random   *rand.Rand
	answered func(l *keptLog, at *ingest.Position) *ingest.Fetched // nil, or nil from it: as it is
	fetches  int
}

func (l *keptLog) end(p int) int64 {
	if l.ends != nil {
		return l.ends[p]
	}
	return int64(len(l.parts[p]))
}

func (l *keptLog) Bounds(_ context.Context, partitions []int) (map[int]ingest.Bounds, error) {
	out := map[int]ingest.Bounds{}
	for _, p := range partitions {
		out[p] = ingest.Bounds{Start: l.start[p], End: l.end(p)}
	}
	return out, nil
}

func (l *keptLog) OffsetsAt(_ context.Context, partitions []int, at traffic.Time) (map[int]int64, error) {
	out := map[int]int64{}
	for _, p := range partitions {
		out[p] = ingest.NoOffset
		for o := l.start[p]; o < l.end(p); o++ {
			if l.parts[p][o].Appended >= at {
				out[p] = o
				break
			}
		}
	}
	return out, nil
}

func (l *keptLog) Fetch(ctx context.Context, positions []ingest.Position, wait time.Duration) ([]ingest.Fetched, error) {
	l.fetches++
	var out []ingest.Fetched
	for i := range positions {
		at := &positions[i]
		if l.answered != nil {
			if f := l.answered(l, at); f != nil {
				f.Partition = at.Partition
				out = append(out, *f)
				continue
			}
		}
		if l.random.IntN(4) == 0 {
			continue // its leader is away
		}
		if at.Offset < l.start[at.Partition] || at.Offset > l.end(at.Partition) {
			out = append(out, ingest.Fetched{Partition: at.Partition, Err: ingest.ErrOutOfRange})
			continue
		}
		next := min(at.Offset+int64(l.random.IntN(90)), l.end(at.Partition))
		out = append(out, ingest.Fetched{
			Partition: at.Partition, Messages: l.parts[at.Partition][at.Offset:next], Next: next, HighWatermark: l.end(at.Partition),
		})
	}
	if len(out) == 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	return out, ctx.Err()
}

// newKeptLog spreads the lines of plainLog over partitions, by address: each was taken a second after its time.
func newKeptLog(lines, partitions int) *keptLog {
	l := &keptLog{parts: make([][]traffic.Message, partitions), start: make([]int64, partitions), random: rand.New(rand.NewPCG(1, 2))}
	for i, line := range strings.SplitAfter(strings.TrimSuffix(string(plainLog(lines)), "\n"), "\n") {
		p := i * i % 50 % partitions
		l.parts[p] = append(l.parts[p], traffic.Message{
			Partition: p, Offset: int64(len(l.parts[p])), Value: []byte(line), Appended: traffic.Time(begin.Add(time.Duration(i+1) * time.Second).UnixMicro()),
		})
	}
	return l
}

func liveOptions(t fataler, partitions int) Options {
	o := plainOptions(t)
	o.Identity, o.Partitions = identity(), partitions
	return o
}

func runLive(t *testing.T, o Options, l *keptLog) *Result {
	t.Helper()
	r, err := RunLive(t.Context(), o, Live{Log: l, Topic: "weir.requests", Rate: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A live topic of one partition gives what a file of its events gives, id by id, whatever the answers are cut into.
func TestLiveIsTheFile(t *testing.T) {
	t.Parallel()
	o := liveOptions(t, 1)
	want := run1(t, o, inMemory("log", plainLog(3000)))
	for seed := range uint64(5) {
		l := newKeptLog(3000, 1)
		l.random = rand.New(rand.NewPCG(seed, 1))
		got := runLive(t, o, l)
		if !reflect.DeepEqual(hitsOf(&got.Rules[0]), hitsOf(&want.Rules[0])) || got.Events != 3000 || len(got.Gaps) != 0 {
			t.Fatalf("%d events, gaps %v, %d hits; want %d", got.Events, got.Gaps, got.Rules[0].Episodes, want.Rules[0].Episodes)
		}
		equalRules(t, "live", &got.Rules[0], &want.Rules[0])
	}
}

// With several partitions, some of which fall silent, nothing is late and nothing depends on how answers are cut.
func TestLiveOfSeveralPartitions(t *testing.T) {
	t.Parallel()
	o := liveOptions(t, 4)
	var want *Result
	for seed := range uint64(6) {
		l := newKeptLog(3000, 3)
		l.parts, l.start = append(l.parts, nil), append(l.start, 0) // nobody writes to the last one
		l.random = rand.New(rand.NewPCG(seed, 1))
		o.Workers = int(seed)%3 + 1
		got := runLive(t, o, l)
		if want == nil {
			want = got
		}
		if !reflect.DeepEqual(bare(got), bare(want)) || !reflect.DeepEqual(hitsOf(&got.Rules[0]), hitsOf(&want.Rules[0])) {
			t.Fatalf("seed %d: %+v, want %+v", seed, bare(got), bare(want))
		}
		if r := &got.Rules[0]; got.Events != 3000 || r.Counted != 3000 || r.Episodes == 0 {
			t.Fatalf("%d events, %d counted, %d episodes", got.Events, r.Counted, r.Episodes)
		}
	}
}

// Since and until are times at which Kafka took an event.
func TestLiveSinceUntil(t *testing.T) {
	t.Parallel()
	o := liveOptions(t, 2)
	at := func(i int) traffic.Time { return traffic.Time(begin.Add(time.Duration(i+1) * time.Second).UnixMicro()) }
	for _, tc := range []struct{ since, until, want int }{{0, 1000, 1000}, {100, 300, 200}, {999, 5000, 1}, {5000, 6000, 0}, {0, 1, 1}} {
		o.Since, o.Until = at(tc.since), at(tc.until)
		if r := runLive(t, o, newKeptLog(1000, 2)); r.Events != int64(tc.want) || r.LeftOut != 0 || len(r.Gaps) > 0 {
			t.Errorf("%+v: %d events, %d left out, gaps %v", tc, r.Events, r.LeftOut, r.Gaps)
		}
	}
}

// What Kafka has no more, or cannot give, is told, and the rest is read.
func TestLiveGaps(t *testing.T) {
	t.Parallel()
	once := func(offset int64, f *ingest.Fetched, change func(l *keptLog)) func(l *keptLog, at *ingest.Position) *ingest.Fetched {
		done := false
		return func(l *keptLog, at *ingest.Position) *ingest.Fetched {
			if done || at.Partition != 0 || at.Offset < offset {
				return nil
			}
			done = true
			if change != nil {
				change(l)
			}
			return f
		}
	}
	for _, tc := range []struct {
		name    string
		prepare func(l *keptLog, o *Options)
		want    []Gap // without Why, which is to begin so:
		why     string
		lost    int64
	}{
		{"begins before the log", func(l *keptLog, o *Options) {
			l.start[0], o.Since = 100, l.parts[0][50].Appended
			for len(l.parts[1]) > 0 && l.parts[1][l.start[1]].Appended < o.Since {
				l.start[1]++ // exactly what is asked for is there
			}
			l.start[1]++
			o.Since = max(o.Since, l.parts[1][l.start[1]].Appended)
		}, []Gap{{0, -1, 100, ""}}, "expired: Kafka keeps this partition from 20", -1},
		{"expires while it is read", func(l *keptLog, _ *Options) {
			l.answered = once(20, &ingest.Fetched{Err: ingest.ErrOutOfRange}, func(l *keptLog) { l.start[0] = 400 })
		}, []Gap{{0, -2, 400, ""}}, "expired while it was read", -2},
		{"a batch that does not decode", func(l *keptLog, _ *Options) {
			l.answered = func(_ *keptLog, at *ingest.Position) *ingest.Fetched {
				if at.Partition == 0 && at.Offset == 0 {
					return &ingest.Fetched{Err: &ingest.UnreadableError{Next: 7, Why: errors.New("bad checksum")}}
				}
				return nil
			}
		}, []Gap{{0, 0, 7, ""}}, "bad checksum", 7},
		{"a batch behind which nothing is found", func(l *keptLog, _ *Options) {
			l.answered = once(0, &ingest.Fetched{Err: &ingest.UnreadableError{Next: ingest.NoOffset, Why: errors.New("bad length")}}, nil)
		}, []Gap{{0, 0, 1000, ""}}, "bad length", 1000},
		{"a log that was cut", func(l *keptLog, _ *Options) {
			l.answered = once(500, &ingest.Fetched{Err: ingest.ErrOutOfRange}, func(l *keptLog) { l.ends = []int64{300, l.end(1)} })
		}, []Gap{{0, -2, 1000, ""}}, "cut off: the log ends at offset 300 now", -2},
		{"an open transaction at its end", func(l *keptLog, _ *Options) {
			l.answered = func(_ *keptLog, at *ingest.Position) *ingest.Fetched {
				if at.Partition == 0 && at.Offset >= 900 {
					return &ingest.Fetched{Next: at.Offset, HighWatermark: 1000, Held: true, Readable: at.Offset}
				}
				return nil
			}
		}, nil, "", -2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o, l := liveOptions(t, 2), newKeptLog(2000, 2)
			whole := [2]int64{int64(len(l.parts[0])), int64(len(l.parts[1]))}
			if whole != [2]int64{1000, 1000} {
				t.Fatalf("partitions of %v", whole)
			}
			tc.prepare(l, &o)
			r := runLive(t, o, l)
			if len(r.Gaps) != len(tc.want) {
				t.Fatalf("gaps %+v, want %+v", r.Gaps, tc.want)
			}
			for i, g := range r.Gaps {
				if tc.want[i].From == -2 {
					g.From = -2 // depends on how answers are cut
				}
				if !strings.HasPrefix(g.Why, tc.why) || (Gap{g.Partition, g.From, g.To, ""}) != tc.want[i] {
					t.Errorf("gap %+v, want %+v because of %s", g, tc.want[i], tc.why)
				}
			}
			if tc.lost >= 0 && r.Events != 2000-tc.lost || r.Events < 1000 {
				t.Errorf("%d events, lost %d", r.Events, tc.lost)
			}
		})
	}
}

// Events that are none are told with partition and offset.
func TestLiveRefusals(t *testing.T) {
	t.Parallel()
	l := newKeptLog(100, 2)
	l.parts[1][7].Value = []byte("{\n")
	l.parts[0][3].Value = nil
	l.parts[0][4].Value = []byte("{\n\"v\":1,\n\"ip\":\"192.0.2.9\"}\n") // without a time, and on several lines
	r := runLive(t, liveOptions(t, 2), l)
	if r.Lines != 100 || r.Events != 98 || r.Rules[0].Counted != 98 || len(r.Examples) != 2 || r.Refused["malformed"] == 0 {
		t.Errorf("%d events of %d, %d counted, refused %v", r.Events, r.Lines, r.Rules[0].Counted, r.Refused)
	}
	if !slices.ContainsFunc(r.Examples, func(s string) bool { return strings.HasPrefix(s, "weir.requests, partition 1, offset 7: malformed: ") }) {
		t.Errorf("examples %q", r.Examples)
	}
}

// Reading keeps to its rate, ends with its context, and gives up on a Kafka that gives nothing.
func TestLiveRateAndSilence(t *testing.T) {
	t.Parallel()
	const bytes = 100 * 1000
	t.Run("rate", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newKeptLog(1000, 2)
			size := 0
			for _, part := range l.parts {
				for i := range part {
					size += len(part[i].Value)
				}
			}
			begun := time.Now()
			if _, err := RunLive(t.Context(), liveOptions(t, 2), Live{Log: l, Topic: "t", Rate: 1000}, nil); err != nil {
				t.Fatal(err)
			}
			took := time.Since(begun)
			if least := time.Duration(size-bytes/2) * time.Millisecond; took < least || took > time.Duration(size+bytes)*time.Millisecond {
				t.Errorf("%d bytes took %s at 1000 a second", size, took)
			}
		})
	})
	t.Run("silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newKeptLog(1000, 2)
			l.answered = func(_ *keptLog, at *ingest.Position) *ingest.Fetched {
				if at.Partition == 1 {
					time.Sleep(time.Second)
					return &ingest.Fetched{Err: errors.New("leader is away"), Next: at.Offset}
				}
				return nil
			}
			begun := time.Now()
			_, err := RunLive(t.Context(), liveOptions(t, 2), Live{Log: l, Topic: "t", Rate: -1}, nil)
			if err == nil || !strings.Contains(err.Error(), "nothing was to be read of partitions [1] for 1m0s: leader is away") || time.Since(begun) > 2*time.Minute {
				t.Errorf("after %s: %v", time.Since(begun), err)
			}
		})
	})
	t.Run("interrupt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := RunLive(ctx, liveOptions(t, 2), Live{Log: newKeptLog(1000, 2), Topic: "t", Rate: 100}, nil)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	})
}

// What is held is bounded, however far one partition's events lie behind another's.
func TestLiveHoldsLittle(t *testing.T) {
	t.Parallel()
	l := &keptLog{parts: make([][]traffic.Message, 2), start: make([]int64, 2), random: rand.New(rand.NewPCG(1, 2))}
	for p := range l.parts {
		for i := range 20_000 {
			at := begin.Add(time.Duration(i)*time.Second + time.Duration(p)*100*time.Hour)
			l.parts[p] = append(l.parts[p], traffic.Message{Partition: p, Offset: int64(i), Appended: traffic.Time(at.UnixMicro()), Value: []byte(lineOf(at, fmt.Sprintf("192.0.2.%d", i%50), "", "", "/a"))})
		}
	}
	furthest := int64(0)
	l.answered = func(_ *keptLog, at *ingest.Position) *ingest.Fetched {
		if at.Partition == 1 {
			furthest = max(furthest, at.Offset)
		}
		if at.Partition == 0 && at.Offset < 15_000 && furthest > 10_000 {
			panic("the later partition is read far ahead of the earlier one")
		}
		return nil
	}
	o := liveOptions(t, 2)
	synctest.Test(t, func(t *testing.T) { // leaders are away for seconds, again and again
		if r := runLive(t, o, l); r.Events != 40_000 || r.Rules[0].Counted != 40_000 {
			t.Errorf("%d events, %d counted", r.Events, r.Rules[0].Counted)
		}
	})
}
