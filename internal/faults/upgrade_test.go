package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/testbed"
)

// TestRollingUpgrade runs the previous release and this one on one installation, under load. Each takes over all that the
// other one has in hand when its machine dies, and goes on when it is back.
//
//	upgrade    the previous release runs; this one migrates, joins, takes over; then the record format is raised
//	rollback   this one runs, the previous one joins and takes over
//	takeovers  only one of them runs at a time: whichever it is dies while the other one starts, time and again
func TestRollingUpgrade(t *testing.T) {
	testbed.Night(t, "two releases, of which one is compiled, take over from each other for minutes")
	previous := previousProgram(t)
	t.Run("each", func(t *testing.T) {
		t.Run("upgrade", func(t *testing.T) {
			t.Parallel()
			u := newUpgrade(t, 1)
			old, now := u.build("previous", previous), u.build("this", testbed.Weir())
			u.install(old.in, "--record-format", fmt.Sprint(previousFormat-1))
			u.relieve(old, now, func() { now.in.Weir("migrate") })
			newest := u.newestFormat(now.in)
			now.in.Weir("migrate", "--record-format", fmt.Sprint(newest))
			testbed.Eventually(u, workTimeout, func() error { return u.formats(newest) }) // while the load goes on
			u.works(time.Now())
			u.end()
			u.holdsFormat(newest)
		})
		t.Run("rollback", func(t *testing.T) {
			t.Parallel()
			u := newUpgrade(t, 2)
			old, now := u.build("previous", previous), u.build("this", testbed.Weir())
			u.install(now.in, "--record-format", fmt.Sprint(previousFormat))
			u.relieve(now, old, func() {})
			u.end()
			u.holdsFormat(previousFormat)
		})
		t.Run("takeovers", func(t *testing.T) {
			t.Parallel()
			u := newUpgrade(t, 3)
			old, now := u.build("previous", previous), u.build("this", testbed.Weir())
			u.install(old.in, "--record-format", fmt.Sprint(previousFormat))
			now.in.Weir("migrate")
			u.takeTurns(old, now)
			u.end()
			u.holdsFormat(previousFormat)
		})
	})
}

// upgrade is the stage of one order.
type upgrade struct {
	*scene
	all []*build
}

// build is one release and its processes, one of each stage, as on one machine.
type build struct {
	name string
	in   *install
	by   map[string]*process // stage
}

// stages of a machine, in the order in which they are started.
func stages() []string { return []string{"route", "detect", "record", "enforce"} }

func newUpgrade(t *testing.T, seed uint64) *upgrade {
	t.Helper()
	s := &scene{T: t, form: chooseForm(), rnd: rand.New(rand.NewPCG(seed, 9)), replication: 1}
	s.stream = &exactness.Stream{
		Namespace: testbed.Namespace(t), Requests: 4, Keyed: 6, Hits: 4, Brokers: testbed.Kafka(t), Postgres: testbed.Postgres(t),
	}
	s.in = configure(t, s.stream, s.replication, fmt.Sprintf("redis: {url: %q}\n", testbed.Redis(t)))
	return &upgrade{scene: s}
}

func (u *upgrade) build(name, program string) *build {
	in := *u.in
	in.Workplace = in.With(program)
	b := &build{name: name, in: &in, by: map[string]*process{}}
	u.all = append(u.all, b)
	return b
}

// install makes the installation by one of the builds. The rule that finds probes blocks them: every one is an answer that
// ENFORCE owes.
func (u *upgrade) install(in *install, how ...string) {
	u.Helper()
	in.Weir(append([]string{"migrate"}, how...)...)
	in.Weir("rules", "apply", "-f", in.Write("rules.yaml", rules+"block: {ttl: 10m}\n"), "--reason", "tests")
	promote := []string{"rules", "promote", "probe", "--reason", "tests"}
	if strings.Contains(in.Weir("rules", "promote", "--help"), "--override string") { // of a build that asks for evidence
		promote = append(promote, "--yes", "--override", "tests")
	}
	in.Weir(promote...)
}

// newestFormat is the newest record format that a build knows.
func (u *upgrade) newestFormat(in *install) int {
	u.Helper()
	var version struct {
		RecordFormat int `json:"record_format"`
	}
	out := in.Weir("version", "--output", "json")
	if err := json.Unmarshal([]byte(out), &version); err != nil || version.RecordFormat < previousFormat {
		u.Fatalf("this release knows record format %d, the one before it %d (%v): %s", version.RecordFormat, previousFormat, err, out)
	}
	return version.RecordFormat
}

// start starts a machine's processes, or starts them again.
func (u *upgrade) start(b *build) {
	u.Helper()
	for _, stage := range stages() {
		if p := b.by[stage]; p != nil {
			p.again()
		} else {
			b.by[stage] = b.in.start(stage)
		}
	}
}

// kill is the end of a machine's power.
func (b *build) kill() {
	for _, stage := range stages() {
		b.by[stage].kill()
	}
}

// relieve lets one build take over from another one, under load, with the power of each lost once in between.
func (u *upgrade) relieve(first, then *build, prepare func()) {
	u.Helper()
	u.start(first)
	u.shared(first)
	u.begin()
	prepare()
	u.start(then)
	u.shared(first, then)
	u.works(time.Now())
	for _, b := range []*build{first, then} {
		u.pause(2 * time.Second)
		u.understood(b)
		b.kill()
		u.works(u.harmed()) // so the other one has all that was its own
		u.start(b)
		u.shared(first, then)
		u.works(time.Now())
	}
	for _, stage := range stages() {
		first.by[stage].running.End()
	}
	u.shared(then)
	u.works(time.Now())
}

// turnsTake is when the short forms begin no further takeover.
const turnsTake = 25 * time.Second

// takeTurns lets two builds take over from each other, under load: the one that runs loses its power at some time while the
// other one starts, which goes on with what the dead one has announced, read and not committed, and snapshotted.
func (u *upgrade) takeTurns(first, second *build) {
	u.Helper()
	u.start(first)
	u.shared(first)
	u.begin()
	running, next := first, second
	begun := time.Now()
	for n := range 2 * u.form.turns {
		if u.form.side && n >= 2 && time.Since(begun) > turnsTake {
			break // on a slow machine once each way is enough
		}
		u.start(next)
		u.pause(3 * time.Second) // it may know of nothing yet, wait for its part, or have it
		u.understood(running)
		running.kill()
		u.works(u.harmed())
		u.shared(next)
		running, next = next, running
	}
}

// begin sends the load, until end.
func (u *upgrade) begin() {
	u.Helper()
	u.watch = watchHits(u, u.stream)
	var err error
	u.load, err = u.stream.StartLoad(u.Context(), exactness.LoadOptions{
		Events: u.form.events, Rate: u.form.rate, Probes: u.form.probes, Seed: u.rnd.Uint64(), Behind: behind, Last: true,
	})
	if err != nil {
		u.Fatal(err)
	}
	u.works(time.Now())
}

// shared waits until the routed and the keyed partitions are shared out among the builds.
func (u *upgrade) shared(builds ...*build) {
	u.Helper()
	for _, stage := range []string{"route", "detect"} {
		var processes []*process
		for _, b := range builds {
			processes = append(processes, b.by[stage])
		}
		u.awaitShares(processes)
	}
}

// end ends the load and judges what came of it.
func (u *upgrade) end() {
	u.Helper()
	ctx := u.Context()
	finish, stop := context.WithTimeout(ctx, time.Duration(u.form.events/u.form.rate)*time.Second+workTimeout)
	defer stop()
	var r row
	var err error
	if r.events, err = u.load.Finish(finish); err != nil {
		u.Fatal(err)
	}
	u.judge(&r)
	if r.lost+r.doubled+r.extra > 0 {
		u.Errorf("%d lost, %d doubled, %d extra", r.lost, r.doubled, r.extra)
	}
	u.answered(ctx)
	if stopped := u.stopped(ctx); stopped != "" {
		u.Errorf("partitions have stopped%s", stopped)
	}
	err = u.stream.EachRecord(ctx, u.stream.Topic("dead"), 1, func(r *kgo.Record) error { return fmt.Errorf("a dead letter: %s", r.Value) })
	if err != nil {
		u.Error(err)
	}
	for _, b := range u.all {
		u.understood(b)
	}
}

// understood holds that since a machine's processes were started none has met what only the other release knows.
func (u *upgrade) understood(b *build) {
	u.Helper()
	for _, stage := range stages() {
		for line := range strings.Lines(b.by[stage].said()) {
			for _, trouble := range []string{"upgrade this process", "cannot be used by this process", "panic"} {
				if strings.Contains(line, trouble) {
					u.Errorf("%s of the %s release: %s", stage, b.name, line)
				}
			}
		}
	}
}

// answered holds that ENFORCE has decided about every episode of the rule that blocks, and that history has the decision.
func (u *upgrade) answered(ctx context.Context) {
	u.Helper()
	testbed.Eventually(u, workTimeout, func() error {
		var owed, missing int
		err := u.stream.Query(ctx, `SELECT count(*), count(*) FILTER (WHERE NOT EXISTS (SELECT FROM {ns}.block_decisions_all d WHERE d.hit = h.id))
			FROM {ns}.hits_all h WHERE h.rule = 'probe' AND h.phase <> 4`, func(rows pgx.Rows) error { return rows.Scan(&owed, &missing) })
		if err == nil && (missing > 0 || owed < 100) {
			err = fmt.Errorf("%d of %d offences have no decision of ENFORCE's, at least 100 must have happened", missing, owed)
		}
		return err
	})
}

// holdsFormat holds what the newest format is in which records were written to each keyed partition.
func (u *upgrade) holdsFormat(want int) {
	u.Helper()
	if err := u.formats(want); err != nil {
		u.Error(err)
	}
}

// formats says which keyed partitions hold no record of a format, or one of a newer format.
func (u *upgrade) formats(want int) error {
	newest := make([]int, u.stream.Keyed)
	ctx, cancel := context.WithTimeout(context.Background(), workTimeout)
	defer cancel()
	err := u.stream.EachRecord(ctx, u.stream.Topic("keyed"), u.stream.Keyed, func(r *kgo.Record) error {
		newest[r.Partition] = max(newest[r.Partition], int(r.Value[0]))
		return nil
	})
	if err != nil {
		return err
	}
	for _, format := range newest {
		if format != want {
			return fmt.Errorf("keyed partitions hold records of up to format %v, want %d", newest, want)
		}
	}
	return nil
}
