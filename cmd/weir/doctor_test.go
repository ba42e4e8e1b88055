package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/cmd/weir/internal/doctor"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/testbed"
)

// unhurried lets each check of weir doctor take as long as a busy machine may need.
const unhurried = "--timeout=5m"

// doctor runs weir doctor and gives its findings by check.
func (b *bed) doctor(args ...string) (map[string]doctor.Finding, int) {
	b.t.Helper()
	o := b.weir(append([]string{"doctor", "--output", "json", unhurried}, args...)...)
	var all []doctor.Finding
	if err := json.Unmarshal([]byte(o.stdout), &all); err != nil {
		b.t.Fatalf("exit code %d, %v\n%s%s", o.code, err, o.stdout, o.stderr)
	}
	found := map[string]doctor.Finding{}
	failures := 0
	for _, f := range all {
		if _, twice := found[f.Check]; twice {
			b.t.Errorf("two lines about %s", f.Check)
		}
		if found[f.Check] = f; f.Status != doctor.OK && f.Remedy == "" {
			b.t.Errorf("%s is %s, and has no remedy: %s", f.Check, f.Status, f.Found)
		}
		if f.Status == doctor.Fail {
			failures++
		}
	}
	if want := min(failures, 1); o.code != want {
		b.t.Errorf("%d failures, exit code %d", failures, o.code)
	}
	return found, failures
}

// wantFinding looks for one line.
func wantFinding(t *testing.T, found map[string]doctor.Finding, check string, st doctor.Status, text, remedy string) {
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

func (b *bed) set(flag, value string) {
	for i := range b.flags {
		if b.flags[i] == flag {
			b.flags[i+1] = value
		}
	}
}

func (b *bed) store() *history.Store {
	b.t.Helper()
	s, err := history.Open(b.t.Context(), postgres.Config{
		URL: b.flag("--postgres-url"), Schema: b.flag("--namespace"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(s.Close)
	return s
}

// appendRaw puts values into a topic as they are.
func (b *bed) appendRaw(topic string, values ...string) {
	b.t.Helper()
	batch := ingest.Batch{Partition: 0}
	for _, v := range values {
		batch.Values = append(batch.Values, []byte(v))
	}
	if err := b.kafka().Appender(topic).Append(b.t.Context(), []ingest.Batch{batch}); err != nil {
		b.t.Fatal(err)
	}
}

func TestDoctorFindsAHealthyInstallationHealthy(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, redis testbed.RedisServer) {
		b := newBed(t, redis)
		b.flags = append(b.flags, "--set", "known_good=event.status == 200")
		b.ok("migrate")
		b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
		stages := b.start("run")
		b.send("198.51.100.7", 6)
		awaitHits(b, "198.51.100.7", 1)
		var found map[string]doctor.Finding
		testbed.Eventually(t, 60*time.Second, func() error {
			var failures int
			if found, failures = b.doctor(); failures > 0 {
				t.Fatalf("failures in %v", found)
			}
			for check, f := range found {
				if f.Status != doctor.OK && check != "postgres role" { // tests work as a superuser: see TestDoctorIsContentWithAnOwner
					return fmt.Errorf("%s: %s (%s)", check, f.Found, f.Remedy)
				}
			}
			for check, text := range map[string]string{ // without a tick while it looks, and before the last commit, it says other things that are well
				"clock kafka": "no difference", "stage route": "1 process, nothing left to do",
				"clocks of processes": "1 of 1 process no second away from their stores' (1 stages)",
			} {
				if !strings.Contains(found[check].Found, text) {
					return fmt.Errorf("%s: %s, want %s", check, found[check].Found, text)
				}
			}
			return nil
		})
		names := b.names()
		for _, check := range []string{
			"configuration", "kafka", "postgres", "schema " + b.flag("--namespace"), "topic " + names.Requests, "topic " + names.Dead,
			"stream live", "routing", "identities", "clock postgres", "stage route", "stage detect", "stage record", "stage record-blocks",
			"stage enforce", "partitions", "snapshots", "windows", "days", "losses",
			"postgres reader", "event times", "identity device", "verdicts", "rules", "dead letters",
		} {
			wantFinding(t, found, check, doctor.OK, "", "")
		}
		wantFinding(t, found, "events", doctor.OK, "6 events looked at", "")
		wantFinding(t, found, "identity ip", doctor.OK, "in 100 % of 6 events", "")
		stages.end()
		table := b.weir("doctor", unhurried)
		if !strings.Contains(table.stdout, "none has told of itself within a minute") {
			t.Errorf("a process that has stopped is still there:\n%s", table.stdout)
		}
		if table.code != exitOK || !strings.Contains(table.stdout, "warn  stage route") || !strings.Contains(table.stdout, "▸ start weir run --stages route") ||
			!strings.Contains(table.stdout, " 0 failed\n") {
			t.Errorf("after the stages have stopped: exit code %d\n%s%s", table.code, table.stdout, table.stderr)
		}
	})
}

func TestDoctorBeforeMigrate(t *testing.T) {
	b := emptyBed(t)
	found, failures := b.doctor()
	wantFinding(t, found, "schema "+b.flag("--namespace"), doctor.Fail, "it lacks", "run weir migrate")
	for _, topic := range b.names().All() {
		wantFinding(t, found, "topic "+topic, doctor.Fail, "does not exist", "run weir migrate")
	}
	if failures != 6 {
		t.Errorf("%d failures, want those of the schema and five topics: %v", failures, found)
	}
}

func TestDoctorFindsBrokenTopics(t *testing.T) {
	b := fullBed(t)
	b.ok("migrate")
	names := b.names()
	transport := &kafka.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &kafka.Client{Addr: kafka.TCP(strings.Split(b.flag("--kafka-brokers"), ",")...), Transport: transport}
	set := func(topic, key, value string) kafka.IncrementalAlterConfigsRequestResource {
		return kafka.IncrementalAlterConfigsRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: key, Value: value, ConfigOperation: kafka.ConfigOperationSet}}}
	}
	answer, err := client.IncrementalAlterConfigs(t.Context(), &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{
			set(names.Requests, "message.timestamp.type", "CreateTime"), set(names.Keyed, "max.message.bytes", "1000"),
			set(names.Hits, "retention.ms", "7200000"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range answer.Resources {
		if r.Error != nil {
			t.Fatal(r.Error)
		}
	}
	if err := b.kafka().DeleteTopics(t.Context(), names.Dead); err != nil {
		t.Fatal(err)
	}
	b.flags = append(b.flags, "--set", "kafka.partitions.keyed=16")
	var found map[string]doctor.Finding
	testbed.Eventually(t, 30*time.Second, func() error { // a broker shows settings and deletions a little after it has taken them
		var failures int
		if found, failures = b.doctor(); failures != 4 || found["topic "+names.Hits].Status != doctor.Warn {
			return fmt.Errorf("%d failures, want 4, and a warning about %s: %v", failures, names.Hits, found)
		}
		return nil
	})
	wantFinding(t, found, "topic "+names.Requests, doctor.Fail, "message.timestamp.type is CreateTime, want LogAppendTime", "run weir migrate")
	wantFinding(t, found, "topic "+names.Keyed, doctor.Fail, "max.message.bytes is 1000", "correct kafka.partitions.keyed")
	wantFinding(t, found, "topic "+names.Keyed, doctor.Fail, "it has 4 partitions, want 16", "correct kafka.partitions.keyed")
	wantFinding(t, found, "topic "+names.Hits, doctor.Warn, "retention.ms is 7200000, want 604800000", "weir migrate sets retention")
	wantFinding(t, found, "topic "+names.Dead, doctor.Fail, "does not exist", "run weir migrate")
	wantFinding(t, found, "stream live", doctor.Fail, "the configuration says 16 keyed ones", "correct kafka.partitions.keyed")
}

// nowhere is an address that refuses connections. Its port is bound until the test ends, so that nobody else comes to listen there.
func nowhere(t *testing.T) string {
	t.Helper()
	syscall.ForkLock.RLock()
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(s)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(s) })
	if err := syscall.Bind(s, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(s)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
}

// Each server that is away is one failing line, and the others are looked at.
func TestDoctorWithServersAway(t *testing.T) {
	for _, tc := range []struct {
		name, flag, value string
		remedy            string
		still, not        []string
	}{
		{"kafka", "--kafka-brokers", "%s", "start Kafka", []string{"redis", "postgres", "stream live", "clock postgres", "partitions"}, []string{"topic", "events", "stage"}},
		{"redis", "--redis-url", "redis://:hunter2@%s/0", "start it", []string{"kafka", "postgres", "stream live", "topic", "events", "partitions"}, []string{"clock redis"}},
		{"postgres", "--postgres-url", "postgres://u:hunter2@%s/weir", "start it there", []string{"kafka", "redis", "topic", "stage route"}, []string{"partitions", "stream live", "clock postgres"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := fullBed(t)
			b.ok("migrate")
			address := nowhere(t)
			b.set(tc.flag, fmt.Sprintf(tc.value, address))
			found, failures := b.doctor()
			wantFinding(t, found, tc.name, doctor.Fail, address, tc.remedy)
			if failures != 1 || strings.Contains(fmt.Sprint(found), "hunter2") {
				t.Errorf("%d failures, want one, without the password: %v", failures, found)
			}
			has := func(prefix string) bool {
				for check := range found {
					if strings.HasPrefix(check, prefix) && check != tc.name {
						return true
					}
				}
				return false
			}
			for _, check := range tc.still {
				if !has(check) {
					t.Errorf("nothing about %s in %v", check, found)
				}
			}
			for _, check := range tc.not {
				if has(check) {
					t.Errorf("a line about %s, which cannot be known: %v", check, found)
				}
			}
		})
	}
}

// Servers that take connections and never answer.
func TestDoctorIsBoundedAndStops(t *testing.T) {
	b := fullBed(t)
	if found, _ := b.doctor("--timeout", "1ms"); found["postgres"].Status != doctor.Fail {
		t.Errorf("in a millisecond it looks at PostgreSQL: %v", found)
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var held sync.WaitGroup
	held.Go(func() {
		for {
			c, err := mute.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	})
	t.Cleanup(held.Wait)
	t.Cleanup(func() { _ = mute.Close() })
	at := mute.Addr().String()
	b.set("--kafka-brokers", at)
	b.set("--redis-url", "redis://"+at+"/0")
	b.set("--postgres-url", "postgres://u@"+at+"/weir?sslmode=disable")
	// How long exactly is measured where the load of the machine does not move the clock, by TestRoundsEndInTime.
	found, failures := b.doctor("--timeout", "1500ms")
	if failures != 3 {
		t.Errorf("%d failures: %v", failures, found)
	}

	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, stop)
	said := &lines{}
	code := run(ctx, append([]string{"doctor", "--timeout", "1h"}, b.flags...), strings.NewReader(""), said, said)
	if code != exitError || !strings.Contains(said.String(), "stopped: ") {
		t.Errorf("exit code %d\n%s", code, said)
	}
}

// Reading is all that weir doctor does: of each server it asks for nothing that writes.
func TestDoctorOnlyReads(t *testing.T) {
	b := fullBed(t)
	cluster := testbed.EmbeddedKafka(t)
	b.set("--kafka-brokers", strings.Join(cluster.ListenAddrs(), ","))
	b.ok("migrate")
	b.send("198.51.100.7", 6)

	var mu sync.Mutex
	asked := map[string]bool{}
	cluster.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		defer mu.Unlock()
		asked["kafka "+kmsg.NameForKey(r.Key())] = true
		cluster.KeepControl()
		return nil, nil, false
	})
	mini := testbed.EmbeddedRedis(t)
	mini.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
		mu.Lock()
		defer mu.Unlock()
		asked["redis "+strings.ToUpper(cmd)] = true
		return false
	})
	b.set("--redis-url", "redis://"+mini.Addr()+"/0")
	b.set("--postgres-url", b.flag("--postgres-url")+separator(b.flag("--postgres-url"))+"default_transaction_read_only=on")
	if found, failures := b.doctor(); failures > 0 {
		t.Errorf("failures, with PostgreSQL that takes no writes: %v", found)
	}
	reads := []string{
		"kafka ApiVersions", "kafka Metadata", "kafka DescribeConfigs", "kafka ListOffsets", "kafka Fetch", "kafka OffsetFetch",
		"kafka FindCoordinator", "kafka DescribeGroups", "redis HELLO", "redis CLIENT", "redis TIME", "redis INFO", "redis PING",
		"redis EXISTS", "redis ZRANGE", "redis GETRANGE", "redis SCAN", "redis MGET", "redis HGETALL",
	}
	mu.Lock()
	defer mu.Unlock()
	for what := range asked {
		if !slices.Contains(reads, what) {
			t.Errorf("weir doctor asks for %s", what)
		}
	}
	if !asked["kafka Fetch"] || !asked["redis TIME"] {
		t.Errorf("asked for %v only", asked)
	}
}

func separator(url string) string {
	if strings.Contains(url, "?") {
		return "&"
	}
	return "?"
}

func TestDoctorFindsPartitionsThatStopped(t *testing.T) {
	b := fullBed(t)
	b.ok("migrate")
	s := b.store()
	err := s.Partitions.Report(t.Context(), history.Live, []ingest.PartitionStatus{
		{Side: ingest.SideRequests, Partition: 0, State: ingest.Refused, Reason: "its commit was moved", GapSource: 0, GapOffset: 7},
		{Side: ingest.SideRequests, Partition: 1, State: ingest.Running, GapOffset: -1},
		{Side: ingest.SideKeyed, Partition: 2, State: ingest.Halted, Reason: "log shorter than the snapshot", Epoch: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	group := ingest.Live.Group(b.flag("--namespace"), ingest.StageRoute)
	if err := b.kafka().CommitInitial(t.Context(), group, b.names().Requests, map[int]ingest.Commit{1: {Offset: 0}}); err != nil {
		t.Fatal(err)
	}
	found, _ := b.doctor()
	wantFinding(t, found, "partition requests/0", doctor.Fail, "its commit was moved", "weir partitions resume --requests 0 --accept-gap")
	wantFinding(t, found, "partition keyed/2", doctor.Fail, "log shorter than the snapshot", "weir partitions list")
	wantFinding(t, found, "partitions", doctor.Warn, "1 of 2 of requests and 0 of 4 of keyed", "weir run")
	wantFinding(t, found, "stage route", doctor.Fail, "partitions 1 were not written by weir", "weir partitions")
}

func TestDoctorReadsTheNewestEvents(t *testing.T) {
	b := fullBed(t)
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", strings.Replace(tokenRule, "key: [ip]", "key: [ip, device]", 1)))
	ahead := fmt.Sprintf(`{"v":1,"time":%q,"ip":"198.51.100.7","method":"POST","path":"/v1/guest-tokens"}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano))
	b.appendRaw(b.names().Requests, append(slices.Repeat([]string{ahead}, 20), `{"v":1,`)...)
	found, _ := b.doctor("--events", "15")
	wantFinding(t, found, "events", doctor.Warn, "15 events looked at", "events.format")
	wantFinding(t, found, "events", doctor.Warn, "1 cannot be read (malformed 1)", "events.format")
	wantFinding(t, found, "event times", doctor.Warn, "14 of 14 come from the future", "NTP")
	wantFinding(t, found, "identity device", doctor.Fail, "never fire: tokens", "identity.device")
}

func TestDoctorShowsRecentDeadLetters(t *testing.T) {
	b := fullBed(t)
	b.ok("migrate")
	b.appendRaw(b.names().Dead, `{"v":1,"stage":"route","reason":"wrong_type","detail":"column 9: status: got a string","topic":"x"}`,
		`{"v":1,"stage":"route","reason":"wrong_type","detail":"column 9","topic":"x"}`, "nonsense")
	found, _ := b.doctor()
	wantFinding(t, found, "dead letters", doctor.Warn, "route wrong_type 2, somebody wrote what is no dead letter 1", b.names().Dead)
}
