package format

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// mustDecoder builds a decoder that a test takes for granted.
func mustDecoder(t testing.TB, format string, fieldMap map[string]string, options ...DecoderOption) Decoder {
	t.Helper()
	d, err := NewDecoder(format, fieldMap, 0, options...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNewDecoderRefuses(t *testing.T) {
	for _, c := range []struct {
		name     string
		format   string
		fieldMap map[string]string
		max      int
		options  []DecoderOption
		want     string
	}{
		{name: "unknown format", format: "xml", want: `got "xml", allowed: weir, weir-protobuf, json, combined`},
		{name: "negative size", format: Weir, max: -1, want: "max_event_bytes: got -1"},
		{name: "map without json", format: Combined, fieldMap: map[string]string{"ip": "a"}, want: "allowed with: json"},
		{name: "control without weir", format: JSON, options: []DecoderOption{AllowControl()}, want: "allowed in: weir"},
		{name: "map of fixed fields", format: Protobuf, fieldMap: map[string]string{"ip": "a"}, want: "format weir-protobuf takes none"},
		{name: "control in protobuf", format: Protobuf, options: []DecoderOption{AllowControl()}, want: "format weir-protobuf has no end mark"},
		{name: "unknown event field", format: JSON, fieldMap: map[string]string{"ts": "time"}, want: `got event field "ts", allowed: time, id, ip`},
		{name: "empty event field", format: JSON, fieldMap: map[string]string{"": "time"}, want: `got event field ""`},
		{name: "v is fixed", format: JSON, fieldMap: map[string]string{"v": "version"}, want: `got event field "v"`},
		{name: "empty member", format: JSON, fieldMap: map[string]string{"time": ""}, want: `event field time: got member ""`},
		{name: "empty part", format: JSON, fieldMap: map[string]string{"time": "a..b"}, want: `got member "a..b"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewDecoder(c.format, c.fieldMap, c.max, c.options...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestDecodersRefuseEmptyAndOversized(t *testing.T) {
	for _, format := range []string{Weir, JSON, Combined} {
		d, err := NewDecoder(format, nil, 10)
		if err != nil {
			t.Fatal(err)
		}
		for in, want := range map[string]string{
			"": ReasonEmpty, " \r\n\t": ReasonEmpty, `{"id":"abc"}`: ReasonOversized, strings.Repeat(" ", 11): ReasonOversized,
		} {
			var r traffic.Request
			if got := reasonOf(d.Decode([]byte(in), &r)); got != want {
				t.Errorf("%s: %q: got %q, want %q", format, in, got, want)
			}
		}
		if got := reasonOf(d.Decode(nil, new(traffic.Request))); got != ReasonEmpty {
			t.Errorf("%s: nil: got %q", format, got)
		}
	}
}

// decodeError is err as what decoders promise: the zero value for nil, and a reason of its own for anything else.
func decodeError(err error) DecodeError {
	var e *DecodeError
	switch {
	case err == nil:
		return DecodeError{}
	case errors.As(err, &e):
		return *e
	}
	return DecodeError{Reason: "no DecodeError: " + err.Error()}
}

// reasonOf is the reason of a decoder's error; "" for none.
func reasonOf(err error) string { return decodeError(err).Reason }
