package backtest

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

// inMemory is a file of these bytes.
func inMemory(name string, text []byte) File {
	return File{Name: name, Size: int64(len(text)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }}
}

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func lineOf(at time.Time, ip, device, user, path string) string {
	return lineWith(at, ip, device, user, path, 200)
}

func lineWith(at time.Time, ip, device, user, path string, status int) string {
	line := fmt.Sprintf(`{"v":1,"time":%q,"ip":%q,"method":"GET","path":%q,"status":%d`, at.Format(time.RFC3339Nano), ip, path, status)
	if device != "" {
		line += fmt.Sprintf(`,"device":%q`, device)
	}
	if user != "" {
		line += fmt.Sprintf(`,"user":%q`, user)
	}
	return line + "}\n"
}

func TestBlocksAreThoseOfANaiveJudge(t *testing.T) {
	t.Parallel()
	keys := []struct{ key, block []string }{
		{[]string{"ip"}, []string{"ip"}},
		{[]string{"ip", "device"}, []string{"ip"}},
		{[]string{"ip"}, []string{"ip", "device"}},
		{[]string{"device", "ip"}, []string{"ip"}}, // in one place
		{[]string{"user"}, []string{"ip"}},
	}
	reaches := []struct {
		match, block  string
		watched, held func(path string, status int) bool
		tiers         string
		tier          func(path string, status int) *int // its limit; nil: the rule's own
		least         int                                // of requests with status 404, whose tier cannot be judged
	}{
		{"{path: /a}", "", func(path string, _ int) bool { return path == "/a" }, func(path string, _ int) bool { return path == "/a" }, "", nil, 0},
		{"{path: /a, status: 404}", "", func(path string, status int) bool { return path == "/a" && status == 404 }, func(path string, _ int) bool { return path == "/a" }, "", nil, 0},
		{"{status: [404, 5xx]}", "match: {except: /b}", func(_ string, status int) bool { return status == 404 }, func(path string, _ int) bool { return path != "/b" }, "", nil, 0},
		{"{path: [/a, /c]}", "match: {path: /b}", func(path string, _ int) bool { return path != "/b" }, func(path string, _ int) bool { return path == "/b" }, "", nil, 0},
		{`{path: [/a, /b], when: 'event.status > 400 && !has(event.attrs.staff)'}`, "", func(path string, status int) bool { return path != "/c" && status == 404 },
			func(path string, _ int) bool { return path != "/c" }, "", nil, 0},
		{`{path: [/a, /b]}`, "", func(path string, _ int) bool { return path != "/c" }, func(path string, _ int) bool { return path != "/c" },
			`[{when: event.status == 404, limit: 1}, {when: 'event.path == "/b"', limit: 5}]`, func(path string, status int) *int {
				one, five := 1, 5
				if status == 404 {
					return &one
				} else if path == "/b" {
					return &five
				}
				return nil
			}, 0},
		{`{path: [/a, /b]}`, "", func(path string, _ int) bool { return path != "/c" }, func(path string, _ int) bool { return path != "/c" },
			`[{when: 'event.path == "/b"', limit: 5}, {when: 'event.status / (event.status - 404) == 7', limit: 4}]`, func(path string, _ int) *int {
				five := 5
				if path == "/b" {
					return &five
				}
				return nil
			}, 4},
	}
	rapid.Check(t, func(t *rapid.T) {
		reach := rapid.SampledFrom(reaches).Draw(t, "reach")
		shape := rapid.SampledFrom(keys).Draw(t, "shape")
		r := naiveRule{
			limit: rapid.IntRange(0, 6).Draw(t, "limit"), window: rapid.Int64Range(1, 90).Draw(t, "window"), ttl: rapid.Int64Range(1, 300).Draw(t, "ttl"),
			lateness: rapid.Int64Range(0, 60).Draw(t, "lateness"), minutes: rapid.SampledFrom([]int64{1, 10, 60}).Draw(t, "cooldown"),
			maxLag: rapid.SampledFrom([]int64{5, 59, 61, 300}).Draw(t, "max_lag"),
			onHit:  rapid.Bool().Draw(t, "on-hit"), key: shape.key, block: shape.block,
		}
		var log []naiveRequest
		var text bytes.Buffer
		now := int64(0)
		for range rapid.IntRange(1, 250).Draw(t, "requests") {
			now += rapid.SampledFrom([]int64{0, 0, 1, 1, 2, 5, 20, 100}).Draw(t, "after")
			if reach.tier != nil { // of requests at one instant with different limits the windows know no order
				now++
			}
			path, status := rapid.SampledFrom([]string{"/a", "/a", "/b", "/c"}).Draw(t, "path"), rapid.SampledFrom([]int{200, 404}).Draw(t, "status")
			q := naiveRequest{at: now, watched: reach.watched(path, status), held: reach.held(path, status), fields: map[string]string{
				"ip":     fmt.Sprintf("192.0.2.%d", rapid.IntRange(1, 3).Draw(t, "ip")),
				"device": rapid.SampledFrom([]string{"", "tv-1", "tv-2", "tv-3"}).Draw(t, "device"),
				"user":   rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(t, "user"),
			}}
			if reach.tier != nil {
				q.limit = reach.tier(path, status)
				if status == 404 {
					q.least = reach.least
				}
			}
			log = append(log, q)
			text.WriteString(lineWith(begin.Add(time.Duration(now)*time.Second), q.fields["ip"], q.fields["device"], q.fields["user"], path, status))
		}
		doc := func(limit int) string {
			extend := "never"
			if r.onHit {
				extend = "on-hit"
			}
			tiers := ""
			if reach.tiers != "" {
				tiers = "tiers: " + reach.tiers + "\n"
			}
			return tiers + fmt.Sprintf("id: naive\nowner: tests\nmatch: %s\nkey: %s\non_missing: skip\nlimit: %d\nwindow: %ds\nlateness: %ds\nmax_lag: %ds\ncooldown: %ds\nblock: {key: %s, ttl: %ds, extend: %s, %s}\n",
				reach.match, list(r.key), limit, r.window, r.lateness, r.maxLag, r.minutes, list(r.block), r.ttl, extend, reach.block)
		}
		o := Options{Format: "weir", Rules: parseRules(t, doc(r.limit)), Workers: rapid.IntRange(1, 8).Draw(t, "workers"),
			Sweep: Sweep{Field: SweepLimit, Limits: []int{r.limit, r.limit + 1, r.limit + 3}}}
		got := run1(t, o, inMemory("log", text.Bytes()))
		for i := range got.Rules {
			r := r
			r.limit = got.Rules[i].Version.Limit
			want, b := r.judge(log), got.Rules[i].Block
			first := int64(-1)
			if b.FirstRefused != 0 {
				first = int64(b.FirstRefused.Sub(traffic.Time(begin.UnixMicro())) / time.Second)
			}
			var watched, offered int64
			for _, q := range log {
				if q.held {
					offered++
				}
				if q.watched {
					watched++
				}
			}
			share := 0.0
			if watched > 0 {
				share = float64(want.watched) / float64(watched)
			}
			if b.Refused != want.refused || b.Held != want.held || first != want.firstRefused || b.Offered != offered || got.Rules[i].Matched != watched ||
				b.ShareOfMatched != share {
				t.Fatalf("limit %d: got %+v (first %d), want %+v", r.limit, *b, first, want)
			}
		}
	})
}

func list(fields []string) string {
	out := "["
	for i, f := range fields {
		if i > 0 {
			out += ", "
		}
		out += f
	}
	return out + "]"
}
