package exactness

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/oracle"
)

// world is a stream of one source partition and one keyed partition, with a rule of limit 1 in 10 s, at rest.
func world(n int) *Logs {
	r := rule{ID: "r", Lineage: 1, Limit: 1, Window: 10 * time.Second}
	r.Key = append(r.Key, struct {
		Field string `json:"field"`
	}{"device"})
	l := &Logs{source: [][]Event{nil}, keyed: [][]oracle.Keyed{nil}, routings: map[int64]routing{1: {Rules: []rule{r}}}, secret: make([]byte, 16)}
	for o := range n {
		at := time.Unix(1_700_000_000+int64(o), 0).UTC()
		l.source[0] = append(l.source[0], Event{Time: at.Format(time.RFC3339Nano), IP: "192.0.2.1", Device: "d", Method: "GET", Path: "/"})
		l.keyed[0] = append(l.keyed[0], oracle.Keyed{
			Kind: 1, Offset: int64(o), Prev: int64(o) - 1, Time: at.UnixMicro(), Version: 1, Rules: []int{0},
			IP: netip.MustParseAddr("192.0.2.1"), Device: "d",
		})
	}
	return l
}

func (l *Logs) fence() *Logs {
	l.fenced, l.holes = [][]oracle.Keyed{oracle.Fence(l.keyed[0], func(oracle.Keyed) { l.holes++ })}, 0
	return l
}

func TestJudgeRouting(t *testing.T) {
	tests := []struct {
		name  string
		harm  func(l *Logs)
		lost  int
		extra int
		says  string // "": nothing is wrong
	}{
		{name: "nothing", harm: func(*Logs) {}},
		{name: "a chunk sent twice", harm: func(l *Logs) { l.keyed[0] = append(l.keyed[0], l.keyed[0][2:]...) }},
		{name: "a record lost", harm: func(l *Logs) { l.keyed[0] = append(l.keyed[0][:2:2], l.keyed[0][3:]...) }, lost: 1, says: "offset 2"},
		{name: "the first lost", harm: func(l *Logs) { l.keyed[0] = l.keyed[0][1:] }, lost: 1, says: "offset 0"},
		{name: "two out of order", harm: func(l *Logs) { l.keyed[0][1], l.keyed[0][2] = l.keyed[0][2], l.keyed[0][1] }, lost: 1, says: "offset 1"},
		{name: "a request that does not exist", harm: func(l *Logs) { l.source[0] = l.source[0][:4] }, extra: 1, says: "extra 1"},
		{name: "another rule", harm: func(l *Logs) { l.keyed[0][1].Rules = []int{0, 1} }, says: "rules [0 1]"},
		{name: "another time", harm: func(l *Logs) { l.keyed[0][1].Time++ }, says: "time"},
		{name: "another device", harm: func(l *Logs) { l.keyed[0][1].Device = "e" }, says: "identity"},
		{name: "a repeat that differs", harm: func(l *Logs) {
			again := l.keyed[0][4]
			again.Version = 2
			l.keyed[0] = append(l.keyed[0], again)
		}, says: "came as"},
		{name: "a repeat of what came by a lost version", harm: func(l *Logs) {
			again := l.keyed[0][4]
			again.Version, l.routings[2] = 2, l.routings[1]
			l.keyed[0] = append(l.keyed[0], again)
			l.Lost(l.keyed[0][4].Version, 0)
		}},
		{name: "a version that goes back", harm: func(l *Logs) {
			l.routings[2] = l.routings[1]
			l.keyed[0][1].Version = 2
		}, says: "went back"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := world(5)
			test.harm(l)
			v := l.fence().JudgeRouting()
			if v.Lost != test.lost || v.Extra != test.extra {
				t.Errorf("lost %d, extra %d, want %d and %d", v.Lost, v.Extra, test.lost, test.extra)
			}
			expect(t, v.Err(), test.says)
		})
	}
}

func TestJudgeHoles(t *testing.T) {
	l := world(5)
	l.fence()
	l.holes = 1
	v := l.JudgeRouting()
	expect(t, v.Err(), "predecessor")
}

func TestJudgeHits(t *testing.T) {
	first := time.Unix(1_700_000_001, 0)
	right := Hit{Source: "r/1 device=d", Closed: true, First: first, Last: first.Add(3 * time.Second), Events: 4}
	change := func(f func(h *Hit)) []Hit {
		h := right
		f(&h)
		return []Hit{h}
	}
	tests := []struct {
		name                 string
		hits                 []Hit
		lost, doubled, extra int
		says                 string
	}{
		{name: "right", hits: []Hit{right}},
		{name: "none", lost: 1, says: "0 episodes"},
		{name: "twice", hits: []Hit{right, right}, extra: 1, says: "2 episodes"},
		{name: "of somebody else", hits: append(change(func(h *Hit) { h.Source = "r/1 device=e" }), right), extra: 1, says: "does not have"},
		{name: "an event counted twice", hits: change(func(h *Hit) { h.Events++ }), doubled: 1, says: "5 events"},
		{name: "two events not counted", hits: change(func(h *Hit) { h.Events -= 2 }), lost: 2, says: "2 events"},
		{name: "a bound that is not right", hits: change(func(h *Hit) { h.Last = h.Last.Add(time.Second) }), says: "4 events from"},
		{name: "still open", hits: change(func(h *Hit) { h.Closed = false }), says: "open"},
	}
	want := world(5).fence().Expected()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := want.Judge(test.hits)
			if v.Lost != test.lost || v.Doubled != test.doubled || v.Extra != test.extra {
				t.Errorf("lost %d, doubled %d, extra %d; want %d, %d, %d", v.Lost, v.Doubled, v.Extra, test.lost, test.doubled, test.extra)
			}
			if v.Episodes != 1 {
				t.Errorf("%d episodes were expected, want 1", v.Episodes)
			}
			expect(t, v.Err(), test.says)
		})
	}
}

// A limit that rises above what the log of a source that is over has kept: what comes within a window of the rise may
// be counted too few where the hit says so, and nothing else. 60 events, one a second, window 100 s, limit 10; from the
// 50th on the limit is 40.
func TestJudgeHitsAfterARise(t *testing.T) {
	rising := func(to int) *Logs {
		l := world(60)
		low := l.routings[1].Rules[0]
		low.Limit, low.Window = 10, 100*time.Second
		high := low
		high.Limit = to
		l.routings = map[int64]routing{1: {Rules: []rule{low}}, 2: {Rules: []rule{high}}}
		for i := 50; i < 60; i++ {
			l.keyed[0][i].Version = 2
		}
		return l.fence()
	}
	first := time.Unix(1_700_000_010, 0)
	hit := func(last int, events int64) []Hit {
		return []Hit{{Source: "r/1 device=d", Closed: true, First: first, Last: time.Unix(1_700_000_000+int64(last), 0),
			Events: events, AtLeast: true}}
	}
	unsaid := func(hits []Hit) []Hit {
		hits[0].AtLeast = false
		return hits
	}
	tests := []struct {
		name                 string
		to                   int
		hits                 []Hit
		lost, doubled, extra int
		says                 string
	}{
		{name: "all of it", to: 40, hits: hit(59, 50)},
		{name: "none of what came after", to: 40, hits: hit(49, 40)},
		{name: "none of what came after, unsaid", to: 40, hits: unsaid(hit(49, 40)), lost: 10, says: "the oracle says"},
		{name: "all of it, with no more to be", to: 40, hits: unsaid(hit(59, 50))},
		{name: "less than what came before", to: 40, hits: hit(48, 39), lost: 1, says: "too few"},
		{name: "more than there is", to: 40, hits: hit(59, 51), doubled: 1, says: "too many"},
		{name: "beyond the end", to: 40, hits: hit(60, 50), extra: 1, says: "lies in none"},
		{name: "nothing at all", to: 40, lost: 1, says: "the oracle has 1"},
		{name: "a rise to what was kept", to: 31, hits: hit(58, 49), lost: 1, says: "the oracle says"},
		{name: "a rise to one more", to: 32, hits: hit(58, 49)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := rising(test.to).Expected().Judge(test.hits)
			if v.Lost != test.lost || v.Doubled != test.doubled || v.Extra != test.extra {
				t.Errorf("lost %d, doubled %d, extra %d; want %d, %d, %d", v.Lost, v.Doubled, v.Extra, test.lost, test.doubled, test.extra)
			}
			expect(t, v.Err(), test.says)
		})
	}
}

func expect(t *testing.T, err error, says string) {
	t.Helper()
	switch {
	case says == "" && err != nil:
		t.Errorf("got %v, want nothing", err)
	case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
		t.Errorf("got %v, want something about %q", err, says)
	}
}

func TestProbeSent(t *testing.T) {
	tests := []struct {
		subject string
		want    int64
		ok      bool
	}{
		{"device=probe-1700000000000000-17", 1_700_000_000_000_000, true},
		{"device=tv-17", 0, false},
		{"ip=192.0.2.1%2F32", 0, false},
	}
	for _, test := range tests {
		if at, ok := ProbeSent(test.subject); ok != test.ok || ok && at.UnixMicro() != test.want {
			t.Errorf("%s: got %v and %v, want %v and %v", test.subject, at.UnixMicro(), ok, test.want, test.ok)
		}
	}
}

// TestLoadIsItsSeed holds that a seed says who does what: only times differ.
func TestLoadIsItsSeed(t *testing.T) {
	run := func(seed uint64) (out []Event) {
		s := &Stream{Requests: 4}
		l := s.newLoad(LoadOptions{Events: 1, Rate: 100, Seed: seed})
		for range 1000 {
			e, p := l.next(time.Unix(1_700_000_000, 0))
			if p < 0 || p >= 4 {
				t.Fatalf("partition %d of 4", p)
			}
			l.n++
			out = append(out, e)
		}
		return out
	}
	a, b, c := run(1), run(1), run(2)
	same := true
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("event %d is %+v and %+v", i, a[i], b[i])
		}
		same = same && a[i] == c[i]
	}
	if same {
		t.Error("two seeds give the same load")
	}
}
