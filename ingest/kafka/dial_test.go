package kafka

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// A broker that swallows connection attempts must not hold up the end of a process: kafka-go tries one address after the
// other, and once more to leave the group.
func TestClosingEndsDials(t *testing.T) {
	d := newDials()
	d.dialer.Timeout = 0 // only close ends it
	// A dial that takes for ever, without needing such an address.
	dialling := make(chan struct{})
	d.dialer.ControlContext = func(ctx context.Context, _, _ string, _ syscall.RawConn) error {
		close(dialling)
		<-ctx.Done()
		return ctx.Err()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		_, err := d.dial(context.Background(), "tcp", l.Addr().String())
		done <- err
	}()
	<-dialling
	d.close()
	select {
	case err := <-done:
		if !errors.Is(err, errKafkaClosed) {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the dial goes on")
	}
	d.dialer.ControlContext = nil
	if _, err := d.dial(context.Background(), "tcp", l.Addr().String()); !errors.Is(err, errKafkaClosed) {
		t.Errorf("a dial after close: %v", err)
	}
}
