package service

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/ingest/route"
)

// blocklist cannot import ingest, and names what both know by itself.
func TestBlocklistNamesStreamAndStageAsIngest(t *testing.T) {
	if blocklist.StreamLive != string(ingest.Live) || enforce.Stage != ingest.StageEnforce {
		t.Errorf("stream %s and stage %s, of ingest: %s and %s", blocklist.StreamLive, enforce.Stage, ingest.Live, ingest.StageEnforce)
	}
}

// A stage that could not be made has no figures.
func TestAStageThatWasNotMadeIsNotAsked(t *testing.T) {
	broker, err := kafka.New(kafka.Config{Brokers: []string{"127.0.0.1:1"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Close() })
	in := &Installation{Config: config.Default(), Log: slog.New(slog.DiscardHandler), Kafka: broker}
	if _, err := in.consumer("record", "weir.hits", nil, nil, nil); err == nil {
		t.Fatal("made without a sink")
	}
	if p := in.Progress(); len(p.Owned) != 0 || len(in.Pulse().Stages) != 0 {
		t.Errorf("progress %+v, pulse %+v", p, in.Pulse())
	}
}

// What the console shows is what the stages' own figures say.
func TestPulseOfTheStages(t *testing.T) {
	var p console.Pulse
	addDetect(&p, detect.Stats{Opened: 3, Lag: 7, Halted: []int{0}})
	var s route.Stats
	s.Events, s.Records = 100, 170
	s.Sources = map[int]route.SourceStats{
		0: {Offset: 5, HighWatermark: 10}, 1: {Offset: 4, HighWatermark: 10, Halted: true}, 2: {Offset: 9, HighWatermark: 3},
		4: {Refused: true, HighWatermark: 1000},
	}
	addRoute(&p, s)
	want := console.Pulse{
		Events: 100, Keyed: 170, Hits: 3,
		Problems: []console.Problem{console.StoppedPartition("keyed", 0), console.StoppedPartition("requests", 1),
			console.StoppedPartition("requests", 4)},
		Stages: []console.StageLag{{Stage: "detect", Records: 7}, {Stage: "route", Records: 11}},
	}
	if fmt.Sprint(p) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
	// A process in which no stage runs has nothing to say.
	if got := new(working).pulse(); fmt.Sprint(got) != fmt.Sprint(console.Pulse{}) {
		t.Errorf("without stages: %+v", got)
	}
}
