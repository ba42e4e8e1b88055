package enforce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/holding"
	"github.com/weirhq/weir/traffic"
)

// How long the rule store is waited for. Releases wait behind it.
const (
	versionsTimeout = 400 * time.Millisecond // with all versions that the hits of a batch need
	prefetchTimeout = 200 * time.Millisecond // with those that hits may need later
	learnTimeout    = 10 * time.Second       // with the same, where no hits wait
	versionsBackoff = 2 * time.Second        // after it has not answered, it is not asked for so long
)

// versions caches the block specs of rule versions. Versions do not change, so each is read once, ahead of the hits that need
// it where possible. A hit whose version cannot be read blocks nobody and holds nothing up: the next update of its episode
// tries again.
type versions struct {
	source RuleVersions
	now    func() traffic.Time
	log    *slog.Logger

	mu         sync.Mutex
	specs      map[versionKey]*holding.Terms // nil: the version has no block
	superseded map[supersededVersion]bool
	failed     traffic.Time // when the source last did not answer; 0: it did
	ahead      traffic.Time // when the modes were read whose versions are learned ahead
}

func newVersions(source RuleVersions, now func() traffic.Time, log *slog.Logger) *versions {
	return &versions{source: source, now: now, log: log, specs: map[versionKey]*holding.Terms{}, superseded: map[supersededVersion]bool{}}
}

// versionKey names a rule's version.
type versionKey struct {
	rule   string
	number int
}

// supersededVersion is a version of a rule that was not the newest any more when the rule was promoted.
type supersededVersion struct {
	versionKey
	promoted int
}

// maxSpecs bounds what is kept; versions do not change, so dropping them all only costs learning them again.
const maxSpecs = 1 << 14

// allows gives what the version that h was judged by says about blocks, or the reason why it may not block.
func (v *versions) allows(ctx context.Context, h *detectors.Hit, mode *rules.ModeState) (holding.Terms, string) {
	spec, found, err := v.spec(ctx, versionKey{h.Rule, h.RuleVersion})
	if err == nil && !found {
		return spec, blocklist.ReasonNoSpec
	}
	within := h.RuleVersion >= mode.Promoted
	if err == nil && !within {
		within, err = v.within(ctx, supersededVersion{versionKey{h.Rule, h.RuleVersion}, mode.Promoted})
	}
	switch {
	case errors.Is(err, errBackingOff):
		return spec, blocklist.ReasonUnlearned
	case err != nil:
		v.unanswered()
		v.log.WarnContext(ctx, "a rule's version cannot be learned, its hits are withheld; it is asked for again", "error", err)
		return spec, blocklist.ReasonUnlearned
	case !within:
		return spec, blocklist.ReasonOldVersion
	}
	return spec, ""
}

// spec returns the block spec of a version; false when the version does not exist or has none. A version that does not exist
// yet may exist a moment later, so only existing ones are cached.
func (v *versions) spec(ctx context.Context, key versionKey) (holding.Terms, bool, error) {
	v.mu.Lock()
	spec, ok := v.specs[key]
	v.mu.Unlock()
	if !ok {
		doc, found, err := v.learn(ctx, key)
		if err != nil || !found {
			return holding.Terms{}, false, err
		}
		spec = termsOf(doc)
		v.keep(key, spec)
	}
	if spec == nil {
		return holding.Terms{}, false, nil
	}
	return *spec, true, nil
}

// learned is spec without asking the rule store: false when the version has not been learned, nil when it has no block.
func (v *versions) learned(key versionKey) (*holding.Terms, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	spec, ok := v.specs[key]
	return spec, ok
}

func termsOf(doc *rules.Version) *holding.Terms {
	if doc.Block == nil {
		return nil
	}
	terms := holding.TermsOf(&doc.Document)
	return &terms
}

func (v *versions) keep(key versionKey, spec *holding.Terms) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.specs) >= maxSpecs {
		clear(v.specs)
	}
	v.specs[key] = spec
}

// within reports whether the block spec of a version stays within the one that was promoted. An episode keeps the version that
// it opened under, its block's key included, for up to a day: where a version would have blocked the wrong clients and was
// edited, its running episodes must not undo the edit.
func (v *versions) within(ctx context.Context, key supersededVersion) (bool, error) {
	v.mu.Lock()
	within, ok := v.superseded[key]
	v.mu.Unlock()
	if ok {
		return within, nil
	}
	var docs [2]*rules.Document
	for i, number := range []int{key.promoted, key.number} {
		doc, found, err := v.learn(ctx, versionKey{key.rule, number})
		if err != nil || !found {
			return false, err
		}
		docs[i] = &doc.Document
	}
	within = len(rules.MayBlockMore(docs[0], docs[1])) == 0
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.superseded) >= maxSpecs {
		clear(v.superseded)
	}
	v.superseded[key] = within
	return within, nil
}

// errBackingOff stands where the rule store was not asked, since it has not answered a moment ago.
var errBackingOff = errors.New("the rule store has not answered a moment ago")

func (v *versions) learn(ctx context.Context, key versionKey) (*rules.Version, bool, error) {
	v.mu.Lock()
	backingOff := v.failed != 0 && v.now().Sub(v.failed) < versionsBackoff
	v.mu.Unlock()
	if backingOff {
		return nil, false, errBackingOff
	}
	doc, found, err := v.source.RuleVersion(ctx, key.rule, key.number)
	if err != nil {
		return nil, false, fmt.Errorf("version %d of rule %s: %w", key.number, key.rule, err)
	}
	if found && doc.Pending {
		return nil, false, nil // it is on trial, or never acted: whatever names it blocks nobody
	}
	return doc, found, nil
}

// unanswered notes that the rule store is away: one batch waits for it every versionsBackoff, not every hit.
func (v *versions) unanswered() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failed = v.now()
}

// prefetched is how many versions of a rule are learned ahead. A running episode may be of any version of its last day.
const prefetched = 16

// prefetch reads the versions of blocking rules before a hit asks for them, while the rule store answers, so that blocking goes
// on when it does not, and then those of rules in shadow, whose hits never ask. Versions for which there is no time are read after
// the next reading of modes, by RefreshModes, or with the hit that needs them. read is when the modes were read, 0 when the store did
// not answer; one reading of modes is followed by one prefetch.
func (v *versions) prefetch(ctx context.Context, modes map[string]rules.ModeState, read traffic.Time) {
	v.mu.Lock()
	again := v.ahead == read || read == 0
	if !again {
		v.ahead, v.failed = read, 0 // the modes come from the same store, so it answers
	}
	v.mu.Unlock()
	if again {
		return
	}
	if err := v.learnAhead(ctx, modes, prefetchTimeout); err != nil {
		v.log.DebugContext(ctx, "a rule's version is not learned ahead", "error", err)
	}
}

// learnAhead reads what is missing of the newest versions, those of blocking rules first, and of them the newest.
func (v *versions) learnAhead(ctx context.Context, modes map[string]rules.ModeState, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, mode := range []rules.Mode{rules.ModeBlock, rules.ModeCanary, rules.ModeShadow} {
		if err := v.foreseeAll(ctx, modes, mode); err != nil {
			return err
		}
	}
	return nil
}

// foreseeAll learns the newest versions of the rules with a mode.
func (v *versions) foreseeAll(ctx context.Context, modes map[string]rules.ModeState, mode rules.Mode) error {
	for back := range prefetched {
		for _, m := range modes {
			number := m.Newest - back
			if m.Mode != mode || number < 1 {
				continue
			}
			if err := v.foresee(ctx, versionKey{m.Rule, number}, &m); err != nil {
				return err
			}
		}
	}
	return nil
}

// foresee learns all that a hit of a version may need.
func (v *versions) foresee(ctx context.Context, key versionKey, mode *rules.ModeState) error {
	_, found, err := v.spec(ctx, key)
	if err == nil && !found && key.number < mode.Newest {
		v.keep(key, nil) // a number that was pending, and never comes to act: only newer versions than the newest do
	}
	if err == nil && found && key.number < mode.Promoted {
		_, err = v.within(ctx, supersededVersion{key, mode.Promoted})
	}
	return err
}
