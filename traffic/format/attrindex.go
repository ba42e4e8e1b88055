package format

// maxAttrMembers is how many members of attrs an AttrIndex remembers.
const maxAttrMembers = 64

// AttrIndex reads the attrs of one event by several paths for the price of one scan: when it is asked first, it remembers where
// the members of the outermost object lie. Attrs of more members than it has room for, or with escapes in their names, are scanned
// for each path. It is not safe for concurrent use; its memory is used again after Reset.
type AttrIndex struct {
	attrs   []byte
	state   attrState
	n       int
	members [maxAttrMembers]attrMember
}

type attrState uint8

const (
	attrsUnread  attrState = iota
	attrsKnown             // members are all that there are
	attrsScanned           // for each path
)

// attrMember says where a member lies: attrs[name:end] is its name.
type attrMember struct{ name, end, value uint32 }

// Reset makes x that of the JSON of a Request's Attrs, which a decoder has checked. It must stay as it is while x is asked.
func (x *AttrIndex) Reset(attrs []byte) { x.attrs, x.state = attrs, attrsUnread }

// Value is p.Value of the attrs.
func (x *AttrIndex) Value(p AttrPath) AttrValue {
	s, ok := x.find(p)
	if !ok {
		return AttrValue{}
	}
	return s.attrValue()
}

// Text is p.Text of the attrs.
func (x *AttrIndex) Text(p AttrPath) (string, bool) {
	s, ok := x.find(p)
	if !ok || len(p.names) == 0 {
		return "", false
	}
	return s.attrText()
}

// Units is p.Units of the attrs.
func (x *AttrIndex) Units(p AttrPath) (int64, UnitsFault) {
	s, ok := x.find(p)
	if !ok || len(p.names) == 0 {
		return 0, UnitsAbsent
	}
	return s.attrUnits()
}

// find is p.find of the attrs.
func (x *AttrIndex) find(p AttrPath) (scanner, bool) {
	if x.state == attrsUnread {
		x.state = attrsScanned
		if len(x.attrs) <= maxIndexed && x.read() {
			x.state = attrsKnown
		}
	}
	if x.state == attrsScanned || len(p.names) == 0 {
		return p.find(x.attrs)
	}
	name := p.names[0]
	for i := x.n - 1; i >= 0; i-- { // the last one of a name counts
		m := &x.members[i]
		if int(m.end-m.name) != len(name) || string(x.attrs[m.name:m.end]) != name {
			continue
		}
		s := scanner{b: x.attrs, i: int(m.value)}
		return s, s.enterAll(p.names[1:])
	}
	return scanner{}, false
}

// maxIndexed is how long attrs may be for their places to have room.
const maxIndexed = 1 << 30

// read finds the members. It reports whether it has all of them. What a decoder has checked is not checked again: where this
// finds no object as it should be, the scanner decides.
func (x *AttrIndex) read() bool {
	x.n = 0
	b := x.attrs
	i := spaceEnd(b, 0)
	if i == len(b) || b[i] != '{' {
		return true
	}
	if i = spaceEnd(b, i+1); i < len(b) && b[i] == '}' {
		return true
	}
	for x.n < len(x.members) && i < len(b) && b[i] == '"' {
		start := i + 1
		end := plainEnd(b, start)
		if end >= len(b) || b[end] != '"' {
			return false
		}
		if i = spaceEnd(b, end+1); i == len(b) || b[i] != ':' {
			return false
		}
		i = spaceEnd(b, i+1)
		x.members[x.n] = attrMember{uint32(start), uint32(end), uint32(i)}
		x.n++
		if i = spaceEnd(b, valueEnd(b, i)); i == len(b) {
			return false
		}
		if b[i] != ',' {
			return b[i] == '}'
		}
		i = spaceEnd(b, i+1)
	}
	return false
}

// spaceEnd is the index, from i on, of the first byte that is no white space.
func spaceEnd(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' {
		i++
	}
	return i
}

// valueEnd is the index behind the value at i; len(b) if it has no end.
func valueEnd(b []byte, i int) int {
	if i == len(b) {
		return i
	}
	switch b[i] {
	case '"':
		return textEnd(b, i)
	case '{', '[':
		return containerEnd(b, i)
	}
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] > ' ' {
		i++
	}
	return i
}

func textEnd(b []byte, i int) int {
	for i++; ; i += 2 { // behind what an escape escapes
		if i = plainEnd(b, min(i, len(b))); i == len(b) {
			return i
		} else if b[i] == '"' {
			return i + 1
		}
	}
}

func containerEnd(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = textEnd(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if i++; depth == 0 {
			return i
		}
	}
	return i
}
