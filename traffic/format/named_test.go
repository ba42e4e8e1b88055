package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

const heldAt = "2026-11-21T05:06:07Z"

// heldLines are lines of requests that were held open for a while: by format, as its program writes time and duration.
func heldLines() map[string]func(begin traffic.Time, held time.Duration) string {
	form := func(t traffic.Time) string { return t.Std().Format(time.RFC3339Nano) }
	return map[string]func(begin traffic.Time, held time.Duration) string{
		Nginx: func(begin traffic.Time, held time.Duration) string {
			return fmt.Sprintf(`{"msec":"%.3f","status":"201","request_time":"%.3f"}`, float64(begin.Add(held))/1e6, held.Seconds())
		},
		Envoy: func(begin traffic.Time, held time.Duration) string {
			return fmt.Sprintf(`{"start_time":"%s","response_code":201,"duration":%d}`, form(begin), held.Milliseconds())
		},
		Caddy: func(begin traffic.Time, held time.Duration) string {
			return fmt.Sprintf(`{"ts":%.6f,"status":201,"duration":%.9f}`, float64(begin.Add(held))/1e6, held.Seconds())
		},
		Traefik: func(begin traffic.Time, held time.Duration) string {
			return fmt.Sprintf(`{"Duration":%d,"DownstreamStatus":201,"StartUTC":"%s"}`, held.Nanoseconds(), form(begin))
		},
		HAProxy: func(begin traffic.Time, held time.Duration) string {
			return fmt.Sprintf(`{"time":"%d","status":201,"latency_ms":%d}`, begin.Add(held)/1000, held.Milliseconds())
		},
		ECS: func(begin traffic.Time, held time.Duration) string {
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
			begin := traffic.Time(rapid.Int64Range(1_600_000_000_000, 1_900_000_000_000).Draw(t, "begin in ms") * 1000)
			held := time.Duration(rapid.Int64Range(0, longestAnswer.Milliseconds()).Draw(t, "held in ms")) * time.Millisecond
			var r traffic.Request
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
		{"no duration", Envoy, "", `{"start_time":"` + heldAt + `","method":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"a dash", Envoy, "", `{"start_time":"` + heldAt + `","method":"GET","duration":"-"}`, "2026-11-21T05:06:07.000000Z"},
		{"null", Traefik, "", `{"Duration":null,"StartUTC":"` + heldAt + `","RequestMethod":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"the longest that is believed", Envoy, "", fmt.Sprintf(`{"start_time":"`+heldAt+`","method":"GET","duration":%d}`, month), "2026-12-22T05:06:07.000000Z"},
		{"longer", Envoy, "", fmt.Sprintf(`{"start_time":"`+heldAt+`","method":"GET","duration":%d}`, month+1), "2026-11-21T05:06:07.000000Z"},
		{"for ever", Traefik, "", `{"Duration":9223372036854775807,"StartUTC":"` + heldAt + `","RequestMethod":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"the greatest latency", Envoy, "", `{"start_time":"` + heldAt + `","method":"GET","duration":9223372036854775}`, "2026-11-21T05:06:07.000000Z"},
		{"to the end of the year 9999", Envoy, "", `{"start_time":"9999-12-31T23:59:59Z","method":"GET","duration":999}`, "9999-12-31T23:59:59.999000Z"},
		{"beyond it", Envoy, "", `{"start_time":"9999-12-31T23:59:59Z","method":"GET","duration":1000}`, "9999-12-31T23:59:59.000000Z"},
		{"the year 0", Envoy, "", `{"start_time":"0000-01-01T00:00:00Z","method":"GET","duration":1000}`, "0000-01-01T00:00:01.000000Z"},
		{"a time of one's own", Envoy, "time=began", `{"start_time":"1999-01-01T00:00:00Z","began":"` + heldAt + `","method":"GET","duration":1500}`, "2026-11-21T05:06:08.500000Z"},
		{"a latency of one's own", Traefik, "latency_ms=took", `{"StartUTC":"` + heldAt + `","RequestMethod":"GET","Duration":9,"took":1500}`, "2026-11-21T05:06:08.500000Z"},
		{"the end wins", ECS, "", `{"event":{"start":"1999-01-01T00:00:00Z","duration":5000000000,"end":"` + heldAt + `"},"http.request.method":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"in any order", ECS, "", `{"event.end":"` + heldAt + `","event.start":"1999-01-01T00:00:00Z","event.duration":5000000000,"http.request.method":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"neither beginning nor end", ECS, "", `{"@timestamp":"` + heldAt + `","event":{"duration":5000000000},"http.request.method":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"ECS with a time of one's own", ECS, "time=at", `{"at":"` + heldAt + `","event":{"start":"1999-01-01T00:00:00Z","duration":5000000000},"http.request.method":"GET"}`, "2026-11-21T05:06:07.000000Z"},
		{"nginx's time is the end", Nginx, "", `{"time_iso8601":"` + heldAt + `","request_time":"600.000","status":"200"}`, "2026-11-21T05:06:07.000000Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fields, err := ParseFieldMap(c.fields)
			if err != nil {
				t.Fatal(err)
			}
			var r traffic.Request
			if err := mustDecoder(t, c.format, fields).Decode([]byte(c.in), &r); err != nil {
				t.Fatal(err)
			}
			if r.Time.String() != c.want {
				t.Errorf("got %v, want %s", r.Time, c.want)
			}
		})
	}
	for _, in := range []string{`{"start_time":"` + heldAt + `","method":"GET","duration":-1}`, `{"start_time":"` + heldAt + `","method":"GET","duration":1e400}`} {
		var r traffic.Request
		if err := mustDecoder(t, Envoy, nil).Decode([]byte(in), &r); err == nil || !strings.Contains(err.Error(), "bad_value") {
			t.Errorf("%s: %v, time %v", in, err, r.Time)
		}
	}
}

// TestTimesAsTold: a stream whose record format builds may share that know no better dates requests as those do.
func TestTimesAsTold(t *testing.T) {
	want, held := traffic.Time(1795237567_000000), 90*time.Second
	for format, line := range heldLines() {
		decoder, err := NewDecoder(format, nil, 0, TimesAsTold())
		if err != nil {
			t.Fatal(err)
		}
		begin := want
		switch format {
		case Nginx, Caddy, HAProxy: // tell the end
			begin = want.Add(-held)
		}
		var r traffic.Request
		if err := decoder.Decode([]byte(line(begin, held)), &r); err != nil || r.Time != want {
			t.Errorf("%s: %v, %v, want %v", format, r.Time, err, want)
		}
	}
	decoder, err := NewDecoder(ECS, nil, 0, TimesAsTold())
	if err != nil {
		t.Fatal(err)
	}
	var r traffic.Request
	if err := decoder.Decode([]byte(`{"event":{"start":"`+heldAt+`","end":"`+heldAt+`"},"http.request.method":"GET"}`), &r); err != nil || r.HasTime {
		t.Errorf("builds before read no time here: %v, %v", r.Time, err)
	}
}

// The path of a URL is what follows its host. Where programs differ on the end of the host, nothing is taken off: the rules
// know what each of them would read.
func TestPathOfURL(t *testing.T) {
	for _, tt := range []struct{ url, path, plain string }{
		{"/v1/a?b", "/v1/a", "/v1/a"},
		{"", "", ""},
		{"?x", "", ""},
		{"v1/a", "v1/a", "v1/a"},
		{"https://user@h.example:8443/v1/a?b#c", "/v1/a", "/v1/a"},
		{"https://h.example", "/", "/"},
		{"https://h.example?x/y", "/", "/"},
		{"/x://h/v1/a", "/x://h/v1/a", "/x://h/v1/a"},
		{"http://h%2fv1/a", "http://h%2fv1/a", "/a"},
		{`http://h\v1\a`, `http://h\v1\a`, "/"},
		{`http://h\v1/a`, `http://h\v1/a`, "/a"},
		{"http://h#/v1/a", "http://h#/v1/a", "/v1/a"},
		{"v1/a#://x/z", "v1/a#://x/z", "/z"},
		{"v1%2fa://x/z", "v1%2fa://x/z", "/z"},
	} {
		if got := pathOfURL(tt.url); got != tt.path {
			t.Errorf("%q: got %q, want %q", tt.url, got, tt.path)
		}
		for _, as := range []struct {
			how  []DecoderOption
			want string
		}{{nil, tt.path}, {[]DecoderOption{URLsAsIs()}, tt.plain}} {
			decoder, err := NewDecoder(ECS, nil, 0, as.how...)
			if err != nil {
				t.Fatal(err)
			}
			var r traffic.Request
			line := fmt.Sprintf(`{"@timestamp":"2027-01-15T08:00:00Z","source":{"ip":"192.0.2.1"},"url":{"original":%q}}`, tt.url)
			if err := decoder.Decode([]byte(line), &r); err != nil || r.Path != as.want {
				t.Errorf("%q with %d options: got %q, %v, want %q", tt.url, len(as.how), r.Path, err, as.want)
			}
		}
	}
}

// FuzzNamedFormats reads anything as every JSON log of a gateway: no panic, nothing accepted that is no JSON, bounded
// errors that name the format, and what was read survives weir's own format.
func FuzzNamedFormats(f *testing.F) {
	for i := range namedFormats {
		for _, line := range sampleLines(f, namedFormats[i].name) {
			f.Add([]byte(line))
		}
	}
	f.Add([]byte(`{"status":200,"request":{"headers":{"X-Forwarded-For":["a",1,null,"b"],"X":[[]]}}}`))
	f.Add([]byte(`{"http_":"a","request_":"b","http.request.headers.":"c","request":"GET / HTTP/1.1","status":-1}`))
	var decoders [len(namedFormats)]Decoder
	for i := range namedFormats {
		decoders[i] = mustDecoder(f, namedFormats[i].name, nil)
	}
	weir := mustDecoder(f, Weir, nil)
	f.Add([]byte(`{"claims":{"sub":1}}`))
	mapped := mustDecoder(f, JSON, map[string]string{"user": "claims.sub"})
	f.Fuzz(func(t *testing.T, in []byte) {
		if mapped.Decode(in, new(traffic.Request)) == nil && !json.Valid(in) {
			t.Fatalf("json read %q", in)
		}
		for i, d := range decoders {
			format := namedFormats[i].name
			var r, again traffic.Request
			if err := d.Decode(in, &r); err != nil {
				e := decodeError(err)
				if len(e.Detail) > 450 || e.Column > len(in)+1 || !strings.HasSuffix(e.Detail, " (format "+format+")") {
					t.Fatalf("%s: column %d of %d: %s", format, e.Column, len(in), e.Detail)
				}
				if json.Valid(in) && in[bytes.IndexFunc(in, notSpace)] == '{' && e.Reason == ReasonMalformed && e.Column > 0 && depthOf(in) <= maxDepth {
					t.Fatalf("%s refused valid JSON %q: %v", format, in, err)
				}
				continue
			}
			if !json.Valid(in) || r.Status > maxStatus || r.LatencyUS < 0 || r.Bytes < 0 || r.UnknownFields != 0 || strings.Contains(r.Path, "?") {
				t.Fatalf("%s read %q as %+v", format, in, r)
			}
			event := AppendEvent(nil, &r)
			if err := weir.Decode(event, &again); err != nil {
				t.Fatalf("%s: %q became %q: %v", format, in, event, err)
			}
			if len(r.Headers) == 0 {
				r.Headers, again.Headers = nil, nil
			}
			if !reflect.DeepEqual(r, again) {
				t.Fatalf("%s: %q\nread  %+v\nagain %+v", format, in, r, again)
			}
		}
	})
}

func notSpace(c rune) bool { return !strings.ContainsRune(" \t\r\n", c) }

// TestJSONTestSuiteInNamedFormats puts each file's bytes where every member of every table is read, and where nobody
// looks: JSON may be refused for its type or value only, and what is no JSON is refused, be it for a type that comes first.
func TestJSONTestSuiteInNamedFormats(t *testing.T) {
	files := suiteFiles(t)
	decoded := 0
	for i := range namedFormats {
		format := &namedFormats[i]
		d := mustDecoder(t, format.name, nil)
		paths := []string{"nobody", "no.body"}
		for _, s := range format.sources {
			paths = append(paths, s.path)
		}
		for _, h := range format.headers {
			if h.path != "" {
				paths = append(paths, h.path, h.path+".x")
			}
			if h.names.prefix != "" {
				paths = append(paths, strings.ReplaceAll(h.names.prefix, ".", "")+"x")
			}
		}
		for _, path := range paths {
			before, after := `{"`+strings.ReplaceAll(path, ".", `":{"`)+`":`, strings.Repeat("}", 1+strings.Count(path, "."))
			for name, raw := range files {
				var r traffic.Request
				err := d.Decode([]byte(before+string(raw)+after), &r)
				e := decodeError(err)
				switch kind := name[:2]; {
				case kind == "y_" && e.Reason == ReasonMalformed && e.Column > 0:
					t.Errorf("%s at %s: %s refused: %v", format.name, path, name, err)
				case kind == "n_" && e.Column == 0: // a line that is no entry has been read to its end
					t.Errorf("%s at %s: %s: got %v, want a refusal", format.name, path, name, err)
				}
				decoded++
			}
		}
	}
	if decoded < 100*len(files) {
		t.Fatalf("only %d lines", decoded)
	}
}
