package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/traffic"
)

// A server that has read a part of the blocks is not taken for one that has all: a list says so, and a release by the
// beginning of an id is refused, since another block may begin so.
func TestAServerThatHasNotReadAll(t *testing.T) {
	since := traffic.At(time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC))
	block := blocklist.NewBlock("login-burst", 1, fmt.Sprintf("%032x", 0xabcdef), since, since.Add(time.Hour))
	page, asked := api.BlockPage{Total: 1}, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(page); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("WEIR_TOKEN", "secret")
	weir := func(args ...string) outcome {
		var out, errs bytes.Buffer
		code := run(t.Context(), append(args, "--server", server.URL), strings.NewReader(""), &out, &errs)
		return outcome{code, out.String(), errs.String()}
	}
	for _, cut := range []bool{false, true} {
		page.Cut, page.Foreign = cut, map[bool]string{true: "belongs to installation \"staging\""}[cut]
		page.Items = []api.Block{{Listed: blocklist.Listed{Subject: "ip=192.0.2.7%2F32", Rule: "login-burst",
			Block: &block}}}
		if o := weir("blocks", "list"); o.code != exitOK || strings.Contains(o.stderr,
			"holds more than the server reads") != cut || !strings.Contains(o.stdout, "192.0.2.7") {
			t.Errorf("cut %v, a list: %+v", cut, o)
		}
		if o := weir("blocks", "list"); strings.Contains(o.stderr, "Redis belongs to installation \"staging\"") != cut {
			t.Errorf("of the Redis of another installation a list says %q", o.stderr)
		}
		o := weir("blocks", "release", "00000000", "--reason", "tests")
		if refused := strings.Contains(o.stderr, "several blocks have, or may have,"); refused != cut ||
			refused && !strings.Contains(asked, "id=00000000") {
			t.Errorf("cut %v, a release by the beginning of an id, asked for with %q: %+v", cut, asked, o)
		}
		page.Items = []api.Block{}
		o = weir("blocks", "release", "0123456789abcdef", "--reason", "tests")
		if not := strings.Contains(o.stderr, "has not read all blocks"); o.code != exitError || not != cut {
			t.Errorf("cut %v, a release of what is not among them: %+v", cut, o)
		}
	}
}
