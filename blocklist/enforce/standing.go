package enforce

import (
	"container/heap"
	"hash/maphash"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// mostStanding bounds the blocks of one mode that are told apart, about 60 bytes each. Further ones are not counted.
const mostStanding = 1 << 20

const standingHelp = "Blocks in force by rule, as this process has decided over the hits partitions that it reads: written, and neither over nor released " +
	"nor ended by a change of the rule's mode. Mode shadow: those that the rule would have, if it blocked; a rule in canary has them beside those of mode canary, for the rest of its keys. Blocks from before its start, or before it was " +
	"given a partition, are taken from history within seconds and once more a minute later, would-be blocks count again with the next update of their " +
	"episode. At most 1,048,576 of a mode."

// Standing counts the blocks that are in force, and those that would be of rules in shadow, by what ENFORCE has decided. It knows
// the end of each one of the partitions that this process reads, so a scrape costs what has ended since the last one. It is safe
// for concurrent use.
type Standing struct {
	now  func() traffic.Time
	n    int // partitions of the hits topic
	desc *prometheus.Desc
	seed maphash.Seed
	most int // mostStanding; tests set less

	mu      sync.Mutex
	rules   map[string]ruleLife
	began   traffic.Time
	all     bool                 // every partition is read, since the beginning
	read    map[int]traffic.Time // since when each partition is read
	asks    int                  // how often partitions came whose blocks only history knows
	reading uint16               // the present or last reading of history; never 0
	tallies map[tallyKey]*tally
	known   map[rules.Mode]int // entries in tallies
}

// tally is the blocks of a rule.
type tally struct {
	mode    rules.Mode
	ends    map[uint64]ending // by hash of the subject
	queue   endings           // has every entry of ends once, at its end or, where it was extended since, before
	inForce int               // entries that were not released
}

// ending is when a block ends, or would have, had it not been released.
type ending struct {
	until     traffic.Time
	partition int32  // of the hits topic, where its subject is
	reading   uint16 // the last reading of history that told of it; 0: this process decided it
	released  bool
}

var _ prometheus.Collector = (*Standing)(nil)

// newStanding counts the blocks of all n partitions or, until Assigned gives it some, of none.
func newStanding(now func() traffic.Time, n int, all bool) *Standing {
	return &Standing{
		now: now, n: n, desc: prometheus.NewDesc("weir_blocks", standingHelp, []string{"rule", "mode"}, nil), seed: maphash.MakeSeed(), most: mostStanding,
		rules: map[string]ruleLife{}, began: now(), all: all, reading: 1, tallies: map[tallyKey]*tally{}, known: map[rules.Mode]int{},
	}
}

// know says which rules there are, and forgets the blocks of those that are gone or have another generation.
func (s *Standing) know(modes map[string]rules.ModeState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lives := make(map[string]ruleLife, len(modes))
	for rule, m := range modes {
		life, ok := s.rules[rule]
		if !ok || life.mode != m.Mode || life.generation != m.Generation || life.share != m.Share {
			life = ruleLife{m.Mode, m.Generation, m.Share, s.now()}
		}
		lives[rule] = life
	}
	for key, t := range s.tallies {
		life := lives[key.rule]
		s.known[t.mode] -= len(t.ends)
		if !life.goesOn(s.rules[key.rule], key.would) {
			delete(s.tallies, key)
			continue
		}
		t.mode, _ = life.tallied(key.would)
		s.known[t.mode] += len(t.ends)
	}
	s.rules = lives
}

// Assigned says which partitions of the hits topic this process reads from now on, and that it reads no others: what it knows of
// those is another process's now.
func (s *Standing) Assigned(partitions []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	read, fresh := make(map[int]traffic.Time, len(partitions)), false
	for _, p := range partitions {
		since, ok := s.read[p]
		if !ok {
			since = s.now()
			fresh = true
		}
		read[p] = since
	}
	s.all, s.read = false, read
	if fresh {
		s.asks++
	}
	for _, t := range s.tallies {
		s.known[t.mode] -= t.keep(func(partition int) bool { _, ok := read[partition]; return ok })
	}
}

// reads reports whether this process read a partition when a record was appended to it, by the clocks of both.
func (s *Standing) reads(partition int, appended traffic.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all {
		return appended >= s.began
	}
	since, ok := s.read[partition]
	return ok && appended >= since
}

// has reports whether this process reads a partition.
func (s *Standing) has(partition int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, reads := s.read[partition]
	return reads || s.all
}

// came is how often this process was given partitions that it did not read before.
func (s *Standing) came() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asks
}

// Asked rises when this process has to be told what stands: it was assigned partitions that it did not read before. It is 0 until
// rules are known: without them, nothing that is told is in force.
func (s *Standing) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rules) == 0 {
		return 0
	}
	return s.asks
}

// BeginReading says that Stands will tell of all that history has.
func (s *Standing) BeginReading() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = max(1, s.reading+1)
}

// EndReading says that Stands has told of all that history has since BeginReading; a reading that is not complete has no end. What
// only an earlier one told of was released since by the process that decided it, whose last decisions came late to history.
func (s *Standing) EndReading() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tallies {
		for hash, e := range t.ends {
			if e.reading != 0 && e.reading != s.reading && !e.released {
				e.released = true
				t.ends[hash] = e
				t.inForce--
			}
		}
	}
}

// Stands says that history has a block that should be in force, whoever wrote it.
func (s *Standing) Stands(h blocklist.Name, b *blocklist.Block) {
	hit := detectors.Hit{BlockSubject: h.Subject}
	s.raise(held{place: place{hit.Partition(s.n), h.Rule, h.Subject}, generation: b.Generation, until: b.Until, told: true})
}

// keep forgets the blocks of other partitions, and returns how many those were.
func (t *tally) keep(mine func(partition int) bool) (others int) {
	all := len(t.ends)
	t.inForce, t.queue = 0, t.queue[:0]
	for hash, e := range t.ends {
		if !mine(int(e.partition)) {
			delete(t.ends, hash)
			continue
		}
		t.queue = append(t.queue, endsAt{e.until, hash})
		if !e.released {
			t.inForce++
		}
	}
	heap.Init(&t.queue)
	return all - len(t.ends)
}

// place is a block by its rule, its subject, and the partition of the hits topic where that is.
type place struct {
	partition int
	rule      string
	subject   traffic.Subject
}

// held is one block that was raised.
type held struct {
	place
	generation int64
	until      traffic.Time
	would      bool // be in force, if the rule blocked, or its canary had a greater share
	extendOnly bool // only where it is in force already
	told       bool // by history, which may not know yet of a release
}

// raised is what raise found.
type raised struct {
	fresh bool         // nothing was in force
	full  bool         // there is no room to remember it
	since traffic.Time // from when on this process has seen all blocks of the rule in the partition
}

// raise notes that a block is in force until then. One of another generation, or of a partition that is not read, is not.
func (s *Standing) raise(b held) raised {
	s.mu.Lock()
	defer s.mu.Unlock()
	life := s.rules[b.rule]
	since, reads := s.read[b.partition]
	mode, holds := life.tallied(b.would)
	if !holds || life.generation != b.generation || !reads && !s.all {
		return raised{}
	}
	now := s.now()
	out := raised{since: max(since, life.since, s.began)}
	t := s.tally(tallyKey{b.rule, b.would}, mode)
	s.expire(t, now)
	hash := maphash.String(s.seed, string(b.subject))
	old, ok := t.ends[hash]
	e := ending{until: max(old.until, b.until), partition: int32(b.partition)} //nolint:gosec // Kafka's own type
	if b.told && (!ok || old.reading != 0) {
		e.reading = s.reading
	}
	switch {
	case b.until <= now, ok && old.released && b.told:
		return out
	case ok && !old.released:
		t.ends[hash] = e
		return out
	case b.extendOnly:
		return out
	case ok:
		t.ends[hash] = e // a later episode, after the release
	case s.known[t.mode] >= s.most && !s.makeRoom(t.mode, now):
		out.full = true
		return out
	default:
		s.enter(t, hash, e)
	}
	t.inForce++
	out.fresh = true
	return out
}

// release notes that a block was released; until is when it would have ended.
func (s *Standing) release(b place, until traffic.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mode, holds := s.rules[b.rule].tallied(false)
	if !holds {
		return
	}
	t := s.tally(tallyKey{b.rule, false}, mode)
	s.expire(t, s.now())
	hash := maphash.String(s.seed, string(b.subject))
	old, ok := t.ends[hash]
	switch {
	case ok && !old.released:
		old.released = true
		t.ends[hash] = old
		t.inForce--
	case !ok && until > s.now() && s.known[t.mode] < s.most:
		s.enter(t, hash, ending{until: until, partition: int32(b.partition), released: true}) //nolint:gosec // as above
	}
}

func (s *Standing) tally(key tallyKey, mode rules.Mode) *tally {
	t := s.tallies[key]
	if t == nil {
		t = &tally{mode: mode, ends: map[uint64]ending{}}
		s.tallies[key] = t
	}
	return t
}

func (s *Standing) enter(t *tally, hash uint64, e ending) {
	t.ends[hash] = e
	heap.Push(&t.queue, endsAt{e.until, hash})
	s.known[t.mode]++
}

// expire forgets what has ended.
func (s *Standing) expire(t *tally, now traffic.Time) {
	for len(t.queue) > 0 && t.queue[0].until <= now {
		first := &t.queue[0]
		e := t.ends[first.hash]
		if e.until > now { // extended since it was put there
			first.until = e.until
			heap.Fix(&t.queue, 0)
			continue
		}
		if !e.released {
			t.inForce--
		}
		delete(t.ends, first.hash)
		heap.Pop(&t.queue)
		s.known[t.mode]--
	}
}

// makeRoom forgets what has ended of all blocks of a mode, and reports whether there is room for another one.
func (s *Standing) makeRoom(mode rules.Mode, now traffic.Time) bool {
	for _, t := range s.tallies {
		if t.mode == mode {
			s.expire(t, now)
		}
	}
	return s.known[mode] < s.most
}

// Describe implements prometheus.Collector.
func (s *Standing) Describe(ch chan<- *prometheus.Desc) { ch <- s.desc }

// Collect implements prometheus.Collector: each rule that blocks, or would, has a series, and one in canary two.
func (s *Standing) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, all := s.now(), make(map[tallyKey]int, len(s.rules))
	for key, t := range s.tallies {
		s.expire(t, now)
		all[key] = t.inForce
		if len(t.ends) == 0 {
			delete(s.tallies, key) // with the room that its map once needed
		}
	}
	for rule, life := range s.rules {
		for _, would := range []bool{false, true} {
			if mode, counted := life.tallied(would); counted {
				ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(all[tallyKey{rule, would}]), rule, string(mode))
			}
		}
	}
}
