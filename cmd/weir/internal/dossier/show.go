package dossier

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/traffic"
)

// shown is a dossier as JSON. Hash is the SHA-256 of the dossier's canonical form.
type shown struct {
	Hash    string           `json:"hash"`
	Dossier json.RawMessage  `json:"dossier"`
	Would   []evidence.Would `json:"would,omitempty"` // of --limits
	Next    string           `json:"next,omitempty"`  // what to do where there are no data
}

// show writes a dossier, and what other limits would have held.
func show(o *terminal.Output, d *evidence.Dossier, limits []int) error {
	document, err := d.Document()
	if err != nil {
		return err
	}
	out := shown{Hash: evidence.Hash(document), Dossier: document, Next: next(d)}
	for _, limit := range limits {
		out.Would = append(out.Would, d.At(int64(limit)))
	}
	if o.Format == "json" {
		return o.WriteJSON(out)
	}
	t := table{o}
	t.head(d, out.Hash)
	for _, part := range []func() error{
		func() error { return t.figures(d) },
		func() error { return t.gaps(d) },
		func() error { return t.limits(d, out.Would) },
		func() error { return t.sources(d) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	for _, note := range d.Notes {
		t.line("note: " + note)
	}
	if out.Next != "" {
		t.line(out.Next)
	}
	return nil
}

// table writes a dossier for people.
type table struct{ *terminal.Output }

func (t table) line(text string) { _, _ = io.WriteString(t.Stdout, terminal.Safe(text)+"\n") }

func (t table) head(d *evidence.Dossier, hash string) {
	t.line(fmt.Sprintf("rule %s version %d, %s: more than %d %s in %s by %s", d.Rule, d.Version, d.Role, d.Terms.Limit, d.Terms.Count, d.Terms.Window, orAll(d.Terms.Key)))
	if d.Terms.Block != "" {
		t.line(fmt.Sprintf("its block: %s, %s", d.Terms.BlockKey, d.Terms.Block))
	}
	t.line(fmt.Sprintf("%s to %s, dossier %s", terminal.Time(d.Since), terminal.Time(d.Until), hash[:16]))
}

func orAll(key string) string {
	if key == "" {
		return "all that matches"
	}
	return key
}

// figure is a row: what it is, how much, and how far that can be relied upon.
type figure struct{ what, value, state, why string }

func countRow(what string, c evidence.Count) figure {
	f := figure{what: what, value: "?", state: string(c.State), why: c.Reason}
	if _, known := c.Known(); known {
		plain := c
		plain.Reason = ""
		f.value = plain.String()
	}
	return f
}

func shareRow(what string, s evidence.Share) figure {
	f := figure{what: what, value: "?", state: string(s.State), why: s.Reason}
	if _, known := s.Known(); known {
		f.value = s.String()
	}
	return f
}

func (t table) figures(d *evidence.Dossier) error {
	rows := []figure{
		{"observed", hours(d.Observed.Minutes) + " of " + hours(d.Observed.Span), string(evidence.Measured), missing(&d.Observed)},
		countRow("all events", d.Traffic.All),
		countRow("matched", d.Traffic.Matched),
		countRow("counted", d.Traffic.Counted),
		countRow("would have refused", d.Held.Requests),
		shareRow("  of all events", d.Held.ShareOfAll),
		shareRow("  of matched", d.Held.ShareOfMatched),
		shareRow("  of what its block could refuse", d.Held.ShareOfReach),
		countRow("would have held, sources", d.Held.Sources),
		countRow("  that would have been refused something", d.Held.Refusing),
		countRow("over the limit, sources", d.Held.Over),
		countRow("  episodes", d.Held.Episodes),
		countRow("known-good sources held", d.KnownGood.Sources),
		countRow("  their requests", d.KnownGood.Requests),
		shareRow("  sources that could be judged", d.KnownGood.Coverage),
		shareRow("  events that could be judged", d.KnownGood.EventCoverage),
		countRow("users behind a source, most", d.Behind.Users.Most),
		countRow("  sources with ten or more", d.Behind.Users.Many),
		countRow("devices behind a source, most", d.Behind.Devices.Most),
		countRow("  sources with ten or more", d.Behind.Devices.Many),
		shareRow("sources held by other rules, too", d.Overlap.Sources),
		shareRow("  their requests", d.Overlap.Requests),
	}
	return terminal.List(t.Output, rows, []string{"FIGURE", "VALUE", "STATE", "WHY"}, func(f figure) []string {
		return []string{f.what, f.value, f.state, terminal.Brief(f.why)}
	})
}

func missing(o *evidence.Observed) string {
	var parts []string
	for _, m := range o.Missing {
		parts = append(parts, string(m.Reason)+" "+hours(m.Minutes))
	}
	return strings.Join(parts, ", ")
}

// hours is minutes as people say them: 45 min, 30.5 h.
func hours(minutes int64) string {
	if minutes < 60 {
		return strconv.FormatInt(minutes, 10) + " min"
	}
	return strconv.FormatFloat(float64(minutes)/60, 'f', 1, 64) + " h"
}

// gapsShown is how many gaps the table has.
const gapsShown = 10

func (t table) gaps(d *evidence.Dossier) error {
	gaps := d.Observed.Gaps
	if len(gaps) == 0 {
		return nil
	}
	t.line("")
	if len(gaps) > gapsShown {
		t.line(fmt.Sprintf("%d of %s; --output json has more", gapsShown, plural.Of(len(gaps), "gap")))
		gaps = gaps[:gapsShown]
	}
	return terminal.List(t.Output, gaps, []string{"NOT OBSERVED", "FROM", "TO"}, func(g evidence.Gap) []string {
		return []string{string(g.Reason), terminal.Time(g.Since), terminal.Time(g.Until)}
	})
}

// limits shows those that were asked about, else the steps of the ladder that hold somebody.
func (t table) limits(d *evidence.Dossier, asked []evidence.Would) error {
	if len(asked) == 0 {
		for _, s := range d.Ladder.Steps {
			w := d.At(s.Limit)
			asked = append(asked, w)
			if n, known := w.Sources.Known(); known && n == 0 && s.Requests == 0 {
				break
			}
		}
	}
	if len(asked) == 0 {
		return nil
	}
	t.line("")
	return terminal.List(t.Output, asked, []string{"LIMIT", "WOULD HOLD", "WOULD REFUSE"}, func(w evidence.Would) []string {
		return []string{strconv.FormatInt(w.Limit, 10), terminal.Brief(cell(w.Sources)), terminal.Brief(cell(w.Requests))}
	})
}

// cell is a figure with the reason only where there is no number.
func cell(c evidence.Count) string {
	if c.State != evidence.NotMeasurable {
		c.Reason = ""
	}
	return c.String()
}

// sampled is of how many sources the table shows events.
const sampled = 3

func (t table) sources(d *evidence.Dossier) error {
	if len(d.Top) == 0 {
		return nil
	}
	t.line("")
	err := terminal.List(t.Output, d.Top, []string{"SOURCE", "REFUSED", "EVENTS", "PEAK", "FIRST", "LAST", "USERS", "DEVICES", "KNOWN GOOD", "HELD BY", "HIT"}, func(s evidence.Source) []string {
		return []string{
			subject.Text(s.Subject), number(s.Refused), number(s.Events), number(s.Peak), terminal.Time(s.First), terminal.Time(s.Last),
			number(s.Users), number(s.Devices), s.KnownGood, terminal.FirstFew(s.HeldBy), s.Hit,
		}
	})
	if err != nil {
		return err
	}
	for _, s := range d.Top[:min(len(d.Top), sampled)] {
		for _, text := range s.Samples {
			t.line(subject.Text(s.Subject) + ": " + event(text))
		}
		if without := traffic.WithoutBefore(s.Samples); without != "" {
			t.line(subject.Text(s.Subject) + ": " + without)
		}
	}
	return nil
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// event is a sample in a line; one that this build cannot read is shown as it is.
func event(text string) string {
	var s traffic.Sample
	if json.Unmarshal([]byte(text), &s) != nil || s.Time == 0 {
		return terminal.Brief(text)
	}
	parts := []string{terminal.Time(s.Time), s.Method, s.Host + s.Path}
	if s.Status != 0 {
		parts = append(parts, strconv.Itoa(s.Status))
	}
	for _, v := range []struct{ name, value string }{{"ip", s.IP}, {"device", s.Device}, {"user", s.User}, {"agent", s.UserAgent}} {
		if v.value != "" {
			parts = append(parts, v.name+"="+subject.Quoted(v.value))
		}
	}
	line := terminal.Brief(strings.Join(parts, " "))
	if s.Before {
		line = "before the limit: " + line
	}
	return line
}

// next says what to do where there is nothing to see yet; empty where there is.
func next(d *evidence.Dossier) string {
	_, routed := d.Traffic.All.Known()
	_, counted := d.Traffic.Counted.Known()
	_, over := d.Held.Over.Known()
	switch {
	case !routed && !counted && !over:
		return "no data yet: nobody has told of an event in this time. Is weir run up, and does it get events? weir doctor looks; " +
			"weir migrate --record-format 6 makes the stages tell, once all processes know it"
	case !counted:
		return "no data yet of this version: DETECT has told of no minute. weir migrate --record-format 6 makes it, once all processes know it"
	case d.Observed.Minutes == 0:
		return "no minute is observed yet: ask again when the version's windows are full, or with --until later"
	}
	return ""
}
