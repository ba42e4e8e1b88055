package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/doctor"
	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/testbed"
)

// flag gives the value of one of the bed's flags.
func (b *bed) flag(name string) string {
	b.t.Helper()
	for i := range b.flags {
		if b.flags[i] == name {
			return b.flags[i+1]
		}
	}
	b.t.Fatalf("the bed has no flag %s", name)
	return ""
}

func (b *bed) kafka() *kafka.Client {
	b.t.Helper()
	k, err := kafka.New(kafka.Config{Brokers: strings.Split(b.flag("--kafka-brokers"), ",")})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = k.Close() })
	return k
}

func (b *bed) names() ingest.TopicNames {
	return ingest.Live.Topics(b.flag("--namespace"))
}

// streams is what PostgreSQL says of the installation's streams.
func (b *bed) streams() *streams.Store {
	b.t.Helper()
	s, err := history.Open(b.t.Context(), postgres.Config{
		URL: b.flag("--postgres-url"), Schema: b.flag("--namespace"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(s.Close)
	return s.Streams
}

func (b *bed) generation() int64 {
	b.t.Helper()
	st, err := b.streams().Find(b.t.Context(), history.Live)
	if err != nil {
		b.t.Fatal(err)
	}
	return st.Generation
}

func fullBed(t *testing.T) *bed {
	return newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
}

func TestMigrateTwiceDoesNothingTheSecondTime(t *testing.T) {
	t.Parallel()
	b := emptyBed(t)
	first := b.ok("migrate")
	for _, want := range []string{"is up to date now", ".requests made with 2 partitions", "routing version 1 published", "first commits written for 2 partitions"} {
		if !strings.Contains(first, want) {
			t.Errorf("the first run does not say %q:\n%s", want, first)
		}
	}
	second := b.ok("migrate")
	for _, line := range strings.Split(strings.TrimSpace(second), "\n") {
		if !strings.Contains(line, "nothing to do") && line != "ready: start weir run" {
			t.Errorf("the second run did: %s", line)
		}
	}
}

// What processes write for each other changes its form by an order only: older processes may run beside this build.
func TestMigrateKeepsTheRecordFormat(t *testing.T) {
	t.Parallel()
	b := fullBed(t)
	if out := b.ok("migrate"); !strings.Contains(out, fmt.Sprintf("published, record format %d", detectors.RecordFormat)) {
		t.Errorf("a new stream:\n%s", out)
	}
	if out := b.ok("migrate", "--record-format", "1"); !strings.Contains(out, "routing version 2 published, record format 1") {
		t.Errorf("lowered:\n%s", out)
	}
	for range 2 {
		out := b.ok("migrate")
		if !strings.Contains(out, "routing version 2: nothing to do") || !strings.Contains(out, fmt.Sprintf("weir migrate --record-format %d", detectors.RecordFormat)) {
			t.Errorf("without an order:\n%s", out)
		}
	}
	if out := b.ok("migrate", "--record-format", fmt.Sprint(detectors.RecordFormat)); !strings.Contains(out, "routing version 3 published") {
		t.Errorf("raised:\n%s", out)
	}
	for _, format := range []int{-1, detectors.RecordFormat + 1} {
		if o := b.weir("migrate", "--record-format", fmt.Sprint(format)); o.code != exitUsage || !strings.Contains(o.stderr, "allowed "+detectors.KnownRecordFormats()) {
			t.Errorf("record format %d: exit code %d\n%s", format, o.code, o.stderr)
		}
	}
}

// Who migrates an installation at work looks at its log and its commits at different times, and must not take what was routed
// in between for a topic that was made anew.
func TestMigrateBesideRoutersKeepsTheGeneration(t *testing.T) {
	t.Parallel()
	b := fullBed(t)
	b.ok("migrate")
	stages := b.start("run")
	kafka, names := b.kafka(), b.names()
	c, err := config.Load(config.Source{Settings: []config.Setting{
		{Path: "namespace", Value: b.flag("--namespace")}, {Path: "kafka.partitions.requests", Value: "2"},
		{Path: "kafka.partitions.keyed", Value: "4"}, {Path: "kafka.partitions.hits", Value: "2"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	m := stream.NewMigration(c, b.store(), kafka, "a test", stream.MigrateOptions{})
	routed := func() (at []int64) {
		commits, err := kafka.FetchCommits(t.Context(), ingest.Live.Group(c.Namespace, ingest.StageRoute), names.Requests, ingest.AllPartitions(2))
		if err != nil {
			t.Fatal(err)
		}
		for p := range 2 {
			at = append(at, commits[p].Offset)
		}
		return at
	}
	for n, step := range m.Steps() {
		before := routed()
		event := []byte(calls("198.51.100.7", 1))
		both := []ingest.Batch{{Partition: 0, Values: [][]byte{event}}, {Partition: 1, Values: [][]byte{event}}}
		if err := kafka.Appender(names.Requests).Append(t.Context(), both); err != nil {
			t.Fatal(err)
		}
		testbed.Eventually(t, 20*time.Second, func() error {
			if at := routed(); at[0] <= before[0] || at[1] <= before[1] {
				return fmt.Errorf("before step %d: routed up to %v, then %v", n, before, at)
			}
			return nil
		})
		if err := step(t.Context()); err != nil {
			t.Fatalf("step %d: %v after %q", n, err, m.Done())
		}
	}
	if g := b.generation(); g != 1 {
		t.Errorf("generation %d, want 1: %q", g, m.Done())
	}
	stages.end()
}

func TestMigrateRefusesAnotherPartitionCount(t *testing.T) {
	t.Parallel()
	b := fullBed(t)
	b.ok("migrate")
	o := b.weir("migrate", "--set", "kafka.partitions.keyed=8")
	if o.code != exitOK { // the bed's own --set comes later and wins
		t.Fatalf("exit code %d\n%s", o.code, o.stderr)
	}
	b.flags = append(b.flags, "--set", "kafka.partitions.keyed=8")
	for _, args := range [][]string{{"migrate"}, {"run", "--http-listen", "127.0.0.1:0"}} {
		o := b.weir(args...)
		if o.code != exitError || !strings.Contains(o.stderr, "partition count is fixed") {
			t.Errorf("weir %s: exit code %d\n%s%s", args[0], o.code, o.stdout, o.stderr)
		}
	}
}

// The budget of a keyed partition belongs to the stream: migrate changes it, a process that says otherwise does not start.
func TestBudgetIsTheStreams(t *testing.T) {
	t.Parallel()
	b := fullBed(t)
	b.ok("migrate")
	b.flags = append(b.flags, "--set", "detect.budget_per_partition=64MiB")
	if o := b.weir("run", "--http-listen", "127.0.0.1:0"); o.code != exitError || !strings.Contains(o.stderr, "run weir migrate to change the stream's") {
		t.Fatalf("another budget: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	if out := b.ok("migrate"); !strings.Contains(out, "budget of a keyed partition is 64MiB now, before 256MiB") {
		t.Errorf("migrate does not say that it changed the budget:\n%s", out)
	}
	p := b.start("run")
	p.awaitLog("msg=running")
	p.end()
}

// Where the snapshots of full budgets cannot be stored before the log is gone, no process detects, and doctor says why.
func TestBudgetBeyondWhatSnapshotsAllow(t *testing.T) {
	t.Parallel()
	b := fullBed(t)
	b.ok("migrate")
	b.flags = append(b.flags, "--set", "detect.budget_per_partition=200GiB")
	b.ok("migrate")
	o := b.weir("run", "--http-listen", "127.0.0.1:0")
	for _, want := range []string{"detect.budget_per_partition: 200GiB for each of", "allowed: 8h0m0s, a third of what topic", "set kafka.retention.keyed to"} {
		if o.code != exitError || !strings.Contains(o.stderr, want) {
			t.Errorf("run: exit code %d, want %q in\n%s%s", o.code, want, o.stdout, o.stderr)
		}
	}
	found, _ := b.doctor()
	wantFinding(t, found, "snapshots", doctor.Fail, "allowed: 8h0m0s", "detect.budget_per_partition to")
}

func TestMigratePublishesChangesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	b := fullBed(t)
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
	b.ok("rules", "promote", "tokens", "--reason", "seen enough", "--yes", "--override", "tests")
	b.flags = append(b.flags, "--set", "identity.ip.trusted_proxies=1")
	if out := b.ok("migrate"); !strings.Contains(out, "routing version 3 published") {
		t.Errorf("a changed identity map:\n%s", out)
	}
	b.flags = append(b.flags, "--set", "events.format=combined")
	if o := b.weir("migrate"); o.code != exitError || !strings.Contains(o.stderr, "the format changes while rule tokens blocks") {
		t.Errorf("another format under a rule that blocks: exit code %d\n%s", o.code, o.stderr)
	}
}

// Not parallel: a broker that is busy clears the commits of a deleted topic seconds later, and those of the new one of that name with them.
func TestRecreatedRequestsBeginANewGeneration(t *testing.T) {
	b := fullBed(t)
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
	stages := b.start("run")
	b.send("198.51.100.7", 6)
	awaitHits(b, "198.51.100.7", 1)
	stages.end()

	before := b.generation()
	if o := b.weir("migrate", "--recreated"); o.code != exitError || b.generation() != before ||
		!strings.Contains(o.stderr, "counted a second time") || !strings.Contains(o.stderr, "--count-again") {
		t.Errorf("a topic that nobody made anew: exit code %d, generation %d\n%s", o.code, b.generation(), o.stderr)
	}
	k := b.kafka()
	if err := k.DeleteTopics(t.Context(), b.names().Requests); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 30*time.Second, func() error {
		if there, err := k.TopicExists(t.Context(), b.names().Requests); err != nil || there {
			return fmt.Errorf("the topic exists: %v, %v", there, err)
		}
		return nil
	})
	out := b.ok("migrate")
	if b.generation() <= before || !strings.Contains(out, "begins generation") || !strings.Contains(out, "first commits written for 2 partitions") {
		t.Fatalf("generation %d after %d:\n%s", b.generation(), before, out)
	}
	stages = b.start("run")
	b.send("198.51.100.8", 6)
	awaitHits(b, "198.51.100.8", 1)
	stages.end()
	before = b.generation()
	if out := b.ok("migrate", "--recreated", "--count-again"); b.generation() <= before {
		t.Errorf("generation %d after %d:\n%s", b.generation(), before, out)
	}
}

// A partition whose commit another tool has moved is refused, until an operator accepts what that loses.
func TestPartitionThatStoppedGoesOnWhenItsGapIsAccepted(t *testing.T) {
	t.Parallel()
	b := fullBed(t)
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
	group := ingest.Live.Group(b.flag("--namespace"), ingest.StageRoute)
	moved := map[int]ingest.Commit{0: {Offset: 0}, 1: {Offset: 0}}
	if err := b.kafka().CommitInitial(t.Context(), group, b.names().Requests, moved); err != nil {
		t.Fatal(err)
	}
	stages := b.start("run")
	testbed.Eventually(t, 30*time.Second, func() error {
		if rows := decode[[]acts.Partition](b, "partitions", "list", "--stopped"); len(rows) != 2 ||
			rows[0].Side != "requests" || rows[0].State != "refused" || !strings.Contains(rows[0].Reason,
			"another tool wrote it") {
			return fmt.Errorf("partitions %+v, want two refused ones of requests", rows)
		}
		return nil
	})
	b.send("198.51.100.7", 6)
	b.ok("partitions", "resume", "--requests", "0", "--accept-gap", "--reason", "a tool moved it")
	b.resumeByServer("1")
	awaitHits(b, "198.51.100.7", 1)
	testbed.Eventually(t, 30*time.Second, func() error { // stages report every two seconds
		if rows := decode[[]acts.Partition](b, "partitions", "list", "--stopped"); len(rows) != 0 {
			return fmt.Errorf("still stopped: %+v", rows)
		}
		return nil
	})
	o := b.weir("partitions", "resume", "--requests", "0", "--accept-gap", "--reason", "again")
	if o.code != exitError || !strings.Contains(o.stderr, "running: there is nothing to accept") {
		t.Errorf("accepting twice: exit code %d\n%s", o.code, o.stderr)
	}
	stages.end()
}

// resumeByServer lets a partition of requests go on by a token alone, as far as its role may.
func (b *bed) resumeByServer(p string) {
	b.t.Helper()
	web := b.start("console", "--console-listen", "127.0.0.1:0", "--set", "console.tokens="+token("ada", "admin", "")+
		","+token("anna", "analyst", "")+","+token("otto", "owner", "identity"))
	defer web.end()
	address := "http://" + web.awaitLog(`serving the console" address=(\S+)`)
	ada := b.at(address, "ada")
	resume := []string{"partitions", "resume", "--requests", p, "--accept-gap", "--reason",
		"a tool moved it, ticket 4711"}
	for _, name := range []string{"anna", "otto"} {
		o := b.at(address, name).weir(resume...)
		if o.code != exitError || !strings.Contains(o.stderr, "resume needs the role admin") {
			b.t.Errorf("%s: exit code %d\n%s%s", name, o.code, o.stdout, o.stderr)
		}
	}
	there := decode[[]acts.Partition](b.at(address, "anna"), "partitions", "list", "--stopped")
	if len(there) == 0 || there[len(there)-1].Name() != "requests/"+p || there[len(there)-1].GapOffset == nil {
		b.t.Fatalf("through the server: %+v", there)
	}
	for _, wrong := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--requests", p, "--gap-source", "9", "--gap-offset", "9"}, exitError,
			"stands at the gap before offset"},
		{[]string{"--requests", p, "--gap-source", "9"}, exitUsage, "--gap-source and --gap-offset together"},
		{[]string{"--requests", "7"}, exitError, "no stage has reported partition requests/7"},
		{[]string{"--requests", "-1"}, exitUsage, "--requests: got -1; allowed: 0 to 2147483647"},
		{[]string{"--keyed", "2147483648"}, exitUsage, "--keyed: got 2147483648"},
		{[]string{"--keyed", "2147483648", "--gap-source", "0", "--gap-offset", "9"}, exitUsage,
			"--keyed: got 2147483648"},
	} {
		for who, weir := range map[string]*bed{"by the stores": b, "by a server": ada} {
			o := weir.weir(append([]string{"partitions", "resume", "--accept-gap", "--reason", "tests"},
				wrong.args...)...)
			if o.code != wrong.code || !strings.Contains(o.stderr, wrong.says) {
				b.t.Errorf("%s, %v: exit code %d, %s", who, wrong.args, o.code, o.stderr)
			}
		}
	}
	if said := ada.ok(resume...); !strings.Contains(said, "partition requests/"+p+": gap before offset") {
		b.t.Errorf("it says %s", said)
	}
	entry := decode[[]audit.Entry](b, "history", "audit", "--action", "accept-gap", "--limit", "1")[0]
	if entry.Actor != "token:ada" || entry.Via != "token" || entry.Object != "partition requests/"+p+" of live" {
		b.t.Errorf("the audit trail has %+v", entry)
	}
}

// A server that is away is one clear line, not the end: the process waits, is alive and not ready.
func TestServersThatAreAway(t *testing.T) {
	nowhere := nowhere(t)
	for _, tc := range []struct{ name, flag, value, advice string }{
		{"kafka", "--kafka-brokers", nowhere, "start Kafka or correct the broker addresses"},
		{"postgres", "--postgres-url", "postgres://u:hunter2@" + nowhere + "/weir", "start it there, or correct postgres.url"},
		{"redis", "--redis-url", "redis://:hunter2@" + nowhere + "/0", "start it, or correct its address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := fullBed(t)
			b.ok("migrate")
			for i := range b.flags {
				if b.flags[i] == tc.flag {
					b.flags[i+1] = tc.value
				}
			}
			p := b.start("run")
			address := p.awaitLog(`serving metrics and health" address=(\S+)`)
			line := p.awaitLog(`(level=WARN.*` + tc.advice + `.*)`)
			if !strings.Contains(line, nowhere) || strings.Contains(p.log.String(), "hunter2") || strings.Contains(p.log.String(), "goroutine ") {
				t.Errorf("said %s", p.log)
			}
			if code, _ := fetchPage(t, address, "/livez"); code != 200 {
				t.Errorf("/livez answers %d", code)
			}
			if code, body := fetchPage(t, address, "/readyz"); code != 503 || !strings.Contains(body, tc.name) {
				t.Errorf("/readyz answers %d %s, want 503 that names %s", code, body, tc.name)
			}
			p.end()
		})
	}
}

func TestRunBeforeMigrateSaysSo(t *testing.T) {
	t.Parallel()
	b := emptyBed(t)
	p := b.start("run")
	p.awaitLog("(run `?weir migrate)")
	p.end()
}

func TestSignalEndsARealProcess(t *testing.T) {
	b := fullBed(t)
	b.ok("migrate")
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"run", "--http-listen", "127.0.0.1:0"}, b.flags...)...)
	cmd.Env = append(os.Environ(), asProcess+"=1")
	p := &process{b: b, log: &lines{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.stop = func() { _ = cmd.Process.Signal(syscall.SIGINT) }
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
		p.code = cmd.ProcessState.ExitCode()
	}()
	p.awaitLog("msg=(running)")
	p.end()
	if !strings.Contains(p.log.String(), "msg=stopped") {
		t.Errorf("said %s", p.log)
	}
}
