package traffic

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

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
	weir := mustDecoder(f, FormatWeir, nil)
	f.Add([]byte(`{"claims":{"sub":1}}`))
	mapped := mustDecoder(f, FormatJSON, map[string]string{"user": "claims.sub"})
	f.Fuzz(func(t *testing.T, in []byte) {
		if mapped.Decode(in, new(Request)) == nil && !json.Valid(in) {
			t.Fatalf("json read %q", in)
		}
		for i, d := range decoders {
			format := namedFormats[i].name
			var r, again Request
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
				var r Request
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
