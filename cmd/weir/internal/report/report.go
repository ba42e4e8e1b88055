// Package report shows what a backtest has found: as tables, as JSON, as CSV and as a page. Every text of a log is somebody
// else's choice, so each form says how it keeps such a text from meaning anything.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Report is a backtest's result with what was asked for.
type Report struct {
	Files   []string
	Live    bool // Files is the live requests topic: its records are no lines
	Format  string
	Reorder time.Duration
	Since   traffic.Time // 0: from the beginning
	Until   traffic.Time // 0: to the end
	Sweep   string       // the field whose values were tried: limit, window; empty for none
	Result  *backtest.Result
}

// headline says how much was read: 71 events of 72 lines, from when to when, in how long.
func (r *Report) headline() string {
	var b strings.Builder
	line := "line"
	if r.Live {
		line = "record"
	}
	fmt.Fprintf(&b, "%s of %s", plural.Of(r.Result.Events, "event"), plural.Of(r.Result.Lines, line))
	if r.Result.Events > 0 {
		fmt.Fprintf(&b, ", %s to %s", terminal.Time(r.Result.First), terminal.Time(r.Result.Last))
	}
	fmt.Fprintf(&b, ", in %s", terminal.Seconds(r.Result.Took.Seconds()))
	return b.String()
}

// Warn writes a word where there was nothing to count, though nothing is wrong with what was read: a table of zeros would pass for
// "nobody was over".
func (r *Report) Warn(w io.Writer) error {
	found, word := r.Result, ""
	switch {
	case found.Events > 0:
	case found.LeftOut > 0:
		word = fmt.Sprintf("not one event is within --since and --until: %s outside", plural.Of(found.LeftOut, "event"))
	case found.Lines == 0 && r.Live && r.appended() == "":
		word = "nothing to count: the topic has no record"
	case found.Lines == 0 && r.Live:
		word = fmt.Sprintf("nothing to count: 0 events%s", r.appended())
	case found.Lines == 0 && len(found.Refused) == 0:
		word = "nothing to count: the log is empty"
	}
	if word == "" {
		return nil
	}
	_, err := fmt.Fprintf(w, "weir: %s\n", word)
	return err
}

// appended says of a live topic by which time its events were chosen: whoever asks for when they happened finds others, or none.
func (r *Report) appended() string {
	const by = "by append time, at which Kafka took them"
	switch {
	case !r.Live:
	case r.Since != 0 && r.Until != 0:
		return fmt.Sprintf(" between %s and %s, %s", terminal.Time(r.Since), terminal.Time(r.Until), by)
	case r.Since != 0:
		return fmt.Sprintf(" since %s, %s", terminal.Time(r.Since), by)
	case r.Until != 0:
		return fmt.Sprintf(" before %s, %s", terminal.Time(r.Until), by)
	}
	return ""
}

// unread says what of the files counts nowhere, and why.
func (r *Report) unread() []string {
	var out []string
	for _, reason := range slices.Sorted(maps.Keys(r.Result.Refused)) {
		out = append(out, fmt.Sprintf("not read, %s: %d", reason, r.Result.Refused[reason]))
	}
	for _, e := range r.Result.Examples {
		out = append(out, "  "+terminal.Cell(e))
	}
	for _, b := range r.Result.Broken {
		if text := b.String(); !slices.Contains(r.Result.Examples, text) {
			out = append(out, "  "+terminal.Cell(text))
		}
	}
	for _, name := range r.Result.GivenUp {
		out = append(out, fmt.Sprintf("given up: %s; not one of its first lines could be read, and the rest was not", terminal.Safe(name)))
	}
	out = append(out, r.gaps()...)
	if n := r.Result.LeftOut; n > 0 {
		out = append(out, fmt.Sprintf("outside of --since and --until: %s", plural.Of(n, "event")))
	}
	if n := r.Result.TooLate; n > 0 {
		out = append(out, fmt.Sprintf("came too late for --reorder: %s, taken all the same", plural.Of(n, "event")))
	}
	if n := r.Result.Forced; n > 0 {
		out = append(out, fmt.Sprintf("taken early because the --reorder buffer was full: %s", plural.Of(n, "event")))
	}
	if n := r.Result.OwnRefusals; n > 0 {
		out = append(out, fmt.Sprintf("refused by weir itself, so in no window: %s", plural.Of(n, "event")))
	}
	if n := r.Result.Evicted; n > 0 {
		out = append(out, fmt.Sprintf("forgotten for want of memory: %s; the figures are lower bounds", plural.Of(n, "source")))
	}
	return out
}

// gapsShown is how many gaps are told one by one.
const gapsShown = 8

// gaps says what of a live topic could not be read.
func (r *Report) gaps() []string {
	var out []string
	for i, g := range r.Result.Gaps {
		if i == gapsShown {
			out = append(out, fmt.Sprintf("  and %s more", plural.Of(len(r.Result.Gaps)-i, "gap")))
			break
		}
		from := "what came"
		if g.From >= 0 {
			from = fmt.Sprintf("offsets %d up to, not with,", g.From)
		} else {
			from += " before offset"
		}
		out = append(out, fmt.Sprintf("not read, partition %d: %s %d: %s", g.Partition, from, g.To, terminal.Safe(g.Why)))
	}
	return out
}

// notes say what a row of zeros does not: that a rule watches nothing of these files, or counts little of what it watches.
func (r *Report) notes() []string {
	var out []string
	for i := range r.Result.Rules {
		found := &r.Result.Rules[i]
		first := i == 0 || r.Result.Rules[i-1].Rule != found.Rule
		switch {
		case r.Result.Events == 0 || !first:
		case found.Matched == 0:
			out = append(out, fmt.Sprintf("rule %s matched none of %s%s: it watches %s", found.Rule, plural.Of(r.Result.Events, "event"), r.appended(), watched(&found.Version.Match)))
		default:
			if note := uncountedNote(found); note != "" {
				out = append(out, note)
			}
			if note := allowedNote(found); note != "" {
				out = append(out, note)
			}
		}
		if first {
			out = append(out, found.Unjudged.Notes(found.Rule)...)
			out = append(out, r.sweepNotes(found)...)
		}
		out = append(out, besideNotes(found)...)
		if found.HitsCut > 0 && r.Sweep == "" {
			out = append(out, fmt.Sprintf("rule %s: %s more are not among those of --output json and csv", found.Rule, plural.Of(found.HitsCut, "episode")))
		}
	}
	return out
}

// sweepNotes say what a sweep does not try, so that nobody takes its rows for the whole rule.
func (r *Report) sweepNotes(found *backtest.RuleResult) (out []string) {
	if tiers := found.Version.Tiers; r.Sweep == backtest.SweepLimit && len(tiers) > 0 {
		limits := make([]string, len(tiers))
		for i := range tiers {
			limits[i] = strconv.Itoa(tiers[i].Limit)
		}
		out = append(out, fmt.Sprintf("rule %s: the sweep tries limit alone; its tiers keep their own: %s", found.Rule, strings.Join(limits, ", ")))
	}
	if len(found.Untried) > 0 {
		out = append(out, fmt.Sprintf("rule %s: the sweep leaves out %s, which a backtest without --sweep shows", found.Rule, strings.Join(found.Untried, " and ")))
	}
	return out
}

// besideNotes say what was found beside the rule's limit.
func besideNotes(found *backtest.RuleResult) (out []string) {
	if n := found.Near; n != nil {
		note := fmt.Sprintf("rule %s: %s came near the limit, at %d within %s", found.Rule, plural.Of(n.Sources, "source"),
			found.Version.NearCount(found.Version.Limit), duration.Format(found.Version.Window))
		if n.LeftOut > 0 {
			note += fmt.Sprintf(", and of %s no warning would have been sent: there are up to %d a keyed partition and minute", plural.Of(n.LeftOut, "episode"), detectors.MaxNearOpenings)
		}
		out = append(out, note)
	}
	if c := found.Candidate; c != nil {
		out = append(out, fmt.Sprintf("rule %s: with its candidate, limit %d, %s in %s", found.Rule, found.Version.Candidate.Limit,
			plural.Of(c.Sources, "source"), plural.Of(c.Episodes, "episode")))
	}
	return out
}

// allowedNote tells what allow lists have let pass.
func allowedNote(found *backtest.RuleResult) string {
	var lists []string
	for _, list := range slices.Sorted(maps.Keys(found.Allowed)) {
		lists = append(lists, fmt.Sprintf("%s %d", list, found.Allowed[list]))
	}
	if len(lists) == 0 {
		return ""
	}
	return fmt.Sprintf("rule %s: not counted of %s, as allow lists say: %s", found.Rule, plural.Of(found.Matched, "event"), strings.Join(lists, ", "))
}

func uncountedNote(found *backtest.RuleResult) string {
	var sum int64
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(found.Uncounted)) {
		if n := found.Uncounted[reason]; n > 0 {
			sum += n
			reasons = append(reasons, fmt.Sprintf("%s %d", reason, n))
		}
	}
	if sum == 0 {
		return ""
	}
	return fmt.Sprintf("rule %s: %d of %s that it watches are in no window: %s", found.Rule, sum, plural.Of(found.Matched, "event"), strings.Join(reasons, ", "))
}

// watched writes a match: POST /v1/guest-tokens.
func watched(m *rules.Match) string {
	methods := cmp.Or(strings.Join(m.Methods, " or "), "any method")
	return terminal.Safe(methods + " " + m.Where())
}

// limited writes what is too much: more than 10 events in 1m, by ip, device.
func limited(v *rules.Version, limit string) string {
	thing := "events"
	switch {
	case v.Count.Distinct != nil:
		thing = "distinct values of " + v.Count.Distinct.String()
	case len(v.Count.Tuple) > 0:
		thing = "distinct combinations of " + strings.Join(fieldNames(v.Count.Tuple), ", ")
	case v.Count.Sum != "":
		thing = "in the sum of " + v.Count.Sum
	}
	fields := fieldNames(v.Key)
	by := "all together"
	if len(fields) > 0 {
		by = "by " + strings.Join(fields, ", ")
	}
	return terminal.Safe(fmt.Sprintf("more than %s %s in %s, %s", limit, thing, duration.Format(v.Window), by))
}

// fieldNames are the fields of a key as rules name them.
func fieldNames(key []traffic.KeyField) []string {
	names := make([]string, len(key))
	for i, k := range key {
		names[i] = k.String()
	}
	return names
}

// swept is the value of a row of a sweep: of limit=10, 10.
func swept(found *backtest.RuleResult) string {
	_, value, _ := strings.Cut(found.Swept, "=")
	return value
}

// share writes a part of 1 as people read it: 12.3 %.
func share(of float64) string {
	switch {
	case of == 0:
		return "0 %"
	case of == 1:
		return "100 %"
	case of < 0.001:
		return "< 0.1 %"
	case of > 0.999:
		return "> 99.9 %"
	}
	return strconv.FormatFloat(100*of, 'f', 1, 64) + " %"
}

// evidence writes one sample of a source in a few words: POST /login 401.
func evidence(samples []string) string {
	var s traffic.Sample
	if len(samples) == 0 || json.Unmarshal([]byte(samples[0]), &s) != nil {
		return ""
	}
	words := []string{s.Method, s.Path}
	if s.Status != 0 {
		words = append(words, strconv.Itoa(s.Status))
	}
	return strings.TrimSpace(strings.Join(words, " "))
}
