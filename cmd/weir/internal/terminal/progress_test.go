package terminal

import (
	"testing"
	"time"
)

func TestProgressLine(t *testing.T) {
	p := &Progress{total: 4_000_000}
	p.Bytes.Store(1_000_000)
	p.Events.Store(12_000)
	if got, want := p.line(10*time.Second), "12000 events, 1.0MB of 4.0MB (25 %), 1.2k events/s, about 30s left"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	p.total = 0
	if got, want := p.line(10*time.Second), "12000 events, 1.0MB, 1.2k events/s"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
