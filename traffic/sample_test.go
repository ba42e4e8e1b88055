package traffic

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// readSample checks what must hold of every sample and reads it with encoding/json.
func readSample(t interface{ Fatalf(string, ...any) }, text []byte) Sample {
	if len(text) > SampleBytes || !utf8.Valid(text) || slices.ContainsFunc(text, func(c byte) bool { return c < ' ' }) {
		t.Fatalf("%d bytes, valid UTF-8: %v: %q", len(text), utf8.Valid(text), text)
	}
	if strings.Contains(string(text), `\u0000`) && !strings.Contains(string(text), `\\u0000`) {
		t.Fatalf("holds an escaped NUL, which jsonb refuses: %s", text)
	}
	var s Sample
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return s
}

func TestSampleKeepsAnOrdinaryEvent(t *testing.T) {
	r := fullRequest()
	r.Attrs = []byte(`{"note":"` + strings.Repeat(`x\u0000`, 210) + `","q":"` + strings.Repeat(`\"`, 100) + `"}`)
	id := Identity{IP: netip.MustParseAddr("192.0.2.1"), Device: "tv-7", User: "u1", APIKey: "secret-abcd", Session: "s1"}
	got := readSample(t, AppendSample(nil, &r, &id))
	want := Sample{
		Time: r.Time, ID: "r-1", IP: "192.0.2.1", Device: "tv-7", User: "u1", APIKey: "abcd", Session: "s1", Method: "POST",
		Host: "api.example.com", Path: "/v1/guest-tokens", Route: "guest", Status: 201, UserAgent: "curl/8", Plan: "free",
		Gateway: "gw-3", Attrs: string(r.Attrs),
	}
	if len(r.Attrs) < 1500 {
		t.Fatalf("attrs of %d bytes prove nothing", len(r.Attrs))
	}
	if g, w := mustJSON(t, got), mustJSON(t, want); g != w {
		t.Fatalf("got  %s\nwant %s", g, w)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSampleIsBounded fills every field with a megabyte of each sort of byte.
func TestSampleIsBounded(t *testing.T) {
	for _, piece := range []string{"a", "\x00", "\x01", "\xff", `"`, "é", "😀", "\xe7\x95", "\n"} {
		huge := strings.Repeat(piece, 1<<20/len(piece))
		r := Request{
			Time: BeforeTime, ID: huge, IP: huge, Method: huge, Host: huge, Path: huge, Route: huge, Status: -1 << 63,
			UserAgent: huge, Plan: huge, Gateway: huge, Attrs: []byte(huge),
		}
		id := Identity{Device: huge, User: huge, APIKey: huge, Session: huge}
		text := AppendSample([]byte("before"), &r, &id)
		if string(text[:6]) != "before" || string(AppendSample(nil, &r, &id)) != string(text[6:]) {
			t.Fatal("did not append the same")
		}
		got := readSample(t, text[6:])
		want := []string{"id", "ip", "device", "user", "session", "method", "host", "path", "route", "user_agent", "plan", "gateway", "attrs"}
		if !slices.Equal(got.Cut, want) {
			t.Errorf("%q: cut %v, want %v", piece, got.Cut, want)
		}
		if got.Attrs != "" || got.Path == "" || !strings.HasPrefix(Printable(huge), got.Path) {
			t.Errorf("%q: path %q, attrs %.20q", piece, got.Path, got.Attrs)
		}
		if room := SampleBytes - (len(text) - 6); room < 1500 {
			t.Errorf("%q: full members leave %d bytes for attrs, want 1500", piece, room)
		}
	}
}

func TestSampleAgainstPrintable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRequest(t)
		r.Path += strings.Repeat(anyText().Draw(t, "piece"), rapid.IntRange(0, 60).Draw(t, "times"))
		r.Attrs = []byte(strings.Repeat(anyText().Draw(t, "attrs piece"), rapid.IntRange(0, 200).Draw(t, "attrs times")))
		id := Identity{Device: r.Device, User: r.User, APIKey: r.APIKey, Session: r.Session}
		got := readSample(t, AppendSample(nil, &r, &id))
		if got.Time != r.Time || got.Status != r.Status {
			t.Fatalf("time %v, status %d", got.Time, got.Status)
		}
		for _, m := range []struct{ name, got, full string }{
			{"id", got.ID, r.ID}, {"ip", got.IP, r.IP}, {"device", got.Device, id.Device}, {"user", got.User, id.User},
			{"session", got.Session, id.Session}, {"method", got.Method, r.Method}, {"host", got.Host, r.Host}, {"path", got.Path, r.Path},
			{"route", got.Route, r.Route}, {"user_agent", got.UserAgent, r.UserAgent}, {"plan", got.Plan, r.Plan},
			{"gateway", got.Gateway, r.Gateway}, {"attrs", got.Attrs, string(r.Attrs)},
		} {
			full := Printable(m.full)
			if cut := slices.Contains(got.Cut, m.name); cut != (m.got != full) || !strings.HasPrefix(full, m.got) {
				t.Fatalf("%s: got %q of %q, cut: %v", m.name, m.got, full, got.Cut)
			}
		}
		if len(got.Attrs) == 0 && len(r.Attrs) > 0 && 5*len(r.Attrs) < 1000 {
			t.Fatalf("left out %d bytes of attrs", len(r.Attrs))
		}
	})
}

func TestAppendPrintableCutsLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyText().Draw(t, "s")
		limit := rapid.IntRange(0, 40).Draw(t, "limit")
		full, whole := appendPrintable(nil, s, 1<<20)
		if !whole {
			t.Fatal("cut below its limit")
		}
		got, whole := appendPrintable(nil, s, limit)
		const longest = 6 // \u001f
		switch {
		case whole != (len(full) <= limit), !strings.HasPrefix(string(full), string(got)), len(got) > limit:
			t.Fatalf("%q to %d: got %q, whole: %v", s, limit, got, whole)
		case !whole && len(got) <= limit-longest:
			t.Fatalf("%q to %d: cut too early, at %q", s, limit, got)
		}
		var text string
		if err := json.Unmarshal([]byte(`"`+string(full)+`"`), &text); err != nil || text != Printable(s) {
			t.Fatalf("%q: got %q, %v", s, text, err)
		}
	})
}

func TestKeyEnding(t *testing.T) {
	for key, want := range map[string]string{"": "", "a": "", "ab": "b", "abc": "c", "abcd": "cd", "abcdefg": "efg", "abcdefgh": "efgh", "abcdefghijkl": "ijkl", "xxxxxxxxxé界": "xxé界", "\xff\xfe\xfd": "\xfd"} {
		if got := keyEnding(key); got != want {
			t.Errorf("%q: got %q, want %q", key, got, want)
		}
	}
}

func TestSampleWithoutAllocation(t *testing.T) {
	r := fullRequest()
	id := Identity{IP: netip.MustParseAddr("192.0.2.1"), Device: "tv-7", APIKey: "secret-abcd"}
	buf := make([]byte, 0, SampleBytes)
	if n := testing.AllocsPerRun(100, func() { buf = AppendSample(buf[:0], &r, &id) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s := readSample(t, buf); s.Device != "tv-7" {
		t.Errorf("got %+v", s)
	}
}

// The way through the packed form must not be seen in the text.
func TestPackedSampleGivesTheSameText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRequest(t)
		long := func(s, label string) string {
			return s + strings.Repeat(anyText().Draw(t, label), rapid.IntRange(0, 200).Draw(t, label+" times"))
		}
		r.Path, r.UserAgent, r.IP, r.Method = long(r.Path, "path"), long(r.UserAgent, "agent"), long(r.IP, "ip"), long(r.Method, "method")
		r.Attrs = []byte(strings.Repeat(anyText().Draw(t, "attrs piece"), rapid.IntRange(0, 700).Draw(t, "attrs times")))
		r.Status = rapid.Int().Draw(t, "status")
		id := Identity{Device: r.Device, User: r.User, APIKey: r.APIKey, Session: r.Session}
		if rapid.Bool().Draw(t, "address") {
			id.IP = netip.MustParseAddr(rapid.SampledFrom([]string{"192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"}).Draw(t, "which"))
		}
		packed := AppendPackedSample([]byte("before"), &r, &id)[len("before"):]
		if len(packed) > 6<<10 {
			t.Fatalf("%d bytes packed", len(packed))
		}
		want := AppendSample(nil, &r, &id)
		if got := AppendSampleText([]byte("before"), packed, r.Time, &id); string(got) != "before"+string(want) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
		if got := AppendSampleText(nil, want, 0, &Identity{}); string(got) != string(want) {
			t.Fatalf("a text became %s", got)
		}
	})
}

func TestPackedSampleIsSmall(t *testing.T) {
	r := fullRequest()
	id := Identity{IP: netip.MustParseAddr("192.0.2.1"), Device: "tv-7"}
	buf := make([]byte, 0, SampleBytes)
	if n := testing.AllocsPerRun(100, func() { buf = AppendPackedSample(buf[:0], &r, &id) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if text := AppendSample(nil, &r, &id); 2*len(buf) > len(text) {
		t.Errorf("%d bytes, the text has %d", len(buf), len(text))
	}
}

func FuzzSampleText(f *testing.F) {
	r := fullRequest()
	id := Identity{IP: netip.MustParseAddr("192.0.2.1"), Device: "tv-7"}
	f.Add(AppendPackedSample(nil, &r, &id))
	r.Attrs = []byte(strings.Repeat("x", SampleBytes+1))
	f.Add(AppendPackedSample(nil, &r, &Identity{}))
	f.Add([]byte{samplePacked, 0xff, 0xff, 3})
	f.Fuzz(func(t *testing.T, sample []byte) {
		if len(sample) == 0 || sample[0] != samplePacked {
			return
		}
		readSample(t, AppendSampleText(nil, sample, 1, &id))
	})
}
