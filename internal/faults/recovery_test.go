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
