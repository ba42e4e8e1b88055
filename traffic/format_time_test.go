package traffic

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const heldAt = "2026-11-21T05:06:07Z"

// heldLines are lines of requests that were held open for a while: by format, as its program writes time and duration.
func heldLines() map[string]func(begin Time, held time.Duration) string {
	form := func(t Time) string { return t.Std().Format(time.RFC3339Nano) }
	return map[string]func(begin Time, held time.Duration) string{
		FormatNginx: func(begin Time, held time.Duration) string {
			return fmt.Sprintf(`{"msec":"%.3f","status":"201","request_time":"%.3f"}`, float64(begin.Add(held))/1e6, held.Seconds())
		},
		FormatEnvoy: func(begin Time, held time.Duration) string {
			return fmt.Sprintf(`{"start_time":"%s","response_code":201,"duration":%d}`, form(begin), held.Milliseconds())
		},
		FormatCaddy: func(begin Time, held time.Duration) string {
			return fmt.Sprintf(`{"ts":%.6f,"status":201,"duration":%.9f}`, float64(begin.Add(held))/1e6, held.Seconds())
		},
		FormatTraefik: func(begin Time, held time.Duration) string {
			return fmt.Sprintf(`{"Duration":%d,"DownstreamStatus":201,"StartUTC":"%s"}`, held.Nanoseconds(), form(begin))
		},
		FormatHAProxy: func(begin Time, held time.Duration) string {
			return fmt.Sprintf(`{"time":"%d","status":201,"latency_ms":%d}`, begin.Add(held)/1000, held.Milliseconds())
		},
		FormatECS: func(begin Time, held time.Duration) string {
			return fmt.Sprintf(`{"@timestamp":"%s","event":{"start":"%s","duration":%d},"http":{"response":{"status_code":201}}}`, form(begin), form(begin), held.Nanoseconds())
		},
	}
}

// TestTimeIsWhenTheAnswerEnded: a client must not choose by how long it holds a request open how old its event is.
func TestTimeIsWhenTheAnswerEnded(t *testing.T) {
	lines := heldLines()
	if len(lines) != len(namedFormats) {
		t.Fatalf("%d of %d formats", len(lines), len(namedFormats))
	}
	for format, line := range lines {
		decoder := mustDecoder(t, format, nil)
		rapid.Check(t, func(t *rapid.T) {
			begin := Time(rapid.Int64Range(1_600_000_000_000, 1_900_000_000_000).Draw(t, "begin in ms") * 1000)
			held := time.Duration(rapid.Int64Range(0, longestAnswer.Milliseconds()).Draw(t, "held in ms")) * time.Millisecond
			var r Request
			if err := decoder.Decode([]byte(line(begin, held)), &r); err != nil {
				t.Fatal(err)
			}
			if off := r.Time.Sub(begin.Add(held)).Abs(); !r.HasTime || off > time.Millisecond || r.LatencyUS != held.Microseconds() {
				t.Fatalf("%s: %s\ntime %v, want %v; latency %d µs", format, line(begin, held), r.Time, begin.Add(held), r.LatencyUS)
			}
		})
	}
}

// TestTimeWithOddDurations: what is no measurement moves no time, whatever else the line says.
func TestTimeWithOddDurations(t *testing.T) {
	const month = int64(longestAnswer / time.Millisecond)
	for _, c := range []struct{ name, format, fields, in, want string }{
		{"no duration", FormatEnvoy, "", `{"start_time":"` + heldAt + `","method":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"a dash", FormatEnvoy, "", `{"start_time":"` + heldAt + `","method":"GET","duration":"-"}`, "2026-11-21T05:06:07.000000Z"},
		{"null", FormatTraefik, "", `{"Duration":null,"StartUTC":"` + heldAt + `","RequestMethod":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"the longest that is believed", FormatEnvoy, "", fmt.Sprintf(`{"start_time":"`+heldAt+`","method":"GET","duration":%d}`, month), "2026-12-22T05:06:07.000000Z"},
		{"longer", FormatEnvoy, "", fmt.Sprintf(`{"start_time":"`+heldAt+`","method":"GET","duration":%d}`, month+1), "2026-11-21T05:06:07.000000Z"},
		{"for ever", FormatTraefik, "", `{"Duration":9223372036854775807,"StartUTC":"` + heldAt + `","RequestMethod":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"the greatest latency", FormatEnvoy, "", `{"start_time":"` + heldAt + `","method":"GET","duration":9223372036854775}`, "2026-11-21T05:06:07.000000Z"},
		{"to the end of the year 9999", FormatEnvoy, "", `{"start_time":"9999-12-31T23:59:59Z","method":"GET","duration":999}`, "9999-12-31T23:59:59.999000Z"},
		{"beyond it", FormatEnvoy, "", `{"start_time":"9999-12-31T23:59:59Z","method":"GET","duration":1000}`, "9999-12-31T23:59:59.000000Z"},
		{"the year 0", FormatEnvoy, "", `{"start_time":"0000-01-01T00:00:00Z","method":"GET","duration":1000}`, "0000-01-01T00:00:01.000000Z"},
		{"a time of one's own", FormatEnvoy, "time=began", `{"start_time":"1999-01-01T00:00:00Z","began":"` + heldAt + `","method":"GET","duration":1500}`, "2026-11-21T05:06:08.500000Z"},
		{"a latency of one's own", FormatTraefik, "latency_ms=took", `{"StartUTC":"` + heldAt + `","RequestMethod":"GET","Duration":9,"took":1500}`, "2026-11-21T05:06:08.500000Z"},
		{"the end wins", FormatECS, "", `{"event":{"start":"1999-01-01T00:00:00Z","duration":5000000000,"end":"` + heldAt + `"},"http.request.method":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"in any order", FormatECS, "", `{"event.end":"` + heldAt + `","event.start":"1999-01-01T00:00:00Z","event.duration":5000000000,"http.request.method":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"neither beginning nor end", FormatECS, "", `{"@timestamp":"` + heldAt + `","event":{"duration":5000000000},"http.request.method":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"ECS with a time of one's own", FormatECS, "time=at", `{"at":"` + heldAt + `","event":{"start":"1999-01-01T00:00:00Z","duration":5000000000},"http.request.method":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"nginx's time is the end", FormatNginx, "", `{"time_iso8601":"` + heldAt + `","request_time":"600.000","status":"200"}`, "2026-11-21T05:06:07.000000Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fields, err := ParseFieldMap(c.fields)
			if err != nil {
				t.Fatal(err)
			}
			var r Request
			if err := mustDecoder(t, c.format, fields).Decode([]byte(c.in), &r); err != nil {
				t.Fatal(err)
			}
			if r.Time.String() != c.want {
				t.Errorf("got %v, want %s", r.Time, c.want)
			}
		})
	}
	for _, in := range []string{`{"start_time":"` + heldAt + `","method":"GET","duration":-1}`, `{"start_time":"` + heldAt + `","method":"GET","duration":1e400}`} {
		var r Request
		if err := mustDecoder(t, FormatEnvoy, nil).Decode([]byte(in), &r); err == nil || !strings.Contains(err.Error(), "bad_value") {
			t.Errorf("%s: %v, time %v", in, err, r.Time)
		}
	}
}

// TestTimesAsTold: a stream whose record format builds may share that know no better dates requests as those do.
func TestTimesAsTold(t *testing.T) {
	want, held := Time(1795237567_000000), 90*time.Second
	for format, line := range heldLines() {
		decoder, err := NewDecoder(format, nil, 0, TimesAsTold())
		if err != nil {
			t.Fatal(err)
		}
		begin := want
		switch format {
		case FormatNginx, FormatCaddy, FormatHAProxy: // tell the end
			begin = want.Add(-held)
		}
		var r Request
		if err := decoder.Decode([]byte(line(begin, held)), &r); err != nil || r.Time != want {
			t.Errorf("%s: %v, %v, want %v", format, r.Time, err, want)
		}
	}
	decoder, err := NewDecoder(FormatECS, nil, 0, TimesAsTold())
	if err != nil {
		t.Fatal(err)
	}
	var r Request
	if err := decoder.Decode([]byte(`{"event":{"start":"`+heldAt+`","end":"`+heldAt+`"},"http.request.method":"GET"}`), &r); err != nil || r.HasTime {
		t.Errorf("builds before read no time here: %v, %v", r.Time, err)
	}
}
