// Package loadgen makes a seeded load of requests, abusers among ordinary viewers, writes down what is true of it, and
// judges by an oracle what an installation has found in it.
package loadgen

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/traffic/format"
)

// Bounds of a load. Judging holds its events in memory, about 100 bytes for each rule that watches one.
const (
	MaxRate     = 1_000_000
	MaxEvents   = 10_000_000
	MaxDuration = 24 * time.Hour
	MaxViewers  = 1_000_000
	MaxAbusers  = 10_000
	MaxZipf     = 5
	MaxDisorder = time.Hour
	MaxProxies  = 32
	maxCalls    = 1000
	maxWeight   = 1_000_000
	maxCallPath = 1024
)

// Pattern is how an abuser spreads requests over time.
type Pattern string

// The patterns. Rate stands for Settings.AbuseRate.
const (
	Burst  Pattern = "burst"  // 4 x rate for the first 5 s of every 20 s
	Steady Pattern = "steady" // rate, all the time
	Rotate Pattern = "rotate" // rate, all the time, each request from another address of one IPv6 /64
	Slow   Pattern = "slow"   // a tenth of rate, all the time: what no limit at the edge sees
	Return Pattern = "return" // rate for the first 20 s of every 60 s: gone while a block lasts, and back
)

// Patterns are all patterns, in the order in which abusers take them by default.
func Patterns() []Pattern { return []Pattern{Burst, Steady, Rotate, Slow, Return} }

// Formats are those in which events can be made.
func Formats() []string { return []string{format.Weir, format.Protobuf} }

// Settings are what a load is made of. Equal settings make equal events, but for the time at which the load starts.
type Settings struct {
	Seed      uint64        `json:"seed"`
	Rate      float64       `json:"rate"`     // requests of all ordinary viewers a second; abusers come on top
	Duration  time.Duration `json:"duration"` // nanoseconds in JSON
	Events    int64         `json:"events"`   // the most, abusers' included; 0: what comes within Duration
	Viewers   int           `json:"viewers"`
	Zipf      float64       `json:"zipf"` // viewer k asks in proportion to 1/k^Zipf; 0: all alike
	Abusers   int           `json:"abusers"`
	AbuseRate float64       `json:"abuse_rate"`       // requests of one abuser a second, see Pattern
	Patterns  []Pattern     `json:"patterns"`         // abuser n has pattern n, and so on in turn
	IPv6      float64       `json:"ipv6"`             // share of clients with an IPv6 address
	SignedOut float64       `json:"signed_out"`       // share of clients without a user
	Disorder  time.Duration `json:"disorder"`         // each event is sent up to so much after its time
	Mix       []Call        `json:"mix"`              // what viewers ask for
	Abuse     Call          `json:"abuse"`            // what abusers ask for; its weight means nothing
	Proxies   int           `json:"proxies"`          // trusted proxies that the client's address is reported through
	Format    string        `json:"format,omitempty"` // of events: format.Weir, the default, or format.Protobuf
}

// Call is one kind of request.
type Call struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Weight int    `json:"weight"`
}

// ParseCall reads "POST /v1/guest-tokens" or, with a weight, "POST /v1/guest-tokens=3". The weight is 1 by default.
func ParseCall(text string) (Call, error) {
	c := Call{Weight: 1}
	wrong := fmt.Errorf("got %q; allowed: METHOD PATH or METHOD PATH=WEIGHT, like \"POST /v1/guest-tokens=3\"", text)
	method, rest, ok := strings.Cut(text, " ")
	if !ok {
		return c, wrong
	}
	c.Method, c.Path = method, rest
	if at := strings.LastIndexByte(rest, '='); at >= 0 {
		c.Path = rest[:at]
		if _, err := fmt.Sscanf(rest[at+1:], "%d", &c.Weight); err != nil || fmt.Sprint(c.Weight) != rest[at+1:] {
			return c, wrong
		}
	}
	if err := c.check(); err != nil {
		return c, fmt.Errorf("%q: %w", text, err)
	}
	return c, nil
}

// String writes c as ParseCall reads it.
func (c Call) String() string { return fmt.Sprintf("%s %s=%d", c.Method, c.Path, c.Weight) }

func (c Call) check() error {
	letter := func(r rune) bool { return r >= 'A' && r <= 'Z' || r == '-' }
	plain := func(r rune) bool { return r > ' ' && r < 0x7f && r != '?' && r != '"' && r != '\\' }
	switch {
	case c.Method == "" || len(c.Method) > 64 || strings.TrimFunc(c.Method, letter) != "":
		return fmt.Errorf("method: got %q; allowed: 1 to 64 capital letters", c.Method)
	case c.Path == "" || len(c.Path) > maxCallPath || strings.ContainsFunc(c.Path, func(r rune) bool { return !plain(r) }):
		return fmt.Errorf("path: got %q; allowed: 1 to %d visible ASCII characters without a query", c.Path, maxCallPath)
	case c.Weight < 1 || c.Weight > maxWeight:
		return fmt.Errorf("weight: got %d; allowed: 1 to %d", c.Weight, maxWeight)
	}
	return nil
}

// Validate reports everything that is wrong with s, by the names of the command's flags.
func (s *Settings) Validate() error {
	var wrong []error
	number := func(name string, got, least, most float64) {
		if math.IsNaN(got) || got < least || got > most {
			wrong = append(wrong, fmt.Errorf("%s: got %s; allowed: %s to %s", name, decimal(got), decimal(least), decimal(most)))
		}
	}
	span := func(name string, got, least, most time.Duration) {
		if got < least || got > most || got%time.Microsecond != 0 {
			wrong = append(wrong, fmt.Errorf("%s: got %s; allowed: %s to %s, in whole microseconds", name, duration.Format(got), duration.Format(least), duration.Format(most)))
		}
	}
	number("--rate", s.Rate, 0.001, MaxRate)
	span("--duration", s.Duration, time.Second, MaxDuration)
	number("--events", float64(s.Events), 0, MaxEvents)
	number("--viewers", float64(s.Viewers), 1, MaxViewers)
	number("--zipf", s.Zipf, 0, MaxZipf)
	number("--abusers", float64(s.Abusers), 0, MaxAbusers)
	number("--abuse-rate", s.AbuseRate, 0.001, 10_000)
	number("--ipv6", s.IPv6, 0, 1)
	number("--signed-out", s.SignedOut, 0, 1)
	span("--disorder", s.Disorder, 0, MaxDisorder)
	number("--proxies", float64(s.Proxies), 0, MaxProxies)
	return errors.Join(append(wrong, s.checkLists()...)...)
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func (s *Settings) checkLists() (wrong []error) {
	if len(s.Patterns) == 0 && s.Abusers > 0 {
		wrong = append(wrong, fmt.Errorf("--patterns: got none; allowed: some of %v", Patterns()))
	}
	for _, p := range s.Patterns {
		if !slices.Contains(Patterns(), p) {
			wrong = append(wrong, fmt.Errorf("--patterns: got %q; allowed: some of %v", p, Patterns()))
		}
	}
	if len(s.Mix) == 0 || len(s.Mix) > maxCalls {
		wrong = append(wrong, fmt.Errorf("--mix: got %d kinds of request; allowed: 1 to %d", len(s.Mix), maxCalls))
	}
	for _, c := range s.Mix {
		if err := c.check(); err != nil {
			wrong = append(wrong, fmt.Errorf("--mix: %w", err))
		}
	}
	if formats := Formats(); s.Format != "" && !slices.Contains(formats, s.Format) {
		wrong = append(wrong, fmt.Errorf("format of events: got %q; allowed: one of %v", s.Format, formats))
	}
	if err := s.Abuse.check(); err != nil {
		wrong = append(wrong, fmt.Errorf("--abuse: %w", err))
	}
	return wrong
}
