package traffic

import (
	"crypto/sha256"
	"strings"
)

// MissingReason says why an identity lacks a field: countable, by its String.
type MissingReason uint8

// The reasons. Only ip can be unparsable, unspecified or have a short chain.
const (
	Present            MissingReason = iota // it is not missing
	MissingAbsent                           // the request does not carry it
	MissingNoSource                         // the identity map has no source for it
	MissingShort                            // the forwarded chain has fewer entries than trusted proxies
	MissingBadIP                            // the text is no address
	MissingUnspecified                      // the address is 0.0.0.0 or ::, which stands for none
	NumMissingReasons
)

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
	}
	return "unknown"
}

// Missing says for each field why it is missing, or Present.
type Missing [NumFields]MissingReason

// Identifier derives identities by one identity map. Events and requests at a gate go through the same derivation, so
// that a block set for the one holds for the other. It may be used by several goroutines.
type Identifier struct {
	trustedProxies int
	sources        [NumFields]FieldSource
}

// Compile validates m and makes its Identifier.
func (m *IdentityMap) Compile() (*Identifier, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	x := &Identifier{trustedProxies: m.IP.TrustedProxies}
	for f := FieldDevice; f < NumFields; f++ {
		x.sources[f] = *m.source(f)
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

// FromCarrier derives the identity of a request at a gate. The strings alias those of c.
func (x *Identifier) FromCarrier(c *Carrier) (id Identity, missing Missing) {
	missing[FieldIP] = x.address(&id, c.Peer, c.Forwarded)
	for f := FieldDevice; f < NumFields; f++ {
		src := &x.sources[f]
		value := ""
		if src.Header != "" {
			value = lastLine(c.Header.Values(src.Header))
		}
		if value == "" && src.Cookie != "" {
			value = lastCookie(c.Header.Values("Cookie"), src.Cookie)
		}
		missing[f] = id.set(f, src, value)
	}
	return id, missing
}

// FromEvent derives the identity of an event. A field is the event's own member, else the reported header, else the
// cookie in the reported Cookie header. The strings alias those of r.
func (x *Identifier) FromEvent(r *Request) (id Identity, missing Missing) {
	var chain []string
	if r.Forwarded != "" {
		chain = []string{r.Forwarded}
	}
	missing[FieldIP] = x.address(&id, r.IP, chain)
	for f := FieldDevice; f < NumFields; f++ {
		src := &x.sources[f]
		value := trimBlank(r.own(f))
		if value == "" && src.Header != "" {
			value = trimBlank(r.reported(src.Header))
		}
		if value == "" && src.Cookie != "" {
			value = r.reportedCookie(src.Cookie)
		}
		missing[f] = id.set(f, src, value)
	}
	return id, missing
}

// address finds the client's address: the peer's, or with trusted proxies in front the entry that the outermost of
// them has written. What lies further left in the chain is the client's own word and is never looked at.
func (x *Identifier) address(id *Identity, peer string, chain []string) MissingReason {
	text := peer
	if x.trustedProxies > 0 {
		entry, ok := chainEntry(chain, x.trustedProxies)
		if !ok {
			return MissingShort
		}
		text = entry
	} else if text == "" {
		return MissingAbsent
	}
	a, ok := parseClient(text)
	switch {
	case !ok:
		return MissingBadIP
	case a.IsUnspecified():
		// A gateway that does not know its client may write so. As an address it would make one source of all of them.
		return MissingUnspecified
	}
	id.IP = a
	return Present
}

// own is the event's own member for field f.
func (r *Request) own(f Field) string {
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

// reported is the last header of that name in the event.
func (r *Request) reported(name string) string {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if strings.EqualFold(r.Headers[i].Name, name) {
			return r.Headers[i].Value
		}
	}
	return ""
}

func (r *Request) reportedCookie(name string) string {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if strings.EqualFold(r.Headers[i].Name, "Cookie") {
			if v := cookie(r.Headers[i].Value, name); v != "" {
				return v
			}
		}
	}
	return ""
}

func lastLine(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return trimBlank(lines[len(lines)-1])
}

func lastCookie(lines []string, name string) string {
	for i := len(lines) - 1; i >= 0; i-- {
		if v := cookie(lines[i], name); v != "" {
			return v
		}
	}
	return ""
}

// cookie is the value of the first cookie of that name in a Cookie header (RFC 6265, section 4.2), without the double
// quotes that may stand around it. Names are compared with case. It is our own reading, at the gate too: net/http drops
// cookies with bytes that it finds odd, and a client could be somebody else there than in its events.
func cookie(line, name string) string {
	for line != "" {
		part := line
		if semicolon := strings.IndexByte(line, ';'); semicolon >= 0 {
			part, line = line[:semicolon], line[semicolon+1:]
		} else {
			line = ""
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok || trimBlank(key) != name {
			continue
		}
		value = trimBlank(value)
		if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		if value != "" {
			return value
		}
	}
	return ""
}

// The bounds of an identity's values: windows and stores keep them whole.
const (
	maxIdentityValue  = 256 // bytes up to which a value stays as it is
	keptIdentityValue = 200 // bytes of a longer one that are kept
	identityDigest    = "~sha256:"
)

// set stores the value of field f. A value above maxIdentityValue becomes its first keptIdentityValue bytes, `~sha256:`
// and the digest of all of it in hex: 272 bytes, longer than any value that is kept whole, so that different values stay
// different.
func (id *Identity) set(f Field, src *FieldSource, value string) MissingReason {
	switch {
	case src.Header == "" && src.Cookie == "":
		return MissingNoSource
	case value == "":
		return MissingAbsent
	}
	if len(value) > maxIdentityValue {
		value = digested(value)
	}
	switch f {
	case FieldDevice:
		id.Device = value
	case FieldUser:
		id.User = value
	case FieldAPIKey:
		id.APIKey = value
	case FieldSession:
		id.Session = value
	}
	return Present
}

func digested(value string) string {
	sum := sha256.Sum256([]byte(value))
	out := make([]byte, 0, keptIdentityValue+len(identityDigest)+2*sha256.Size)
	out = append(out, value[:keptIdentityValue]...)
	out = append(out, identityDigest...)
	for _, c := range sum {
		out = append(out, lowerHex[c>>4], lowerHex[c&15])
	}
	return string(out)
}
