package rules

import (
	"strings"
	"unicode/utf8"

	"github.com/weirhq/weir/traffic"
)

// spellings goes through the ways in which servers read one path: the first is the path as it stands, the others, if it is
// not an ordinary one, are those of readings. It begins with spellingsOf.
type spellings struct {
	segments        // the way at hand, after next
	path     string // without query, and without scheme and host
	step     int
	odd      *oddPath
}

// spellingsOf takes a path without its query.
func spellingsOf(path string) spellings {
	return spellings{segments: segments{text: path, loose: true}, path: path}
}

// next moves on to the first or next way, and reports whether there is one. An ordinary path costs one look at each byte
// and no memory.
func (s *spellings) next() bool {
	s.step++
	switch s.step {
	case 1:
		return true
	case 2:
		s.path = trimEnds(cutOrigin(s.path))
		if ordinary(s.path) {
			differs := s.path != s.text
			s.text, s.step = s.path, 1+len(readings)
			return differs
		}
		if !rooted(s.path) {
			return false // the target of a CONNECT, the * of an OPTIONS, or what no server takes
		}
		s.odd = newOddPath(s.path)
		s.text = s.odd.text
	}
	for at := s.step - 2; at < len(readings); at++ {
		if s.odd == nil || s.odd.seen(at) {
			continue
		}
		s.step = at + 2
		s.cuts = s.odd.read(readings[at])
		return true
	}
	s.step = 1 + len(readings)
	return false
}

func rooted(path string) bool { return path != "" && (path[0] == '/' || path[0] == '\\') }

// ordinary reports whether all servers read a path alike: its segments are what stands between its slashes.
func ordinary(path string) bool {
	if path == "" || path[0] != '/' || blank(path[len(path)-1]) {
		return false
	}
	for i := 0; i < len(path); i++ {
		switch oddity[path[i]] {
		case 1:
			return false
		case 2:
			if i+1 < len(path) && (path[i+1] == '/' || path[i+1] == '.' && beginsInDots(path[i+1:])) {
				return false
			}
		}
	}
	return true
}

// oddity has 1 for each byte that servers read differently, and 2 for the slash, which depends on what follows.
var oddity = [256]uint8{'%': 1, '#': 1, ';': 1, '\\': 1, '\t': 1, '\n': 1, '\r': 1, '/': 2}

// beginsInDots reports whether the first segment of a path is . or ..
func beginsInDots(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return first == "." || first == ".."
}

// cutOrigin takes scheme and host off a target in absolute form, which every server does (RFC 9112, section 3.2.2). Of a
// target without a path it leaves the root.
func cutOrigin(target string) string {
	if rooted(target) {
		return target
	}
	colon := strings.IndexByte(target, ':')
	if colon < 1 || colon+1 == len(target) || target[colon+1] != '/' {
		return target
	}
	for i := range colon {
		c := lowerByte(target[i])
		if !(c >= 'a' && c <= 'z' || i > 0 && (c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return target
		}
	}
	rest, hasHost := strings.CutPrefix(target[colon+1:], "//")
	if !hasHost {
		return target[colon+1:]
	}
	end := strings.IndexAny(rest, "/\\#")
	switch {
	case end < 0 || rest[end] == '#':
		return "/"
	case end == 0:
		return target[colon+2:] // without a host, one slash more is left, which some skip
	}
	return rest[end:]
}

// trimEnds takes away what programs that split a request line at white space, or trim a URL, do not take for a part of it.
// They look at single bytes; a byte of a character in UTF-8 is left, since what is cut in two is nobody's path.
func trimEnds(path string) string {
	for path != "" && blank(path[len(path)-1]) {
		if _, size := utf8.DecodeLastRuneInString(path); size > 1 {
			break
		}
		path = path[:len(path)-1]
	}
	return strings.TrimLeft(path, "\t\n\f\r ")
}

// blank reports whether a byte is white space or a control in ISO 8859-1, as which such programs read it.
func blank(c byte) bool { return c <= ' ' || c == 0x85 || c == 0xa0 }

// oddPath is a path that servers read in several ways, taken to pieces once for all of them.
type oddPath struct {
	text    string // the path, decoded once
	pieces  []piece
	matters reading // the properties of readings that make a difference here
	cuts    []stretch

	roomForPieces [24]piece
	roomForCuts   [24]stretch
}

// piece is what stands between two delimiters.
type piece struct {
	stretch
	before  delimiter
	dots    uint8 // it is . or .., and no more
	escaped bool  // and it was written with an escape
}

// newOddPath takes a path apart. Tabs and line breaks are left out: programs that do not refuse them as a part of a
// request line remove them.
func newOddPath(path string) *oddPath {
	o := &oddPath{}
	o.pieces = o.roomForPieces[:0]
	var text strings.Builder
	text.Grow(len(path))
	var p piece
	for i := 0; i < len(path); i++ {
		c, escaped := path[i], false
		if c == '%' && i+2 < len(path) {
			high, ok1 := traffic.HexDigit(path[i+1])
			low, ok2 := traffic.HexDigit(path[i+2])
			if ok1 && ok2 {
				c, escaped = high<<4|low, true
				i += 2
			}
		}
		if !escaped && (c == '\t' || c == '\n' || c == '\r') {
			continue
		}
		d := delimiterOf(c, escaped)
		if d != delimiterNone {
			o.add(p, text.String())
			p = piece{stretch: stretch{from: int32(text.Len()) + 1}, before: d}
		} else {
			p.escaped = p.escaped || escaped
		}
		text.WriteByte(c)
	}
	o.text = text.String()
	o.add(p, o.text)
	if o.matters&readDots == 0 {
		o.matters &^= readEmptySegments
	}
	if len(o.pieces) > 1 && o.pieces[1].empty() {
		o.matters |= readAuthority
	}
	o.cuts = o.roomForCuts[:0]
	return o
}

// add adds a piece that ends with the text so far, and notes which properties of readings make a difference for it.
func (o *oddPath) add(p piece, text string) {
	p.to = int32(len(text))
	o.matters |= p.before.flags()
	switch name := text[p.from:]; {
	case name == "" && len(o.pieces) > 0:
		o.matters |= readEmptySegments
	case name == "." || name == "..":
		p.dots = uint8(len(name))
		o.matters |= readDots
		if p.escaped {
			o.matters |= readEscapedDotsAsNames
		}
	}
	o.pieces = append(o.pieces, p)
}

// seen reports whether a reading before this one is no other for this path.
func (o *oddPath) seen(at int) bool {
	for _, r := range readings[:at] {
		if r&o.matters == readings[at]&o.matters {
			return true
		}
	}
	return false
}

// read gives the segments of the path under a reading. They are good until the next call.
func (o *oddPath) read(r reading) []stretch {
	at := r.heeds()
	o.cuts = o.cuts[:0]
	segment, pieces := o.pieces[0], o.pieces[1:]
	if r&o.matters&readAuthority != 0 {
		if pieces = o.afterHost(r); len(pieces) == 0 {
			o.cuts = append(o.cuts, stretch{}, stretch{})
			return o.cuts
		}
	}
	dropping := false
walk:
	for i := range pieces {
		p := &pieces[i]
		switch at[p.before] {
		case heedSlash:
			if dropping && p.before != delimiterSlash && r&readEscapedParameters == 0 {
				continue // parameters are cut off before anything is decoded
			}
			o.end(r, &segment, false)
			segment, dropping = *p, false
		case heedDrop:
			dropping = true
		case heedEnd:
			break walk
		case heedNot:
			if !dropping {
				segment.to, segment.dots = p.to, 0
			}
		}
	}
	o.end(r, &segment, true)
	if r&readEmptySegments != 0 {
		o.merge()
	}
	return o.cuts
}

// end adds a segment that has been read to its end.
func (o *oddPath) end(r reading, segment *piece, last bool) {
	dots := segment.dots
	if r&readDots == 0 || segment.escaped && r&readEscapedDotsAsNames != 0 {
		dots = 0
	}
	switch {
	case len(o.cuts) == 0:
		o.cuts = append(o.cuts, segment.stretch)
		return
	case dots == 2:
		if len(o.cuts) > 1 {
			o.cuts = o.cuts[:len(o.cuts)-1]
		}
	case dots == 1:
	case segment.empty():
		if !last && r&readEmptySegments != 0 {
			o.cuts = append(o.cuts, segment.stretch)
		}
	default:
		o.cuts = append(o.cuts, segment.stretch)
		return
	}
	if last {
		o.cuts = append(o.cuts, stretch{}) // the path ends in a slash
	}
}

// merge removes the empty segments but for the first, which is the root, and a last one.
func (o *oddPath) merge() {
	kept := o.cuts[:1]
	for i, c := range o.cuts[1:] {
		if !c.empty() || i+2 == len(o.cuts) {
			kept = append(kept, c)
		}
	}
	o.cuts = kept
}

// afterHost gives the pieces of the path that follows "//host", none if nothing follows.
func (o *oddPath) afterHost(r reading) []piece {
	slash := func(p piece) bool {
		return p.before == delimiterSlash || p.before == delimiterBackslash && r&readBackslash != 0
	}
	i := 1
	for i < len(o.pieces) && slash(o.pieces[i]) && o.pieces[i].empty() {
		i++
	}
	if i == 1 {
		return o.pieces[1:] // what looks like a second slash is none in this reading
	}
	if i < len(o.pieces) && slash(o.pieces[i]) {
		i++ // it is the host
	}
	for ; i < len(o.pieces) && o.pieces[i].before != delimiterFragment; i++ {
		if slash(o.pieces[i]) {
			return o.pieces[i:]
		}
	}
	return nil
}

// normalPath is a pattern in the form that paths have after they were read: decoded, without empty segments and dots. It
// reports whether there is one: what an escape stands for may be nothing that a pattern can say.
func normalPath(pattern string) (string, bool) {
	if ordinary(pattern) || !rooted(pattern) {
		return pattern, true
	}
	o := newOddPath(pattern)
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
	same := func(chars string) bool {
		return countAny(pattern, chars) == countAny(normal, chars)
	}
	again := newOddPath(normal)
	return normal, same("{}") && same("*") && checkPath(normal) == "" && again.text == normal
}

func countAny(s, chars string) (n int) {
	for i := 0; i < len(s); i++ {
		if strings.IndexByte(chars, s[i]) >= 0 {
			n++
		}
	}
	return n
}
