package route

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// simFold is a detector's fence, as plainly as it can be written: it tells which event records count.
type simFold struct {
	fence, ticked [simSources]int64
	accepted      []detectors.Keyed
	wrong         []string
}

// check folds the keyed log and compares what passes the fence with an independent routing of the requests log, event
// by event, under one version each. It returns what is wrong.
func (w *world) check() []string {
	var wrong []string
	accepted := make([][]detectors.Keyed, simKeyed)
	for q := range w.keyed {
		f := simFold{}
		for p := range f.fence {
			f.fence[p] = detectors.NoOffset
		}
		for _, rec := range w.keyed[q] {
			if !f.fold(w, rec) {
				break
			}
		}
		accepted[q] = f.accepted
		for _, s := range f.wrong {
			wrong = append(wrong, fmt.Sprintf("keyed %d: %s", q, s))
		}
	}
	if len(wrong) > 0 {
		return wrong
	}
	return w.checkEvents(accepted)
}

func (f *simFold) fold(w *world, rec simRecord) bool {
	var k detectors.Keyed
	if err := detectors.DecodeKeyed(rec.value, &k); err != nil {
		f.wrong = append(f.wrong, err.Error())
		return false
	}
	if k.Generation != 7 {
		f.wrong = append(f.wrong, fmt.Sprintf("generation %d", k.Generation))
	}
	fence := f.fence[k.Source]
	if k.Kind == detectors.KeyedEvent && k.Offset <= fence {
		return true
	}
	if k.Prev > fence || k.Kind == detectors.KeyedEvent && k.Prev != fence {
		f.wrong = append(f.wrong, fmt.Sprintf("hole: kind %d of %d/%d names %d, the fence is %d", k.Kind, k.Source, k.Offset, k.Prev, fence))
		return false
	}
	if k.Kind == detectors.KeyedTick {
		f.tick(w, &k)
		return true
	}
	if k.Offset < f.ticked[k.Source] {
		f.wrong = append(f.wrong, fmt.Sprintf("event %d/%d counts after a tick that said %d was acknowledged", k.Source, k.Offset, f.ticked[k.Source]))
	}
	f.fence[k.Source] = k.Offset
	k.Rules = slices.Clone(k.Rules)
	f.accepted = append(f.accepted, k)
	return true
}

// tick checks what a tick promises.
func (f *simFold) tick(w *world, k *detectors.Keyed) {
	f.ticked[k.Source] = max(f.ticked[k.Source], k.Offset)
	progress := traffic.BeforeTime
	for i := range k.Offset {
		_, progress = w.requests[k.Source][i].decided(progress)
	}
	if k.Time != progress {
		f.wrong = append(f.wrong, fmt.Sprintf("tick of %d/%d has time %v, want %v", k.Source, k.Offset, k.Time, progress))
	}
	if !k.Idle {
		return
	}
	const resolution = time.Millisecond // of the brokers' times: an event may have come so much later than it says
	for i := k.Offset; i < int64(len(w.requests[k.Source])); i++ {
		if e := &w.requests[k.Source][i]; e.appended.Add(resolution) <= k.Clock {
			f.wrong = append(f.wrong, fmt.Sprintf("tick of %d/%d is idle at %v, but %d came at %v", k.Source, k.Offset, k.Clock, i, e.appended))
		}
	}
}

// decided is the time of an event by the rules of the design, and the progress after it.
func (e *simEvent) decided(progress traffic.Time) (at, after traffic.Time) {
	if e.bad {
		return 0, progress
	}
	at = e.time
	if at > e.appended.Add(5*time.Second) {
		at = e.appended
	}
	return at, max(progress, at)
}

// expected is where an event belongs under a version: keyed partition → rule indexes.
func (e *simEvent) expected(version int64) map[int][]int {
	out := map[int][]int{}
	if e.bad {
		return out
	}
	values := map[traffic.Field]string{
		traffic.FieldIP: e.ip + "/32", traffic.FieldDevice: e.device, traffic.FieldUser: e.user,
	}
	for i, r := range simRouting(version).Rules {
		lacking := slices.ContainsFunc(r.Key, func(k traffic.KeyField) bool { return values[k.Field] == "" })
		q := 0
		switch {
		case lacking && r.Missing == rules.MissingSkip:
			continue
		case len(r.Key) == 0:
			q = target(simSecret, traffic.KeyField{}, "", false, r.ID, simKeyed)
		default:
			value := values[r.Key[0].Field]
			q = target(simSecret, r.Key[0], value, value == "", "", simKeyed)
		}
		out[q] = append(out[q], i)
	}
	return out
}

func (w *world) checkEvents(accepted [][]detectors.Keyed) []string {
	type place struct {
		p int
		o int64
	}
	got := map[place]map[int]detectors.Keyed{}
	for q := range accepted {
		for _, k := range accepted[q] {
			at := place{k.Source, k.Offset}
			if got[at] == nil {
				got[at] = map[int]detectors.Keyed{}
			}
			got[at][q] = k
		}
	}
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for p := range w.requests {
		progress := traffic.BeforeTime
		for i := range w.requests[p] {
			e := &w.requests[p][i]
			var at traffic.Time
			at, progress = e.decided(progress)
			records := got[place{p, e.offset}]
			if _, dead := w.letters[[2]int64{int64(p), e.offset}]; dead != e.bad {
				say("event %d/%d: dead letter: got %v, want %v", p, e.offset, dead, e.bad)
			}
			version := int64(1) // an event that the world's every version drops has no record to tell
			for _, k := range records {
				version = k.Version
			}
			want := e.expected(version)
			for q, k := range records {
				if k.Version != version {
					say("event %d/%d was routed under versions %d and %d", p, e.offset, version, k.Version)
				}
				if !slices.Equal(k.Rules, want[q]) || k.Time != at || k.Progress != progress {
					say("event %d/%d on %d: got rules %v time %v progress %v, want %v %v %v", p, e.offset, q, k.Rules, k.Time, k.Progress, want[q], at, progress)
				}
			}
			for q := range want {
				if _, ok := records[q]; !ok {
					say("event %d/%d is missing on %d", p, e.offset, q)
				}
			}
		}
	}
	return wrong
}
