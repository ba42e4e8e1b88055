package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/internal/testbed"
)

// What Redis says about itself is put into its mouth: the embedded one says little.
func TestDoctorJudgesRedis(t *testing.T) {
	const healthy = "redis_version:7.2.4\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nmaxmemory:1000000000\r\nused_memory:1000000\r\naof_enabled:1\r\n"
	for _, tc := range []struct {
		name, info   string
		ahead        time.Duration
		check        string
		st           Status
		text, remedy string
	}{
		{"healthy", healthy, 0, "redis", OK, "version 7.2.4, maxmemory-policy noeviction, 1.0MB of 1.0GB used, append-only file on", ""},
		{"evicts anything", "maxmemory_policy:allkeys-lru\r\n", 0, "redis", Fail, "maxmemory-policy allkeys-lru", "set maxmemory-policy noeviction"},
		{"evicts what expires", "maxmemory_policy:volatile-lru\r\n", 0, "redis", Fail, "released clients are blocked again", "noeviction"},
		{"evicts what ends soonest", "maxmemory_policy:volatile-ttl\r\n", 0, "redis", Warn, "lifted early", "noeviction"},
		{"evicts, without a limit", "maxmemory_policy:allkeys-lru\r\nmaxmemory:0\r\n", 0, "redis", OK, "no maxmemory", ""},
		{"full", "used_memory:950000000\r\n", 0, "redis", Warn, "nine tenths", "raise maxmemory"},
		{"cannot append", "aof_last_write_status:err\r\n", 0, "redis", Fail, "takes no blocks until it can", "room on its disk"},
		{"has failed to append before it was turned off", "aof_enabled:0\r\naof_last_write_status:err\r\n", 0, "redis", OK, "no append-only file: after a restart blocks are put back from history", ""},
		{"cannot save", "rdb_last_bgsave_status:err\r\n", 0, "redis", Warn, "its last snapshot failed", "see its log"},
		{"has evicted", "evicted_keys:3\r\n", 0, "redis", Warn, "it has evicted 3 keys", "more memory"},
		{"replica", "role:slave\r\n", 0, "redis", Fail, "takes no writes", "name its master"},
		{"old", "redis_version:6.2.1\r\n", 0, "redis", Warn, "made for Redis 7", "upgrade"},
		{"clock a little ahead", "", 3 * time.Second, "clock redis", Warn, "ahead of this machine's", "NTP"},
		{"clock behind", "", -time.Minute, "clock redis", Fail, "1m0s behind this machine's", "NTP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mini := testbed.EmbeddedRedis(t)
			mini.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
				if cmd != "INFO" {
					return false
				}
				c.WriteBulk(healthy + tc.info)
				return true
			})
			mini.SetTime(now().Add(tc.ahead).Std())
			store, err := blocklist.Connect(blocklist.Server{URL: "redis://" + mini.Addr() + "/0"}, "weir")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			e := &examination{clock: now, redis: store}
			found := map[string]Finding{}
			for _, f := range append(e.lookAtRedis(t.Context()), e.lookAtClocks(t.Context())...) {
				found[f.Check] = f
			}
			wantFinding(t, found, tc.check+" "+mini.Addr(), tc.st, tc.text, tc.remedy)
		})
	}
}

// Of a server that is away, the line says what is wrong, and what to do only as the remedy.
func TestDoctorSaysOnceWhatToDoAboutRedis(t *testing.T) {
	mini := testbed.EmbeddedRedis(t)
	address := mini.Addr()
	store, err := blocklist.Connect(blocklist.Server{URL: "redis://" + address + "/0"}, "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	mini.Close()
	found := (&examination{clock: now, redis: store}).lookAtRedis(t.Context())
	wantFinding(t, map[string]Finding{found[0].Check: found[0]}, "redis", Fail, address, "start it, or correct redis.url")
	if strings.Contains(found[0].Found, "start it") {
		t.Errorf("found %q", found[0].Found)
	}
}

func TestDoctorJudgesSnapshots(t *testing.T) {
	for _, tc := range []struct {
		name         string
		room         detect.SnapshotRoom
		st           Status
		text, remedy string
	}{
		{"defaults", detect.SnapshotRoom{Budget: 256 << 20, Partitions: 64, Retention: ingest.Retention{Time: config.Day}}, OK,
			"all 64 keyed partitions, 256MiB each at most, in 27m0s; weir.keyed keeps 1d", ""},
		{"kept for ever", detect.SnapshotRoom{Budget: 256 << 20, Partitions: 64}, OK, "27m0s", ""},
		{"kept for an hour", detect.SnapshotRoom{Budget: 256 << 20, Partitions: 64, Retention: ingest.Retention{Time: time.Hour}}, Fail,
			"256MiB for each of 64 keyed partitions: one process that owns them all stores their snapshots in 27m0s; allowed: 20m0s",
			"set kafka.retention.keyed to 2h or more, or detect.budget_per_partition to 187MiB or less"},
		{"kept for seconds", detect.SnapshotRoom{Budget: 1 << 20, Partitions: 1024, Retention: ingest.Retention{Time: time.Minute}}, Fail,
			"allowed: 20s", "set kafka.retention.keyed to 1h or more and run weir migrate"},
		{"few bytes kept", detect.SnapshotRoom{Budget: 256 << 20, Partitions: 64, Retention: ingest.Retention{Time: config.Day, Bytes: 100 << 20}}, Warn,
			"weir.keyed keeps 100MiB of a partition", "retention.bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := judgeSnapshots(tc.room, "weir.keyed")
			wantFinding(t, map[string]Finding{f.Check: f}, "snapshots", tc.st, tc.text, tc.remedy)
		})
	}
}

// wantFinding looks for one line.
func wantFinding(t *testing.T, found map[string]Finding, check string, st Status, text, remedy string) {
	t.Helper()
	f, ok := found[check]
	if !ok {
		t.Errorf("no line about %q among %v", check, found)
		return
	}
	if f.Status != st || !strings.Contains(f.Found, text) || !strings.Contains(f.Remedy, remedy) {
		t.Errorf("%s: %s: %q, remedy %q; want %s with %q, remedy %q", check, f.Status, f.Found, f.Remedy, st, text, remedy)
	}
}

// Programs that read mend find it for one release.
func TestARemedyIsWrittenUnderBothNames(t *testing.T) {
	for want, f := range map[string]Finding{
		`{"check":"redis","status":"fail","found":"gone","remedy":"start it","mend":"start it"}`: failing("redis", "start it", "gone"),
		`{"check":"redis","status":"ok","found":"there"}`:                                        fine("redis", "there"),
	} {
		if got, err := json.Marshal(f); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}

// An error's own advice is the remedy, and no part of what was found.
func TestAdviceIsTheRemedy(t *testing.T) {
	advised := fmt.Errorf("asking; twice: %w", ingest.Advise(errors.New("refused; really"), "start it"))
	if f := failed("kafka", advised, "see its log"); f.Remedy != "start it" || f.Found != "asking; twice: refused; really" || f.Status != Fail {
		t.Errorf("%+v", f)
	}
	if f := failed("kafka", errors.New("refused; really"), "see its log"); f.Remedy != "see its log" || f.Found != "refused; really" {
		t.Errorf("%+v", f)
	}
}
