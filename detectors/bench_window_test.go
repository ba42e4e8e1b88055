package detectors

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// printOf is the fingerprint of key n (splitmix64, Steele et al. 2014): as good as SipHash's for this, and cheaper.
func printOf(n uint64) Fingerprint {
	mix := func(x uint64) uint64 {
		x ^= x >> 30
		x *= 0xbf58476d1ce4e5b9
		x ^= x >> 27
		x *= 0x94d049bb133111eb
		return x ^ x>>31
	}
	return Fingerprint{mix(n + 0x9e3779b97f4a7c15), mix(n + 0x3c6ef372fe94f82a)}
}

// workload is a stream of events in order over so many keys, each with so many events a window in the mean.
type workload struct {
	name   string
	rule   rules.Document
	perKey float64
}

func workloads() []workload {
	doc := func(a rules.Algorithm, limit int) rules.Document {
		return rules.Document{ID: "bench", Algorithm: a, Limit: limit, Window: 5 * time.Minute, Lateness: time.Minute}
	}
	return []workload{
		{name: "fixed", rule: doc(rules.AlgorithmFixed, 10), perKey: 3},
		{name: "sliding limit 2", rule: doc(rules.AlgorithmSliding, 2), perKey: 0.25},
		{name: "sliding limit 10", rule: doc(rules.AlgorithmSliding, 10), perKey: 3},
		{name: "sliding-counter", rule: doc(rules.AlgorithmSlidingCounter, 10), perKey: 3},
		{name: "leaky-bucket", rule: doc(rules.AlgorithmLeakyBucket, 10), perKey: 3},
		{name: "sliding limit 1000, few events", rule: doc(rules.AlgorithmSliding, 1000), perKey: 2},
		{name: "sliding limit 1000", rule: doc(rules.AlgorithmSliding, 1000), perKey: 20},
	}
}

// BenchmarkWindow is one window update: from a key's fingerprint to the verdict, at uniform keys in random order. Beside
// it, in the same run and in turns of some milliseconds, a Go map from the same fingerprints to two words counts one of
// them up. The figures are those of the better half of all turns, so that what else the machine does counts little.
func BenchmarkWindow(b *testing.B) {
	for _, keys := range []int{1_000_000, 10_000_000} {
		if testing.Short() && keys > 1_000_000 {
			continue
		}
		m := map[Fingerprint]cell{}
		for n := range keys {
			m[printOf(uint64(n))] = cell{}
		}
		for _, w := range workloads() {
			b.Run(fmt.Sprintf("%dM/%s", keys/1_000_000, w.name), func(b *testing.B) { benchWindow(b, w, keys, m) })
		}
	}
}

const updatesPerTurn = prefetchMost * 1500

func benchWindow(b *testing.B, w workload, keys int, m map[Fingerprint]cell) {
	u := newUpdates(w, keys)
	r := rand.New(rand.NewPCG(1, 2))
	var ours, theirs []float64
	sum := uint64(0)
	for _, c := range m {
		sum -= c.a
	}
	u.exceedances = 0
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		start := time.Now()
		for range updatesPerTurn / prefetchMost {
			u.batch(r)
		}
		ours = append(ours, float64(time.Since(start).Nanoseconds())/updatesPerTurn)
		b.StopTimer()
		start = time.Now()
		for range updatesPerTurn {
			k := printOf(r.Uint64N(uint64(keys)))
			c := m[k]
			c.a++
			m[k] = c
		}
		theirs = append(theirs, float64(time.Since(start).Nanoseconds())/updatesPerTurn)
		b.StartTimer()
	}
	b.StopTimer()
	for _, c := range m {
		sum += c.a
	}
	if sum != uint64(b.N)*updatesPerTurn || len(m) != keys {
		b.Fatalf("%d updates of the map, %d keys", sum, len(m))
	}
	u.check(b)
	b.ReportMetric(betterHalf(ours), "ns/update")
	b.ReportMetric(betterHalf(theirs), "ns/go-map")
	b.ReportMetric(betterHalf(theirs)/betterHalf(ours), "x")
	b.ReportMetric(float64(u.exceedances)/float64(b.N)/updatesPerTurn*100, "%over")
	b.ReportMetric(0, "ns/op")
}

// betterHalf is the median of the lesser half.
func betterHalf(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)/4]
}

// updates feeds one lineage.
type updates struct {
	l           *lineage
	ev          event
	now         float64
	step        float64
	keys        int
	exceedances int
	loaded      uint64
}

func newUpdates(w workload, keys int) *updates {
	u := &updates{l: newLineage("bench", 1, &ledger{}), keys: keys, now: 1.7e15}
	u.step = float64(w.rule.Window.Microseconds()) / (w.perKey * float64(keys))
	b := newBinding(&rules.Version{Document: w.rule}, u.l)
	u.ev = event{units: 1, limit: b.limit, burst: b.burst}
	u.l.feed(&b)
	for n := range keys {
		u.update(uint64(n))
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range min(int(2*w.perKey*float64(keys)), 20_000_000) { // into the steady state
		u.update(r.Uint64N(uint64(keys)))
	}
	return u
}

// batch makes prefetchMost updates as FoldAll does: it looks all keys up together first.
func (u *updates) batch(r *rand.Rand) {
	var keys [prefetchMost]Fingerprint
	for i := range keys {
		keys[i] = printOf(r.Uint64N(uint64(u.keys)))
	}
	var spots [prefetchMost]*slot
	var at [prefetchMost]int32
	for i := range keys {
		spots[i], at[i] = u.l.cells.guess(keys[i])
	}
	u.loaded += u.l.ledger.prefetch(spots[:])
	for i := range keys {
		u.one(keys[i], at[i])
	}
}

func (u *updates) update(n uint64) { u.one(printOf(n), 0) }

func (u *updates) one(key Fingerprint, at int32) {
	u.ev.time = traffic.Time(u.now)
	u.ev.dead = u.ev.time - minute
	u.ev.exceedances, u.ev.nth = u.ev.exceedances[:0], 0
	c, _ := u.l.cellOf(key, at)
	u.l.algorithm.add(c, &u.ev)
	if len(u.ev.exceedances) > 0 {
		u.exceedances++
		if u.l.ranges != nil {
			u.l.ranges.trim(c, &u.ev)
		}
	}
	u.now += u.step
}

func (u *updates) check(b *testing.B) {
	if u.l.cells.n != u.keys || u.l.ledger.keys != u.keys {
		b.Fatalf("%d keys of %d", u.l.cells.n, u.keys)
	}
	checkCells(b, u.l, traffic.Time(u.now))
}

// checkCells looks at a sample of cells: each must hold what its key was given.
func checkCells(b *testing.B, l *lineage, now traffic.Time) {
	seen, last := 0, Fingerprint{}
	l.cells.walk(keyRange{to: 1<<64 - 1, limit: 1 << 62}, func(s *slot, _ uint8) bool {
		if seen > 0 && !last.less(s.key()) {
			b.Fatal("keys are not in order")
		}
		if count, newest := l.algorithm.gauge(&s.cell); count < 0 || newest > now {
			b.Fatalf("a cell of %d events, newest %v", count, newest)
		}
		seen, last = seen+1, s.key()
		return false
	}, nil)
	if seen != l.cells.n {
		b.Fatalf("%d keys walked of %d", seen, l.cells.n)
	}
}

// BenchmarkBytesPerKey grows a table to ten million keys and reports the most bytes a key that the heap held at any of
// many points on the way, everything included, sub-tables that are being replaced too.
func BenchmarkBytesPerKey(b *testing.B) {
	for _, a := range []rules.Algorithm{rules.AlgorithmFixed, rules.AlgorithmSlidingCounter, rules.AlgorithmTokenBucket, rules.AlgorithmSliding} {
		b.Run(string(a), func(b *testing.B) {
			for b.Loop() {
				worst, last := growTo(10_000_000, a)
				b.ReportMetric(worst, "worst-B/key")
				b.ReportMetric(last, "B/key")
			}
		})
	}
}

// BenchmarkBytesPerSlicedKey is what a key of `sliding` above the limit of its log takes, by its events in a window: the heap
// after a collection, of a hundred thousand keys whose events are spread evenly.
func BenchmarkBytesPerSlicedKey(b *testing.B) {
	const keys = 100_000
	for _, events := range []int{2, 20, 200} {
		b.Run(fmt.Sprint(events, " events"), func(b *testing.B) {
			for b.Loop() {
				heap, charged := slicedKeys(b, keys, events)
				b.ReportMetric(heap/keys, "B/key")
				b.ReportMetric(charged/keys, "charged-B/key")
			}
		})
	}
}

func slicedKeys(b *testing.B, keys, events int) (heap, charged float64) {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	before := stats.HeapAlloc
	l := newLineage("bench", 1, &ledger{})
	binding := newBinding(&rules.Version{Document: rules.Document{Limit: 1000, Window: 5 * time.Minute, Lateness: time.Minute}}, l)
	ev := event{units: 1, limit: 1000}
	l.feed(&binding)
	start := traffic.Time(1_700_000_000_000_000)
	for i := range events {
		ev.time = start + traffic.Time(i)*l.window/traffic.Time(events)
		ev.dead = start - l.lateness
		for n := range keys {
			c, _ := l.cellOf(printOf(uint64(n)), 0)
			l.algorithm.add(c, &ev)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&stats)
	c, _ := l.cellOf(printOf(0), 0)
	if count, _ := l.algorithm.gauge(c); l.cells.n != keys || count != int64(events) {
		b.Fatalf("%d keys of %d, %d events of %d", l.cells.n, keys, count, events)
	}
	return float64(stats.HeapAlloc - before), float64(l.ledger.bytes)
}

func growTo(keys int, a rules.Algorithm) (worst, last float64) {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	before := stats.HeapAlloc
	l := newLineage("bench", 1, &ledger{})
	binding := newBinding(&rules.Version{Document: rules.Document{Algorithm: a, Limit: 10, Window: 5 * time.Minute, Lateness: time.Minute}}, l)
	ev := event{units: 1, limit: 10, burst: 10, time: 1_700_000_000_000_000}
	l.feed(&binding)
	for n := 1; n <= keys; n++ {
		c, _ := l.cellOf(printOf(uint64(n)), 0)
		l.algorithm.add(c, &ev)
		// From five million on the size of sub-tables goes through a whole cycle.
		if n >= keys/2 && n%(keys/100) == 0 {
			runtime.GC()
			runtime.ReadMemStats(&stats)
			last = float64(stats.HeapAlloc-before) / float64(n)
			worst = max(worst, last)
		}
	}
	if l.cells.n != keys {
		return -1, -1
	}
	runtime.KeepAlive(l)
	return worst, last
}
