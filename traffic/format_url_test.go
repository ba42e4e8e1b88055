package traffic

import (
	"fmt"
	"testing"
)

// The path of a URL is what follows its host. Where programs differ on the end of the host, nothing is taken off: the rules
// know what each of them would read.
func TestPathOfURL(t *testing.T) {
	for _, tt := range []struct{ url, path, plain string }{
		{"/v1/a?b", "/v1/a", "/v1/a"},
		{"", "", ""},
		{"?x", "", ""},
		{"v1/a", "v1/a", "v1/a"},
		{"https://user@h.example:8443/v1/a?b#c", "/v1/a", "/v1/a"},
		{"https://h.example", "/", "/"},
		{"https://h.example?x/y", "/", "/"},
		{"/x://h/v1/a", "/x://h/v1/a", "/x://h/v1/a"},
		{"http://h%2fv1/a", "http://h%2fv1/a", "/a"},
		{`http://h\v1\a`, `http://h\v1\a`, "/"},
		{`http://h\v1/a`, `http://h\v1/a`, "/a"},
		{"http://h#/v1/a", "http://h#/v1/a", "/v1/a"},
		{"v1/a#://x/z", "v1/a#://x/z", "/z"},
		{"v1%2fa://x/z", "v1%2fa://x/z", "/z"},
	} {
		if got := pathOfURL(tt.url); got != tt.path {
			t.Errorf("%q: got %q, want %q", tt.url, got, tt.path)
		}
		for _, as := range []struct {
			how  []DecoderOption
			want string
		}{{nil, tt.path}, {[]DecoderOption{URLsAsIs()}, tt.plain}} {
			decoder, err := NewDecoder(FormatECS, nil, 0, as.how...)
			if err != nil {
				t.Fatal(err)
			}
			var r Request
			line := fmt.Sprintf(`{"@timestamp":"2027-01-15T08:00:00Z","source":{"ip":"192.0.2.1"},"url":{"original":%q}}`, tt.url)
			if err := decoder.Decode([]byte(line), &r); err != nil || r.Path != as.want {
				t.Errorf("%q with %d options: got %q, %v, want %q", tt.url, len(as.how), r.Path, err, as.want)
			}
		}
	}
}
