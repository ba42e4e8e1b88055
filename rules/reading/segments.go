package reading

import (
	"bytes"
	"slices"
	"strings"
)

// Segments is a path as matching goes through it: segment by segment. A place is where a segment begins, an offset into
// the text or the number of a stretch; the first one is 0.
type Segments struct {
	text string
	// cuts says where the segments lie in text. Without it they lie between the slashes of text.
	cuts []stretch
	// Loose is set where a slash at the end of the path makes no difference to a pattern without one.
	Loose bool
	// Whole is set where the last segment is not also compared by its tail.
	Whole bool
}

// Raw is a path as it stands, without its query, to be compared byte by byte.
func Raw(path string) Segments { return Segments{text: path} }

// Plain is an ordinary path, which all servers read alike, without its query.
func Plain(path string) Segments { return Segments{text: path, Loose: true} }

// Decoded reports whether the segments are those of a path whose percent escapes were decoded.
func (s *Segments) Decoded() bool { return s.cuts != nil }

// stretch is a part of a text.
type stretch struct{ from, to int32 }

func (s stretch) empty() bool { return s.from == s.to }

// At gives the segment at a place, the place of the next one, and whether there is one.
func (s *Segments) At(place int) (segment string, next int, more bool) {
	if s.cuts != nil {
		cut := s.cuts[place]
		return s.text[cut.from:cut.to], place + 1, place+1 < len(s.cuts)
	}
	rest := s.text[place:]
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		return rest[:slash], place + slash + 1, true
	}
	return rest, 0, false
}

// Match reports whether a pattern matches: a literal segment matches itself, {param} and * any one segment that is not empty,
// a trailing * whatever follows, nothing and further segments included, and a last segment *.php one that ends so. With fold,
// letters are compared without case.
func (s *Segments) Match(pattern string, fold bool) bool {
	for place := 0; ; {
		want, patternRest, patternMore := strings.Cut(pattern, "/")
		got, next, more := s.At(place)
		if prefix, ok := RestPrefix(want, patternMore); ok {
			_, ok = cutPrefix(got, prefix, fold)
			return ok
		}
		if suffix, ok := SuffixOf(want, patternMore); ok {
			if !endsWith(got, suffix, fold) && (more || !endsWith(s.Tail(got, fold), suffix, fold)) {
				return false
			}
		} else if IsAny(want) {
			if got == "" {
				return false
			}
		} else if !sameText(got, want, fold) && (more || !sameText(s.Tail(got, fold), want, fold)) {
			return false
		}
		switch {
		case patternMore && more:
			pattern, place = patternRest, next
		case more:
			return s.Loose && s.endsIn(next, fold)
		default:
			return !patternMore
		}
	}
}

// endsIn reports whether the segment at a place is empty and the last: all that follows is a slash at the end.
func (s *Segments) endsIn(place int, fold bool) bool {
	last, _, more := s.At(place)
	return !more && s.Tail(last, fold) == ""
}

// Tail is what some programs see of the last segment: a "$" in a regular expression matches before a line break at the end,
// and Caddy's matcher and Windows, which both ignore case, drop dots and spaces there.
func (s *Segments) Tail(last string, fold bool) string {
	if !s.Loose || s.Whole {
		return last
	}
	return tailOf(last, fold)
}

func tailOf(last string, fold bool) string {
	if fold {
		return strings.TrimRight(last, ". \n")
	}
	return strings.TrimSuffix(last, "\n")
}

// Tailed reports whether the last segment has a tail that differs from it.
func (s *Segments) Tailed(fold bool) bool {
	last := s.text
	if n := len(s.cuts); n > 0 {
		last = s.text[s.cuts[n-1].from:s.cuts[n-1].to]
	}
	return s.Loose && tailOf(last, fold) != last // no slash is part of a tail
}

// CutTail is s with the tail of its last segment in place of that.
func (s *Segments) CutTail(fold bool) Segments {
	out := *s
	if n := len(s.cuts); n > 0 {
		out.cuts = slices.Clone(s.cuts)
		last := &out.cuts[n-1]
		last.to = last.from + int32(len(tailOf(s.text[last.from:last.to], fold)))
	} else {
		out.text = tailOf(s.text, fold)
	}
	return out
}

// The letters that have another case in ASCII: the Kelvin sign and the long s. Programs that ignore case fold one of them
// or both. Other letters beyond ASCII are compared exactly: they are several bytes in a path, and programs differ on which of
// them are one letter.
const (
	kelvinSign = "\u212a"
	longS      = "\u017f"
)

func sameText(a, b string, fold bool) bool {
	rest, ok := cutPrefix(a, b, fold)
	return ok && rest == ""
}

// cutPrefix is what follows prefix in s, if s begins with it.
func cutPrefix(s, prefix string, fold bool) (rest string, ok bool) {
	if !fold || strings.HasPrefix(s, prefix) {
		return strings.CutPrefix(s, prefix)
	}
	for prefix != "" {
		if s == "" {
			return "", false
		}
		want, wantSize := firstLower(prefix)
		got, gotSize := firstLower(s)
		if got != want {
			return "", false
		}
		s, prefix = s[gotSize:], prefix[wantSize:]
	}
	return s, true
}

// endsWith reports whether s ends in suffix.
func endsWith(s, suffix string, fold bool) bool {
	if !fold || strings.HasSuffix(s, suffix) {
		return strings.HasSuffix(s, suffix)
	}
	var room, suffixRoom [64]byte
	return bytes.HasSuffix(AppendLower(room[:0], s), AppendLower(suffixRoom[:0], suffix))
}

// firstLower is the first byte of a text, which is not empty, in lower case, and the size of what it stands for.
func firstLower(s string) (c byte, size int) {
	switch c = s[0]; {
	case c == kelvinSign[0] && strings.HasPrefix(s, kelvinSign):
		return 'k', len(kelvinSign)
	case c == longS[0] && strings.HasPrefix(s, longS):
		return 's', len(longS)
	}
	return lowerByte(c), 1
}

func lowerByte(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// AppendLower appends s in lower case.
func AppendLower(dst []byte, s string) []byte {
	for s != "" {
		c, size := firstLower(s)
		dst, s = append(dst, c), s[size:]
	}
	return dst
}

// LowerSize is the length of the beginning of s that is n bytes long in lower case; len(s)+1 where s is too short.
func LowerSize(s string, n int) int {
	at := 0
	for ; n > 0; n-- {
		if at >= len(s) {
			return len(s) + 1
		}
		_, size := firstLower(s[at:])
		at += size
	}
	return at
}

// HasUpper reports whether AppendLower may change s.
func HasUpper(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= 'A' && c <= 'Z' || c == kelvinSign[0] || c == longS[0] {
			return true
		}
	}
	return false
}

// Param is the segment at {name} of a pattern that matches s.
func (s *Segments) Param(pattern, name string) (string, bool) {
	for place := 0; ; {
		want, rest, patternMore := strings.Cut(pattern, "/")
		got, next, more := s.At(place)
		if IsParam(want) && want[1:len(want)-1] == name {
			return got, true
		}
		if !patternMore || !more {
			return "", false
		}
		pattern, place = rest, next
	}
}

// DecodeOnce decodes a segment's percent escapes. One that is none stands for itself.
func DecodeOnce(segment string) string {
	if strings.IndexByte(segment, '%') < 0 {
		return segment
	}
	return newOddPath(segment, false).text
}
