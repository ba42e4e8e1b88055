package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/blocklist/reconcile"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/consume"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/ingest/route"
)

// stage is what a process runs.
type stage interface {
	Run(ctx context.Context) error
}

// seat is a place for a process: when one dies, another one takes it.
type seat struct {
	name  string
	make  func(h *host) (stage, error)
	group *group
}

func (w *world) seats() []seat {
	seats := []seat{
		{ingest.StageRoute, w.router, w.routers}, {ingest.StageRoute, w.router, w.routers},
		{ingest.StageDetect, w.detector, w.detectors}, {ingest.StageDetect, w.detector, w.detectors},
		{ingest.StageRecord, w.recorder, w.recorders}, {ingest.StageEnforce, w.enforcer, w.keepers},
	}
	if w.seed%2 == 0 {
		seats = append(seats, seat{ingest.StageEnforce, w.enforcer, w.keepers})
	}
	if w.gated {
		seats = append(seats, seat{"gate", w.gate, nil})
	}
	return seats
}

// run plays the world to its end.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	routing, enough := context.WithCancel(ctx)
	var running, routers sync.WaitGroup
	running.Go(func() { w.beats(ctx) })
	running.Go(func() { w.release(ctx) })
	running.Go(func() { w.watchModes(ctx) })
	if w.script != nil {
		running.Go(func() { w.script.perform(ctx, w) })
	}
	if w.gated {
		running.Go(func() { w.storm(ctx) })
		running.Go(func() { w.watchGate(ctx) })
	}
	for i, s := range w.seats() {
		if s.group == w.routers {
			routers.Go(func() { w.sit(routing, s, uint64(i)) })
		} else {
			running.Go(func() { w.sit(ctx, s, uint64(i)) })
		}
	}
	rest(ctx, w.end.Sub(now())+4*time.Second)
	w.calm.Store(true)
	w.await(ctx, "routed", 4*time.Minute, w.routed)
	enough()
	routers.Wait()
	w.late.Wait()
	w.close()
	w.await(ctx, "folded", 2*time.Minute, w.foldedAll)
	w.await(ctx, "recorded and enforced", 2*time.Minute, w.applied)
	if w.gated {
		w.await(ctx, "loaded by the gate", 4*time.Minute, w.gateWhole)
		rest(ctx, judgedAfter)
		w.judgeGate(true)
	}
	cancel()
	running.Wait()
	w.late.Wait()
}

// await waits until something is so, or has failed to become so for long enough.
func (w *world) await(ctx context.Context, what string, timeout time.Duration, so func() bool) {
	for end := now().Add(timeout); ; rest(ctx, 503*time.Millisecond) {
		w.mu.Lock()
		done := so()
		if !done && now() > end {
			w.say("not %s in time", what)
			done, w.overdue = true, true
		}
		w.mu.Unlock()
		if done {
			return
		}
	}
}

func (w *world) routed() bool {
	for p := range w.requests.parts {
		if w.routers.commits[p].Offset != int64(len(w.requests.parts[p].records)) {
			return false
		}
	}
	return true
}

// foldedAll reports whether every keyed partition was folded to its end, with its hits acknowledged, or has stopped.
func (w *world) foldedAll() bool {
	for q := range w.keyed.parts {
		st, ok := w.states[q]
		if !ok || !stoppedForGood(st) && st.Offset != int64(len(w.keyed.parts[q].records)) {
			return false
		}
	}
	return true
}

func (w *world) applied() bool {
	for _, g := range []*group{w.recorders, w.keepers} {
		for p := range w.hits.parts {
			if g.commits[p].Offset != int64(len(w.hits.parts[p].records)) {
				return false
			}
		}
	}
	return true
}

// sit runs one process after another in a seat. Each is frozen, shaken and killed at random.
func (w *world) sit(ctx context.Context, s seat, number uint64) {
	d := roll(w.seed, 100+number)
	for life := uint64(0); ctx.Err() == nil; life++ {
		h := newHost(w, fmt.Sprintf("%s%d-%d", s.name, number, life), 1000+number+100*life)
		process, err := s.make(h)
		if err != nil {
			w.mu.Lock()
			w.say("%s: %v", h.name, err)
			w.mu.Unlock()
			return
		}
		lifetime, die := context.WithCancel(ctx)
		var chaos sync.WaitGroup
		chaos.Go(func() {
			w.trouble(lifetime, h, s.group, d)
			if h.dead() {
				die()
			}
		})
		err = process.Run(lifetime)
		die()
		chaos.Wait()
		w.mu.Lock()
		if err == nil && s.group == w.routers {
			err = h.oddity
		}
		if err != nil {
			w.say("%s: %v", h.name, err)
		}
		w.mu.Unlock()
		rest(ctx, d.pause(2*time.Second))
	}
}

// trouble is what happens to a process until it is over.
func (w *world) trouble(ctx context.Context, h *host, g *group, d *dice) {
	if w.script != nil {
		w.script.watch(ctx, h)
		return
	}
	for ctx.Err() == nil && !w.calm.Load() {
		rest(ctx, d.pause(15*time.Second))
		x := d.below(100)
		w.mu.Lock()
		switch {
		case ctx.Err() != nil, w.calm.Load():
		case x < 45:
			w.seen.freezes++
			h.freeze(d.pause([]time.Duration{time.Second, 5 * time.Second, 12 * time.Second}[d.below(3)]))
		case x < 70 && g != nil:
			g.rebalance()
		case x < 95:
			w.seen.deaths++
			h.kill()
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// nowhere takes metrics and forgets them.
type nowhere struct{ prometheus.Registerer }

func (nowhere) Register(prometheus.Collector) error { return nil }

func (w *world) router(h *host) (stage, error) {
	key := secret()
	var out ingest.Appender = &topicAppender{host: h, t: w.keyed, rash: w.bugs.ackUnwritten}
	if w.bugs.carryChunk {
		out = carryingAppender{&topicAppender{host: h, t: w.keyed}}
	}
	return route.New(route.Options{
		Stream: string(ingest.Live), Topic: requestsTopic, Generation: generation, Live: true, KeyedPartitions: len(w.keyed.parts),
		Secret: key[:], SecretID: "s",
		Log: &topicLog{h, w.requests}, Keyed: out, Group: &membership{host: h, g: w.routers},
		Routings: routings{h}, Partitions: partitions{h}, DeadLetters: deadLetters{h},
		Clock: now, Logger: quiet(), Registerer: nowhere{},
		MaxChunkEvents: 12, TickEvery: 2500 * time.Millisecond, LookEvery: 3 * time.Second, ReportEvery: 9 * time.Second,
		FetchWait: 2 * time.Second,
	})
}

func (w *world) detector(h *host) (stage, error) {
	return detect.New(detect.Options{
		Stream: string(ingest.Live), Owner: h.name, Generation: generation, Sources: len(w.requests.parts), Keyed: len(w.keyed.parts),
		Secret: detectors.Secret(secret()), Budget: w.budget,
		Log: &topicLog{h, w.keyed}, Hits: &topicAppender{host: h, t: w.hits, rash: w.bugs.ackUnwrittenHits}, HitsCount: len(w.hits.parts),
		Group: &membership{host: h, g: w.detectors}, Routings: routings{h}, Checkpoints: checkpoints{h}, Partitions: partitions{h},
		Clock: now, Workers: 1, Stall: w.stall, Checkpoint: 3 * time.Second, Piece: 300, Logger: quiet(), Registerer: nowhere{},
	})
}

func (w *world) consumer(h *host, g *group, s ingest.Sink) (stage, error) {
	return consume.New(consume.Options{
		Name: g.name, Log: &topicLog{h, w.hits}, Group: &membership{host: h, g: g}, Sink: sink{w, s, make(chan struct{}, 1)},
		BatchRecords: 8, Wait: 2 * time.Second, CommitEvery: 1500 * time.Millisecond, Logger: quiet(), Registerer: nowhere{},
	})
}

func (w *world) recorder(h *host) (stage, error) {
	s, err := history.NewHitRecorder(database{h}, history.Live, hitsTopic, deadLetters{h}, nil, nowhere{})
	if err != nil {
		return nil, err
	}
	return w.consumer(h, w.recorders, s)
}

func (w *world) enforcer(h *host) (stage, error) {
	store, err := blocklist.NewStore(client(redisHook{h}), namespace)
	if err != nil {
		return nil, err
	}
	s, err := enforce.New(enforce.Options{
		Secret: []byte("secret"),
		Store:  store, Stream: blocklist.StreamLive, Topic: hitsTopic, Modes: ruleStore{h}, Rules: ruleStore{h},
		Decisions: decisions{h}, DeadLetters: deadLetters{h}, Clock: now, Logger: quiet(), Registerer: nowhere{},
	})
	if err != nil {
		return nil, err
	}
	c, err := w.consumer(h, w.keepers, s)
	if err != nil {
		return nil, err
	}
	p, err := reconcile.NewPublisher(reconcile.PublisherOptions{
		Store: store, Modes: ruleStore{h}, Clock: now, Logger: quiet(), Registerer: nowhere{},
	})
	if err != nil {
		return nil, err
	}
	return closing{publishes{c, p, h}, store}, nil
}

// closing is a stage with a client that is to be closed after it.
type closing struct {
	stage
	store *blocklist.Store
}

func (c closing) Run(ctx context.Context) error {
	err := c.stage.Run(ctx)
	if closed := c.store.Close(); err == nil {
		err = closed
	}
	return err
}
