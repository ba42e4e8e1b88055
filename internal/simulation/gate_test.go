package simulation

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/replica"
	"github.com/weirhq/weir/internal/simulation/judge"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// judgedAfter is how long nothing happens before a gate must hold what Redis holds.
const judgedAfter = 5 * time.Second

// gate is a process that holds the blocklist.
type gate struct {
	*host
	replica *replica.Replica
	store   *blocklist.Store
	over    <-chan struct{}
}

func (w *world) gate(h *host) (stage, error) {
	g := &gate{host: h}
	store, err := blocklist.NewStore(client(gateHook{g}), namespace)
	if err != nil {
		return nil, err
	}
	g.store = store
	g.replica, err = replica.New(replica.Options{
		Store: store, Reload: 9 * time.Second, Clock: now, Logger: quiet(), Registerer: nowhere{},
	})
	return g, err
}

func (g *gate) Run(ctx context.Context) error {
	g.over = ctx.Done()
	g.disturb() // it only begins
	g.w.mu.Lock()
	g.w.gateNow = g
	g.w.mu.Unlock()
	return errors.Join(g.replica.Run(ctx), g.store.Close())
}

// gateHook takes the commands of a gate's client. To read everything takes seconds, to read a delta does not.
type gateHook struct{ *gate }

var _ redis.Hook = gateHook{}

// DialHook refuses: there is nothing to dial.
func (g gateHook) DialHook(next redis.DialHook) redis.DialHook {
	return redisHook{g.host}.DialHook(next)
}

// ProcessHook answers a single command.
func (g gateHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		var err error
		switch read, isRead := cmd.(*redis.XStreamSliceCmd); {
		case isRead:
			err = g.read(ctx, read)
		case cmd.Name() == "scan":
			err = g.ask(ctx, scanning, 1500*time.Millisecond, cmd)
		case cmd.Name() == "exists":
			err = g.ask(ctx, scanning, 10*time.Millisecond, cmd)
		default:
			err = g.ask(ctx, following, 10*time.Millisecond, cmd)
		}
		if err != nil {
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook answers a pipeline: the values of keys.
func (g gateHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := g.ask(ctx, scanning, 30*time.Millisecond, cmds...)
		for _, cmd := range cmds {
			if err != nil && !errors.Is(err, redis.Nil) {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// reach is the way to Redis.
func (g gateHook) reach(ctx context.Context, c call, most time.Duration) error {
	err := g.pass(ctx, c, 200*time.Microsecond, most)
	if err == nil && g.fails(c, g.w.loss/10) {
		err = errFault
	}
	if err != nil && c == following {
		g.disturb()
	}
	return err
}

func (g gateHook) ask(ctx context.Context, c call, most time.Duration, cmds ...redis.Cmder) error {
	if err := g.reach(ctx, c, most); err != nil {
		return err
	}
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	var first error
	for _, cmd := range cmds {
		if err := g.w.redis.do(cmd); err != nil {
			cmd.SetErr(err)
			if first == nil {
				first = err
			}
		}
	}
	return first
}

// read is XREAD COUNT n BLOCK ms STREAMS key … id …
func (g gateHook) read(ctx context.Context, cmd *redis.XStreamSliceCmd) error {
	var words []string
	for _, a := range cmd.Args()[6:] {
		word, _ := a.(string)
		words = append(words, word)
	}
	keys, ids := words[:len(words)/2], words[len(words)/2:]
	if g.w.bugs.loadBeforeFollow {
		g.awaitLoad()
		ctx = context.WithoutCancel(ctx)
	}
	if err := g.reach(ctx, following, 10*time.Millisecond); err != nil {
		return err
	}
	timeout := time.NewTimer(500 * time.Millisecond)
	defer timeout.Stop()
	for waited := false; ; {
		g.w.mu.Lock()
		found, grown := g.w.redis.after(keys, ids, 500), g.w.redis.grown
		g.w.mu.Unlock()
		switch {
		case len(found) > 0:
			if g.w.bugs.blindToGaps {
				closeGaps(found, keys, ids)
			}
			cmd.SetVal(found)
			return nil
		case waited:
			return redis.Nil
		}
		select {
		case <-grown:
		case <-timeout.C:
			waited = true
		case <-g.over:
			return context.Canceled
		}
		rest(context.Background(), g.span(following, 50*time.Microsecond, time.Millisecond))
		if err := g.thaw(ctx, following); err != nil {
			return err
		}
	}
}

// awaitLoad waits while the gate has not read everything, as one does that loads before it follows.
func (g gateHook) awaitLoad() {
	for g.replica.Missing() > 0 {
		select {
		case <-g.over:
			return
		case <-time.After(g.span(following, 20*time.Millisecond, 20*time.Millisecond)):
		}
	}
}

// closeGaps makes each entry name the one that was read before it.
func closeGaps(found []redis.XStream, keys, ids []string) {
	last := map[string]string{}
	for i, key := range keys {
		last[key], _ = strings.CutPrefix(ids[i], "0-0")
	}
	for i := range found {
		for n, x := range found[i].Messages {
			x.Values = maps.Clone(x.Values)
			x.Values["prev"], last[found[i].Stream] = last[found[i].Stream], x.ID
			found[i].Messages[n] = x
		}
	}
}

// watchGate asks the gate about everybody, time and again.
func (w *world) watchGate(ctx context.Context) {
	for ctx.Err() == nil {
		rest(ctx, 401*time.Millisecond+7*time.Microsecond)
		w.judgeGate(false)
	}
}

// gateWhole reports whether the gate has read everything.
func (w *world) gateWhole() bool {
	return w.gateNow != nil && w.gateNow.steady() > 0 && w.gateNow.replica.Missing() == 0
}

// judgeGate compares what the gate answers with what it must know.
func (w *world) judgeGate(quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gateNow == nil || w.gateNow.steady() == 0 || len(w.wrong) > 0 {
		return
	}
	k, r := w.redis, w.gateNow.replica
	g := judge.Gate{
		Now: int64(now()), Since: int64(now().Add(-w.gateNow.steady())), Lost: int64(k.lost), Whole: r.Missing() == 0, Quiet: quiet, Modes: k.modes,
	}
	for _, subject := range k.subjects {
		who := k.whose(subject)
		want, known := g.Answer(who.kept)
		if !known {
			continue
		}
		w.seen.answers++
		if !g.Whole {
			w.seen.loadingAnswers++
		}
		b, _ := r.Find(who.identity, rules.Target{Method: "GET", Path: "/v1/x"}, now())
		if !want.Allows(int64(b.Until)) && max(int64(b.Until), want.Until) > g.Now+1000 { // Redis knows milliseconds
			w.say("%s at work for %s (whole: %v, quiet: %v): %s is held until %s, want %s (exactly: %v)", w.gateNow.name, w.gateNow.steady(), g.Whole, quiet,
				subject, b.Until, traffic.Time(want.Until), want.Exact)
			return
		}
	}
}

// asked is one whom a gate is asked about.
type asked struct {
	identity traffic.Identity
	kept     []*judge.Kept
}

// whose makes the request of a subject, and finds all blocks that are about it: of every part of its values.
func (k *keyspace) whose(subject string) *asked {
	if who := k.asked[subject]; who != nil {
		return who
	}
	who := &asked{}
	k.asked[subject] = who
	parts := strings.Split(subject, "&")
	for some := 1; some < 1<<len(parts); some++ {
		var chosen []string
		for i, part := range parts {
			if some>>i&1 == 1 {
				chosen = append(chosen, part)
			}
		}
		who.kept = append(who.kept, k.about[strings.Join(chosen, "&")]...)
	}
	for _, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "ip":
			address, _, _ := strings.Cut(value, "%2F")
			ip, err := netip.ParseAddr(address)
			if err != nil {
				k.w.say("subject %s: %v", subject, err)
			}
			who.identity.IP = ip
		case "device":
			who.identity.Device = value
		case "user":
			who.identity.User = value
		}
	}
	return who
}
