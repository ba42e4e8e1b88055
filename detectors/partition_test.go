package detectors_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const (
	second = traffic.Time(time.Second / time.Microsecond)
	origin = traffic.Time(1_700_000_000_000_000)
)

// bench drives one partition: it numbers events per source partition, as ROUTE does, and keeps the hits.
type bench struct {
	t    testing.TB
	p    *detectors.Partition
	cfg  detectors.Config
	prev []int64
	next []int64
	top  []traffic.Time
	now  traffic.Time
	hits []detectors.Hit
	log  []logged
}

type logged struct {
	appended traffic.Time
	keyed    detectors.Keyed
}

func rule(limit int, window, lateness time.Duration) rules.Version {
	return rules.Version{
		Document: rules.Document{
			ID: "burst", Owner: "tests", Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}},
			Missing: rules.MissingSkip, Limit: limit, Window: window, Lateness: lateness,
			Block: &rules.Block{
				Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, TTL: time.Minute, Extend: rules.ExtendOnHit,
			},
		},
		Number: 1, Lineage: 1,
	}
}

func newBench(t testing.TB, sources int, versions ...rules.Version) *bench {
	cfg := detectors.Config{Keyed: 3, Sources: sources, Generation: 1, Secret: detectors.Secret{1, 2, 3}}
	b := &bench{t: t, p: detectors.NewPartition(cfg), cfg: cfg, now: origin}
	for range sources {
		b.prev = append(b.prev, detectors.NoOffset)
		b.next = append(b.next, 0)
		b.top = append(b.top, traffic.BeforeTime)
	}
	for i, v := range versions {
		b.p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: int64(i + 1), Rules: []rules.Version{v}}))
	}
	return b
}

func (b *bench) event(source int, at traffic.Time, ip string, version int64) detectors.Keyed {
	b.top[source] = max(b.top[source], at)
	k := detectors.Keyed{
		Kind: detectors.KeyedEvent, Generation: 1, Source: source, Offset: b.next[source], Prev: b.prev[source],
		Time: at, Progress: b.top[source], Version: version, Rules: []int{0},
		Identity: traffic.Identity{IP: netip.MustParseAddr(ip), User: "u-" + ip, Device: "d"},
		Sample:   []byte(`{"time":"` + at.String() + `"}`),
	}
	b.prev[source] = b.next[source]
	b.next[source]++
	return k
}

func (b *bench) tick(source int, at traffic.Time) detectors.Keyed {
	return detectors.Keyed{
		Kind: detectors.KeyedTick, Generation: 1, Source: source, Offset: b.next[source], Prev: b.prev[source], Time: at,
	}
}

func (b *bench) fold(k detectors.Keyed) error {
	b.now += 1000
	out, err := b.p.Fold(b.now, &k, nil)
	if err == nil {
		b.log = append(b.log, logged{b.now, k})
	}
	b.hits = append(b.hits, out...)
	return err
}

func (b *bench) must(k detectors.Keyed) {
	b.t.Helper()
	if err := b.fold(k); err != nil {
		b.t.Fatalf("folding source %d offset %d: %v", k.Source, k.Offset, err)
	}
}

// end closes all source partitions, as the end marks of a replay do.
func (b *bench) end() {
	b.t.Helper()
	for s := range b.next {
		b.must(b.tick(s, traffic.EndOfTime))
	}
}

func phases(hits []detectors.Hit) []string {
	var out []string
	for i := range hits {
		h := &hits[i]
		if h.Kind == detectors.KindHit {
			out = append(out, fmt.Sprintf("%s %s %d", h.Phase, h.Subject, h.Count))
		} else {
			out = append(out, fmt.Sprintf("%s %d", h.Kind, h.Count))
		}
	}
	return out
}

func TestEpisodeStory(t *testing.T) {
	b := newBench(t, 1, rule(2, 10*time.Second, time.Second))
	for _, s := range []int{0, 1, 2, 3, 70, 71} {
		b.must(b.event(0, origin+traffic.Time(s)*second, "192.0.2.1", 1))
	}
	// The window is (t-10s, t]: the event at 13 s does not see the one at 3 s, so nothing is over again.
	b.end()
	want := []string{"open ip=192.0.2.1%2F32 1", "closed ip=192.0.2.1%2F32 2"}
	if got := phases(b.hits); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	open, closed := b.hits[0], b.hits[1]
	if open.ID != closed.ID || open.Offset != 2 || open.First != origin+2*second || closed.Last != origin+3*second {
		t.Errorf("open %+v\nclosed %+v", open, closed)
	}
	if open.BlockSubject != "ip=192.0.2.1%2F32" || open.Limit != 2 || open.WindowMS != 10_000 || open.Peak != 3 {
		t.Errorf("evidence: %+v", open)
	}
	if closed.Users != 1 || len(closed.Samples) != 2 {
		t.Errorf("evidence at the end: %+v", closed)
	}
	if b.p.Keys() != 0 {
		t.Errorf("%d windows left at the end of time", b.p.Keys())
	}
}

func TestWindowBounds(t *testing.T) {
	for _, tc := range []struct {
		name  string
		at    []traffic.Time // microseconds after the origin
		opens int
	}{
		{"an event exactly a window old is outside", []traffic.Time{0, 5 * second, 10 * second}, 0},
		{"a microsecond less is inside", []traffic.Time{1, 5 * second, 10 * second}, 1},
		{"equal times all count", []traffic.Time{0, 0, 0}, 1},
		{"an over event exactly a window after the last one opens another episode", []traffic.Time{0, 0, 0, 10 * second, 10 * second, 10 * second, 10 * second}, 2},
		{"over events a microsecond closer belong together", []traffic.Time{0, 0, 0, 10*second - 1}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, 1, rule(2, 10*time.Second, time.Minute))
			for _, at := range tc.at {
				b.must(b.event(0, origin+at, "192.0.2.1", 1))
			}
			b.end()
			opens := 0
			for i := range b.hits {
				if b.hits[i].Phase == detectors.PhaseOpen {
					opens++
				}
			}
			if opens != tc.opens {
				t.Errorf("%d episodes, want %d: %q", opens, tc.opens, phases(b.hits))
			}
		})
	}
}

func TestLimitOfTheEventsOwnVersion(t *testing.T) {
	b := newBench(t, 1, rule(1, 10*time.Second, time.Minute), rule(3, 10*time.Second, time.Minute))
	b.must(b.event(0, origin, "192.0.2.1", 2))
	b.must(b.event(0, origin+2*second, "192.0.2.1", 2)) // judged by 3
	b.must(b.event(0, origin+1*second, "192.0.2.1", 1)) // judged by 1: over; the one after it still by 3: not
	if len(b.hits) != 1 || b.hits[0].First != origin+1*second || b.hits[0].Limit != 1 {
		t.Fatalf("hits %+v", b.hits)
	}
	b.must(b.event(0, origin+3*second, "192.0.2.1", 2))
	b.end()
	if got := b.hits[len(b.hits)-1]; got.Phase != detectors.PhaseClosed || got.Count != 3 {
		t.Errorf("closing %+v", got)
	}
}

func TestMergedEpisodesKeepTheFirstID(t *testing.T) {
	b := newBench(t, 1, rule(1, 10*time.Second, time.Minute))
	for _, s := range []traffic.Time{0, 1, 15, 16} { // over at 1 and at 16: two episodes
		b.must(b.event(0, origin+s*second, "192.0.2.1", 1))
	}
	b.must(b.event(0, origin+8*second, "192.0.2.1", 1)) // over at 8, which touches both
	b.end()
	want := []string{
		"open ip=192.0.2.1%2F32 1", "open ip=192.0.2.1%2F32 1", "merged ip=192.0.2.1%2F32 1", "closed ip=192.0.2.1%2F32 4",
	}
	if got := phases(b.hits); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	if b.hits[2].ID != b.hits[1].ID || b.hits[2].IntoID != b.hits[0].ID || b.hits[3].ID != b.hits[0].ID {
		t.Error("the id that arrived first does not stay")
	}
}

func TestEpisodeIsCutAfterADay(t *testing.T) {
	b := newBench(t, 1, rule(0, time.Hour, time.Minute))
	for m := traffic.Time(0); m <= 25*60; m += 30 {
		b.must(b.event(0, origin+m*60*second, "192.0.2.1", 1))
	}
	b.end()
	var got []string
	for i := range b.hits {
		if h := &b.hits[i]; h.Phase != detectors.PhaseUpdate {
			got = append(got, fmt.Sprintf("%s %d %t", h.Phase, h.Count, h.Cut))
		}
	}
	want := []string{"open 1 false", "closed 48 true", "open 1 false", "closed 3 false"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUpdatesAtMostOncePerCooldown(t *testing.T) {
	b := newBench(t, 1, rule(0, 10*time.Second, time.Minute))
	for s := traffic.Time(0); s < 180; s++ {
		b.must(b.event(0, origin+s*second, "192.0.2.1", 1))
	}
	updates := 0
	for i := range b.hits {
		if b.hits[i].Phase == detectors.PhaseUpdate {
			updates++
		}
	}
	if updates != 2 {
		t.Errorf("%d updates in three minutes, want 2: %q", updates, phases(b.hits))
	}
}

func TestGroupedWindowsNeverBlock(t *testing.T) {
	v := rule(0, 10*time.Second, time.Minute)
	v.Missing = rules.MissingGroup
	b := newBench(t, 1, v)
	k := b.event(0, origin, "192.0.2.1", 1)
	k.Identity.IP = netip.Addr{}
	b.must(k)
	if h := b.hits[0]; !h.Grouped || h.BlockSubject != "" || h.Subject != "ip" {
		t.Errorf("%+v", h)
	}
}

func TestHitJSON(t *testing.T) {
	b := newBench(t, 1, rule(0, 10*time.Second, time.Minute))
	b.must(b.event(0, origin, "192.0.2.1", 1))
	raw, err := detectors.EncodeHit(&b.hits[0])
	if err != nil {
		t.Fatal(err)
	}
	got, err := detectors.DecodeHit(raw)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(got)
	if string(again) != string(raw) {
		t.Errorf("round trip:\n%s\n%s", raw, again)
	}
	for _, bad := range []string{``, `{`, `{"v":1}`, `{"v":1,"kind":"hit"}`, `[]`, `{}`, `{"v":0,"kind":"hit","id":"x"}`, `{"v":-1,"kind":"hit","id":"x"}`, `{"kind":"weather","id":"x"}`, `{"v":1,"kind":"hit","id":"x","first":"noon"}`} {
		if _, err := detectors.DecodeHit([]byte(bad)); !errors.Is(err, detectors.ErrHit) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	var newer *detectors.UnknownFormatError
	for _, later := range []string{`{"v":2,"kind":"hit","id":"x"}`, `{"v":2,"kind":"hit","limit":"three"}`, `{"v":1,"kind":"weather","id":"x"}`, `{"v":1,"kind":"attempt"}`} {
		if _, err := detectors.DecodeHit([]byte(later)); !errors.As(err, &newer) {
			t.Errorf("%s, of a newer build: %v", later, err)
		}
	}
}
