package ingest

import (
	"slices"
	"strings"
	"testing"
)

func TestStreamNamesTopicsAndGroups(t *testing.T) {
	for _, tc := range []struct {
		stream          Stream
		requests, group string
	}{
		{Live, "weir.requests", "weir.route"},
		{Replay("may"), "weir.replay.may.requests", "weir.replay.may.route"},
	} {
		if got := tc.stream.Topics("weir").Requests; got != tc.requests {
			t.Errorf("%s: topic %s, want %s", tc.stream, got, tc.requests)
		}
		if got := tc.stream.Group("weir", StageRoute); got != tc.group {
			t.Errorf("%s: group %s, want %s", tc.stream, got, tc.group)
		}
	}
	want := []string{"x.requests", "x.keyed", "x.hits", "x.blocks", "x.dead"}
	if got := Live.Topics("x").All(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if name, ok := Replay("may").Replay(); name != "may" || !ok {
		t.Errorf("got %q, %v", name, ok)
	}
	if name, ok := Live.Replay(); ok {
		t.Errorf("the live stream is replay %q", name)
	}
}

func TestStreamCheck(t *testing.T) {
	for stream, want := range map[Stream]string{ // want "" means accepted
		Live: "", "replay/2026-05_x": "", Replay(strings.Repeat("n", 80)): "",
		"replay/": "replay name", "replay/a.b": "replay name", "replay/a/b": "replay name", "replay/_x": "replay name",
		Replay(strings.Repeat("n", 81)): "replay name", "replay": "stream", "": "stream", "Live": "stream",
	} {
		if err := stream.Check(); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", stream, err, want)
		}
	}
}

func TestCheckNamespace(t *testing.T) {
	for namespace, ok := range map[string]bool{"weir": true, "a-b_9": true, "": false, "a.b": false, strings.Repeat("n", 81): false} {
		if err := CheckNamespace(namespace); (err == nil) != ok {
			t.Errorf("%q: %v", namespace, err)
		}
	}
}
