package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/traffic"
)

// replaySummary is what a replay says at its end; it is stored with the stream.
type replaySummary struct {
	Replay   string           `json:"replay"`
	Complete bool             `json:"complete"` // false: it broke off, see Error
	Error    string           `json:"error,omitempty"`
	Lines    int64            `json:"lines"`
	Events   int64            `json:"events"` // acknowledged by Kafka
	First    traffic.Time     `json:"first,omitzero"`
	Last     traffic.Time     `json:"last,omitzero"`
	Dead     map[string]int64 `json:"dead_letters"` // by reason
	Examples []string         `json:"dead_letter_examples,omitempty"`
	TooLate  int64            `json:"too_late_for_reorder"`
	Forced   int64            `json:"reorder_buffer_full"`
	Rules    []replayedRule   `json:"rules"`
	// Notes are sentences about what the figures do not say by themselves.
	Notes []string `json:"notes,omitempty"`
	// Frequent are the most frequent requests of the files, where some rule matched none.
	Frequent   []frequentRequest `json:"frequent_requests,omitempty"`
	Seconds    float64           `json:"seconds"`
	Partitions int               `json:"partitions"`
}

// replayedRule is what one rule saw and found.
type replayedRule struct {
	Rule    string `json:"rule"`
	Matched int64  `json:"matched"` // events that the rule watches
	Behind  int64  `json:"late"`    // of those, more than the rule's lateness behind the newest before them
	Late    int64  `json:"late_with_key"`
	Skipped int64  `json:"skipped"` // without a complete key, so in no window
	// Lacking is how many of Matched lack a field of the rule's key, by field.
	Lacking map[string]int64 `json:"lacking,omitempty"`
	// Uncounted are the events of Matched that are in no window; each has one reason.
	Uncounted history.Figures `json:"uncounted"`
	Episodes  int64           `json:"episodes"`
	Sources   int64           `json:"sources"`
	Events    int64           `json:"events"` // in those episodes
}

// summary gathers what is known. failed is why the replay broke off, nil when it is complete.
func (p *replay) summary(ctx context.Context, failed error) replaySummary {
	s := replaySummary{
		Replay: p.reading.flags.replay, Complete: failed == nil, Seconds: time.Since(p.begun).Seconds(), Partitions: p.RequestsPartitions,
		Dead: map[string]int64{}, Rules: []replayedRule{},
	}
	if failed != nil {
		s.Error = failed.Error()
	}
	if p.reading.archive != nil {
		counts := p.reading.archive.Counts()
		s.Lines, s.Events, s.TooLate, s.Forced = counts.Lines, p.reading.sender.Acked(), counts.TooLate, counts.Forced
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
		if slices.ContainsFunc(s.Rules, func(r replayedRule) bool { return r.Matched == 0 }) {
			s.Frequent = p.frequent.top(frequentShown)
		}
		s.Notes = p.notes(&s)
	}
	return s
}

// ruleSummaries joins what ROUTE counted with what history holds, a line for each rule of the replay.
func (p *replay) ruleSummaries(ctx context.Context) []replayedRule {
	ctx, cancel := p.lastWords(ctx)
	defer cancel()
	found, err := p.History.Summary(ctx, p.name)
	if err != nil {
		p.Log.Error("the summary lacks what history holds", "error", err)
	}
	missed, missedErr := p.History.NotCounted(ctx, p.name, 0)
	if missedErr != nil {
		p.Log.Error("the summary lacks what was not counted", "error", missedErr)
	}
	byRule := map[string]history.RuleSummary{}
	for _, f := range found {
		byRule[f.Rule] = f
	}
	out := make([]replayedRule, len(p.rules))
	for i := range p.rules {
		id := p.rules[i].ID
		out[i] = replayedRule{
			Rule: id, Episodes: byRule[id].Episodes, Sources: byRule[id].Sources, Events: byRule[id].Events, Late: byRule[id].Late,
		}
		// ROUTE's own figures are those of this process, to the last event; what is stored of them may be a little behind.
		figures := history.UnknownFigures()
		if missedErr == nil {
			figures = missed.Figures(id)
		}
		figures.MissingField, figures.MissingValue = history.UnknownFigure, history.UnknownFigure
		if p.router != nil {
			st := p.router.Stats().Rules[id]
			out[i].Matched, out[i].Behind, out[i].Skipped = st.Matched, st.Behind, st.Skipped
			out[i].Lacking = lacking(&st)
			left := st.LeftOut()
			figures.MissingField = history.Figure(left[detectors.UncountedMissingField])
			figures.MissingValue = history.Figure(left[detectors.UncountedMissingValue])
		}
		out[i].Uncounted = figures
	}
	return out
}

// lacking is how many of the events that a rule watches lack each field of its key.
func lacking(st *route.RuleStats) map[string]int64 {
	var out map[string]int64
	for f, n := range st.Missing {
		if n > 0 {
			if out == nil {
				out = map[string]int64{}
			}
			out[traffic.Field(f).String()] = n
		}
	}
	return out
}

func (a *app) showReplay(s replaySummary) error {
	if a.Format == "json" {
		if err := a.WriteJSON(s); err != nil {
			return err
		}
	} else if err := a.replayTable(s); err != nil {
		return err
	}
	if s.Events == 0 && s.Lines > 0 {
		return errors.New("not one line could be read")
	}
	return nil
}

func (a *app) replayTable(s replaySummary) error {
	fmt.Fprintf(a.Stdout, "replay %s: %s of %s", s.Replay, terminal.Plural(s.Events, "event"), terminal.Plural(s.Lines, "line"))
	if s.Events > 0 && s.Last != 0 {
		fmt.Fprintf(a.Stdout, ", %s to %s", terminal.Time(s.First), terminal.Time(s.Last))
	}
	fmt.Fprintf(a.Stdout, ", in %s\n", terminal.Seconds(s.Seconds))
	a.showDead(s.Dead)
	for _, e := range s.Examples {
		fmt.Fprintf(a.Stdout, "  %s\n", terminal.Cell(e))
	}
	a.showTooLate(s.TooLate)
	if s.Forced > 0 {
		fmt.Fprintf(a.Stdout, "sent early because the --reorder buffer was full: %s\n", terminal.Plural(s.Forced, "event"))
	}
	fmt.Fprintln(a.Stdout)
	head := append([]string{"RULE", "SOURCES", "EPISODES", "EVENTS", "MATCHED"}, uncountedHead()...)
	if err := terminal.List(&a.Output, s.Rules, head, func(r replayedRule) []string {
		out := []string{r.Rule}
		for _, n := range []int64{r.Sources, r.Episodes, r.Events, r.Matched} {
			out = append(out, strconv.FormatInt(n, 10))
		}
		return append(out, uncountedCells(&r.Uncounted)...)
	}); err != nil {
		return err
	}
	if len(s.Notes) > 0 {
		fmt.Fprintln(a.Stdout)
	}
	for _, note := range s.Notes {
		fmt.Fprintln(a.Stdout, note)
	}
	switch {
	case slices.ContainsFunc(s.Rules, func(r replayedRule) bool { return r.Episodes > 0 }):
		fmt.Fprintf(a.Stdout, "\nweir history hits --replay %s shows who, and when\n", s.Replay)
	case s.Complete && s.Events > 0:
		fmt.Fprint(a.Stdout, "\nnobody was over a limit\n")
	}
	return nil
}
