package exactness

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/oracle"
)

// Routing is the verdict over the keyed log.
type Routing struct {
	Verdict
	Requests int // events in requests
	Records  int // event records in the keyed log
	Accepted int // of these, those that the fence lets pass; the others repeat them
}

// JudgeRouting compares the keyed log after the fence with an independent routing of the requests, event by event, and
// what the fence has dropped with what it repeats. At least one rule must match every event.
func (l *Logs) JudgeRouting() Routing {
	j := routingJudge{l: l}
	if l.holes > 0 {
		j.wrong("%d records name a predecessor that never came", l.holes)
	}
	for q, records := range l.fenced {
		queues := make([][]oracle.Keyed, len(l.source))
		for _, k := range records {
			if k.Source >= len(queues) {
				j.Extra++
				continue
			}
			queues[k.Source] = append(queues[k.Source], k)
		}
		j.queues = append(j.queues, queues)
		j.Records += len(l.keyed[q])
		j.Accepted += len(records)
		j.compareRepeats(q)
	}
	for p, events := range l.source {
		j.Requests += len(events)
		version := int64(0)
		for o := range events {
			version = j.event(p, int64(o), &events[o], version)
		}
	}
	for _, queues := range j.queues {
		for _, queue := range queues {
			j.Extra += len(queue) // of requests that do not exist
		}
	}
	return j.Routing
}

type routingJudge struct {
	Routing
	l      *Logs
	queues [][][]oracle.Keyed // by keyed partition and source, what no event has claimed yet; ascending, as the fence has it
}

// compareRepeats holds that a record that comes twice is the same record: a successor routes what was announced under the
// version that it was announced with, unless weir has told that this one is lost.
func (j *routingJudge) compareRepeats(q int) {
	for _, k := range j.l.keyed[q] {
		if k.Source >= len(j.l.source) {
			continue
		}
		at, found := slices.BinarySearchFunc(j.queues[q][k.Source], k.Offset, func(a oracle.Keyed, offset int64) int { return int(a.Offset - offset) })
		if !found {
			continue // it came out of order, and will be missed
		}
		first := j.queues[q][k.Source][at]
		if first.Version != k.Version && j.l.lost[versionOn{first.Version, q}] {
			continue // nobody can route by a version that is lost, and who counts has the first record, which says so
		}
		if first.Version != k.Version || first.Time != k.Time || first.Prev != k.Prev || !slices.Equal(first.Rules, k.Rules) || !slices.Equal(first.Tiers, k.Tiers) {
			j.wrong("source %d offset %d on keyed %d came as %+v and as %+v", k.Source, k.Offset, q, first, k)
		}
	}
}

// event claims the records of one event and compares them. It returns the version that the event was routed under.
func (j *routingJudge) event(p int, o int64, e *Event, before int64) int64 {
	got, version := map[int]oracle.Keyed{}, int64(-1)
	for q := range j.queues {
		queue := j.queues[q][p]
		for len(queue) > 0 && queue[0].Offset < o {
			j.Extra++ // of an event that should not be here, which has gone by
			queue = queue[1:]
		}
		if len(queue) > 0 && queue[0].Offset == o {
			if version >= 0 && version != queue[0].Version {
				j.wrong("source %d offset %d was routed under versions %d and %d", p, o, version, queue[0].Version)
			}
			got[q], version = queue[0], queue[0].Version
			queue = queue[1:]
		}
		j.queues[q][p] = queue
	}
	if len(got) == 0 {
		j.Lost++
		j.wrong("source %d offset %d (%s) was never routed", p, o, e.ID)
		return before
	}
	if version < before {
		j.wrong("source %d offset %d: version went back from %d to %d", p, o, before, version)
	}
	for q, rules := range j.l.route(e, version) {
		k, ok := got[q]
		delete(got, q)
		if !ok {
			j.Lost++
			j.wrong("source %d offset %d (%s) is missing on keyed %d", p, o, e.ID, q)
			continue
		}
		j.compare(q, e, &k, rules, j.l.tiers(e, version, rules))
	}
	j.Extra += len(got)
	return version
}

func (j *routingJudge) compare(q int, e *Event, k *oracle.Keyed, rules, tiers []int) {
	at, err := e.micros()
	switch {
	case err != nil:
		j.wrong("%v", err)
	case !slices.Equal(k.Rules, rules):
		j.wrong("source %d offset %d on keyed %d: rules %v, want %v", k.Source, k.Offset, q, k.Rules, rules)
	case !slices.Equal(k.Tiers, tiers):
		j.wrong("source %d offset %d on keyed %d: tiers %v, want %v", k.Source, k.Offset, q, k.Tiers, tiers)
	case k.Time != at:
		j.wrong("source %d offset %d: time %d, want %d", k.Source, k.Offset, k.Time, at)
	case k.Device != e.Device || k.User != e.User || k.IP.String() != e.IP:
		j.wrong("source %d offset %d: identity %+v of event %+v", k.Source, k.Offset, *k, *e)
	}
}

// route says which rules of a version an event feeds, per keyed partition.
func (l *Logs) route(e *Event, version int64) map[int][]int {
	out := map[int][]int{}
	rules := l.routings[version].Rules
	for i := range rules {
		r := &rules[i]
		if !r.watches(e) || l.allowed(e, version, r) {
			continue
		}
		q := oracle.Dimension(l.secret, r.Key[0].Field, e.value(r.Key[0].Field), len(l.keyed))
		out[q] = append(out[q], i)
	}
	return out
}

// tiers says by which limit an event is judged under each of rules; none where it is each rule's own.
func (l *Logs) tiers(e *Event, version int64, rules []int) []int {
	out, any := make([]int, len(rules)), false
	for i, at := range rules {
		for n, t := range l.routings[version].Rules[at].Tiers {
			if device, ok := strings.CutPrefix(t.When, "event.device == "); !ok || device != strconv.Quote(e.Device) {
				continue
			}
			out[i], any = n+1, true
			break
		}
	}
	if !any {
		return nil
	}
	return out
}

// allowed reports whether a list that the rule names lets the event's address pass at its time.
func (l *Logs) allowed(e *Event, version int64, r *rule) bool {
	at, _ := time.Parse(time.RFC3339Nano, e.Time) // compare tells of one that is none
	for _, list := range l.routings[version].Allow {
		if !slices.Contains(r.Allow, list.ID) {
			continue
		}
		for _, entry := range list.Entries {
			if entry.Kind == "cidr" && entry.Value == e.IP+"/32" && (entry.Until.IsZero() || at.Before(entry.Until)) {
				return true
			}
		}
	}
	return false
}

// watches reports whether the rule matches the event and finds its key in it.
func (r *rule) watches(e *Event) bool {
	if len(r.Match.Methods) > 0 && !slices.Contains(r.Match.Methods, e.Method) {
		return false
	}
	prefix, wild := strings.CutSuffix(r.Match.Path, "*")
	if wild && !strings.HasPrefix(e.Path, prefix) || !wild && prefix != "" && e.Path != prefix {
		return false
	}
	for _, k := range r.Key {
		if e.value(k.Field) == "" {
			return false
		}
	}
	return true
}

// subject is the published text of a rule's key; the load's values need no percent-encoding but for the prefix of an
// address.
func (r *rule) subject(ip netip.Addr, device, user string) string {
	var parts []string
	for _, field := range [...]string{"ip", "device", "user"} { // the order of every subject
		for _, k := range r.Key {
			if k.Field != field {
				continue
			}
			switch field {
			case "ip":
				parts = append(parts, "ip="+ip.String()+"%2F32")
			case "device":
				parts = append(parts, "device="+device)
			default:
				parts = append(parts, "user="+user)
			}
		}
	}
	return strings.Join(parts, "&")
}
