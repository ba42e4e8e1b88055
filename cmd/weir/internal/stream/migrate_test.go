package stream

import (
	"testing"

	"github.com/weirhq/weir/ingest"
)

func TestShorterThanRouted(t *testing.T) {
	routed := func(offsets ...int64) map[int]*ingest.Announcement {
		out := map[int]*ingest.Announcement{}
		for p, o := range offsets {
			out[p] = &ingest.Announcement{Offset: o}
		}
		return out
	}
	for _, tc := range []struct {
		name    string
		log     map[int]ingest.Bounds
		commits map[int]*ingest.Announcement
		want    bool
	}{
		{"as it was", map[int]ingest.Bounds{0: {End: 10}, 1: {End: 20}}, routed(10, 15), false},
		{"made anew and empty", map[int]ingest.Bounds{0: {}, 1: {}}, routed(10, 15), true},
		{"made anew, one partition never used", map[int]ingest.Bounds{0: {End: 3}, 1: {}}, routed(10, 0), true},
		{"one partition lost its end", map[int]ingest.Bounds{0: {End: 5}, 1: {End: 20}}, routed(10, 15), false},
		{"shorter but not from its beginning", map[int]ingest.Bounds{0: {Start: 2, End: 5}, 1: {}}, routed(10, 15), false},
		{"nothing was routed", map[int]ingest.Bounds{0: {}, 1: {}}, routed(0, 0), false},
		{"no commits", map[int]ingest.Bounds{0: {}, 1: {}}, nil, false},
	} {
		if got := shorterThanRouted(tc.log, tc.commits); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}
