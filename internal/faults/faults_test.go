package faults

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// form says how much is done.
type form struct {
	name     string
	side     bool          // faults run side by side: the times in the table say little then
	events   int           // of each fault's load, at least
	rate     int           // events a second
	probes   int           // a second, besides
	kills    int           // of a process
	freezes  int           // of a process
	restarts int           // of the only broker, up to 2
	leaders  int           // killed of three
	turns    int           // in which two releases take over from each other, and back
	down     time.Duration // how long PostgreSQL is away
}

func chooseForm() form {
	switch {
	case os.Getenv("WEIR_TEST_FAULTS") == "full":
		return form{name: "full", events: 500_000, rate: 5000, probes: 60, kills: 6, freezes: 4, restarts: 2, leaders: 2, turns: 4, down: time.Minute}
	case os.Getenv("WEIR_TEST_KAFKA") != "":
		return form{name: "short", side: true, events: 6_000, rate: 600, probes: 30, kills: 1, freezes: 1, restarts: 1, leaders: 1, turns: 2, down: 10 * time.Second}
	}
	return form{name: "embedded", side: true, events: 4000, rate: 400, probes: 20, kills: 1, freezes: 1, restarts: 1, leaders: 1, turns: 1, down: 5 * time.Second}
}

// fault is a row of the table.
type fault struct {
	name string
	// named says that routers and detectors have instance ids.
	named bool
	// servers prepares those servers that the fault is to harm; the others are given by the testbed.
	servers func(*scene)
	// harm does it, under load, and returns when the stream works again.
	harm func(*scene)
}

// instance is the id of a process that has one in this fault.
func (f *fault) instance(name string) string {
	if f.named {
		return name
	}
	return ""
}

func faults() []fault {
	return []fault{
		{name: "kill -9 of a detector", harm: func(s *scene) { s.killOften(s.detectors) }},
		{name: "kill -9 of a router", harm: func(s *scene) { s.killOften(s.routers) }},
		{name: "kill -9 of a named detector, back at once", named: true, harm: func(s *scene) { s.killShortly(s.detectors) }},
		{name: "kill -9 of a named router, back at once", named: true, harm: func(s *scene) { s.killShortly(s.routers) }},
		{name: "named detector frozen, replaced, revived", named: true, harm: func(s *scene) { s.replace(s.detectors[0]) }},
		{name: "named router frozen, replaced, revived", named: true, harm: func(s *scene) { s.replace(s.routers[0]) }},
		{name: "detector frozen, revived", harm: func(s *scene) { s.freezeOften(s.detectors) }},
		{name: "router frozen, revived", harm: func(s *scene) { s.freezeOften(s.routers) }},
		{name: "broker restarted", servers: (*scene).ownBroker, harm: (*scene).restartBroker},
		{name: "leader of a keyed partition killed", servers: (*scene).ownCluster, harm: (*scene).killLeaders},
		{name: "PostgreSQL away", servers: (*scene).ownPostgres, harm: (*scene).stopPostgres},
		{name: "snapshot bits flipped", harm: (*scene).flipSnapshots},
	}
}

// TestFaults does one fault after the other to a stream under load. What comes of each is judged twice: the keyed log
// after the fence against an independent routing of the requests, and history against the oracle over the keyed log.
func TestFaults(t *testing.T) {
	form, seed := chooseForm(), seedOf(t)
	all := faults()
	table := newTable(form, seed)
	table.rows = make([]row, len(all))
	t.Run("each", func(t *testing.T) {
		for i := range all {
			t.Run(all[i].name, func(t *testing.T) {
				if form.side {
					t.Parallel()
				}
				table.rows[i].fault = all[i].name
				play(t, form, seed+uint64(i), &all[i], &table.rows[i])
			})
		}
	})
	fmt.Print(table)
}

// seedOf is 1 unless WEIR_TEST_FAULTS_SEED says otherwise. With the same seed the same events come in the same order, and
// faults come after the same pauses.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("WEIR_TEST_FAULTS_SEED")
	if text == "" {
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("WEIR_TEST_FAULTS_SEED: got %q, allowed: a whole number", text)
	}
	return seed
}
