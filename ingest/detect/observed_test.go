package detect_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/traffic"
)

// TestWhatADetectorHasDoneIsInItsMetrics compares the metrics of one that has folded a whole log with the hits that it sent.
func TestWhatADetectorHasDoneIsInItsMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(400)
		r := w.watch("a", func(*detect.Options) {}, 0)
		r.ended(t)
		pass(3 * time.Second)
		sent := map[detectors.Phase]float64{}
		for _, raw := range w.got() {
			h, err := detectors.DecodeHit([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			if h.Kind == detectors.KindHit {
				sent[h.Phase]++
			}
		}
		if sent[detectors.PhaseOpen] == 0 || sent[detectors.PhaseOpen] != sent[detectors.PhaseClosed]+sent[detectors.PhaseMerged] {
			t.Fatalf("the log gives hits %v", sent)
		}
		for phase, n := range sent {
			if got := r.sum(t, "weir_detect_hits_total", "phase", string(phase)); got != n {
				t.Errorf("%v hits of phase %s, sent were %v", got, phase, n)
			}
		}
		counted, over := r.sum(t, "weir_detect_rule_events_total", "outcome", "counted"), r.sum(t, "weir_detect_rule_events_total", "outcome", "over")
		late := r.sum(t, "weir_rule_uncounted_events_total", "stage", "detect")
		if events := r.sum(t, "weir_detect_events_total", "", ""); counted+late != events || over < sent[detectors.PhaseOpen] || over >= counted {
			t.Errorf("of %v events under one rule %v counted, %v over, %v left out", events, counted, over, late)
		}
		if open := r.sum(t, "weir_detect_open_episodes", "", ""); open != 0 {
			t.Errorf("%v episodes are open at the end", open)
		}
		for _, zero := range []string{"weir_stage_lag_records", "weir_stage_lag_seconds", "weir_stage_partition_halted"} {
			r.gauge(t, zero, "0")
		}
		r.stop(t)
	})
}

// TestADetectorThatStopsTellsTheRest: what was counted since the last report is told at the end, and nothing is said any more of
// partitions that may be another one's.
func TestADetectorThatStopsTellsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(400)
		r := w.watch("a", func(*detect.Options) {}, 0)
		r.ended(t)
		before := r.sum(t, "weir_detect_events_total", "", "")
		r.stop(t)
		const events = 400 // what comes twice is dropped
		if after := r.sum(t, "weir_detect_events_total", "", ""); after != events || before >= events {
			t.Errorf("of %d events %v are told of, before the end of %v", events, after, before)
		}
		families, err := r.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "partition" {
						t.Errorf("%s is said of a partition that was given away", f.GetName())
					}
				}
			}
		}
	})
}

// sum adds up the series of a metric that have a label, all of them without one.
func (r *watched) sum(t *testing.T, name, label, value string) (sum float64) {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			has := slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == label && l.GetValue() == value })
			if f.GetName() == name && (label == "" || has) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// TestADetectorThatHangsFallsBehind: while the topic of hits takes nothing the detector cannot look, and its lag grows all the same.
func TestADetectorThatHangsFallsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(400)
		for i := range w.keyed[0] {
			w.keyed[0][i].Appended = traffic.At(time.Now())
		}
		w.failures = 1 << 40
		r := w.watch("a", func(*detect.Options) {}, 0)
		pass(5 * time.Minute)
		before := r.sum(t, "weir_stage_lag_seconds", "stage", "detect")
		pass(time.Minute)
		if got := r.sum(t, "weir_stage_lag_seconds", "stage", "detect"); got != before+60 || before < 200 {
			t.Errorf("a lag of %v s, a minute before of %v s", got, before)
		}
		r.stop(t)
	})
}

// TestADetectorWithoutItsStoreFallsBehind: what it cannot take it cannot read, and nobody else does.
func TestADetectorWithoutItsStoreFallsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(400)
		w.takeStore(true)
		r := w.watch("a", func(*detect.Options) {}, 0)
		pass(time.Minute)
		if got := r.sum(t, "weir_stage_lag_seconds", "stage", "detect"); got != 60 {
			t.Errorf("a lag of %v s after a minute", got)
		}
		r.stop(t)
	})
}

// fickleLog answers, or does not.
type fickleLog struct {
	keyedLog
	mu      sync.Mutex
	trouble string
}

func (l *fickleLog) get(into string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble = into
}

func (l *fickleLog) Fetch(ctx context.Context, positions []ingest.Position, wait time.Duration) ([]ingest.Fetched, error) {
	l.mu.Lock()
	trouble := l.trouble
	l.mu.Unlock()
	fetched, err := l.keyedLog.Fetch(ctx, positions, wait)
	switch trouble {
	case "it fails":
		return nil, errors.New("connection refused")
	case "its answer lacks the partition":
		return nil, err
	case "the partition's answer is an error":
		for i := range fetched {
			fetched[i].Err, fetched[i].Messages, fetched[i].HighWatermark = errors.New("not leader"), nil, -1
		}
	case "it hangs":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return fetched, err
}

// TestADetectorThatKafkaDoesNotAnswerFallsBehind: it had folded all that there was, and has not looked since.
func TestADetectorThatKafkaDoesNotAnswerFallsBehind(t *testing.T) {
	for _, trouble := range []string{"it fails", "its answer lacks the partition", "the partition's answer is an error", "it hangs"} {
		t.Run(trouble, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newDetectWorld(t, 1)
				w.fill(400)
				log := &fickleLog{keyedLog: keyedLog{w}}
				r := w.watch("a", func(o *detect.Options) { o.Log = log }, 0)
				r.ended(t)
				pass(time.Minute)
				r.gauge(t, "weir_stage_lag_seconds", "0")
				log.get(trouble)
				pass(2 * time.Minute)
				if got := r.sum(t, "weir_stage_lag_seconds", "stage", "detect"); got < 119 || got > 121 {
					t.Errorf("a lag of %v s after two minutes without an answer", got)
				}
				if trouble == "it hangs" { // what is asked is never asked again
					r.stop(t)
					return
				}
				log.get("")
				pass(3 * time.Second)
				r.gauge(t, "weir_stage_lag_seconds", "0")
				r.stop(t)
			})
		})
	}
}

// The delay of a watermark says nothing without the margin by which idle partitions stay behind on purpose.
func TestIdleMarginIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for set, want := range map[time.Duration]float64{0: detectors.DefaultIdleMargin.Seconds(), 10 * time.Minute: 600} {
			w := newDetectWorld(t, 1)
			r := w.watch("a", func(o *detect.Options) { o.IdleMargin = set }, 0)
			if got := r.sum(t, "weir_detect_idle_margin_seconds", "", ""); got != want {
				t.Errorf("idle margin %s is shown as %v s, want %v", set, got, want)
			}
			r.stop(t)
		}
	})
}
