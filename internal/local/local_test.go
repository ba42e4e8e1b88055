package local_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/internal/local"
	"github.com/weirhq/weir/internal/testbed"
)

// asHolder, in the environment, makes the test binary a process that holds servers until it is killed.
const asHolder = "WEIR_LOCAL_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asHolder); dir != "" {
		hold(dir)
		return
	}
	if repository := os.Getenv(asFetcher); repository != "" {
		fetchIn(os.Getenv("WEIR_LOCAL_DIR"), repository)
		return
	}
	os.Exit(testbed.Main(m))
}

// hold starts Kafka and PostgreSQL in dir, writes something to both, says so, and waits for the end.
func hold(dir string) {
	ctx := mainContext()
	d, err := local.OpenDirectory(dir, 0)
	must(err)
	k, err := local.StartKafka(ctx, local.KafkaOptions{Dir: d.Path("kafka"), Logger: slog.New(slog.DiscardHandler)})
	must(err)
	p, err := local.StartPostgres(ctx, local.PostgresOptions{Dir: d.Path("postgres")})
	must(err)
	must(produce(ctx, k.Addresses(), "kept"))
	must(statement(ctx, p.URL(), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)"))
	fmt.Println("READY")
	select {}
}

// mainContext is that of a test binary that is no test.
func mainContext() context.Context { return context.Background() }

func must(err error) {
	if err != nil {
		fmt.Println("FAILED", err)
		os.Exit(1)
	}
}

func statement(ctx context.Context, url, text string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, text)
	return err
}

func read(t *testing.T, url, text string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := conn.QueryRow(t.Context(), text).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// produce makes a topic and puts one record in.
func produce(ctx context.Context, brokers []string, topic string) error {
	client, free := kafkaClient(brokers)
	defer free()
	made, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}},
	})
	if err != nil {
		return err
	}
	if err := made.Errors[topic]; err != nil {
		return err
	}
	answer, err := client.Produce(ctx, &kafka.ProduceRequest{
		Topic: topic, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte("event"))}),
	})
	if err != nil {
		return err
	}
	return answer.Error
}

func end(t *testing.T, brokers []string, topic string) int64 {
	t.Helper()
	client, free := kafkaClient(brokers)
	defer free()
	ends, err := client.ListOffsets(t.Context(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ends.Topics[topic][0].LastOffset
}

func kafkaClient(brokers []string) (*kafka.Client, func()) {
	transport := &kafka.Transport{}
	return &kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport}, transport.CloseIdleConnections
}

func startBoth(t *testing.T, d *local.Directory) (*local.Kafka, *local.Postgres) {
	t.Helper()
	k, err := local.StartKafka(t.Context(), local.KafkaOptions{Dir: d.Path("kafka"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := local.StartPostgres(t.Context(), local.PostgresOptions{Dir: d.Path("postgres")})
	if err != nil {
		t.Fatal(err)
	}
	return k, p
}

func stopBoth(t *testing.T, k *local.Kafka, p *local.Postgres) {
	t.Helper()
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestStateSurvivesAStop(t *testing.T) {
	d := open(t, testbed.Folder(t))
	k, p := startBoth(t, d)
	if err := produce(t.Context(), k.Addresses(), "kept"); err != nil {
		t.Fatal(err)
	}
	if err := statement(t.Context(), p.URL(), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	stopBoth(t, k, p)
	k, p = startBoth(t, d)
	wantKept(t, k, p)
	stopBoth(t, k, p)
	if err := os.Mkdir(d.Path("src"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Erase(t.Context(), "kafka", "postgres"); err == nil || !strings.Contains(err.Error(), "also holds src, which is somebody else's") {
		t.Errorf("a directory with something else in it: %v", err)
	}
	if _, err := os.Stat(d.Path("postgres")); err != nil {
		t.Errorf("it was erased all the same: %v", err)
	}
	if err := os.Remove(d.Path("src")); err != nil {
		t.Fatal(err)
	}
	if err := d.Erase(t.Context(), "kafka", "postgres"); err != nil {
		t.Fatal(err)
	}
	if empty, err := d.Empty(); !empty || err != nil {
		t.Errorf("after Erase: empty %v, %v", empty, err)
	}
}

// A broker that was closed comes back without the members that groups had: they join anew, as after a kill. What they had committed stays.
func TestMembersOfGroupsJoinAnew(t *testing.T) {
	dir := testbed.Folder(t)
	start := func() (*local.Kafka, *kafka.Client) {
		k, err := local.StartKafka(t.Context(), local.KafkaOptions{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		client, free := kafkaClient(k.Addresses())
		t.Cleanup(free)
		return k, client
	}
	members := func(client *kafka.Client) int {
		t.Helper()
		found, err := client.DescribeGroups(t.Context(), &kafka.DescribeGroupsRequest{GroupIDs: []string{"group"}})
		if err != nil || len(found.Groups) != 1 || found.Groups[0].Error != nil {
			t.Fatalf("%+v, %v", found, err)
		}
		return len(found.Groups[0].Members)
	}
	k, client := start()
	if err := produce(t.Context(), k.Addresses(), "kept"); err != nil {
		t.Fatal(err)
	}
	joined := join(t, client)
	commit := kafka.OffsetCommitRequest{GroupID: "group", GenerationID: joined.GenerationID, MemberID: joined.MemberID, Topics: map[string][]kafka.OffsetCommit{"kept": {{Offset: 1}}}}
	if done, err := client.OffsetCommit(t.Context(), &commit); err != nil || done.Topics["kept"][0].Error != nil {
		t.Fatalf("%+v, %v", done, err)
	}
	if n := members(client); n != 1 {
		t.Fatalf("%d members", n)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	k, client = start()
	if n := members(client); n != 0 {
		t.Errorf("%d members have come back", n)
	}
	if again := join(t, client); again.MemberID == joined.MemberID {
		t.Error("a member has the name of one before")
	}
	stored, err := client.OffsetFetch(t.Context(), &kafka.OffsetFetchRequest{GroupID: "group", Topics: map[string][]int{"kept": {0}}})
	if err != nil || stored.Topics["kept"][0].CommittedOffset != 1 {
		t.Errorf("committed is %+v, %v", stored, err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// join makes a member of the group, alone in it.
func join(t *testing.T, client *kafka.Client) *kafka.JoinGroupResponse {
	t.Helper()
	request := kafka.JoinGroupRequest{
		GroupID: "group", SessionTimeout: time.Minute, RebalanceTimeout: time.Minute, ProtocolType: "consumer",
		Protocols: []kafka.GroupProtocol{{Name: "range", Metadata: kafka.GroupProtocolSubscription{Topics: []string{"kept"}}}},
	}
	joined, err := client.JoinGroup(t.Context(), &request)
	if err == nil && errors.Is(joined.Error, kafka.MemberIDRequired) {
		request.MemberID = joined.MemberID
		joined, err = client.JoinGroup(t.Context(), &request)
	}
	if err != nil || joined.Error != nil {
		t.Fatalf("%+v, %v", joined, err)
	}
	synced, err := client.SyncGroup(t.Context(), &kafka.SyncGroupRequest{
		GroupID: "group", GenerationID: joined.GenerationID, MemberID: joined.MemberID, ProtocolType: "consumer", ProtocolName: "range",
		Assignments: []kafka.SyncGroupRequestAssignment{{MemberID: joined.MemberID, Assignment: kafka.GroupProtocolAssignment{AssignedPartitions: map[string][]int{"kept": {0}}}}},
	})
	if err != nil || synced.Error != nil {
		t.Fatalf("%+v, %v", synced, err)
	}
	return joined
}

func wantKept(t *testing.T, k *local.Kafka, p *local.Postgres) {
	t.Helper()
	if got := end(t, k.Addresses(), "kept"); got != 1 {
		t.Errorf("the topic ends at %d, want 1", got)
	}
	if got := read(t, p.URL(), "SELECT n FROM kept"); got != 7 {
		t.Errorf("the table has %d, want 7", got)
	}
}

func open(t *testing.T, dir string) *local.Directory {
	t.Helper()
	d, err := local.OpenDirectory(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Whoever wants a directory that is in use learns where to find who uses it.
func TestDirectoryInUseSaysWhereItsUserIs(t *testing.T) {
	dir := testbed.Folder(t)
	d := open(t, dir)
	for _, tc := range []struct{ announce, want string }{
		{"", fmt.Sprintf("(pid %d)", os.Getpid())},
		{"console http://127.0.0.1:9466", fmt.Sprintf("(pid %d, console http://127.0.0.1:9466)", os.Getpid())},
		{strings.Repeat("x", 500), fmt.Sprintf("(pid %d)", os.Getpid())},
	} {
		if tc.announce != "" {
			if err := d.Announce(tc.announce); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := local.OpenDirectory(dir, 0); !errors.Is(err, local.ErrInUse) || !strings.HasSuffix(err.Error(), tc.want) {
			t.Errorf("announced %q: got %v, want %s at its end", tc.announce, err, tc.want)
		}
	}
}

// A killed process leaves its PostgreSQL to the watcher; the next process waits for it and finds everything.
func TestStateSurvivesKill(t *testing.T) {
	dir := testbed.Folder(t)
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), asHolder+"="+dir)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 200)
	n, err := out.Read(said)
	if err != nil || !strings.HasPrefix(string(said[:n]), "READY") {
		t.Fatalf("the holder said %q, %v", said[:n], err)
	}
	_, err = local.OpenDirectory(dir, 0)
	if err == nil || !strings.Contains(err.Error(), "in use by another process (pid "+strconv.Itoa(holder.Process.Pid)+")") {
		t.Errorf("a second process gets %v", err)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // it was killed
	k, p := startBoth(t, open(t, dir))
	wantKept(t, k, p)
	stopBoth(t, k, p)
}

// A server whose watcher was killed as well is found and ended before another one starts.
func TestStrayServerIsEnded(t *testing.T) {
	d := open(t, testbed.Folder(t))
	first, err := local.StartPostgres(t.Context(), local.PostgresOptions{Dir: d.Path("postgres")})
	if err != nil {
		t.Fatal(err)
	}
	if err := statement(t.Context(), first.URL(), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	if err := local.KillWatcher(first); err != nil {
		t.Fatal(err)
	}
	second, err := local.StartPostgres(t.Context(), local.PostgresOptions{Dir: d.Path("postgres")})
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, second.URL(), "SELECT n FROM kept"); got != 7 {
		t.Errorf("the table has %d, want 7", got)
	}
	if err := local.KillWatcher(second); err != nil {
		t.Fatal(err)
	}
	// Erase must end it, too: files that are removed below a running server come back.
	if err := d.Erase(t.Context(), "kafka", "postgres", "second"); err != nil {
		t.Fatal(err)
	}
	if conn, err := pgx.Connect(t.Context(), second.URL()); err == nil {
		t.Errorf("the erased server still answers (close: %v)", conn.Close(t.Context()))
	}
}

func TestRedisForgetsAndExpires(t *testing.T) {
	server, err := local.StartRedis(t.Context(), local.RedisOptions{Tick: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	options, err := redis.ParseURL(server.URL())
	if err != nil || options.Addr != server.Address() {
		t.Fatalf("URL %s of %s: %v", server.URL(), server.Address(), err)
	}
	client := redis.NewClient(options)
	if err := client.Set(t.Context(), "passing", "1", 200*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 10*time.Second, func() error {
		if n := client.Exists(t.Context(), "passing").Val(); n != 0 {
			return fmt.Errorf("the key is still there")
		}
		return nil
	})
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}

func TestTakenPortIsALine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	port := taken.Addr().(*net.TCPAddr).Port
	quiet := slog.New(slog.DiscardHandler)
	for name, start := range map[string]func() error{
		"Kafka": func() error {
			_, err := local.StartKafka(t.Context(), local.KafkaOptions{Dir: t.TempDir(), Port: port, Logger: quiet})
			return err
		},
		"Redis": func() error {
			_, err := local.StartRedis(t.Context(), local.RedisOptions{Port: port})
			return err
		},
		"PostgreSQL": func() error {
			_, err := local.StartPostgres(t.Context(), local.PostgresOptions{Port: port})
			return err
		},
	} {
		want := fmt.Sprintf("%s: port %d on 127.0.0.1 is taken by another program: free it or choose another port", name, port)
		if err := start(); err == nil || err.Error() != want {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := open(t, testbed.Folder(t))
	_, err := local.StartPostgres(ctx, local.PostgresOptions{Dir: d.Path("postgres"), Say: func(string) { cancel() }})
	if err == nil {
		t.Fatal("a start that was broken off succeeded")
	}
	p, err := local.StartPostgres(t.Context(), local.PostgresOptions{Dir: d.Path("postgres")})
	if err != nil {
		t.Fatalf("after a start that was broken off: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
