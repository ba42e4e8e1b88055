package route

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
)

// TestTicksAndLossesHaveTheStreamsFormat: in the middle of an upgrade a router of this build writes for detectors of an
// older one, which leave the group at the first record of a format that they do not know.
func TestTicksAndLossesHaveTheStreamsFormat(t *testing.T) {
	for format := detectors.OldestRecordFormat; format <= detectors.RecordFormat; format++ {
		calmWorld(t, func(w *world) {
			w.routing = func(number int64) *rules.Routing {
				r := simRouting(number)
				r.RecordFormat = format
				return r
			}
			w.append(0, 20)
			w.append(1, 20)
			bad := (&ingest.Announcement{Generation: 7, Offset: 5, End: 8, Version: 1, Prev: sentBefore(5, simKeyed), Progress: 77}).Commit()
			bad.Offset = 15
			w.commits[1] = bad
			w.grant(ingest.Acceptance{Side: ingest.SideRequests, Partition: 1, GapSource: 1, GapOffset: 15, By: "ann", Reason: "known"})
		}, func(ctx context.Context, w *world, _ *Router, _ *simHost) {
			rest(ctx, 5*time.Second)
			for _, kind := range []detectors.KeyedKind{detectors.KeyedEvent, detectors.KeyedTick, detectors.KeyedLoss} {
				for source := range simSources {
					all := flat(w.keyedOf(t, kind, source))
					for i := range all {
						if all[i].Format != format {
							t.Fatalf("record format %d: source %d, record of kind %d has format %d", format, source, kind, all[i].Format)
						}
					}
					if source == 1 && len(all) == 0 {
						t.Errorf("record format %d: no record of kind %d", format, kind)
					}
				}
			}
		})
	}
}

// Before there is a routing version, ticks are what every detector can read.
func TestTicksBeforeTheFirstVersionHaveTheOldestFormat(t *testing.T) {
	calmWorld(t, func(w *world) {
		for v := range w.released {
			w.released[v] = w.begin.Add(time.Hour)
		}
	}, func(ctx context.Context, w *world, _ *Router, _ *simHost) {
		rest(ctx, 3*time.Second)
		ticks := flat(w.keyedOf(t, detectors.KeyedTick, 0))
		if len(ticks) == 0 || ticks[0].Format != detectors.OldestRecordFormat {
			t.Errorf("%d ticks: %+v", len(ticks), ticks[:min(len(ticks), 1)])
		}
	})
}

// unreadableRoutings is a store whose versions a newer build wrote.
type unreadableRoutings struct{ ingest.Routings }

func (unreadableRoutings) Routing(context.Context, string, int64) (*rules.Routing, error) {
	return nil, fmt.Errorf("history: %w: json: unknown field \"host\"", rules.ErrRouting)
}

// A version that cannot be read is not waited for, as a store that is away would be: it says what to do.
func TestAnUnreadableVersionIsUnfit(t *testing.T) {
	opt := routedOptions(true)
	opt.Routings = unreadableRoutings{}
	_, err := newVersionShelf(opt).get(t.Context(), 9)
	var unfit *unfitError
	if !errors.As(err, &unfit) || unfit.number != 9 || !strings.Contains(err.Error(), "cannot be used by this process") {
		t.Errorf("got %v", err)
	}
}
