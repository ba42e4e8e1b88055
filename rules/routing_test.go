package rules

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

func goodRouting() Routing {
	wide := storyRule()
	wide.ID, wide.Match, wide.Key, wide.Block = "all-requests", Match{}, []traffic.KeyField{}, nil
	return Routing{
		Stream: "live", Number: 12, RecordFormat: 1, SecretID: "2026-11",
		Rules:    []Version{{Document: wide, Number: 1, Lineage: 1}, {Document: storyRule(), Number: 7, Lineage: 3}},
		Identity: traffic.DefaultIdentityMap(),
		Format:   Format{Name: "json", Map: map[string]string{"time": "ts", "user_agent": "ua"}, MaxEventBytes: 1 << 20},
	}
}

// TestRoutingFormat fails when the stored form changes: running processes of another build read it.
func TestRoutingFormat(t *testing.T) {
	r := goodRouting()
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/routing.json", append(b, '\n'))
	back, err := DecodeRouting(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*back, r) {
		t.Errorf("got  %+v\nwant %+v", *back, r)
	}
}

func TestRoutingFind(t *testing.T) {
	r := goodRouting()
	for i := range r.Rules {
		if got := r.Find(r.Rules[i].ID); got != &r.Rules[i] {
			t.Errorf("%s: got %v", r.Rules[i].ID, got)
		}
	}
	for _, id := range []string{"", "b", "guest-token", "zzz"} {
		if got := r.Find(id); got != nil {
			t.Errorf("%q: got %v, want none", id, got)
		}
	}
}

func TestRoutingValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *Routing)
		want   string
	}{
		{"no stream", func(r *Routing) { r.Stream = "" }, "stream: got"},
		{"number", func(r *Routing) { r.Number = 0 }, "number: got 0"},
		{"record format", func(r *Routing) { r.RecordFormat = 0 }, "record_format: got 0"},
		{"secret", func(r *Routing) { r.SecretID = "" }, "secret_id: got"},
		{"format", func(r *Routing) { r.Format = Format{Name: "xml", MaxEventBytes: 1} }, `format.name: got "xml"`},
		{"map", func(r *Routing) { r.Format.Name = "weir" }, "format.map: got"},
		{"event size", func(r *Routing) { r.Format.MaxEventBytes = 0 }, "format.max_event_bytes: got 0"},
		{"order", func(r *Routing) { r.Rules[0], r.Rules[1] = r.Rules[1], r.Rules[0] }, "ascending"},
		{"twice", func(r *Routing) { r.Rules[0] = r.Rules[1] }, "ascending"},
		{"version", func(r *Routing) { r.Rules[0].Number = 0 }, "rules[0].version: got 0"},
		{"lineage", func(r *Routing) { r.Rules[0].Lineage = 2 }, "rules[0].lineage: got 2"},
		{"rule", func(r *Routing) { r.Rules[1].Limit = -1 }, `rule "guest-token-flood": limit: got the number -1`},
		{"missing", func(r *Routing) { r.Rules[1].Missing = "" }, `on_missing: got ""`},
		{"half a second", func(r *Routing) { r.Rules[1].Window += 5e8 }, "window: got 5m0.5s"},
		{"method", func(r *Routing) { r.Rules[1].Match.Methods = []string{"post"} }, "match.method[0]"},
		{"key field", func(r *Routing) { r.Rules[1].Key[1].Field = 9 }, "key[1]: got field(9)"},
		{"no prefix", func(r *Routing) { r.Rules[1].Key[0].V4 = 0 }, "key[0].v4: got 0"},
		{"claimed", func(r *Routing) { r.Identity.IP.Claimed = true }, "claimed by the client only"},
	} {
		r := goodRouting()
		c.change(&r)
		err := r.Validate()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
		if _, encodeErr := r.Encode(); encodeErr == nil {
			t.Errorf("%s: was encoded", c.name)
		}
	}
}

func TestDecodeRoutingRefuses(t *testing.T) {
	good, err := os.ReadFile("testdata/routing.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, src := range map[string][]byte{
		"nothing":        nil,
		"half":           good[:len(good)/2],
		"two":            append(bytes.Clone(good), good...),
		"a newer member": bytes.Replace(good, []byte(`"limit"`), []byte(`"algorithm":"fixed","limit"`), 1),
		"an unknown key": bytes.Replace(good, []byte(`"device"`), []byte(`"plan"`), 1),
		"null":           []byte("null"),
		"an empty one":   []byte("{}"),
	} {
		if r, err := DecodeRouting(src); err == nil {
			t.Errorf("%s: got %+v, want an error", name, r)
		}
	}
}

func FuzzDecodeRouting(f *testing.F) {
	good, err := os.ReadFile("testdata/routing.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, src []byte) {
		r, err := DecodeRouting(src)
		if err != nil {
			return
		}
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeRouting(b)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := again.Encode(); err != nil || !bytes.Equal(b, c) {
			t.Fatalf("not stable: %s\n%s\n%v", b, c, err)
		}
	})
}
