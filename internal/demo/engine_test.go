package demo_test

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/demo"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

func clock() traffic.Time { return traffic.At(time.Now()) }

// engine stands in for Kafka and the stages: weir's own decoders, rules and windows around a log in memory, and a
// blocklist that follows docs/blocks.md. Each step takes a while that differs.
type engine struct {
	t          *testing.T
	decoder    format.Decoder
	identifier *traffic.Identifier
	rules      []rules.Version
	index      *rules.Index
	partition  *detectors.Partition
	log        chan appended
	delay      func() time.Duration
	lateHits   time.Duration // added between a hit and its effect

	mu       sync.Mutex
	promoted bool
	unready  []string     // rules that stay in shadow
	mute     bool         // a promotion is taken and has no effect
	visible  traffic.Time // when gates know of it
	blocks   map[blockKey]blocklist.Block
	history  map[string]demo.RecordedHit
	written  int

	last, offset, progress [partitions]int64
}

type blockKey struct {
	rule    string
	subject traffic.Subject
}

const partitions = 4

func newEngine(t *testing.T, documents []byte, seed uint64) *engine {
	t.Helper()
	identity := demo.IdentityMap()
	parsed, err := rules.ParseFiles([]rules.File{{Name: "rules.yaml", Src: documents}}, rules.Environment{Identity: identity})
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t: t, log: make(chan appended, 20_000), blocks: map[blockKey]blocklist.Block{}, history: map[string]demo.RecordedHit{}}
	for i := range parsed {
		v, _ := rules.NextVersion(nil, parsed[i])
		e.rules = append(e.rules, v)
	}
	e.index = rules.NewIndex(e.rules)
	if e.decoder, err = format.NewDecoder(format.Weir, nil, 0); err != nil {
		t.Fatal(err)
	}
	if e.identifier, err = identity.Compile(); err != nil {
		t.Fatal(err)
	}
	e.partition = detectors.NewPartition(detectors.Config{Sources: partitions, Generation: 1})
	e.partition.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: e.rules}))
	for i := range e.last {
		e.last[i] = detectors.NoOffset
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	e.delay = func() time.Duration {
		if rng.IntN(40) == 0 {
			return time.Duration(rng.Int64N(int64(time.Second))) // the machine is busy
		}
		return time.Duration(rng.Int64N(int64(30 * time.Millisecond)))
	}
	return e
}

// appended is a batch in the log, and when the stages come to it.
type appended struct {
	events []demo.Event
	due    time.Time
}

func (e *engine) emit(_ context.Context, events []demo.Event) error {
	e.log <- appended{events, time.Now().Add(e.delay())}
	return nil
}

// run is ROUTE, DETECT, RECORD and ENFORCE, until the log is closed.
func (e *engine) run() {
	for batch := range e.log {
		<-time.After(time.Until(batch.due)) // in order: one that is due earlier waits for those before
		for _, event := range batch.events {
			for _, h := range e.detect(event) {
				e.record(&h)
				if e.lateHits > 0 {
					<-time.After(e.lateHits)
				}
				e.enforce(&h)
			}
		}
	}
}

func (e *engine) detect(event demo.Event) []detectors.Hit {
	var r traffic.Request
	if err := e.decoder.Decode(event.Value, &r); err != nil {
		e.t.Errorf("%s: %v", event.Value, err)
		return nil
	}
	hash := fnv.New32a()
	hash.Write(event.Key)
	p := int(hash.Sum32() % partitions)
	offset := e.offset[p]
	e.offset[p]++
	e.progress[p] = max(e.progress[p], int64(r.Time))
	matched := e.index.Match(nil, &rules.Target{Method: r.Method, Path: r.Path})
	if r.Verdict.Refused() || len(matched) == 0 {
		return nil
	}
	k := detectors.Keyed{
		Kind: detectors.KeyedEvent, Generation: 1, Source: p, Offset: offset, Prev: e.last[p], Time: r.Time,
		Progress: traffic.Time(e.progress[p]), Version: 1, Rules: matched,
	}
	k.Identity, _ = e.identifier.FromEvent(&r)
	hits, err := e.partition.Fold(clock(), &k, nil)
	if err != nil {
		e.t.Error(err)
	}
	e.last[p] = offset
	return hits
}

func (e *engine) record(h *detectors.Hit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.Kind != detectors.KindHit {
		e.t.Errorf("a record of kind %s", h.Kind)
		return
	}
	e.history[h.ID] = demo.RecordedHit{
		Rule: h.Rule, Subject: string(h.Subject), ID: h.ID, First: h.First, Last: h.Last, Count: h.Count,
	}
}

// enforce is blocklist's plan and raise in a few lines: absolute expiries, only raised, by closing hits only where a
// block stands.
func (e *engine) enforce(h *detectors.Hit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := clock()
	for i := range e.rules {
		v := &e.rules[i]
		if v.ID != h.Rule || !e.promoted || slices.Contains(e.unready, v.ID) || e.mute || v.Block == nil || h.BlockSubject == "" {
			continue
		}
		b := blocklist.Block{Rule: h.Rule, Hit: h.ID, Since: h.First, Until: h.Last.Add(v.Block.TTL)}
		key := blockKey{h.Rule, h.BlockSubject}
		old, stands := e.blocks[key]
		stands = stands && old.Until > now
		if b.Until <= now || h.Phase == detectors.PhaseClosed && !stands || stands && old.Until >= b.Until {
			continue
		}
		e.blocks[key] = b
		e.written++
	}
}

// Ready, Rules and Find make it a gate's blocklist.
func (e *engine) Ready() bool { return true }

func (e *engine) Rules() (ids []string) {
	for i := range e.rules {
		ids = append(ids, e.rules[i].ID)
	}
	return ids
}

func (e *engine) Find(id traffic.Identity, request rules.Target, now traffic.Time) (best blocklist.Block, found bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.rules {
		v := &e.rules[i]
		if now < e.visible || v.Block == nil || !v.Match.Reaches(&request) {
			continue
		}
		subject, _ := traffic.MakeSubject(&id, v.Block.Key)
		if b, ok := e.blocks[blockKey{v.ID, subject}]; ok && b.Until > now && b.Until > best.Until {
			best, found = b, true
		}
	}
	return best, found
}

func (e *engine) promote(context.Context) error {
	<-time.After(300 * time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.promoted, e.visible = true, clock().Add(700*time.Millisecond)
	return nil
}

func (e *engine) recorded() (r demo.Recorded) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range e.history {
		r.Hits = append(r.Hits, h)
	}
	return r
}
