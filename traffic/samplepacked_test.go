package traffic

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

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
