package report

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// document is a report as JSON: the result beside what was asked for.
type document struct {
	Files   []string     `json:"files"`
	Format  string       `json:"format"`
	Reorder string       `json:"reorder"`
	Since   traffic.Time `json:"since,omitzero"`
	Until   traffic.Time `json:"until,omitzero"`
	Sweep   string       `json:"sweep,omitempty"`
	*backtest.Result
	Rules []rule `json:"rules"`
	// Notes are sentences about what the figures do not say by themselves.
	Notes []string `json:"notes,omitempty"`
}

// rule is what one rule found, with its episodes as history would have them.
type rule struct {
	Rule    string      `json:"rule"`
	Version rules.Shown `json:"version"`
	*backtest.RuleResult
	Hits []detectors.Hit `json:"hits,omitempty"`
}

// JSON writes everything that is known, with each episode of a rule among its hits; a sweep has no hits.
func (r *Report) JSON(o *terminal.Output) error {
	d := document{
		Files: r.Files, Format: r.Format, Reorder: duration.Format(r.Reorder), Since: r.Since, Until: r.Until, Sweep: r.Sweep,
		Result: r.Result, Rules: make([]rule, len(r.Result.Rules)), Notes: r.notes(),
	}
	for i := range r.Result.Rules {
		found := &r.Result.Rules[i]
		d.Rules[i] = rule{Rule: found.Rule, Version: found.Version.Shown(), RuleResult: found}
		if r.Sweep == "" {
			d.Rules[i].Hits = slices.Collect(found.Hits)
		}
	}
	return o.WriteJSON(d)
}

// CSV writes a row for each episode, and of a sweep a row for each rule and value.
//
// No cell is a formula to a spreadsheet, whatever a client has sent: a source stands in its canonical form, which begins with
// the name of a field and has nothing but letters, digits and -._~%&=; all else are numbers, times and names of rules, which
// begin with a letter or a digit. What was not read, and what the rows lack, is said on standard error.
func (r *Report) CSV(o *terminal.Output) error {
	w := csv.NewWriter(o.Stdout)
	write := r.episodes
	if r.Sweep != "" {
		write = r.values
	}
	if err := write(w); err != nil {
		return err
	}
	for _, line := range slices.Concat([]string{r.headline()}, r.unread(), r.notes()) {
		fmt.Fprintf(o.Stderr, "weir: %s\n", line)
	}
	w.Flush()
	return w.Error()
}

func (r *Report) episodes(w *csv.Writer) error {
	if err := w.Write([]string{"rule", "source", "first", "last", "events", "peak", "limit", "window", "users", "devices", "at_least", "hit"}); err != nil {
		return err
	}
	for i := range r.Result.Rules {
		found := &r.Result.Rules[i]
		for h := range found.Hits {
			if err := w.Write([]string{
				h.Rule, string(h.Subject), h.First.String(), h.Last.String(), strconv.FormatInt(h.Count, 10), strconv.Itoa(h.Peak), strconv.Itoa(h.Limit),
				duration.Format(found.Version.Window), strconv.Itoa(h.Users), strconv.Itoa(h.Devices), strconv.FormatBool(h.AtLeast), h.ID,
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Report) values(w *csv.Writer) error {
	if err := w.Write([]string{
		"rule", r.Sweep, "sources", "episodes", "events", "matched", "would_refuse", "share_of_all", "share_of_matched", "held", "first", "last",
	}); err != nil {
		return err
	}
	for i := range r.Result.Rules {
		found := &r.Result.Rules[i]
		row := []string{found.Rule, swept(found)}
		for _, n := range []int64{found.Sources, found.Episodes, found.Over, found.Matched} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		if b := found.Block; b != nil {
			row = append(row, strconv.FormatInt(b.Refused, 10), part(b.ShareOfAll), part(b.ShareOfMatched), strconv.FormatInt(b.Held, 10))
		} else {
			row = append(row, "", "", "", "")
		}
		if err := w.Write(append(row, moment(found.First), moment(found.Last))); err != nil {
			return err
		}
	}
	return nil
}

// part writes a part of 1 for programs.
func part(of float64) string { return fmt.Sprintf("%.6f", of) }

// moment writes a time; nothing where there is none.
func moment(t traffic.Time) string {
	if t == 0 {
		return ""
	}
	return t.String()
}
