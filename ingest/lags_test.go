package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

func TestLags(t *testing.T) {
	const second = traffic.Time(1_000_000)
	now := 100 * second
	clock := func() traffic.Time { return now }
	registry := prometheus.NewPedanticRegistry()
	lags, err := ingest.NewLags(registry, clock)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := ingest.NewLags(registry, clock); err != nil || same != lags {
		t.Fatalf("a second stage gets others: %v", err)
	}
	expect := func(name string, lines ...string) {
		t.Helper()
		head := map[string]string{
			"weir_stage_lag_records":      "Records of a partition that the stage has yet to handle.",
			"weir_stage_lag_seconds":      "Age, by the time of its append to Kafka, of the oldest record that the stage has yet to handle; 0 where there is none. Where the stage has not looked for 10 s, it counts from then, also while the process is in no consumer group.",
			"weir_stage_partition_halted": "1 while the stage cannot go on with a partition; see weir partitions list and the log.",
		}
		want := "# HELP " + name + " " + head[name] + "\n# TYPE " + name + " gauge\n" + strings.Join(lines, "\n") + "\n"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), name); err != nil {
			t.Error(err)
		}
	}
	lag := lags.Of("detect", 3)
	expect("weir_stage_lag_records", `weir_stage_lag_records{partition="3",stage="detect"} 0`)
	expect("weir_stage_lag_seconds", `weir_stage_lag_seconds{partition="3",stage="detect"} 0`)

	lag.Behind(7, 98*second)
	other := lags.Of("route", 3)
	other.Behind(-1, 50*second)
	other.Halt(true)
	now += 10 * second // nobody tells anything meanwhile
	expect("weir_stage_lag_records", `weir_stage_lag_records{partition="3",stage="detect"} 7`, `weir_stage_lag_records{partition="3",stage="route"} 0`)
	expect("weir_stage_lag_seconds", `weir_stage_lag_seconds{partition="3",stage="detect"} 12`, `weir_stage_lag_seconds{partition="3",stage="route"} 0`)
	expect("weir_stage_partition_halted", `weir_stage_partition_halted{partition="3",stage="detect"} 0`, `weir_stage_partition_halted{partition="3",stage="route"} 1`)

	lag.Behind(1, 200*second) // a broker whose clock is ahead
	other.Behind(5, 40*second)
	other.Unknown() // it is not worked on any more
	now += second
	expect("weir_stage_lag_records", `weir_stage_lag_records{partition="3",stage="detect"} 1`, `weir_stage_lag_records{partition="3",stage="route"} 0`)
	expect("weir_stage_lag_seconds", `weir_stage_lag_seconds{partition="3",stage="detect"} 0`, `weir_stage_lag_seconds{partition="3",stage="route"} 71`)
	expect("weir_stage_partition_halted", `weir_stage_partition_halted{partition="3",stage="detect"} 0`, `weir_stage_partition_halted{partition="3",stage="route"} 0`)

	lag.Behind(0, 0)
	other.Behind(0, 0)
	now += 10 * second
	expect("weir_stage_lag_seconds", `weir_stage_lag_seconds{partition="3",stage="detect"} 0`, `weir_stage_lag_seconds{partition="3",stage="route"} 0`)
	now += second // they hang, or nobody answers them
	other.Unknown()
	expect("weir_stage_lag_seconds", `weir_stage_lag_seconds{partition="3",stage="detect"} 11`, `weir_stage_lag_seconds{partition="3",stage="route"} 11`)
	lag.Behind(0, 0)
	expect("weir_stage_lag_seconds", `weir_stage_lag_seconds{partition="3",stage="detect"} 0`, `weir_stage_lag_seconds{partition="3",stage="route"} 11`)
}

// conducted is a group that gives a member one assignment after the other. What is between two of them is up to the test.
type conducted struct {
	assignments [][]int
	between     func(after int)
}

func (c conducted) Run(ctx context.Context, session func(ctx context.Context, a ingest.Assignment) error) error {
	var ended []error
	for i, partitions := range c.assignments {
		ended = append(ended, session(ctx, ingest.Assignment{Partitions: partitions}))
		c.between(i)
	}
	return errors.Join(ended...)
}

// A partition is shown from its assignment until one comes that lacks it: also between two generations, when the stage is in no
// group, and however a session ends.
func TestLagsStayUntilTheNextAssignment(t *testing.T) {
	now := traffic.Time(100_000_000)
	registry := prometheus.NewPedanticRegistry()
	lags, err := ingest.NewLags(registry, func() traffic.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when, want string) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "weir_stage_partition_halted" && m.GetGauge().GetValue() != 0 {
					got += " halted"
				}
				if f.GetName() == "weir_stage_lag_seconds" {
					got += fmt.Sprintf(" %s/%s:%v", m.GetLabel()[1].GetValue(), m.GetLabel()[0].GetValue(), m.GetGauge().GetValue())
				}
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	lags.Of("record", 1).Behind(4, now) // another stage's
	group := conducted{[][]int{{1, 2}, {2, 3}, {}}, func(after int) {
		now += 60_000_000 // Kafka is away
		expect(fmt.Sprintf("a minute after generation %d", after),
			[]string{" record/1:60 route/1:60 route/2:60", " record/1:120 route/2:110 route/3:60", " record/1:180"}[after])
	}}
	broken := errors.New("broken")
	err = lags.Run(t.Context(), "route", group, func(_ context.Context, a ingest.Assignment) error {
		switch {
		case len(a.Partitions) == 0:
			expect("without a partition", " record/1:120")
			return nil
		case a.Partitions[0] == 2:
			expect("when it is assigned again", " record/1:60 route/2:60 route/3:0")
			lags.Of("route", 2).Behind(7, now-50_000_000)
		}
		lags.Of("route", a.Partitions[0]).Halt(true) // nobody says so once nobody works on it
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("the group's answer is kept back: %v", err)
	}
}

func TestLagsEndWithTheirStage(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	lags, err := ingest.NewLags(registry, func() traffic.Time { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	group := conducted{[][]int{{1, 2}}, func(int) {}}
	if err := lags.Run(t.Context(), "route", group, func(context.Context, ingest.Assignment) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
		t.Errorf("%d series are left: %v", n, err)
	}
}

func TestNothingUnreadWasAppendedBefore(t *testing.T) {
	read := []traffic.Message{{Offset: 4, Appended: 40}, {Offset: 5, Appended: 50}}
	for name, tc := range map[string]struct {
		f    ingest.Fetched
		want traffic.Time
	}{
		"nothing is known":             {ingest.Fetched{Next: 4, HighWatermark: 9, Asked: 70}, traffic.BeforeTime},
		"behind what was read":         {ingest.Fetched{Messages: read, Next: 6, HighWatermark: 9, Asked: 70}, 50},
		"what follows was seen":        {ingest.Fetched{Messages: read, Next: 6, HighWatermark: 9, Following: 55, Asked: 70}, 55},
		"the log was read to its end":  {ingest.Fetched{Messages: read, Next: 6, HighWatermark: 6, Asked: 70}, 70},
		"it was empty":                 {ingest.Fetched{Next: 6, HighWatermark: 6, Asked: 70}, 70},
		"a clock behind the broker's":  {ingest.Fetched{Messages: read, Next: 6, HighWatermark: 6, Asked: 45}, 50},
		"the end moved while it asked": {ingest.Fetched{Messages: read, Next: 6, HighWatermark: 7, Asked: 70}, 50},
	} {
		if got := tc.f.NotBefore(); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// Of records whose age nobody knows the age counts from when they were seen first, not from the beginning of time.
func TestALagOfUnknownAgeCountsFromNow(t *testing.T) {
	now := traffic.Time(100_000_000)
	registry := prometheus.NewPedanticRegistry()
	lags, err := ingest.NewLags(registry, func() traffic.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	lag := lags.Of("route", 0)
	lag.Behind(3, traffic.BeforeTime)
	now = now.Add(4 * time.Second)
	lag.Behind(4, traffic.BeforeTime)
	now = now.Add(time.Second)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if age := f.GetMetric()[0].GetGauge().GetValue(); f.GetName() == "weir_stage_lag_seconds" && age != 5 {
			t.Errorf("the age is %v s, want 5", age)
		}
	}
}
