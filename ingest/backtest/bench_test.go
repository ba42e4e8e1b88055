package backtest

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// benchEvents is how many events the benchmark's log has: of 350 bytes, within six minutes.
const benchEvents = 600_000

// benchLog is a log in order of time and, by field and source, the times of its events in microseconds.
func benchLog(n int) (text []byte, times [3]map[string][]int64) {
	for i := range times {
		times[i] = map[string][]int64{}
	}
	var b bytes.Buffer
	for i := range n {
		at := begin.Add(time.Duration(i) * 600 * time.Microsecond)
		who := i * 7919
		if i%100 == 99 {
			who = i / 100 % 20
		}
		ip, device, user := fmt.Sprintf("203.0.%d.%d", who%20_021>>8, who%20_021&255), fmt.Sprintf("tv-%05d", who%20_011), fmt.Sprintf("user-%06d", who%50_021)
		fmt.Fprintf(&b, `{"v":1,"time":"%s","id":"req-%08d","ip":"%s","device":"%s","user":"%s",`+
			`"method":"POST","host":"api.example.com","path":"/v1/guest-tokens","status":%d,`+
			`"user_agent":"Mozilla/5.0 (Linux; Android 9; AFTT) AppleWebKit/537.36 (KHTML, like Gecko)","latency_ms":12.%03d,"bytes":%d,"plan":"free","gateway":"gw-3"}`+"\n",
			at.Format("2006-01-02T15:04:05.000000Z"), i, ip, device, user, 200+i%5, i%1000, i)
		for f, source := range []string{"ip=" + ip + "%2F32", "device=" + device, "user=" + user} {
			times[f][source] = append(times[f][source], at.UnixMicro())
		}
	}
	return b.Bytes(), times
}

// overCount is how many events of sources stand at a count above the limit in a minute, and of how many sources.
func overCount(times map[string][]int64, limit int) (sources, over int64) {
	for _, all := range times {
		oldest, n := 0, int64(0)
		for i, at := range all {
			for all[oldest] <= at-60_000_000 {
				oldest++
			}
			if i-oldest+1 > limit {
				n++
			}
		}
		if n > 0 {
			sources++
		}
		over += n
	}
	return sources, over
}

func benchRules(b *testing.B, block string) []rules.Version {
	var texts []string
	for _, f := range []string{"ip", "device", "user"} {
		text := fmt.Sprintf("id: by-%s\nowner: tests\nmatch: {method: POST, path: /v1/guest-*}\nkey: [%s]\nlimit: 60\nwindow: 60s\nlateness: 10s\n", f, f)
		if block != "" {
			text += fmt.Sprintf("block: {key: [%s], ttl: 10m}\n", f)
		}
		texts = append(texts, text)
	}
	return parseRules(b, texts...)
}

// BenchmarkRun runs events of 350 bytes through three rules of three dimensions; a sweep tries ten limits in the same pass.
func BenchmarkRun(b *testing.B) {
	text, times := benchLog(benchEvents)
	limits := []int{5, 10, 20, 30, 40, 50, 60, 80, 100, 200}
	for _, bench := range []struct {
		name, block string
		sweep       Sweep
		reorder     time.Duration
	}{
		{"plain", "", Sweep{}, 0},
		{"sweep", "", Sweep{Field: SweepLimit, Limits: limits}, 0},
		{"reorder", "", Sweep{}, time.Minute},
		{"block", "block", Sweep{}, 0},
	} {
		b.Run(bench.name, func(b *testing.B) {
			o := Options{Format: "weir", Rules: benchRules(b, bench.block), Sweep: bench.sweep, Reorder: bench.reorder}
			b.SetBytes(int64(len(text)))
			var r *Result
			before := processorTime(b)
			for b.Loop() {
				r = run1(b, o, inMemory("log", text))
			}
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N)/benchEvents, "cpu-ns/event")
			b.ReportMetric(float64(b.N)*benchEvents/b.Elapsed().Seconds(), "events/s")
			if r.Events != benchEvents || r.Last != traffic.Time(begin.Add((benchEvents-1)*600*time.Microsecond).UnixMicro()) {
				b.Fatalf("%d events up to %s", r.Events, r.Last)
			}
			for i := range r.Rules {
				got := &r.Rules[i]
				field := map[string]int{"by-ip": 0, "by-device": 1, "by-user": 2}[got.Rule]
				if sources, _ := overCount(times[field], got.Version.Limit); got.Sources != sources {
					b.Errorf("%s %s: %d sources, want %d", got.Rule, got.Swept, got.Sources, sources)
				}
			}
		})
	}
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
