package format

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// suiteFiles is JSONTestSuite: file name → bytes.
func suiteFiles(t testing.TB) map[string][]byte {
	t.Helper()
	return testbed.Unpack(t, "testdata/JSONTestSuite/test_parsing.tar.gz")
}

// TestJSONTestSuite puts each file's bytes into a valid event, as its attrs and as a member of attrs.
func TestJSONTestSuite(t *testing.T) {
	files := suiteFiles(t)
	count := map[string]int{}
	for _, format := range []string{Weir, JSON} {
		d := mustDecoder(t, format, nil)
		for name, raw := range files {
			for _, frame := range [][2]string{{`{"v":1,"attrs":`, `}`}, {`{"ip":"192.0.2.1","attrs":{"x":`, `,"y":1},"id":"z"}`}} {
				event := []byte(frame[0] + string(raw) + frame[1])
				var r traffic.Request
				err := d.Decode(event, &r)
				switch kind := name[:2]; {
				case kind == "y_" && err != nil:
					t.Errorf("%s: %s refused: %v", format, name, err)
				case kind == "n_" && reasonOf(err) != ReasonMalformed:
					t.Errorf("%s: %s: got %v, want malformed", format, name, err)
				case kind == "y_" && !strings.Contains(string(r.Attrs), strings.TrimSpace(string(raw))):
					t.Errorf("%s: %s: attrs are %q", format, name, r.Attrs)
				}
				count[name[:2]]++
			}
		}
	}
	if want := map[string]int{"y_": 95 * 4, "n_": 188 * 4, "i_": 35 * 4}; count["y_"] != want["y_"] || count["n_"] != want["n_"] || count["i_"] != want["i_"] {
		t.Fatalf("ran %v, want %v", count, want)
	}
}
