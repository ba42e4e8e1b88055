package exactness

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What the gaps of history name is forgiven, and nothing else is.
func TestGapsForgiveWhatTheyName(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1_700_000_000+int64(seconds), 0) }
	right := Hit{ID: "a", Source: "r/1 device=d", Closed: true, First: at(1), Last: at(4), Events: 4}
	open := Hit{ID: "a", Source: right.Source, First: at(1), Last: at(1), Events: 1}
	change := func(f func(h *Hit)) Hit {
		h := right
		f(&h)
		return h
	}
	record := func(partition int32, offset int64, h Hit) HitRecord {
		return HitRecord{Partition: partition, Offset: offset, Hit: h}
	}
	gap := []Gap{{Partition: 2, From: 10}}
	lost := func(partition int32, offset int64, h Hit) []HitRecord {
		return []HitRecord{record(partition, offset, h)}
	}
	whole := []HitRecord{record(2, 10, open), record(2, 11, right)}
	ofOne := change(func(h *Hit) { h.Closed = false })
	ofAnother := change(func(h *Hit) { h.Source = "r/1 device=e" })
	tooMany := change(func(h *Hit) { h.Events++ })
	second := change(func(h *Hit) { h.ID, h.Closed = "b", false })
	joined := change(func(h *Hit) { h.ID, h.Closed, h.Merged = "b", false, true })
	tests := []struct {
		name                           string
		history                        []Hit
		lost                           []HitRecord
		gaps                           []Gap
		named, missing, extra, doubled int
		says                           string
	}{
		{name: "nothing was lost", history: []Hit{right}, gaps: gap},
		{name: "its end", history: []Hit{open}, lost: lost(2, 10, right), gaps: gap, named: 3},
		{name: "its end, of one event", history: []Hit{ofOne}, lost: lost(2, 10, right), gaps: gap, named: 1},
		{name: "all of it", lost: whole, gaps: gap, named: 4},
		{name: "what history has all the same", history: []Hit{right}, lost: whole, gaps: gap},
		{name: "its end, which no gap names", history: []Hit{open}, lost: lost(2, 10, right), missing: 3, says: "open"},
		{name: "its end, which had been read", history: []Hit{open}, lost: lost(2, 9, right), gaps: gap, missing: 3,
			says: "open"},
		{name: "its end, of another partition", history: []Hit{open}, lost: lost(1, 10, right), gaps: gap, missing: 3,
			says: "open"},
		{name: "all of it, outside of the gap", lost: lost(2, 9, right), gaps: gap, missing: 1, says: "0 episodes"},
		{name: "its beginning in the gap, its end nowhere", lost: lost(2, 10, open), gaps: gap, named: 1, missing: 3,
			says: "open"},
		{name: "another one's end", lost: lost(2, 10, ofAnother), gaps: gap, named: 4, missing: 1, extra: 1,
			says: "does not have"},
		{name: "an end that is wrong", history: []Hit{open}, lost: lost(2, 10, tooMany), gaps: gap, named: 4,
			doubled: 1, says: "5 events"},
		{name: "that it was joined", history: []Hit{right, second}, lost: lost(2, 10, joined), gaps: gap, named: 1},
		{name: "what is known to be joined", history: []Hit{right, joined}, lost: lost(2, 10, second), gaps: gap},
	}
	want := world(5).fence().Expected()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			all, named := Complete(test.history, test.lost, test.gaps)
			v := want.Judge(all)
			if named != test.named || v.Lost != test.missing || v.Extra != test.extra || v.Doubled != test.doubled {
				t.Errorf("named %d, lost %d, extra %d, doubled %d; want %d, %d, %d, %d", named, v.Lost, v.Extra,
					v.Doubled, test.named, test.missing, test.extra, test.doubled)
			}
			expect(t, v.Err(), test.says)
		})
	}
}

func TestReadHitRecord(t *testing.T) {
	const value = `{"v":1,"kind":"candidate","id":"0a","rule":"r","rule_version":2,"lineage":3,"phase":"closed",` +
		`"subject":"device=d","limit":1,"count":7,"at_least":true,"first":"2026-11-20T10:00:00.000001Z",` +
		`"last":"2026-11-20T10:00:01Z","seen":"2026-11-20T10:00:02Z","g":1,"p":0,"o":5,"keyed":4}`
	first := time.Date(2026, 11, 20, 10, 0, 0, 1000, time.UTC)
	want := HitRecord{Partition: 2, Offset: 8, Hit: Hit{
		ID: "0a", Source: "r/3 device=d candidate", Closed: true, First: first,
		Last: time.Date(2026, 11, 20, 10, 0, 1, 0, time.UTC), Events: 7, AtLeast: true,
	}}
	got, ok, err := ReadHitRecord(&kgo.Record{Partition: 2, Offset: 8, Value: []byte(value)})
	if err != nil || !ok || got != want {
		t.Errorf("got %+v, %t, %v; want %+v", got, ok, err, want)
	}
	others := []string{`{"v":1,"kind":"statistics","first":"end-of-time"}`, `{"v":1,"kind":"running","id":"0a"}`}
	for _, other := range others {
		if _, ok, err := ReadHitRecord(&kgo.Record{Value: []byte(other)}); ok || err != nil {
			t.Errorf("%s: %t, %v", other, ok, err)
		}
	}
	if _, _, err := ReadHitRecord(&kgo.Record{Value: []byte("{")}); err == nil {
		t.Error("what is no JSON is a record")
	}
}
