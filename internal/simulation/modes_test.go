package simulation

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/weirhq/weir/blocklist/reconcile"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const (
	// promptly is how soon Redis must know of a change of mode, while a publisher is at work that nothing is in the way of.
	promptly = time.Second
	// composed is how long it takes a publisher to try again after something was in its way.
	composed = reconcile.PublishInterval + promptly
	// sweep is how long the assertion of a great many blocks takes.
	sweep = 20 * time.Second
)

// publishes is ENFORCE with the publisher of modes beside it, as weir run has it.
type publishes struct {
	stage
	publisher *reconcile.Publisher
	host      *host
}

func (p publishes) Run(ctx context.Context) error {
	p.host.disturb() // it only begins
	p.host.w.mu.Lock()
	p.host.w.publishers = append(p.host.w.publishers, p.host)
	p.host.w.mu.Unlock()
	ending, end := context.WithCancel(context.WithValue(ctx, laneKey{}, int(publishing-recording)))
	var beside sync.WaitGroup
	if p.host.w.bugs.publishAfterSweep {
		beside.Go(func() {
			for ending.Err() == nil {
				_ = p.publisher.Publish(ending) // that it fails makes no difference to the next sweep
				rest(ending, sweep)
			}
		})
	} else {
		beside.Go(func() { _ = p.publisher.Run(ending) }) // it returns nil
		beside.Go(func() { p.host.w.notify(ending, p.publisher) })
	}
	err := p.stage.Run(ctx)
	end()
	beside.Wait()
	return err
}

// notify tells a publisher of each change, as the rule store does.
func (w *world) notify(ctx context.Context, p *reconcile.Publisher) {
	for _, m := range w.modes {
		if at := traffic.Time(m.From); at > now() {
			rest(ctx, at.Sub(now())+10*time.Millisecond)
			p.ModesChanged()
		}
	}
}

// watchModes looks, time and again, whether Redis knows what a publisher has had the time to tell it.
func (w *world) watchModes(ctx context.Context) {
	for ctx.Err() == nil {
		rest(ctx, 503*time.Millisecond)
		w.mu.Lock()
		for _, m := range w.modes {
			if since := now().Sub(traffic.Time(m.From)); since > promptly && m.Generation > w.publishedGeneration(m.Rule) && w.mayPublish() {
				w.say("%s after generation %d of rule %s, Redis knows generation %d", since, m.Generation, m.Rule, w.publishedGeneration(m.Rule))
				w.mu.Unlock()
				return
			}
		}
		w.mu.Unlock()
	}
}

// mayPublish reports whether some publisher has been at work for long enough.
func (w *world) mayPublish() bool {
	for _, h := range w.publishers {
		if h.steady() > composed {
			return true
		}
	}
	return false
}

func (w *world) publishedGeneration(rule string) int64 {
	text := w.redis.hashes[namespace+":v1:rules"][rule]
	if known, ok := w.published[text]; ok {
		return known // it is asked for some thousand times, and changes a few times
	}
	var m rules.ModeState
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		m.Generation = 0 // it has not been published
	}
	w.published[text] = m.Generation
	return m.Generation
}
