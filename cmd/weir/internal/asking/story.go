package asking

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// showStory writes a story as a table of what is asked first.
func showStory(o *terminal.Output, st *BlockStory) error {
	w := tabwriter.NewWriter(o.Stdout, 0, 8, 2, ' ', 0)
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
	line("SOURCE", st.sourceText())
	line("EVIDENCE", st.evidence()...)
	line("DECISIONS", st.decided()...)
	if st.Refused.Events > 0 {
		line("REFUSED", st.refused())
	}
	line("ACTS", st.acted()...)
	line("HOLDS NOW", st.holding())
	if st.Back != "" {
		line("HOLDS BACK", st.Back)
	}
	if st.Release != "" {
		line("TO RELEASE", st.Release)
	}
	for _, o := range st.Also {
		line("ALSO", terminal.Time(o.At)+" rule "+o.Rule+", "+subject.Text(o.Subject)+": weir why "+o.ID)
	}
	return w.Flush()
}

// refused says what gates refused.
func (st *BlockStory) refused() string {
	return fmt.Sprintf("%s by gates, the last at %s; %d of them known good", plural.Of(st.Refused.Events, "request"),
		terminal.Time(st.Refused.Latest), st.Refused.Known)
}

// sourceText is who it was, and why nobody can be blocked for it.
func (st *BlockStory) sourceText() string {
	switch {
	case st.trial():
		return subject.Text(st.Hit.Subject) + "; nothing comes of a hit of kind " + string(st.Hit.Kind)
	case st.Subject != "":
		return subject.Text(st.Subject)
	case st.Hit != nil:
		return subject.Text(st.Hit.Subject) + "; nobody can be blocked for it"
	}
	return "not known"
}

// acted tells what people did since.
func (st *BlockStory) acted() []string {
	var lines []string
	for i := range st.Acts {
		a := &st.Acts[i]
		lines = append(lines, terminal.Stamp(a.At)+" "+a.Action+" by "+terminal.Brief(a.Actor)+": "+terminal.Brief(a.Reason))
	}
	return lines
}

// trial reports whether the hit is one that nothing comes of: near a limit, or over one on trial.
func (st *BlockStory) trial() bool { return st.Hit != nil && st.Hit.Kind != detectors.KindHit }

func (st *BlockStory) ruleText() string {
	text := st.Rule
	if rules.IsByHand(st.Rule) {
		return text + ": a block by hand, of no document"
	}
	if st.Hit != nil {
		text += fmt.Sprintf(", version %d", st.Hit.RuleVersion)
	}
	switch {
	case st.Hit != nil && st.Hit.Stream != history.Live:
		return text + ", of " + st.Hit.Stream
	case st.Mode == "":
		return text + ", removed"
	}
	text += ", mode " + string(st.Mode)
	if st.Share != "" {
		text += ": it may hold " + st.Share + " of its block keys"
	}
	if st.FellBack != "" {
		text += ", its canary fell back: " + terminal.Brief(st.FellBack)
	}
	if st.Owner != "" {
		text += ", owner " + terminal.Brief(st.Owner)
	}
	return text
}

// evidence says what was counted.
func (st *BlockStory) evidence() []string {
	h := st.Hit
	if o := st.Order; o != nil {
		return []string{
			"none: blocked by hand by " + terminal.Brief(o.By) + " at " + terminal.Time(o.Since) + ", until " +
				terminal.Time(o.Until),
			terminal.Brief(o.Reason),
		}
	}
	if h == nil {
		return []string{"not in history: RECORD has not stored the hit yet"}
	}
	count := plural.Of(h.Count, "event")
	if h.AtLeast {
		count = "≥" + count
	}
	over := "over the limit"
	switch h.Kind {
	case detectors.KindNear:
		over = "near the limit"
	case detectors.KindCandidate:
		over = "over a limit on trial"
	}
	lines := []string{
		fmt.Sprintf("%s %s, from %s to %s; %s", count, over, terminal.Time(h.First), terminal.Time(h.Last), phaseText(h)),
		fmt.Sprintf("limit %d in %s, at most %d were seen in one window", h.Limit, length(h.WindowMS), h.Peak),
	}
	if h.Users > 0 || h.Devices > 0 {
		lines = append(lines, fmt.Sprintf("%s and %s among them", plural.Of(h.Users, "user"), plural.Of(h.Devices, "device")))
	}
	for _, sample := range h.RecordedHit.Samples {
		lines = append(lines, eventLine(sample))
	}
	if without := traffic.WithoutBefore(h.RecordedHit.Samples); without != "" {
		lines = append(lines, without)
	}
	return lines
}

func phaseText(h *ShownHit) string {
	switch h.Phase {
	case detectors.PhaseClosed:
		switch h.Reason {
		case "":
			return "it is over"
		case detectors.ReasonReset:
			return "it was closed since its count was reset (weir counters reset)"
		}
		return "it is over: " + terminal.Brief(h.Reason)
	case detectors.PhaseMerged:
		return "it was joined to hit " + h.IntoID
	}
	return "it was not over when last reported"
}

// decided tells the decisions, the first one first.
func (st *BlockStory) decided() []string {
	if st.Hit != nil && st.Hit.Stream != history.Live {
		return []string{"none: a replay blocks nobody"}
	}
	if len(st.Decisions) == 0 {
		return []string{"none in history"}
	}
	lines := make([]string, len(st.Decisions))
	for i, d := range st.Decisions {
		join := ", "
		switch d.Action {
		case blocklist.ActionReleased:
			join = " "
		case blocklist.ActionWithheld:
			join = ": "
		}
		lines[i] = terminal.Time(d.At) + " " + string(d.Action) + join + decidedText(&d)
	}
	return lines
}

// outside reports whether what was decided last is that the rule's canary leaves the source out.
func (st *BlockStory) outside() bool {
	n := len(st.Decisions)
	return st.Mode == rules.ModeCanary && n > 0 && st.Decisions[n-1].Reason == blocklist.ReasonCanary
}

// holding says whether gates refuse now, and what stands if they do not.
func (st *BlockStory) holding() string {
	switch {
	case st.Hit != nil && st.Hit.Stream != history.Live:
		return "no"
	case st.Holds == nil:
		return "not known: " + strings.ReplaceAll(st.Unknown, "\n", "; ")
	case st.Block == nil && st.outside():
		return "no: the rule is in canary, and this source is not within the " + cmp.Or(st.Share, "share") + " of block keys that it may hold"
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
