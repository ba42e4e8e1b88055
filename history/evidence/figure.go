package evidence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// State says how much a figure can be relied upon.
type State string

const (
	// Measured figures are exact for what was observed.
	Measured State = "measured"
	// Bounded figures are known from one side, or from both, see Side.
	Bounded State = "bound"
	// NotMeasurable figures are not known. That is a state of its own and never the number 0.
	NotMeasurable State = "not measurable"
)

// Side is where the true number of a bounded figure lies.
type Side string

const (
	AtLeast Side = "at least" // the value, or above it
	AtMost  Side = "at most"  // the value, or below it
	Between Side = "between"  // Count.Least and the value, both included
)

// Count is a number of something.
type Count struct {
	State  State  `json:"state"`
	Value  int64  `json:"value"`           // null in JSON where it is not measurable
	Side   Side   `json:"side,omitempty"`  // bounded only
	Least  int64  `json:"least,omitempty"` // Between only
	Reason string `json:"reason,omitempty" mask:"line"`
}

// Known returns the value, false where it is not measurable.
func (c Count) Known() (int64, bool) { return c.Value, c.State == Measured || c.State == Bounded }

// MarshalJSON writes c, and no number for one that is not known.
func (c Count) MarshalJSON() ([]byte, error) {
	type plain Count
	if _, known := c.Known(); known {
		return marshal(plain(c))
	}
	return marshal(struct {
		State  State  `json:"state"`
		Value  *int64 `json:"value"`
		Reason string `json:"reason,omitempty"`
	}{State: c.State, Reason: c.Reason})
}

// String is the figure in words: 12, at least 12, 3 to 12, about 3, not measurable: why.
func (c Count) String() string {
	switch {
	case c.State == NotMeasurable:
		return notMeasurable(c.Reason)
	case c.Side == Between && c.Least == c.Value: // and perhaps a little outside
		return fmt.Sprint("about ", c.Value)
	case c.Side == Between:
		return fmt.Sprintf("%d to %d", c.Least, c.Value)
	}
	return bounded(c.Side, fmt.Sprint(c.Value))
}

// Share is a part of a whole.
type Share struct {
	State  State   `json:"state"`
	Value  float64 `json:"value"` // Part / Whole, 0 to 1, to six decimals; null in JSON where it is not measurable
	Part   int64   `json:"part"`
	Whole  int64   `json:"whole"`
	Side   Side    `json:"side,omitempty"` // bounded only, of the value; never Between
	Reason string  `json:"reason,omitempty" mask:"line"`
}

// Known returns the value, false where it is not measurable.
func (s Share) Known() (float64, bool) { return s.Value, s.State == Measured || s.State == Bounded }

// MarshalJSON writes s, and no number for one that is not known.
func (s Share) MarshalJSON() ([]byte, error) {
	type plain Share
	if _, known := s.Known(); known {
		return marshal(plain(s))
	}
	return marshal(struct {
		State  State    `json:"state"`
		Value  *float64 `json:"value"`
		Part   int64    `json:"part"`
		Whole  int64    `json:"whole"`
		Reason string   `json:"reason,omitempty"`
	}{State: s.State, Part: s.Part, Whole: s.Whole, Reason: s.Reason})
}

// String is the figure in words: 1.25 %, at least 1.25 %, not measurable: why.
func (s Share) String() string {
	if s.State == NotMeasurable {
		return notMeasurable(s.Reason)
	}
	return bounded(s.Side, percent(s.Value))
}

// percent shows a share that is not nothing as more than 0 %.
func percent(share float64) string {
	switch {
	case share > 0 && share < 0.0001:
		return fmt.Sprintf("%.4f %%", 100*share)
	case share > 0 && share < 0.01:
		return fmt.Sprintf("%.2f %%", 100*share)
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

func notMeasurable(reason string) string {
	if reason == "" {
		return string(NotMeasurable)
	}
	return string(NotMeasurable) + ": " + reason
}

func bounded(side Side, text string) string {
	if side == "" {
		return text
	}
	return string(side) + " " + text
}

func measured(n int64) Count { return Count{State: Measured, Value: n} }

func unknown(reason string) Count { return Count{State: NotMeasurable, Reason: reason} }

// atLeast is a number that may be too low, measured where reason is empty.
func atLeast(n int64, reason string) Count {
	if reason == "" {
		return measured(n)
	}
	return Count{State: Bounded, Value: n, Side: AtLeast, Reason: reason}
}

func atMost(n int64, reason string) Count {
	return Count{State: Bounded, Value: n, Side: AtMost, Reason: reason}
}

func unknownShare(reason string) Share { return Share{State: NotMeasurable, Reason: reason} }

// shareOf is part of a whole that is exact. What is known of part is known of the share; of nothing there is no share.
func shareOf(part Count, whole int64, empty string) Share {
	n, known := part.Known()
	switch {
	case !known:
		return Share{State: NotMeasurable, Whole: whole, Reason: part.Reason}
	case whole <= 0:
		return Share{State: NotMeasurable, Part: n, Reason: empty}
	}
	return Share{State: part.State, Value: ratio(n, whole), Part: n, Whole: whole, Side: part.Side, Reason: part.Reason}
}

// ratio is rounded, so that a figure is the same text on every machine, and to at most 1: part and whole are told by different stages,
// of which one may have missed a minute.
func ratio(part, whole int64) float64 {
	return math.Round(1e6*min(1, float64(part)/float64(whole))) / 1e6
}

// marshal is json.Marshal that leaves <, > and & as they are: whoever embeds the JSON escapes what has to be.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
