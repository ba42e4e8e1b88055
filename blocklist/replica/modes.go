package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/signing"
	"github.com/weirhq/weir/rules"
)

// Why a mode in Redis is not acted on.
const (
	refusedUnsigned = "unsigned"
	refusedForged   = "forged"
	refusedOlder    = "older"
)

// tellMost is of how many rules the log says that their mode is not acted on, until all are again.
const tellMost = 20

// vouched is which modes the rule store has signed, where the Replica asks for that. A rule whose mode nobody has
// signed is held as in shadow until a signed one comes that is not older than the last: to stop blocking needs no
// signature, whoever may write to Redis can release everybody anyway. What was signed before, and is older, changes
// nothing.
type vouched struct {
	trust *signing.Trust // nil: modes need no signature

	mu       sync.Mutex
	last     map[string]rules.ModeState // by rule, the latest that was signed
	refused  map[string]string          // by rule that is held as in shadow, why
	mentions int                        // in the log, since all rules were vouched for
}

func newVouched(trust *signing.Trust) *vouched {
	return &vouched{trust: trust, last: map[string]rules.ModeState{}, refused: map[string]string{}}
}

// judgement is what becomes of a mode.
type judgement struct {
	state   rules.ModeState
	known   bool   // state is to be acted on; else nothing changes
	refused string // why what was told is not acted on; empty: it is
	news    bool   // it is worth a line in the log
	over    bool   // all rules are vouched for again
}

// judge says what becomes of a mode of text m.
func (v *vouched) judge(m *rules.ModeState, text string) judgement {
	if v.trust == nil {
		return judgement{state: *m, known: true}
	}
	err := v.trust.Check(m.Rule, text)
	v.mu.Lock()
	defer v.mu.Unlock()
	last, signed := v.last[m.Rule]
	switch {
	case err == nil && signed && last.After(m):
		return judgement{refused: refusedOlder}
	case err == nil:
		v.last[m.Rule] = *m
		before := len(v.refused)
		delete(v.refused, m.Rule)
		j := judgement{state: *m, known: true, over: before > 0 && len(v.refused) == 0}
		if j.over {
			v.mentions = 0
		}
		return j
	}
	j := judgement{refused: refusedForged}
	if errors.Is(err, signing.ErrUnsigned) {
		j.refused = refusedUnsigned
	}
	if v.refused[m.Rule] == "" && v.mentions < tellMost {
		j.news = true
		v.mentions++
	}
	v.refused[m.Rule] = j.refused
	if j.known = signed; signed {
		j.state = last
		j.state.Mode = rules.ModeShadow
	}
	return j
}

func (v *vouched) heldBack() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.refused)
}

// HeldBack is how many rules are held as in shadow since nobody has signed the mode that Redis has of them.
func (r *Replica) HeldBack() int { return r.vouched.heldBack() }

// readModes takes all modes as they stand in Redis. What cannot be read is left out: its rule blocks nobody.
func (f *follower) readModes(ctx context.Context) error {
	texts, err := f.r.from.ModeTexts(ctx)
	if err != nil {
		return err
	}
	states := make([]rules.ModeState, 0, len(texts))
	for rule, text := range texts {
		m, err := blocklist.DecodeMode(rule, text)
		if err != nil {
			continue
		}
		if state, known := f.judge(ctx, &m, text); known {
			states = append(states, state)
		}
	}
	f.setModes(states...)
	return nil
}

// takeMode takes a mode of which a delta tells.
func (f *follower) takeMode(ctx context.Context, m *rules.ModeState, text string) {
	if state, known := f.judge(ctx, m, text); known {
		f.setModes(state)
	}
}

func (f *follower) judge(ctx context.Context, m *rules.ModeState, text string) (rules.ModeState, bool) {
	j := f.r.vouched.judge(m, text)
	log := f.r.o.Logger
	if j.refused != "" {
		f.r.metrics.refused.WithLabelValues(j.refused).Inc()
	}
	switch {
	case j.news:
		log.ErrorContext(ctx,
			"a mode in Redis is not acted on: the rule is held as in shadow until the rule store's is there",
			"rule", m.Rule, "error", fmt.Errorf("%s of generation %d: %s", m.Mode, m.Generation, j.refused))
	case j.over:
		log.InfoContext(ctx, "all modes in Redis are signed by the rule store again")
	}
	return j.state, j.known
}
