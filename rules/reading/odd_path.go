package reading

import (
	"strings"
	"unicode/utf8"

	"github.com/weirhq/weir/traffic"
)

// oddPath is a path that servers read in several ways, taken to pieces once for all of them.
type oddPath struct {
	text    string // the path, decoded once
	pieces  []piece
	matters reading // the properties of readings that make a difference here
	cuts    []stretch

	hosted     bool // the path is //host/path in every reading
	isPassedOn bool // by a server that has read it

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

// newOddPath takes a path apart. With hosted, a host comes first in every reading: //host/path.
func newOddPath(path string, hosted bool) *oddPath {
	c := newCutter(len(path))
	c.odd.hosted = hosted
	for i := 0; i < len(path); {
		r, size := unescape(path[i:])
		i += max(size, 1)
		switch {
		case size == 0:
			c.put(path[i-1], false)
		case size == len("%HH") || r < utf8.RuneSelf:
			c.put(byte(r), true)
		default:
			for _, b := range utf8.AppendRune(nil, r) {
				c.put(b, true)
			}
		}
	}
	return c.done()
}

// unescape gives what an escape in front of a text stands for, and its size: a byte for %HH, or a character for %uHHHH, as
// IIS and Jetty may read it.
func unescape(text string) (r rune, size int) {
	if text[0] != '%' {
		return 0, 0
	}
	digits, size := 2, len("%HH")
	if len(text) > 1 && (text[1] == 'u' || text[1] == 'U') {
		digits, size = 4, len("%uHHHH")
	}
	if len(text) < size {
		return 0, 0
	}
	for _, c := range []byte(text[size-digits : size]) {
		digit, ok := traffic.HexDigit(c)
		if !ok {
			return 0, 0
		}
		r = r<<4 | rune(digit)
	}
	return r, size
}

// passedOn is the path as a server writes it that has read o and passes the result on to the next server; nil if the next
// server reads the same segments as from o. Segments may differ although the text is equal: what was %2F is a slash in the
// written path. Only "%", "?" and "#" are escaped in it, and stand for themselves.
func (o *oddPath) passedOn() *oddPath {
	if o.isPassedOn || !strings.ContainsAny(o.text, `;\`) {
		return nil
	}
	c := newCutter(len(o.text))
	c.odd.isPassedOn = true
	for i, cut := range o.read(readAndPassedOn) {
		if i > 0 {
			c.put('/', false)
		}
		for _, b := range []byte(o.text[cut.from:cut.to]) {
			c.put(b, b == '#')
		}
	}
	next := c.done()
	if next.text == o.text && next.matters == o.matters && len(next.pieces) == len(o.pieces) {
		return nil
	}
	return next
}

// cutter makes an oddPath of a path's bytes.
type cutter struct {
	odd   *oddPath
	text  strings.Builder
	piece piece
}

func newCutter(size int) *cutter {
	o := &oddPath{}
	o.pieces, o.cuts = o.roomForPieces[:0], o.roomForCuts[:0]
	c := &cutter{odd: o}
	c.text.Grow(size)
	return c
}

// put takes the next byte.
func (c *cutter) put(b byte, escaped bool) {
	if d := delimiterOf(b, escaped); d != delimiterNone {
		c.odd.add(c.piece, c.text.String())
		c.piece = piece{stretch: stretch{from: int32(c.text.Len()) + 1}, before: d}
	} else if escaped {
		c.piece.escaped = true
	}
	c.text.WriteByte(b)
}

func (c *cutter) done() *oddPath {
	o := c.odd
	o.text = c.text.String()
	o.add(c.piece, o.text)
	if o.matters&readDots == 0 {
		o.matters &^= readEmptySegments
	}
	if len(o.pieces) > 1 && o.pieces[1].empty() {
		o.matters |= readAuthority
	}
	if (o.hosted || o.matters&readAuthority != 0) && o.matters&readEscapedSlash != 0 {
		o.matters |= readBackslash // afterHost asks it
	}
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

// seen reports whether an earlier one of readings reads this path alike.
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
	at := r.actions()
	o.cuts = o.cuts[:0]
	segment, pieces := o.pieces[0], o.pieces[1:]
	if o.hosted || r&o.matters&readAuthority != 0 {
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
		case actionSplit:
			if dropping && p.before != delimiterSlash {
				continue // parameters are cut off before anything is decoded
			}
			o.end(r, &segment, false)
			segment, dropping = *p, false
		case actionDrop:
			dropping = true
		case actionEnd:
			break walk
		case actionNone:
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
	slash := func(i int) bool {
		before := o.pieces[i].before
		return before == delimiterSlash || before == delimiterBackslash && r&readBackslash != 0
	}
	host := 1
	for host+1 < len(o.pieces) && slash(host) && o.pieces[host].empty() && slash(host+1) {
		host++
	}
	if host == 1 {
		return o.pieces[1:] // there is one slash only in this reading
	}
	for i := host + 1; i < len(o.pieces) && o.pieces[i].before != delimiterFragment; i++ {
		if slash(i) || o.pieces[i].before == delimiterEscapedSlash && r&readBackslash != 0 && r&readEscapedSlash != 0 {
			return o.pieces[i:] // an escape ends a host for Node's url.parse
		}
	}
	return nil
}
