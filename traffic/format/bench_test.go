package format

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir/traffic"
)

// benchEvents are events of about 350 bytes and 14 members, all different, with the answers that a benchmark checks.
func benchEvents(n int) (events [][]byte, statuses, bytes int64) {
	for i := range n {
		status := 200 + i%5
		events = append(events, fmt.Appendf(nil, `{"v":1,"time":"2026-11-21T05:06:%02d.%06dZ","id":"req-%08d","ip":"203.0.113.%d","device":"tv-%05d","user":"user-%06d",`+
			`"method":"POST","host":"api.example.com","path":"/v1/guest-tokens","status":%d,`+
			`"user_agent":"Mozilla/5.0 (Linux; Android 9; AFTT) AppleWebKit/537.36 (KHTML, like Gecko)","latency_ms":12.%03d,"bytes":%d,"plan":"free","gateway":"gw-3"}`,
			i%60, i, i, i%256, i, i, status, i%1000, i))
		statuses += int64(status)
		bytes += int64(i)
	}
	return events, statuses, bytes
}

func BenchmarkDecodeWeir(b *testing.B) { benchmarkDecode(b, Weir, nil) }
func BenchmarkDecodeJSONMap(b *testing.B) {
	benchmarkDecode(b, JSON, map[string]string{"session": "sid"})
}

func BenchmarkDecodeProtobuf(b *testing.B) { benchmarkDecode(b, Protobuf, nil) }

func benchmarkDecode(b *testing.B, format string, fieldMap map[string]string) {
	const n = 1000
	events, statuses, bytes := benchEvents(n)
	if format == Protobuf {
		for i, e := range events {
			events[i] = protobufOf(b, e)
		}
	}
	d := mustDecoder(b, format, fieldMap)
	size := 0
	for _, e := range events {
		size += len(e)
	}
	b.SetBytes(int64(size / n))
	b.ReportAllocs()
	var r traffic.Request
	var gotStatuses, gotBytes int64
	rounds := int64(0)
	for i := 0; b.Loop(); i++ {
		if i == n {
			i = 0
		}
		if i == 0 {
			rounds, gotStatuses, gotBytes = rounds+1, 0, 0
		}
		if err := d.Decode(events[i], &r); err != nil {
			b.Fatal(err)
		}
		gotStatuses += int64(r.Status)
		gotBytes += r.Bytes
		if i == n-1 && (gotStatuses != statuses || gotBytes != bytes) {
			b.Fatalf("got %d and %d, want %d and %d", gotStatuses, gotBytes, statuses, bytes)
		}
	}
	if b.N > n && rounds < 2 {
		b.Fatal("checked no round")
	}
}

// protobufOf is a JSON event in Protocol Buffers.
func protobufOf(t testing.TB, event []byte) []byte {
	t.Helper()
	var r traffic.Request
	if err := mustDecoder(t, Weir, nil).Decode(event, &r); err != nil {
		t.Fatal(err)
	}
	return AppendProtobuf(nil, &r)
}

func BenchmarkAppendProtobuf(b *testing.B) {
	events, _, _ := benchEvents(1)
	var r traffic.Request
	if err := mustDecoder(b, Weir, nil).Decode(events[0], &r); err != nil {
		b.Fatal(err)
	}
	want := len(AppendProtobuf(nil, &r))
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		if buf = AppendProtobuf(buf[:0], &r); len(buf) != want {
			b.Fatalf("got %d bytes, want %d", len(buf), want)
		}
	}
}

func BenchmarkDecodeCombined(b *testing.B) {
	line := []byte(`203.0.113.9 - - [17/May/2015:10:05:03 +0000] "GET /presentations/logstash-monitorama-2013/images/kibana-search.png HTTP/1.1" 200 203023 "http://semicomplete.com/" "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36"`)
	d := mustDecoder(b, Combined, nil)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	var r traffic.Request
	for b.Loop() {
		if err := d.Decode(line, &r); err != nil || r.Bytes != 203023 || r.Time != combinedTime {
			b.Fatalf("%+v, %v", r, err)
		}
	}
}

func BenchmarkAppendSample(b *testing.B) {
	events, _, _ := benchEvents(1)
	d := mustDecoder(b, Weir, nil)
	var r traffic.Request
	if err := d.Decode(events[0], &r); err != nil {
		b.Fatal(err)
	}
	id := traffic.Identity{IP: netip.MustParseAddr("203.0.113.0"), Device: r.Device, User: r.User}
	want := string(traffic.AppendSample(nil, &r, &id))
	buf := make([]byte, 0, traffic.SampleBytes)
	b.ReportAllocs()
	for b.Loop() {
		if buf = traffic.AppendSample(buf[:0], &r, &id); len(buf) != len(want) {
			b.Fatalf("got %s, want %s", buf, want)
		}
	}
}

func BenchmarkFromEvent(b *testing.B) {
	events, _, _ := benchEvents(1)
	d := mustDecoder(b, Weir, nil)
	var r traffic.Request
	if err := d.Decode(events[0], &r); err != nil {
		b.Fatal(err)
	}
	x := identifierOf(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		if id, _ := x.FromEvent(&r); id.Device != "tv-00000" {
			b.Fatalf("%+v", id)
		}
	}
}

func TestDecodeWithoutAllocation(t *testing.T) {
	for format, event := range map[string][]byte{Weir: []byte(fullEvent), Protobuf: protobufOf(t, []byte(fullEvent))} {
		d := mustDecoder(t, format, nil)
		var r traffic.Request
		if n := testing.AllocsPerRun(100, func() {
			if err := d.Decode(event, &r); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", format, n)
		}
	}
}

// BenchmarkTime reads the time of an event, as this package and as the standard library does.
func BenchmarkTime(b *testing.B) {
	const text = "2026-11-21T05:06:07.123456Z"
	var want traffic.Time
	if err := want.UnmarshalText([]byte(text)); err != nil {
		b.Fatal(err)
	}
	b.Run("own", func(b *testing.B) {
		for b.Loop() {
			if got, ok := parseRFC3339(text, false); !ok || got != want {
				b.Fatalf("got %v, want %v", got, want)
			}
		}
	})
	b.Run("time.Parse", func(b *testing.B) {
		for b.Loop() {
			if got, err := time.Parse(time.RFC3339Nano, text); err != nil || traffic.At(got) != want {
				b.Fatalf("got %v, want %v", got, want)
			}
		}
	})
}
