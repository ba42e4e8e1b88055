package main

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/internal/testbed"
)

// What Redis says about itself is put into its mouth: the embedded one says little.
func TestDoctorJudgesRedis(t *testing.T) {
	const healthy = "redis_version:7.2.4\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nmaxmemory:1000000000\r\nused_memory:1000000\r\naof_enabled:1\r\n"
	for _, tc := range []struct {
		name, info string
		ahead      time.Duration
		check      string
		st         status
		text, mend string
	}{
		{"healthy", healthy, 0, "redis", statusOK, "version 7.2.4, maxmemory-policy noeviction, 1.0MB of 1.0GB used, append-only file on", ""},
		{"evicts anything", "maxmemory_policy:allkeys-lru\r\n", 0, "redis", statusFail, "maxmemory-policy allkeys-lru", "set maxmemory-policy noeviction"},
		{"evicts what expires", "maxmemory_policy:volatile-lru\r\n", 0, "redis", statusFail, "released clients are blocked again", "noeviction"},
		{"evicts what ends soonest", "maxmemory_policy:volatile-ttl\r\n", 0, "redis", statusWarn, "lifted early", "noeviction"},
		{"evicts, without a limit", "maxmemory_policy:allkeys-lru\r\nmaxmemory:0\r\n", 0, "redis", statusOK, "no maxmemory", ""},
		{"full", "used_memory:950000000\r\n", 0, "redis", statusWarn, "nine tenths", "raise maxmemory"},
		{"replica", "role:slave\r\n", 0, "redis", statusFail, "takes no writes", "name its master"},
		{"old", "redis_version:6.2.1\r\n", 0, "redis", statusWarn, "made for Redis 7", "upgrade"},
		{"clock a little ahead", "", 3 * time.Second, "clock redis", statusWarn, "ahead of this machine's", "NTP"},
		{"clock behind", "", -time.Minute, "clock redis", statusFail, "1m0s behind this machine's", "NTP"},
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
			if tc.ahead != 0 {
				mini.SetTime(time.Now().Add(tc.ahead))
			}
			store, err := blocklist.Connect(blocklist.Server{URL: "redis://" + mini.Addr() + "/0"}, "weir")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			e := &examination{redis: store}
			found := map[string]finding{}
			for _, f := range append(e.lookAtRedis(t.Context()), e.lookAtClocks(t.Context())...) {
				found[f.Check] = f
			}
			wantFinding(t, found, tc.check+" "+mini.Addr(), tc.st, tc.text, tc.mend)
		})
	}
}

func TestDoctorFindsPartitionsThatStopped(t *testing.T) {
	b := fullBed(t)
	b.ok("migrate")
	s := b.store()
	err := s.Report(t.Context(), history.Live, []ingest.PartitionStatus{
		{Side: ingest.SideRequests, Partition: 0, State: ingest.Refused, Reason: "its commit was moved", GapSource: 0, GapOffset: 7},
		{Side: ingest.SideRequests, Partition: 1, State: ingest.Running, GapOffset: -1},
		{Side: ingest.SideKeyed, Partition: 2, State: ingest.Halted, Reason: "log shorter than the snapshot", Epoch: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	group := ingest.Live.Group(b.flag("--namespace"), service.StageRoute)
	if err := b.kafka().CommitInitial(t.Context(), group, b.names().Requests, map[int]ingest.Commit{1: {Offset: 0}}); err != nil {
		t.Fatal(err)
	}
	found, _ := b.doctor()
	wantFinding(t, found, "partition requests/0", statusFail, "its commit was moved", "weir partitions resume --requests 0 --accept-gap")
	wantFinding(t, found, "partition keyed/2", statusFail, "log shorter than the snapshot", "weir partitions list")
	wantFinding(t, found, "partitions", statusWarn, "1 of 2 of requests and 0 of 4 of keyed", "weir run")
	wantFinding(t, found, "stage route", statusFail, "partitions 1 were not written by weir", "weir partitions")
}

func TestDoctorJudgesSnapshots(t *testing.T) {
	for _, tc := range []struct {
		name       string
		room       detect.SnapshotRoom
		st         status
		text, mend string
	}{
		{"defaults", detect.SnapshotRoom{Budget: 256 << 20, Partitions: 64, Retention: ingest.Retention{Time: config.Day}}, statusOK,
			"all 64 keyed partitions, 256MiB each at most, in 27m0s; weir.keyed keeps 1d", ""},
		{"kept for ever", detect.SnapshotRoom{Budget: 256 << 20, Partitions: 64}, statusOK, "27m0s", ""},
		{"kept for an hour", detect.SnapshotRoom{Budget: 256 << 20, Partitions: 64, Retention: ingest.Retention{Time: time.Hour}}, statusFail,
			"256MiB for each of 64 keyed partitions: one process that owns them all stores their snapshots in 27m0s; allowed: 20m0s",
			"set kafka.retention.keyed to 2h0m0s or more, or detect.budget_per_partition to 187MiB or less"},
		{"kept for seconds", detect.SnapshotRoom{Budget: 1 << 20, Partitions: 1024, Retention: ingest.Retention{Time: time.Minute}}, statusFail,
			"allowed: 20s", "set kafka.retention.keyed to 1h0m0s or more and run weir migrate"},
		{"few bytes kept", detect.SnapshotRoom{Budget: 256 << 20, Partitions: 64, Retention: ingest.Retention{Time: config.Day, Bytes: 100 << 20}}, statusWarn,
			"weir.keyed keeps 100MiB of a partition", "retention.bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := judgeSnapshots(tc.room, "weir.keyed")
			wantFinding(t, map[string]finding{f.Check: f}, "snapshots", tc.st, tc.text, tc.mend)
		})
	}
}
