package format

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/weirhq/weir/traffic"
)

// depthOf is how deep the brackets of valid JSON nest.
func depthOf(b []byte) int {
	depth, deepest, inText := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// FuzzWeirAgainstEncodingJSON holds the scanner to encoding/json: both take the same texts as JSON. The documented
// differences are nesting, types of known members, and the reserved member control. What is read must be the same too.
func FuzzWeirAgainstEncodingJSON(f *testing.F) {
	f.Add([]byte(fullEvent))
	f.Add(EndMark())
	for _, raw := range suiteFiles(f) {
		if len(raw) < 1000 {
			f.Add(append(append([]byte(`{"attrs":`), raw...), '}'))
			f.Add(raw)
		}
	}
	d := mustDecoder(f, Weir, nil)
	f.Fuzz(func(t *testing.T, in []byte) {
		var r traffic.Request
		err := d.Decode(in, &r)
		valid := json.Valid(in)
		if err == nil && !valid {
			t.Fatalf("accepted what is no JSON: %q", in)
		}
		if !valid || depthOf(in) > maxDepth {
			return
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(in, &members) != nil || members == nil {
			if reasonOf(err) != ReasonMalformed {
				t.Fatalf("%q is no object: got %v", in, err)
			}
			return
		}
		if _, reserved := members["control"]; reserved {
			return
		}
		if reasonOf(err) == ReasonMalformed || reasonOf(err) == ReasonEmpty {
			t.Fatalf("refused valid JSON %q: %v", in, err)
		}
		if err == nil && utf8.Valid(in) {
			sameReading(t, members, &r)
		}
	})
}

// sameReading compares what encoding/json and the decoder have read, last name winning in both.
func sameReading(t *testing.T, members map[string]json.RawMessage, r *traffic.Request) {
	t.Helper()
	for name, got := range map[string]string{"id": r.ID, "user": r.User, "host": r.Host, "plan": r.Plan, "gateway": r.Gateway} {
		var want string
		if raw, ok := members[name]; ok {
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Fatalf("%s was accepted from %s", name, raw)
			}
		}
		if got != want {
			t.Fatalf("%s: got %q, want %q", name, got, want)
		}
	}
	if want := members["attrs"]; !bytes.Equal(r.Attrs, want) {
		t.Fatalf("attrs: got %q, want %q", r.Attrs, want)
	}
}

// FuzzAttrs puts any bytes where a value belongs: what encoding/json takes as one value is taken, and what makes the
// whole event invalid is refused.
func FuzzAttrs(f *testing.F) {
	for _, raw := range suiteFiles(f) {
		if len(raw) < 1000 {
			f.Add(raw)
		}
	}
	d := mustDecoder(f, JSON, map[string]string{"user": "attrs.user"})
	weir := mustDecoder(f, Weir, nil)
	f.Fuzz(func(t *testing.T, raw []byte) {
		event := append(append([]byte(`{"attrs":`), raw...), '}')
		var r traffic.Request
		err := weir.Decode(event, &r)
		if json.Valid(raw) && depthOf(raw) <= maxDepth {
			if err != nil || !bytes.Equal(bytes.Trim(raw, " \t\r\n"), r.Attrs) {
				t.Fatalf("attrs %q: got %q, %v", raw, r.Attrs, err)
			}
		} else if err == nil && !json.Valid(event) {
			t.Fatalf("accepted %q", event)
		}
		if d.Decode(event, &r) == nil && !json.Valid(event) {
			t.Fatalf("json accepted %q", event)
		}
	})
}

// FuzzCombined only asks for no panic, bounded messages, and that what was read lies in the line.
func FuzzCombined(f *testing.F) {
	f.Add([]byte(`192.0.2.1 - bob [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 12 "-" "curl \"x\" \x41" "-"`))
	f.Add([]byte(`h - - [17/May/2015:10:05:03 +0000] "-" 408 -`))
	f.Add([]byte(`h - [x [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "cut`))
	d := mustDecoder(f, Combined, nil)
	f.Fuzz(func(t *testing.T, line []byte) {
		var r traffic.Request
		err := d.Decode(line, &r)
		if err != nil {
			if e := decodeError(err); len(e.Detail) > 400 || e.Column > len(line)+1 {
				t.Fatalf("column %d of %d: %s", e.Column, len(line), e.Detail)
			}
			return
		}
		if !r.HasTime || r.Status > maxStatus || len(r.Path)+len(r.Method)+len(r.UserAgent)+len(r.IP)+len(r.User) > len(line) {
			t.Fatalf("%q: %+v", line, r)
		}
	})
}
