package blocklist

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// ask is one record of the hits topic.
type ask struct {
	hit     detectors.Hit
	message traffic.Message
}

// Reasons of records without effect.
const (
	ignoredKind      = "kind"       // neither hit nor release
	ignoredPhase     = "phase"      // merged: no offence
	ignoredGrouped   = "grouped"    // a field of the key is missing
	ignoredNoSubject = "no_subject" // nobody to block
	ignoredMode      = "mode"       // the rule does not block
	ignoredClosed    = "closed"     // a closing hit that has nothing to raise
	ignoredExpired   = "expired"    // the block or tombstone is over already
	ignoredUnchanged = "unchanged"  // what stands lasts as long or longer
	ignoredRepeated  = "repeated"   // decided before, and told
)

const stageEnforce = "enforce"

// read decodes the batch; what is no hit becomes a dead letter. A hit that a newer build wrote ends it: newer says so, and
// what lies before it is to have its effect.
func (e *Enforcer) read(w *work, batch []traffic.Message) (asks []*ask, newer error) {
	asks = make([]*ask, 0, len(batch))
	for _, m := range batch {
		hit, err := detectors.DecodeHit(m.Value)
		if unknown := (*detectors.UnknownFormatError)(nil); errors.As(err, &unknown) {
			return asks, fmt.Errorf("%s partition %d offset %d: %w", e.o.Topic, m.Partition, m.Offset, err)
		}
		if err != nil {
			e.refuse(w, m, err)
			continue
		}
		asks = append(asks, &ask{hit: hit, message: m})
	}
	return asks, nil
}

func (e *Enforcer) refuse(w *work, m traffic.Message, err error) {
	detail := strings.ToValidUTF8(err.Error(), "\uFFFD")
	w.letters = append(w.letters, traffic.NewDeadLetter(stageEnforce, "malformed", detail, e.o.Topic, m))
}

// plan decides what a record should do, without looking at Redis.
func (e *Enforcer) plan(ctx context.Context, w *work, a *ask, modes map[string]rules.ModeState) error {
	w.kind(a.hit.Kind)
	switch a.hit.Kind {
	case detectors.KindHit:
		return e.planHit(ctx, w, a, modes)
	case detectors.KindRelease:
		e.planRelease(w, a)
	default:
		w.ignore(ignoredKind)
	}
	return nil
}

func (e *Enforcer) planHit(ctx context.Context, w *work, a *ask, modes map[string]rules.ModeState) error {
	h := &a.hit
	mode := modes[h.Rule]
	switch {
	case h.Phase != detectors.PhaseOpen && h.Phase != detectors.PhaseUpdate && h.Phase != detectors.PhaseClosed:
		w.ignore(ignoredPhase)
		return nil
	case h.Grouped:
		w.ignore(ignoredGrouped)
		return nil
	case h.BlockSubject == "":
		w.ignore(ignoredNoSubject)
		return nil
	case mode.Mode != rules.ModeBlock:
		// The rule's document names a block, but only a promotion gives it effect.
		w.ignore(ignoredMode)
		return nil
	}
	key := held{subject: h.BlockSubject, rule: h.Rule}
	if err := checkHit(key, h); err != nil {
		e.refuse(w, a.message, err)
		return nil
	}
	spec, found, err := e.spec(ctx, h.Rule, h.RuleVersion)
	if err != nil {
		return err
	}
	f := &effect{held: key, ask: a, block: Block{
		Format: ValueFormat, Action: actionBlock, Scope: scopeMatch, Rule: h.Rule, Generation: mode.Generation,
		Hit: h.ID, Since: h.First, Until: spec.until(h),
	}}
	if !found {
		w.withhold(f, ReasonNoSpec)
		return nil
	}
	if h.RuleVersion < mode.Promoted {
		within, err := e.within(ctx, h.Rule, h.RuleVersion, mode.Promoted)
		if err != nil {
			return err
		}
		if !within {
			w.withhold(f, ReasonOldVersion)
			return nil
		}
	}
	if !storable(f.block.Until) {
		e.refuse(w, a.message, fmt.Errorf("hit %s: its block would last until %s", h.ID, f.block.Until))
		return nil
	}
	e.planRaise(w, f, spec)
	return nil
}

// planRaise asks for the block of f unless lag, the never-block list or time itself stand against it.
func (e *Enforcer) planRaise(w *work, f *effect, spec blockSpec) {
	h := &f.ask.hit
	age := w.now.Sub(h.Last)
	over := f.block.Until <= w.now
	if h.Phase == detectors.PhaseClosed {
		// The last over events of an episode may have come within the cooldown after its last update: the closing hit
		// brings their expiry, to a block that stands. It comes a window and the lateness after them by nature.
		f.extendOnly = true
		if spec.extend != rules.ExtendOnHit || over || age > spec.maxLag+spec.closing || e.never.Holds(f.subject) {
			w.ignore(ignoredClosed)
			return
		}
		w.add(f)
		return
	}
	switch {
	case e.never.Holds(f.subject):
		w.withhold(f, ReasonNeverBlock)
	case over && h.Phase == detectors.PhaseUpdate && spec.extend != rules.ExtendOnHit:
		w.ignore(ignoredExpired) // the block of the opening hit has run its time
	case age > spec.maxLag:
		w.withhold(f, ReasonMaxLag)
	case over:
		w.withhold(f, ReasonExpired)
	default:
		w.add(f)
	}
}

// planRelease asks for a tombstone. Its time is the log's, so that a replay finds the tombstone that it made.
func (e *Enforcer) planRelease(w *work, a *ask) {
	h := &a.hit
	at := a.message.Appended
	if at <= 0 {
		at = h.Seen
	}
	key := held{subject: h.BlockSubject, rule: h.Rule}
	err := errors.Join(key.check(), checkID(h.ID))
	if until := at.Add(e.o.TombstoneTTL); err == nil && (!storable(at) || !storable(until)) {
		err = fmt.Errorf("release %s: time %s", h.ID, at)
	}
	if err != nil {
		e.refuse(w, a.message, err)
		return
	}
	f := &effect{held: key, ask: a, release: true, tombstone: Tombstone{
		Format: ValueFormat, Action: actionRelease, Rule: h.Rule, Released: at, Until: at.Add(e.o.TombstoneTTL),
		Request: h.ID, By: cutText(h.By, maxByBytes),
	}}
	if f.tombstone.Until <= w.now {
		w.ignore(ignoredExpired)
		return
	}
	w.add(f)
}

// maxByBytes bounds the name of the releaser in a tombstone; the decision carries it whole.
const maxByBytes = 200

func cutText(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// checkHit says what makes a hit unfit to block anybody.
func checkHit(key held, h *detectors.Hit) error {
	if err := errors.Join(key.check(), checkID(h.ID)); err != nil {
		return fmt.Errorf("hit %q: %w", h.ID, err)
	}
	if !storable(h.First) || !storable(h.Last) || h.First > h.Last {
		return fmt.Errorf("hit %s: first over event at %s, last at %s", h.ID, h.First, h.Last)
	}
	return nil
}

// maxIDBytes bounds ids; those of detectors have 32.
const maxIDBytes = 64

// checkID says what makes an id unfit for a block value, a header and a log line.
func checkID(id string) error {
	if id == "" || len(id) > maxIDBytes {
		return fmt.Errorf("id: got %d bytes, allowed: 1 to %d", len(id), maxIDBytes)
	}
	for i := 0; i < len(id); i++ {
		if c := id[i]; !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-') {
			return fmt.Errorf("id: got byte %q, allowed: letters, digits and '-'", c)
		}
	}
	return nil
}

// versionKey names a rule's version.
type versionKey struct {
	rule   string
	number int
}

// blockSpec is what a rule's version says about its blocks.
type blockSpec struct {
	ttl     time.Duration
	extend  rules.Extend
	maxLag  time.Duration
	closing time.Duration // how long after its last over event an episode's closing hit is due
}

// until is deterministic: it follows from the hit and the rule's version alone.
func (s *blockSpec) until(h *detectors.Hit) traffic.Time {
	if s.extend == rules.ExtendOnHit {
		return h.Last.Add(s.ttl)
	}
	return h.First.Add(s.ttl)
}

// maxSpecs bounds the specs that are kept; versions do not change, so dropping them all only costs reading them again.
const maxSpecs = 4096

// spec finds what the version that the hit was judged by says about blocks; false when it is unknown or has none.
func (e *Enforcer) spec(ctx context.Context, rule string, number int) (blockSpec, bool, error) {
	key := versionKey{rule: rule, number: number}
	e.mu.Lock()
	spec, ok := e.specs[key]
	e.mu.Unlock()
	if ok {
		return spec, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, specTimeout)
	defer cancel()
	v, found, err := e.o.Rules.RuleVersion(ctx, rule, number)
	if err != nil {
		return blockSpec{}, false, fmt.Errorf("version %d of rule %s: %w", number, rule, err)
	}
	if !found || v.Block == nil {
		return blockSpec{}, false, nil
	}
	spec = blockSpec{ttl: v.Block.TTL, extend: v.Block.Extend, maxLag: v.MaxLag, closing: v.Window + v.Lateness}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.specs) >= maxSpecs {
		clear(e.specs)
	}
	e.specs[key] = spec
	return spec, true, nil
}

const specTimeout = 2 * time.Second

// prefetch learns what the versions of rules that block say about blocks before a hit asks: while the rule store answers,
// so that blocking goes on when it does not. A running episode may be of any version since the promotion. What cannot be
// learned now is asked for again with the hit that needs it. Modes that were read at the same instant are looked at once.
func (e *Enforcer) prefetch(ctx context.Context, modes map[string]rules.ModeState, read traffic.Time) {
	e.mu.Lock()
	seen := e.ahead == read
	e.ahead = read
	e.mu.Unlock()
	if seen {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, specTimeout)
	defer cancel()
	for _, m := range modes {
		if m.Mode != rules.ModeBlock || m.Newest == 0 {
			continue
		}
		for number := m.Newest; number >= max(1, m.Promoted, m.Newest-prefetched+1); number-- {
			if _, _, err := e.spec(ctx, m.Rule, number); err != nil {
				e.o.Logger.DebugContext(ctx, "a rule's version is not learned ahead", "rule", m.Rule, "version", number, "error", err)
				return
			}
		}
	}
}

// prefetched is how many versions of a rule are learned ahead: an episode lasts a day at most.
const prefetched = 8

// elder is a version of a rule that was not the newest any more when the rule was promoted.
type elder struct {
	versionKey
	promoted int
}

// within reports whether what the version number says about blocks stays within what the promotion was about. An episode
// keeps the version that it opened under, its block's key included, for up to a day: an edit that was made because that
// version would have blocked the wrong clients must not be undone by its running episodes.
func (e *Enforcer) within(ctx context.Context, rule string, number, promoted int) (bool, error) {
	key := elder{versionKey{rule, number}, promoted}
	e.mu.Lock()
	within, ok := e.elders[key]
	e.mu.Unlock()
	if ok {
		return within, nil
	}
	ctx, cancel := context.WithTimeout(ctx, specTimeout)
	defer cancel()
	var docs [2]*rules.Document
	for i, n := range []int{promoted, number} {
		v, found, err := e.o.Rules.RuleVersion(ctx, rule, n)
		if err != nil {
			return false, fmt.Errorf("version %d of rule %s: %w", n, rule, err)
		}
		if !found {
			return false, nil
		}
		docs[i] = &v.Document
	}
	within = len(rules.MayBlockMore(docs[0], docs[1])) == 0
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.elders) >= maxSpecs {
		clear(e.elders)
	}
	e.elders[key] = within
	return within, nil
}
