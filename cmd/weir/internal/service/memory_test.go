package service

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// asFlooded makes a run of BenchmarkResidentMemory the process that is measured.
const asFlooded = "WEIR_TEST_AS_FLOODED"

const (
	floodedBudget     = 128 << 20
	floodedPartitions = 3
)

// BenchmarkResidentMemory floods a process far beyond the budget of its partitions, with snapshots under way all the time. It
// stays within what the documents say that it needs: by the system's own figure, with the garbage that the collector has not
// come by yet. WEIR_RESIDENT_LIMIT=off runs it without the runtime's limit.
func BenchmarkResidentMemory(b *testing.B) {
	if os.Getenv(asFlooded) != "" {
		floodAll(b)
		return
	}
	for b.Loop() {
		c := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^$", "-test.bench=^"+b.Name()+"$", "-test.benchtime=1x")
		c.Env = append(os.Environ(), asFlooded+"=1")
		out, err := c.CombinedOutput()
		if err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		_, figure, ok := strings.Cut(string(out), "VmHWM:")
		fields := strings.Fields(figure)
		if !ok || len(fields) < 2 || fields[1] != "kB" {
			b.Fatalf("no peak of resident memory in /proc/self/status here: %s", out)
		}
		kB, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		const budget = floodedBudget * floodedPartitions
		if most := int64(budget/4*5 + residentBase); kB<<10 > most || kB<<10 < budget {
			b.Errorf("%d MiB were resident, allowed: %d to %d MiB\n%s", kB>>10, budget>>20, most>>20, out)
		}
		b.ReportMetric(float64(kB>>10), "MiB-peak")
		b.ReportMetric(float64(budget>>20), "MiB-budget")
	}
}

// floodAll fills the budget of several partitions and goes on. A snapshot of one of them after another is written meanwhile,
// and its pieces are let go as a store takes them.
func floodAll(b *testing.B) {
	if os.Getenv("WEIR_RESIDENT_LIMIT") != "off" {
		holdMemory(floodedBudget, slog.New(slog.DiscardHandler))(floodedPartitions)
	}
	key := []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}
	strict := rules.Version{Number: 1, Lineage: 1, Document: rules.Document{ID: "strict", Key: key, Limit: 0, Window: 24 * time.Hour}}
	lax := rules.Version{Number: 1, Lineage: 1, Document: rules.Document{ID: "lax", Key: key, Limit: 10, Window: 24 * time.Hour}}
	parts := make([]*detectors.Partition, floodedPartitions)
	for i := range parts {
		parts[i] = detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Budget: floodedBudget})
		parts[i].Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: []rules.Version{strict, lax}}))
	}
	var encoder *detectors.SnapshotEncoder
	snapshots, written := 0, 0
	for i := range 1_200_000 {
		for _, p := range parts {
			floodOne(b, p, i)
		}
		if i%100 > 0 {
			continue
		}
		if encoder == nil {
			encoder = parts[snapshots%len(parts)].BeginSnapshot()
		}
		done := encoder.Next(128 << 10)
		if done || encoder.Written() >= 4<<20 {
			written += len(encoder.Take(nil))
		}
		if done {
			encoder, snapshots = nil, snapshots+1
		}
	}
	evicted := int64(0)
	for _, p := range parts {
		for _, n := range p.Counts().Evicted {
			evicted += n
		}
	}
	if evicted < 200_000 || snapshots < 5 {
		b.Errorf("%d keys evicted, %d snapshots of %d bytes: this was no flood", evicted, snapshots, written)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		if bytes.HasPrefix(line, []byte("VmHWM:")) {
			fmt.Printf("%s", line)
		}
	}
}

// floodOne folds the i-th event of a flood: of every four identities, each of which comes once, one is over its limit at once,
// and has an episode with a sample.
func floodOne(t testing.TB, p *detectors.Partition, i int) {
	at := traffic.Time(1_700_000_000_000_000) + traffic.Time(10*i)
	k := detectors.Keyed{
		Kind: detectors.KeyedEvent, Generation: 1, Version: 1, Rules: []int{1}, Offset: int64(i), Prev: int64(i) - 1, Time: at, Progress: at,
	}
	if i%4 == 0 {
		k.Rules, k.Sample = []int{0}, make([]byte, 500)
	}
	k.Identity.IP = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(i))))
	if _, err := p.Fold(at, &k, nil); err != nil {
		t.Fatal(err)
	}
}

// The limit follows the partitions that a process owns, unless the user has set one.
func TestMemoryLimitFollowsThePartitions(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	hold := holdMemory(1<<30, slog.New(slog.DiscardHandler))
	for _, partitions := range []int{64, 3, 0} {
		hold(partitions)
		if got, most := debug.SetMemoryLimit(-1), int64(partitions)*5<<28+400<<20; got > most || got < most-100<<20 {
			t.Errorf("%d partitions: limit %d, they may take %d", partitions, got, most)
		}
	}
	debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "3GiB")
	holdMemory(1<<30, slog.New(slog.DiscardHandler))(3)
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("the user's limit was %d, now it is %d", before, got)
	}
}
