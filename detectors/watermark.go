package detectors

import (
	"time"

	"github.com/weirhq/weir/traffic"
)

const (
	// DefaultStall is how long, by the stall clock, a source partition may be silent before the watermark stops waiting.
	DefaultStall = 5 * time.Minute
	// DefaultIdleMargin is how far an idle source partition's progress stays behind the clock.
	DefaultIdleMargin = 60 * time.Second
	// TickEvery is how often routers tell how far a source partition has come.
	TickEvery = time.Second
)

// maxSilence is the most that one gap between neighbouring records adds to the stall clock: an outage of everything
// must not stall anybody.
const maxSilence = traffic.Time(10 * time.Second / time.Microsecond)

// watermark is the event time that all source partitions have reached: the least progress of those that it waits for. It
// never goes back. A source partition that sends no tick for longer than the stall is not waited for.
type watermark struct {
	initial    int          // source partitions that a generation begins with (Config.Sources)
	stall      traffic.Time // Config.Stall
	idleMargin traffic.Time // Config.IdleMargin

	at       traffic.Time // no event older than this is expected any more; BeforeTime until all have shown progress
	clock    traffic.Time // the stall clock: append time that passed while anything was appended
	appended traffic.Time // append time of the last record
	sources  []progress
	survey   survey
}

// progress is event time in one source partition.
type progress struct {
	time    traffic.Time // greatest event time shown, or the time that an idle tick vouches for
	ticked  traffic.Time // stall clock at its last tick
	stalled bool
	seen    traffic.Time // time when advance last looked; not part of the state
}

// survey is what the last look at all source partitions found, so that most records need no look. It is not part of the
// state.
type survey struct {
	known bool
	ended bool         // all source partitions that are not stalled have ended
	live  bool         // any is not stalled
	least traffic.Time // progress of those that are not stalled
	until traffic.Time // the stall clock at which the next one stalls
}

func newWatermark(cfg *Config) watermark {
	w := watermark{
		initial: cfg.Sources, stall: traffic.Time(cfg.Stall.Microseconds()), idleMargin: traffic.Time(cfg.IdleMargin.Microseconds()),
		at: traffic.BeforeTime, appended: traffic.BeforeTime,
	}
	w.restart()
	return w
}

// restart begins a generation of the requests topic, whose source partitions have shown nothing yet. The watermark stays.
func (w *watermark) restart() {
	w.sources = nil
	w.grow(w.initial - 1)
	w.survey = survey{}
}

// grow takes in a source partition that was added after the generation had begun, as fence.grow does.
func (w *watermark) grow(source int) {
	if source < len(w.sources) {
		return
	}
	for len(w.sources) <= source {
		w.sources = append(w.sources, progress{time: traffic.BeforeTime, ticked: w.clock})
	}
	w.survey = survey{}
}

// pass moves the stall clock to a record's append time.
func (w *watermark) pass(appended traffic.Time) {
	if w.appended != traffic.BeforeTime {
		w.clock += min(max(appended-w.appended, 0), maxSilence)
	}
	w.appended = appended
}

// event notes the progress that an event shows, and reports whether the watermark rose by it.
func (w *watermark) event(k *Keyed) (rose bool) {
	s := &w.sources[k.Source]
	s.time = max(s.time, k.Progress)
	return w.advance(s)
}

// tick notes a router's word on a source partition, and reports whether the watermark rose by it.
func (w *watermark) tick(k *Keyed) (rose bool) {
	s := &w.sources[k.Source]
	s.time = max(s.time, k.Time)
	if k.Idle {
		// Read to its end: time passes there too. The margin is for events on their way, which must not be late when
		// they arrive.
		s.time = max(s.time, w.idleClock(k)-w.idleMargin)
	}
	s.ticked = w.clock
	w.survey = survey{}
	return w.advance(s)
}

// idleClock is the time that an idle tick vouches for. Both clocks must agree that it has come, the router's from
// before the fetch that found the end and the broker's.
func (w *watermark) idleClock(k *Keyed) traffic.Time { return min(w.appended, k.Clock) }

// advance moves the watermark to the least progress of all source partitions that are not stalled. It never goes back: a
// stalled partition that speaks again finds its old events late. moved is the source partition that showed progress.
func (w *watermark) advance(moved *progress) (rose bool) {
	if v := &w.survey; !v.known || w.clock > v.until || !moved.stalled && moved.seen <= v.least {
		w.look()
	}
	moved.seen = moved.time
	if !w.survey.live || w.survey.least <= w.at {
		return false
	}
	w.at = w.survey.least
	return true
}

// look makes the survey anew.
func (w *watermark) look() {
	v := survey{known: true, least: traffic.EndOfTime, until: traffic.EndOfTime}
	for i := range w.sources {
		s := &w.sources[i]
		s.stalled, s.seen = w.clock-s.ticked > w.stall, s.time
		if !s.stalled {
			v.least, v.live = min(v.least, s.time), true
			v.until = min(v.until, s.ticked+w.stall)
		}
	}
	v.ended = v.live && v.least == traffic.EndOfTime
	w.survey = v
}

// tooLate reports whether the event lies more than lateness behind the progress of its own source partition, or behind
// the watermark (which can be ahead of a partition that had stalled).
func (w *watermark) tooLate(k *Keyed, lateness traffic.Time) bool {
	return k.Time < w.sources[k.Source].time-lateness || w.at != traffic.BeforeTime && k.Time < w.at-lateness
}

// stalled lists the source partitions that the watermark does not wait for.
func (w *watermark) stalled() []int {
	var out []int
	for i := range w.sources {
		if w.sources[i].stalled {
			out = append(out, i)
		}
	}
	return out
}

// skew is how far the progress of the source partitions lies apart: the greatest less the least, of those that are not
// stalled, have shown any, and have not ended.
func (w *watermark) skew() time.Duration {
	least, greatest := traffic.EndOfTime, traffic.BeforeTime
	for i := range w.sources {
		if s := &w.sources[i]; !s.stalled && s.time != traffic.BeforeTime && s.time != traffic.EndOfTime {
			least, greatest = min(least, s.time), max(greatest, s.time)
		}
	}
	return max(greatest.Sub(least), 0)
}
