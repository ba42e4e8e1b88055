package simulation

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/simulation/judge"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// world is all that the stages talk to, over the virtual time of a bubble.
type world struct {
	seed   uint64
	bugs   bugs
	lab    *lab
	begin  traffic.Time
	end    traffic.Time // of events and faults
	loss   float64      // how much of what is sent goes wrong
	lossy  bool         // acknowledged keyed batches may vanish
	budget int64        // of a keyed partition; 0: what is usual, of which no world needs a part
	full   traffic.Time // from when on Redis is at maxmemory, for good; 0: never
	gated  bool         // there is a gate
	calm   atomic.Bool
	late   sync.WaitGroup // what is on its way

	events   [][]judge.Event
	routings []*rules.Routing
	released []traffic.Time // when each version was published
	modes    []judge.Mode
	outages  []outage
	stall    time.Duration // of the stall clock, after which a source partition is not waited for
	script   *script       // what happens when, in a story; nil: the seed's dice say

	mu                                     sync.Mutex // guards all below
	requests, keyed, hits                  *topic
	routers, detectors, recorders, keepers *group // keepers run ENFORCE
	owned                                  []ownership
	states                                 map[int]ingest.PartitionStatus
	halted                                 map[int]string // why a keyed partition was ever reported as halted
	letters                                map[[2]int64]bool
	tables                                 map[string]map[string]row
	redis                                  *keyspace
	changes                                []judge.Change
	committed                              []judge.Commit // by routers, in the order in which it was stored
	unread                                 []string       // what is wrong with commits that cannot be read
	decided                                map[string]int // decisions, by the hit that they name
	releases                               map[string]int // requests to release, by block
	vanished                               int
	shown                                  map[[2]int]*shown
	wrong                                  []string
	overdue                                bool // something did not come to its end
	publishers                             []*host
	published                              map[string]int64 // generation of a mode, by its text
	gateNow                                *gate            // the newest process
	seen                                   seen
}

// outage is a time for which a source partition has no leader.
type outage struct {
	partition   int
	from, until traffic.Time
}

// tightBudget is for a few keys, or one or two that are over their limit.
const tightBudget = 2 << 10

func newWorld(seed uint64, l *lab) *world {
	d := roll(seed, 1)
	sources, keyed, hits := 1+d.below(3), []int{1, 1, 2, 3}[d.below(4)], 1+d.below(2)
	w := &world{
		seed: seed, bugs: l.bugs, lab: l, begin: now(), loss: []float64{.02, .08, .2}[d.below(3)], lossy: d.below(12) == 0 || l.bugs.lossy,
		states: map[int]ingest.PartitionStatus{}, halted: map[int]string{}, letters: map[[2]int64]bool{}, tables: map[string]map[string]row{},
		decided: map[string]int{}, releases: map[string]int{}, shown: map[[2]int]*shown{}, owned: make([]ownership, keyed), published: map[string]int64{},
		seen: seen{folded: map[int]int64{}}, stall: stall,
	}
	if seed%4 == 3 {
		w.budget = tightBudget
	}
	w.gated = seed%7 == 1
	if seed%8 == 5 {
		full := roll(seed, 5)
		w.full = w.begin.Add(full.span(0, lively))
	}
	w.requests, w.keyed, w.hits = newTopic(w, sources), newTopic(w, keyed), newTopic(w, hits)
	w.routers, w.detectors = newGroup(w, ingest.StageRoute, sources, 1), newGroup(w, ingest.StageDetect, keyed, 2)
	w.recorders, w.keepers = newGroup(w, ingest.StageRecord, hits, 3), newGroup(w, ingest.StageEnforce, hits, 4)
	w.redis = newKeyspace(w)
	w.end = w.begin.Add(lively)
	if d.below(8) == 0 {
		w.end = w.begin.Add(2 * lively)
	}
	for p := range sources {
		list := events(d, w.begin, w.end, w.end > w.begin.Add(lively) && p == sources-1)
		marks := roll(seed, 9, uint64(p))
		for i := range list {
			if marks.below(40) == 0 {
				list[i] = judge.Event{Appended: list[i].Appended, Control: true}
				w.seen.controls++
			}
		}
		w.events = append(w.events, list)
		for i := range list {
			value := encode(&list[i])
			w.requests.parts[p].records = append(w.requests.parts[p].records, entry{at: traffic.Time(list[i].Appended), value: value, shown: value, control: list[i].Control})
		}
		w.routers.commits[p] = ingest.InitialCommit(generation, 0, 0, keyed)
	}
	at := w.begin
	for n := range int64(maxVersions) {
		w.routings = append(w.routings, routingOf(n+1))
		w.released = append(w.released, at)
		at = at.Add(d.span(300*time.Millisecond, []time.Duration{3 * time.Second, 16 * time.Second}[d.below(2)]))
	}
	w.modes = modesOf(d, w.begin)
	away := outage{partition: d.below(sources), from: w.begin.Add(d.span(0, lively))}
	away.until = away.from.Add(d.span(5*time.Second, 50*time.Second))
	w.outages = []outage{away}
	return w
}

// say notes what must not be; the world's lock must be held.
func (w *world) say(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// isFull reports whether Redis is at maxmemory: scripts that ask for more of it are refused.
func (w *world) isFull() bool { return w.full != 0 && now() >= w.full }

// newest is the number of the newest routing version.
func (w *world) newest() int64 {
	n := int64(0)
	for _, at := range w.released {
		if at <= now() {
			n++
		}
	}
	return n
}

// later does something after d, whoever is dead by then.
func (w *world) later(d time.Duration, do func()) {
	w.late.Go(func() {
		rest(context.Background(), d)
		do()
	})
}

// beats moves the groups until ctx is done, and lets retention take what is no longer needed.
func (w *world) beats(ctx context.Context) {
	d := roll(w.seed, 2)
	for n := 1; ctx.Err() == nil; n++ {
		for _, g := range []*group{w.routers, w.detectors, w.recorders, w.keepers} {
			w.mu.Lock()
			g.step()
			w.mu.Unlock()
			rest(ctx, d.span(0, beat/2))
		}
		if n%12 == 0 {
			w.trim()
		}
	}
}

// release lets an operator release some of the blocks that stand, now and then.
func (w *world) release(ctx context.Context) {
	d := roll(w.seed, 3)
	for ctx.Err() == nil && !w.calm.Load() {
		rest(ctx, d.pause(15*time.Second))
		w.mu.Lock()
		if n := len(w.changes); n > 0 && !w.calm.Load() {
			c := w.changes[d.below(n)]
			h, err := blocklist.NewRelease(traffic.Subject(c.Subject), c.Rule, "operator", "a mistake", now())
			if err != nil {
				w.say("release: %v", err)
			}
			h.ID = fmt.Sprintf("%032x", d.next()) // the real one is random
			raw, err := detectors.EncodeHit(&h)
			if err != nil {
				w.say("release: %v", err)
			}
			w.hits.put(h.Partition(len(w.hits.parts)), [][]byte{raw})
			w.releases[judge.Name(c.Subject, c.Rule)]++
		}
		w.mu.Unlock()
	}
}

// close says, for every source partition, that nothing more will come.
func (w *world) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for q := range w.keyed.parts {
		for p := range w.requests.parts {
			a, err := ingest.DecodeAnnouncement(w.routers.commits[p].Metadata)
			if err != nil {
				w.say("commit of %d: %v", p, err)
				continue
			}
			k := detectors.Keyed{
				Kind: detectors.KeyedTick, Generation: generation, Source: p, Offset: a.Offset, Prev: a.Prev[q], Time: traffic.EndOfTime,
			}
			w.keyed.put(q, [][]byte{detectors.AppendKeyed(nil, &k)})
		}
	}
}
