package route

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/weirhq/weir/traffic"
)

func TestExplainTellsWhatRoutersDecide(t *testing.T) {
	e, err := NewExplainer(watchRouting(), true)
	if err != nil {
		t.Fatal(err)
	}
	const late = noon - 60_000_000
	whole := `"ip":"192.0.2.1","device":"tv","user":"ann","path":"/v1/x"`
	for _, tc := range []struct {
		name, value      string
		fate             Fate
		told             traffic.Time
		timeless, future bool
		rules            []ExplainedRule
	}{
		{name: "routed", value: fmt.Sprintf(`{"v":1,"time":"%s",%s}`, late, whole), fate: FateRouted, told: late,
			rules: []ExplainedRule{{Index: 0, Counts: true}, {Index: 1, Counts: true}, {Index: 3, Counts: true}}},
		{name: "without a time", value: `{"v":1,` + whole + `}`, fate: FateRouted, timeless: true,
			rules: []ExplainedRule{{Index: 0, Counts: true}, {Index: 1, Counts: true}, {Index: 3, Counts: true}}},
		{name: "from the future", value: fmt.Sprintf(`{"v":1,"time":"%s","path":"/v9"}`, noon+60_000_000), fate: FateUnmatched, told: noon + 60_000_000, future: true},
		{name: "lacking fields", value: fmt.Sprintf(`{"v":1,"time":"%s","ip":"192.0.2.1","path":"/v1/x"}`, noon), fate: FateRouted, told: noon,
			rules: []ExplainedRule{
				{Index: 0, Counts: true}, {Index: 1, Lacking: []traffic.KeyField{{Field: traffic.FieldDevice}}, Why: "missing"},
				{Index: 3, Lacking: []traffic.KeyField{{Field: traffic.FieldUser}}, Counts: true}}},
		{name: "keyless", value: fmt.Sprintf(`{"v":1,"time":"%s","path":"/v2"}`, noon), fate: FateKeyless, told: noon,
			rules: []ExplainedRule{{Index: 4, Lacking: []traffic.KeyField{{Field: traffic.FieldDevice}}, Why: "missing"}}},
		{name: "our own refusal", value: fmt.Sprintf(`{"v":1,"time":"%s","verdict":{"rule":"a","block":"b"},%s}`, noon, whole), fate: FateRefusal, told: noon},
	} {
		got := e.Explain(&traffic.Message{Value: []byte(tc.value), Appended: noon})
		if got.Fate == FateDead {
			t.Errorf("%s: %v", tc.name, got.Err)
			continue
		}
		if got.Fate != tc.fate || got.Told != tc.told || got.Timeless != tc.timeless || got.Future != tc.future || got.Request == nil {
			t.Errorf("%s: %+v", tc.name, got)
		}
		if len(got.Rules)+len(tc.rules) > 0 && !reflect.DeepEqual(got.Rules, tc.rules) {
			t.Errorf("%s: rules %+v, want %+v", tc.name, got.Rules, tc.rules)
		}
	}
	if got := e.Explain(&traffic.Message{Value: []byte("{"), Appended: noon}); got.Fate != FateDead || got.Err == nil || got.Request != nil {
		t.Errorf("what is no event: %+v", got)
	}
}

// The decoder of an explanation has the options of the routers: control records are read in a replay only.
func TestExplainReadsWithTheRoutersOptions(t *testing.T) {
	end := &traffic.Message{Value: []byte(`{"v":1,"control":"end"}`), Appended: noon}
	for live, want := range map[bool]Fate{true: FateDead, false: FateEndMark} {
		e, err := NewExplainer(watchRouting(), live)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Explain(end); got.Fate != want {
			t.Errorf("live %v: an end mark is %+v, want fate %v", live, got, want)
		}
	}
	unknown := watchRouting()
	unknown.RecordFormat = 1000
	if _, err := NewExplainer(unknown, true); err == nil {
		t.Error("a version of an unknown record format can be explained")
	}
}
