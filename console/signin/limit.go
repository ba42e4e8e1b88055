package signin

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// limits are how often a client, and all clients together, may fail. Whoever brings what is right is let in whatever
// others at his address did: what is right cannot be guessed, so that a limit of tries would keep out nobody else.
type limits struct {
	failures *limiter // tokens and links that were refused
	answers  *limiter // answers of the identity provider to sign-ins of this console that were refused
	lookups  *limiter // sessions that are not sealed, as builds before gave them: each is a question to the store
}

func newLimits(clock func() time.Time) limits {
	return limits{
		failures: newLimiter(clock, rate{burst: 20, every: 6 * time.Second}, rate{burst: 400, every: 50 * time.Millisecond}),
		answers: newLimiter(clock, rate{burst: 20, every: 6 * time.Second},
			rate{burst: 400, every: 50 * time.Millisecond}),
		lookups: newLimiter(clock, rate{burst: 60, every: time.Second},
			rate{burst: 1000, every: 10 * time.Millisecond}),
	}
}

// rate is a token bucket: burst at once, then one every so often.
type rate struct {
	burst int
	every time.Duration
}

// maxClients bounds how many clients a limiter remembers. Of more, those that tried least recently are forgotten; what all of them
// may do together still holds.
const maxClients = 10_000

// limiter counts attempts by client, an IPv4 address or an IPv6 /64, and in all. It keeps times: a bucket is the time at which it is
// full again.
type limiter struct {
	clock    func() time.Time
	each, in rate // of one client; in all

	mu      sync.Mutex
	all     time.Time
	clients map[netip.Prefix]*list.Element
	recent  *list.List // of *client, the one that tried last first
}

type client struct {
	prefix netip.Prefix
	full   time.Time
}

func newLimiter(clock func() time.Time, each, all rate) *limiter {
	return &limiter{clock: clock, each: each, in: all, clients: map[netip.Prefix]*list.Element{}, recent: list.New()}
}

func clientOf(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the invalid address gives the invalid prefix, a client of its own
	return p
}

// wait is how long until a bucket has room for one more; 0 where it has.
func (r rate) wait(full, now time.Time) time.Duration {
	if !full.After(now) {
		return 0
	}
	return max(0, full.Add(r.every).Sub(now)-time.Duration(r.burst)*r.every)
}

// take puts one more into a bucket.
func (r rate) take(full, now time.Time) time.Time {
	if full.Before(now) {
		full = now
	}
	return full.Add(r.every)
}

// exhausted is how long a client has to wait before it may try again; 0 where it may now.
func (l *limiter) exhausted(a netip.Addr) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.clients[clientOf(a)]; ok {
		return l.each.wait(at.Value.(*client).full, l.clock())
	}
	return 0
}

// charge counts an attempt. It returns how long to wait where there were too many, by the client or in all; then it counts nothing.
func (l *limiter) charge(a netip.Addr) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, prefix := l.clock(), clientOf(a)
	var of *client
	if at, ok := l.clients[prefix]; ok {
		l.recent.MoveToFront(at)
		of = at.Value.(*client)
	} else {
		of = &client{prefix: prefix}
	}
	if wait := max(l.each.wait(of.full, now), l.in.wait(l.all, now)); wait > 0 {
		return wait
	}
	of.full, l.all = l.each.take(of.full, now), l.in.take(l.all, now)
	if _, ok := l.clients[prefix]; !ok {
		l.clients[prefix] = l.recent.PushFront(of)
		if l.recent.Len() > maxClients {
			last := l.recent.Back()
			delete(l.clients, l.recent.Remove(last).(*client).prefix)
		}
	}
	return 0
}
