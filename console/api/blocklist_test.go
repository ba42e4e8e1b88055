package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/console/lately"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// manyBlocks stands in for a Redis with so many blocks, some of which, one in so many, were released before.
type manyBlocks struct {
	foreign       string // whose Redis is
	blocks, every int

	mu    sync.Mutex
	walks int
	asked []blocklist.Filter
}

// manyFor is how long each stands: none ends while it is asked for.
const manyFor = 1000 * time.Hour

func (m *manyBlocks) item(i int, released bool) blocklist.Listed {
	rule, since := "login-burst", traffic.At(time.Now())
	if i%4 == 0 {
		rule = "guest-flood"
	}
	l := blocklist.Listed{Rule: rule, Subject: traffic.Subject(fmt.Sprintf("ip=198.%d.%d.%d%%2F32", 18+i>>16,
		i>>8&255, i&255))}
	hit := fmt.Sprintf("%032x", i+1)
	if released {
		t := blocklist.NewTombstone(rule, "ann", since, since.Add(manyFor))
		t.Hit, l.Tombstone = hit, &t
		return l
	}
	b := blocklist.NewBlock(rule, 1, hit, since, since.Add(manyFor))
	l.Block, l.InForce = &b, true
	return l
}

func (m *manyBlocks) Each(_ context.Context, _ traffic.Time, wanted blocklist.Wanted,
	take func(blocklist.Listed) bool) (int, error) {
	step := 1
	if wanted.Released {
		step = m.every
	} else {
		m.mu.Lock()
		m.walks++
		m.mu.Unlock()
	}
	for i := 0; i < m.blocks; i += step {
		if !take(m.item(i, wanted.Released)) {
			break
		}
	}
	return 0, nil
}

func (m *manyBlocks) List(_ context.Context, _ traffic.Time, f blocklist.Filter) (blocklist.Listing, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, f)
	return blocklist.Listing{Items: []blocklist.Listed{m.item(7, false)}}, nil
}

// listing is an API over one reading of m. Viewers are shown pseudonyms.
func listing(t testing.TB, m *manyBlocks) http.Handler {
	t.Helper()
	registry, clock := prometheus.NewRegistry(), func() traffic.Time { return traffic.At(time.Now()) }
	blocks, err := lately.New(lately.Options{Source: m, Clock: clock, Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(blocks.Close)
	masker, err := access.NewMasker(access.Masking{Key: bytes.Repeat([]byte("k"), access.MaskKeyBytes),
		Below: access.Analyst, Fields: access.DefaultMaskedFields()})
	if err != nil {
		t.Fatal(err)
	}
	a, err := api.New(api.Options{
		Acts: &prompt{asked: make(chan postgres.Lane,
			100)}, Masker: masker, Changed: blocks.Forget, Witness: struct{ access.Witness }{},
		Logger: slog.New(slog.DiscardHandler), Registerer: registry,
		Health: func() api.Health { return api.Health{Foreign: m.foreign} },
		Reader: &api.Reader{
			Rules: struct{ api.RuleStore }{}, History: struct{ api.History }{}, Trail: struct{ api.Trail }{},
			Blocks: blocks, Explorer: struct{ api.Explorer }{}, Teller: struct{ api.Teller }{},
			Dossiers: struct{ api.Dossiers }{}, Clock: clock,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a.Handler()
}

// blockPage is the answer to a question of somebody for a page.
func blockPage(handler http.Handler, who string, q url.Values) (page api.BlockPage, err error) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/blocklist?"+q.Encode(), http.NoBody)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r.WithContext(access.With(r.Context(), cast()[who])))
	if w.Code != http.StatusOK {
		return page, fmt.Errorf("%d: %s", w.Code, w.Body)
	}
	return page, json.Unmarshal(w.Body.Bytes(), &page)
}

// twelve asks for a page, twelve at once, of which half are shown pseudonyms.
func twelve(handler http.Handler, limit string) error {
	errs := make([]error, 12)
	var asking sync.WaitGroup
	for i := range errs {
		asking.Go(func() {
			who := []string{"vera", "anna"}[i%2]
			page, err := blockPage(handler, who, url.Values{"limit": {limit}, "released": {"true"}})
			kept := lately.Most + 3000 // the releases are fewer than are kept
			if err == nil && (page.Total != kept || !page.Cut || page.Next == "" ||
				fmt.Sprint(len(page.Items)) != limit) {
				err = fmt.Errorf("%d items of %d, cut %v, next %q; want %s of %d, cut, more", len(page.Items),
					page.Total, page.Cut, page.Next, limit, kept)
			}
			errs[i] = err
		})
	}
	asking.Wait()
	return errors.Join(errs...)
}

// heap is how many bytes are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Twelve who ask at once for pages of 300,000 blocks are given one reading, of which a bounded part is kept, and a
// further page takes little beside it.
func TestListingsOf300kBlocksAreOneReading(t *testing.T) {
	m := &manyBlocks{blocks: 300_000, every: 100}
	handler := listing(t, m)
	before := heap()
	if err := twelve(handler, "1"); err != nil {
		t.Fatal(err)
	}
	kept := heap() - before
	runtime.KeepAlive(handler)
	if m.walks != 1 {
		t.Errorf("%d walks over Redis, want 1", m.walks)
	}
	if most := uint64(96 << 20); kept > most {
		t.Errorf("%d MiB are kept, want %d at most", kept>>20, most>>20)
	}
	var from, to runtime.MemStats
	runtime.ReadMemStats(&from)
	for range 10 {
		for _, who := range []string{"vera", "anna"} {
			if _, err := blockPage(handler, who, url.Values{"released": {"true"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	runtime.ReadMemStats(&to)
	if each := (to.TotalAlloc - from.TotalAlloc) / 20; each > 4<<20 {
		t.Errorf("a page of the same reading takes %d KiB, want 4096 at most", each>>10)
	}
}

// Pages give each item once, in the order of what is shown, whatever is asked for and wherever a page ends.
func TestPagesOfAListing(t *testing.T) {
	m := &manyBlocks{blocks: 21, every: 7, foreign: `belongs to installation "staging"`}
	handler := listing(t, m)
	for _, who := range []string{"vera", "anna"} {
		if page, err := blockPage(handler, who, nil); err != nil || page.Foreign != m.foreign {
			t.Errorf("%s is told %q of whose Redis is, %v", who, page.Foreign, err)
		}
		for _, tt := range []struct {
			name  string
			q     url.Values
			total int
		}{
			{"all", nil, 21}, {"with releases", url.Values{"released": {"true"}}, 24},
			{"of a rule", url.Values{"rule": {"guest-flood"}}, 6},
			{"of a rule, with releases", url.Values{"rule": {"guest-flood"}, "released": {"true"}}, 7},
			{"of an id", url.Values{"id": {fmt.Sprintf("%032X", 11)}}, 1},
			{"of an id, with releases", url.Values{"id": {fmt.Sprintf("%031x", 0)}, "released": {"true"}}, 18},
			{"of nothing", url.Values{"rule": {"no-rule"}}, 0},
		} {
			for _, limit := range []string{"1", "7", "1000"} {
				var places []string
				for cursor := ""; ; {
					q := url.Values{"limit": {limit}}
					for name, values := range tt.q {
						q[name] = values
					}
					if cursor != "" {
						q.Set("cursor", cursor)
					}
					page, err := blockPage(handler, who, q)
					if err != nil || page.Total != tt.total || page.Cut {
						t.Fatalf("%s, %s: total %d, cut %v, %v; want %d", who, tt.name, page.Total, page.Cut, err,
							tt.total)
					}
					for _, b := range page.Items {
						places = append(places, fmt.Sprintf("%s %s %v", b.Subject, b.Rule, b.Tombstone != nil))
						if b.Remaining <= 0 || b.Remaining > manyFor {
							t.Errorf("%s: %s remain of %s", tt.name, b.Remaining, manyFor)
						}
					}
					if cursor = page.Next; cursor == "" {
						break
					}
				}
				if len(places) != tt.total || !slices.IsSorted(places) ||
					len(slices.Compact(slices.Clone(places))) != len(places) {
					t.Errorf("%s, %s, by %s: %d items, sorted %v; want %d, each once", who, tt.name, limit,
						len(places), slices.IsSorted(places), tt.total)
				}
			}
		}
	}
	if m.walks != 1 {
		t.Errorf("%d walks, want 1", m.walks)
	}
}

// One source is asked for in Redis; an act has the next listing read anew; what is no id is refused.
func TestListingsOfOneSourceAndAfterAnAct(t *testing.T) {
	m := &manyBlocks{blocks: 9, every: 9}
	handler := listing(t, m)
	subject := m.item(7, false).Subject
	page, err := blockPage(handler, "anna", url.Values{"subject": {string(subject)}, "rule": {"login-burst"}})
	want := blocklist.Filter{Rule: "login-burst", Subject: subject}
	if err != nil || page.Total != 1 || m.walks != 0 || len(m.asked) != 1 || m.asked[0] != want {
		t.Errorf("one source: total %d, %v, after %d walks and %+v", page.Total, err, m.walks, m.asked)
	}
	for range 2 {
		if page, err := blockPage(handler, "anna", nil); err != nil || page.Total != 9 {
			t.Fatalf("total %d, %v; want 9", page.Total, err)
		}
	}
	if w, p, _ := asks(handler, "adam", http.MethodPost, "/api/v1/rules/login-burst/demote",
		`{"reason": "a test"}`); w.Code != http.StatusOK {
		t.Fatalf("an act: %d %s", w.Code, p.Detail)
	}
	if _, err := blockPage(handler, "anna", nil); err != nil || m.walks != 2 {
		t.Errorf("after an act: %v, %d walks, want 2", err, m.walks)
	}
	if w, p, _ := asks(handler, "anna", http.MethodGet, "/api/v1/blocklist?id=xyz",
		""); w.Code != http.StatusBadRequest || p.Field != "id" {
		t.Errorf("an id that is none: %d, field %q", w.Code, p.Field)
	}
}

// BenchmarkListingOf300kBlocks is what twelve who ask at once for the first 100 of 300,000 blocks cost a console, half
// of them as pseudonyms: one reading, the orders of both, and twelve pages.
func BenchmarkListingOf300kBlocks(b *testing.B) {
	var kept, readings uint64
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		m := &manyBlocks{blocks: 300_000, every: 100}
		handler := listing(b, m)
		before := heap()
		b.StartTimer()
		if err := twelve(handler, "100"); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		kept, readings = max(kept, heap()-before), readings+uint64(m.walks)
		runtime.KeepAlive(handler)
		b.StartTimer()
	}
	if readings != uint64(b.N) {
		b.Fatalf("%d readings of %d listings, want one each", readings, b.N)
	}
	b.ReportMetric(float64(kept)/(1<<20), "MiB-kept")
}
