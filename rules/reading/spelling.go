package reading

import "strings"

// Spellings is an iterator over the ways in which servers read one path; SpellingsOf makes it. The first is the path as it
// stands. A path that is not ordinary has one for each of readings, and once more for each as a second server reads what the
// first one passes on.
type Spellings struct {
	Segments        // as read in the current way, after next
	target   string // without query
	trimmed  string // and without blanks
	connect  bool
	step     int
	odd      *oddPath
	reading  int // the next one to try on odd
}

// SpellingsOf takes a path without its query, and whether it is that of a CONNECT request.
func SpellingsOf(path string, connect bool) Spellings {
	return Spellings{Segments: Segments{text: path, Loose: true}, target: path, connect: connect}
}

// IsConnect reports whether a method gives its target the form host:port.
func IsConnect(method string) bool { return strings.EqualFold(method, "CONNECT") }

// Next moves on to the first or next way, and reports whether there is one. An ordinary path costs one look at each byte
// and no memory.
func (s *Spellings) Next() bool {
	for {
		for ; s.odd != nil; s.odd, s.reading = s.odd.passedOn(), 0 {
			if s.nextReading() {
				return true
			}
		}
		target := s.target
		switch s.step++; s.step {
		case 1:
			return true
		case 2:
			s.trimmed = withoutBlanks(s.target)
			target = s.trimmed
		case 3:
			if s.trimmed == s.target {
				return false
			}
		default:
			return false
		}
		path, hosted := pathOf(target, s.connect)
		switch {
		case path == "":
		case hosted || !Ordinary(path):
			s.odd = newOddPath(path, hosted)
		case path != s.text || s.cuts != nil:
			s.text, s.cuts = path, nil
			return true
		}
	}
}

// nextReading moves on to the next reading of the path at hand that differs from those before it.
func (s *Spellings) nextReading() bool {
	for ; s.reading < len(readings); s.reading++ {
		if s.odd.seen(s.reading) {
			continue
		}
		s.text, s.cuts = s.odd.text, s.odd.read(readings[s.reading])
		s.reading++
		return true
	}
	return false
}

// Ordinary reports whether all servers read a path alike, as the segments between its slashes. It runs for every event, so
// its loop has no branch.
func Ordinary(path string) bool {
	if path == "" || path[0] != '/' || blank(path[len(path)-1]) {
		return false
	}
	var found, next uint8
	for i := 0; i < len(path); i++ {
		o := oddities[path[i]]
		found |= o & (oddAnywhere | next)
		next = o >> oddNext
	}
	return found == 0 || found == oddDot && !hasDots(path)
}

// What servers read differently: a byte wherever it stands, or a slash or a dot next to a slash, if the dot begins a segment
// that is . or .. as a whole.
const (
	oddAnywhere = 1 << iota
	oddSlash
	oddDot
	oddNext = iota // the bits from here on are those that are odd in the next byte
)

var oddities = [256]uint8{
	'%': oddAnywhere, '#': oddAnywhere, ';': oddAnywhere, '\\': oddAnywhere, '\t': oddAnywhere, '\n': oddAnywhere, '\r': oddAnywhere,
	'/': oddSlash | (oddSlash|oddDot)<<oddNext, '.': oddDot,
}

// hasDots reports whether a segment of a path is . or ..
func hasDots(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// Normal is a pattern in the form that paths have after they were read: decoded, without empty segments and dots. It
// reports whether there is one: what an escape stands for may be nothing that a pattern can say.
func Normal(pattern string) (string, bool) {
	if Ordinary(pattern) || !rooted(pattern) {
		return pattern, true
	}
	o := newOddPath(pattern, false)
	var b strings.Builder
	for i, c := range o.read(readEscapedSlash | readDots) {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(o.text[c.from:c.to])
	}
	normal := b.String()
	if normal == pattern {
		return pattern, true
	}
	same := func(char string) bool { return strings.Count(pattern, char) == strings.Count(normal, char) }
	again := newOddPath(normal, false)
	return normal, same("{") && same("}") && same("*") && CheckPattern(normal) == "" && again.text == normal
}
