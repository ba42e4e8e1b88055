package stream

import (
	"fmt"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// Requests are told apart in bounded memory, and what comes often is never lost among what comes once.
func TestFrequentRequests(t *testing.T) {
	var f frequent
	buf := []byte("/login?next=1")
	line := traffic.Request{Method: "POST"}
	const often, rare = 3000, 200_000
	for i := range rare {
		f.add(&traffic.Request{Method: "GET", Path: fmt.Sprintf("/item/%d", i)})
		if i%(rare/often) == 0 {
			line.Path = string(buf)
			f.add(&line)
		}
	}
	if len(f.counts) > frequentRoom {
		t.Errorf("%d requests are kept, room is for %d", len(f.counts), frequentRoom)
	}
	top := f.top(3)
	if len(top) != 3 || top[0].Method != "POST" || top[0].Path != "/login" || !top[0].AtLeast {
		t.Fatalf("top %+v", top)
	}
	if n := top[0].Events; n > often+50 || n < often-rare/frequentRoom-50 {
		t.Errorf("%d times, want about %d, and at most %d fewer", n, often, rare/frequentRoom)
	}
	var few frequent
	for range 2 {
		few.add(&traffic.Request{Path: "/a"})
	}
	few.add(&traffic.Request{Path: "/b#x"})
	if got := fmt.Sprint(few.top(5)); got != "[{ /a 2 false} { /b 1 false}]" {
		t.Errorf("of few: %s", got)
	}
}
