package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/traffic/format"
)

// TestIngestTheLogsOfGateways replays the sample of every gateway's log three times over: the device that passed is over
// a limit of two, and the one that weir refused feeds no window, because the verdict came along.
func TestIngestTheLogsOfGateways(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	rule := writeFile(t, "device.yaml", "id: device\nowner: platform\nmatch: {}\nkey: [device]\nlimit: 2\nwindow: 60s\n")
	files, err := filepath.Glob("../../traffic/format/testdata/gateways/*.jsonl")
	if err != nil || len(files) < 6 {
		t.Fatalf("samples: %v, %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		if !slices.Contains(format.Names(), name) {
			t.Errorf("%s is the sample of no format", file)
			continue
		}
		lines, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		log := writeFile(t, name+".jsonl", strings.Repeat(string(lines), 3))
		s := decode[stream.Summary](b, "ingest", log, "--format", name, "--replay", name, "--rules", rule)
		want := stream.ReplayedRule{Rule: "device", Matched: 3, Episodes: 1, Sources: 1, Events: 1}
		if s.Events != 6 || len(s.Dead) != 0 || len(s.Rules) != 1 || !reflect.DeepEqual(s.Rules[0], want) {
			t.Errorf("%s: %d events, dead letters %v, %+v, want %+v", name, s.Events, s.Dead, s.Rules, want)
		}
	}
}
