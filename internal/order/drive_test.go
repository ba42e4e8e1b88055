package order

import (
	"encoding/json"
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// driver folds a world into a partition as ROUTE would have written it, and knows by itself which events are late.
type driver struct {
	t        *rapid.T
	world    *world
	cfg      detectors.Config
	p        *detectors.Partition
	now      traffic.Time
	next     []int64
	progress []traffic.Time
	passed   traffic.Time // the least progress of all, as far as it has come
	batch    []detectors.Record
	hits     []detectors.Hit
	late     int64
	before   int64 // late events that partitions before the last restore have counted
	log      story
}

// story is what became of a world.
type story struct {
	all, onTime [2][]oracle.Step // by key, as they came
	hits        [2][]detectors.Hit
}

func address(key int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(key + 1)}) }

// play folds the world, with ticks, snapshots and restores in between.
func (o *world) play(t *rapid.T) *story {
	d := &driver{t: t, world: o, now: origin, passed: traffic.BeforeTime}
	d.cfg = detectors.Config{Sources: len(o.skew), Generation: 1, Secret: detectors.Secret{9}, Budget: o.budget}
	for range o.skew {
		d.next, d.progress = append(d.next, 0), append(d.progress, traffic.BeforeTime)
	}
	d.p = detectors.NewPartition(d.cfg)
	d.learn()
	pauses := rapid.SliceOfN(rapid.IntRange(0, len(o.events)), 0, 3).Draw(t, "restores at")
	batches, ticks := rapid.IntRange(1, 40).Draw(t, "batches of"), rapid.IntRange(1, 30).Draw(t, "ticks every")
	for i := range o.events {
		d.event(&o.events[i])
		if i%ticks == ticks-1 {
			s := i / ticks % len(o.skew)
			d.tick(s, d.progress[s])
		}
		if len(d.batch) >= batches {
			d.fold()
		}
		if slices.Contains(pauses, i) {
			d.restore()
		}
	}
	for s := range o.skew {
		d.tick(s, traffic.EndOfTime)
	}
	d.fold()
	if got := d.before + d.p.Counts().Late; got != d.late {
		t.Fatalf("%d events were late, the partition counted %d\n%s", d.late, got, o)
	}
	d.sortHits()
	return &d.log
}

func (d *driver) learn() {
	for i, v := range d.world.versions() {
		d.p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: int64(i + 1), Rules: []rules.Version{v}}))
	}
}

func (d *driver) event(e *event) {
	s := e.source
	d.progress[s] = max(d.progress[s], e.at)
	d.pass()
	step := d.world.step(e)
	d.log.all[e.key] = append(d.log.all[e.key], step)
	if e.at < d.progress[s]-d.world.lateness || d.passed != traffic.BeforeTime && e.at < d.passed-d.world.lateness {
		d.late++
	} else {
		d.log.onTime[e.key] = append(d.log.onTime[e.key], step)
	}
	k := detectors.Keyed{
		Kind: detectors.KeyedEvent, Generation: 1, Source: s, Offset: d.next[s], Prev: d.next[s] - 1, Time: e.at, Progress: d.progress[s],
		Version: int64(e.version), Rules: []int{0}, Identity: traffic.Identity{IP: address(e.key), Device: e.value},
	}
	if d.world.way.count == rules.CountSum {
		k.Units = []int64{e.units}
	}
	d.next[s]++
	d.append(k)
}

func (d *driver) tick(s int, at traffic.Time) {
	d.progress[s] = max(d.progress[s], at)
	d.pass()
	d.append(detectors.Keyed{Kind: detectors.KeyedTick, Generation: 1, Source: s, Offset: d.next[s], Prev: d.next[s] - 1, Time: at})
}

// pass moves the watermark: no source partition stalls here, all is appended within moments.
func (d *driver) pass() { d.passed = max(d.passed, slices.Min(d.progress)) }

func (d *driver) append(k detectors.Keyed) {
	d.now += 1000
	d.batch = append(d.batch, detectors.Record{Appended: d.now, Keyed: k})
}

func (d *driver) fold() {
	var err error
	if _, d.hits, err = d.p.FoldAll(d.batch, d.hits); err != nil {
		d.t.Fatal(err)
	}
	d.batch = d.batch[:0]
}

// restore goes on with a partition that was made from a snapshot.
func (d *driver) restore() {
	d.fold()
	d.before += d.p.Counts().Late
	e := d.p.BeginSnapshot()
	for !e.Next(1 << 30) {
		continue
	}
	raw := e.Take(nil)
	p, err := detectors.RestoreFrom(d.cfg, int64(len(raw)), func() ([]byte, error) { return raw, nil })
	if err != nil {
		d.t.Fatal(err)
	}
	d.p = p
	d.learn()
}

func (d *driver) sortHits() {
	for _, h := range d.hits {
		if h.Kind != detectors.KindHit {
			continue
		}
		for key := range d.log.hits {
			if string(h.Subject) == "ip="+address(key).String()+"%2F32" {
				d.log.hits[key] = append(d.log.hits[key], h)
			}
		}
	}
}

// closed are the episodes of a key at their end, in order of time.
func (s *story) closed(key int) []detectors.Hit {
	var out []detectors.Hit
	for _, h := range s.hits[key] {
		if h.Phase == detectors.PhaseClosed {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b detectors.Hit) int { return int(a.First - b.First) })
	return out
}

// atLeast reports whether a hit says of itself that its figures are bounds, as its readers see it.
func atLeast(h *detectors.Hit) bool {
	raw, err := detectors.EncodeHit(h)
	if err != nil {
		return false
	}
	var said struct {
		AtLeast bool `json:"at_least"`
	}
	return json.Unmarshal(raw, &said) == nil && said.AtLeast
}
