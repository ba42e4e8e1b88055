package traffic

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Whatever key and source: a subject names its source, which has that subject.
func TestSubjectsNameTheirSource(t *testing.T) {
	ip := KeyField{Field: FieldIP, V4: 24, V6: 56}
	fallback := KeyField{Field: FieldFallback, Name: "api_key|attrs.tenant|ip", V4: 24, V6: 56}
	keys := [][]KeyField{nil, {ip}, {{Field: FieldDevice}, ip}, {{Field: FieldParam, Name: "id"}, {Field: FieldUser}}, {fallback}, {fallback, {Field: FieldHost}}}
	rapid.Check(t, func(rt *rapid.T) {
		id := anyIdentity(rt, "source")
		key := rapid.SampledFrom(keys).Draw(rt, "key")
		extra := &Named{}
		for _, field := range []KeyField{{Field: FieldParam, Name: "id"}, {Field: FieldAttr, Name: "tenant"}, {Field: FieldHost}} {
			if value := rapid.SampledFrom([]string{"", "7", "a&b=c", "%"}).Draw(rt, "value"); value != "" {
				extra.beside = append(extra.beside, namedValue{field, value})
			}
		}
		want, missing := MakeSubjectOf(&id, extra, key)
		if values, err := want.Values(); err != nil || SubjectOf(values) != want {
			rt.Fatalf("%s is taken apart to %v, %v", want, values, err)
		}
		n, err := want.Named(key)
		if err != nil {
			rt.Fatalf("%s: %v", want, err)
		}
		if got, m := MakeSubjectOf(&n.Identity, n, key); got != want || m != missing {
			rt.Fatalf("%s with %d missing names %s with %d", want, missing, got, m)
		}
	})
}

func TestNamedRefuses(t *testing.T) {
	key := []KeyField{{Field: FieldIP, V4: 24, V6: 64}, {Field: FieldDevice}}
	for _, c := range []struct {
		s    Subject
		want string
	}{
		{"", `reads "ip&device"`},
		{"ip=192.0.2.0%2F24", "no source of this key"},
		{"ip=192.0.2.7%2F32&device=tv", `reads "ip=192.0.2.0%2F24&device=tv"`},
		{"device=tv&ip=192.0.2.0%2F24", "no source of this key"},
		{"ip=192.0.2.0%2F24&device=sha256:" + Subject(strings.Repeat("0a", 32)), "the digest"},
		{"ip=somewhere&device=tv", "an address with its prefix length"},
		{"ip=192.0.2.0%2F24&device=", "no value"},
		{"ip=192.0.2.0%2F24&devise=tv", "no field"},
		{"api_key%7Cip=7", "no field"},
		{"ip=%", "percent"},
	} {
		if _, err := c.s.Named(key); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.s, err, c.want)
		}
	}
}

func TestShortened(t *testing.T) {
	long := BoundedValue(strings.Repeat("x", 300))
	if !Shortened(long) || Shortened(strings.Repeat("x", 300)) || Shortened("tv-7") || Shortened(long[:len(long)-1]) {
		t.Errorf("%q is not told from others", long)
	}
}
