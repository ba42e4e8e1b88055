package enforce

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Modes gives the modes of all rules, as promote, demote and disable left them.
type Modes interface {
	Modes(ctx context.Context) ([]rules.ModeState, error)
}

// The bounds of what the mode cache may hold back.
const (
	modesMaxAge       = 2 * time.Second        // a mode is never older than this when an effect is written
	modesTimeout      = time.Second            // for one reading; the store of rules may hang
	knownModesTimeout = 400 * time.Millisecond // the same where modes are known to go on with: releases wait behind it
)

// modeCache keeps the modes for modesMaxAge. While the rule store is away, the last known modes stay in use, raised by the
// modes published in Redis: there, demotions by other processes are seen. A process that has never read the rule store uses the
// published modes alone, as gates do.
type modeCache struct {
	source    Modes
	published Modes
	now       func() traffic.Time
	renewed   func(states map[string]rules.ModeState) // is told of each reading

	mu     sync.Mutex
	states map[string]rules.ModeState // nil until they have been asked for once
	heard  bool                       // the source has answered once
	read   traffic.Time               // when it was last asked
	away   error                      // why the source did not answer when it was; nil: it did
	dirty  bool
}

func newModeCache(source, published Modes, now func() traffic.Time) *modeCache {
	return &modeCache{source: source, published: published, now: now, renewed: func(map[string]rules.ModeState) {}}
}

// changed makes the next get read anew.
func (c *modeCache) changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirty = true
}

// get returns the modes by rule, as of since or later: a hit that came after a promotion finds the rule promoted. The map must
// not be changed. fallback is the reason why the modes are not the rule store's own; while there is one, the rule store is
// asked again every modesMaxAge only.
func (c *modeCache) get(ctx context.Context, since traffic.Time) (states map[string]rules.ModeState, fallback, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	age := now.Sub(c.read)
	recent := age >= 0 && age <= modesMaxAge && (c.read > since || c.away != nil)
	if c.states != nil && !c.dirty && recent {
		return c.states, c.away, nil
	}
	timeout := knownModesTimeout
	if c.states == nil {
		timeout = modesTimeout
	}
	list, err := readModes(ctx, c.source, timeout)
	if err != nil {
		return c.fallBack(ctx, now, err)
	}
	c.states = make(map[string]rules.ModeState, len(list))
	for _, m := range list {
		c.states[m.Rule] = m
	}
	c.read, c.away, c.dirty, c.heard = now, nil, false, true
	c.renewed(c.states)
	return c.states, nil, nil
}

// complete reports whether a rule that is not among the modes has none. What is published alone may lack some: Redis forgets.
func (c *modeCache) complete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}

// known are the modes as they were last read, by whoever asked; nil before that. The map must not be changed.
func (c *modeCache) known() map[string]rules.ModeState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.states
}

// readAt is when the modes were last read from the source; 0 when it did not answer.
func (c *modeCache) readAt() traffic.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away != nil {
		return 0
	}
	return c.read
}

func readModes(ctx context.Context, from Modes, timeout time.Duration) ([]rules.ModeState, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return from.Modes(ctx)
}

func (c *modeCache) fallBack(ctx context.Context, now traffic.Time, cause error) (map[string]rules.ModeState, error, error) {
	list, err := readModes(ctx, c.published, modesTimeout)
	if err != nil {
		return nil, cause, fmt.Errorf("modes of rules: %w; and in Redis: %w", cause, err)
	}
	merged := make(map[string]rules.ModeState, len(c.states))
	maps.Copy(merged, c.states)
	for _, m := range list {
		if known, ok := merged[m.Rule]; !ok || m.Generation > known.Generation {
			merged[m.Rule] = m
		}
	}
	c.states, c.read, c.away, c.dirty = merged, now, cause, false
	c.renewed(merged)
	return merged, cause, nil
}
