package oracle

import (
	"fmt"
	"net/netip"
	"strings"
)

// Rule is a rule of the plainest kind, as the truth of a demo needs it: one method, one path, a key of address and
// device.
type Rule struct {
	ID     string
	Method string
	Path   string // a trailing * stands for whatever follows
	Device bool   // the key is [ip, device]; else [ip]
	Limit  int
	Window int64 // in the unit of Request.Time
	TTL    int64 // of a block
}

// Request is one request as a gateway has stamped it.
type Request struct {
	Time         int64
	Client       netip.Addr
	Device       string
	Method, Path string
	Refused      bool // by weir itself: it feeds no window
}

// Watches reports whether the rule counts requests of this method and path.
func (r *Rule) Watches(method, path string) bool {
	if prefix, open := strings.CutSuffix(r.Path, "*"); open {
		return method == r.Method && strings.HasPrefix(path, prefix)
	}
	return method == r.Method && path == r.Path
}

// Subject names the source of a request by the published rule: an IPv4 address counts whole, an IPv6 address by its
// /64; every byte of a value outside RFC 3986's unreserved set is percent-encoded. "" where a field of the key is
// missing.
func (r *Rule) Subject(client netip.Addr, device string) string {
	client = client.Unmap().WithZone("")
	if !client.IsValid() || r.Device && device == "" {
		return ""
	}
	bits := 32
	if client.Is6() {
		bits = 64
	}
	source, err := client.Prefix(bits)
	if err != nil {
		return ""
	}
	subject := "ip=" + escape(source.String())
	if r.Device {
		subject += "&device=" + escape(device)
	}
	return subject
}

func escape(value string) string {
	var b strings.Builder
	for i := range len(value) {
		c := value[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Over gives the episodes of every source that goes over the rule, by subject. Only requests that were not refused
// count.
func (r *Rule) Over(requests []Request) map[string][]Episode {
	const never = int64(1) << 62 // what a demo sees is shorter than what makes weir cut an episode
	events := map[string][]Event{}
	for i, q := range requests {
		if q.Refused || !r.Watches(q.Method, q.Path) {
			continue
		}
		if s := r.Subject(q.Client, q.Device); s != "" {
			events[s] = append(events[s], Event{Time: q.Time, Offset: int64(i), Limit: r.Limit})
		}
	}
	over := map[string][]Episode{}
	for s, list := range events {
		if episodes := Sliding(list, r.Window, never); len(episodes) > 0 {
			over[s] = episodes
		}
	}
	return over
}
