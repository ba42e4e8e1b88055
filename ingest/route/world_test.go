package route

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// The world of the route stage in memory: a requests log, a keyed log, the stores, and a group whose only member is the
// router. What goes wrong in it is what a test says; internal/simulation has the worlds that go wrong by themselves.

const (
	simSources  = 3
	simKeyed    = 4
	simVersions = 12
)

var simSecret = []byte("a deployment secret")

var errSim = errors.New("simulated fault")

// simEvent is one record of the requests log.
type simEvent struct {
	offset           int64
	appended         traffic.Time
	time             traffic.Time // as the gateway wrote it
	ip, device, user string
	bad              bool // no event
	closes           bool // the end mark of a replay
}

func (e *simEvent) value() []byte {
	if e.bad {
		return []byte(`{"v":1,`)
	}
	if e.closes {
		return format.EndMark()
	}
	m := map[string]any{"v": 1, "time": e.time.String(), "ip": e.ip, "method": "GET", "path": "/v1/x"}
	if e.device != "" {
		m["device"] = e.device
	}
	if e.user != "" {
		m["user"] = e.user
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
		Identity: traffic.DefaultIdentityMap(), Format: rules.Format{Name: format.Weir, MaxEventBytes: 1 << 16},
	}
}

// simRecord is one record of the keyed log.
type simRecord struct {
	at    traffic.Time
	value []byte
}

type world struct {
	begin traffic.Time

	mu       sync.Mutex
	requests [simSources][]simEvent
	keyed    [simKeyed][]simRecord
	starts   [simSources]int64
	letters  map[[2]int64]string
	states   map[int]ingest.PartitionStatus // as reported last
	granted  []ingest.Acceptance
	replay   bool
	away     [simSources]bool // no fetch of the partition is answered
	stuck    bool             // no event batch is written
	deaf     bool             // no dead letter is written
	spoiled  map[int]spoiled
	edit     func(*Options) // what is special about its routers; nil: nothing
	routing  func(number int64) *rules.Routing
	commits  map[int]ingest.Commit
	released [simVersions + 1]traffic.Time // when each version was published
	unnamed  traffic.Time                  // until then nobody is told which one is the newest
}

// spoiled is a stretch of a partition that does not decode, or one that an open transaction keeps back, or a partition
// that is without a leader.
type spoiled struct {
	from, next int64
	leaderless bool
	held       bool
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

func newWorld() *world {
	w := &world{
		begin: simNow(), letters: map[[2]int64]string{}, spoiled: map[int]spoiled{}, commits: map[int]ingest.Commit{},
		states: map[int]ingest.PartitionStatus{}, routing: simRouting,
	}
	for p := range w.requests {
		w.commits[p] = ingest.InitialCommit(7, 0, 0, simKeyed)
	}
	for v := 1; v <= simVersions; v++ {
		w.released[v] = w.begin.Add(time.Duration(v-1) * time.Second)
	}
	return w
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

// rest waits for d, or until ctx is done.
func rest(ctx context.Context, d time.Duration) {
	_ = retry.Sleep(ctx, d) // its error is ctx's
}
