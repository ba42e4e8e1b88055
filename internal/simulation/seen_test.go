package simulation

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/simulation/judge"
)

// seen counts what runs went through and what they held.
type seen struct {
	judge.Seen
	takes          int // keyed partitions taken without warm memory
	replays        int // of them: by an owner that had to read again what another one had read
	refusedEpochs  int // snapshots of an owner that had been replaced
	refusedCommits int // commits of a generation that was over
	generations    int // of the routers' group
	controls       int // control records in the requests log
	torn           int // snapshots damaged
	hits           int // records of the hits topic
	hitsAgain      int // of them: repeated, to the byte
	rowsAgain      int // rows that RECORD stored once more
	refusedWrites  int // of a Redis that was full
	deaths         int
	freezes        int
	evicted        int // keys
	lostDeltas     int // that were gone before a gate had to have read them
	failovers      int // of streams
	answers        int // of a gate, that could be judged
	loadingAnswers int // of them: while it was loading what it had missed
	folded         map[int]int64
}

func (s *seen) add(o *seen) {
	for _, pair := range s.numbers(o) {
		*pair.to += *pair.from
	}
}

type number struct {
	name     string
	to, from *int
}

// numbers pairs the counters of two accounts.
func (s *seen) numbers(o *seen) []number {
	return []number{
		{"events", &s.Events, &o.Events}, {"fence drops", &s.Duplicates, &o.Duplicates}, {"holes", &s.Holes, &o.Holes},
		{"versions", &s.Versions, &o.Versions}, {"records for several dimensions", &s.Shared, &o.Shared},
		{"episodes", &s.Episodes, &o.Episodes}, {"windows out of order", &s.Disordered, &o.Disordered}, {"late", &s.Late, &o.Late},
		{"stalled source partitions", &s.Stalled, &o.Stalled}, {"takes", &s.takes, &o.takes}, {"replays", &s.replays, &o.replays},
		{"refused epochs", &s.refusedEpochs, &o.refusedEpochs}, {"refused commits", &s.refusedCommits, &o.refusedCommits},
		{"generations of routers", &s.generations, &o.generations}, {"control records", &s.controls, &o.controls}, {"grouped events", &s.Grouped, &o.Grouped},
		{"refused writes", &s.refusedWrites, &o.refusedWrites}, {"torn snapshots", &s.torn, &o.torn}, {"hits", &s.hits, &o.hits}, {"hits again", &s.hitsAgain, &o.hitsAgain},
		{"rows again", &s.rowsAgain, &o.rowsAgain}, {"blocks", &s.Blocks, &o.Blocks}, {"tombstones", &s.Tombstones, &o.Tombstones},
		{"deaths", &s.deaths, &o.deaths}, {"freezes", &s.freezes, &o.freezes}, {"evictions", &s.evicted, &o.evicted},
		{"deltas lost", &s.lostDeltas, &o.lostDeltas}, {"streams gone back", &s.failovers, &o.failovers},
		{"answers of gates", &s.answers, &o.answers}, {"of them while loading", &s.loadingAnswers, &o.loadingAnswers},
	}
}

func (s *seen) String() string {
	var parts []string
	for _, n := range s.numbers(s) {
		parts = append(parts, fmt.Sprintf("%d %s", *n.to, n.name))
	}
	return strings.Join(parts, ", ")
}

// write leaves the account in a file, for who has shared out seeds.
func (s *seen) write(t *testing.T, file string) {
	t.Helper()
	var list []int
	for _, n := range s.numbers(s) {
		list = append(list, *n.to)
	}
	text, err := json.Marshal(list)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readSeen reads what write has left.
func readSeen(file string) (*seen, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var s seen
	var list []int
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("account %q: %w", text, err)
	}
	if want := len(s.numbers(&s)); len(list) != want {
		return nil, fmt.Errorf("account %q: %d numbers, want %d", text, len(list), want)
	}
	for i, n := range s.numbers(&s) {
		*n.to = list[i]
	}
	return &s, nil
}

// missing names what n runs should have held and did not. Most of it comes in every run; a tenth is asked for.
func (s *seen) missing(n int) []string {
	var out []string
	for _, c := range s.numbers(s) {
		least := n / 10
		if c.name == "holes" || c.name == "stalled source partitions" || c.name == "streams gone back" {
			least = n / 100
		}
		if *c.to < least {
			out = append(out, c.name)
		}
	}
	return out
}
