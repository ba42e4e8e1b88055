package enforce

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// shown is what a scrape sees, by rule and mode.
func shown(t rapid.TB, s *Standing) map[string]int {
	t.Helper()
	ch := make(chan prometheus.Metric, 100)
	s.Collect(ch)
	close(ch)
	all := map[string]int{}
	for m := range ch {
		var got dto.Metric
		if err := m.Write(&got); err != nil {
			t.Fatal(err)
		}
		labels := got.GetLabel()
		all[labels[1].GetValue()+" "+labels[0].GetValue()] = int(got.GetGauge().GetValue())
	}
	return all
}

// standingModel is a standing as a list that is counted from end to end.
type standingModel struct {
	modes   map[string]rules.ModeState
	read    []int
	blocks  map[listed]ending
	told    map[listed]bool // by history alone
	reading map[listed]bool // by the present reading
}

// listed is a block of the list, or one that would be.
type listed struct {
	place
	would bool
}

// label is the mode under which blocks of a rule are shown, empty where there are none.
func (m *standingModel) label(rule string, would bool) rules.Mode {
	return map[rules.Mode]map[bool]rules.Mode{
		rules.ModeBlock: {false: rules.ModeBlock}, rules.ModeCanary: {false: rules.ModeCanary, true: rules.ModeShadow}, rules.ModeShadow: {true: rules.ModeShadow},
	}[m.modes[rule].Mode][would]
}

func (m *standingModel) raise(b held, now traffic.Time) {
	mode := m.modes[b.rule]
	if m.label(b.rule, b.would) == "" || mode.Generation != b.generation || !slices.Contains(m.read, b.partition) || b.until <= now {
		return
	}
	key := listed{b.place, b.would}
	old, ok := m.blocks[key]
	if ok = ok && old.until > now; !ok && b.extendOnly || ok && old.released && (b.told || b.extendOnly) {
		return
	}
	m.told[key] = b.told && (!ok || m.told[key])
	if b.told {
		m.reading[key] = true
	}
	if !ok {
		old.until = 0
	}
	m.blocks[key] = ending{until: max(old.until, b.until)}
}

func (m *standingModel) release(at place, until, now traffic.Time) {
	key := listed{at, false}
	if m.label(key.rule, false) == "" {
		return
	}
	if old, ok := m.blocks[key]; ok && old.until > now {
		until = old.until
	}
	if until > now {
		m.blocks[key] = ending{until: until, released: true}
	}
}

// endReading takes for released what history told of once and does not any more.
func (m *standingModel) endReading() {
	for key, e := range m.blocks {
		if m.told[key] && !m.reading[key] {
			m.blocks[key] = ending{until: e.until, released: true}
		}
	}
}

func (m *standingModel) know(modes map[string]rules.ModeState) {
	maps.DeleteFunc(m.blocks, func(key listed, _ ending) bool {
		was, is := m.modes[key.rule], modes[key.rule]
		moved := was.Mode != is.Mode || was.Share != is.Share
		return was.Generation != is.Generation || moved && (key.would || !was.Mode.Blocks() || !is.Mode.Blocks())
	})
	m.modes = modes
}

func (m *standingModel) shown(now traffic.Time) map[string]int {
	all := map[string]int{}
	for rule := range m.modes {
		for _, would := range []bool{false, true} {
			if mode := m.label(rule, would); mode != "" {
				all[rule+" "+string(mode)] = 0
			}
		}
	}
	for key, e := range m.blocks {
		if e.until > now && !e.released {
			all[key.rule+" "+string(m.label(key.rule, key.would))]++
		}
	}
	return all
}

func TestStandingAgreesWithTheList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := traffic.Time(1_800_000_000_000_000)
		s := newStanding(func() traffic.Time { return now }, 1, false)
		m := &standingModel{blocks: map[listed]ending{}, told: map[listed]bool{}, reading: map[listed]bool{}}
		m.know(map[string]rules.ModeState{"r0": {Rule: "r0", Mode: rules.ModeBlock, Generation: 1}, "r1": {Rule: "r1", Mode: rules.ModeShadow, Generation: 1}})
		s.know(m.modes)
		n := func(most int, what string) int { return rapid.IntRange(0, most).Draw(rt, what) } // small ones come more often
		name := func() place {
			device := n(2, "device")
			return place{device, fmt.Sprint("r", n(1, "rule")), traffic.Subject(fmt.Sprint("device=", device))}
		}
		later := func(what string) traffic.Time { return now.Add(time.Duration(18-n(20, what)) * time.Second) }
		rt.Repeat(map[string]func(*rapid.T){
			"raise": func(rt *rapid.T) {
				key := name()
				b := held{
					place: key, generation: m.modes[key.rule].Generation, until: later("until"), extendOnly: n(3, "extend only") == 3,
				}
				if b.would = m.label(key.rule, false) == "" || n(2, "would") == 2; !b.would {
					b.told = n(1, "told") == 1
				}
				if n(4, "stale") == 4 {
					b.generation--
				}
				before := m.shown(now)
				m.raise(b, now)
				if got, want := s.raise(b).fresh, !maps.Equal(before, m.shown(now)); got != want {
					rt.Fatalf("fresh: %v, want %v", got, want)
				}
			},
			"release": func(*rapid.T) {
				key, until := name(), later("stood until")
				if slices.Contains(m.read, key.partition) {
					s.release(key, until)
					m.release(key, until, now)
				}
			},
			"know": func(rt *rapid.T) {
				modes := map[string]rules.ModeState{}
				for i := range 2 {
					if rule := fmt.Sprint("r", i); n(5, "gone") < 5 {
						modes[rule] = rules.ModeState{
							Rule: rule, Mode: rapid.SampledFrom([]rules.Mode{rules.ModeBlock, rules.ModeBlock, rules.ModeCanary, rules.ModeShadow, rules.ModeOff}).Draw(rt, "mode"),
							Generation: int64(1 + n(2, "generation")),
						}
						if m := modes[rule]; m.Mode == rules.ModeCanary {
							m.Share = 100 + n(1, "share")
							modes[rule] = m
						}
					}
				}
				s.know(modes)
				m.know(modes)
			},
			"assign": func(*rapid.T) {
				m.read = []int{n(2, "first"), 2}
				s.Assigned(m.read)
				maps.DeleteFunc(m.blocks, func(key listed, _ ending) bool { return !slices.Contains(m.read, key.partition) })
			},
			"begin reading": func(*rapid.T) {
				s.BeginReading()
				clear(m.reading)
			},
			"end reading": func(*rapid.T) {
				s.EndReading()
				m.endReading()
			},
			"time": func(*rapid.T) { now = now.Add(time.Duration(n(10, "passes")) * time.Second) },
			"": func(rt *rapid.T) {
				if got, want := shown(rt, s), m.shown(now); !maps.Equal(got, want) {
					rt.Fatalf("shown: %v, want %v", got, want)
				}
			},
		})
		now = now.Add(time.Hour)
		shown(rt, s)
		if len(s.tallies) > 0 || s.known[rules.ModeBlock] != 0 || s.known[rules.ModeCanary] != 0 || s.known[rules.ModeShadow] != 0 {
			rt.Fatalf("after all have ended: %d tallies, %v", len(s.tallies), s.known)
		}
	})
}

// What does not fit is not counted, and what has ended makes room. Would-be blocks take none from blocks.
func TestStandingIsBounded(t *testing.T) {
	now := traffic.Time(1_800_000_000_000_000)
	s := newStanding(func() traffic.Time { return now }, 1, true)
	s.most = 3
	s.know(map[string]rules.ModeState{"r1": {Mode: rules.ModeBlock}, "r2": {Mode: rules.ModeShadow}})
	raise := func(rule string, device int) raised {
		return s.raise(held{place: place{device % 2, rule, traffic.Subject(fmt.Sprint("device=", device))}, until: now.Add(time.Minute), would: rule == "r2"})
	}
	for device := range 5 {
		for _, rule := range []string{"r1", "r2"} {
			if got, fits := raise(rule, device), device < 3; got.fresh != fits || got.full == fits {
				t.Errorf("%s, number %d: %+v", rule, device, got)
			}
		}
	}
	want := map[string]int{"r1 block": 3, "r2 shadow": 3}
	if got := shown(t, s); !maps.Equal(got, want) {
		t.Errorf("shown: %v, want %v", got, want)
	}
	now = now.Add(time.Hour)
	if got := raise("r1", 7); !got.fresh {
		t.Errorf("after all have ended: %+v", got)
	}
}

// A process that reads no partition, or none yet, counts nothing; one that no group gives its partitions counts all.
func TestStandingOfNoPartition(t *testing.T) {
	now := traffic.Time(1_800_000_000_000_000)
	for _, all := range []bool{false, true} {
		s := newStanding(func() traffic.Time { return now }, 1, all)
		s.know(map[string]rules.ModeState{"r1": {Mode: rules.ModeBlock}})
		counts := func(when string, want int) {
			t.Helper()
			for partition := range 3 {
				s.raise(held{place: place{partition, "r1", traffic.Subject(fmt.Sprint("device=", partition))}, until: now.Add(time.Minute), told: partition == 1})
			}
			if got := shown(t, s)["r1 block"]; got != want {
				t.Errorf("all %v, %s: %d blocks, want %d", all, when, got, want)
			}
		}
		first := 0
		if all {
			first = 3
		}
		counts("before it is assigned anything", first)
		if s.Asked() != 0 {
			t.Error("it asks for blocks of no partition")
		}
		s.Assigned([]int{0, 1})
		counts("two partitions", 2)
		s.Assigned(nil)
		counts("none", 0)
		if s.Asked() != 1 {
			t.Errorf("it has asked %d times", s.Asked())
		}
	}
}

// More readings than a number of one is wide.
func TestReadingsWithoutEnd(t *testing.T) {
	now := traffic.Time(1_800_000_000_000_000)
	s := newStanding(func() traffic.Time { return now }, 1, true)
	s.know(map[string]rules.ModeState{"r1": {Mode: rules.ModeBlock}})
	for i := range 1<<16 + 2 {
		s.BeginReading()
		s.raise(held{place: place{0, "r1", "device=a"}, until: now.Add(time.Minute), told: true})
		if s.EndReading(); shown(t, s)["r1 block"] != 1 {
			t.Fatalf("reading %d does not see what it has told", i)
		}
	}
	s.BeginReading()
	if s.EndReading(); shown(t, s)["r1 block"] != 0 {
		t.Error("what is told no more still stands")
	}
}

// BenchmarkStanding raises blocks among 300,000 that are in force, and scrapes them.
func BenchmarkStanding(b *testing.B) {
	now := traffic.Time(1_800_000_000_000_000)
	s := newStanding(func() traffic.Time { return now }, 1, true)
	s.know(map[string]rules.ModeState{"r1": {Mode: rules.ModeBlock}})
	const n = 300_000
	subjects := make([]traffic.Subject, n)
	raise := func(i int) {
		s.raise(held{place: place{i % 64, "r1", subjects[i]}, until: now.Add(time.Hour)})
	}
	for i := range subjects {
		subjects[i] = traffic.Subject(fmt.Sprintf("ip=10.%d.%d.%d%%2F32", i>>16, i>>8&255, i&255))
		raise(i)
	}
	if got := shown(b, s)["r1 block"]; got != n {
		b.Fatalf("%d blocks, want %d", got, n)
	}
	b.Run("raise", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			raise(i % n)
			i++
		}
	})
	b.Run("scrape", func(b *testing.B) {
		for b.Loop() {
			shown(b, s)
		}
	})
}
