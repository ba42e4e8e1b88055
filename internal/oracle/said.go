package oracle

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Said is one event, as its JSON says it: what a rule of any key finds in it.
type Said struct {
	IP     string         `json:"ip,omitempty"`
	Fields map[string]any `json:"-"` // device, user, api_key, session, method, host, path, route, plan, user_agent, bytes, latency_ms, attrs
}

// JSON is the event's members, without braces.
func (s *Said) JSON() string {
	all := map[string]any{}
	for name, value := range s.Fields {
		all[name] = value
	}
	if s.IP != "" {
		all["ip"] = s.IP
	}
	text, err := json.Marshal(all)
	if err != nil {
		return ""
	}
	return string(text[1 : len(text)-1])
}

// Value is the event's value of a field under a rule's path, by the published reading; "" where it has none. Values are plain
// text of ordinary length, and paths are spelled plainly.
func (s *Said) Value(field, pattern string) string {
	text := func(name string) string {
		v, _ := s.Fields[name].(string)
		return v
	}
	switch {
	case field == "ip":
		a, err := netip.ParseAddr(s.IP)
		if err != nil {
			return ""
		}
		bits := 64
		if a.Is4() {
			bits = 32
		}
		p, _ := a.Prefix(bits)
		return p.String()
	case field == "host":
		host, _, _ := strings.Cut(text("host"), ":")
		return strings.ToLower(strings.TrimSuffix(host, "."))
	case field == "method":
		return strings.ToUpper(text("method"))
	case field == "path":
		path, _, _ := strings.Cut(text("path"), "?")
		return path
	case strings.HasPrefix(field, "{"):
		path, _, _ := strings.Cut(text("path"), "?")
		at := slices.Index(strings.Split(pattern, "/"), field)
		if parts := strings.Split(path, "/"); at >= 0 && at < len(parts) {
			value, err := url.PathUnescape(parts[at])
			if err == nil {
				return value
			}
		}
		return ""
	case strings.HasPrefix(field, "attrs."):
		at := s.Fields["attrs"]
		for _, name := range strings.Split(field, ".")[1:] {
			members, ok := at.(map[string]any)
			if !ok {
				return ""
			}
			at = members[name]
		}
		switch v := at.(type) {
		case string:
			return v
		case bool, json.Number, int, float64:
			plain, _ := json.Marshal(v)
			return string(plain)
		}
		return ""
	}
	return text(field)
}

// SubjectOf names the source of an event under a key of any fields, "" where one of them is missing. Of alternatives a|b the first
// that the event has stands, under its own name. Identities come first, in the order of the reference, then all others by name.
func (s *Said) SubjectOf(key []string, pattern string) string {
	identities := []string{"ip", "device", "user", "api_key", "session"}
	var names []string
	for _, element := range key {
		present := ""
		for _, name := range strings.Split(element, "|") {
			if present == "" && s.Value(name, pattern) != "" {
				present = name
			}
		}
		if present == "" {
			return ""
		}
		names = append(names, present)
	}
	rank := func(name string) int {
		if at := slices.Index(identities, name); at >= 0 {
			return at
		}
		return len(identities)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, escape(name)+"="+escape(s.Value(name, pattern)))
	}
	return strings.Join(parts, "&")
}
