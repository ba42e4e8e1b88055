package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/rules"
)

// showStory writes a story as a table of what is asked first.
func (a *app) showStory(st *whyStory) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 8, 2, ' ', 0)
	line := func(name string, texts ...string) {
		for i, text := range texts {
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(w, "%s\t%s\n", name, terminal.Shown(text))
		}
	}
	line("BLOCK", st.BlockID)
	line("HIT", st.ID)
	line("RULE", st.ruleText())
	if st.Subject != "" {
		line("SOURCE", subject(st.Subject))
	} else if st.Hit != nil {
		line("SOURCE", subject(st.Hit.Subject)+"; nobody can be blocked for it")
	}
	line("EVIDENCE", st.evidence()...)
	line("DECISIONS", st.decided()...)
	line("HOLDS NOW", st.holding())
	if st.Release != "" {
		line("TO RELEASE", st.Release)
	}
	return w.Flush()
}

func (st *whyStory) ruleText() string {
	text := st.Rule
	if st.Hit != nil {
		text += fmt.Sprintf(", version %d", st.Hit.RuleVersion)
	}
	switch {
	case st.Hit != nil && st.Hit.Stream != history.Live:
		return text + ", of " + st.Hit.Stream
	case st.Mode == "":
		return text + ", removed"
	}
	return text + ", mode " + string(st.Mode)
}

// evidence says what was counted.
func (st *whyStory) evidence() []string {
	h := st.Hit
	if h == nil {
		return []string{"not in history: RECORD has not stored the hit yet"}
	}
	count := terminal.Plural(h.Count, "event")
	if h.AtLeast {
		count = "≥" + count
	}
	lines := []string{
		fmt.Sprintf("%s over the limit, from %s to %s; %s", count, terminal.Time(h.First), terminal.Time(h.Last), phaseText(h)),
		fmt.Sprintf("limit %d in %s, at most %d were seen in one window", h.Limit, rules.FormatDuration(time.Duration(h.WindowMS)*time.Millisecond), h.Peak),
	}
	if h.Users > 0 || h.Devices > 0 {
		lines = append(lines, fmt.Sprintf("%s and %s among them", terminal.Plural(h.Users, "user"), terminal.Plural(h.Devices, "device")))
	}
	for _, sample := range h.Samples {
		lines = append(lines, terminal.Brief(sample))
	}
	return lines
}

func phaseText(h *history.RecordedHit) string {
	switch h.Phase {
	case detectors.PhaseClosed:
		return "it is over"
	case detectors.PhaseMerged:
		return "it was joined to hit " + h.IntoID
	}
	return "it was not over when last reported"
}

// decided tells the decisions, the first one first.
func (st *whyStory) decided() []string {
	if st.Hit != nil && st.Hit.Stream != history.Live {
		return []string{"none: a replay blocks nobody"}
	}
	if len(st.Decisions) == 0 {
		return []string{"none in history"}
	}
	lines := make([]string, len(st.Decisions))
	for i, d := range st.Decisions {
		text := terminal.Time(d.At) + " " + string(d.Action)
		switch d.Action {
		case blocklist.ActionReleased:
			text += " by " + terminal.Brief(d.By)
			if d.Reason != "" {
				text += ": " + terminal.Brief(d.Reason)
			}
		case blocklist.ActionWithheld:
			text += ": " + terminal.Brief(d.Reason)
		default:
			text += ", until " + terminal.Time(d.Until)
		}
		lines[i] = text
	}
	return lines
}

// holding says whether gates refuse now, and what stands if they do not.
func (st *whyStory) holding() string {
	switch {
	case st.Hit != nil && st.Hit.Stream != history.Live:
		return "no"
	case st.Holds == nil:
		return "not known: " + strings.ReplaceAll(st.Unknown, "\n", "; ")
	case st.Block == nil:
		return "no: no block of the rule stands for this source"
	}
	text := "yes, until " + terminal.Time(st.Block.Until)
	if !*st.Holds {
		text = "no: a block stands until " + terminal.Time(st.Block.Until) + ", but " + st.Unheld
	}
	if st.Block.Hit != st.ID {
		text += "; that block is of another episode: weir why " + st.Block.Hit
	}
	return text
}
