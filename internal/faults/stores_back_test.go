package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/local"
	"github.com/weirhq/weir/internal/testbed"
)

// since does what the store will have lost: a promotion, a demotion, and an edit with a promotion of its own.
func (b *stores) since() {
	b.Helper()
	b.promote(risen)
	b.demote(fallen)
	b.edit()
	for _, rule := range []string{steady, risen, fallen, edited} {
		b.abuse(rule)
	}
	b.agree()
	if err := b.stream.Remember(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// edit puts a rule in front of the others and promotes it.
func (b *stores) edit() {
	b.Helper()
	b.in.Weir("rules", "apply", "-f", b.in.Write("edited.yaml", blockingRule(edited)), "--reason", "an edit", "--yes")
	b.promote(edited)
}

// forgets notes what the rule store has lost of since. What was promoted is in shadow. What was demoted blocked at the
// moment to which the store went back, and was stopped since: it stays stopped.
func (b *stores) forgets() {
	b.who.set(risen, "shadow")
	b.who.set(fallen, "shadow")
	b.who.drop(edited)
}

// restoreDump does what docs/operations.md says, with a dump of before.
func (b *stores) restoreDump() {
	save, restore := testbed.Documented(b, "operations.md", "Backup"), testbed.Documented(b, "operations.md", "Restore")
	folder := b.TempDir()
	b.pause(2 * time.Second)
	b.shell(folder, save[0])
	b.since()
	b.sends(b.form.down / 2)
	b.stop()
	at := b.harmed()
	b.sql(`DROP SCHEMA {ns} CASCADE`)
	b.shell(folder, restore[0])
	b.forgets()
	b.startAgain()
	b.agree()
	b.works(at)
	b.newGate()
	b.agree()
	b.edit() // again, as it was
	b.abuse(edited)
	b.agree()
}

func (b *stores) sql(statement string) {
	b.Helper()
	if err := b.stream.Query(b.Context(), statement, func(pgx.Rows) error { return nil }); err != nil {
		b.Fatal(err)
	}
}

// flushRedis flushes it, twice; the second time a gate starts beside an empty Redis.
func (b *stores) flushRedis() {
	b.since()
	for n := range 2 {
		b.pause(2 * time.Second)
		at := b.harmed()
		if err := b.redis.client.FlushAll(b.Context()).Err(); err != nil {
			b.Fatal(err)
		}
		if n == 1 {
			b.newGate()
		}
		b.abuse(steady)
		b.agree()
		b.works(at)
	}
}

// olderRedis puts Redis back to what it held before promotions and demotions.
func (b *stores) olderRedis() {
	older := b.redis.copyOf()
	b.since()
	b.pause(2 * time.Second)
	at := b.harmed()
	b.redis.putBack(older)
	b.newGate()
	b.agree()
	b.abuse(steady)
	b.agree()
	b.works(at)
}

// shareRedis lets a second installation, of the same namespace, find this one's Redis.
func (b *stores) shareRedis() {
	b.since()
	other := configure(b, &exactness.Stream{
		Namespace: b.stream.Namespace, Requests: 4, Keyed: 6, Hits: 4, Postgres: testbed.Postgres(b),
		Brokers: testbed.EmbeddedKafka(b).ListenAddrs(),
	}, 1, fmt.Sprintf("redis: {url: %q}\n", "redis://"+testbed.EmbeddedRedis(b).Addr()+"/0"))
	other.Weir("migrate")
	other.Weir("rules", "apply", "-f", other.Write("rules.yaml", theRules()), "--reason", "tests")
	at := b.harmed()
	for _, args := range [][]string{
		{"migrate"}, {"run"}, {"run", "--stages", "enforce"}, {"console", "--console-listen", "127.0.0.1:0",
			"--set", "console.local_admin=true"},
	} {
		ctx, cancel := context.WithTimeout(b.Context(), workTimeout)
		command := other.Command(ctx, args...)
		command.Env = append(command.Environ(), "WEIR_REDIS_URL="+b.redis.url())
		out, err := command.CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), "belongs to installation") {
			b.r.wrong++
			b.Errorf("a second installation's weir %s: %v%s", strings.Join(args, " "), err, aside(out))
		}
	}
	b.works(at)
	b.agree()
	b.newGate()
	b.agree()
}

// recreateHits deletes the topic, and has weir migrate make it again.
func (b *stores) recreateHits() {
	b.since()
	b.pause(2 * time.Second)
	at := b.harmed()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.stream.Brokers...))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	request := kmsg.NewPtrDeleteTopicsRequest()
	topic := kmsg.NewDeleteTopicsRequestTopic()
	name := b.stream.Topic("hits")
	topic.Topic = &name
	request.Topics, request.TopicNames = []kmsg.DeleteTopicsRequestTopic{topic}, []string{name}
	request.TimeoutMillis = 30_000
	if _, err := request.RequestWith(b.Context(), client); err != nil {
		b.Fatal(err)
	}
	b.sends(2 * time.Second)
	b.in.Weir("migrate")
	b.watch = watchHits(b, b.stream) // the client of before knows another topic
	for _, rule := range []string{steady, risen, edited} {
		b.abuse(rule)
	}
	b.agree()
	b.works(at)
}

// standby is a PostgreSQL that follows another one.
type standby struct {
	options local.PostgresOptions
	server  *local.Postgres
}

// ownStandby starts a PostgreSQL and one that streams from it, asynchronously.
func (b *stores) ownStandby() {
	b.Helper()
	program := testbed.Program(b, "pg_basebackup")
	b.ownPostgres()
	b.standby = &standby{options: local.PostgresOptions{Dir: filepath.Join(filepath.Dir(b.restart.Dir), "standby"),
		Port: testbed.FreePort(b)}}
	dir := b.standby.options.Dir
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	out, err := exec.Command(program, "--dbname", b.stream.Postgres, "-D", filepath.Join(dir, "data"), "-R", "-X",
		"stream", "-c", "fast",
		"--no-sync").CombinedOutput()
	if err != nil {
		b.Fatalf("pg_basebackup: %v%s", err, aside(out))
	}
	copyFolder(b, filepath.Join(b.restart.Dir, "password"), filepath.Join(dir, "password"))
	info, err := os.Stat(filepath.Join(b.restart.Dir, "data"))
	if err != nil {
		b.Fatal(err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		out, err := exec.Command("chown", "-R", fmt.Sprintf("%d:%d", owner.Uid, owner.Gid), dir).CombinedOutput()
		if err != nil {
			b.Fatalf("chown: %v%s", err, aside(out))
		}
	}
	b.startStandby()
	b.Cleanup(func() {
		if b.standby.server != nil {
			_ = b.standby.server.Close() // the verdict is spoken
		}
	})
}

func (b *stores) startStandby() {
	b.Helper()
	var err error
	if b.standby.server, err = local.StartPostgres(context.Background(), b.standby.options); err != nil {
		b.Fatal(err)
	}
}

// ask asks the standby for one text.
func (b *stores) ask(statement string) (answer string, err error) {
	of := &exactness.Stream{Postgres: b.standby.server.URL(), Namespace: b.stream.Namespace}
	err = of.Query(b.Context(), statement, func(rows pgx.Rows) error { return rows.Scan(&answer) })
	return answer, err
}

// asks waits until the standby gives an answer.
func (b *stores) asks(statement, want string) {
	b.Helper()
	testbed.Eventually(b, workTimeout, func() error {
		got, err := b.ask(statement)
		if err == nil && got != want {
			err = fmt.Errorf("%s: %q, want %q", statement, got, want)
		}
		return err
	})
}

// failOver cuts the standby off, does what it will not know, kills the primary, and gives the standby its address.
func (b *stores) failOver() {
	b.asks(`SELECT mode FROM {ns}.rules_v WHERE rule = 'steady'`, "block")
	b.asks(`SELECT mode FROM {ns}.rules_v WHERE rule = 'fallen'`, "block")
	b.asks(`SELECT count(*)::text FROM {ns}.blocks_v`, fmt.Sprint(len(b.who.came[steady])+len(b.who.came[fallen])))
	for _, statement := range []string{`ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()::text`} {
		if _, err := b.ask(statement); err != nil {
			b.Fatal(err)
		}
	}
	b.asks(`SELECT count(*)::text FROM pg_stat_wal_receiver`, "0")
	b.since()
	b.sends(b.form.down / 2)
	at := b.harmed()
	primary := b.postgres
	b.postgres = nil
	b.killPostgres(filepath.Join(b.restart.Dir, "data"))
	if err := primary.Close(); err != nil {
		b.Fatal(err)
	}
	if _, err := b.ask(`SELECT pg_promote()::text`); err != nil {
		b.Fatal(err)
	}
	b.asks(`SELECT pg_is_in_recovery()::text`, "false")
	if err := b.standby.server.Close(); err != nil { // an address moves: here to where clients look
		b.Fatal(err)
	}
	b.standby.options.Port = b.restart.Port
	b.startStandby()
	b.in.Weir("migrate") // as docs/operations.md says: a rule that is lost blocks by what Redis knows until then
	b.forgets()
	b.agree()
	b.works(at)
	b.edit()
	b.abuse(edited)
	b.agree()
	b.twoGenerations() // so that what a detector reads again is not of the lost version
	b.detectors[0].kill()
	b.detectors[0].again()
	b.awaitShares(b.detectors)
	b.newGate()
	b.agree()
}

// killPostgres is kill -9 of a server of which the folder is known.
func (b *stores) killPostgres(data string) {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		b.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil || pid < 2 {
		b.Fatalf("the process of PostgreSQL is %d: %v", pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
}
