package demo

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	maxDetails = 3 // failures of one check that are told in full
	// tellStood is the least time of standing still that is told.
	tellStood = time.Second
)

// Check is one question that Judge asks.
type Check struct {
	Name     string
	Looked   int // how many things it was asked of
	Failures int
	Details  []string // the first few failures
	Unsure   int      // times that the machine stood still for too long to tell
	Doubts   []string // the first few of them
}

// RuleRow is what became of one rule.
type RuleRow struct {
	Rule     string
	Limit    int
	Over     int // sources over the limit, by the truth
	Recorded int // by history
	Blocked  int // sources that were refused at least once
	Expected int // sources that went over while the rule blocked
}

// Report is Judge's verdict.
type Report struct {
	Seed     uint64
	Took     time.Duration
	Stood    time.Duration // of it, so long the machine did not let the demo run
	Promoted bool

	Events         int // requests that the gateway reported
	Rules          []RuleRow
	Blocked        int // sources that were refused
	Refused        int // answers 429
	Viewers        int // ordinary viewers
	ViewersRefused int // of them, who were refused at least once

	// From the request that was too many to the first refusal, of sources that ask all the time.
	LatencyP50, LatencyP99, LatencyMax time.Duration
	Latencies                          int

	Checks []Check
}

// Failed is how many checks found something.
func (r *Report) Failed() (n int) {
	for _, c := range r.Checks {
		if c.Failures > 0 {
			n++
		}
	}
	return n
}

// Unsure is how many checks the machine has kept from telling, by standing still.
func (r *Report) Unsure() (n int) {
	for _, c := range r.Checks {
		if c.Unsure > 0 {
			n++
		}
	}
	return n
}

// Err is nil when the outcome is the truth.
func (r *Report) Err() error {
	var errs []error
	for _, c := range r.Checks {
		if c.Failures > 0 {
			errs = append(errs, fmt.Errorf("not so: %s: %d times, the first: %s", c.Name, c.Failures, c.Details[0]))
		} else if c.Unsure > 0 {
			errs = append(errs, fmt.Errorf("not known: %s: %d times, the first: %s", c.Name, c.Unsure, c.Doubts[0]))
		}
	}
	return errors.Join(errs...)
}

func (j *judge) report() Report {
	a := j.answers
	r := Report{Seed: a.Seed, Took: a.Ended.Sub(a.Began), Promoted: j.o.Promoted, Events: len(j.ledger.Stamps)}
	for _, s := range a.Stalls {
		r.Stood += s.Until.Sub(s.From)
	}
	viewers := map[*Client]bool{}
	blocked := map[source]bool{}
	for _, s := range j.seen {
		if !s.answer.Refused() {
			continue
		}
		r.Refused++
		if !s.client.Kind.Abuses() {
			viewers[s.client] = true
		}
		for i := range j.rules {
			if rule := &j.rules[i]; rule.ID == s.answer.Rule {
				blocked[source{rule.ID, rule.Subject(s.stamp.Client, s.stamp.Device)}] = true
			}
		}
	}
	for i := range a.Cast {
		if !a.Cast[i].Kind.Abuses() {
			r.Viewers++
		}
	}
	r.ViewersRefused, r.Blocked = len(viewers), len(blocked)
	r.Rules = j.rows(blocked)
	l := j.latencies()
	r.Latencies = len(l)
	r.LatencyP50, r.LatencyP99, r.LatencyMax = quantile(l, 0.5), quantile(l, 0.99), quantile(l, 1)
	for _, c := range j.checks {
		r.Checks = append(r.Checks, *c)
	}
	return r
}

func (j *judge) rows(blocked map[source]bool) []RuleRow {
	rows := make([]RuleRow, len(j.rules))
	recorded := j.history()
	for i, rule := range j.rules {
		row := RuleRow{Rule: rule.ID, Limit: rule.Limit}
		for s, list := range j.over {
			if s.rule != rule.ID {
				continue
			}
			row.Over++
			for _, e := range list {
				if e.phase == blocking {
					row.Expected++
					break
				}
			}
		}
		for s, hits := range recorded {
			if s.rule == rule.ID && len(hits) > 0 {
				row.Recorded++
			}
		}
		for s := range blocked {
			if s.rule == rule.ID {
				row.Blocked++
			}
		}
		rows[i] = row
	}
	return rows
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "seed\t%d\n", r.Seed)
	fmt.Fprintf(t, "took\t%s\n", r.Took.Round(100*time.Millisecond))
	if r.Stood >= tellStood {
		fmt.Fprintf(t, "stood still\t%s, the machine\n", r.Stood.Round(100*time.Millisecond))
	}
	fmt.Fprintf(t, "events\t%d\n", r.Events)
	fmt.Fprintf(t, "blocked sources\t%d\n", r.Blocked)
	fmt.Fprintf(t, "answered 429\t%d\n", r.Refused)
	fmt.Fprintf(t, "ordinary viewers refused\t%d of %d\n", r.ViewersRefused, r.Viewers)
	if r.Latencies > 0 {
		fmt.Fprintf(t, "event to block\tp50 %s, p99 %s, most %s (%d blocks)\n", short(r.LatencyP50), short(r.LatencyP99), short(r.LatencyMax), r.Latencies)
	} else {
		fmt.Fprintf(t, "event to block\tno block\n")
	}
	_ = t.Flush() // into memory

	b.WriteByte('\n')
	fmt.Fprintf(t, "over-limit sources\tlimit\ttruth\thistory\tto block\tblocked\n")
	for _, row := range r.Rules {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\n", row.Rule, row.Limit, row.Over, row.Recorded, row.Expected, row.Blocked)
	}
	_ = t.Flush()

	b.WriteByte('\n')
	for _, c := range r.Checks {
		verdict := "ok  "
		switch {
		case c.Failures > 0:
			verdict = "FAIL"
		case c.Unsure > 0:
			verdict = "?   "
		}
		fmt.Fprintf(&b, "%s  %s (%d)\n", verdict, c.Name, c.Looked)
		for _, d := range c.Details {
			fmt.Fprintf(&b, "      %s\n", d)
		}
		for _, d := range c.Doubts {
			fmt.Fprintf(&b, "      not known: %s\n", d)
		}
		if more := c.Failures + c.Unsure - len(c.Details) - len(c.Doubts); more > 0 {
			fmt.Fprintf(&b, "      and %d more\n", more)
		}
	}
	b.WriteByte('\n')
	switch failed := r.Failed(); {
	case failed > 0:
		fmt.Fprintf(&b, "The outcome is not the truth: %d of %d checks failed.\n", failed, len(r.Checks))
	case r.Unsure() > 0:
		fmt.Fprintf(&b, "Whether the outcome is the truth is not known: the machine stood still for %s of %s.\n",
			r.Stood.Round(100*time.Millisecond), r.Took.Round(100*time.Millisecond))
	case r.Promoted:
		fmt.Fprintf(&b, "The outcome is the truth: every abuser was blocked, and nobody else.\n")
	default:
		fmt.Fprintf(&b, "The outcome is the truth: every abuser was recorded, and nobody was blocked.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// short keeps what is worth reading of a duration.
func short(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
