package route

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// The simulated world of the route stage: a requests log that fills by itself, a keyed log, a group coordinator and
// routers that are frozen, killed and rebalanced, over virtual time. Every source of chance has a generator of its own,
// so that a seed gives one run.

const (
	simSources  = 3
	simKeyed    = 4
	simVersions = 12
	simTraffic  = 12 * time.Second // events come, and things go wrong, for so long
	simQuiet    = 60 * time.Second // and all must be routed within so long after
)

var simSecret = []byte("a deployment secret")

var errSim = errors.New("simulated fault")

// simEvent is one record of the requests log.
type simEvent struct {
	offset           int64
	appended         traffic.Time
	time             traffic.Time // as the gateway wrote it
	ip, device, user string
	bad, refused     bool // no event; a request that weir refused
	mark             bool // a control record of the broker, which no fetch returns
	closes           bool // the end mark of a replay
}

func (e *simEvent) value() []byte {
	if e.bad {
		return []byte(`{"v":1,`)
	}
	if e.closes {
		return traffic.EndMark()
	}
	m := map[string]any{"v": 1, "time": e.time.String(), "ip": e.ip, "method": "GET", "path": "/v1/x"}
	if e.device != "" {
		m["device"] = e.device
	}
	if e.user != "" {
		m["user"] = e.user
	}
	if e.refused {
		m["verdict"] = map[string]string{"rule": "a", "block": "b"}
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // a map of strings and numbers
	}
	return b
}

// simRouting is one of the versions that the world publishes: they differ in what they watch.
func simRouting(number int64) *rules.Routing {
	rule := func(id string, missing rules.OnMissing, key ...traffic.KeyField) rules.Version {
		return rules.Version{Number: 1, Lineage: 1, Document: rules.Document{
			ID: id, Owner: "team", Key: key, Missing: missing, Limit: 3, Window: time.Minute, Lateness: time.Second,
		}}
	}
	ip := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}
	device, user := traffic.KeyField{Field: traffic.FieldDevice}, traffic.KeyField{Field: traffic.FieldUser}
	list := []rules.Version{rule("a", rules.MissingSkip, ip)}
	if number%2 == 1 {
		list = append(list, rule("d", rules.MissingSkip, device, ip))
	} else {
		list = append(list, rule("d", rules.MissingGroup, user))
	}
	if number >= 3 {
		list = append(list, rule("e", rules.MissingSkip, device), rule("z", rules.MissingSkip))
	}
	return &rules.Routing{
		Stream: "live", Number: number, RecordFormat: 1, SecretID: "s", Rules: list,
		Identity: traffic.DefaultIdentityMap(), Format: rules.Format{Name: traffic.FormatWeir, MaxEventBytes: 1 << 16},
	}
}

// simRecord is one record of the keyed log.
type simRecord struct {
	at    traffic.Time
	value []byte
}

type world struct {
	seed  uint64
	begin traffic.Time
	loss  float64 // how much of what is sent goes wrong
	lossy bool    // acknowledged batches may vanish

	mu       sync.Mutex
	calm     bool
	requests [simSources][]simEvent
	keyed    [simKeyed][]simRecord
	vanished int
	starts   [simSources]int64
	letters  map[[2]int64]string
	states   map[int]ingest.PartitionStatus // as reported last
	refusals int                            // reports of a partition that is not routed
	granted  []ingest.Acceptance
	replay   bool
	away     [simSources]bool // no fetch of the partition is answered
	stuck    bool             // no event batch is written
	deaf     bool             // no dead letter is written
	spoiled  map[int]spoiled
	edit     func(*Options) // what is special about its routers; nil: nothing
	routing  func(number int64) *rules.Routing
	commits  map[int]ingest.Commit
	history  []map[int]ingest.Commit
	released [simVersions + 1]traffic.Time // when each version was published
	group    coordinator
	late     sync.WaitGroup
}

// spoiled is a stretch of a partition that does not decode, or a partition that is without a leader.
type spoiled struct {
	from, next int64
	leaderless bool
}

// spoil makes a partition as s says; mend undoes it.
func (w *world) spoil(p int, s spoiled) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spoiled[p] = s
}

func (w *world) mend(p int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.spoiled, p)
}

func (w *world) leaderless(partitions []int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(partitions, func(p int) bool { return w.spoiled[p].leaderless })
}

func newWorld(seed uint64) *world {
	w := &world{
		seed: seed, begin: simNow(), letters: map[[2]int64]string{}, spoiled: map[int]spoiled{}, commits: map[int]ingest.Commit{},
		states: map[int]ingest.PartitionStatus{}, routing: simRouting, group: coordinator{members: map[string]*simMember{}},
	}
	r := w.chance(1)
	w.loss = []float64{.03, .1, .2}[r.IntN(3)]
	for p := range w.requests {
		w.requests[p] = simTrafficOf(r, w.begin)
		w.commits[p] = ingest.InitialCommit(7, 0, 0, simKeyed)
	}
	w.released[1] = w.begin
	for v := 2; v <= simVersions; v++ {
		w.released[v] = w.released[v-1].Add(jitter(r, simTraffic/6))
	}
	return w
}

// chance is a generator of its own for each purpose.
func (w *world) chance(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, purpose)) }

// simTrafficOf makes a partition's log: bursts, pauses, late events, clocks that are wrong, bad events.
func simTrafficOf(r *rand.Rand, begin traffic.Time) []simEvent {
	rate := []time.Duration{40, 80, 150}[r.IntN(3)] * time.Millisecond
	name := func(kind string, n int) string { return kind + string(rune('0'+r.IntN(n))) }
	var log []simEvent
	at := begin
	for {
		at = at.Add(time.Duration(r.ExpFloat64() * float64(rate)))
		if r.Float64() < .01 {
			at = at.Add(jitter(r, 2*time.Second))
		}
		if at > begin.Add(simTraffic) {
			return log
		}
		e := simEvent{
			offset: int64(len(log)), appended: at, time: at.Add(-jitter(r, time.Second)),
			ip: name("192.0.2.", 9), device: name("tv-", 5), user: name("u", 5),
		}
		switch x := r.Float64(); {
		case x < .05:
			e.time = at.Add(-jitter(r, 20*time.Second))
		case x < .07:
			e.time = at.Add(jitter(r, 10*time.Second)) // beyond 5 s it is corrected
		case x < .09:
			e.bad = true
		case x < .11:
			e.refused = true
		case x < .16:
			e.device, e.user = "", ""
		case x < .18:
			e.mark = true
		}
		log = append(log, e)
	}
}

func simNow() traffic.Time { return traffic.At(time.Now()) }

// end is the end of a partition's log now. w.mu must be held.
func (w *world) end(p int) int64 {
	n, _ := slices.BinarySearchFunc(w.requests[p], simNow()+1, func(e simEvent, t traffic.Time) int {
		return cmp.Compare(int64(e.appended), int64(t))
	})
	return int64(n)
}

func (w *world) setAway(p int, away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away[p] = away
}

// faulty draws whether something goes wrong.
func (w *world) faulty(r *rand.Rand, p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return r.Float64() < p && !w.calm
}

// later does something after d of virtual time, whoever is dead by then.
func (w *world) later(d time.Duration, do func()) {
	w.late.Go(func() {
		rest(context.Background(), d)
		do()
	})
}

// rest waits for d, or until ctx is done.
func rest(ctx context.Context, d time.Duration) {
	_ = retry.Sleep(ctx, d) // its error is ctx's
}
