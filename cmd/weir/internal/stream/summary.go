package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// Summary is what a replay says at its end; it is stored with the stream.
type Summary struct {
	Replay   string           `json:"replay"`
	Complete bool             `json:"complete"` // false: it broke off, see Error
	Error    string           `json:"error,omitempty"`
	Lines    int64            `json:"lines"`
	Events   int64            `json:"events"` // acknowledged by Kafka
	First    traffic.Time     `json:"first,omitzero"`
	Last     traffic.Time     `json:"last,omitzero"`
	Dead     map[string]int64 `json:"dead_letters"` // by reason
	Examples []string         `json:"dead_letter_examples,omitempty"`
	Broken   []archive.Break  `json:"broken,omitempty"` // files that were not read to their end
	TooLate  int64            `json:"too_late_for_reorder"`
	Forced   int64            `json:"reorder_buffer_full"`
	Rules    []ReplayedRule   `json:"rules"`
	// Notes are sentences about what the figures do not say by themselves.
	Notes []string `json:"notes,omitempty"`
	// Frequent are the most frequent requests of the files, where some rule matched none.
	Frequent   []FrequentRequest `json:"frequent_requests,omitempty"`
	Seconds    float64           `json:"seconds"`
	Partitions int               `json:"partitions"`
}

// ReplayedRule is what one rule saw and found.
type ReplayedRule struct {
	Rule    string `json:"rule"`
	Matched int64  `json:"matched"` // events that the rule watches
	Behind  int64  `json:"late"`    // of those, more than the rule's lateness behind the newest before them
	Late    int64  `json:"late_with_key"`
	Skipped int64  `json:"skipped"` // without a complete key, so in no window
	// Lacking is how many of Matched lack a field of the rule's key, by field.
	Lacking map[string]int64 `json:"lacking,omitempty"`
	// Uncounted are the events of Matched that are in no window; each has one reason.
	Uncounted history.Figures `json:"uncounted"`
	// Unjudged are the events on which match.when, or the condition of a tier, could not be judged. Those of match.when are not
	// among Matched.
	Unjudged route.Unjudged `json:"unjudged,omitzero"`
	Episodes int64          `json:"episodes"`
	Sources  int64          `json:"sources"`
	Events   int64          `json:"events"` // in those episodes
}

// summary gathers what is known. failed is why the replay broke off, nil when it is complete.
func (p *replay) summary(ctx context.Context, failed error) Summary {
	s := Summary{
		Replay: p.Name, Complete: failed == nil, Seconds: time.Since(p.begun).Seconds(), Partitions: p.RequestsPartitions,
		Dead: map[string]int64{}, Rules: []ReplayedRule{},
	}
	if failed != nil {
		s.Error = failed.Error()
	}
	if p.reading.archive != nil {
		counts := p.reading.archive.Counts()
		s.Lines, s.Events, s.TooLate, s.Forced = counts.Lines, p.reading.sender.Acked(), counts.TooLate, counts.Forced
		s.Broken = counts.Broken
		if counts.First != traffic.BeforeTime {
			s.First, s.Last = counts.First, counts.Last
		}
	}
	p.dropped.mu.Lock()
	maps.Copy(s.Dead, p.dropped.reasons)
	s.Examples = append(s.Examples, p.dropped.first...)
	p.dropped.mu.Unlock()
	s.Rules = p.ruleSummaries(ctx)
	if s.Complete {
		if slices.ContainsFunc(s.Rules, func(r ReplayedRule) bool { return r.Matched == 0 }) {
			s.Frequent = p.frequent.top(frequentShown)
		}
		s.Notes = p.notes(&s)
	}
	return s
}

// ruleSummaries joins what ROUTE counted with what history holds, a line for each rule of the replay.
func (p *replay) ruleSummaries(ctx context.Context) []ReplayedRule {
	ctx, cancel := p.lastWords(ctx)
	defer cancel()
	found, err := p.History.Summary(ctx, string(p.streamName))
	if err != nil {
		p.Log.Error("the summary lacks what history holds", "error", err)
	}
	missed, missedErr := p.History.NotCounted(ctx, string(p.streamName), 0)
	if missedErr != nil {
		p.Log.Error("the summary lacks what was not counted", "error", missedErr)
	}
	byRule := map[string]history.RuleSummary{}
	for _, f := range found {
		byRule[f.Rule] = f
	}
	out := make([]ReplayedRule, len(p.Rules))
	for i := range p.Rules {
		id := p.Rules[i].ID
		out[i] = ReplayedRule{
			Rule: id, Episodes: byRule[id].Episodes, Sources: byRule[id].Sources, Events: byRule[id].Events, Late: byRule[id].Late,
		}
		// ROUTE's own figures are those of this process, to the last event; what is stored of them may be a little behind.
		figures := history.UnknownFigures()
		if missedErr == nil {
			figures = missed.Figures(id)
		}
		figures.MissingField, figures.MissingValue, figures.Budget = history.UnknownFigure, history.UnknownFigure,
			history.UnknownFigure
		if p.router != nil {
			st := p.router.Stats().Rules[id]
			out[i].routed(&st)
			left := st.LeftOut()
			figures.MissingField = history.Figure(left[detectors.UncountedMissingField])
			figures.MissingValue = history.Figure(left[detectors.UncountedMissingValue])
			figures.Budget = history.Figure(left[detectors.UncountedBudget])
		}
		out[i].Uncounted = figures
	}
	return out
}

// routed takes over what ROUTE counted of the rule.
func (r *ReplayedRule) routed(st *route.RuleStats) {
	r.Matched, r.Behind, r.Skipped = st.Matched, st.Behind, st.Skipped
	r.Lacking, r.Unjudged = st.Lacking(), st.Unjudged()
}

// Notes explain a replay's figures: why a rule has counted nothing, and in which format the file should probably have been
// read. Without them a row of zeros looks like "nobody was over".

// frequentShown is how many of the most frequent requests, and of a line's members, are shown.
const (
	frequentShown = 8
	membersShown  = 20
)

// notes are those of a summary that has all else.
func (p *replay) notes(s *Summary) []string {
	var notes []string
	if s.Events == 0 {
		if note := timelessNote(p.dropped.timeless(), p.reading.files.Format); note != "" {
			notes = append(notes, note)
		}
		return notes
	}
	var idle []string
	for i := range s.Rules {
		r, v := &s.Rules[i], &p.Rules[i]
		notes = append(notes, r.Unjudged.Notes(r.Rule)...)
		if r.Matched == 0 {
			idle = append(idle, fmt.Sprintf("rule %s matched none of %s: it watches %s", r.Rule, plural.Of(s.Events, "event"), watched(&v.Match)))
			continue
		}
		for _, f := range slices.Sorted(maps.Keys(r.Lacking)) {
			if r.Lacking[f] == r.Matched {
				notes = append(notes, fmt.Sprintf("rule %s: all %d lack %s, a field of its key, so %s", r.Rule, r.Matched, f, lackingMeans(v.Missing)))
			}
		}
	}
	if len(idle) > 0 {
		notes = append(append(notes, idle...), frequentNote(s.Frequent))
	}
	return notes
}

func lackingMeans(missing rules.OnMissing) string {
	if missing == rules.MissingGroup {
		return "they share one window, which blocks nobody"
	}
	return "none of them was counted"
}

// watched writes a match: POST /v1/guest-tokens.
func watched(m *rules.Match) string {
	method := "any method"
	if len(m.Methods) > 0 {
		method = strings.Join(m.Methods, " or ")
	}
	return terminal.Safe(method + " " + m.Where())
}

func frequentNote(top []FrequentRequest) string {
	shown := make([]string, len(top))
	for i, r := range top {
		atLeast := ""
		if r.AtLeast {
			atLeast = "at least "
		}
		shown[i] = fmt.Sprintf("%s (%s%d)", terminal.Safe(strings.TrimSpace(r.Method+" "+r.Path)), atLeast, r.Events)
	}
	return "the most frequent requests of the file: " + strings.Join(shown, ", ")
}

// timelessNote says which members a line has that no time was found in. It knows JSON lines only.
func timelessNote(line []byte, written string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(line, &members) != nil || len(members) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(members))
	note := "no line has a time; the first one has the members " + terminal.Safe(strings.Join(names[:min(len(names), membersShown)], ", "))
	if more := len(names) - membersShown; more > 0 {
		note += fmt.Sprintf(" and %d more", more)
	}
	if name := timeAmong(line, names); name != "" {
		option := "--map time=" + name
		if written == format.Weir {
			option = "--format json " + option
		}
		note += "; did you mean " + option + "?"
	}
	return note
}

// timeAmong finds the member that is read as a time of our days; of several, one that is called like a time.
func timeAmong(line []byte, names []string) string {
	oldest, newest := traffic.At(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), service.Now().Add(24*time.Hour)
	best := ""
	for _, name := range names {
		fields, err := format.ParseFieldMap("time=" + name)
		if err != nil {
			continue
		}
		d, err := format.NewDecoder(format.JSON, fields, len(line))
		if err != nil {
			continue
		}
		var r traffic.Request
		if d.Decode(line, &r) != nil || !r.HasTime || r.Time < oldest || r.Time > newest {
			continue
		}
		if best == "" || !calledTime(best) && calledTime(name) {
			best = name
		}
	}
	return best
}

func calledTime(name string) bool {
	name = strings.ToLower(name)
	return name == "ts" || name == "at" || strings.Contains(name, "time") || strings.Contains(name, "date")
}

// timeless is the first line that was refused because it has no time; nil for none.
func (d *deadCount) timeless() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.noTime
}

// keepTimeless is called with each letter, under the lock.
func (d *deadCount) keepTimeless(letter *traffic.DeadLetter) {
	if d.noTime == nil && letter.Reason == archive.ReasonNoTime {
		d.noTime = slices.Clone(letter.Value)
	}
}
