package traffic

import (
	"bytes"
	"encoding/json"
	"slices"
)

// What Sample.Earlier says, of an episode of which no event from before the limit is known. Empty: whoever counted kept none of any.
const (
	EarlierNone    = "none"    // none was kept: there was none between half the limit and the limit
	EarlierDropped = "dropped" // those that were kept had to go for want of room, or may have had to
)

// SampleMark says in the text of a sample how its event stands to the limit.
type SampleMark string

// The marks. A sample without one is of an event over the limit.
const (
	SampleBefore         SampleMark = `"before":true`
	SampleEarlierNone    SampleMark = `"earlier":"` + EarlierNone + `"`
	SampleEarlierDropped SampleMark = `"earlier":"` + EarlierDropped + `"`
)

// MarkSample puts a mark behind the time of a sample's text, where no client has a say, which makes it up to 20 bytes longer than
// SampleBytes. It reports whether it did: a text that AppendSample has not written stays as it is.
func MarkSample(text []byte, mark SampleMark) (marked []byte, ok bool) {
	const head = `{"time":"`
	if !bytes.HasPrefix(text, []byte(head)) {
		return text, false
	}
	end := bytes.IndexByte(text[len(head):], '"')
	if end < 0 {
		return text, false
	}
	return slices.Insert(text, len(head)+end+1, []byte(","+mark)...), true
}

// WithoutBefore says, in a sentence, why an episode's samples have none from before the limit; empty where they have some, or where there
// are no samples at all.
func WithoutBefore(samples []string) string {
	earlier := ""
	for _, text := range samples {
		var s struct {
			Before  bool   `json:"before"`
			Earlier string `json:"earlier"`
		}
		if json.Unmarshal([]byte(text), &s) != nil {
			continue
		}
		if s.Before {
			return ""
		}
		earlier = max(earlier, s.Earlier)
	}
	switch {
	case len(samples) == 0:
		return ""
	case earlier == EarlierNone:
		return "No request from before the limit: none was counted between half of it and the limit, or the episode goes on where another was cut."
	case earlier == EarlierDropped:
		return "What came before the limit is not known: too many sources were on their way to a limit, and the oldest of their requests were dropped."
	}
	return "What came before the limit is not known: the stages did not keep it (record format below 6, or an older build)."
}
