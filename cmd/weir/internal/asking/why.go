package asking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
)

// Why is weir why.
func Why(p *Program) *cobra.Command {
	return &cobra.Command{
		Use:   "why ID|SOURCE",
		Short: "Say why somebody was blocked: what is behind a block id, or a source",
		Long: `Say what is behind a block: the rule, the source, the evidence, what was decided about it and by whom, whether it holds now,
and the command that releases it.

ID is the block id that the refused client was told (X-Weir-Block, "block" in the answer's body), the id of a hit, or the
beginning of one, of 8 digits or more. SOURCE is ip=192.0.2.1, user=alice or the like, or a canonical subject: told is the newest block of it, or, where
nothing was blocked, its newest hit, and the others are named.`,
		Example: "  weir why 0123456789abcdef\n  weir why ip=192.0.2.1\n  weir why 0123456789abcdef --output json",
		Args:    cobra.ExactArgs(1),
		RunE: p.Does([]string{"table", "json"}, func(cmd *cobra.Command, args []string) error {
			id, source, err := readWhat(args[0])
			if err != nil {
				return err
			}
			return p.WithStore(cmd, func(ctx context.Context, in *Installation) error {
				r, err := service.OpenRedis(in.Config)
				if err != nil {
					return err
				}
				defer func() { _ = r.Close() }()
				q := asking{Program: p, in: in, x: explore.New(in.Store), redis: r, away: service.WaitRedis(ctx, r, service.AnswerTimeout, in.Log), id: id}
				if source != nil {
					if err := q.choose(ctx, args[0], source); err != nil {
						return err
					}
				}
				story, err := q.story(ctx)
				if err != nil {
					return err
				}
				if p.Format == "json" {
					return p.WriteJSON(story)
				}
				return showStory(p.Output, story)
			})
		}),
	}
}

// readWhat reads what weir why is asked about: the id of a hit, or, with a = or a / or a dot in it, a source.
func readWhat(text string) (id string, source *history.Source, err error) {
	if strings.ContainsAny(text, "=/.:") {
		s, err := history.ParseSource(text)
		if err != nil {
			return "", nil, usage.Errorf("SOURCE: %w", err)
		}
		return "", &s, nil
	}
	id, err = readID(text)
	return id, nil, err
}

func readID(text string) (string, error) {
	id, err := explore.ParseID(text)
	if bad := (*explore.BadFilterError)(nil); errors.As(err, &bad) {
		return "", usage.Errorf("ID: got %q; allowed: %s", bad.Got, bad.Allowed)
	}
	return id, err
}

// BlockStory is what is known about one hit.
type BlockStory struct {
	ID      string `json:"id"`       // of the hit
	BlockID string `json:"block_id"` // what clients are told of it
	Rule    string `json:"rule"`
	// Mode is the rule's mode now; empty for a rule that history does not know.
	Mode rules.Mode `json:"mode,omitempty"`
	// Share is the part of the rule's block keys that may be held, while it is in canary: 10%.
	Share   string          `json:"canary_share,omitempty"`
	Owner   string          `json:"owner,omitempty"`
	Subject traffic.Subject `json:"subject"` // who is blocked; empty: nobody can be
	// Hit is the evidence; null: RECORD has not stored it yet.
	Hit       *ShownHit                  `json:"hit"`
	Decisions []history.RecordedDecision `json:"decisions"` // oldest first
	Acts      []audit.Numbered           `json:"acts"`      // on blocks of this source and rule since then, newest first
	Also      []Other                    `json:"also,omitempty"`
	// Block is the one that stands for the source by the rule; Holds says whether gates refuse for it, null: not known.
	Block *blocklist.Block `json:"block"`
	Holds *bool            `json:"holds"`
	// Back is what the block holds back of its source's requests, while one stands and its rule's mode is known.
	Back    string `json:"holds_back,omitempty"`
	Unheld  string `json:"unheld,omitempty"`  // why gates refuse nobody for it
	Unknown string `json:"unknown,omitempty"` // why it is not known
	Release string `json:"release_command,omitempty"`
}

// Other is another block, or hit, of a source that was asked about: the newest of a rule.
type Other struct {
	Rule    string          `json:"rule"`
	Subject traffic.Subject `json:"subject"`
	ID      string          `json:"id"`
	At      traffic.Time    `json:"at"`
}

// asking is one call of weir why.
type asking struct {
	*Program
	in    *Installation
	x     *explore.Explorer
	redis *blocklist.Store
	away  error // why Redis cannot be asked
	id    string
	also  []Other
}

// choose finds the hit that the newest block of a source is about, or its newest hit.
func (q *asking) choose(ctx context.Context, text string, source *history.Source) error {
	const most = 500
	decided, err := q.in.Decisions(ctx, history.DecisionQuery{Stream: history.Live, Source: source, Limit: most})
	if err != nil {
		return err
	}
	for i := range decided {
		d := &decided[i]
		if d.Action == blocklist.ActionWithheld || d.Hit == "" {
			continue
		}
		q.name(d.Hit, d.Rule, d.Subject, d.At)
	}
	if q.id != "" {
		return nil
	}
	hits, err := q.in.Hits(ctx, history.HitQuery{Stream: history.Live, Source: source, Limit: most})
	if err != nil {
		return err
	}
	for i := range hits {
		q.name(hits[i].ID, hits[i].Rule, hits[i].Subject, hits[i].Last)
	}
	if q.id == "" {
		return fmt.Errorf("history has no block and no hit of %s; weir history timeline %s --since … looks at a time, weir blocks list at Redis", terminal.Safe(text), subject.Quoted(text))
	}
	return nil
}

// name takes the first of a rule and source, and notes those that come after it.
func (q *asking) name(id, rule string, of traffic.Subject, at traffic.Time) {
	if q.id == "" {
		q.id = id
		q.also = append(q.also, Other{Rule: rule, Subject: of, ID: id, At: at})
		return
	}
	if !slices.ContainsFunc(q.also, func(o Other) bool { return o.Rule == rule && o.Subject == of }) {
		q.also = append(q.also, Other{Rule: rule, Subject: of, ID: id, At: at})
	}
}

func (q *asking) story(ctx context.Context) (*BlockStory, error) {
	found, err := q.x.Story(ctx, q.id)
	if err != nil {
		return nil, err
	}
	if found == nil {
		if found, err = q.standing(ctx); err != nil {
			return nil, err
		}
	}
	st := newStory(found)
	if len(q.also) > 1 {
		st.Also = q.also[1:]
	}
	if st.Hit == nil || st.Hit.Stream == history.Live {
		q.holds(ctx, st)
	}
	return st, nil
}

// newStory is what history knows, without what Redis does.
func newStory(found *explore.Story) *BlockStory {
	st := &BlockStory{
		ID: found.ID, BlockID: gate.BlockID(found.ID), Rule: found.Rule, Owner: found.Owner, Mode: found.Mode, Subject: found.Subject,
		Decisions: found.Decisions, Acts: found.Acts,
	}
	if found.Hit != nil {
		shown := shownHit(*found.Hit)
		st.Hit = &shown
	}
	return st
}

// standing finds a block or a release in Redis whose hit is not in history: RECORD may be behind. If there is none, the error
// says what was looked at.
func (q *asking) standing(ctx context.Context) (*explore.Story, error) {
	streams, err := q.in.Streams.List(ctx)
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
			return q.unrecorded(ctx, hit, item.Rule, item.Subject)
		}
	}
	return nil, fmt.Errorf("%s, nor has one of the %d blocks and releases in Redis", looked, len(found.Items))
}

// unrecorded is the story of a hit that RECORD has not stored.
func (q *asking) unrecorded(ctx context.Context, id, rule string, of traffic.Subject) (*explore.Story, error) {
	st := &explore.Story{ID: id, Rule: rule, Subject: of, Decisions: []history.RecordedDecision{}, Acts: []audit.Numbered{}}
	return st, q.x.Complete(ctx, st)
}

// holds finds out whether the source is held now.
func (q *asking) holds(ctx context.Context, st *BlockStory) {
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
	if err == nil && (st.Block != nil || st.Mode == rules.ModeCanary) {
		modes, err = q.redis.Modes(ctx)
	}
	if err != nil {
		st.Unknown = err.Error()
		return
	}
	var mode *rules.ModeState
	if i := slices.IndexFunc(modes, func(m rules.ModeState) bool { return m.Rule == st.Rule }); i >= 0 {
		mode = &modes[i]
		if mode.Mode == rules.ModeCanary {
			st.Share = promotion.Share(mode.Share).String()
		}
	}
	if st.Block != nil {
		if mode != nil {
			st.Back = rules.Match(mode.Match).String()
		}
		st.Unheld = q.redis.Unheld(st.Subject, st.Block, mode, service.Now())
		holds = st.Unheld == ""
		st.Release = q.Release(st.Rule, st.Subject)
	}
	st.Holds = &holds
}
