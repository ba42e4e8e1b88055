package dashboards_test

import (
	"testing"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/traffic"
)

// History says of the same subjects as ENFORCE that nobody is ever blocked by them.
func TestNeverBlocked(t *testing.T) {
	bed := historytest.New(t)
	never, held := blocklist.NewNeverBlock(nil), 0
	for _, subject := range []traffic.Subject{
		"ip=0.1.2.3%2F32", "ip=10.0.0.5%2F32", "ip=10.0.0.0%2F7", "ip=8.0.0.0%2F5", "ip=100.63.255.255%2F32", "ip=100.64.0.1%2F32", "ip=100.127.255.255%2F32", "ip=100.128.0.0%2F32",
		"ip=127.0.0.1%2F32", "ip=169.254.169.254%2F32", "ip=172.15.0.1%2F32", "ip=172.16.0.0%2F24", "ip=172.31.255.255%2F32", "ip=172.32.0.0%2F32", "ip=192.168.1.1%2F32",
		"ip=192.169.0.0%2F16", "ip=203.0.113.7%2F32", "ip=9.255.255.255%2F32", "ip=0.0.0.0%2F0",
		"ip=%3A%3A%2F128", "ip=%3A%3A1%2F128", "ip=%3A%3A2%2F128", "ip=fc00%3A%3A%2F64", "ip=fdff%3A%3A%2F64", "ip=fe00%3A%3A%2F64", "ip=fe80%3A%3A%2F64", "ip=febf%3A%3A%2F64",
		"ip=fec0%3A%3A%2F64", "ip=2001%3Adb8%3A%3A%2F64",
		"ip=10.0.0.5%2F32&device=tv-7", "device=10.0.0.5%2F32", "user=ip%3D10.0.0.5",
	} {
		parsed, err := blocklist.ParseSubject(subject)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		var got bool
		if err := bed.Conn.QueryRow(t.Context(), "SELECT weir.never_blocked($1)", string(subject)).Scan(&got); err != nil {
			t.Fatal(err)
		}
		want := never.HoldsParsed(&parsed)
		if got != want {
			t.Errorf("%s: %t, want %t", subject, got, want)
		}
		if want {
			held++
		}
	}
	if held < 10 {
		t.Errorf("%d of these are never blocked: the test is weaker than it looks", held)
	}
	for _, none := range []string{"", "ip=", "ip=nonsense", "ip=10.0.0.5%2", "ip=%ZZ"} {
		var got bool
		if err := bed.Conn.QueryRow(t.Context(), "SELECT weir.never_blocked($1)", none).Scan(&got); err != nil || got {
			t.Errorf("%q: %t, %v", none, got, err)
		}
	}
}
