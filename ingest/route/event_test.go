package route

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

const noon traffic.Time = 1_800_000_000_000_000

// routedOptions are options for parts of a router that need no ports.
func routedOptions(live bool) *Options {
	o := &Options{
		Stream: "live", Topic: "weir.requests", Generation: 7, Live: live, KeyedPartitions: simKeyed, Secret: simSecret, SecretID: "s",
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}
	o.fillIn()
	return o
}

func compiled(t *testing.T, opt *Options, r *rules.Routing) *routingVersion {
	t.Helper()
	v, err := compile(r, opt)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// watchRouting has rules for every case: two that share a dimension, one of no key, one of another path.
func watchRouting() *rules.Routing {
	ip := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}
	device, user := traffic.KeyField{Field: traffic.FieldDevice}, traffic.KeyField{Field: traffic.FieldUser}
	rule := func(id, path string, missing rules.OnMissing, key ...traffic.KeyField) rules.Version {
		return rules.Version{Number: 1, Lineage: 1, Document: rules.Document{
			ID: id, Owner: "team", Match: rules.Match{Path: path}, Key: key, Missing: missing, Limit: 3, Window: time.Minute, Lateness: time.Minute,
		}}
	}
	return &rules.Routing{
		Stream: "live", Number: 9, RecordFormat: detectors.RecordFormat, SecretID: "s", Identity: traffic.DefaultIdentityMap(),
		Format: rules.Format{Name: format.Weir, MaxEventBytes: 4096},
		Rules: []rules.Version{
			rule("a-ip", "/v1/*", rules.MissingSkip, ip),
			rule("b-ip-device", "/v1/*", rules.MissingSkip, ip, device),
			rule("c-all", "/v1/all", rules.MissingSkip),
			rule("d-user", "/v1/*", rules.MissingGroup, user),
			rule("e-other", "/v2", rules.MissingSkip, device),
		},
	}
}

func TestReadEvent(t *testing.T) {
	at := func(d time.Duration) string { return noon.Add(d).String() }
	event := func(members string) string { return `{"v":1,"time":"` + at(0) + `",` + members + `}` }
	whole := `"ip":"192.0.2.1","device":"tv","user":"ann","path":"/v1/x"`
	tests := []struct {
		name     string
		replay   bool
		value    string
		progress traffic.Time
		fate     Fate
		reason   string
		time     traffic.Time
		after    traffic.Time
		rules    []int // all that go into records
	}{
		{name: "whole", value: event(whole), fate: FateRouted, time: noon, after: noon, rules: []int{0, 1, 3}},
		{name: "no key", value: event(`"user":"ann","path":"/v1/all"`), fate: FateRouted, time: noon, after: noon, rules: []int{2, 3}},
		{name: "grouped", value: event(`"path":"/v1/x"`), fate: FateRouted, time: noon, after: noon, rules: []int{3}},
		{name: "part of a key", value: event(`"ip":"192.0.2.1","path":"/v1/x"`), fate: FateRouted, time: noon, after: noon, rules: []int{0, 3}},
		{name: "bad ip is a missing ip", value: event(`"ip":"256.1","path":"/v1/x"`), fate: FateRouted, time: noon, after: noon, rules: []int{3}},
		{name: "keyless", value: event(`"ip":"192.0.2.1","path":"/v2"`), fate: FateKeyless, time: noon, after: noon},
		{name: "unmatched", value: event(`"ip":"192.0.2.1","path":"/v3"`), fate: FateUnmatched, time: noon, after: noon},
		{name: "own refusal", value: event(whole + `,"verdict":{"rule":"a","block":"b"}`), fate: FateRefusal, time: noon, after: noon},
		{name: "old", value: event(whole), progress: noon + 5, fate: FateRouted, time: noon, after: noon + 5, rules: []int{0, 1, 3}},
		{name: "no time", value: `{"v":1,` + whole + `}`, fate: FateRouted, time: noon + 1, after: noon + 1, rules: []int{0, 1, 3}},
		{name: "tolerated future", value: strings.Replace(event(whole), at(0), (noon + 1).Add(5*time.Second).String(), 1), fate: FateRouted,
			time: (noon + 1).Add(5 * time.Second), after: (noon + 1).Add(5 * time.Second), rules: []int{0, 1, 3}},
		{name: "future", value: strings.Replace(event(whole), at(0), (noon + 2).Add(5*time.Second).String(), 1), fate: FateRouted,
			time: noon + 1, after: noon + 1, rules: []int{0, 1, 3}},
		{name: "future in a replay", replay: true, value: strings.Replace(event(whole), at(0), at(time.Hour), 1), fate: FateRouted,
			time: noon.Add(time.Hour), after: noon.Add(time.Hour), rules: []int{0, 1, 3}},
		{name: "empty", value: "", fate: FateDead, reason: format.ReasonEmpty, after: noon - 9, progress: noon - 9},
		{name: "oversized", value: event(`"path":"` + strings.Repeat("x", 5000) + `"`), fate: FateDead, reason: format.ReasonOversized, after: noon - 9, progress: noon - 9},
		{name: "malformed", value: `{"v":1`, fate: FateDead, reason: format.ReasonMalformed, after: noon - 9, progress: noon - 9},
		{name: "end mark", replay: true, value: string(format.EndMark()), fate: FateEndMark, after: traffic.EndOfTime},
		{name: "end mark in a live stream", value: string(format.EndMark()), fate: FateDead, reason: format.ReasonMalformed, after: noon - 9, progress: noon - 9},
		{name: "after the end mark", replay: true, value: event(whole), progress: traffic.EndOfTime, fate: FateRouted, time: noon, after: traffic.EndOfTime, rules: []int{0, 1, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			opt := routedOptions(!tt.replay)
			v := compiled(t, opt, watchRouting())
			r := eventRouter{live: opt.Live, targets: newTargeter(opt.Secret, opt.KeyedPartitions)}
			for range 2 { // memory that is used again must not show
				got := r.read(v, &traffic.Message{Appended: noon + 1, Value: []byte(tt.value)}, max(tt.progress, 1))
				var all []int
				last := -1
				for _, to := range got.targets {
					all = append(all, to.rules...)
					if to.partition <= last || !slices.IsSorted(to.rules) {
						t.Errorf("targets out of order: %+v", got.targets)
					}
					last = to.partition
				}
				slices.Sort(all)
				if got.fate != tt.fate || got.reason != tt.reason || got.time != tt.time || got.progress != max(tt.after, 1) || !slices.Equal(all, tt.rules) {
					t.Errorf("got fate %d %q time %v progress %v rules %v (%s)", got.fate, got.reason, got.time, got.progress, all, got.detail)
				}
			}
		})
	}
}

func TestReadEventAims(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, watchRouting())
	r := eventRouter{live: true, targets: newTargeter(opt.Secret, opt.KeyedPartitions)}
	ip := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}
	user := traffic.KeyField{Field: traffic.FieldUser}
	for i := range 50 {
		address := fmt.Sprintf("2001:db8:0:%x::1", i)
		value := fmt.Sprintf(`{"v":1,"ip":"%s","device":"tv","path":"/v1/all"}`, address)
		got := r.read(v, &traffic.Message{Appended: noon, Value: []byte(value)}, 0)
		want := map[int][]int{}
		byIP := target(simSecret, ip, fmt.Sprintf("2001:db8:0:%x::/64", i), false, "", simKeyed)
		if i == 0 {
			byIP = target(simSecret, ip, "2001:db8::/64", false, "", simKeyed)
		}
		want[byIP] = append(want[byIP], 0, 1) // both by ip: one record, whatever the rest of the key
		all := target(simSecret, traffic.KeyField{}, "", false, "c-all", simKeyed)
		want[all] = append(want[all], 2)
		grouped := target(simSecret, user, "", true, "", simKeyed)
		want[grouped] = append(want[grouped], 3)
		have := map[int][]int{}
		for _, to := range got.targets {
			have[to.partition] = to.rules
		}
		if !reflect.DeepEqual(have, want) {
			t.Errorf("%s: got %v, want %v", address, have, want)
		}
	}
}

func TestCountEvents(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, watchRouting())
	b := newBuilder(opt, &hintMemory{})
	counts, sum := b.countsOf(v), newEventStats()
	read := func(progress traffic.Time, members string) {
		value := `{"v":1,"time":"` + noon.String() + `",` + members + `}`
		sum.count(counts, b.reader.read(v, &traffic.Message{Appended: noon, Value: []byte(value)}, progress))
	}
	late := noon.Add(time.Minute)
	read(0, `"ip":"192.0.2.1","device":"tv","user":"ann","path":"/v1/x","shoe":1,"hat":2`)
	read(late, `"ip":"192.0.2.1","device":"tv","path":"/v1/x"`) // a lateness behind, and not more
	read(late+1, `"ip":"192.0.2.1","path":"/v1/x"`)
	read(late+1, `"ip":"192.0.2.1","device":"tv","path":"/v1/x"`)
	read(late+1, `"ip":"no","path":"/v2"`)
	read(late+1, `"path":"/v3"`)
	b.sumRules(&sum)
	want := map[string]RuleStats{
		"a-ip":        {Matched: 4, Behind: 2, BehindComplete: 2},
		"b-ip-device": {Matched: 4, Behind: 2, BehindComplete: 1, Skipped: 1, Missing: [traffic.NumFields]int64{traffic.FieldDevice: 1}},
		"d-user":      {Matched: 4, Behind: 2, Grouped: 3, Missing: [traffic.NumFields]int64{traffic.FieldUser: 3}},
		"e-other":     {Matched: 1, Behind: 1, Skipped: 1, Missing: [traffic.NumFields]int64{traffic.FieldDevice: 1}},
	}
	if !reflect.DeepEqual(sum.Rules, want) {
		t.Errorf("rules: got %+v\nwant %+v", sum.Rules, want)
	}
	if sum.Events != 6 || sum.Keyless != 1 || sum.Unmatched != 1 || sum.UnknownFields != 2 {
		t.Errorf("got %+v", sum)
	}
	ip := sum.MissingIdentities[traffic.FieldIP]
	if ip[traffic.MissingBadIP] != 1 || ip[traffic.MissingAbsent] != 1 {
		t.Errorf("missing ips: got %v", ip)
	}
	again := newEventStats()
	b.sumRules(&again)
	if len(again.Rules) > 0 {
		t.Errorf("counts are given twice: %v", again.Rules)
	}
}

func TestCompileRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(*rules.Routing)
		want   string
	}{
		{"record format", func(r *rules.Routing) { r.RecordFormat++ },
			fmt.Sprintf("record format is %d, this build writes %s", detectors.RecordFormat+1,
				detectors.KnownRecordFormats())},
		{"a sum in the record format before", func(r *rules.Routing) { r.RecordFormat, r.Rules[1].Count.Sum = 1, "attrs.cost" }, "from record format 2 on"},
		{"a sum of nothing", func(r *rules.Routing) { r.Rules[1].Count.Sum = "cost" }, `rule b-ip-device: count.sum: got "cost"`},
		{"secret", func(r *rules.Routing) { r.SecretID = "t" }, `under the secret "t", this process has "s"`},
		{"event format", func(r *rules.Routing) { r.Format.Name = "avro" }, "avro"},
		{"identity map", func(r *rules.Routing) { r.Identity.IP.TrustedProxies.Hops = -1 }, "identity map"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := watchRouting()
			tt.change(r)
			_, err := compile(r, routedOptions(true))
			unfit := (*unfitError)(nil)
			if !errors.As(err, &unfit) || unfit.number != 9 || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an unfitError with %q", err, tt.want)
			}
		})
	}
}
