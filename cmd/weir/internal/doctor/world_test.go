package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// now is the moment of these tests, a second before midnight: how long they take changes nothing that they look at.
func now() traffic.Time { return traffic.At(time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC)) }

// event is one event of a gateway, a while ago.
func event(ago time.Duration, more string) string {
	return fmt.Sprintf(`{"v":1,"time":%q,"ip":"198.51.100.7","method":"POST","path":"/v1/guest-tokens","status":201%s}`,
		now().Add(-ago).Std().UTC().Format(time.RFC3339Nano), more)
}

func repeat(n int, line string) []string { return slices.Repeat([]string{line}, n) }

const device = `,"device":"tv"`

// world is an installation without its servers: what they said is written down, as it is where all is well.
type world struct {
	*examination
	t          *testing.T
	brokersSay kafka.InspectedCluster
	info       string        // that Redis tells of itself, over what it usually tells
	ahead      time.Duration // Redis' clock
	state      string        // of the cluster that Redis is; empty: it is none
	postgres   postgres.Inspected
	has        []kafka.InspectedTopic
	roles      postgres.InspectedRoles
	days       []retention.Day
	losses     int
	lost       string
	stages     map[string]*progressOf
	states     []partitions.ReportedPartition
	events     []string
	letters    []traffic.Message
	gates      blocklist.GateListing
	others     []blocklist.OtherGates
	processes  []partitions.Process
	unlisted   int   // processes beside them
	cut        bool  // not all keys were looked through for others
	flushed    bool  // Redis has no epoch
	enforcers  int   // members of the group of enforce
	unread     error // what kept a part of the events from being read
}

const healthyRedis = "redis_version:7.2.4\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nmaxmemory:1000000000\r\n" +
	"used_memory:1000000\r\naof_enabled:1\r\n"

// newWorld is one of which doctor says that all is well.
func newWorld(t *testing.T) *world {
	c := config.Default()
	c.KnownGood = `event.status == 201`
	c.Identity.Device.Vouched, c.Identity.User.Vouched, c.Identity.APIKey.Vouched, c.Identity.Session.Vouched = true, true, true, true
	if err := c.Identity.IP.TrustedProxies.UnmarshalText([]byte("10.0.0.0/8")); err != nil {
		t.Fatal(err)
	}
	n := c.Kafka.Partitions
	w := &world{
		t: t, brokersSay: kafka.InspectedCluster{Brokers: []string{"a:9092", "b:9092", "c:9092"}, Speaks: "Produce 0-12"},
		postgres: postgres.Inspected{Address: "db:5432", Version: "15.4", Number: 150004, Clock: now(), Asked: now(), Answered: now()},
		roles:    postgres.InspectedRoles{User: "weir", Reader: true, ReaderIn: true},
		days:     span(-10, 7), events: repeat(20, event(0, device)), stages: map[string]*progressOf{},
	}
	c.History.Retention = config.Duration(10 * config.Day)
	w.examination = &examination{
		clock: now, conf: c, build: "1.4", names: ingest.Live.Topics("weir"), brokers: 3, database: &w.postgres,
		modes:  map[string]rules.ModeState{"devices": {Rule: "devices", Mode: rules.ModeBlock}},
		stream: &streams.Stream{Generation: 7, Partitions: streams.PartitionCounts{Requests: n.Requests, Keyed: n.Keyed, Hits: n.Hits, Budget: 256 << 20}},
		routing: &rules.Routing{
			Stream: history.Live, Number: 1, RecordFormat: detectors.RecordFormat, Identity: c.Identity, Format: c.EventFormat(), KnownGood: string(c.KnownGood),
		},
	}
	w.rule("match: {path: /v1/guest-tokens}\nkey: [ip, device]\nblock: {key: [ip], ttl: 10m}")
	for _, topic := range w.names.All() {
		w.has = append(w.has, kafka.InspectedTopic{Name: topic, Exists: true, Partitions: 8, Replicas: 3, Retention: ingest.Retention{Time: config.Day}})
	}
	for _, stage := range []string{ingest.StageRoute, ingest.StageDetect, ingest.StageRecord, ingest.StageRecordBlocks, ingest.StageEnforce} {
		w.stages[stage] = &progressOf{group: kafka.InspectedGroup{State: "Stable", Members: 1}}
	}
	good := ingest.InitialCommit(7, 3, 1, n.Keyed)
	w.stages[ingest.StageRoute].commits = map[int]ingest.Commit{0: good, 1: good}
	w.stages[ingest.StageRoute].bounds = map[int]ingest.Bounds{0: {End: 10}, 1: {End: 10}}
	for side, partitions := range map[ingest.Side]int{ingest.SideRequests: n.Requests, ingest.SideKeyed: n.Keyed} {
		for p := range partitions {
			w.report(ingest.PartitionStatus{Side: side, Partition: p, State: ingest.Running, GapOffset: ingest.NoOffset})
		}
	}
	return w
}

func span(from, to retention.Day) (days []retention.Day) {
	for d := from; d <= to; d++ {
		days = append(days, retention.DayOf(now())+d)
	}
	return days
}

func (w *world) report(s ingest.PartitionStatus) {
	w.states = slices.DeleteFunc(w.states, func(r partitions.ReportedPartition) bool { return r.Side == s.Side && r.Partition == s.Partition })
	w.states = append(w.states, partitions.ReportedPartition{PartitionStatus: s, Reported: now().Std()})
}

// rule puts another rule in the place of the world's only one.
func (w *world) rule(text string) {
	w.t.Helper()
	text = "id: devices\nowner: identity\nlimit: 1000\nwindow: 60s\n" + text
	docs, err := rules.ParseFiles([]rules.File{{Name: "devices.yaml", Src: []byte(text)}}, rules.Environment{Identity: traffic.DefaultIdentityMap()})
	if err != nil {
		w.t.Fatal(err)
	}
	v, _ := rules.NextVersion(nil, docs[0])
	w.routing.Rules = []rules.Version{v}
}

func (w *world) mode(m rules.Mode) { w.modes["devices"] = rules.ModeState{Rule: "devices", Mode: m} }

// topic is one of the world's, in order to change it.
func (w *world) topic(name string) *kafka.InspectedTopic {
	return &w.has[slices.IndexFunc(w.has, func(t kafka.InspectedTopic) bool { return t.Name == name })]
}

// redisSays asks an embedded Redis, into whose mouth is put what it says about itself: it says little.
func (w *world) redisSays() *blocklist.Inspected {
	w.t.Helper()
	mini := testbed.EmbeddedRedis(w.t)
	mini.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd != "INFO" {
			return false
		}
		c.WriteBulk(healthyRedis + w.info)
		return true
	})
	mini.SetTime(now().Add(w.ahead).Std())
	store, err := blocklist.Connect(blocklist.Server{URL: "redis://" + mini.Addr() + "/0"}, "weir")
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	r, err := store.Inspect(w.t.Context(), now)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Cluster, r.State = w.state != "", w.state
	for i := range r.Nodes {
		r.Nodes[i].Address = "cache:6379"
	}
	return &r
}

// findings are what doctor says of the world.
func (w *world) findings() []Finding {
	w.t.Helper()
	ctx := w.t.Context()
	w.cache, w.topics = w.redisSays(), map[string]kafka.InspectedTopic{}
	found := append(w.lookAtConfiguration(ctx), judgeKafka(&w.brokersSay))
	found = append(append(found, judgeCache(w.cache)...), judgePostgres(&w.postgres), judgeSchema(&w.postgres, "weir"))
	for i := range w.has {
		w.topics[w.has[i].Name] = w.has[i]
		found = append(found, judgeTopic(&w.has[i], w.conf.Kafka.Replication, w.brokers))
	}
	found = append(append(found, w.judgeStream(), w.judgeRouting()), w.lookAtIdentities(ctx)...)
	if w.foreign != nil {
		found = append(found, judgeOwner(w.foreign))
	} else {
		found = append(found, judgeEpoch("redis cache:6379", "weir:v1:epoch", !w.flushed, w.enforcers))
	}
	found = append(found, judgeGates(&w.gates, w.routing.Identity.Fingerprint(), w.build)...)
	found = append(found, judgeOtherGates(w.others, !w.cut, "weir")...)
	found = append(append(found, w.lookAtClocks(ctx)...), judgeProcesses(w.processes, len(w.processes)+w.unlisted)...)
	for stage, p := range w.stages {
		topic := map[string]string{ingest.StageDetect: w.names.Keyed}[stage]
		found = append(found, w.judgeStage("stage "+stage, stageWork{stage, stage, topic}, *p))
	}
	found = append(found, w.judgePartitions(w.states)...)
	found = append(append(found, w.lookAtSnapshots(ctx)...), w.lookAtWindows(ctx)...)
	found = append(found, judgeRole(&w.roles), judgeReader(&w.roles),
		judgeDays("hits_by_day", w.days, now(), time.Duration(w.conf.History.Retention)),
		judgeLosses(w.losses, w.lost))
	var messages []traffic.Message
	for i, text := range w.events {
		messages = append(messages, traffic.Message{Offset: int64(i), Appended: now(), Value: []byte(text)})
	}
	if w.unread != nil {
		found = append(found, judgePart(len(messages), w.unread))
	}
	return append(append(found, w.judgeSample(messages)...), w.judgeDeadLetters(w.letters))
}

func TestAllIsWellInASoundWorld(t *testing.T) {
	for _, f := range newWorld(t).findings() {
		if f.Status != OK || f.Remedy != "" || strings.Contains(f.Found, "%!") {
			t.Errorf("%+v", f)
		}
	}
}
