package rules

import "strings"

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
// and a trailing * whatever follows, nothing and further segments included. With fold, ASCII letters are compared without
// case.
func (s *segments) match(pattern string, fold bool) bool {
	for place := 0; ; {
		want, patternRest, patternMore := strings.Cut(pattern, "/")
		got, next, more := s.at(place)
		if prefix, ok := restPrefix(want, patternMore); ok {
			return len(got) >= len(prefix) && sameText(got[:len(prefix)], prefix, fold)
		}
		if isParam(want) {
			if got == "" {
				return false
			}
		} else if !sameText(got, want, fold) {
			return false
		}
		switch {
		case patternMore && more:
			pattern, place = patternRest, next
		case more:
			return s.loose && s.endsIn(next)
		default:
			return !patternMore
		}
	}
}

// endsIn reports whether the segment at a place is empty and the last: all that follows is a slash at the end.
func (s *segments) endsIn(place int) bool {
	last, _, more := s.at(place)
	return last == "" && !more
}

func sameText(a, b string, fold bool) bool {
	if !fold || len(a) != len(b) {
		return a == b
	}
	for i := 0; i < len(a); i++ {
		if lowerByte(a[i]) != lowerByte(b[i]) {
			return false
		}
	}
	return true
}

// lowerByte folds ASCII letters only. A letter beyond them is several bytes in a path, and programs that compare paths
// without case differ on which of those are one letter.
func lowerByte(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// appendLower appends s with its ASCII letters in lower case.
func appendLower(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		dst = append(dst, lowerByte(s[i]))
	}
	return dst
}

// hasUpper reports whether appendLower would change s.
func hasUpper(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 'A' && s[i] <= 'Z' {
			return true
		}
	}
	return false
}
