package asking

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/why"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/rules"
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
			q, err := readWhat(args[0])
			if err != nil {
				return err
			}
			return p.Ask(cmd, func(ctx context.Context, from Answers) error {
				found, err := from.Why(ctx, q)
				if nothing := (*why.NothingError)(nil); q.Source != "" && errors.As(err, &nothing) {
					return fmt.Errorf("history has no block and no hit of %s; weir history timeline %s --since … looks at a time, weir blocks list at Redis",
						terminal.Safe(args[0]), subject.Quoted(args[0]))
				}
				if err != nil {
					return err
				}
				story := p.blockStory(found)
				if p.Format == "json" {
					return p.WriteJSON(story)
				}
				return showStory(p.Output, story)
			})
		}),
	}
}

// readWhat reads what weir why is asked about: the id of a hit, or, with a = or a / or a dot in it, a source; a pseudonym is one, too.
func readWhat(text string) (why.Question, error) {
	if strings.ContainsAny(text, "=/.:~") {
		if _, err := history.ParseSource(text); err != nil {
			return why.Question{}, usage.Errorf("SOURCE: %w", err)
		}
		return why.Question{Source: text}, nil
	}
	id, err := readID(text)
	return why.Question{ID: id}, err
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
	Share string `json:"canary_share,omitempty"`
	// FellBack says why the rule's canary ended in shadow by itself; empty: it did not.
	FellBack string          `json:"fell_back,omitempty"`
	Owner    string          `json:"owner,omitempty"`
	Subject  traffic.Subject `json:"subject"` // who is blocked; empty: nobody can be
	// Hit is the evidence; null: RECORD has not stored it yet.
	Hit       *ShownHit                  `json:"hit"`
	Decisions []history.RecordedDecision `json:"decisions"` // oldest first
	Acts      []audit.Numbered           `json:"acts"`      // on blocks of this source and rule since then, newest first
	Refused   history.RefusedTotal       `json:"refused"`   // by gates, for this episode
	// Order is who ordered the block by hand, and why; absent: a rule's hit led to it.
	Order *orders.Order `json:"order,omitempty"`
	Also  []why.Other   `json:"also,omitempty"`
	// Block is the one that stands for the source by the rule; Holds says whether gates refuse for it, null: not known.
	Block *blocklist.Block `json:"block"`
	Holds *bool            `json:"holds"`
	// Back is what the block holds back of its source's requests, while one stands and its rule's mode is known.
	Back    string `json:"holds_back,omitempty"`
	Unheld  string `json:"unheld,omitempty"`  // why gates refuse nobody for it
	Unknown string `json:"unknown,omitempty"` // why it is not known
	Release string `json:"release_command,omitempty"`
}

// newStory is what history knows, without what Redis does.
func newStory(found *explore.Story) *BlockStory {
	st := &BlockStory{
		ID: found.ID, BlockID: gate.BlockID(found.ID), Rule: found.Rule, Owner: found.Owner, Mode: found.Mode,
		FellBack: found.FellBack, Subject: found.Subject,
		Decisions: found.Decisions, Acts: found.Acts, Refused: found.Refused, Order: found.Order,
	}
	if found.Hit != nil {
		shown := shownHit(*found.Hit)
		st.Hit = &shown
	}
	return st
}

// blockStory is what is known of a block, with the command that releases it.
func (p *Program) blockStory(a *why.Answer) *BlockStory {
	st := newStory(&a.Story)
	st.Also, st.Block, st.Holds, st.Back, st.Share, st.Unheld, st.Unknown = a.Also, a.Block, a.Holds, a.Back, a.Share, a.Unheld, a.Unknown
	if st.Block != nil {
		st.Release = p.Release(st.Rule, st.Subject)
	}
	return st
}
