package blocklist

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/weirhq/weir/blocklist/signing"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Modes reads the modes as they were last published. An entry that cannot be read is left out: its rule blocks nobody.
func (s *Store) Modes(ctx context.Context) ([]rules.ModeState, error) {
	if err := s.refreshNever(ctx); err != nil {
		return nil, err
	}
	hash, err := NewFeed(s).ModeTexts(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]rules.ModeState, 0, len(hash))
	for rule, text := range hash {
		if m, err := DecodeMode(rule, text); err == nil {
			out = append(out, m)
		}
	}
	return out, nil
}

// ModeTexts reads the modes as they stand in Redis, by rule. DecodeMode reads one; who has signed it, the text alone
// tells.
func (f *Feed) ModeTexts(ctx context.Context) (map[string]string, error) {
	s := f.store
	hash, err := s.redis.client.HGetAll(ctx, s.keys.Rules()).Result()
	if err != nil {
		return nil, fmt.Errorf("%s: read modes: %w", s.redis.address, err)
	}
	return hash, nil
}

// signatures are what modes are signed with, nothing where seed is nil.
type signatures struct {
	seed func(ctx context.Context) ([]byte, error)

	mu     sync.Mutex
	used   []byte
	signer *signing.Signer
}

// SignModes has s sign the modes that it publishes with the key of a seed, which is asked for each time. It is called
// before s is used.
func SignModes(s *Store, seed func(ctx context.Context) ([]byte, error)) { s.signatures.seed = seed }

// UnsignedError says that modes were published, unsigned: gates that ask for signatures hold their rules as in shadow.
type UnsignedError struct{ Err error }

func (e *UnsignedError) Error() string {
	return fmt.Sprintf("modes are published unsigned, so gates with gate.modes_key do not act on them: %v", e.Err)
}

func (e *UnsignedError) Unwrap() error { return e.Err }

// current is nil where modes are not signed. That they should be, and cannot, is an *UnsignedError.
func (g *signatures) current(ctx context.Context, namespace string) (*signing.Signer, error) {
	if g.seed == nil {
		return nil, nil //nolint:nilnil // there is none, and that is no mistake
	}
	seed, err := g.seed(ctx)
	if err != nil {
		return nil, &UnsignedError{err}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.signer == nil || !bytes.Equal(g.used, seed) {
		signer, err := signing.NewSigner(seed, namespace)
		if err != nil {
			return nil, &UnsignedError{err}
		}
		g.used, g.signer = bytes.Clone(seed), signer
	}
	return g.signer, nil
}

func modesByRule(ctx context.Context, s *Store) (map[string]rules.ModeState, error) {
	list, err := s.Modes(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]rules.ModeState, len(list))
	for _, m := range list {
		out[m.Rule] = m
	}
	return out, nil
}

// PublishModes makes the modes known to every gate: each is raised by its generation in the rules hash, and changed ones go out
// on the modes stream. Any process that has just changed a mode may call it; gates act at once. That they could not be
// signed is told by *UnsignedError, once they are published.
func (s *Store) PublishModes(ctx context.Context, now traffic.Time, modes []rules.ModeState) error {
	signer, unsigned := s.signatures.current(ctx, s.keys.Namespace())
	return errors.Join(s.publishModes(ctx, now, modes, signer), unsigned)
}

func (s *Store) publishModes(
	ctx context.Context, now traffic.Time, modes []rules.ModeState, signer *signing.Signer,
) error {
	mine, err := whose(ctx, s, len(modes) > 0)
	if err != nil {
		return fmt.Errorf("publish modes: %w", err)
	}
	for start := 0; start < len(modes); start += deltasPerCall {
		args, err := numbering(now, StreamModes, modesLength)
		if err != nil {
			return err
		}
		args = append(args, mine)
		for _, m := range modes[start:min(start+deltasPerCall, len(modes))] {
			if !ruleID(m.Rule) {
				return fmt.Errorf("publish modes: %q is no rule id", m.Rule)
			}
			text, err := json.Marshal(m)
			if err != nil {
				return fmt.Errorf("publish mode of rule %s: %w", m.Rule, err)
			}
			published := string(text)
			if signer != nil {
				published = signer.Sign(published)
			}
			args = append(args, m.Rule, m.Generation, published)
		}
		err = tell(ctx, s, s.redis.scripts.modes, s.keys.Rules(), args, mine)
		if err != nil {
			return fmt.Errorf("publish modes: %w", err)
		}
	}
	return nil
}

// ModesAheadError says that Redis has later modes than those that were to be published: gates go on by what Redis has.
type ModesAheadError struct {
	Modes []rules.ModeState // as Redis has them
	store []rules.ModeState // the same as they were to be published
}

func (e *ModesAheadError) Error() string {
	var b strings.Builder
	for i := range e.Modes {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "rule %s: Redis has generation %d (%s), the rule store %d (%s)",
			e.Modes[i].Rule, e.Modes[i].Generation, e.Modes[i].Mode, e.store[i].Generation, e.store[i].Mode)
	}
	b.WriteString(": gates act by Redis, which must not be ahead; weir migrate numbers the modes of the rule " +
		"store above")
	return b.String()
}

// SyncModes publishes those of modes that Redis lacks or has in an older form, and returns their number. Redis is read each
// time, and nothing remembered: a flush, or an older form that was published late, is repaired by the next call. Only the
// server with the modes is asked, whether or not the others answer. Where Redis has a later one, that is
// *ModesAheadError, after all others have been published: the rule store has come back older, somebody else writes to
// Redis, or modes are not the newest any more. A mode that is not signed, where it should be, is an older form.
func (s *Store) SyncModes(ctx context.Context, now traffic.Time, modes []rules.ModeState) (int, error) {
	signer, unsigned := s.signatures.current(ctx, s.keys.Namespace())
	hash, err := NewFeed(s).ModeTexts(ctx)
	if err != nil {
		return 0, err
	}
	var behind []rules.ModeState
	ahead := &ModesAheadError{}
	for i := range modes {
		mode := &modes[i]
		known, err := DecodeMode(mode.Rule, hash[mode.Rule])
		if err == nil && known.Outruns(mode) {
			ahead.Modes, ahead.store = append(ahead.Modes, known), append(ahead.store, *mode)
			continue
		}
		isBehind, err := modeIsBehind(hash[mode.Rule], mode, signer)
		if err != nil {
			return 0, err
		}
		if isBehind {
			behind = append(behind, *mode)
		}
	}
	if err := s.publishModes(ctx, now, behind, signer); err != nil {
		return 0, err
	}
	if len(ahead.Modes) > 0 {
		return len(behind), errors.Join(ahead, unsigned)
	}
	return len(behind), unsigned
}

// Strangers are the modes of rules that block by Redis, and that known has not: the rule store has come back older than
// their promotion, or somebody else has written to Redis. Those that cannot be read block nobody, and rules by hand
// that were used once stay.
func Strangers(ctx context.Context, s *Store, known []rules.ModeState) ([]rules.ModeState, error) {
	hash, err := NewFeed(s).ModeTexts(ctx)
	if err != nil {
		return nil, err
	}
	for i := range known {
		delete(hash, known[i].Rule)
	}
	var strangers []rules.ModeState
	for _, rule := range slices.Sorted(maps.Keys(hash)) {
		if m, err := DecodeMode(rule, hash[rule]); err == nil && m.Mode.Blocks() && !rules.IsByHand(rule) {
			strangers = append(strangers, m)
		}
	}
	return strangers, nil
}

// modeIsBehind reports whether published, a mode as Redis holds it, is to be replaced by mode. What else differs
// within a generation is compared in this build's own words: a member that only another build writes makes no
// difference here, or two builds side by side would replace each other's text for ever. So is one that signer, unless
// it is nil, has not signed.
func modeIsBehind(published string, mode *rules.ModeState, signer *signing.Signer) (bool, error) {
	known, err := DecodeMode(mode.Rule, published)
	switch {
	case err != nil:
		return true, nil // absent, or not to be read: every gate takes it for a rule that blocks nobody
	case known.Outruns(mode):
		return false, nil
	case mode.After(&known), signer != nil && signer.Check(mode.Rule, published) != nil:
		return true, nil
	}
	theirs, err := json.Marshal(known)
	if err != nil {
		return false, fmt.Errorf("mode of rule %s: %w", mode.Rule, err)
	}
	ours, err := json.Marshal(mode)
	if err != nil {
		return false, fmt.Errorf("mode of rule %s: %w", mode.Rule, err)
	}
	return string(theirs) != string(ours), nil
}

// DecodeMode reads what Redis has as the mode of a rule.
func DecodeMode(rule, text string) (rules.ModeState, error) {
	var m rules.ModeState
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return m, fmt.Errorf("mode of rule %q: %w", rule, err)
	}
	if m.Rule != rule || !ruleID(rule) {
		return m, fmt.Errorf("mode of rule %q names rule %q", rule, m.Rule)
	}
	return m, nil
}
