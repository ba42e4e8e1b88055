package rules

import (
	"strings"
)

// segments is a path as matching goes through it: segment by segment. A place is where a segment begins, an offset into
// the text or the number of a stretch; the first one is 0.
type segments struct {
	text string
	// cuts says where the segments lie in text. Without it they lie between the slashes of text.
	cuts []stretch
	// loose is set where a slash at the end of the path makes no difference to a pattern without one.
	loose bool
}

// stretch is a part of a text.
type stretch struct{ from, to int32 }

func (s stretch) empty() bool { return s.from == s.to }

// at gives the segment at a place, the place of the next one, and whether there is one.
func (s *segments) at(place int) (segment string, next int, more bool) {
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

// match reports whether a pattern matches: a literal segment matches itself, {param} any one segment that is not empty,
// and a trailing * whatever follows, nothing and further segments included. With fold, letters are compared without case.
func (s *segments) match(pattern string, fold bool) bool {
	for place := 0; ; {
		want, patternRest, patternMore := strings.Cut(pattern, "/")
		got, next, more := s.at(place)
		if prefix, ok := restPrefix(want, patternMore); ok {
			_, ok = cutPrefix(got, prefix, fold)
			return ok
		}
		if isParam(want) {
			if got == "" {
				return false
			}
		} else if !sameText(got, want, fold) && (more || !sameText(s.tail(got, fold), want, fold)) {
			return false
		}
		switch {
		case patternMore && more:
			pattern, place = patternRest, next
		case more:
			return s.loose && s.endsIn(next, fold)
		default:
			return !patternMore
		}
	}
}

// endsIn reports whether the segment at a place is empty and the last: all that follows is a slash at the end.
func (s *segments) endsIn(place int, fold bool) bool {
	last, _, more := s.at(place)
	return !more && s.tail(last, fold) == ""
}

// tail is what some programs see of the last segment: a "$" in a regular expression matches before a line break at the end,
// and Caddy's matcher and Windows, which both ignore case, drop dots and spaces there.
func (s *segments) tail(last string, fold bool) string {
	switch {
	case !s.loose:
		return last
	case fold:
		return strings.TrimRight(last, ". \n")
	}
	return strings.TrimSuffix(last, "\n")
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

// appendLower appends s in lower case.
func appendLower(dst []byte, s string) []byte {
	for s != "" {
		c, size := firstLower(s)
		dst, s = append(dst, c), s[size:]
	}
	return dst
}

// lowerSize is the length of the beginning of s that is n bytes long in lower case; len(s)+1 where s is too short.
func lowerSize(s string, n int) int {
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

// hasUpper reports whether appendLower may change s.
func hasUpper(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= 'A' && c <= 'Z' || c == kelvinSign[0] || c == longS[0] {
			return true
		}
	}
	return false
}
