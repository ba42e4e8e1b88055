package exactness

import (
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/oracle"
)

// stretch is a run of events of one device that a source partition has, so long apart, in seconds after the story's
// start.
type stretch struct {
	source      int
	n           int
	from, every float64
}

// through is a stream of two source partitions, whose events come in the order of stretches. Its rule has limit 20 in
// 5 s.
func through(stretches ...stretch) *Logs {
	l := world(0)
	r := l.routings[1].Rules[0]
	r.Limit, r.Window = 20, 5*time.Second
	l.routings[1] = routing{Rules: []rule{r}}
	next := map[int]int64{}
	for _, s := range stretches {
		for i := range s.n {
			l.keyed[0] = append(l.keyed[0], oracle.Keyed{
				Kind: 1, Source: s.source, Offset: next[s.source], Prev: next[s.source] - 1, Version: 1,
				Rules:  []int{0},
				Device: "d", Time: after(s.from + float64(i)*s.every).UnixMicro(),
			})
			next[s.source]++
		}
	}
	return l.fence()
}

func after(seconds float64) time.Time {
	return time.UnixMicro(1_700_000_000_000_000 + int64(seconds*1e6)).UTC()
}

// Two bursts, which begin at 0 and at 18 s, each 40 events in 4 s, half of them through either partition: 20 events of
// each are over, from its 2.0th second to its 3.9th.
func TestJudgeHitsOfSeveralPartitions(t *testing.T) {
	first, rest := stretch{0, 20, 0, .2}, stretch{1, 20, .1, .2}
	second, its := stretch{0, 40, 18, .1}, stretch{1, 1, 30, 1}
	evenly := func(from float64) (out []stretch) {
		for i := range 20 {
			at := from + float64(i)*.2
			out = append(out, stretch{0, 1, at, 0}, stretch{1, 1, at + .1, 0})
		}
		return out
	}
	quiet := through(slices.Concat(evenly(0), evenly(18), []stretch{its})...)
	stirred := through(first, second, rest)
	hit := func(from, to float64, atLeast bool) Hit {
		return Hit{Source: "r/1 device=d", Closed: true, First: after(from), Last: after(to), Events: 20,
			AtLeast: atLeast}
	}
	one, two := hit(2, 3.9, false), hit(20, 21.9, false)
	bound := hit(20, 21.9, true)
	tests := []struct {
		name        string
		logs        *Logs
		hits        []Hit
		lost, extra int
		says        string
	}{
		{"quiet: both", quiet, []Hit{one, two}, 0, 0, ""},
		{"quiet: bounds are not compared", quiet, []Hit{hit(2.5, 3, false), bound}, 0, 0, ""},
		{"quiet: one is missing", quiet, []Hit{two}, 1, 0, "1 episodes, the oracle has 2"},
		{"quiet: one is missing, and the other is a bound", quiet, []Hit{bound}, 1, 0, "at_least | oracle"},
		{"quiet: one in two parts", quiet, []Hit{hit(2, 2.4, true), hit(3, 3.9, true), bound}, 0, 1, "3 episodes"},
		{"quiet: outside of all", quiet, []Hit{one, two, hit(9, 10, true)}, 0, 1, "3 episodes"},
		{"quiet: outside, and one is missing", quiet, []Hit{hit(9, 10, true), bound}, 1, 1, "2 episodes"},
		{"stirred: both", stirred, []Hit{one, two}, 0, 0, ""},
		{"stirred: no hit is a bound", stirred, []Hit{two}, 1, 0, "oracle 22:13:22.000000..22:13:23.900000 20 hidden"},
		{"stirred: the other is a bound", stirred, []Hit{bound}, 0, 0, ""},
		{"stirred: in parts", stirred, []Hit{hit(2, 2.4, true), hit(3, 3.9, false), two}, 0, 0, ""},
		{"stirred: in parts, no bound", stirred, []Hit{hit(2, 2.4, false), hit(3, 3.9, false), two}, 0, 1,
			"3 episodes"},
		{"stirred: the later one is missing, which was not", stirred, []Hit{hit(2, 3.9, true)}, 1, 0, "hidden"},
		{"stirred: outside of all", stirred, []Hit{one, bound, hit(3.5, 4.5, true)}, 0, 1, "3 episodes"},
		{"stirred: one hit over both", stirred, []Hit{hit(2, 21.9, true)}, 1, 1, "1 episodes"},
		{"stirred: none", stirred, nil, 2, 0, "0 episodes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := test.logs.Expected().Judge(test.hits)
			if v.Lost != test.lost || v.Doubled != 0 || v.Extra != test.extra || v.Episodes != 2 {
				t.Errorf("%+v; want lost %d, doubled 0, extra %d, of 2 episodes", v, test.lost, test.extra)
			}
			expect(t, v.Err(), test.says)
		})
	}
}

// What may have hidden an episode is told from its events' order alone.
func TestStirred(t *testing.T) {
	first, rest := stretch{0, 20, 0, .2}, stretch{1, 20, .1, .2}
	tests := []struct {
		name      string
		stretches []stretch
		want      []stir
	}{
		{"in order", []stretch{first, {1, 20, 3.85, .001}, {0, 60, 18, .1}}, []stir{calm, calm}},
		{"the rest comes after the next burst", []stretch{first, {0, 44, 18, .1}, rest}, []stir{hidden, calm}},
		{"one event of it does", []stretch{first, {1, 19, .1, .2}, {0, 44, 18, .1}, {1, 1, 3.9, 0}},
			[]stir{hidden, calm}},
		{"what is left of an older burst counts for when a log is cut", []stretch{
			{0, 30, -60, 1}, first, {0, 30, 18, .1}, {1, 9, .1, .2},
		}, []stir{hidden, calm}},
		{"the last after as many as are kept", []stretch{{0, 6, 0, .2}, {0, 11, 18, .1}, {1, 16, .1, .1}},
			[]stir{calm}},
		{"and after one more", []stretch{{0, 7, 0, .2}, {0, 11, 18, .1}, {1, 16, .1, .1}}, []stir{hidden}},
		{"not a window after it", []stretch{{0, 60, 0, .1}, {1, 60, 1, .1}}, []stir{calm}},
		{"a window after a part of it", []stretch{{0, 100, 0, .1}, {1, 60, 1, .1}}, []stir{mixed}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			of := through(test.stretches...).Expected()["r/1 device=d"]
			if !slices.Equal(of.stirred, test.want) || of.inOrder && test.want[0] != calm {
				t.Errorf("got %v, want %v, of %s", of.stirred, test.want, of.beside(nil))
			}
		})
	}
}
