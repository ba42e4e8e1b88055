package format

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/traffic"
)

// notation is how a member writes the value of an event field.
type notation uint8

const (
	asEvent        notation = iota // as the event's own member, read as loosely as json is
	asSeconds                      // latency in seconds
	asNanoseconds                  // latency in nanoseconds
	asLines                        // a header: a text, or a list of its lines, which are joined by commas
	asMethodOfLine                 // the method in a request line, GET /a HTTP/1.1
	asTargetOfLine                 // the path in a request line
	asURL                          // a path, or a URL from which its path is taken
	asPlainURL                     // the same, see URLsAsIs
	asPeer                         // an address that the program may have appended to the forwarded chain
	asBeginning                    // the time when the request came; the event's is when it was answered, latency later
	asEnd                          // the time when it was answered, where another member may tell the beginning
)

// longestAnswer is the greatest latency by which an event's time is moved from the beginning of its request to the end. It
// is as long as the longest window: no rule would count both ends of a longer one. A latency beyond it is no measurement,
// and does not choose a time.
const longestAnswer = 31 * 24 * time.Hour

// namedDecoder reads the JSON log of one program by its table.
type namedDecoder struct {
	max    int
	format *namedFormat
	root   *fieldNode
}

var _ Decoder = (*namedDecoder)(nil)

// Decode reads one line. A line that has neither method nor path nor status is no entry of an access log: programs
// write other things to the same place. Every error names the format.
func (d *namedDecoder) Decode(b []byte, r *traffic.Request) error {
	*r = traffic.Request{Headers: r.Headers[:0]}
	s := objectReader{memberReader: memberReader{scanner: scanner{b: b}, lax: true}, format: d.format}
	err := checkSize(b, d.max)
	if err == nil {
		s.space()
		err = s.readObject(d.root, r)
	}
	if err == nil {
		err = s.end()
	}
	if err == nil && !s.request {
		err = failure(ReasonMalformed, -1, "got neither method nor path nor status, allowed: a line of the access log")
	}
	if err != nil {
		if e := (*DecodeError)(nil); errors.As(err, &e) {
			e.Detail += " (format " + d.format.name + ")"
		}
		return err
	}
	r.Forwarded = beforePeers(r.Forwarded, &s.peers)
	if s.beginning {
		endAfterLatency(r)
	}
	return nil
}

// endAfterLatency moves a time that is the beginning of the request to its end, which is when the program wrote the line.
// Otherwise a client that holds its request open would choose the age of its event, and could make it too late to be counted.
func endAfterLatency(r *traffic.Request) {
	const most = int64(longestAnswer / time.Microsecond)
	if !r.HasTime || r.LatencyUS > most {
		return
	}
	if end := r.Time + traffic.Time(r.LatencyUS); end <= maxEventTime {
		r.Time = end
	}
}

// beforePeers is a forwarded chain as it was received: without its last entry if that is the peer, which the gateway
// itself has appended. The peer can't have appended itself, unless it is the client; then the rest of the chain is its
// word either way.
func beforePeers(chain string, peers *[2]string) string {
	if chain == "" || peers[0] == "" && peers[1] == "" {
		return chain
	}
	comma := strings.LastIndexByte(chain, ',')
	last, ok := traffic.ParseClient(chain[comma+1:])
	if !ok {
		return chain
	}
	for _, peer := range peers {
		if p, ok := traffic.ParseClient(peer); ok && p == last {
			return strings.Trim(chain[:max(comma, 0)], " \t")
		}
	}
	return chain
}

// objectReader reads a JSON object by a tree: that of a field map, or that of a gateway's table. By a field map alone each
// member is read into every field that names it, and of several members for one field the last one counts. By a table a
// value that says nothing is passed over, and of several members for one field the most wanted counts.
type objectReader struct {
	memberReader
	counted *fieldNode   // the node whose unknown members are counted, nil for none: they are many in a gateway's log
	format  *namedFormat // whose table it is; nil: a field map alone

	// By a table only.
	filled    [numMembers]uint8 // rank of the member that has filled a field, plus 1
	peers     [2]string         // values asPeer, by rank
	request   bool              // a member about the request or its answer has been seen
	beginning bool              // the time was read asBeginning
}

// readObject reads an object whose members n describes. Its recursion is as deep as the tree, whose depth the operator chooses.
func (s *objectReader) readObject(n *fieldNode, r *traffic.Request) error {
	more, err := s.openObject()
	for more && err == nil {
		var name string
		if name, err = s.name(); err != nil {
			return err
		}
		if child := n.children[name]; child != nil {
			err = s.readNode(child, r)
		} else if header, ok := n.headers.header(name); ok {
			err = s.readHeaderLines(header, r)
		} else {
			if n == s.counted {
				r.UnknownFields++
			}
			err = s.skip()
		}
		if err != nil {
			return err
		}
		more, err = s.nextMember()
	}
	return err
}

// readNode reads one value for every event field that may take it, each from the value's start.
func (s *objectReader) readNode(n *fieldNode, r *traffic.Request) error {
	start := s.i
	for _, t := range n.targets {
		s.i = start
		err := error(nil)
		if s.format != nil {
			err = s.readRanked(t, r)
		} else if err = s.read(t.field, r); err == nil && t.claimed {
			claimMember(r, t.field)
		}
		if err != nil {
			return err
		}
	}
	if start < len(s.b) && s.b[start] == '{' && (len(n.children) > 0 || n.headers != nil) {
		s.i = start
		return s.readObject(n, r)
	}
	if len(n.targets) == 0 {
		return s.skip()
	}
	return nil
}

// readRanked reads a value into a field, unless it says nothing or a member that is wanted more has filled the field.
func (s *objectReader) readRanked(t target, r *traffic.Request) error {
	switch t.field {
	case memberMethod, memberPath, memberStatus:
		s.request = true
	}
	if s.nothing() {
		return s.skip()
	}
	if t.as == asPeer {
		if err := s.readPeer(t); err != nil {
			return err
		}
	}
	if f := s.filled[t.field]; f != 0 && f <= t.rank {
		return s.skip()
	}
	s.filled[t.field] = t.rank + 1
	if t.claimed {
		defer claimMember(r, t.field)
	}
	if t.field == memberTime {
		s.beginning = t.as == asBeginning
	}
	switch t.as {
	case asSeconds:
		return s.readSpan(r, 6, "a number of seconds")
	case asNanoseconds:
		return s.readSpan(r, -3, "a number of nanoseconds")
	case asEvent, asBeginning, asEnd:
		return s.read(t.field, r)
	}
	text, err := s.readLines(t.field)
	if err != nil {
		return err
	}
	switch t.as {
	case asMethodOfLine:
		r.Method, _ = splitRequest(text)
	case asTargetOfLine:
		_, r.Path = splitRequest(text)
	case asURL:
		r.Path = pathOfURL(text)
	case asPlainURL:
		r.Path = pathOfPlainURL(text)
	default:
		*textMember(t.field, r) = text
	}
	return nil
}

// readPeer remembers an address, whether the field takes it or not, and goes back to it.
func (s *objectReader) readPeer(t target) error {
	start := s.i
	text, err := s.readText(t.field)
	s.peers[min(int(t.rank), len(s.peers)-1)] = text
	s.i = start
	return err
}

// nothing reports whether the value at hand says that there is none.
func (s *objectReader) nothing() bool {
	switch s.peek() {
	case 'n':
		return true // null, or no JSON, which whoever skips it will find out
	case '"':
		if s.at(`""`) || s.at(`"-"`) {
			return true
		}
	case '[':
		if s.at("[]") {
			return true
		}
	}
	for _, text := range s.format.nothing {
		if s.at(text) {
			return true
		}
	}
	return false
}

// at reports whether the value at hand is exactly this text.
func (s *objectReader) at(text string) bool {
	end := s.i + len(text)
	if end > len(s.b) || string(s.b[s.i:end]) != text {
		return false
	}
	if end == len(s.b) {
		return true
	}
	switch s.b[end] {
	case ',', '}', ']', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// readLines reads a text, or a list of texts joined by commas.
func (s *objectReader) readLines(m member) (string, error) {
	if s.peek() != '[' {
		return s.readText(m)
	}
	var first string
	var joined []byte // once there is a second
	more, err := s.openList()
	for n := 0; more && err == nil; n++ {
		var line string
		if line, err = s.readText(m); err != nil {
			return "", err
		}
		switch n {
		case 0:
			first = line
		case 1:
			joined = append(joined, first...)
			fallthrough
		default:
			joined = append(append(joined, ','), line...)
		}
		more, err = s.nextElement()
	}
	if joined != nil {
		return alias(joined), err
	}
	return first, err
}

// readHeaderLines reads a reported header: a text, or a list of its lines.
func (s *objectReader) readHeaderLines(name string, r *traffic.Request) error {
	if s.nothing() {
		return s.skip()
	}
	if len(s.format.headers) > 1 {
		// The log may tell one header in two places. That is no header with several lines.
		r.Headers = slices.DeleteFunc(r.Headers, func(h traffic.Header) bool { return strings.EqualFold(h.Name, name) })
	}
	if s.peek() != '[' {
		value, err := s.readText(memberHeaders)
		r.Headers = append(r.Headers, traffic.Header{Name: name, Value: value})
		return err
	}
	more, err := s.openList()
	for more && err == nil {
		var line string
		if line, err = s.readText(memberHeaders); err != nil {
			return err
		}
		r.Headers = append(r.Headers, traffic.Header{Name: name, Value: line})
		more, err = s.nextElement()
	}
	return err
}

// header is the header that a member of this name reports.
func (h *headerNames) header(member string) (name string, ok bool) {
	if h == nil || len(member) <= len(h.prefix) || member[:len(h.prefix)] != h.prefix {
		return "", false
	}
	name = member[len(h.prefix):]
	if h.underscore {
		name = strings.ReplaceAll(name, "_", "-")
	}
	return name, true
}

// pathOfURL is the path of a URL that may have a scheme and a host, or of a path; without its query. A URL whose host ends in
// different places for different programs is left as it is: which rules it may reach is theirs to say.
func pathOfURL(text string) string {
	text = cutQuery(text)
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || strings.ContainsAny(scheme, `/\#%`) {
		return text
	}
	switch end := strings.IndexAny(rest, `/\#%`); {
	case end < 0:
		return "/"
	case rest[end] == '/':
		return rest[end:]
	}
	return text
}

// pathOfPlainURL is pathOfURL for URLs that are what they look like.
func pathOfPlainURL(text string) string {
	text = cutQuery(text)
	if text == "" || text[0] == '/' {
		return text
	}
	_, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		return rest[slash:]
	}
	return "/"
}
