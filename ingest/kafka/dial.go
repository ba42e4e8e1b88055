package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
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

// SASL is how to authenticate to the brokers. The password never appears in logs or errors.
type SASL struct {
	Mechanism string // "", "plain", "scram-sha-256" or "scram-sha-512"
	User      string
	Password  string
}

var (
	_ fmt.Stringer   = SASL{}
	_ fmt.GoStringer = SASL{}
	_ slog.LogValuer = SASL{}
)

// String shows everything but the password.
func (s SASL) String() string {
	if s.Mechanism == "" {
		return "none"
	}
	return s.Mechanism + " as " + s.User
}

// GoString is String, so that %#v shows no password either.
func (s SASL) GoString() string { return s.String() }

// LogValue is String.
func (s SASL) LogValue() slog.Value { return slog.StringValue(s.String()) }

func (s SASL) mechanism() (sasl.Mechanism, error) {
	if s.Mechanism == "" {
		if s.User != "" || s.Password != "" {
			return nil, fmt.Errorf("kafka: a SASL user or password is given without a mechanism: want plain, scram-sha-256 or scram-sha-512")
		}
		return nil, nil
	}
	if s.User == "" {
		return nil, fmt.Errorf("kafka: SASL mechanism %s needs a user", s.Mechanism)
	}
	switch strings.ToLower(s.Mechanism) {
	case "plain":
		return plain.Mechanism{Username: s.User, Password: s.Password}, nil
	case "scram-sha-256":
		return scram.Mechanism(scram.SHA256, s.User, s.Password)
	case "scram-sha-512":
		return scram.Mechanism(scram.SHA512, s.User, s.Password)
	}
	return nil, fmt.Errorf("kafka: SASL mechanism %q: want plain, scram-sha-256 or scram-sha-512", s.Mechanism)
}
