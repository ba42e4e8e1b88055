package simulation

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/simulation/judge"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

const (
	namespace     = "sim"
	requestsTopic = "sim.requests"
	hitsTopic     = "sim.hits"
	generation    = 7

	lively  = 45 * time.Second // events come, and things go wrong, for so long
	stall   = 14 * time.Second // after so much stall clock a source partition is not waited for
	blockOn = "a"              // the rule that blocks all the time
)

// secret is the deployment's.
func secret() [16]byte { return [16]byte{9, 8, 7} }

// routingOf is one of the versions that a world publishes. Odd and even ones differ in the key of a rule, later ones have
// more rules: so an event under another version has other records.
func routingOf(number int64) *rules.Routing {
	rule := func(id string, lineage, limit int, window, lateness time.Duration, fields ...traffic.Field) rules.Version {
		var key []traffic.KeyField
		for _, f := range fields {
			k := traffic.KeyField{Field: f}
			if f == traffic.FieldIP {
				k.V4, k.V6 = 32, 64
			}
			key = append(key, k)
		}
		v := rules.Version{Number: lineage, Lineage: lineage, Document: rules.Document{
			ID: id, Owner: "team", Key: key, Missing: rules.MissingSkip, Limit: limit, Window: window, Lateness: lateness,
			MaxLag: rules.DefaultMaxLag,
		}}
		return v
	}
	blocks := func(v rules.Version, ttl time.Duration, extend rules.Extend) rules.Version {
		v.Block = &rules.Block{Key: v.Key, TTL: ttl, Extend: extend}
		return v
	}
	list := []rules.Version{blocks(rule(blockOn, 1, 2, 8*time.Second, 3*time.Second, traffic.FieldIP), 20*time.Second, rules.ExtendOnHit)}
	if number%2 == 1 {
		list = append(list, blocks(rule("d", 1, 1, 10*time.Second, time.Second, traffic.FieldDevice, traffic.FieldIP), 15*time.Second, rules.ExtendNever))
	} else {
		list = append(list, blocks(rule("d", 2, 2, 6*time.Second, 4*time.Second, traffic.FieldUser), 15*time.Second, rules.ExtendNever))
	}
	if number >= 3 {
		e := rule("e", 1, 3, 5*time.Second, 2*time.Second, traffic.FieldDevice)
		e.Missing = rules.MissingGroup
		list = append(list, e, rule("z", 1, 6, 4*time.Second, time.Second))
	}
	return &rules.Routing{
		Stream: string(ingest.Live), Number: number, RecordFormat: detectors.RecordFormat, SecretID: "s", Rules: list,
		Identity: traffic.DefaultIdentityMap(), Format: rules.Format{Name: format.Weir, MaxEventBytes: 1 << 16},
	}
}

// maxVersions is how many routing versions a world publishes at most.
const maxVersions = 8

// asJudged are the rules of a version, as the judge is told.
func asJudged(r *rules.Routing) []judge.Rule {
	var out []judge.Rule
	for i := range r.Rules {
		v := &r.Rules[i]
		var key []string
		for _, k := range v.Key {
			key = append(key, k.Field.String())
		}
		out = append(out, judge.Rule{
			ID: v.ID, Lineage: v.Lineage, Key: key, Group: v.Missing == rules.MissingGroup, Limit: v.Limit, Window: v.Window.Microseconds(), Lateness: v.Lateness.Microseconds(),
		})
	}
	return out
}

// events makes a source partition's log: bursts, pauses, late events, clocks that are wrong, events that cannot be read.
// A quiet one is silent for longer than what the clock of an idle partition stays behind, and then has old events.
func events(d *dice, begin, end traffic.Time, quiet bool) []judge.Event {
	rate := []time.Duration{900, 1500, 3000}[d.below(3)] * time.Millisecond
	if end > begin.Add(lively) {
		rate *= 2
	}
	name := func(kind string, n int) string { return fmt.Sprintf("%s%d", kind, 1+d.below(n)) }
	var log []judge.Event
	silence := begin.Add(d.span(2*time.Second, 5*time.Second))
	for at := begin; ; {
		at = at.Add(d.pause(rate))
		if d.below(60) == 0 {
			at = at.Add(d.span(0, 15*time.Second))
		}
		old := quiet && at > silence
		if old {
			at = max(at, end.Add(-d.span(3*time.Second, 6*time.Second)))
		}
		if at > end {
			return log
		}
		e := judge.Event{
			Appended: int64(at), Time: int64(at.Add(-d.span(0, 20*time.Millisecond))),
			IP: name("192.0.2.", 4), Device: name("tv-", 3), User: name("u", 3),
		}
		switch x := d.below(100); {
		case old:
			e.Time = int64(at.Add(-d.span(50*time.Second, 15*time.Second)))
		case x < 6:
			e.Time = int64(at.Add(-d.span(0, 4*time.Second)))
		case x < 10:
			e.Time = int64(at.Add(-d.span(0, 40*time.Second)))
		case x < 12:
			e.Time = int64(at.Add(d.span(0, 10*time.Second))) // beyond 5 s it is corrected
		case x < 14:
			e.Malformed = true
		case x < 17:
			e.Refused = true
		case x < 22:
			e.Device, e.User = "", ""
		}
		log = append(log, e)
	}
}

// encode is an event as a gateway writes it.
func encode(e *judge.Event) []byte {
	if e.Malformed || e.Control {
		return []byte(`{"v":1,`)
	}
	m := map[string]any{"v": 1, "time": traffic.Time(e.Time).String(), "ip": e.IP, "method": "GET", "path": "/v1/x"}
	if e.Device != "" {
		m["device"] = e.Device
	}
	if e.User != "" {
		m["user"] = e.User
	}
	if e.Refused {
		m["verdict"] = map[string]string{"rule": judge.RefusedRule, "block": judge.RefusedBlock}
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // a map of strings and numbers
	}
	return b
}

// modesOf is the history of the rules' modes: one blocks all the time, one is promoted and demoted, the others watch.
func modesOf(d *dice, begin traffic.Time) []judge.Mode {
	list := []judge.Mode{{Rule: blockOn, Generation: 1, Blocks: true}, {Rule: "d", Generation: 1}}
	at := begin
	for g := int64(2); g < 12; g++ {
		at = at.Add(d.span(500*time.Millisecond, []time.Duration{4 * time.Second, 15 * time.Second}[d.below(2)]))
		list = append(list, judge.Mode{From: int64(at), Rule: "d", Generation: g, Blocks: g%2 == 0})
	}
	return list
}

// modesNow is what the rule store answers.
func (w *world) modesNow() []rules.ModeState {
	states := map[string]rules.ModeState{}
	var order []string
	for _, m := range w.modes {
		if m.From <= int64(now()) {
			mode := rules.ModeShadow
			if m.Blocks {
				mode = rules.ModeBlock
			}
			if _, known := states[m.Rule]; !known {
				order = append(order, m.Rule)
			}
			states[m.Rule] = rules.ModeState{Rule: m.Rule, Mode: mode, Generation: m.Generation}
		}
	}
	out := make([]rules.ModeState, len(order))
	for i, rule := range order {
		out[i] = states[rule]
	}
	return out
}
