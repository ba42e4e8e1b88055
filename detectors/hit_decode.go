package detectors

import (
	"unicode/utf8"

	"github.com/weirhq/weir/traffic"
)

// readHit reads a hit as EncodeHit writes it, in one pass: several times as fast as encoding/json, on which RECORD would spend more than on all
// else. It is strict: whatever EncodeHit would not have written, if JSON or not, gives false, and DecodeHit has encoding/json judge it. So
// the two never differ.
func readHit(b []byte) (h Hit, ok bool) {
	r := hitReader{rest: b}
	if !r.byte('{') {
		return Hit{}, false
	}
	seen := uint64(0)
	for {
		name, ok := r.plain()
		if !ok || !r.byte(':') {
			return Hit{}, false
		}
		member := r.member(name, &h)
		if member < 0 || seen&(1<<member) != 0 {
			return Hit{}, false
		}
		seen |= 1 << member
		if r.byte(',') {
			continue
		}
		return h, r.byte('}') && len(r.rest) == 0
	}
}

// hitReader reads values off the front of rest.
type hitReader struct{ rest []byte }

func (r *hitReader) byte(c byte) bool {
	if len(r.rest) == 0 || r.rest[0] != c {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

// member reads the value of a member into h. It returns the member's number, -1 where there is no such member, or the value is not as
// EncodeHit writes it.
func (r *hitReader) member(name []byte, h *Hit) int {
	n, ok := r.numbers(name, h)
	if n < 0 {
		n, ok = r.texts(name, h)
	}
	if n < 0 {
		n, ok = r.times(name, h)
	}
	if !ok {
		return -1
	}
	return n
}

func (r *hitReader) numbers(name []byte, h *Hit) (n int, ok bool) {
	switch string(name) {
	case "v":
		return 0, r.int(&h.Format)
	case "rule_version":
		return 1, r.int(&h.RuleVersion)
	case "lineage":
		return 2, r.int(&h.Lineage)
	case "limit":
		return 3, r.int(&h.Limit)
	case "window_ms":
		return 4, r.number(&h.WindowMS)
	case "count":
		return 5, r.number(&h.Count)
	case "peak":
		return 6, r.int(&h.Peak)
	case "g":
		return 7, r.number(&h.Generation)
	case "p":
		return 8, r.int(&h.Source)
	case "o":
		return 9, r.number(&h.Offset)
	case "keyed":
		return 10, r.int(&h.Keyed)
	case "at":
		return 11, r.number(&h.Place)
	case "nth":
		return 12, r.int(&h.Nth)
	case "users":
		return 13, r.int(&h.Users)
	case "devices":
		return 14, r.int(&h.Devices)
	case "refused":
		return 15, r.number(&h.Refused)
	case "known_good":
		good := 0
		ok := r.int(&good) && good >= 0 && good <= int(KnownGood)
		h.Good = Good(good) //nolint:gosec // it is one of three
		return 16, ok
	case "grouped":
		return 17, r.yes(&h.Grouped)
	case "at_least":
		return 18, r.yes(&h.AtLeast)
	case "cut":
		return 19, r.yes(&h.Cut)
	}
	return -1, false
}

func (r *hitReader) texts(name []byte, h *Hit) (n int, ok bool) {
	switch string(name) {
	case "id":
		return 20, r.text(&h.ID)
	case "rule":
		return 21, r.text(&h.Rule)
	case "into":
		return 22, r.text(&h.IntoID)
	case "by":
		return 23, r.text(&h.By)
	case "reason":
		return 24, r.text(&h.Reason)
	case "subject":
		return 25, r.text((*string)(&h.Subject))
	case "block_subject":
		return 26, r.text((*string)(&h.BlockSubject))
	case "samples":
		return 27, r.list(&h.Samples)
	case "kind":
		return 28, r.kind(&h.Kind)
	case "phase":
		return 29, r.phase(&h.Phase)
	}
	return -1, false
}

// kind reads the kinds of records that come by the thousand; encoding/json reads the others.
func (r *hitReader) kind(to *Kind) bool {
	text, ok := r.plain()
	switch string(text) {
	case string(KindHit):
		*to = KindHit
	case string(KindNear):
		*to = KindNear
	case string(KindCandidate):
		*to = KindCandidate
	case string(KindRunning):
		*to = KindRunning
	default:
		return false
	}
	return ok
}

func (r *hitReader) phase(to *Phase) bool {
	text, ok := r.plain()
	switch string(text) {
	case string(PhaseOpen):
		*to = PhaseOpen
	case string(PhaseUpdate):
		*to = PhaseUpdate
	case string(PhaseClosed):
		*to = PhaseClosed
	case string(PhaseMerged):
		*to = PhaseMerged
	default:
		return false
	}
	return ok
}

func (r *hitReader) times(name []byte, h *Hit) (n int, ok bool) {
	switch string(name) {
	case "opened":
		return 30, r.time(&h.Opened)
	case "first":
		return 31, r.time(&h.First)
	case "last":
		return 32, r.time(&h.Last)
	case "seen":
		return 33, r.time(&h.Seen)
	}
	return -1, false
}

// plain reads a string of ASCII without escapes. It lies in the record.
func (r *hitReader) plain() ([]byte, bool) {
	if !r.byte('"') {
		return nil, false
	}
	for i, c := range r.rest {
		switch {
		case c == '"':
			text := r.rest[:i]
			r.rest = r.rest[i+1:]
			return text, true
		case c == '\\' || c < ' ' || c >= utf8.RuneSelf:
			return nil, false
		}
	}
	return nil, false
}

// text reads a string.
func (r *hitReader) text(to *string) bool {
	if !r.byte('"') {
		return false
	}
	ascii := true
	for i, c := range r.rest {
		switch {
		case c == '"':
			text := r.rest[:i]
			r.rest = r.rest[i+1:]
			*to = string(text)
			return ascii || utf8.Valid(text)
		case c == '\\':
			return r.escaped(i, to)
		case c < ' ':
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return false
}

// escaped reads a string of which the first escape is at i.
func (r *hitReader) escaped(i int, to *string) bool {
	text := append(make([]byte, 0, len(r.rest)), r.rest[:i]...)
	for i < len(r.rest) {
		c := r.rest[i]
		switch {
		case c == '"':
			r.rest = r.rest[i+1:]
			*to = string(text)
			return utf8.Valid(text)
		case c < ' ':
			return false
		case c != '\\':
			text, i = append(text, c), i+1
			continue
		}
		plain, size := unescape(r.rest[i+1:])
		if size == 0 {
			return false
		}
		text, i = append(text, plain), i+1+size
	}
	return false
}

// unescape reads what follows a backslash: a single byte. size 0: it is something else, of which encoding/json knows.
func unescape(b []byte) (plain byte, size int) {
	if len(b) == 0 {
		return 0, 0
	}
	switch b[0] {
	case '"', '\\', '/':
		return b[0], 1
	case 'n':
		return '\n', 1
	case 't':
		return '\t', 1
	case 'r':
		return '\r', 1
	case 'b':
		return '\b', 1
	case 'f':
		return '\f', 1
	case 'u': // <, > and & are written so, and control characters
		if len(b) < 5 || b[1] != '0' || b[2] != '0' {
			return 0, 0
		}
		high, low := hexDigit(b[3]), hexDigit(b[4])
		if high < 0 || high > 7 || low < 0 {
			return 0, 0
		}
		return byte(high<<4 | low), 5
	}
	return 0, 0
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// list reads strings, at least one.
func (r *hitReader) list(to *[]string) bool {
	if !r.byte('[') {
		return false
	}
	for {
		var text string
		if !r.text(&text) {
			return false
		}
		*to = append(*to, text)
		if !r.byte(',') {
			return r.byte(']')
		}
	}
}

// number reads a whole number of up to 18 digits.
func (r *hitReader) number(to *int64) bool {
	negative := r.byte('-')
	i, n := 0, int64(0)
	for ; i < len(r.rest) && r.rest[i] >= '0' && r.rest[i] <= '9'; i++ {
		if i == 18 {
			return false
		}
		n = n*10 + int64(r.rest[i]-'0')
	}
	if i == 0 || i > 1 && r.rest[0] == '0' {
		return false
	}
	if negative {
		n = -n
	}
	*to, r.rest = n, r.rest[i:]
	return true
}

func (r *hitReader) int(to *int) bool {
	var n int64
	ok := r.number(&n)
	*to = int(n)
	return ok && int64(*to) == n
}

// yes reads true: EncodeHit leaves out what is false.
func (r *hitReader) yes(to *bool) bool {
	const text = "true"
	if len(r.rest) < len(text) || string(r.rest[:len(text)]) != text {
		return false
	}
	*to, r.rest = true, r.rest[len(text):]
	return true
}

func (r *hitReader) time(to *traffic.Time) bool {
	text, ok := r.plain()
	return ok && to.UnmarshalText(text) == nil
}
