package history_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestHitsView(t *testing.T) {
	b := newBed(t)
	h := hitNumber(1)
	h.First, h.Last = traffic.BeforeTime, traffic.EndOfTime
	b.record(t, history.Live, h)
	var phase, ip, device, window, first, last string
	err := b.conn.QueryRow(t.Context(), `SELECT phase, ip::text, device, window_length::text, first::text, last::text
		FROM weir.hits_v`).Scan(&phase, &ip, &device, &window, &first, &last)
	if err != nil || phase != "open" || ip != "192.0.2.1/32" || device != "tv-1" || window != "00:01:00" || first != "-infinity" || last != "infinity" {
		t.Errorf("%s %s %s %s %s %s, %v", phase, ip, device, window, first, last, err)
	}
	rows, err := b.Hits(t.Context(), history.HitQuery{})
	if err != nil || len(rows) != 1 || rows[0].First != traffic.BeforeTime || rows[0].Last != traffic.EndOfTime {
		t.Errorf("read back %+v, %v", rows, err)
	}
}

// Every example of docs/history.md runs.
func TestDocumentedQueries(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "history.md"))
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t)
	b.publish(t, rules.Format{Name: "weir"})
	apply(t, b, rulesOf(document("flood")))
	b.record(t, history.Live, hitNumber(1), hitNumber(2))
	b.exec(t, "SET search_path TO weir")
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 5 {
		t.Fatalf("%d examples found", len(blocks))
	}
	for _, block := range blocks {
		b.exec(t, block[1])
	}
}
