package kafka

import (
	"context"
	"net"
	"sync"
	"time"
)

// dials keeps the open connections, so that closing a client really ends them: kafka-go leaves a connection that waits
// for an answer alone until the answer or its deadline comes.
type dials struct {
	dialer net.Dialer
	life   context.Context // ends with close: a dial under way ends too
	end    context.CancelFunc
	mu     sync.Mutex
	open   map[*dialled]struct{}
	closed bool
}

type dialled struct {
	net.Conn
	of *dials
}

func newDials() *dials {
	life, end := context.WithCancel(context.Background())
	return &dials{dialer: net.Dialer{Timeout: 3 * time.Second}, life: life, end: end, open: make(map[*dialled]struct{})}
}

func (d *dials) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	conn, err := d.dialer.DialContext(ctx, network, address)
	if d.life.Err() != nil && err != nil {
		return nil, errKafkaClosed
	}
	if err != nil {
		return nil, err
	}
	kept := &dialled{Conn: conn, of: d}
	d.mu.Lock()
	closed := d.closed
	if !closed {
		d.open[kept] = struct{}{}
	}
	d.mu.Unlock()
	if closed {
		_ = conn.Close()
		return nil, errKafkaClosed
	}
	return kept, nil
}

// Close closes the connection and forgets it.
func (c *dialled) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// close ends every connection and every dial under way, and refuses new ones.
func (d *dials) close() {
	d.end()
	d.mu.Lock()
	d.closed = true
	open := d.open
	d.open = make(map[*dialled]struct{})
	d.mu.Unlock()
	for conn := range open {
		// Only the socket: the owner's own Close follows when its read fails.
		_ = conn.Conn.Close()
	}
}
