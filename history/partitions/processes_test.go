package partitions_test

import (
	"maps"
	"testing"
	"time"

	"github.com/weirhq/weir/history/partitions"
)

func TestProcessesTellOfThemselvesUntilTheyLeave(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ctx := t.Context()
	first := partitions.Process{Instance: "b-1", Does: "stages,console", Build: "1.4\x00",
		Offsets: map[string]float64{"redis": -70}}
	second := first
	second.Offsets = map[string]float64{"redis": 0, "postgres": 0.25}
	for _, p := range []partitions.Process{first, {Instance: "gone", Does: "ingest"},
		{Instance: "a-1", Does: "console"}, second} {
		if err := b.Partitions.Announce(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Partitions.Leave(ctx, "gone"); err != nil {
		t.Fatal(err)
	}
	all, _, err := b.Partitions.Processes(ctx, time.Minute)
	if err != nil || len(all) != 2 || all[0].Instance != "a-1" || all[1].Instance != "b-1" {
		t.Fatalf("%+v, %v", all, err)
	}
	if got := all[1]; got.Does != first.Does || got.Build != `1.4\x00` || !maps.Equal(got.Offsets, second.Offsets) {
		t.Errorf("got %+v", got)
	}
	b.Run(t, "UPDATE weir.processes SET reported_at = clock_timestamp() - interval '61 seconds' WHERE instance = 'a-1'")
	b.Run(t, "INSERT INTO weir.processes VALUES ('old', '', '', '{}', clock_timestamp() - interval '25 hours')")
	if all, _, err = b.Partitions.Processes(ctx, time.Minute); err != nil || len(all) != 1 || all[0].Instance != "b-1" {
		t.Errorf("of those that told of themselves within a minute: %+v, %v", all, err)
	}
	for _, told := range []string{`{"redis": "near"}`, `[]`, `null`, `7`} {
		b.Run(t, "UPDATE weir.processes SET reported_at = clock_timestamp(), offsets = '"+told+
			"' WHERE instance = 'a-1'")
		all, _, err := b.Partitions.Processes(ctx, time.Minute)
		if err != nil || len(all) != 2 || all[0].Offsets != nil || len(all[1].Offsets) != 2 {
			t.Errorf("beside one that tells %s: %+v, %v", told, all, err)
		}
	}
	b.Run(t, "UPDATE weir.processes SET reported_at = clock_timestamp() - interval '25 hours' WHERE instance = 'a-1'")
	b.Run(t, "INSERT INTO weir.processes VALUES ('old2', '', '', '{}', clock_timestamp())")
	if err := b.Partitions.Announce(ctx, second); err != nil {
		t.Fatal(err)
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.processes"); n != 2 {
		t.Errorf("%v rows are kept, want those of a day", n)
	}
}

// TestTheWorstClockIsNotHidden: of more processes than are listed, those come first whose clocks are wrong, whatever
// they are called, and it is told how many there are.
func TestTheWorstClockIsNotHidden(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Run(t, `INSERT INTO weir.processes
		SELECT 'a-' || i, 'ingest', '', '{"redis": 0.25, "kafka": -0.5}', clock_timestamp()
		FROM generate_series(1, 1200) i`)
	for instance, offsets := range map[string]string{"z-ahead": `{"kafka": 0, "redis": 1.5}`,
		"z-behind": `{"postgres": -70}`,
		"z-unread": `{"redis": "near"}`, "z-no-object": `[]`, "z-none": `{}`} {
		b.Run(t, "INSERT INTO weir.processes VALUES ('"+instance+"', 'stages', '', '"+offsets+"', clock_timestamp())")
	}
	all, of, err := b.Partitions.Processes(t.Context(), time.Minute)
	if err != nil || of != 1205 || len(all) != partitions.MostProcesses {
		t.Fatalf("%d of %d processes, %v", len(all), of, err)
	}
	for i, want := range []string{"z-behind", "z-ahead", "z-no-object", "z-unread", "a-1"} {
		if all[i].Instance != want {
			t.Errorf("process %d is %s, want %s", i, all[i].Instance, want)
		}
	}
}
