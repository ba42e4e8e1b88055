package demo

import (
	"context"
	"time"
)

const (
	// slack is what lies between two things that must not touch, over and above what they need.
	slack = 30 * time.Millisecond
	// probing is how often one that has gone over asks whether it is blocked by now.
	probing = 5 * time.Millisecond
	// probeTimeout is how long it does so, stalls left out: longer than a block may take.
	probeTimeout = Allowance + 500*time.Millisecond
)

// view plays an ordinary viewer until the phase ends. No pause is measured from when a request was to be sent, but from
// when the one before was answered: however slow the machine, requests only move apart, so nobody goes over by accident.
func (a *actor) view(ctx, phase context.Context) {
	if !a.pause(phase, a.between(0, 2*time.Second)) {
		return
	}
	switch a.client.Kind {
	case KindExact:
		a.exact(ctx, phase)
	case KindEdge:
		a.edge(ctx, phase)
	case KindRetry:
		a.retry(ctx, phase)
	case KindNeighbour:
		a.neighbour(ctx, phase)
	default:
		a.browse(ctx, phase)
	}
}

func (a *actor) exact(ctx, phase context.Context) {
	for range limitTokens {
		a.send(ctx, takeToken())
		if !a.pause(phase, a.between(0, window)) {
			return
		}
	}
}

func (a *actor) edge(ctx, phase context.Context) {
	for {
		for range limitTokens {
			a.send(ctx, takeToken())
		}
		if !a.pause(phase, window+a.between(0, slack)) {
			return
		}
	}
}

func (a *actor) retry(ctx, phase context.Context) {
	for {
		failing := takeToken()
		failing.fault = true
		for tries := 1; a.send(ctx, failing).Status != 200 && tries < limitTokens; tries++ {
			if !a.pause(phase, a.between(50*time.Millisecond, 200*time.Millisecond)) {
				return
			}
			failing.fault = false
		}
		if !a.pause(phase, window+a.between(slack, time.Second)) {
			return
		}
	}
}

func (a *actor) browse(ctx, phase context.Context) {
	a.send(ctx, signIn())
	a.send(ctx, takeToken())
	for a.pause(phase, a.between(250*time.Millisecond, 900*time.Millisecond)) {
		a.send(ctx, a.leaf())
	}
}

// visit is what one of the office does in one round. Those who sign in, and those who look into the catalog, are as many
// as one address may in one window; in each round they are others.
func (a *actor) visit(ctx, phase context.Context, round, of int) {
	if !a.pause(phase, a.between(0, time.Second)) {
		return
	}
	turn := (a.seat + round*7) % of
	if turn < limitSignIn {
		a.send(ctx, signIn())
	}
	if turn < limitCatalog {
		a.send(ctx, a.leaf())
	}
	for range 1 + turn%limitTokens {
		a.send(ctx, takeToken())
	}
}

// neighbour comes again and again, and never more often than it may: it would notice a block that is not its own.
func (a *actor) neighbour(ctx, phase context.Context) {
	for {
		a.send(ctx, takeToken())
		if !a.pause(phase, window/limitTokens+a.between(slack, 5*slack)) {
			return
		}
	}
}

// assault is how an abuser goes over a limit.
type assault struct {
	shot   func() shot
	volley int           // requests that go over
	pace   time.Duration // between them
	waits  bool          // when refused, waits as long as it is told; else it goes on asking
	barely bool          // sends the volley and no more, until it must be blocked
}

// abuse plays an abuser until the phase ends. probe: rules block, so ask until they do.
func (a *actor) abuse(ctx, phase context.Context, probe bool) {
	if !a.pause(phase, a.between(0, 300*time.Millisecond)) {
		return
	}
	switch a.client.Kind {
	case KindRotating:
		a.assail(ctx, phase, probe, assault{shot: takeToken, volley: limitTokens + 1, pace: 20 * time.Millisecond})
	case KindReturning:
		a.assail(ctx, phase, probe, assault{shot: takeToken, volley: limitTokens + 1, pace: 20 * time.Millisecond, waits: true, barely: a.client.Barely})
	case KindStuffer:
		a.assail(ctx, phase, probe, assault{shot: signIn, volley: limitSignIn + 1, pace: 4 * time.Millisecond, barely: a.client.Barely})
	case KindScraper:
		a.assail(ctx, phase, probe, assault{shot: a.leaf, volley: limitCatalog + 1, pace: 4 * time.Millisecond, barely: a.client.Barely})
	case KindSlow:
		const gap = window * 2 / 5 // three in 2.4 s of the 3
		for {
			a.send(ctx, takeToken())
			if !a.pause(phase, gap) {
				return
			}
		}
	}
}

func (a *actor) assail(ctx, phase context.Context, probe bool, how assault) {
	for {
		last, goOn := a.fire(ctx, phase, probe, how)
		if goOn && last.Refused() {
			goOn = a.sitOut(ctx, phase, last, how)
		}
		if !goOn {
			return
		}
	}
}

// sitOut lasts as long as the block.
func (a *actor) sitOut(ctx, phase context.Context, last Answer, how assault) bool {
	if how.waits {
		return a.pause(phase, time.Duration(last.RetryAfter)*time.Second+a.between(slack, 5*slack))
	}
	for last.Refused() {
		if !a.pause(phase, a.between(80*time.Millisecond, 160*time.Millisecond)) {
			return false
		}
		last = a.send(ctx, how.shot())
	}
	return a.pause(phase, how.pace)
}

// fire sends a volley, and then goes on until somebody refuses it, or lies low for the allowance and asks once more.
// Where nobody will refuse it, it lies low until the window is empty.
func (a *actor) fire(ctx, phase context.Context, probe bool, how assault) (last Answer, goOn bool) {
	for range how.volley {
		if last = a.send(ctx, how.shot()); last.Refused() {
			return last, true
		}
		if !a.pause(phase, how.pace) {
			return last, false
		}
	}
	every := probing
	if how.barely {
		every = Allowance + slack
	}
	for began := a.clock(); probe && a.clock() < a.pulse.ran(began, probeTimeout); {
		if !a.pause(phase, every) {
			return last, false
		}
		if last = a.send(ctx, how.shot()); last.Refused() {
			return last, true
		}
	}
	return last, a.pause(phase, window+slack)
}
