package traffic

// IdentityMap says where each identity comes from. It is part of the configuration and of every routing version; event
// adapters and gate compile the same map, so both derive the same Identity from the same request.
type IdentityMap struct {
	IP      IPSource    `json:"ip" yaml:"ip"`
	Device  FieldSource `json:"device" yaml:"device"`
	User    FieldSource `json:"user" yaml:"user"`
	APIKey  FieldSource `json:"api_key" yaml:"api_key"`
	Session FieldSource `json:"session" yaml:"session"`
}

// IPSource says how the client address is found.
type IPSource struct {
	// TrustedProxies is which proxies in front of the gateway append to X-Forwarded-For. None (the default) takes the
	// connection's peer. With prefixes, the peer and then the chain are read from the right, up to the first address that
	// is none of theirs. A number n takes the n-th entry of the chain from the right, whoever wrote it. A chain that ends
	// before leaves the ip missing.
	TrustedProxies TrustedProxies `json:"trusted_proxies" yaml:"trusted_proxies"`
	// V4 and V6 are the prefix lengths that make one source; defaults 32 and 64.
	V4 uint8 `json:"v4" yaml:"v4"`
	V6 uint8 `json:"v6" yaml:"v6"`
	// Claimed marks the address as not vouched for by the gateway. The default, false, trusts the connection.
	Claimed bool `json:"claimed" yaml:"claimed"`
}

// FieldSource says where one identity field is found. In a request at the gate it is Header or Cookie; in an event it
// is the event's own member of that name, else the reported header. A field without any source is always missing.
type FieldSource struct {
	Header  string `json:"header,omitempty" yaml:"header"`
	Cookie  string `json:"cookie,omitempty" yaml:"cookie"`
	Vouched bool   `json:"vouched" yaml:"vouched"` // whether the gateway vouches for it; default false: claimed
	// Commas says that values of the header have commas. Without it, a comma in a vouched header reads as several lines
	// that a gateway has written as one, and the field is missing.
	Commas bool `json:"commas,omitempty" yaml:"commas"`
}

// DefaultIdentityMap takes ip from the connection and the other fields from the event's own members; at a gate they
// come from the X-Device-Id, X-User-Id, X-Api-Key and X-Session-Id headers. All but ip are claimed.
func DefaultIdentityMap() IdentityMap {
	return IdentityMap{
		IP:      IPSource{V4: 32, V6: 64},
		Device:  FieldSource{Header: "X-Device-Id"},
		User:    FieldSource{Header: "X-User-Id"},
		APIKey:  FieldSource{Header: "X-Api-Key"},
		Session: FieldSource{Header: "X-Session-Id"},
	}
}

// Vouched reports whether the gateway vouches for field f.
func (m *IdentityMap) Vouched(f Field) bool {
	switch f {
	case FieldIP:
		return !m.IP.Claimed
	case FieldDevice:
		return m.Device.Vouched
	case FieldUser:
		return m.User.Vouched
	case FieldAPIKey:
		return m.APIKey.Vouched
	case FieldSession:
		return m.Session.Vouched
	}
	return false
}

// Equal reports whether m and o derive the same identities in the same words.
func (m *IdentityMap) Equal(o *IdentityMap) bool {
	return m.IP.TrustedProxies.Equal(o.IP.TrustedProxies) && m.IP.V4 == o.IP.V4 && m.IP.V6 == o.IP.V6 && m.IP.Claimed == o.IP.Claimed &&
		m.Device == o.Device && m.User == o.User && m.APIKey == o.APIKey && m.Session == o.Session
}
