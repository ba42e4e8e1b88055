package route

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// TestARequestHeldOpenIsCounted: an attacker sends the last byte of each request long after the first. The gateway's line
// comes when the request ends; whatever time it tells, the event is not late for the attacker's own doing.
func TestARequestHeldOpenIsCounted(t *testing.T) {
	lines := map[string]func(ip string, begin, end time.Time) string{
		format.Envoy: func(ip string, begin, end time.Time) string {
			return fmt.Sprintf(`{"start_time":"%s","downstream_remote_address":"%s:4711","method":"POST","path":"/v1/guest-tokens","response_code":201,"duration":%d}`,
				begin.UTC().Format("2006-01-02T15:04:05.000Z"), ip, end.Sub(begin).Milliseconds())
		},
		format.Traefik: func(ip string, begin, end time.Time) string {
			return fmt.Sprintf(`{"StartUTC":"%s","ClientAddr":"%s:4711","RequestMethod":"POST","RequestPath":"/v1/guest-tokens","DownstreamStatus":201,"Duration":%d}`,
				begin.UTC().Format(time.RFC3339Nano), ip, end.Sub(begin).Nanoseconds())
		},
		format.Nginx: func(ip string, begin, end time.Time) string {
			return fmt.Sprintf(`{"msec":"%.3f","remote_addr":"%s","request_method":"POST","request_uri":"/v1/guest-tokens","status":"201","request_time":"%.3f"}`,
				float64(end.UnixMilli())/1000, ip, end.Sub(begin).Seconds())
		},
		format.Caddy: func(ip string, begin, end time.Time) string {
			return fmt.Sprintf(`{"ts":%.3f,"request":{"remote_ip":"%s","method":"POST","uri":"/v1/guest-tokens"},"status":201,"duration":%.3f}`,
				float64(end.UnixMilli())/1000, ip, end.Sub(begin).Seconds())
		},
		format.HAProxy: func(ip string, begin, end time.Time) string {
			return fmt.Sprintf(`{"time":"%d","ip":"%s","method":"POST","path":"/v1/guest-tokens","status":201,"latency_ms":%d}`, end.UnixMilli(), ip, end.Sub(begin).Milliseconds())
		},
		format.ECS: func(ip string, begin, end time.Time) string {
			return fmt.Sprintf(`{"@timestamp":"%[1]s","event":{"start":"%[1]s","duration":%[2]d},"source":{"ip":"%[3]s"},"url":{"path":"/v1/guest-tokens"},"http":{"request":{"method":"POST"}}}`,
				begin.UTC().Format(time.RFC3339Nano), end.Sub(begin).Nanoseconds(), ip)
		},
	}
	for name, line := range lines {
		for _, held := range []time.Duration{time.Second, 70 * time.Second, 10 * time.Minute, 30 * time.Hour} {
			for _, record := range []int{rules.EndTimeRecordFormat - 1, detectors.RecordFormat} {
				hits, late := heldOpen(t, name, record, held, line)
				// Builds before the newest record format date by the beginning, and all routers must date alike.
				told := record < rules.EndTimeRecordFormat && held > rules.DefaultLateness
				begins := name == format.Envoy || name == format.Traefik || name == format.ECS
				if evaded := hits == 0 && late > 0; evaded != (told && begins) || hits == 0 && !evaded {
					t.Errorf("%s, record format %d, requests held open for %v: %d hits, %d events late", name, record, held, hits, late)
				}
			}
		}
	}
}

// heldOpen lets one address send six such requests a minute beside ordinary traffic, for a quarter of an hour, against a
// limit of 2 in five minutes.
func heldOpen(t *testing.T, format string, record int, held time.Duration, line func(ip string, begin, end time.Time) string) (hits int, late int64) {
	t.Helper()
	r := &rules.Routing{
		Stream: "live", Number: 1, RecordFormat: record, SecretID: "s", Identity: traffic.DefaultIdentityMap(),
		Format: rules.Format{Name: format, MaxEventBytes: 1 << 16},
		Rules: []rules.Version{{Number: 1, Lineage: 1, Document: rules.Document{
			ID: "flood", Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, Missing: rules.MissingSkip,
			Limit: 2, Window: 5 * time.Minute, Lateness: rules.DefaultLateness,
		}}},
	}
	opt := &Options{KeyedPartitions: 1, Secret: []byte("x"), SecretID: "s", Live: true}
	version, err := compile(r, opt)
	if err != nil {
		t.Fatal(err)
	}
	reader := eventRouter{live: true, targets: newTargeter(opt.Secret, 1)}
	p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1})
	p.Learn(detectors.NewPlan(r))
	progress, prev, offset := traffic.BeforeTime, detectors.NoOffset, int64(0)
	send := func(value string, appended time.Time) {
		m := traffic.Message{Offset: offset, Appended: traffic.At(appended), Value: []byte(value)}
		got := reader.read(version, &m, progress)
		if got.fate != FateRouted {
			t.Fatalf("%s: %s %s", value, got.reason, got.detail)
		}
		progress = got.progress
		k := detectors.Keyed{
			Kind: detectors.KeyedEvent, Generation: 1, Offset: offset, Prev: prev, Time: got.time, Progress: progress, Version: 1,
			Rules: got.targets[0].rules, Identity: got.identity,
		}
		prev, offset = offset, offset+1
		out, err := p.Fold(m.Appended, &k, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range out {
			if out[i].Phase == detectors.PhaseOpen && out[i].Subject == "ip=203.0.113.9%2F32" {
				hits++
			}
		}
	}
	begin := time.Unix(1_790_000_000, 0)
	for s := range 15 * 60 {
		now := begin.Add(time.Duration(s) * time.Second)
		send(line(fmt.Sprintf("192.0.2.%d", s%250), now.Add(-50*time.Millisecond), now), now)
		if s%10 == 9 {
			send(line("203.0.113.9", now.Add(-held), now), now)
		}
	}
	return hits, p.Counts().Late
}
