package serving

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds are how many connections a server has at a time.
type Bounds struct {
	All  int // of these
	Kept int // only this machine may have, which asks whether the process is ready
	Each int // one address may have, or one IPv6 /64
	// Many are the prefixes of proxies, each of which comes for many: Each is not asked of them.
	Many []netip.Prefix
}

// DefaultBounds leave room for who looks at an installation, and descriptors to whatever else the process does.
func DefaultBounds() Bounds { return Bounds{All: 512, Kept: 16, Each: 128} }

// Why a connection is closed at once.
const (
	reasonAddress = "address" // its address has as many as it may
	reasonAll     = "all"     // there are as many as there may be
)

// Metrics count connections, by server.
type Metrics struct {
	open                     *prometheus.GaugeVec
	refused, dropped, unsent *prometheus.CounterVec
}

// NewMetrics makes Metrics, or gives those that another server of the process has made.
func NewMetrics(to prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_http_connections", Help: "Open connections to a server of this process."}, []string{"server"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_http_refused_connections_total",
			Help: "Connections that were closed at once: there were as many as may be.",
		}, []string{"server", "reason"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_http_dropped_idle_connections_total",
			Help: "Connections without a request that made room for others."}, []string{"server"}),
		unsent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_http_dropped_unsent_connections_total",
			Help: "Connections whose request had not come whole, and that made room for others.",
		}, []string{"server"}),
	}
	if err := errors.Join(registered(to, &m.open), registered(to, &m.refused), registered(to, &m.dropped),
		registered(to, &m.unsent)); err != nil {
		return nil, fmt.Errorf("connections: %w", err)
	}
	return m, nil
}

// registered registers a collector, or puts the one that is there already in its place.
func registered[C prometheus.Collector](to prometheus.Registerer, c *C) error {
	err := to.Register(*c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if known, ok := there.ExistingCollector.(C); ok {
			*c = known
			return nil
		}
	}
	return err
}

// Bound lets a listener have so many connections. It has to be the one that the system gave: TLS goes around it. server
// names it in metrics.
func Bound(l net.Listener, b Bounds, m *Metrics, server string) net.Listener {
	for _, reason := range []string{reasonAddress, reasonAll} {
		m.refused.WithLabelValues(server, reason)
	}
	m.open.WithLabelValues(server)
	m.dropped.WithLabelValues(server)
	m.unsent.WithLabelValues(server)
	return &listener{Listener: l, b: b, m: m, server: server, open: map[netip.Prefix][]*conn{}}
}

// listener accepts bounded connections.
type listener struct {
	net.Listener
	b      Bounds
	m      *Metrics
	server string

	mu   sync.Mutex
	all  int
	open map[netip.Prefix][]*conn // by whose they are
}

// conn is one of them.
type conn struct {
	net.Conn
	of    *listener
	whose netip.Prefix
	once  sync.Once

	// Guarded by of.mu.
	idle time.Time // since when no request is under way; zero: one is, or may be
	// Since when the server waits for the other side: to send a head, under nil, or a body, or to take an answer. Over
	// HTTP/2 a connection has several of them at a time.
	owed map[any]time.Time
}

// Accept waits for a connection that there is room for, and closes the others.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err // net/http tells apart what it says
		}
		if taken := l.take(c); taken != nil {
			return taken, nil
		}
		_ = c.Close() // nothing was said on it
	}
}

// take lets a connection in; nil: there is no room for it.
func (l *listener) take(c net.Conn) *conn {
	from := addressOf(c)
	one := &conn{Conn: c, of: l, whose: whose(from), owed: map[any]time.Time{nil: time.Now()}}
	l.mu.Lock()
	drop, reason := l.room(one.whose, from)
	if reason != "" {
		l.mu.Unlock()
		l.m.refused.WithLabelValues(l.server, reason).Inc()
		return nil
	}
	counted := l.m.dropped
	if drop != nil {
		if drop.idle.IsZero() {
			counted = l.m.unsent
		}
		l.remove(drop)
	}
	l.all++
	l.open[one.whose] = append(l.open[one.whose], one)
	l.m.open.WithLabelValues(l.server).Set(float64(l.all))
	l.mu.Unlock()
	if drop != nil {
		counted.WithLabelValues(l.server).Inc()
		_ = drop.Close() // nobody waits for an answer on it
	}
	return one
}

// remove forgets a connection; twice is as good as once.
func (l *listener) remove(c *conn) {
	those := l.open[c.whose]
	i := slices.Index(those, c)
	if i < 0 {
		return
	}
	l.all--
	if those = slices.Delete(those, i, i+1); len(those) == 0 {
		delete(l.open, c.whose)
	} else {
		l.open[c.whose] = those
	}
	l.m.open.WithLabelValues(l.server).Set(float64(l.all))
}

// Close ends the connection.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.remove(c)
	})
	return c.Conn.Close()
}

// CloseWrite ends this direction of the connection, where it has one.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// watchState notes which connections have no request under way, and which of them wait for a head.
func watchState(c net.Conn, state http.ConnState) {
	one := ours(c)
	if one == nil {
		return
	}
	one.of.mu.Lock()
	defer one.of.mu.Unlock()
	one.idle = time.Time{}
	switch state {
	case http.StateIdle:
		one.idle = time.Now()
		clear(one.owed)
	case http.StateActive: // its first byte has come
		if len(one.owed) == 0 {
			one.owed[nil] = time.Now()
		}
	}
}

// owes notes since when the server waits for the other side, of a body, an exchange or, under nil, a head; the zero
// time: it does not.
func (c *conn) owes(of any, since time.Time) {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if since.IsZero() {
		delete(c.owed, of)
		return
	}
	c.owed[of] = since
}

// ours is the connection that a listener of this package has made, or nil.
func ours(c net.Conn) *conn {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = secure.NetConn()
	}
	one, _ := c.(*conn)
	return one
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// withConn is what http.Server's ConnContext is.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, ours(c))
}

// connOf is the connection of a request; nil where it is none of a listener of this package.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// addressOf is where a connection comes from; the unspecified address where nobody knows.
func addressOf(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.IPv6Unspecified()
	}
	return at.Addr().Unmap().WithZone("")
}

// whose are the addresses that one client has: an IPv4 address, or an IPv6 /64, of which one may have any.
func whose(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() && !a.IsLoopback() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // of an address, it has so many
	return p
}
