package story

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/traffic"
)

// stepTimes say when an event happens and comes, and how often.
type stepTimes struct {
	at, comes, every time.Duration
	times            int64
	partition        int
}

func (p *parser) stepFields(t *stepTimes) []field {
	most := int64(maxSteps)
	if p.tested != "" {
		most = int64(max(p.room-len(p.s.Steps), 1)) // all tests of a file share what there is room for
	}
	fields := []field{
		{"at", func(path string, n yamlnode.Node) { t.at = p.duration(path, n) }},
		{"comes", func(path string, n yamlnode.Node) { t.comes = p.duration(path, n) }},
		{"times", func(path string, n yamlnode.Node) { t.times = p.number(path, n, 1, most) }},
		{"every", func(path string, n yamlnode.Node) { t.every = p.duration(path, n) }},
	}
	if p.tested != "" {
		return fields
	}
	return append(fields, field{"partition", func(path string, n yamlnode.Node) { t.partition = int(p.number(path, n, 0, int64(p.s.Partitions-1))) }})
}

// events reads an event, with what each event has, as often as it comes.
func (p *parser) events(path string, n yamlnode.Node, s Step) []Step {
	t := stepTimes{times: 1}
	s.Request = p.each
	found := p.mapping(path, n, append(p.stepFields(&t), p.eventFields(&s.Request)...))
	s.Partition = t.partition
	p.require(path, n, found, []string{"at"})
	if found["times"] != found["every"] {
		p.add(n.Place(), path, "one of times and every", "both: {at: 1m, times: 3, every: 10s}", "")
	}
	if found["comes"] && t.comes < t.at {
		p.add(n.Place(), path+".comes", duration.Format(t.comes), "a time from "+duration.Format(t.at)+" on, when the event happens", "")
	}
	if !found["times"] && strings.Contains(s.Request.IP, repetition) {
		p.add(n.Place(), path+".ip", short(s.Request.IP), repetition+" only in an event with times", "")
		return nil
	}
	if t.every > 0 && time.Duration(t.times) > longest/t.every {
		p.add(n.Place(), path+".every", "more than 31 days in all", "less", "")
		return nil
	}
	delay := max(t.comes-t.at, 0)
	var steps []Step
	for i := range t.times {
		one := s
		if found["times"] && numbered(&one.Request, i+1) && !validIP(&one.Request) {
			p.add(n.Place(), path+".ip", short(one.Request.IP), "addresses: "+repetition+" is 1 to times", "")
			return nil
		}
		happens := t.at + time.Duration(i)*t.every
		one.At = happens + delay
		one.Request.Time, one.Request.HasTime = Begin.Add(happens), true
		steps = append(steps, one)
	}
	return steps
}

// repetition stands, in texts of an event that is repeated, for the number of the repetition: device: tv-<n> are as many devices.
const repetition = "<n>"

// numbered writes the number of a repetition where it belongs, and reports whether it belongs anywhere.
func numbered(q *traffic.Request, i int64) (any bool) {
	for _, text := range []*string{&q.IP, &q.Device, &q.User, &q.APIKey, &q.Session, &q.Method, &q.Path, &q.Host, &q.Route, &q.Plan, &q.UserAgent} {
		if strings.Contains(*text, repetition) {
			*text, any = strings.ReplaceAll(*text, repetition, strconv.FormatInt(i, 10)), true
		}
	}
	return any
}

// validIP writes the address as events have it, and reports whether it is one, or none.
func validIP(q *traffic.Request) bool {
	if q.IP == "" {
		return true
	}
	ip, err := netip.ParseAddr(q.IP)
	if err != nil || ip.Zone() != "" {
		return false
	}
	q.IP = ip.Unmap().String()
	return true
}

// eventIP is an event's address, which may have the number of the repetition in it.
func (p *parser) eventIP(path string, n yamlnode.Node) string {
	if text := n.Value(); n.Kind() == yamlnode.Text && strings.Contains(text, repetition) {
		q := traffic.Request{IP: text}
		if numbered(&q, 1); !validIP(&q) {
			p.wrong(path, n, "an IP address, which may have "+repetition+" in it")
		}
		return text
	}
	return p.address(path, n).String()
}

// eventFields are those of the documented event that a story may say.
func (p *parser) eventFields(q *traffic.Request) []field {
	text := func(name string, to *string) field {
		return field{name, func(path string, n yamlnode.Node) { *to = p.word(path, n) }}
	}
	return []field{
		{"ip", func(path string, n yamlnode.Node) { q.IP = p.eventIP(path, n) }},
		text("device", &q.Device), text("user", &q.User), text("api_key", &q.APIKey), text("session", &q.Session),
		text("method", &q.Method), text("path", &q.Path), text("host", &q.Host), text("route", &q.Route), text("plan", &q.Plan),
		text("user_agent", &q.UserAgent),
		{"status", func(path string, n yamlnode.Node) { q.Status = int(p.number(path, n, 100, 599)) }},
		{"latency_ms", func(path string, n yamlnode.Node) { q.LatencyUS = 1000 * p.number(path, n, 0, 1<<40) }},
		{"bytes", func(path string, n yamlnode.Node) { q.Bytes = p.number(path, n, 0, 1<<50) }},
		{"attrs", func(path string, n yamlnode.Node) { q.Attrs = p.attrs(path, n) }},
	}
}

// attrs are an event's own members, as JSON.
func (p *parser) attrs(path string, n yamlnode.Node) []byte {
	const allowed = "a mapping of names to values that JSON can say"
	var value map[string]any
	if n.Kind() != yamlnode.Mapping {
		p.wrong(path, n, allowed)
		return nil
	}
	err := n.Decode(&value)
	if err == nil {
		var text []byte
		if text, err = json.Marshal(value); err == nil {
			return text
		}
	}
	p.add(n.Place(), path, "a mapping that cannot be read ("+short(err.Error())+")", allowed, "")
	return nil
}
