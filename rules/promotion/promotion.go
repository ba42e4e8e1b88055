// Package promotion holds what a rule asks before it may block, and how a canary goes about it: values, without a store or a clock.
package promotion

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
)

// Share is a part of a whole in hundredths of a percent, from 0 to All. Its text, in JSON too, is a percentage: 10%, 0.25%.
type Share int

// All is the whole.
const All Share = 10_000

// ParseShare reads a percentage with at most two decimals: 10%, 0.25%.
func ParseShare(text string) (Share, error) {
	number, ok := strings.CutSuffix(text, "%")
	whole, decimals, pointed := strings.Cut(number, ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	if !ok || !digits(whole) || len(whole) > 3 || len(whole) > 1 && whole[0] == '0' || pointed && (!digits(decimals) || len(decimals) > 2) {
		return 0, fmt.Errorf("got %q, allowed: a percentage with at most two decimals, such as 10%% or 0.25%%", text)
	}
	n, err := strconv.Atoi(whole + (decimals + "00")[:2])
	if err != nil || Share(n) > All {
		return 0, fmt.Errorf("got %q, allowed: at most 100%%", text)
	}
	return Share(n), nil
}

func (s Share) String() string {
	if s%100 == 0 {
		return strconv.Itoa(int(s/100)) + "%"
	}
	return strings.TrimRight(fmt.Sprintf("%d.%02d", s/100, s%100), "0") + "%"
}

// MarshalText implements encoding.TextMarshaler.
func (s Share) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Share) UnmarshalText(text []byte) (err error) {
	*s, err = ParseShare(string(text))
	return err
}

// Span is a duration of whole seconds whose text, in JSON too, is that of documents: 1d, 30m.
type Span time.Duration

func (s Span) String() string { return duration.Format(time.Duration(s)) }

// MarshalText implements encoding.TextMarshaler.
func (s Span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := duration.ParseWhole(string(text))
	*s = Span(d)
	return err
}

// Gates are what the evidence of a rule must show before a promotion to canary or block. They ask, and block nobody: looser gates let a
// person promote, who is asked for a reason.
type Gates struct {
	MinShadow Span `json:"min_shadow"` // how long it was watched, gaps taken off
	// MaxKnownGood is the greatest part of the sources that it would have held, of those of which it is known, that may be good.
	MaxKnownGood Share `json:"max_known_good"`
	// MinCoverage is the least part of the sources that it would have held of which must be known whether they are good.
	MinCoverage Share `json:"min_coverage"`
	// MaxTrafficShare is the greatest part of all requests that it may have refused.
	MaxTrafficShare Share `json:"max_traffic_share"`
}

// DefaultGates are those of a rule that names none: a day of shadow, no known-good source among those that it would hold, half of
// them judged, and at most one request in a hundred refused.
func DefaultGates() Gates {
	return Gates{MinShadow: Span(24 * time.Hour), MaxKnownGood: 0, MinCoverage: All / 2, MaxTrafficShare: All / 100}
}

// Canary is how a rule that is promoted to canary goes on.
type Canary struct {
	Steps []Share `json:"steps"` // of block keys, ascending, all below All; after the last one the rule blocks
	Hold  Span    `json:"hold"`  // how long each step lasts at least
}

// Bounds of a Canary and of Gates.
const (
	MaxSteps     = 10
	MinHold      = time.Second
	MaxHold      = 7 * 24 * time.Hour
	MaxMinShadow = 90 * 24 * time.Hour
)

// DefaultCanary is that of a rule that names none.
func DefaultCanary() Canary {
	return Canary{Steps: []Share{All / 100, All / 10, All / 2}, Hold: Span(30 * time.Minute)}
}

// Equal reports whether both go on alike.
func (c *Canary) Equal(other *Canary) bool {
	return c.Hold == other.Hold && slices.Equal(c.Steps, other.Steps)
}

// CheckSteps says what is wrong with steps.
func CheckSteps(steps []Share) error {
	if len(steps) == 0 || len(steps) > MaxSteps {
		return fmt.Errorf("got %d steps, allowed: 1 to %d", len(steps), MaxSteps)
	}
	before := Share(0)
	for _, s := range steps {
		if s <= before || s >= All {
			return errors.New("allowed: ascending shares above 0% and below 100%, after which the rule blocks")
		}
		before = s
	}
	return nil
}

// Side is where a block key of a rule lies between 0 and All: a canary of a greater share holds it. It stays the same for as long as the
// secret does, and nobody without the secret can choose it. The subject is the stored form of the block key.
func Side(secret []byte, rule, subject string) Share {
	mac := hmac.New(sha256.New, secret)
	for _, part := range []string{"canary", rule, subject} {
		_, _ = mac.Write([]byte(part)) // a hash never fails
		_, _ = mac.Write([]byte{0})    // no part contains NUL
	}
	high, _ := bits.Mul64(binary.BigEndian.Uint64(mac.Sum(nil)), uint64(All))
	return Share(high) //nolint:gosec // below All
}
