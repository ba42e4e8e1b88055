package terminal

import (
	"strings"
	"testing"
	"testing/synctest"
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

// Who follows a log that nobody writes to is told nothing, and goes on when something comes.
func TestProgressOfAnIdlePipeIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := StartProgress(&out, 0)
		lines := func(want int) {
			t.Helper()
			synctest.Wait()
			if got := strings.Count(out.String(), "\n"); got != want {
				t.Errorf("after %s: got %d lines, want %d:\n%s", time.Since(p.begun), got, want, out.String())
			}
		}
		time.Sleep(time.Hour)
		lines(0)
		p.Bytes.Add(100)
		p.Events.Add(1)
		time.Sleep(time.Hour)
		lines(1)
		p.Bytes.Add(100) // a line that is no event
		time.Sleep(progressEvery + time.Second)
		lines(2)
		p.Close()
		lines(2)
	})
}
