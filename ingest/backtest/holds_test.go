package backtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/traffic"
)

// at is a line of one client, so many seconds after the beginning.
func at(seconds int, device string) string {
	return lineOf(begin.Add(time.Duration(seconds)*time.Second), "192.0.2.1", device, "", "/a")
}

// other is a line of another client.
func other(seconds int) string {
	return lineOf(begin.Add(time.Duration(seconds)*time.Second), "192.0.2.2", "", "", "/a")
}

func TestWhatABlockHolds(t *testing.T) {
	t.Parallel()
	const byIP = "id: r\nowner: tests\nmatch: {}\nkey: [ip]\nlimit: 1\nwindow: 10s\n"
	const brief = byIP + "lateness: 3s\nblock: {key: [ip], ttl: 5s, extend: never}\n"
	var crowd strings.Builder
	for i := range 66 {
		crowd.WriteString(at(i/10, fmt.Sprint("tv-", i)))
	}
	for _, tt := range []struct {
		name, rule, log string
		never           func(traffic.Subject) bool
		refused, held   int64
	}{
		{"until its end, which is outside", byIP + "block: {key: [ip], ttl: 5s, extend: never}\n", at(0, "") + at(0, "") + at(4, "") + at(5, ""), nil, 1, 1},
		// The request of second 8 was answered before the block began.
		{"nothing before it", byIP + "block: {key: [ip], ttl: 60s}\n", at(9, "") + at(10, "") + at(8, "") + at(10, ""), nil, 1, 1},
		// Second 4 is within the block, and is heard of when it is over: as late as lateness allows, and then no more.
		{"whoever is late by less than lateness", brief, at(0, "") + at(0, "") + other(7) + at(4, ""), nil, 1, 1},
		{"nobody who is later", brief, at(0, "") + at(0, "") + other(8) + at(4, ""), nil, 0, 1},
		{"nobody whose hit is old", byIP + "max_lag: 5s\nblock: {key: [ip], ttl: 60s}\n", at(0, "") + other(20) + at(0, "") + at(21, ""), nil, 0, 0},
		{"who may never be blocked", byIP + "block: {key: [ip], ttl: 60s}\n", at(0, "") + at(0, "") + at(1, ""), func(s traffic.Subject) bool { return s == "ip=192.0.2.1%2F32" }, 0, 0},
		// 64 blocks of devices, then one of the address, which holds also whom it has not seen.
		{"all behind an address with many devices", strings.Replace(byIP, "limit: 1", "limit: 0", 1) + "block: {key: [ip, device], ttl: 60s}\n", crowd.String() + at(7, "other") + at(7, ""), nil, 3, 65},
		{"none of other paths", strings.Replace(byIP, "match: {}", "match: {path: /a}", 1) + "block: {key: [ip], ttl: 60s}\n",
			at(0, "") + at(0, "") + lineOf(begin.Add(time.Second), "192.0.2.1", "", "", "/b") + at(1, ""), nil, 1, 1},
	} {
		o := Options{Format: "weir", Rules: parseRules(t, tt.rule), NeverBlock: tt.never, Workers: 2}
		r := run1(t, o, inMemory("log", []byte(tt.log)))
		if n := r.Rules[0].Episodes; n > 1 {
			t.Errorf("%s: %d episodes, though one has all blocks", tt.name, n)
		}
		if b := r.Rules[0].Block; b.Refused != tt.refused || b.Held != tt.held || b.ShareOfAll != float64(b.Refused)/float64(r.Events) || b.ShareOfMatched != float64(b.Refused)/float64(r.Rules[0].Matched) {
			t.Errorf("%s: %+v, want %d refused, %d held", tt.name, *b, tt.refused, tt.held)
		}
	}
}

// What an episode did since its opening is told by its closing hit. With others' requests that comes soon, and
// lengthens the block; of a log that pauses it comes too late, as it would in a stream that falls silent.
func TestAPauseMakesClosingHitsLate(t *testing.T) {
	t.Parallel()
	const rule = "id: r\nowner: tests\nmatch: {path: /a}\nkey: [ip]\nlimit: 1\nwindow: 10s\nlateness: 0s\nmax_lag: 5s\nblock: {key: [ip], ttl: 60s, match: {path: /b}}\n"
	line := func(seconds int, ip, path string) string {
		return lineOf(begin.Add(time.Duration(seconds)*time.Second), ip, "", "", path)
	}
	attack := line(0, "192.0.2.1", "/a") + line(0, "192.0.2.1", "/a") + line(5, "192.0.2.1", "/a")
	for _, tt := range []struct {
		name, between string
		refused       int64
	}{
		{"others go on", line(16, "192.0.2.2", "/c"), 1},
		{"others go on as late as may be", line(20, "192.0.2.2", "/c"), 1},
		{"others go on too late", line(21, "192.0.2.2", "/c"), 0},
		{"silence", "", 0},
	} {
		log := attack + tt.between + line(62, "192.0.2.1", "/b")
		r := run1(t, Options{Format: "weir", Rules: parseRules(t, rule), Workers: 1}, inMemory("log", []byte(log)))
		if got := r.Rules[0].Block.Refused; got != tt.refused {
			t.Errorf("%s: %d refused, want %d", tt.name, got, tt.refused)
		}
	}
}
