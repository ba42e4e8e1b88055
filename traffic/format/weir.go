package format

import (
	"strconv"
	"sync/atomic"

	"github.com/weirhq/weir/traffic"
)

// EventVersion is the version of the weir event format, its member v.
const EventVersion = 1

// ControlEnd is Request.Control of an end mark.
const ControlEnd = "end"

// EndMark is the value of the record that closes a source partition of a replay: all events have been read. A decoder
// takes it only with AllowControl.
func EndMark() []byte { return []byte(`{"v":1,"control":"end"}`) }

// weirDecoder reads the weir event v1: one JSON object with members of fixed names and types (docs/events.md). It is a
// single pass over the bytes that copies nothing but strings with escapes in them.
type weirDecoder struct {
	max     int
	control bool
	order   memberOrder
}

var _ Decoder = (*weirDecoder)(nil)

// Decode reads one event.
func (d *weirDecoder) Decode(b []byte, r *traffic.Request) error {
	*r = traffic.Request{Headers: r.Headers[:0]}
	if err := checkSize(b, d.max); err != nil {
		return err
	}
	s := memberReader{scanner: scanner{b: b}}
	s.space()
	more, err := s.openObject()
	members := 0 // beside v and control
	for m := memberUnknown; more && err == nil; {
		if m, err = d.order.next(&s.scanner, m); err != nil {
			return err
		}
		switch m {
		case memberUnknown:
			r.UnknownFields++
			members++
			err = s.skip()
		case memberVersion:
			err = s.readVersion()
		case memberControl:
			err = d.readControl(&s, r)
		default:
			members++
			err = s.read(m, r)
		}
		if err != nil {
			return err
		}
		more, err = s.nextMember()
	}
	if err != nil {
		return err
	}
	if r.Control != "" && members > 0 {
		return failure(ReasonMalformed, -1, "an end mark with %d other members, allowed: none but v", members)
	}
	return s.end()
}

// memberOrder is, for each member, the one that came after it when it was last seen: a program writes its members in one order. It
// is a guess, which costs a comparison where it is wrong, so that goroutines may share it.
type memberOrder struct {
	after [numMembers]atomic.Uint32
	heads [numMembers]string // the names as most writers write them, up to the value
}

func newWeirDecoder(maxBytes int, control bool) *weirDecoder {
	d := &weirDecoder{max: maxBytes, control: control}
	for m := memberUnknown + 1; m < numMembers; m++ {
		d.order.heads[m] = `"` + memberNames[m] + `":`
	}
	return d
}

// next reads the name of the member after last, memberUnknown for the first, and stops at its value.
func (o *memberOrder) next(s *scanner, last member) (member, error) {
	guess := member(o.after[last].Load())
	if guess != memberUnknown && s.headed(o.heads[guess]) {
		return guess, nil
	}
	name, err := s.name()
	m := findMember(name)
	if m != guess && m != memberUnknown {
		o.after[last].Store(uint32(m))
	}
	return m, err
}

// headed passes the head of a member, if the next bytes are it and the value follows at once.
func (s *scanner) headed(head string) bool {
	end := s.i + len(head)
	if end >= len(s.b) || string(s.b[s.i:end]) != head || s.b[end] <= ' ' {
		return false
	}
	s.i = end
	return true
}

// readVersion refuses every version but EventVersion: a later one may mean something else by the same members.
func (s *memberReader) readVersion() error {
	at := s.i
	text, err := s.readNumber(memberVersion, "a number")
	if err != nil || text == "" {
		return err
	}
	d, _ := parseDecimal(text)
	if v, exact, ok := d.scaled(0); !ok || !exact || v != EventVersion {
		return failure(ReasonVersion, at, "v: got %s, allowed: %d", traffic.Quote(text), EventVersion)
	}
	return nil
}

func (d *weirDecoder) readControl(s *memberReader, r *traffic.Request) error {
	at := s.i
	if !d.control {
		return failure(ReasonMalformed, at, "control: a reserved member, allowed only in the end mark of a replay")
	}
	if s.peek() != '"' {
		return failure(ReasonMalformed, at, "control: allowed: %q", ControlEnd)
	}
	text, err := s.text()
	if err != nil {
		return err
	}
	if text != ControlEnd {
		return failure(ReasonMalformed, at, "control: got %s, allowed: %q", traffic.Quote(text), ControlEnd)
	}
	r.Control = ControlEnd
	return nil
}

// AppendEvent appends r to dst as a weir event v1, from which the weir decoder reads the same request again. Members
// that r does not have are left out. Strings keep every byte, invalid UTF-8 too, which makes such a text more than RFC
// 8259 allows; only quotes, backslashes and control characters are escaped. r.Attrs must be JSON, as a decoder leaves
// it. What the format cannot say is not written: a query in the path, a time outside of the years 0000 to 9999,
// negative numbers, UnknownFields. A request with Control becomes the end mark.
func AppendEvent(dst []byte, r *traffic.Request) []byte {
	if r.Control == ControlEnd {
		return append(dst, EndMark()...)
	}
	dst = append(dst, `{"v":1`...)
	if r.HasTime && r.Time >= minEventTime && r.Time <= maxEventTime {
		dst = append(dst, `,"time":"`...)
		dst = r.Time.AppendTo(dst)
		dst = append(dst, '"')
	}
	dst = appendMember(dst, memberID, r.ID)
	dst = appendMember(dst, memberIP, r.IP)
	dst = appendMember(dst, memberForwarded, r.Forwarded)
	dst = appendMember(dst, memberDevice, r.Device)
	dst = appendMember(dst, memberUser, r.User)
	dst = appendMember(dst, memberAPIKey, r.APIKey)
	dst = appendMember(dst, memberSession, r.Session)
	dst = appendClaimed(dst, r.Claimed)
	dst = appendMember(dst, memberMethod, r.Method)
	dst = appendMember(dst, memberHost, r.Host)
	dst = appendMember(dst, memberPath, cutQuery(r.Path))
	dst = appendMember(dst, memberRoute, r.Route)
	if r.Status > 0 && r.Status <= maxStatus {
		dst = append(dst, `,"status":`...)
		dst = strconv.AppendInt(dst, int64(r.Status), 10)
	}
	dst = appendMember(dst, memberUserAgent, r.UserAgent)
	if r.LatencyUS > 0 {
		dst = append(dst, `,"latency_ms":`...)
		dst = appendMillis(dst, r.LatencyUS)
	}
	if r.Bytes > 0 {
		dst = append(dst, `,"bytes":`...)
		dst = strconv.AppendInt(dst, r.Bytes, 10)
	}
	dst = appendMember(dst, memberPlan, r.Plan)
	if len(r.Attrs) > 0 {
		dst = append(dst, `,"attrs":`...)
		dst = append(dst, r.Attrs...)
	}
	dst = appendHeaders(dst, r.Headers)
	dst = appendMember(dst, memberGateway, r.Gateway)
	dst = appendVerdict(dst, r.Verdict)
	return append(dst, '}')
}

func appendMember(dst []byte, m member, v string) []byte {
	if v == "" {
		return dst
	}
	dst = append(dst, ',', '"')
	dst = append(dst, memberNames[m]...)
	dst = append(dst, '"', ':')
	return appendJSONString(dst, v)
}

func appendHeaders(dst []byte, headers []traffic.Header) []byte {
	if len(headers) == 0 {
		return dst
	}
	dst = append(dst, `,"headers":{`...)
	for i, h := range headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONString(dst, h.Name)
		dst = append(dst, ':')
		dst = appendJSONString(dst, h.Value)
	}
	return append(dst, '}')
}

func appendVerdict(dst []byte, v traffic.Verdict) []byte {
	if !v.Refused() {
		return dst
	}
	dst = append(dst, `,"verdict":{"rule":`...)
	dst = appendJSONString(dst, v.Rule)
	dst = append(dst, `,"block":`...)
	dst = appendJSONString(dst, v.Block)
	return append(dst, '}')
}

// appendJSONString writes s in quotes, escaping only what would end or break the string.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			dst = append(dst, s[from:i]...)
			dst = traffic.AppendEscape(dst, c)
			from = i + 1
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// appendMillis writes microseconds as milliseconds with as many decimals as it takes.
func appendMillis(dst []byte, us int64) []byte {
	dst = strconv.AppendInt(dst, us/1000, 10)
	rest := us % 1000
	if rest == 0 {
		return dst
	}
	dst = append(dst, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// appendClaimed appends the list that readClaimed reads.
func appendClaimed(dst []byte, claimed traffic.FieldSet) []byte {
	open := false
	for f := traffic.FieldDevice; f < traffic.NumFields; f++ {
		switch {
		case !claimed.Has(f):
			continue
		case open:
			dst = append(dst, ',')
		default:
			dst, open = append(dst, `,"claimed":[`...), true
		}
		dst = appendJSONString(dst, f.String())
	}
	if open {
		dst = append(dst, ']')
	}
	return dst
}
