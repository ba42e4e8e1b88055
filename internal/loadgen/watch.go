package loadgen

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// What a rule counts is decided here once more, from the documented meaning of rules (docs/rules.md), not by the code
// that is judged.

// watches reports whether a rule with this match counts the request.
func watches(m *rules.Match, c *Call) bool {
	byMethod := len(m.Methods) == 0
	for _, method := range m.Methods {
		byMethod = byMethod || strings.EqualFold(method, c.Method)
	}
	if byMethod && watchesPath(m.Path, c.Path) {
		return true
	}
	// A load's paths are ordinary ones: of their spellings only a slash at the end occurs.
	shorter, slash := strings.CutSuffix(c.Path, "/")
	return byMethod && slash && watchesPath(m.Path, shorter)
}

func watchesPath(pattern, path string) bool {
	if pattern == "" {
		return true
	}
	pattern, open := strings.CutSuffix(pattern, "*")
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(got) < len(want) || !open && len(got) > len(want) {
		return false
	}
	for i, w := range want {
		last := i == len(want)-1
		param := strings.HasPrefix(w, "{") && strings.HasSuffix(w, "}") || w == "*"
		end, ended := strings.CutPrefix(w, "*") // *.php, of the last one
		switch {
		case param && got[i] == "":
			return false
		case param, w == got[i]:
		case open && last && strings.HasPrefix(got[i], w):
		case ended && last && strings.HasSuffix(got[i], end):
		default:
			return false
		}
	}
	return true
}

// source is one source of a rule as an event names it.
type source struct {
	subject string // as history writes it
	fed     bool   // the event counts there
	own     bool   // nobody but this load feeds it
}

// sourceOf says which source of the rule the event belongs to.
func sourceOf(v *rules.Version, e *Event, identities *traffic.IdentityMap) source {
	s := source{fed: true}
	var b strings.Builder
	for f := traffic.FieldIP; f < traffic.NumFields; f++ {
		for _, k := range v.Key {
			if k.Field != f {
				continue
			}
			if b.Len() > 0 {
				b.WriteByte('&')
			}
			value, own := valueOf(k, e, identities)
			b.WriteString(f.String())
			s.own = s.own || own
			if value != "" {
				b.WriteByte('=')
				percent(&b, value)
			} else if v.Missing != rules.MissingGroup {
				s.fed = false
			}
		}
	}
	s.subject = b.String()
	return s
}

// valueOf is the event's value of a key's field, and whether only this load has it.
func valueOf(k traffic.KeyField, e *Event, identities *traffic.IdentityMap) (value string, own bool) {
	switch k.Field {
	case traffic.FieldIP:
		bits, net := int(k.V4), netip.MustParsePrefix(ipv4Net)
		if e.IP.Is6() {
			bits, net = int(k.V6), netip.MustParsePrefix(ipv6Net)
		}
		p, err := e.IP.Prefix(bits)
		if err != nil {
			return "", false
		}
		return p.Addr().String() + "/" + strconv.Itoa(bits), bits >= net.Bits()
	case traffic.FieldDevice:
		value = e.Device
	case traffic.FieldUser:
		value = e.User
	case traffic.FieldSession:
		value = e.Session
	}
	if value == "" || !identities.Carries(k.Field) {
		return "", false
	}
	return value, true
}

// countedOf is the value of the event that a rule counts distinct ones of, empty where it counts events, and whether the
// event carries what the rule counts. A load's events carry no numbers, so nothing of them adds up.
func countedOf(c *rules.Count, e *Event, identities *traffic.IdentityMap) (value string, carried bool) {
	switch {
	case c.Sum != "":
		return "", false
	case c.Distinct == nil:
		return "", true
	}
	value, _ = valueOf(*c.Distinct, e, identities)
	return value, value != ""
}

// percent writes s with every byte outside of RFC 3986's unreserved set percent-encoded.
func percent(b *strings.Builder, s string) {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		c := s[i]
		plain := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("-._~", c) >= 0
		if plain {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
}
