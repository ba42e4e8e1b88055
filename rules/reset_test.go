package rules

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/traffic"
)

func resetOf(since int64, at time.Time) Reset {
	return Reset{Rule: "guest-token-flood", Key: storyRule().Key, Subject: "ip=192.0.2.1%2F32&device=tv-7", Since: since, At: traffic.At(at)}
}

// TestRoutingFormatOfResets is TestRoutingFormat for resets.
func TestRoutingFormatOfResets(t *testing.T) {
	r := goodRouting()
	r.RecordFormat = LanguageRecordFormat
	r.Resets = []Reset{
		{Rule: "all-requests", Key: []traffic.KeyField{}, Since: 3, At: traffic.At(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))},
		resetOf(12, time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)),
	}
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/routing-resets.json", append(b, '\n'))
	back, err := DecodeRouting(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*back, r) {
		t.Errorf("got  %+v\nwant %+v", *back, r)
	}
}

func TestRoutingRefusesResets(t *testing.T) {
	for _, c := range []struct {
		change func(r *Routing)
		want   string
	}{
		{func(r *Routing) { r.RecordFormat = LanguageRecordFormat - 1 }, "resets: got 2 in record format 4, allowed from record format 5 on"},
		{func(r *Routing) { r.Resets[0].Rule = "" }, "resets[0]: got rule \"\""},
		{func(r *Routing) { r.Resets[0].Rule = "a\x00" }, "resets[0]: got rule"},
		{func(r *Routing) { r.Resets[1].Subject = "ip=192.0.2.1%2F24&device=tv-7" }, "resets[1].subject: "},
		{func(r *Routing) { r.Resets[1].Key = make([]traffic.KeyField, traffic.MaxKeyFields+1) }, "a key of 9 fields"},
		{func(r *Routing) { r.Resets[0].Since = 0 }, "resets[0].since: got 0, allowed 1 to the version's number, 12"},
		{func(r *Routing) { r.Resets[1].Since = 13 }, "resets[1].since: got 13"},
		{func(r *Routing) { r.Resets[0].Since, r.Resets[1].Since = 3, 2 }, "resets[1].since: got 2"},
		{func(r *Routing) { r.Resets = make([]Reset, MaxResets+1) }, "resets: got 1001, allowed 1000"},
	} {
		r := goodRouting()
		r.RecordFormat, r.Resets = LanguageRecordFormat, []Reset{resetOf(3, time.Unix(0, 0)), resetOf(12, time.Unix(0, 0))}
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		c.change(&r)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
}

func TestResetsAreKept(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	r := goodRouting()
	r.Resets = []Reset{resetOf(1, now.Add(-ResetKept-time.Second)), resetOf(2, now.Add(-ResetKept)), resetOf(3, now)}
	all := r.Resets
	r.KeepResets(traffic.At(now))
	if !reflect.DeepEqual(r.Resets, all[1:]) || all[0].Since != 1 {
		t.Errorf("kept %+v of %+v", r.Resets, all)
	}
	other := resetOf(4, now)
	other.Subject = "ip=192.0.2.1%2F32&device=tv-8"
	r.Reset(other)
	r.Reset(resetOf(5, now))
	if !reflect.DeepEqual(r.Resets, []Reset{other, resetOf(5, now)}) {
		t.Errorf("%+v", r.Resets)
	}
	if r.KeepResets(traffic.At(now.Add(ResetKept + time.Second))); r.Resets != nil {
		t.Errorf("kept %+v", r.Resets)
	}
	if ResetKept <= MaxWindow {
		t.Error("a window may outlive the resets of its key")
	}
}

func TestKeyedSubject(t *testing.T) {
	long := strings.Repeat("x", 300)
	short := traffic.BoundedValue(long)
	for given, want := range map[traffic.Subject]traffic.Subject{
		"":                              "",
		"ip=192.0.2.1%2F32&device=tv-7": "ip=192.0.2.1%2F32&device=tv-7",
		"host=API.Example.com%3A443.&method=post&user": "host=api.example.com&method=POST&user",
		"device=a%00b":                    "device=a%EF%BF%BDb",
		"device=%20a%0A&path=%20a":        "device=a%EF%BF%BD&path=%20a",
		"device=" + traffic.Subject(long): traffic.SubjectOf([]traffic.SubjectValue{{Field: "device", Value: short}}),
		traffic.SubjectOf([]traffic.SubjectValue{{Field: "device", Value: short}}): traffic.SubjectOf([]traffic.SubjectValue{{Field: "device", Value: short}}),
		"device=sha256:" + traffic.Subject(strings.Repeat("0a", 32)):               "device=sha256:" + traffic.Subject(strings.Repeat("0a", 32)),
	} {
		if got, err := KeyedSubject(given); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", given, got, err, want)
		}
	}
	if _, err := KeyedSubject("a b"); err == nil {
		t.Error("took what is no subject")
	}
}

// TestTypedSource: what a person types is read as ROUTE reads what a client sends, in each spelling of a source.
func TestTypedSource(t *testing.T) {
	long := strings.Repeat("x", 300)
	for text, want := range map[string][3]string{
		"user=p%3Bq":            {"", "user", "p;q"},
		"user=a\nb":             {"", "user", "a\ufffdb"},
		"user=a%0Ab":            {"", "user", "a\ufffdb"},
		"user= a\xff\t":         {"", "user", "a\ufffd"},
		"device=a%0Ab&user=bob": {"device=a%EF%BF%BDb&user=bob", "", ""},
		" a\x1bb":               {"", "", "a\ufffdb"},
		"host=API.example.com.": {"", "host", "api.example.com"},
		"method=post":           {"", "method", "POST"},
		"attrs.tenant= a\n":     {"", "attrs.tenant", " a\ufffd"},
		"ip=192.0.2.1%2F32":     {"ip=192.0.2.1%2F32", "", ""},
		"session=" + long:       {"", "session", traffic.BoundedValue(long)},
	} {
		if subject, field, value := TypedSource(text); [3]string{string(subject), field, value} != want {
			t.Errorf("%q: %q, %q, %q, want %q", text, subject, field, value, want)
		}
	}
}

func TestResetMayBlockMore(t *testing.T) {
	for _, c := range []struct {
		change func(d *Document)
		want   int
	}{
		{func(*Document) {}, 0},
		{func(d *Document) { d.Algorithm = AlgorithmFixed }, 0},
		{func(d *Document) { d.Algorithm = AlgorithmFirstSeen }, 1},
		{func(d *Document) { d.Algorithm = AlgorithmTokenBucket }, 1},
		{func(d *Document) { d.Count.Distinct = &traffic.KeyField{Field: traffic.FieldUser} }, 1},
		{func(d *Document) { d.Block.Extend = ExtendNever }, 1},
		{func(d *Document) { d.Algorithm, d.Block.Extend = AlgorithmLeakyBucket, ExtendNever }, 2},
		{func(d *Document) { d.Algorithm, d.Block = AlgorithmLeakyBucket, nil }, 0},
	} {
		d := storyRule()
		block := *d.Block
		d.Block = &block
		c.change(&d)
		if got := ResetMayBlockMore(&d); len(got) != c.want {
			t.Errorf("%s, extend: %v: %q, want %d", d.Counting(), d.Block, got, c.want)
		}
	}
}
