package route

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// The evidence that ROUTE packs into a record is a text once it is on a hit, the same in every record format.
func TestEvidenceIsText(t *testing.T) {
	samples := map[int][]string{}
	for format := detectors.OldestRecordFormat; format <= detectors.RecordFormat; format++ {
		opt, routing := routedOptions(true), watchRouting()
		routing.RecordFormat = format
		v, err := compile(routing, opt)
		if err != nil {
			t.Fatal(err)
		}
		var messages []traffic.Message
		for o := range int64(5) {
			value := fmt.Appendf(nil, `{"v":1,"id":"r%d","time":"%s","ip":"192.0.2.1","device":"tv","user":"ann","path":"/v1/x","status":201}`, o, noon)
			messages = append(messages, traffic.Message{Offset: o, Appended: noon, Value: value})
		}
		src := sourceAt(0, v, 0, int64(len(messages)))
		src.at.Prev = sentBefore(0, opt.KeyedPartitions)
		c := newBuilder(opt, &hintMemory{}).build([]*source{src}, filled(map[int]int64{0: int64(len(messages))}, messages...))
		for _, b := range c.batches {
			p := detectors.NewPartition(detectors.Config{Keyed: b.Partition, Sources: 1, Generation: src.at.Generation})
			p.Learn(detectors.NewPlan(routing))
			var k detectors.Keyed
			var hits []detectors.Hit
			for _, value := range b.Values {
				if err := detectors.DecodeKeyed(value, &k); err != nil || k.Format != format {
					t.Fatal(k.Format, err)
				}
				if hits, err = p.Fold(noon, &k, hits); err != nil {
					t.Fatal(err)
				}
			}
			for _, h := range hits {
				samples[format] = append(samples[format], h.Samples...)
			}
		}
	}
	before := 0
	newest := slices.Clone(samples[detectors.RecordFormat])
	for format := range samples {
		samples[format] = slices.DeleteFunc(samples[format], func(text string) bool {
			return strings.Contains(text,
				`"before":true`)
		})
	}
	for _, text := range newest { // of r0 to r4, over a limit of 3, what came before it
		for _, id := range []string{"r1", "r2"} {
			if strings.HasPrefix(text, `{"time":"`+noon.String()+`","before":true,"id":"`+id+`",`) {
				before++
			}
		}
	}
	if before != 2*len(samples[detectors.RecordFormat]) || before != len(newest)-len(samples[detectors.RecordFormat]) {
		t.Errorf("of %q %d came before the limit", newest, before)
	}
	for format := range samples {
		if old, now := fmt.Sprint(samples[format]), fmt.Sprint(samples[detectors.RecordFormat]); old != now || len(now) < 100 {
			t.Errorf("by format %d %s, by the newest one %s", format, old, now)
		}
	}
	for _, text := range samples[detectors.RecordFormat] {
		var s traffic.Sample
		if err := json.Unmarshal([]byte(text), &s); err != nil || s.IP != "192.0.2.1" || s.Device != "tv" || s.Path != "/v1/x" || s.Time != noon {
			t.Errorf("evidence %q: %v", text, err)
		}
	}
}
