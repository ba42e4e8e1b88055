package rulestore

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// repeatsWindow is how long what was told in the audit trail is counted there when it comes again.
	repeatsWindow = time.Hour
	// mostTold bounds the names of a window that the rule store does not have and that get an entry of their own: they
	// cost nothing to whoever writes to Redis.
	mostTold = 100
)

// Repeats remembers what a process has told of overtaken modes in the audit trail. Somebody else who may write to Redis
// can have a rule switched off every two seconds: the first time is an entry, and then each tenth, hundredth and so on
// of an hour, with the number. The zero value remembers nothing. It is safe for concurrent use.
type Repeats struct {
	mu    sync.Mutex
	since time.Time // when the window began
	told  map[string]bool
	made  int // of told, those that the rule store does not have
	n     int // overtakings without an entry of their own in the window
	next  int // n at which an entry tells the number
}

// repeated is what an overtaking is in the light of those before.
type repeated struct {
	ours  []string // rules of the rule store
	made  []string // names that it does not have
	known []string // of ours, those that an entry of the window tells of
	fresh bool     // it tells of a rule that no entry of the window tells of
	quiet bool     // it gets no entry
	count string   // what its entry says of those that had none; empty: there were none
}

// quietOf reports whether a rule of the store gets no entry of its own: not each time that another one is told of for
// the first time, either.
func (r *repeated) quietOf(rule string) bool {
	return r.quiet || r.fresh && slices.Contains(r.known, rule)
}

// look says what an overtaking is, of rules of the store and of names that it does not have. Nothing is remembered
// until it is done.
func (p *Repeats) look(ours, made []string, now time.Time) repeated {
	r := repeated{ours: ours, made: made, fresh: true}
	if p == nil || len(ours)+len(made) == 0 {
		return r
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.n
	if now.Sub(p.since) < repeatsWindow {
		r.known = slices.DeleteFunc(slices.Clone(ours), func(rule string) bool { return !p.told[rule] })
		if r.fresh = len(r.known) < len(ours) || p.made < mostTold && p.lacks(made); !r.fresh {
			n++
			r.quiet = n < p.next
		}
	}
	if n > 0 && !r.quiet {
		r.count = fmt.Sprintf("the like was done %d times more since %s", n, p.since.UTC().Format(time.RFC3339))
	}
	return r
}

// lacks reports whether one of names was not told of.
func (p *Repeats) lacks(names []string) bool {
	for _, name := range names {
		if !p.told[name] {
			return true
		}
	}
	return false
}

// done remembers an overtaking that was stored.
func (p *Repeats) done(r repeated, now time.Time) {
	if p == nil || len(r.ours)+len(r.made) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.since) >= repeatsWindow {
		p.since, p.told, p.made, p.n, p.next = now, map[string]bool{}, 0, 0, 10
	} else if !r.fresh {
		if p.n++; p.n >= p.next {
			p.next *= 10
		}
	}
	for _, name := range r.ours {
		p.told[name] = true
	}
	for _, name := range r.made {
		if !p.told[name] && p.made < mostTold {
			p.told[name] = true
			p.made++
		}
	}
}
