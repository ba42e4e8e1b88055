package rules

import (
	"bytes"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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

// countingRouting has rules that count in ways of their own, as they are stored.
func countingRouting() Routing {
	r := goodRouting()
	r.RecordFormat = CountingRecordFormat
	r.Rules[0].Algorithm, r.Rules[0].Burst, r.Rules[0].Count.Sum = AlgorithmTokenBucket, 20, "attrs.usage.tokens"
	r.Rules[1].Algorithm, r.Rules[1].Cooldown = AlgorithmFixed, 10*time.Minute
	r.Rules[1].Count.Distinct = &traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 128}
	return r
}

// TestRoutingFormatOfCounting is TestRoutingFormat for what record format 2 has brought.
func TestRoutingFormatOfCounting(t *testing.T) {
	r := countingRouting()
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/routing-counting.json", append(b, '\n'))
	back, err := DecodeRouting(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*back, r) {
		t.Errorf("got  %+v\nwant %+v", *back, r)
	}
}

// TestPathsFromBeforeTheNormalFormGoOn loads rules whose paths Parse would refuse today: they were applied before, and count
// what they counted.
func TestPathsFromBeforeTheNormalFormGoOn(t *testing.T) {
	for _, format := range []int{ReadingRecordFormat - 1, ReadingRecordFormat} {
		r := goodRouting()
		r.RecordFormat = format
		r.Rules[0].Match, r.Rules[1].Match = Match{Path: "/a%3Fb//c"}, Match{Path: "/v1/%67uest//tokens"}
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeRouting(b)
		if err != nil {
			t.Fatal(err)
		}
		for i, path := range []string{"/a%3Fb//c", "/v1/%67uest//tokens"} {
			if got := back.Index().Match(nil, &Target{Method: "POST", Path: path}); !slices.Equal(got, []int{i}) {
				t.Errorf("record format %d, %s: routed to %v, want %d", format, path, got, i)
			}
		}
		plain := back.Index().Match(nil, &Target{Method: "POST", Path: "/v1/guest/tokens"})
		if want := format >= ReadingRecordFormat; (len(plain) == 1) != want {
			t.Errorf("record format %d: the path that servers read is routed to %v, want a rule: %v", format, plain, want)
		}
	}
}

// TestDefaultsOfReadingAreNotStored holds that a document that says nothing about how its path is compared, and one that
// says what is the default, have the bytes that such a document had before there was a choice.
func TestDefaultsOfReadingAreNotStored(t *testing.T) {
	d := storyRule()
	plain, err := d.Canonical()
	if err != nil || bytes.Contains(plain, []byte("path_")) {
		t.Fatalf("%s, %v", plain, err)
	}
	d.Match.PathAs, d.Match.PathCase = PathNormal, PathCaseExact
	if b, err := d.Canonical(); err != nil || !bytes.Equal(b, plain) {
		t.Errorf("%v, got\n%s, want\n%s", err, b, plain)
	}
	upper, lower := storyRule(), storyRule()
	upper.Match.Path, upper.Match.PathCase, lower.Match.PathCase = "/V1/Guest-Tokens", PathCaseIgnore, PathCaseIgnore
	if a, _ := upper.Canonical(); !upper.Equal(&lower) || bytes.Contains(a, []byte("Guest")) {
		t.Errorf("without case two paths that differ in it are one, got %s", a)
	}
}

// TestRoutingBeforeCounting reads a version that was stored before rules said how they count: testdata/routing.json is
// as that build wrote it, and is what this one writes of such rules.
func TestRoutingBeforeCounting(t *testing.T) {
	stored, err := os.ReadFile("testdata/routing.json")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(stored, []byte("algorithm")) {
		t.Fatal("the golden file is a newer one")
	}
	r, err := DecodeRouting(stored)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Rules {
		d := &r.Rules[i].Document
		if d.Counting() != AlgorithmSliding || d.Count.Kind() != CountEvents || d.Capacity() != 0 || d.UpdateEvery() != time.Minute {
			t.Errorf("%s counts %s by %s, updates every %v", d.ID, d.Count, d.Counting(), d.UpdateEvery())
		}
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
		{"key field", func(r *Routing) { r.Rules[1].Key[1].Field = 99 }, `key[1]: got "field(99)"`},
		{"no prefix", func(r *Routing) { r.Rules[1].Key[0].V4 = 0 }, "key[0].v4: got 0"},
		{"algorithm", func(r *Routing) { r.Rules[1].Algorithm = "log" }, `algorithm: got "log"`},
		{"illegal pair", func(r *Routing) {
			r.RecordFormat = CountingRecordFormat
			r.Rules[1].Algorithm, r.Rules[1].Count = AlgorithmTokenBucket, Count{Distinct: &traffic.KeyField{Field: traffic.FieldUser}}
		}, "count: got {distinct: user} with algorithm token-bucket"},
		{"old record format", func(r *Routing) { r.Rules[1].Count.Sum = "attrs.cost" }, `rule "guest-token-flood": got algorithm sliding, count {sum: attrs.cost}, burst 0, cooldown 1m in record format 1, allowed from record format 2 on`},
		{"reading in an old record format", func(r *Routing) {
			r.RecordFormat, r.Rules[1].Match.PathAs = ReadingRecordFormat-1, PathRaw
		}, `rule "guest-token-flood": got match POST /v1/guest-tokens, path_as raw in record format 3, allowed from record format 4 on: weir migrate --record-format 4`},
		{"case in an old record format", func(r *Routing) {
			r.RecordFormat, r.Rules[1].Match.PathCase = ReadingRecordFormat-1, PathCaseIgnore
		}, "path_case ignore in record format 3, allowed from record format 4 on"},
		{"path_as", func(r *Routing) { r.RecordFormat, r.Rules[1].Match.PathAs = ReadingRecordFormat, "bytes" }, `match.path_as: got "bytes"`},
		{"path_case", func(r *Routing) { r.RecordFormat, r.Rules[1].Match.PathCase = ReadingRecordFormat, "fold" }, `match.path_case: got "fold"`},
		{"distinct what", func(r *Routing) { r.Rules[1].Count.Distinct = &traffic.KeyField{Field: 99} }, `count.distinct: got "field(99)"`},
		{"sum of what", func(r *Routing) { r.Rules[1].Count.Sum = "byte" }, `count.sum: got "byte"`},
		{"burst", func(r *Routing) { r.Rules[1].Burst = 3 }, "burst: got the number 3 with algorithm sliding"},
		{"cooldown", func(r *Routing) { r.Rules[1].Cooldown = -time.Second }, "cooldown: got -1s"},
		{"proxies by prefix", func(r *Routing) {
			r.RecordFormat = ReadingRecordFormat - 1
			r.Identity.IP.TrustedProxies.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		}, "identity.ip.trusted_proxies: got 10.0.0.0/8 in record format 3, allowed from record format 4 on: weir migrate --record-format 4 raises it"},
		{"commas", func(r *Routing) { r.RecordFormat, r.Identity.Session.Commas = ReadingRecordFormat-1, true }, "identity.session.commas: got true in record format 3, allowed from record format 4 on"},
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
		"a newer member": bytes.Replace(good, []byte(`"limit"`), []byte(`"canary":{},"limit"`), 1),
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
	for _, name := range []string{"testdata/routing.json", "testdata/routing-counting.json"} {
		good, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(good)
	}
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

// TestRoutingOfIdentities: what record format 4 has brought to identity maps is kept, and a number of proxies is written as
// builds before it read it.
func TestRoutingOfIdentities(t *testing.T) {
	r := goodRouting()
	r.RecordFormat = ReadingRecordFormat
	r.Identity.IP.TrustedProxies.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32")}
	r.Identity.User.Vouched, r.Identity.User.Commas = true, true
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"trusted_proxies":["10.0.0.0/8","192.0.2.7/32"]`) || strings.Count(string(b), `"commas"`) != 1 {
		t.Errorf("written as %s", b)
	}
	if back, err := DecodeRouting(b); err != nil || !reflect.DeepEqual(*back, r) {
		t.Errorf("got  %+v, %v\nwant %+v", back, err, r)
	}
	r.Identity.IP.TrustedProxies = traffic.TrustedProxies{Hops: 2}
	if b, err = r.Encode(); err != nil || !strings.Contains(string(b), `"trusted_proxies":2,`) {
		t.Errorf("a number is written as %s, %v", b, err)
	}
}
