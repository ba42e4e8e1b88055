package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// A client is told a part of a hit's id (gate.BlockID); hitIDBytes is the whole of it, and leastID what is worth a look.
const (
	hitIDBytes = 32
	leastID    = 8
)

func whyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "why ID",
		Short: "Say why somebody was blocked: what is behind the block id that a client was told",
		Long: `Say what is behind a block: the rule, the source, the evidence, what was decided about it and by whom, whether it holds now,
and the command that releases it.

ID is the block id that the refused client was told (X-Weir-Block, "block" in the answer's body), the id of a hit, or the
beginning of one, of 8 digits or more.`,
		Example: "  weir why 0123456789abcdef\n  weir why 0123456789abcdef --output json",
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			id := strings.ToLower(args[0])
			if len(id) < leastID || len(id) > hitIDBytes || strings.Trim(id, "0123456789abcdef") != "" {
				return usage.Errorf("ID: got %q; allowed: %d to %d hex digits, such as the 16 of X-Weir-Block", args[0], leastID, hitIDBytes)
			}
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				r, err := service.OpenRedis(s.config)
				if err != nil {
					return err
				}
				defer func() { _ = r.Close() }()
				w := asking{store: s, redis: r, away: service.WaitRedis(ctx, r, service.AnswerTimeout, s.log), id: id}
				story, err := w.story(ctx)
				if err != nil {
					return err
				}
				if a.Format == "json" {
					return a.WriteJSON(story)
				}
				return showStory(&a.Output, story)
			})
		}),
	}
}

// whyStory is what is known about one hit.
type whyStory struct {
	ID      string `json:"id"`       // of the hit
	BlockID string `json:"block_id"` // what clients are told of it
	Rule    string `json:"rule"`
	// Mode is the rule's mode now; empty for a rule that history does not know.
	Mode    rules.Mode      `json:"mode,omitempty"`
	Subject traffic.Subject `json:"subject"` // who is blocked; empty: nobody can be
	// Hit is the evidence; null: RECORD has not stored it yet.
	Hit       *history.RecordedHit       `json:"hit"`
	Decisions []history.RecordedDecision `json:"decisions"` // oldest first
	// Block is the one that stands for the source by the rule; Holds says whether gates refuse for it, null: not known.
	Block *blocklist.Block `json:"block"`
	Holds *bool            `json:"holds"`
	// Back is what the block holds back of its source's requests, while one stands and its rule's mode is known.
	Back    string `json:"holds_back,omitempty"`
	Unheld  string `json:"unheld,omitempty"`  // why gates refuse nobody for it
	Unknown string `json:"unknown,omitempty"` // why it is not known
	Release string `json:"release_command,omitempty"`
}

// asking is one call of weir why.
type asking struct {
	store *store
	redis *blocklist.Store
	away  error // why Redis cannot be asked
	id    string
}

func (q *asking) story(ctx context.Context) (*whyStory, error) {
	st, err := q.recorded(ctx)
	if err != nil {
		return nil, err
	}
	if st == nil {
		if st, err = q.standing(ctx); err != nil {
			return nil, err
		}
	}
	st.BlockID = gate.BlockID(st.ID)
	if all, err := q.store.Rules.List(ctx); err != nil {
		return nil, err
	} else if i := slices.IndexFunc(all, func(r rulestore.Rule) bool { return r.Newest.Version.ID == st.Rule }); i >= 0 {
		st.Mode = all[i].Mode
	}
	if st.Hit == nil || st.Hit.Stream == history.Live {
		if err := q.decisions(ctx, st); err != nil {
			return nil, err
		}
		q.holds(ctx, st)
	}
	return st, nil
}

// recorded finds the hit in history; nil where there is none.
func (q *asking) recorded(ctx context.Context) (*whyStory, error) {
	const most = 20
	hits, err := q.store.HitsByID(ctx, q.id, most)
	if err != nil || len(hits) == 0 {
		return nil, err
	}
	var ids []string
	for i := range hits {
		if !slices.Contains(ids, hits[i].ID) {
			ids = append(ids, hits[i].ID)
		}
	}
	if len(ids) > 1 {
		return nil, fmt.Errorf("several hits have an id that begins with %s; give more of it: %s", q.id, terminal.FirstFew(ids))
	}
	h := &hits[0] // the live stream's, if it has it
	subject := h.BlockSubject.Stored()
	if h.Kind != detectors.KindHit {
		subject = "" // who a promotion would block is not blocked for it
	}
	return &whyStory{ID: h.ID, Rule: h.Rule, Subject: subject, Hit: h, Decisions: []history.RecordedDecision{}}, nil
}

// standing finds a block or a release in Redis whose hit is not in history: RECORD may be behind. If there is none, the error
// says what was looked at.
func (q *asking) standing(ctx context.Context) (*whyStory, error) {
	streams, err := q.store.Streams.List(ctx)
	if err != nil {
		return nil, err
	}
	looked := fmt.Sprintf("no hit of %s in history has an id that begins with %s", plural.Of(len(streams), "stream"), q.id)
	if q.away != nil {
		return nil, fmt.Errorf("%s, and Redis could not be asked: %w", looked, q.away)
	}
	found, err := q.redis.List(ctx, service.Now(), blocklist.Filter{Tombstones: true})
	if err != nil {
		return nil, fmt.Errorf("%s, and Redis could not be asked: %w", looked, err)
	}
	for i := range found.Items {
		item := &found.Items[i]
		hit := ""
		if item.Block != nil {
			hit = item.Block.Hit
		} else {
			hit = item.Tombstone.Hit
		}
		if strings.HasPrefix(hit, q.id) {
			return &whyStory{ID: hit, Rule: item.Rule, Subject: item.Subject, Decisions: []history.RecordedDecision{}}, nil
		}
	}
	return nil, fmt.Errorf("%s, nor has one of the %d blocks and releases in Redis", looked, len(found.Items))
}

// decisions gathers the decisions about the hit, and the later releases of its source: by then, the block may have been another
// episode's.
func (q *asking) decisions(ctx context.Context, st *whyStory) error {
	all, err := q.store.Decisions(ctx, history.DecisionQuery{Stream: history.Live, Hit: st.ID})
	if err != nil {
		return err
	}
	if len(all) > 0 {
		st.Subject = all[len(all)-1].Subject
	}
	if source, err := history.ParseSource(string(st.Subject)); err == nil {
		since := traffic.Time(0)
		if st.Hit != nil {
			since = st.Hit.First
		}
		released, err := q.store.Decisions(ctx, history.DecisionQuery{
			Stream: history.Live, Rule: st.Rule, Source: &source, Action: blocklist.ActionReleased, Since: since,
		})
		if err != nil {
			return err
		}
		for _, d := range released {
			if d.Subject.Stored() == st.Subject.Stored() && d.Hit != st.ID {
				all = append(all, d)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b history.RecordedDecision) int { return cmp.Compare(a.At, b.At) })
	st.Decisions = append(st.Decisions, all...)
	return nil
}

// holds finds out whether the source is held now.
func (q *asking) holds(ctx context.Context, st *whyStory) {
	holds := false
	if st.Subject == "" {
		st.Holds = &holds
		return
	}
	err := q.away
	var modes []rules.ModeState
	if err == nil {
		st.Block, _, err = q.redis.Get(ctx, st.Subject, st.Rule)
	}
	if err == nil && st.Block != nil {
		modes, err = q.redis.Modes(ctx)
	}
	if err != nil {
		st.Unknown = err.Error()
		return
	}
	if st.Block != nil {
		var mode *rules.ModeState
		if i := slices.IndexFunc(modes, func(m rules.ModeState) bool { return m.Rule == st.Rule }); i >= 0 {
			mode = &modes[i]
			st.Back = rules.Match(mode.Match).String()
		}
		st.Unheld = q.redis.Unheld(st.Subject, st.Block, mode, service.Now())
		holds = st.Unheld == ""
		st.Release = releaseCommand(st.Rule, st.Subject, "")
	}
	st.Holds = &holds
}

// showStory writes a story as a table of what is asked first.
func showStory(o *terminal.Output, st *whyStory) error {
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
	if st.trial() {
		line("SOURCE", subject.Text(st.Hit.Subject)+"; nothing comes of a hit of kind "+string(st.Hit.Kind))
	} else if st.Subject != "" {
		line("SOURCE", subject.Text(st.Subject))
	} else if st.Hit != nil {
		line("SOURCE", subject.Text(st.Hit.Subject)+"; nobody can be blocked for it")
	}
	line("EVIDENCE", st.evidence()...)
	line("DECISIONS", st.decided()...)
	line("HOLDS NOW", st.holding())
	if st.Back != "" {
		line("HOLDS BACK", st.Back)
	}
	if st.Release != "" {
		line("TO RELEASE", st.Release)
	}
	return w.Flush()
}

// trial reports whether the hit is one that nothing comes of: near a limit, or over one on trial.
func (st *whyStory) trial() bool { return st.Hit != nil && st.Hit.Kind != detectors.KindHit }

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
		fmt.Sprintf("limit %d in %s, at most %d were seen in one window", h.Limit, duration.Format(time.Duration(h.WindowMS)*time.Millisecond), h.Peak),
	}
	if h.Users > 0 || h.Devices > 0 {
		lines = append(lines, fmt.Sprintf("%s and %s among them", plural.Of(h.Users, "user"), plural.Of(h.Devices, "device")))
	}
	for _, sample := range h.Samples {
		lines = append(lines, terminal.Brief(sample))
	}
	return lines
}

func phaseText(h *history.RecordedHit) string {
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
