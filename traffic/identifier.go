package traffic

import (
	"net/textproto"
	"strings"
)

// MissingReason says why an identity lacks a field: countable, by its String.
type MissingReason uint8

// The reasons. Only ip can be unparsable, unspecified or have a short chain, and only the others claimed.
const (
	Present            MissingReason = iota // it is not missing
	MissingAbsent                           // the request does not carry it
	MissingNoSource                         // the identity map has no source for it
	MissingShort                            // the forwarded chain ends before it names anybody beyond the trusted proxies
	MissingBadIP                            // the text is no address
	MissingUnspecified                      // the address is 0.0.0.0 or ::, which stands for none
	MissingRepeated                         // its header has several lines, and who reads which is anybody's guess
	MissingClaimed                          // the gateway vouches for the field, and the event has only what the client claims
	NumMissingReasons
)

// Concerns reports whether an identity can lack the field for that reason.
func (m MissingReason) Concerns(f Field) bool {
	switch m {
	case MissingShort, MissingBadIP, MissingUnspecified:
		return f == FieldIP
	case MissingClaimed:
		return f != FieldIP
	}
	return m != Present && m < NumMissingReasons
}

// String is the reason as a counter's label.
func (m MissingReason) String() string {
	switch m {
	case Present:
		return "present"
	case MissingAbsent:
		return "absent"
	case MissingNoSource:
		return "no_source"
	case MissingShort:
		return "forwarded_short"
	case MissingBadIP:
		return "ip_unparsable"
	case MissingUnspecified:
		return "ip_unspecified"
	case MissingRepeated:
		return "repeated"
	case MissingClaimed:
		return "claimed"
	}
	return "unknown"
}

// Missing says for each field why it is missing, or Present.
type Missing [NumFields]MissingReason

// Identifier derives identities by one identity map. Events and requests at a gate go through the same derivation, so
// that a block set for the one holds for the other. It may be used by several goroutines.
type Identifier struct {
	trusted TrustedProxies
	sources [NumFields]FieldSource
	asIs    bool

	addressKind   addressHeader
	addressHeader string // unless it is X-Forwarded-For
}

// IdentifierOption changes how Compile builds an Identifier.
type IdentifierOption func(*Identifier)

// Compile validates m and makes its Identifier.
func (m *IdentityMap) Compile(options ...IdentifierOption) (*Identifier, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	x := &Identifier{trusted: m.IP.TrustedProxies}
	for f := FieldDevice; f < NumFields; f++ {
		x.sources[f] = *m.source(f)
		x.sources[f].Header = textproto.CanonicalMIMEHeaderKey(x.sources[f].Header) // http.Header looks for no other without making it
	}
	if x.addressKind = m.IP.kind(); x.addressKind != addressXForwardedFor {
		x.addressHeader = textproto.CanonicalMIMEHeaderKey(m.IP.Header)
	}
	for _, o := range options {
		o(x)
	}
	return x, nil
}

// HeaderLines gives all values of a request header, in order; the name is compared without case. http.Header has it.
type HeaderLines interface {
	Values(name string) []string
}

// Carrier is a request as a gate sees it.
type Carrier struct {
	Peer      string      // address of the connection's other end, with or without port (http.Request.RemoteAddr)
	Forwarded []string    // the X-Forwarded-For lines
	Header    HeaderLines // the request's headers; cookies are found in its Cookie lines
}

// FromCarrier derives the identity of a request at a gate: a field is its header, else its cookie. The strings may alias
// those of c.
func (x *Identifier) FromCarrier(c *Carrier) (id Identity, missing Missing) {
	if x.addressKind == addressXForwardedFor {
		id.IP, missing[FieldIP] = x.trusted.client(c.Peer, newChain(c.Forwarded))
	} else {
		id.IP, missing[FieldIP] = x.told(c.Peer, c.Header.Values(x.addressHeader))
	}
	for f := FieldDevice; f < NumFields; f++ {
		src := &x.sources[f]
		var v fieldValue
		if src.Header != "" {
			v.header(c.Header.Values(src.Header))
		}
		if v.absent() && src.Cookie != "" {
			v.cookie(c.Header.Values("Cookie"), src.Cookie)
		}
		missing[f] = v.store(&id, f, src)
	}
	return id, missing
}

// FromEvent derives the identity of an event. A field is the event's own member, else the reported header, else the
// cookie in the reported Cookie header. A member that is the client's own claim comes last, and never fills a field that
// the gateway vouches for. The strings may alias those of r.
func (x *Identifier) FromEvent(r *Request) (id Identity, missing Missing) {
	if x.addressKind == addressXForwardedFor {
		id.IP, missing[FieldIP] = x.trusted.client(r.IP, chainOf(r.Forwarded))
	} else {
		var room [4]string
		id.IP, missing[FieldIP] = x.told(r.IP, reportedLines(r.Headers, x.addressHeader, room[:0]))
	}
	for f := FieldDevice; f < NumFields; f++ {
		src := &x.sources[f]
		if x.asIs {
			missing[f] = r.fieldAsIs(&id, f, src)
			continue
		}
		var v fieldValue
		own, claimed := trimBlank(r.Field(f)), r.Claimed.Has(f)
		if !claimed {
			v.value = own
		}
		if v.absent() && src.Header != "" {
			v.reported(r.Headers, src.Header)
		}
		if v.absent() && src.Cookie != "" {
			v.reportedCookie(r.Headers, src.Cookie)
		}
		if v.absent() && claimed && own != "" {
			v.value, v.claimed = own, true
		}
		missing[f] = v.store(&id, f, src)
	}
	return id, missing
}

// fieldValue is the value of one field as a request has it, before it is known whether it is taken.
type fieldValue struct {
	value      string
	repeated   bool // by several lines of its header
	fromCookie bool
	claimed    bool // by the client, in a member of a log that no gateway answers for
}

func (v *fieldValue) absent() bool { return v.value == "" && !v.repeated }

// header takes the lines of a header. Of several, servers take the first, the last, or all with commas between: whose
// request it is depends on who reads it, so it is nobody's.
func (v *fieldValue) header(lines []string) {
	if v.repeated = len(lines) > 1; len(lines) == 1 {
		v.value = trimBlank(lines[0])
	}
}

// reported is header for the headers of an event.
func (v *fieldValue) reported(headers []Header, name string) {
	found := 0
	for i := range headers {
		if strings.EqualFold(headers[i].Name, name) {
			v.value = trimBlank(headers[i].Value)
			found++
		}
	}
	v.repeated = found > 1
}

// cookie takes the first cookie of that name in all lines, which are one list (RFC 9113, section 8.2.3), as most servers
// do. If that cookie has no value, the field is absent, though a later cookie of the name may have one.
func (v *fieldValue) cookie(lines []string, name string) {
	for _, line := range lines {
		if value, found := cookie(line, name); found {
			v.value, v.fromCookie = value, true
			return
		}
	}
}

// reportedCookie is cookie for the headers of an event.
func (v *fieldValue) reportedCookie(headers []Header, name string) {
	for i := range headers {
		if strings.EqualFold(headers[i].Name, "Cookie") {
			if value, found := cookie(headers[i].Value, name); found {
				v.value, v.fromCookie = value, true
				return
			}
		}
	}
}

// store puts the field into id, or says why it is missing.
func (v *fieldValue) store(id *Identity, f Field, src *FieldSource) MissingReason {
	switch {
	case src.Header == "" && src.Cookie == "":
		return MissingNoSource
	case v.repeated || src.Vouched && v.joined(src):
		return MissingRepeated
	case v.value == "":
		return MissingAbsent
	case v.claimed && src.Vouched:
		return MissingClaimed
	}
	id.set(f, readable(v.value))
	return Present
}

// joined reports whether the value may be several lines of a header that a gateway has written as one. It is asked where
// the gateway vouches for the field: there a comma is no part of a value unless the map says so, and a client that adds a
// line must not become somebody else. A field that nobody vouches for takes the value as it stands: User-Agent has commas,
// and who adds a line there could as well have changed the first.
func (v *fieldValue) joined(src *FieldSource) bool {
	return src.Header != "" && !src.Commas && !v.fromCookie && strings.IndexByte(v.value, ',') >= 0
}

// Field is the event's own member for the identity's field f, empty for none and for ip, which is not taken as it stands.
func (r *Request) Field(f Field) string {
	switch f {
	case FieldDevice:
		return r.Device
	case FieldUser:
		return r.User
	case FieldAPIKey:
		return r.APIKey
	case FieldSession:
		return r.Session
	}
	return ""
}

// cookie is the value of the first cookie of that name in a Cookie header (RFC 6265, section 4.2), without the double
// quotes that may stand around it. Names are compared with case. It is our own reading, at the gate too: net/http drops
// cookies with bytes that it finds odd, and a client could be somebody else there than in its events.
func cookie(line, name string) (value string, found bool) {
	for line != "" {
		part := line
		if semicolon := strings.IndexByte(line, ';'); semicolon >= 0 {
			part, line = line[:semicolon], line[semicolon+1:]
		} else {
			line = ""
		}
		key, value, ok := strings.Cut(part, "=")
		if ok && trimBlank(key) == name {
			return unquoted(trimBlank(value)), true
		}
	}
	return "", false
}

// unquoted is a cookie's value without the double quotes around it.
func unquoted(value string) string {
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		return value[1 : len(value)-1]
	}
	return value
}

// Headers are the names of the request headers that FromCarrier looks at, as http.Header spells them: what a gate has to
// be told of a request beside its addresses.
func (x *Identifier) Headers() []string {
	var names []string
	if x.addressHeader != "" {
		names = append(names, x.addressHeader)
	}
	cookies := false
	for f := FieldDevice; f < NumFields; f++ {
		if name := x.sources[f].Header; name != "" {
			names = append(names, name)
		}
		cookies = cookies || x.sources[f].Cookie != ""
	}
	if cookies {
		names = append(names, "Cookie")
	}
	return names
}
