package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/exactness"
)

// TestRecovery holds the clock of the table to a few probes whose times are known: seconds after the fault.
func TestRecovery(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	second := func(s float64) time.Time { return at.Add(time.Duration(s * float64(time.Second))) }
	probe := func(p, q int, sent, appended float64) probeHit {
		return probeHit{lanes: [2]lane{{false, p}, {true, q}}, sent: second(sent), appended: second(appended)}
	}
	tests := []struct {
		name            string
		hits            []probeHit
		first, caughtUp float64
	}{
		{"nothing stops", []probeHit{probe(0, 0, 0.1, 0.2), probe(0, 1, 0.2, 0.3), probe(0, 1, 0.5, 0.6)}, 0.3, 0.3},
		{"sent before the fault", []probeHit{probe(0, 0, -0.1, 3), probe(0, 0, 0.1, 0.2), probe(0, 1, 0.2, 0.3)}, 0.3, 0.3},
		{"one partition waits", []probeHit{probe(0, 0, 0.1, 0.2), probe(0, 1, 0.2, 9), probe(0, 1, 8.5, 9.1)}, 9, 9},
		{"a backlog after the first", []probeHit{probe(0, 0, 0.1, 5), probe(0, 1, 0.2, 5), probe(0, 0, 4, 6.5), probe(0, 1, 8, 8.1)}, 5, 6.5},
		{"slow much later, which is another story", []probeHit{probe(0, 0, 0.1, 0.2), probe(0, 1, 0.2, 0.3), probe(0, 0, 5, 7)}, 0.3, 0.3},
		{"after the next fault", []probeHit{probe(0, 0, 0.1, 0.2), probe(0, 1, 0.2, 0.3), probe(0, 0, 20, 27)}, 0.3, 0.3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := &watch{stream: &exactness.Stream{Requests: 1, Keyed: 2}, hits: test.hits}
			first, caughtUp := w.recovery(at, second(20))
			if first != second(test.first).Sub(at) || caughtUp != second(test.caughtUp).Sub(at) {
				t.Errorf("first after %v, caught up after %v; want %v s and %v s", first, caughtUp, test.first, test.caughtUp)
			}
		})
	}
}

func TestTable(t *testing.T) {
	table := newTable(form{name: "full"}, 7)
	table.rows = []row{
		{fault: "a", judged: true, instants: 2, events: 10, first: 1500 * time.Millisecond, doubled: 3},
		{fault: "b"},
		{}, // left out by -run
	}
	text := table.String()
	for _, want := range []string{"full form, seed 7\n", "|      10|", "1.5 s", "|        3|", "FAILED"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if lines := strings.Count(strings.TrimSpace(text), "\n"); lines != 3 {
		t.Errorf("%d lines after the first, want a heading and two rows:\n%s", lines, text)
	}
}

// TestParts holds the parts of a recovery to a log whose times are known.
func TestParts(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	const log = `time=2026-11-20T10:00:01.020Z level=INFO msg="serving metrics and health" address=127.0.0.1:1
time=2026-11-20T10:00:01.220Z level=INFO msg="consumer group generation" group=g generation=7 member=m partitions="[0 1]"
time=2026-11-20T10:00:01.300Z level=INFO msg="keyed partitions taken" generation=7 partitions=2
time=2026-11-20T10:00:09.000Z level=INFO msg="consumer group generation" group=g generation=8 member=m partitions="[0 1]"
`
	for text, want := range map[string]string{
		log: "1.5 s = away 1.00 + start 0.02 + servers and group 0.20 + read snapshots 0.08 + first hit of each partition 0.20",
		strings.ReplaceAll(log, "keyed partitions", "nothing"): "1.5 s = away 1.00 + start 0.02 + servers and group 0.20 + first hit of each partition 0.28",
	} {
		p := &parts{at: at, again: at.Add(time.Second)}
		if err := p.read(text); err != nil {
			t.Fatal(err)
		}
		if got := p.text(1500 * time.Millisecond); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	if err := new(parts).read(log[:100]); err == nil {
		t.Error("a process that has no partitions has parts")
	}
}
