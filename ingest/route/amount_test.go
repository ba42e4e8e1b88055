package route

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// amountRouting has rules that count in each way, all by device: every event has one record.
func amountRouting() *rules.Routing {
	r := watchRouting()
	r.Rules = nil
	for _, c := range []struct {
		id    string
		count rules.Count
	}{
		{"a-events", rules.Count{}},
		{"b-users", rules.Count{Distinct: &traffic.KeyField{Field: traffic.FieldUser}}},
		{"c-cost", rules.Count{Sum: "attrs.cost"}},
		{"d-tokens", rules.Count{Sum: "attrs.usage.tokens"}},
	} {
		r.Rules = append(r.Rules, rules.Version{Number: 1, Lineage: 1, Document: rules.Document{
			ID: c.id, Owner: "team", Match: rules.Match{Path: "/v1/x"}, Key: []traffic.KeyField{{Field: traffic.FieldDevice}}, Missing: rules.MissingSkip,
			Count: c.count, Limit: 3, Window: time.Minute, Lateness: time.Minute,
		}})
	}
	return r
}

func TestAmounts(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, amountRouting())
	var values []string
	wantRules, wantUnits := [][]int{}, [][]int64{}
	for _, c := range []struct {
		members string
		rules   []int
		units   []int64
	}{
		{`"user":"ann","attrs":{"cost":7,"usage":{"tokens":0}}`, []int{0, 1, 2, 3}, []int64{1, 1, 7, 0}},
		{`"user":"ann","attrs":{"cost":-7,"usage":{"tokens":1.5}}`, []int{0, 1}, nil},
		{`"attrs":{"cost":"7","usage":9}`, []int{0}, nil},
		{`"attrs":{"cost":1e30}`, []int{0, 2}, []int64{1, format.MaxUnits}},
		{`"user":"ann"`, []int{0, 1}, nil},
	} {
		values = append(values, `{"v":1,"time":"`+noon.String()+`","device":"tv","path":"/v1/x",`+c.members+`}`)
		wantRules, wantUnits = append(wantRules, c.rules), append(wantUnits, c.units)
	}
	var messages []traffic.Message
	for i, value := range values {
		messages = append(messages, traffic.Message{Offset: int64(i), Appended: noon + traffic.Time(i), Value: []byte(value)})
	}
	end := int64(len(values))
	c := newBuilder(opt, &hintMemory{}).build([]*source{sourceAt(0, v, 0, end)}, filled(map[int]int64{0: end}, messages...))
	for i, k := range records(t, c) {
		if k.Offset != int64(i) || !slices.Equal(k.Rules, wantRules[i]) || !slices.Equal(k.Units, wantUnits[i]) {
			t.Errorf("%s: got offset %d, rules %v, units %v, want rules %v, units %v", values[i], k.Offset, k.Rules, k.Units, wantRules[i], wantUnits[i])
		}
	}
	why := func(reasons map[uncounted]int64) RuleStats {
		s := RuleStats{Matched: end}
		for u, n := range reasons {
			s.Uncounted[u] = n
		}
		return s
	}
	want := map[string]RuleStats{
		"a-events": why(nil),
		"b-users":  why(map[uncounted]int64{distinctMissing: 2}),
		"c-cost":   why(map[uncounted]int64{uncounted(format.UnitsNegative): 1, uncounted(format.UnitsNoNumber): 1, uncounted(format.UnitsAbsent): 1}),
		"d-tokens": why(map[uncounted]int64{uncounted(format.UnitsFraction): 1, uncounted(format.UnitsAbsent): 3}),
	}
	if !reflect.DeepEqual(c.stats.Rules, want) || c.stats.Records != end {
		t.Errorf("%d records\ngot  %+v\nwant %+v", c.stats.Records, c.stats.Rules, want)
	}
}

// TestKeylessForWantOfAnAmount: an event that no rule counts has no record, and is no unmatched one.
func TestKeylessForWantOfAnAmount(t *testing.T) {
	routing := amountRouting()
	routing.Rules = routing.Rules[1:]
	opt := routedOptions(true)
	r := eventRouter{live: true, targets: newTargeter(opt.Secret, opt.KeyedPartitions)}
	event := `{"v":1,"time":"` + noon.String() + `","device":"tv","path":"/v1/x"}`
	got := r.read(compiled(t, opt, routing), &traffic.Message{Appended: noon.Add(time.Hour), Value: []byte(event)}, noon.Add(time.Hour))
	if got.fate != FateKeyless || len(got.targets) != 0 {
		t.Errorf("got fate %d, targets %v", got.fate, got.targets)
	}
	var s RuleStats
	s.count(&got.watched[0], nil)
	if s.Behind != 1 || s.BehindComplete != 0 || s.Uncounted[distinctMissing] != 1 {
		t.Errorf("got %+v: what is not counted is not late either", s)
	}
}

// TestBoundHoldsUnits: the bound by which batches are cut must not be below what a record with the greatest units takes.
func TestBoundHoldsUnits(t *testing.T) {
	k := detectors.Keyed{
		Format: detectors.RecordFormat, Kind: detectors.KeyedEvent, Generation: 1 << 40, Source: 1 << 19, Offset: 1 << 50, Prev: 1, Time: noon, Progress: noon, Version: 1 << 40,
		Identity: traffic.Identity{Device: strings.Repeat("d", 256)},
	}
	for i := range 2000 {
		k.Rules, k.Units = append(k.Rules, i*32), append(k.Units, format.MaxUnits)
		k.Tiers = append(k.Tiers, rules.MaxTiers)
	}
	if size := len(detectors.AppendKeyed(nil, &k)); size > boundOf(detectors.AppendEvidence(nil, &k), &eventTarget{rules: k.Rules}) {
		t.Errorf("a record of %d bytes, bound %d", size, boundOf(detectors.AppendEvidence(nil, &k), &eventTarget{rules: k.Rules}))
	}
}

func TestUncountedReasonsAreLabels(t *testing.T) {
	seen := map[string]bool{}
	for u := range numUncounted {
		seen[u.String()] = true
	}
	want := "[absent distinct_missing fine fraction negative no_number]"
	if got := fmt.Sprint(slices.Sorted(maps.Keys(seen))); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
