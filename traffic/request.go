// Package traffic has the request as gateways report it (Request), the identity that the identity map derives from it
// (IdentityMap, Identifier), and the canonical text of the values that a rule counts by (Subject). How events are written is
// traffic/format. Nothing in either knows Kafka, rules or windows.
package traffic

import "net/netip"

// Request is one request as a gateway reported it. Strings hold the bytes that the gateway sent, NUL and invalid
// UTF-8 included. The zero value of a field means that the event did not carry it.
//
// Strings and Attrs may alias the buffer that was decoded: a Request is valid only as long as that buffer.
type Request struct {
	Time      Time
	HasTime   bool
	ID        string // the gateway's request id
	IP        string // the peer address as the gateway saw it, unparsed
	Forwarded string // X-Forwarded-For as received, unparsed
	Device    string
	User      string
	APIKey    string
	Session   string
	Claimed   FieldSet // those of the four fields above that are the client's own claim, not the gateway's word
	Method    string
	Host      string
	Path      string // without query
	Route     string // the gateway's own name for the route
	Status    int
	UserAgent string
	LatencyUS int64 // microseconds
	Bytes     int64
	Plan      string
	Attrs     []byte   // raw JSON, any value; nil when absent
	Headers   []Header // request headers that the gateway chose to report
	Gateway   string
	Verdict   Verdict // set when weir itself answered this request

	// Control is set by EndMark only: the record closes its source partition.
	Control string

	// UnknownFields counts the top-level members that the format does not define. They are ignored.
	UnknownFields int
}

// Header is one reported request header. Names are compared without case.
type Header struct{ Name, Value string }

// Verdict names the rule and the block with which weir refused a request.
type Verdict struct{ Rule, Block string }

// Refused reports whether weir itself answered the request. Such a request never feeds a window, else a busy client
// would stay blocked for ever.
func (v Verdict) Refused() bool { return v.Rule != "" || v.Block != "" }

// Identity holds the parts of a request's origin, as the identity map derived them. The zero value of a field means:
// missing.
type Identity struct {
	IP      netip.Addr // unmapped, without zone, not yet cut to a prefix
	Device  string
	User    string
	APIKey  string
	Session string
}

// Field names a part of an identity that a rule may be keyed on.
type Field uint8

// The fields, in the order in which a Subject writes them.
const (
	FieldIP Field = iota
	FieldDevice
	FieldUser
	FieldAPIKey
	FieldSession
	NumFields // of an identity
)

// The fields of an event beside its identity by which a rule may count.
const (
	FieldHost Field = NumFields + iota
	FieldMethod
	FieldRoute
	FieldPlan
	FieldUserAgent
	FieldPath     // as the client sent it, up to the first '?'
	FieldParam    // a {param} of the rule's path; KeyField.Name names it
	FieldAttr     // a value within attrs; KeyField.Name is its path without "attrs."
	FieldFallback // the first of several fields that the event has; KeyField.Name lists them
)

// FieldSet is a set of fields.
type FieldSet uint8

// Has reports whether f is in the set.
func (s FieldSet) Has(f Field) bool { return s&(1<<f) != 0 }

// With is the set with f in it.
func (s FieldSet) With(f Field) FieldSet { return s | 1<<f }

// KeyField is one field of a rule's key. V4 and V6 are the prefix lengths that an address is cut to; they are zero for
// every field but ip, and fallbacks on it.
type KeyField struct {
	Field Field `json:"field"`
	V4    uint8 `json:"v4,omitempty"`
	V6    uint8 `json:"v6,omitempty"`
	// Name is empty but for FieldParam, FieldAttr and FieldFallback.
	Name string `json:"name,omitempty" mask:"-"`
}

// TokenByte reports whether c is a tchar of RFC 9110, section 5.6.2: what methods and header names are made of.
func TokenByte(c byte) bool {
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		return true
	}
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
