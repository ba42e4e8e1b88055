package traffic_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

// A mark changes nothing else of a sample, whatever the client sent, and no client can set one.
func TestMarkedSamplesSayTheSame(t *testing.T) {
	marks := map[traffic.SampleMark]func(*traffic.Sample){
		traffic.SampleBefore:         func(s *traffic.Sample) { s.Before = true },
		traffic.SampleEarlierNone:    func(s *traffic.Sample) { s.Earlier = traffic.EarlierNone },
		traffic.SampleEarlierDropped: func(s *traffic.Sample) { s.Earlier = traffic.EarlierDropped },
	}
	hostile := rapid.OneOf(rapid.String(), rapid.Just(`","before":true,"x":"`), rapid.Just("\"\x00\xff\u2028<script>"), rapid.Just(`=cmd|' /C calc'!A0`))
	rapid.Check(t, func(t *rapid.T) {
		r := traffic.Request{Time: traffic.Time(rapid.Int64Range(0, 1<<50).Draw(t, "time")), ID: hostile.Draw(t, "id"), Path: hostile.Draw(t, "path"), UserAgent: hostile.Draw(t, "agent")}
		text := traffic.AppendSample(nil, &r, &traffic.Identity{Device: hostile.Draw(t, "device")})
		var plain traffic.Sample
		if err := json.Unmarshal(text, &plain); err != nil || plain.Before || plain.Earlier != "" {
			t.Fatalf("%s: marked by its client, or no sample (%v)", text, err)
		}
		for mark, set := range marks {
			marked, ok := traffic.MarkSample(append([]byte(nil), text...), mark)
			var got traffic.Sample
			if err := json.Unmarshal(marked, &got); err != nil || !ok {
				t.Fatalf("%s with %s: %s, %v", text, mark, marked, err)
			}
			want := plain
			set(&want)
			if !reflect.DeepEqual(got, want) || len(marked) > len(text)+22 {
				t.Fatalf("%s with %s: %s", text, mark, marked)
			}
		}
	})
	for _, text := range []string{"", "{}", `{"time":"`, `{"at":"x"}`, "no JSON", `["time"]`} {
		if got, ok := traffic.MarkSample([]byte(text), traffic.SampleBefore); ok || string(got) != text {
			t.Errorf("%q is marked as %q", text, got)
		}
	}
}

func TestWithoutBeforeSaysWhy(t *testing.T) {
	const over, before = `{"time":"2026-11-20T12:00:01Z"}`, `{"time":"2026-11-20T12:00:00Z","before":true}`
	none, dropped := `{"time":"2026-11-20T12:00:01Z","earlier":"none"}`, `{"time":"2026-11-20T12:00:01Z","earlier":"dropped"}`
	unknown := traffic.WithoutBefore([]string{over})
	for _, c := range []struct {
		name    string
		samples []string
		same    []string // says the same as these
		silent  bool
	}{
		{"nothing", nil, nil, true},
		{"some", []string{before, over}, nil, true},
		{"unreadable", []string{"{", over}, []string{over}, false},
		{"none", []string{none, over}, []string{none}, false},
		{"dropped", []string{dropped, over}, []string{dropped}, false},
	} {
		got := traffic.WithoutBefore(c.samples)
		if (got == "") != c.silent || !c.silent && got != traffic.WithoutBefore(c.same) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	if a, b := traffic.WithoutBefore([]string{none}), traffic.WithoutBefore([]string{dropped}); a == b || a == unknown || b == unknown {
		t.Errorf("different reasons read alike: %q, %q, %q", a, b, unknown)
	}
}
