package backtest

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// What DETECT tells of a rule's block while it is in shadow is what a backtest of the same requests says: at the rule's own limit whatever
// it counts by, and at every other limit of the ladder where there is one. Requests may come late.
func TestTrialsSayWhatABacktestSays(t *testing.T) {
	t.Parallel()
	refused := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		head := fmt.Sprintf("id: r\nowner: tests\nmatch: {}\nkey: [ip]\nwindow: %ds\nlateness: %ds\nmax_lag: %ds\nblock: {key: [ip], ttl: %ds, extend: %s}\n",
			rapid.SampledFrom([]int{7, 64, 100}).Draw(t, "window"), rapid.SampledFrom([]int{0, 20, 60}).Draw(t, "lateness"),
			rapid.SampledFrom([]int{5, 59, 61, 86400}).Draw(t, "max_lag"), rapid.SampledFrom([]int{1, 5, 30, 300}).Draw(t, "ttl"), rapid.SampledFrom([]string{"never", "on-hit"}).Draw(t, "extend"))
		algorithm := rapid.SampledFrom([]string{"", "", "", "sliding-log", "fixed", "sliding-counter", "token-bucket", "leaky-bucket"}).Draw(t, "algorithm")
		if algorithm != "" {
			head += "algorithm: " + algorithm + "\n"
		}
		limit := rapid.SampledFrom([]int{1, 2, 5, 40, 100, 140}).Draw(t, "limit")
		late := rapid.Bool().Draw(t, "late")
		var log bytes.Buffer
		var times []traffic.Time
		var sources []netip.Addr
		now := begin
		for range rapid.IntRange(1, 25).Draw(t, "stretches") {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, 5 * time.Second, 40 * time.Second, 400 * time.Second}).Draw(t, "pause"))
			ip, gap := rapid.IntRange(1, 3).Draw(t, "ip"), rapid.SampledFrom([]time.Duration{0, 50 * time.Millisecond, time.Second}).Draw(t, "gap")
			for range rapid.SampledFrom([]int{1, 3, limit + 1, 2 * limit}).Draw(t, "requests") {
				now = now.Add(gap)
				at := now
				if late && rapid.IntRange(0, 9).Draw(t, "is late") == 0 {
					at = at.Add(-time.Duration(rapid.IntRange(1, 30).Draw(t, "by")) * time.Second)
				}
				log.WriteString(lineOf(at, fmt.Sprintf("192.0.2.%d", ip), "", "", "/a"))
				times, sources = append(times, traffic.At(at)), append(sources, netip.AddrFrom4([4]byte{192, 0, 2, byte(ip)}))
			}
		}
		v := parseRules(t, head+fmt.Sprintf("limit: %d\n", limit))[0]
		v.Number, v.Lineage = 1, 1
		limits, told := triedBy(t, v, times, sources)
		o := Options{Format: "weir", Rules: parseRules(t, head+"limit: 1\n"), Sweep: Sweep{Field: SweepLimit, Limits: limits}, Workers: 1}
		for i, r := range run1(t, o, inMemory("log", log.Bytes())).Rules {
			if r.Block.Refused != told[i] {
				t.Fatalf("%s limit %d: %d refused, a backtest says %d", algorithm, r.Version.Limit, told[i], r.Block.Refused)
			}
			if told[i] > 0 {
				refused[algorithm]++
			}
		}
	})
	for algorithm, n := range refused {
		t.Logf("%q: %d limits at which something was refused", algorithm, n)
	}
	if len(refused) < 4 {
		t.Errorf("something was refused under %d algorithms only", len(refused))
	}
}

// triedBy gives the requests to a keyed partition, and sums what it tells of the limits that it has tried.
func triedBy(t *rapid.T, v rules.Version, times []traffic.Time, sources []netip.Addr) (limits []int, refused []int64) {
	p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Secret: detectors.Secret{7}})
	p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, RecordFormat: rules.EvidenceRecordFormat, Rules: []rules.Version{v}}))
	var hits []detectors.Hit
	fold := func(k *detectors.Keyed) {
		var err error
		if hits, err = p.Fold(k.Progress, k, hits); err != nil {
			t.Fatal(err)
		}
	}
	tick := func(next int64, at, progress traffic.Time) {
		fold(&detectors.Keyed{
			Format: rules.EvidenceRecordFormat, Kind: detectors.KeyedTick, Generation: 1, Offset: next, Prev: next - 1,
			Time: at, Progress: progress,
		})
	}
	progress := traffic.BeforeTime
	for i := range times {
		if i > 0 { // as a router does every second: who does not tick is not waited for
			tick(int64(i), progress, progress)
		}
		progress = max(progress, times[i])
		fold(&detectors.Keyed{
			Format: rules.EvidenceRecordFormat, Kind: detectors.KeyedEvent, Generation: 1, Offset: int64(i), Prev: int64(i) - 1, Time: times[i], Progress: progress,
			Version: 1, Rules: []int{0}, Identity: traffic.Identity{IP: sources[i]},
		})
	}
	tick(int64(len(times)), traffic.EndOfTime, progress)
	limits, refused = []int{v.Limit}, []int64{0}
	for i := range hits {
		h := &hits[i]
		if h.Kind != detectors.KindStatistics {
			continue
		}
		if len(h.Trial.Limits) > len(limits) {
			limits, refused = h.Trial.Limits, append(refused, make([]int64, len(h.Trial.Limits)-len(refused))...)
		}
		refused[0] += h.Trial.Refused
		for step := 1; step < len(h.Trial.RefusedAt); step++ {
			refused[step] += h.Trial.RefusedAt[step]
		}
	}
	return limits, refused
}
