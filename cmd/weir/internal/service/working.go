package service

import (
	"cmp"
	"slices"
	"sync"

	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/consume"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/ingest/route"
)

// working has the stages that were made in this process, whose figures the console shows. A stage that does not work here is
// nil. The zero value is ready; it is safe for concurrent use.
type working struct {
	mu        sync.Mutex
	router    *route.Router
	detector  *detect.Detector
	enforcer  *enforce.Enforcer
	consumers []stageConsumer
}

// stageConsumer reads a topic for a stage.
type stageConsumer struct {
	stage    string
	consumer *consume.Consumer
}

func (w *working) note(made func(*working)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	made(w)
}

// detects gives the detector, false while there is none.
func (w *working) detects() (*detect.Detector, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.detector, w.detector != nil
}

// pulse asks the stages.
func (w *working) pulse() console.Pulse {
	w.mu.Lock()
	defer w.mu.Unlock()
	var p console.Pulse
	if w.detector != nil {
		addDetect(&p, w.detector.Stats())
	}
	if w.router != nil {
		addRoute(&p, w.router.Stats())
	}
	if w.enforcer != nil {
		p.Blocks = w.enforcer.Written()
	}
	for _, c := range w.consumers {
		p.Stages = append(p.Stages, console.StageLag{Stage: c.stage, Records: c.consumer.Stats().Lag})
	}
	way := []string{ingest.StageRoute, ingest.StageDetect, ingest.StageRecord, ingest.StageRecordBlocks, ingest.StageEnforce} // of an event
	slices.SortStableFunc(p.Stages, func(a, b console.StageLag) int {
		return cmp.Compare(slices.Index(way, a.Stage), slices.Index(way, b.Stage))
	})
	return p
}

func addDetect(p *console.Pulse, s detect.Stats) {
	p.Hits = s.Opened
	p.Stages = append(p.Stages, console.StageLag{Stage: ingest.StageDetect, Records: s.Lag})
	for _, partition := range s.Halted {
		p.Problems = append(p.Problems, console.StoppedPartition("keyed", partition))
	}
}

func addRoute(p *console.Pulse, s route.Stats) {
	p.Events, p.Keyed = s.Events, s.Records
	var lag int64
	var stopped []int
	for partition, source := range s.Sources {
		if source.Refused || source.Halted {
			stopped = append(stopped, partition)
		}
		if !source.Refused {
			lag += max(0, source.HighWatermark-source.Offset)
		}
	}
	p.Stages = append(p.Stages, console.StageLag{Stage: ingest.StageRoute, Records: lag})
	slices.Sort(stopped)
	for _, partition := range stopped {
		p.Problems = append(p.Problems, console.StoppedPartition("requests", partition))
	}
}

// Pulse is what the stages that work in this process have done.
func (in *Installation) Pulse() console.Pulse { return in.working.pulse() }

// Progress is how far the stages that work in this process have come.
type Progress struct {
	Owned  map[string]int // partitions that each stage reads, by its name
	Halted int            // keyed partitions that have stopped
	Events int64          // events that ROUTE has read,
	Keyed  int64          // the keyed records that it has made of them,
	Folded int64          // and those that DETECT has counted
}

// Progress asks the stages.
func (in *Installation) Progress() Progress { return in.working.progress() }

func (w *working) progress() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := Progress{Owned: map[string]int{}}
	if w.router != nil {
		s := w.router.Stats()
		p.Events, p.Keyed, p.Owned[ingest.StageRoute] = s.Events, s.Records, routed(s)
	}
	if w.detector != nil {
		s := w.detector.Stats()
		p.Folded, p.Halted, p.Owned[ingest.StageDetect] = s.Events, len(s.Halted), s.Owned
	}
	for _, c := range w.consumers {
		p.Owned[c.stage] += c.consumer.Stats().Owned
	}
	return p
}

// routed is how many partitions of the requests topic are routed: those whose commit was refused are not.
func routed(s route.Stats) (partitions int) {
	for _, source := range s.Sources {
		if !source.Refused {
			partitions++
		}
	}
	return partitions
}
