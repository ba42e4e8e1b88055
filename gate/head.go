package gate

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirhq/weir/traffic"
)

// Why a sub-request could not be read, in the header by which head tells Handler. Only head writes that header.
const (
	headerMalformed = "X-Weir-Malformed"

	notHTTP  = "not_http"  // it does not begin with a request line of HTTP/1
	tooLarge = "too_large" // the lines that a gate looks at are larger than maxHead in all
)

// cleaned stands for a byte that net/http does not take in a header's value. As it is not UTF-8 by itself, an identity
// has U+FFFD for it, as it has for the control character of an event.
const cleaned = 0xff

// longestName bounds the name of a header that an identity map may have.
const longestName = 128

// head reads the head of a sub-request, and writes one that net/http takes whatever it was: the request line says no more
// than which endpoint was asked, and the lines are those of keep, their control bytes replaced. All that a client can have
// written is thereby in values. Other lines are dropped while they are read, so that their size costs nothing.
type head struct {
	keep map[string]string
	out  *bytes.Buffer
	size int // of what was written, and of the request line

	line  []byte // the line that is being read, as far as it was read
	skip  bool   // that line is dropped
	cr    bool   // what was read of it ends in a carriage return
	held  []byte // the line before it, which may go on in it
	named bool   // a line of a header has been read

	method, target []byte // of the request line; nil: it has not been read yet
	version        byte   // its minor one
	toldMethod     bool   // X-Forwarded-Method was written
	toldURI        bool   // X-Forwarded-Uri was written
	toldHost       bool   // X-Forwarded-Host was written
	host           []byte // of the Host header
	malformed      string // the reason, if any

	close, persist bool // what Connection says
	expect         bool // the other end may wait for a word before it sends its body
	lengths        int  // Content-Length lines
	unclear        bool // whether and how a body follows is not known, so no head may be read after this one

	// Known at the end:
	length int64 // of the body that follows
	last   bool  // the connection ends with this request
	unread bool  // and a body may be under way
}

// take reads the next part of a line, up to its end or to where the buffer is full, and reports whether the head ends.
func (h *head) take(part []byte) bool {
	whole := part[len(part)-1] == '\n'
	if h.loneCR(part) {
		h.unclear = true // it ends a line for some
	}
	if !h.skip {
		h.line = append(h.line, part...)
		switch {
		case len(h.line)+len(h.held)+h.size > maxHead:
			h.malformed, h.skip, h.unclear = tooLarge, true, true // what is dropped may say how a body follows
		case !whole && len(h.line) >= rawBuffer && !h.wants(h.line): // a shorter one may not have all of its name yet
			h.skip = true
		}
	}
	if !whole {
		return false
	}
	line := bytes.TrimSuffix(bytes.TrimSuffix(h.line, []byte("\n")), []byte("\r"))
	skipped := h.skip
	h.line, h.skip = h.line[:0], false
	if h.target != nil && len(line) > 0 {
		h.vet(line)
	}
	switch {
	case h.target == nil && skipped:
		h.target = []byte{} // too large; the lines after it are read to the end of the head, and the answer says so
		h.begin()
	case h.target == nil && len(line) == 0: // RFC 9112, section 2.2: an empty line before a request means nothing
	case h.target == nil:
		if !h.request(line) {
			h.malformed, h.unclear = notHTTP, true
			h.begin()
			h.finish()
			return true
		}
		h.begin()
	case len(line) == 0: // also one that was too much: without it the next head would be part of this one
		h.flush()
		h.finish()
		return true
	case skipped:
		h.flush()
	case blank(line[0]):
		if len(h.held) > 0 { // RFC 9112, section 5.2: a folded line goes on after a space
			h.held = append(append(h.held, ' '), bytes.Trim(line, " \t")...)
		}
	default:
		h.flush()
		if h.wants(line) {
			h.held, h.line = line, h.held[:0] // two buffers, which change places
		}
	}
	return false
}

// loneCR reports whether a part of a line makes it have a carriage return that is not of its end.
func (h *head) loneCR(part []byte) bool {
	at := bytes.IndexByte(part, '\r')
	lone := h.cr && part[0] != '\n' || at >= 0 && at+1 < len(part) && part[at+1] != '\n'
	h.cr = part[len(part)-1] == '\r'
	return lone
}

// wants reports whether a line, as far as it was read, is looked at.
func (h *head) wants(line []byte) bool {
	switch {
	case h.target == nil:
		return true
	case blank(line[0]):
		return len(h.held) > 0
	}
	return h.name(line) != ""
}

// vet looks for lines that are none of RFC 9112, section 5: for another reader they could be a Content-Length.
func (h *head) vet(line []byte) {
	if blank(line[0]) {
		h.unclear = h.unclear || !h.named // it goes on with nothing
		return
	}
	colon := bytes.IndexByte(line, ':')
	odd := func(r rune) bool { return r >= utf8.RuneSelf || !traffic.TokenByte(byte(r)) }
	h.unclear = h.unclear || colon <= 0 || bytes.ContainsFunc(line[:colon], odd)
	h.named = true
}

// name is how a line's header is written, if it is looked at.
func (h *head) name(line []byte) string {
	var lower [longestName]byte
	name, _, named := bytes.Cut(line, []byte(":"))
	if !named || len(name) > len(lower) {
		return ""
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	return h.keep[string(lower[:len(name)])]
}

// request reads a request line, and reports whether it is one.
func (h *head) request(line []byte) bool {
	first, final := bytes.IndexByte(line, ' '), bytes.LastIndexByte(line, ' ')
	if first <= 0 || final <= first+1 {
		return false
	}
	minor, ok := bytes.CutPrefix(line[final+1:], []byte("HTTP/1."))
	if !ok || len(minor) != 1 || minor[0] < '0' || minor[0] > '9' {
		return false
	}
	h.method, h.target, h.version = bytes.Clone(line[:first]), bytes.Clone(line[first+1:final]), min(minor[0], '1')
	h.size = len(line)
	return true
}

// begin writes the request line. Its method says no more than whether the answer may have a body.
func (h *head) begin() {
	method, path := "GET ", "/"
	if string(h.method) == "HEAD" {
		method = "HEAD "
	}
	if h.asksAuthRequest() {
		path = PathAuthRequest
	}
	if h.version == 0 {
		h.version = '1'
	}
	h.out.WriteString(method)
	h.out.WriteString(path)
	h.out.WriteString(" HTTP/1.")
	h.out.WriteByte(h.version)
	h.out.WriteString("\r\nHost: gate\r\n")
}

func (h *head) asksAuthRequest() bool {
	path, _, _ := bytes.Cut(h.target, []byte("?"))
	return string(path) == PathAuthRequest
}

// flush writes the line that was held back, which is whole now.
func (h *head) flush() {
	if len(h.held) == 0 {
		return
	}
	_, value, _ := bytes.Cut(h.held, []byte(":"))
	h.header(h.name(h.held), bytes.Trim(value, " \t"))
	h.held = h.held[:0]
}

// header is told of one whole line, by the name that keep has for it.
func (h *head) header(name string, value []byte) {
	switch name {
	case "Connection":
		for option := range strings.SplitSeq(strings.ToLower(string(value)), ",") {
			option = strings.Trim(option, " \t")
			h.close = h.close || option == "close"
			h.persist = h.persist || option == "keep-alive"
		}
	case "Expect":
		h.expect = true
	case "Transfer-Encoding":
		h.unclear = true
	case "Content-Length":
		n, err := strconv.ParseUint(string(value), 10, 63)
		h.length, h.lengths = int64(n), h.lengths+1
		h.unclear = h.unclear || err != nil || h.lengths > 1
	case "Host":
		h.host = bytes.Clone(value)
	case headerForwardedMethod, headerForwardedURI, headerForwardedHost:
		if len(value) == 0 {
			return // the request itself says it
		}
		h.toldHost = h.toldHost || name == headerForwardedHost
		h.toldMethod = h.toldMethod || name == headerForwardedMethod
		h.toldURI = h.toldURI || name == headerForwardedURI
		h.write(name, value)
	default:
		h.write(name, value)
	}
}

// write writes a header, its value as one that net/http takes.
func (h *head) write(name string, value []byte) {
	size := len(name) + len(": ") + len(value) + len("\r\n")
	h.size += size
	h.out.Grow(size)
	h.out.WriteString(name)
	h.out.WriteString(": ")
	begin := h.out.Len()
	h.out.Write(value)
	for i, c := range h.out.Bytes()[begin:] {
		if c < ' ' && c != '\t' || c == 0x7f {
			h.out.Bytes()[begin+i] = cleaned
		}
	}
	h.out.WriteString("\r\n")
}

// finish ends the head.
func (h *head) finish() {
	if h.malformed == "" && !h.asksAuthRequest() {
		// A proxy that asks with the request itself: its method and target are the client's, too.
		if !h.toldMethod {
			h.write(headerForwardedMethod, h.method)
		}
		if !h.toldURI {
			h.write(headerForwardedURI, h.target)
			if !h.toldHost && len(h.host) > 0 {
				h.write(headerForwardedHost, h.host)
			}
		}
	}
	if h.malformed != "" {
		h.write(headerMalformed, []byte(h.malformed))
	}
	// A body that is announced may stay away, and what an answer to CONNECT lets follow is no request.
	h.unclear = h.unclear || h.expect && h.length > 0 || string(h.method) == "CONNECT"
	h.last = h.unclear || h.close || h.version == '0' && !h.persist
	h.unread = h.unclear || h.last && h.length > 0
	switch {
	case h.last:
		h.write("Connection", []byte("close"))
	case h.version == '0':
		h.write("Connection", []byte("keep-alive"))
	}
	h.out.WriteString("\r\n")
}

func blank(c byte) bool { return c == ' ' || c == '\t' }
