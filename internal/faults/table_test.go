package faults

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// row is what came of one fault.
type row struct {
	fault    string // "" until it is begun: -run may leave some out
	judged   bool   // false: the test ended before
	instants int
	events   int
	repeated int // keyed records that the fence dropped
	first    time.Duration
	caughtUp time.Duration
	recorded time.Duration
	parts    string // of the longest first, where a process is back at once

	named int // counts that weir itself has told to be lost

	lost, doubled, extra int
}

// table is what the test prints.
type table struct {
	form form
	seed uint64
	rows []row
}

func newTable(f form, seed uint64) *table { return &table{form: f, seed: seed} }

// String is the table as text. Times are the worst of a row's instants.
func (t *table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nfaults, %s form, seed %d", t.form.name, t.seed)
	if t.form.side {
		b.WriteString("; side by side, so the times are not those of one fault")
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight|tabwriter.Debug)
	fmt.Fprintln(w, "fault\tinstants\tevents\trepeated\tfirst hit\tcaught up\tin history\tlost\tdoubled\textra\t")
	for _, r := range t.rows {
		if r.fault == "" {
			continue
		}
		if !r.judged {
			fmt.Fprintf(w, "%s\tFAILED\t\t\t\t\t\t\t\t\t\n", r.fault)
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.1f s\t%.1f s\t%.1f s\t%d\t%d\t%d\t\n", r.fault, r.instants, r.events, r.repeated,
			r.first.Seconds(), r.caughtUp.Seconds(), r.recorded.Seconds(), r.lost, r.doubled, r.extra)
	}
	_ = w.Flush() // a strings.Builder takes everything
	for _, r := range t.rows {
		if r.judged && r.parts != "" {
			fmt.Fprintf(&b, "%s, the longest: %s\n", r.fault, r.parts)
		}
	}
	return b.String()
}
