package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/migrations"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// row is one thing that is broken in a sound world, or made otherwise and still sound, and the line that says so. Of
// everything else the world says that it is well, but for the checks that also names.
type row struct {
	name         string
	breaks       func(w *world)
	check        string
	st           Status
	text, remedy string
	also         []string
}

// wantFinding looks for one line.
func wantFinding(t *testing.T, found []Finding, check string, st Status, text, remedy string) {
	t.Helper()
	i := slices.IndexFunc(found, func(f Finding) bool {
		return f.Check == check && f.Status == st && strings.Contains(f.Found, text) && strings.Contains(f.Remedy, remedy)
	})
	if i < 0 {
		t.Errorf("no line %s %q %q, remedy %q among %+v", st, check, text, remedy, found)
	}
}

func TestOneThingIsBroken(t *testing.T) {
	var said []Finding
	for _, rows := range [][]row{
		rowsOfServers(), rowsOfTheStream(), rowsOfEvents(), rowsOfKeys(), rowsOfGates(), rowsOfPeers(),
	} {
		for _, tc := range rows {
			t.Run(tc.name, func(t *testing.T) {
				w := newWorld(t)
				tc.breaks(w)
				found := w.findings()
				wantFinding(t, found, tc.check, tc.st, tc.text, tc.remedy)
				for _, f := range found {
					if f.Status == OK {
						continue
					}
					if said = append(said, f); f.Remedy == "" {
						t.Errorf("without a remedy: %+v", f)
					}
					if f.Check != tc.check && !slices.Contains(tc.also, f.Check) {
						t.Errorf("it also says %+v", f)
					}
				}
			})
		}
	}
	wantAllSaid(t, said)
}

func rowsOfServers() []row {
	redis := func(name, info string, st Status, text, remedy string) row {
		return row{"redis " + name, func(w *world) { w.info = info }, "redis cache:6379", st, text, remedy, nil}
	}
	clock := func(name string, ahead time.Duration, st Status, text string) row {
		return row{"clock " + name, func(w *world) { w.ahead = ahead }, "clock redis cache:6379", st, text, "", nil}
	}
	return []row{
		{"Kafka of old", func(w *world) { w.brokersSay.Lacks = []string{"DescribeGroups"} }, "kafka", Fail, "it does not take what weir sends: DescribeGroups", "2.3 or newer", nil},
		redis("healthy", "", OK, "standalone, version 7.2.4, maxmemory-policy noeviction, 1.0MB of 1.0GB used, append-only file on", ""),
		redis("evicts anything", "maxmemory_policy:allkeys-lru\r\n", Fail, "maxmemory-policy allkeys-lru", "set maxmemory-policy noeviction"),
		redis("evicts what expires", "maxmemory_policy:volatile-lru\r\n", Fail, "released clients are blocked again", "noeviction"),
		redis("evicts what ends soonest", "maxmemory_policy:volatile-ttl\r\n", Warn, "lifted early", "noeviction"),
		redis("evicts, without a limit", "maxmemory_policy:allkeys-lru\r\nmaxmemory:0\r\n", OK, "no maxmemory", ""),
		redis("full", "used_memory:950000000\r\n", Warn, "nine tenths", "raise maxmemory"),
		redis("cannot append", "aof_last_write_status:err\r\n", Fail, "takes no blocks until it can", "room on its disk"),
		redis("failed to append, then did not", "aof_enabled:0\r\naof_last_write_status:err\r\n", OK, "no append-only file: after a restart blocks are put back from history", ""),
		redis("cannot save", "rdb_last_bgsave_status:err\r\n", Warn, "its last snapshot failed", "see its log"),
		redis("has evicted", "evicted_keys:3\r\n", Warn, "it has evicted 3 keys", "more memory"),
		redis("replica", "role:slave\r\n", Fail, "takes no writes", "name its master"),
		redis("old", "redis_version:6.2.1\r\n", Warn, "made for Redis 7", "upgrade"),
		{"redis cluster", func(w *world) { w.state = "ok" }, "redis", OK, "a cluster of 1 master", "", nil},
		{"redis cluster that fails", func(w *world) { w.state = "fail" }, "redis", Fail, "the cluster's state is fail", "redis-cli --cluster check", nil},
		clock("a little ahead", 3*time.Second, Warn, "at least 3s ahead of this machine's"),
		clock("an hour ahead", time.Hour, Fail, "at least 1h0m0s ahead of this machine's"),
		clock("behind", -time.Minute, Fail, "at least 1m0s behind this machine's"),
		{"processes that agree", func(w *world) { w.processes = processesOf(0.4, 0, -0.9) }, "clocks of processes", OK,
			"3 of 3 processes no second away from their stores' (3 stages)", "", nil},
		{"a process that is ahead", func(w *world) { w.processes = processesOf(0, -70) }, "clock of run-1", Fail,
			"it (stages) is 1m10s ahead of postgres, 1m10s ahead of redis", "NTP", nil},
		{"a process that is a little behind", func(w *world) { w.processes = processesOf(1.2) }, "clock of run-0", Warn,
			"it (stages) is 1.2s behind postgres, 1.2s behind redis", "NTP", nil},
		{"many that are ahead", func(w *world) {
			w.processes = processesOf(-70, -70, -70, -70, -70, -70, -70, -70,
				-70, -70)
		},
			"clocks of processes", Fail, "2 more like these", "NTP", []string{"clock of run-0", "clock of run-1",
				"clock of run-2", "clock of run-3", "clock of run-4", "clock of run-5", "clock of run-6",
				"clock of run-7"}},
		{"a process whose clock is nowhere near", func(w *world) { w.processes = processesOf(0, 1e308, -1e308) },
			"clock of run-2", Fail, "(stages) is 876000h", "NTP", []string{"clock of run-1"}},
		{"a process of another build", func(w *world) {
			w.processes = processesOf(0, 0)
			w.processes[1].Offsets = nil
		}, "clock of run-1", Warn, "in a way that this build does not read", "newest build", nil},
		{"more processes than are listed", func(w *world) { w.processes, w.unlisted = processesOf(0, 0), 205 },
			"clocks of processes", Warn, "205 processes more are not looked at", "weir_clock_offset_seconds", nil},
		{"no process", func(*world) {}, "clocks of processes", OK, "none has told of itself", "", nil},
		clock("all but right", 300*time.Millisecond, OK, "ahead of this machine's"),
		{"standby", func(w *world) { w.postgres.Replica = true }, "postgres", Fail, "it is a standby and takes no writes", "name its primary", nil},
		{"PostgreSQL of old", func(w *world) { w.postgres.Number = 120000 }, "postgres", Warn, "weir is made for 13 and newer", "upgrade", nil},
		{"schema of a newer build", func(w *world) { w.postgres.SchemaErr = migrations.ErrNewer }, "schema weir", Fail, "", "or a newer one", nil},
		{"pending migration", func(w *world) { w.postgres.Steps = make([]migrations.Step, 2) }, "schema weir", Fail, "it lacks 2 of 2 migrations", "run weir migrate", nil},
		{"superuser", func(w *world) { w.roles.Superuser = true }, "postgres role", Warn, "a superuser; wanted: a role that owns the schema", "CREATE ROLE", nil},
		{"no owner", func(w *world) { w.roles.Owners = []string{"anna"} }, "postgres role", Warn, "weir works as weir, and what is in the schema belongs to anna", "GRANT", nil},
		{"withheld", func(w *world) { w.roles.Owners, w.roles.Withheld = []string{"anna"}, []string{"hits_by_day"} }, "postgres role", Fail, "withheld: hits_by_day", "GRANT SELECT", nil},
		{"no reader", func(w *world) { w.roles.Reader = false }, "postgres reader", Warn, "there is no role weir_read", "CREATE ROLE weir_read", nil},
		{"reader that may not log in", func(w *world) { w.roles.ReaderIn = false }, "postgres reader", OK, "may not log in yet", "", nil},
		{"reader that lacks", func(w *world) { w.roles.ReaderLack = []string{"GRANT SELECT ON weir.hits_v TO weir_read"} }, "postgres reader", Warn, "1 grants are missing", "GRANT SELECT ON weir.hits_v", nil},
		{"reader of too much", func(w *world) { w.roles.ReaderOver = []string{"secrets"} }, "postgres reader", Warn, "and not the views alone: secrets", "REVOKE", nil},
		{"days", func(*world) {}, "days", OK, "history is kept by day from 2026-11-11 to 2026-11-28, 10d", "", nil},
		{"days for ever", func(w *world) { w.days, w.conf.History.Retention = span(-300, 1), 0 }, "days", OK, "from 2026-01-25 to 2026-11-22, for ever", "", nil},
		{"a day too many", func(w *world) { w.days = span(-12, 7) }, "days", Warn, "hits_by_day still has 2026-11-09, and history.retention is 10d", "start weir run", nil},
		{"a day that may be there", func(w *world) { w.days = span(-11, 7) }, "days", OK, "from 2026-11-10 to 2026-11-28, 10d", "", nil},
		{"no day to come", func(w *world) { w.days = span(-10, 0) }, "days", Warn, "has no table for 2026-11-22: RECORD makes it when it needs it", "run weir migrate", nil},
		{"no losses", func(*world) {}, "losses", OK, "none within a day", "", nil},
		{"losses", func(w *world) { w.losses, w.lost = 2, "stage record, topic weir.hits, partition 3: made anew" },
			"losses", Warn,
			"2 gaps of records within a day, the newest: stage record, topic weir.hits, partition 3: made " +
				"anew", "WeirPartitionStranded", nil},
		{"no days", func(w *world) { w.days = nil }, "days", Warn, "has no table for 2026-11-21", "run weir migrate", nil},
	}
}

// processesOf are processes that so many seconds have been found to be ahead of; all agree with Kafka.
func processesOf(ahead ...float64) (all []partitions.Process) {
	for i, seconds := range ahead {
		all = append(all, partitions.Process{Instance: fmt.Sprint("run-", i), Does: "stages",
			Offsets: map[string]float64{"kafka": 0, "postgres": seconds, "redis": seconds}})
	}
	return all
}

func rowsOfTheStream() []row {
	one := ingest.TopicDifference{Setting: minInsync, Got: "1", Want: "2"}
	other := ingest.TopicDifference{Setting: "message.timestamp.type", Got: "CreateTime", Want: "LogAppendTime"}
	topic := func(name string, replication, brokers, has int, wrong []ingest.TopicDifference, st Status, text, remedy string) row {
		return row{"topic " + name, func(w *world) {
			w.conf.Kafka.Replication, w.brokers = replication, brokers
			t := w.topic(w.names.Hits)
			t.Replicas, t.Wrong = has, wrong
		}, "topic weir.hits", st, text, remedy, nil}
	}
	hits := func(w *world) *[]ingest.TopicDifference { return &w.topic(w.names.Hits).Wrong }
	record := func(w *world) *progressOf { return w.stages[ingest.StageRecord] }
	route := func(name string, breaks func(commits map[int]ingest.Commit), text string) row {
		return row{"commits " + name, func(w *world) { breaks(w.stages[ingest.StageRoute].commits) }, "stage route", Fail, text, "", nil}
	}
	aged := func(name string, keeps, age time.Duration, st Status, text string) row {
		return row{"snapshot " + name, func(w *world) {
			w.topic(w.names.Keyed).Retention.Time = keeps
			p := w.stages[ingest.StageDetect]
			p.records, p.oldest = 5, now().Add(-age)
			if keeps < config.Day {
				w.stream.Partitions.Budget = 1 << 20
			}
		}, "stage detect", st, text, "", nil}
	}
	windows := func(name string, window, keeps time.Duration, st Status, text, remedy string) row {
		return row{"windows " + name, func(w *world) {
			w.rule("match: {path: /v1/guest-tokens}\nkey: [ip, device]\nlateness: 60s\nblock: {key: [ip], ttl: 10m}")
			w.routing.Rules[0].Window = window
			w.topic(w.names.Keyed).Retention.Time = keeps
		}, "windows", st, text, remedy, nil}
	}
	room := func(name string, budget int64, keyed int, keeps ingest.Retention, st Status, text, remedy string, also ...string) row {
		return row{"snapshots " + name, func(w *world) {
			w.stream.Partitions.Budget, w.stream.Partitions.Keyed, w.conf.Kafka.Partitions.Keyed = budget, keyed, keyed
			for p := range keyed {
				w.report(ingest.PartitionStatus{Side: ingest.SideKeyed, Partition: p, State: ingest.Running})
			}
			w.topic(w.names.Keyed).Retention = keeps
		}, "snapshots", st, text, remedy, also}
	}
	return []row{
		topic("as it should be", 3, 3, 3, nil, OK, "3 replicas, settings as they should be", ""),
		topic("of fewer than configured", 3, 3, 2, []ingest.TopicDifference{one}, Warn, "2 replicas; kafka.replication says 3", "kafka-reassign-partitions"),
		topic("on one of many brokers", 0, 2, 1, []ingest.TopicDifference{one}, Warn, "1 replica on 2 brokers; with the broker that has it goes what it holds; wanted: 2 replicas", "kafka.replication: 3"),
		topic("that one acknowledges", 0, 3, 3, []ingest.TopicDifference{one}, Warn, "min.insync.replicas is 1, want 2", "set min.insync.replicas=2"),
		topic("of two replicas of two", 2, 2, 2, []ingest.TopicDifference{one}, OK, "settings as they should be", ""),
		topic("on one broker", 1, 1, 1, []ingest.TopicDifference{one}, OK, "1 replica, settings as they should be", ""),
		topic("wrong before thin", 3, 3, 3, []ingest.TopicDifference{other, one}, Fail, "8 partitions, 3 replicas; message.timestamp.type is CreateTime, want LogAppendTime", "run weir migrate"),
		{"topic of a fixed number", func(w *world) { *hits(w) = []ingest.TopicDifference{{Got: "4", Want: "16", Fixed: true}} }, "topic weir.hits", Fail, "it has 4 partitions, want 16", "correct kafka.partitions.keyed", nil},
		{"topic that is not there", func(w *world) { w.topic(w.names.Hits).Exists = false }, "topic weir.hits", Fail, "it does not exist", "run weir migrate", nil},
		{"topic without a leader", func(w *world) { w.topic(w.names.Hits).Leaderless = []int{3} }, "topic weir.hits", Fail, "nobody leads partitions 3", "start the brokers", nil},
		{"topic out of sync", func(w *world) { w.topic(w.names.Hits).Behind = []int{2} }, "topic weir.hits", Warn, "replicas of partitions 2 are not in sync", "what became of the brokers", nil},
		{"topic of another retention", func(w *world) {
			w.topic(w.names.Hits).Differs = []ingest.TopicDifference{{Setting: "retention.ms", Got: "1", Want: "2"}}
		}, "topic weir.hits", Warn, "retention.ms is 1, want 2", "weir migrate sets retention", nil},
		{"another number of partitions", func(w *world) { w.conf.Kafka.Partitions.Keyed = 16 }, "stream live", Fail, "the configuration says 16 keyed ones", "correct kafka.partitions.keyed", nil},
		{"routing of a newer build", func(w *world) { w.routing.RecordFormat = 99 }, "routing", Fail, "record format 99, this build writes", "upgrade this process", []string{"events"}},
		{"routing of an older build", func(w *world) { w.routing.RecordFormat-- }, "routing", Warn, "this build also writes", "weir migrate --record-format", []string{"events"}},
		{"other identities", func(w *world) { w.conf.Identity.IP.V6 = 56 }, "routing", Warn, "identity.ip.v6 is 64, want 56", "run weir migrate", nil},
		{"other events", func(w *world) { w.routing.Format.MaxEventBytes++ }, "routing", Warn, "events of the configuration is not in effect yet", "run weir migrate", nil},
		{"another format", func(w *world) { w.conf.Events.Format = format.Combined }, "routing", Warn,
			"events of the configuration is not in effect yet", "run weir migrate", nil},
		{"another known_good", func(w *world) { w.conf.KnownGood = "event.status == 200" }, "routing", Warn, "known_good of the configuration is not in effect yet", "run weir migrate", nil},
		{"no rules", func(w *world) { w.routing.Rules = nil }, "routing", Warn, "nothing is watched", "weir rules apply", nil},
		route("absent", func(c map[int]ingest.Commit) { delete(c, 1) }, "no commit for partitions 1"),
		route("of somebody else", func(c map[int]ingest.Commit) { c[1] = ingest.Commit{Offset: 3} }, "partitions 1 were not written by weir"),
		route("of another generation", func(c map[int]ingest.Commit) { c[0] = ingest.InitialCommit(6, 3, 1, 64) }, "partitions 0 are of another life"),
		route("beyond the end", func(c map[int]ingest.Commit) { c[1] = ingest.InitialCommit(7, 11, 1, 64) }, "partitions 1 lie beyond the end"),
		{"stage at work", func(w *world) { record(w).group.Members = 2 }, "stage record", OK, "2 processes, nothing left to do", "", nil},
		{"stage a little behind", func(w *world) { record(w).records, record(w).oldest = 5, now().Add(-time.Second) }, "stage record", OK, "5 records left to do, the oldest of 1s ago", "", nil},
		{"stage far behind", func(w *world) { record(w).records, record(w).oldest = 5, now().Add(-time.Hour) }, "stage record", Warn, "1h0m0s ago", "start more", nil},
		{"stage of nobody", func(w *world) { record(w).records, record(w).group.Members = 5, 0 }, "stage record", Warn, "nobody runs it; 5 records", "start weir run --stages record", nil},
		{"stage beyond the end", func(w *world) { record(w).beyond = []int{3} }, "stage record", Fail,
			"of partitions 3 it has read more than the log holds", "WeirPartitionStranded", nil},
		{"stage too late", func(w *world) { record(w).uncovered = []int{3} }, "stage record", Fail, "of partitions 3 records went before they were read", "raise the retention", nil},
		aged("young", config.Day, 20*time.Minute, OK, "5 records since its last snapshot"), // a stage that commits with snapshots only is not behind for what they take
		aged("older than it takes to write", 0, 28*time.Minute, Warn, "the oldest of 28m0s ago"),
		aged("old", config.Day, 9*time.Hour, Warn, "Kafka keeps what came since for 1d; wanted: below 8h"),
		aged("too old", config.Day, 13*time.Hour, Fail, "Kafka keeps what came since for 1d"),
		aged("old for what is kept", time.Hour, 25*time.Minute, Warn, "wanted: below 20m"),
		{"a partition that stopped", func(w *world) {
			w.report(ingest.PartitionStatus{Side: ingest.SideKeyed, Partition: 2, State: ingest.Halted, Reason: "log shorter than the snapshot", GapOffset: ingest.NoOffset})
		}, "partition keyed/2", Fail, "log shorter than the snapshot", "weir partitions list", []string{"partitions"}},
		{"a gap to accept", func(w *world) {
			w.report(ingest.PartitionStatus{Side: ingest.SideRequests, State: ingest.Refused, Reason: "its commit was moved", GapOffset: 7})
		}, "partition requests/0", Fail, "its commit was moved", "weir partitions resume --requests 0 --accept-gap", []string{"partitions"}},
		{"many that stopped", func(w *world) {
			for p := range 11 {
				w.report(ingest.PartitionStatus{Side: ingest.SideKeyed, Partition: p, State: ingest.Halted, GapOffset: ingest.NoOffset})
			}
		}, "partitions", Fail, "3 more have stopped", "weir partitions list --stopped", []string{"partition keyed/0", "partition keyed/1", "partition keyed/2",
			"partition keyed/3", "partition keyed/4", "partition keyed/5", "partition keyed/6", "partition keyed/7"}},
		{"a partition that is late", func(w *world) {
			w.report(ingest.PartitionStatus{Side: ingest.SideRequests, Partition: 3, State: ingest.Running,
				Reason: "waits for transactions: x"})
		}, "partition requests/3", Warn, "it waits for transactions: x", "end its transactions sooner", nil},
		{"many that are late", func(w *world) {
			for p := range 11 {
				w.report(ingest.PartitionStatus{Side: ingest.SideKeyed, Partition: p, State: ingest.Running,
					Reason: "x"})
			}
		}, "partitions", Warn, "3 more are late", "weir partitions list",
			[]string{"partition keyed/0", "partition keyed/1", "partition keyed/2",
				"partition keyed/3", "partition keyed/4", "partition keyed/5", "partition keyed/6",
				"partition keyed/7"}},
		{"nobody ever worked", func(w *world) { w.states = nil }, "partitions", Warn, "no stage has ever worked on them", "start weir run", nil},
		{"nobody works any more", func(w *world) { w.states[3].Reported = now().Add(-time.Minute).Std() }, "partitions", Warn, "one was last reported 1m0s ago", "see the log", nil},
		{"some do not work", func(w *world) {
			w.states = slices.DeleteFunc(w.states, func(p partitions.ReportedPartition) bool { return p.Partition == 5 })
		}, "partitions", Warn, "7 of 8 of requests and 63 of 64 of keyed at work", "start weir run", nil},
		windows("longer than what is kept", 7*config.Day, config.Day, Warn, "rule devices counts over 7d, and weir.keyed keeps 1d, want 7d1m", "set kafka.retention.keyed to 7d1m"),
		windows("with lateness, longer", 7*config.Day, 7*config.Day, Warn, "rule devices", "kafka.retention.keyed"),
		windows("that just fit", 7*config.Day, 7*config.Day+time.Minute, OK, "the longest, with lateness, is 7d1m (rule devices); weir.keyed keeps 7d1m", ""),
		windows("kept for ever", 7*config.Day, 0, OK, "keeps for ever", ""),
		room("by default", 256<<20, 64, ingest.Retention{Time: config.Day}, OK, "all 64 keyed partitions, 256MiB each at most, in 27m0s; weir.keyed keeps 1d", ""),
		room("kept for ever", 256<<20, 64, ingest.Retention{}, OK, "27m0s", ""),
		room("kept for an hour", 256<<20, 64, ingest.Retention{Time: time.Hour}, Fail, "256MiB for each of 64 keyed partitions: one process that owns them all stores their snapshots in 27m0s; allowed: 20m0s",
			"set kafka.retention.keyed to 2h or more, or detect.budget_per_partition to 187MiB or less"),
		room("kept for seconds", 1<<20, 1024, ingest.Retention{Time: time.Minute}, Fail, "allowed: 20s", "set kafka.retention.keyed to 1h or more and run weir migrate", "windows"),
		room("of few bytes kept", 256<<20, 64, ingest.Retention{Time: config.Day, Bytes: 100 << 20}, Warn, "weir.keyed keeps 100MiB of a partition", "retention.bytes"),
		{"a dead letter", func(w *world) {
			w.letters = []traffic.Message{{Appended: now(), Value: []byte(`{"stage":"route","reason":"malformed"}`)}, {Appended: now(), Value: []byte("{}")}}
		}, "dead letters", Warn, "within the last hour: route malformed 1, somebody wrote what is no dead letter 1", "read topic weir.dead", nil},
		{"an old dead letter", func(w *world) {
			w.letters = []traffic.Message{{Appended: now().Add(-2 * time.Hour), Value: []byte("{}")}}
		}, "dead letters", OK, "none within the last hour; 1 older", "", nil},
	}
}

// rowsOfEvents are of events as gateways should not write them.
func rowsOfEvents() []row {
	sample := func(name string, events []string, check string, st Status, text, remedy string, also ...string) row {
		return row{"events: " + name, func(w *world) { w.events = events }, check, st, text, remedy, also}
	}
	good := event(0, device)
	old, refused := event(2*time.Hour, device), strings.Replace(good, "201", "429", 1)
	silent := func(name string, mode rules.Mode, events []string, st Status, text, remedy string, also ...string) row {
		r := sample(name, events, "verdicts", st, text, remedy, also...)
		r.breaks = func(w *world) { w.events = events; w.mode(mode) }
		return r
	}
	logged := func(name string, m map[string]string, st Status, text string) row {
		return row{"verdicts in " + name, func(w *world) {
			w.routing.Format.Name, w.routing.Format.Map = name, m
			w.events = map[string][]string{format.JSON: repeat(10, `{"uri":"/v1/guest-tokens","ip":"10.1.1.1"}`), format.Combined: repeat(10,
				`198.51.100.7 - - [21/Nov/2026:23:59:59 +0000] "POST /v1/guest-tokens HTTP/1.1" 201 12 "-" "tv"`)}[name]
		}, "verdicts", st, text, "", []string{"routing", "identity device", "event times", "identity ip", "known good"}}
	}
	knownGood := func(name string, mode rules.Mode, condition string, events []string, st Status, text string) row {
		return row{"known good: " + name, func(w *world) {
			w.routing.KnownGood, w.conf.KnownGood = condition, config.Expression(condition)
			w.mode(mode)
			w.events = events
		}, "known good", st, text, "", nil}
	}
	paid, free := event(0, device+`,"plan":"paid"`), event(0, device+`,"plan":"free"`)
	return []row{
		sample("none", nil, "events", Warn, "holds none", "docs/events.md"),
		sample("one that cannot be read", append(repeat(9, good), `{"v":1,`), "events", Warn, "10 events looked at, the newest of 0s ago; 1 cannot be read (malformed 1)", "events.format"),
		sample("none that can", repeat(3, "not JSON"), "events", Fail, "none can be read (malformed 3)", "events.format"),
		sample("unknown members", repeat(3, event(0, device+`,"colour":"red"`)), "events", OK, "3 with members that the format does not define", ""),
		sample("without the field of a key", repeat(12, event(0, "")), "identity device", Fail, "never fire: devices", "identity.device"),
		sample("a member misspelt", repeat(12, event(0, strings.Replace(device, "device", "devcie", 1))),
			"identity device", Fail, "never fire: devices", "identity.device"),
		sample("too few to be sure", repeat(9, event(0, "")), "identity device", Warn, "lack it, and count nowhere: devices", "identity.device"),
		sample("mostly without it", append(repeat(8, event(0, "")), repeat(2, good)...), "identity device", Warn, "in 20 % of 10 events; missing: absent 8", "identity.device"),
		sample("with it", repeat(12, good), "identity device", OK, "in 100 % of 12 events", ""),
		sample("a bad address", repeat(12, strings.Replace(good, "198.51.100.7", "localhost", 1)), "identity ip", Fail, "missing: ip_unparsable 12", "trusted_proxies"),
		sample("from the future", append(repeat(5, good), event(-time.Hour, device)), "event times", Warn, "1 of 6 come from the future, the farthest by 1h0m0s", "NTP"),
		sample("old", repeat(5, old), "event times", Warn, "2h0m0s or less before Kafka took them", "time zone"),
		sample("too late to count", repeat(5, old), "event times", Warn, "5 of 5 came too late for every rule and count nowhere (old by more than 2m: ", "time zone"),
		sample("some too late to count", append(repeat(20, good), repeat(10, old)...), "event times", Warn, "10 of 30 came too late for every rule", "weir ingest --replay"),
		sample("a few too late to count", append(repeat(20, good), repeat(9, old)...), "event times", OK, "9 of 29 came too late for every rule", ""),
		sample("without time", repeat(5, `{"v":1,"ip":"198.51.100.7","method":"POST","path":"/v1/guest-tokens"`+device+`}`), "event times", Warn, "none of 5 carries a time", "write time"),
		sample("paths that no rule matches", repeat(5, strings.Replace(good, "/v1/guest-tokens", "/elsewhere", 1)), "rules", Warn, "of the newest 5 events, none matches: devices", "weir rules show"),
		{"events: all an hour old", func(w *world) { w.clock = func() traffic.Time { return now().Add(2 * time.Hour) } }, "events", Warn, "the newest of 2h0m0s ago", "still write", nil},
		silent("429 in shadow", rules.ModeShadow, repeat(5, refused), OK, "0 of 5 events were refused by weir", ""),
		silent("429 without a verdict", rules.ModeBlock, repeat(5, refused), Fail, "5 more were answered 429", "X-Weir-Rule"),
		silent("429 with one", rules.ModeBlock, repeat(5, strings.Replace(refused, device, device+`,"verdict":{"rule":"devices","block":"0123"}`, 1)), OK, "5 of 5 events were refused by weir", "", "rules"),
		logged(format.Combined, nil, Warn, "format combined, as it is read here, has no place for them, and rules block: devices"),
		logged(format.JSON, map[string]string{"path": "uri"}, Warn, "format json, as it is read here"),
		logged(format.JSON, map[string]string{"path": "uri", "verdict.rule": "refused_by"}, OK, "0 of 10 events were refused by weir"),
		{"a claimed identity", func(w *world) {
			w.conf.Identity.Device.Vouched, w.routing.Identity.Device.Vouched = false, false
		}, "identities", Warn, "not vouched for: device; counted by all the same: devices", "vouched", nil},
		{"a claimed identity that nobody counts by", func(w *world) {
			w.conf.Identity.User.Vouched, w.routing.Identity.User.Vouched = false, false
		}, "identities", OK, "not vouched for: user; no rule counts by them", "", nil},
		{"counted proxies", func(w *world) { trust(w, "1") }, "trusted proxies", Warn, "as many as 1, whoever they are", "identity.ip.trusted_proxies: [", []string{"identity ip"}},
		{"no proxies", func(w *world) { trust(w, "0") }, "trusted proxies", OK, "none: a client's address is that of the connection", "", nil},
		{"known good: nothing waits", func(w *world) { w.routing.KnownGood, w.conf.KnownGood = "", "" }, "rules", OK, "", "", nil},
		knownGood("a rule waits", rules.ModeShadow, "", repeat(20, good), Warn, "known_good is not set: evidence about 1 rule in shadow (devices)"),
		knownGood("it judges nothing", rules.ModeShadow, `event.plan == "paid"`, repeat(20, good), Warn, "known_good judges nothing: none of 20 events"),
		knownGood("too few to tell", rules.ModeShadow, `event.plan == "paid"`, repeat(5, good), OK, "of 5 events it holds for 0, does not for 0, and 5 cannot be judged"),
		knownGood("it judges", rules.ModeBlock, `event.plan == "paid"`, append(repeat(3, paid), free, good), OK, "of 5 events it holds for 3, does not for 1, and 1 cannot be judged"),
	}
}

func trust(w *world, proxies string) {
	for _, m := range []*traffic.IdentityMap{&w.conf.Identity, &w.routing.Identity} {
		m.IP.TrustedProxies = traffic.TrustedProxies{}
		if err := m.IP.TrustedProxies.UnmarshalText([]byte(proxies)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// rowsOfKeys are of rules that wait in vain: for a field that events lack, or that the format never fills.
func rowsOfKeys() []row {
	tenant := event(0, `,"attrs":{"tenant":"a"}`)
	key := func(name, key string, events []string, check string, st Status, text string) row {
		return row{"key: " + name, func(w *world) {
			w.rule("match: {path: /v1/*}\nkey: " + key)
			w.events = events
		}, check, st, text, "", nil}
	}
	starves := func(name, rule, check string, st Status, text string) row {
		return row{"format: " + name, func(w *world) {
			w.rule(rule)
			w.mode(rules.ModeShadow)
			w.routing.Format.Name = format.Combined
			w.events = repeat(1, `198.51.100.7 - - [21/Nov/2026:23:59:59 +0000] "POST /v1/guest-tokens HTTP/1.1" 201 12 "-" "tv"`)
		}, check, st, text, "", []string{"routing"}}
	}
	return []row{
		key("never", "[attrs.tenant]", repeat(12, event(0, "")), "key attrs.tenant", Fail, "no event that these rules match has it, so they never fire: devices"),
		key("too few to be sure", "[attrs.tenant]", repeat(3, event(0, "")), "key attrs.tenant", Warn, "count nowhere: devices"),
		key("mostly not", "[attrs.tenant, ip]", append(repeat(8, event(0, "")), tenant), "key attrs.tenant", Warn, "count nowhere: devices"),
		key("always", "[attrs.tenant]", repeat(12, tenant), "identity device", OK, "no rule counts by it"),
		key("falls back", "[attrs.tenant|ip]", repeat(12, event(0, "")), "identity ip", OK, "no rule counts by it"),
		key("nothing to fall back on", "[api_key|route]", repeat(12, event(0, "")), "key api_key|route", Fail, "never fire: devices"),
		starves("a key", "match: {path: /v1/*}\nkey: [attrs.tenant]", "key attrs.tenant", Fail, "events of the format combined never have it, so they never fire: devices"),
		starves("an identity", "match: {path: /v1/*}\nkey: [device]", "identity device", Fail, "events of the format combined never have it, so they never fire: devices"),
		starves("what it falls back on", "match: {path: /v1/*}\nkey: [attrs.tenant|route]", "key attrs.tenant|route", Fail, "events of the format combined never have it"),
		starves("a fallback that is there", "match: {path: /v1/*}\nkey: [attrs.tenant|user_agent]", "rules", OK, ""),
		starves("a host", "match: {host: a.example.com}\nkey: [ip]", "format combined", Fail, "so they never fire: devices (match.host)"),
		starves("a count", "match: {path: /v1/*}\nkey: [ip]\ncount: {distinct: [path, device]}", "format combined", Fail, "so they never fire: devices (count.distinct)"),
		starves("a sum", "match: {path: /v1/*, route: a}\nkey: [ip]\ncount: {sum: latency_ms}", "format combined", Fail, "devices (match.route), devices (count.sum)"),
		starves("all there", "match: {path: /v1/*, status: 201}\nkey: [ip, user_agent]\ncount: {sum: bytes}", "rules", OK, ""),
		{"a member that only a client claims", func(w *world) {
			w.routing.RecordFormat, w.routing.Format.Name = rules.ReadingRecordFormat, format.Nginx
			w.routing.KnownGood, w.conf.KnownGood = "", ""
			w.events = repeat(12, `{"remote_addr":"198.51.100.7","device":"tv","request_method":"POST","request_uri":"/v1/guest-tokens","status":"201"}`)
		}, "identity device", Fail, "claimed 12", "", []string{"routing", "event times"}},
	}
}
