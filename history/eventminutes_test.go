package history_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/traffic"
)

// Minutes add up over routers and the parts that one has opened; one that is stored again only grows, and each stream has its own.
func TestEventMinutes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	minute := func(router string, part, at, events int64, matched map[string]int64) detectors.RoutedMinute {
		return detectors.RoutedMinute{
			Router: router, Part: part, Minute: dawn.Add(time.Duration(at) * time.Minute), Seen: dawn.Add(time.Hour), Events: events,
			Refused: events / 2, Unwatched: events / 4, Good: events / 8, Unjudged: 1, Matched: matched,
		}
	}
	store := func(stream string, minutes ...detectors.RoutedMinute) {
		t.Helper()
		if err := b.StoreMinutes(t.Context(), stream, minutes); err != nil {
			t.Fatal(err)
		}
	}
	all := []detectors.RoutedMinute{
		minute("a", 1, 0, 40, map[string]int64{"flood": 8, "other": 1}), minute("a", 1, 1, 16, nil),
		minute("a", 2, 0, 8, map[string]int64{"flood": 2}), minute("b", 1, 0, 80, map[string]int64{"flood": 5}),
	}
	store(history.Live)
	store(history.Live, all...)
	store(history.Live, minute("a", 1, 0, 24, map[string]int64{"flood": 7, "third": 4}))
	store(history.Live, all...)
	store("replay/monday", all[0])
	store(history.Live, detectors.RoutedMinute{Router: "a", Minute: traffic.BeforeTime, Events: 1}, detectors.RoutedMinute{Router: "a", Minute: traffic.EndOfTime, Events: 1})
	text := func(sql string) (got string) {
		t.Helper()
		if err := b.Conn.QueryRow(t.Context(), sql).Scan(&got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := text(`SELECT string_agg(concat_ws(' ', minute - '` + dawn.String() + `', events, refused, unwatched, good, unjudged), ', ' ORDER BY minute)
		FROM weir.event_minutes_v WHERE stream = 'live' AND isfinite(minute)`)
	if want := "00:00:00 128 64 32 16 3, 00:01:00 16 8 4 2 1"; got != want {
		t.Errorf("minutes %s, want %s", got, want)
	}
	got = text(`SELECT string_agg(concat_ws(' ', rule, matched), ', ' ORDER BY rule) FROM weir.rule_event_minutes_v WHERE stream = 'live'`)
	if want := "flood 15, other 1, third 4"; got != want {
		t.Errorf("minutes of rules %s, want %s", got, want)
	}
	if n := b.Number(t, `SELECT sum(events) FROM weir.event_minutes_v WHERE stream = 'replay/monday'`); n != 40 {
		t.Errorf("of a replay %d events", n)
	}
}
