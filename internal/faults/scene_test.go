package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/local"
	"github.com/weirhq/weir/internal/testbed"
)

// scene is one fault's stage: the servers, the processes, the load.
//
//	load ──▶ requests ──▶ 2 routers ──▶ keyed ──▶ 2 detectors ──▶ hits ──▶ recorder ──▶ PostgreSQL
//	                                                               └─────▶ watch
type scene struct {
	*testing.T
	form        form
	rnd         *rand.Rand
	brokers     brokers         // nil: the testbed's, which are not this test's to harm
	postgres    *local.Postgres // nil: the testbed's
	restart     local.PostgresOptions
	replication int

	stream    *exactness.Stream
	in        *install
	routers   []*process
	detectors []*process
	load      *exactness.Load
	watch     *watch
	instants  []time.Time
	parts     []*parts // of the instants, where what is killed is back at once

	// tellsOf, where there is one, tells the judge what weir itself has told to be lost.
	tellsOf func(*exactness.Logs)
	// lost are records that a broker took and has no more. History need not have those that it says it has not read.
	lost []exactness.HitRecord
}

const (
	// behind lets episodes close with the last event of the load. It is less than what the progress of an idle partition trails the
	// clock by, 60 s where two releases run, so nothing is late that waits for a server for half a minute.
	behind = 15 * time.Second
	// workTimeout is for what a working stream does in seconds, on a machine that is busy with other tests.
	workTimeout = 3 * time.Minute
)

// play runs one fault from an empty installation to the verdict.
func play(t *testing.T, f form, seed uint64, what *fault, r *row) {
	s := &scene{T: t, form: f, rnd: rand.New(rand.NewPCG(seed, 9)), replication: 1}
	s.stream = &exactness.Stream{Namespace: testbed.Namespace(t), Requests: 4, Keyed: 6, Hits: 4}
	if what.servers != nil {
		what.servers(s)
	}
	if s.stream.Brokers == nil {
		s.stream.Brokers = testbed.Kafka(t)
	}
	if s.stream.Postgres == "" {
		s.stream.Postgres = testbed.Postgres(t)
	}
	s.in = newInstall(t, s.stream, s.replication)
	s.routers = []*process{s.in.startAs("route", what.instance("r-0")), s.in.startAs("route", what.instance("r-1"))}
	s.detectors = []*process{s.in.startAs("detect", what.instance("d-0")), s.in.startAs("detect", what.instance("d-1"))}
	s.in.start("record")
	awaitShares(t, s.stream.Requests, s.routers)
	awaitShares(t, s.stream.Keyed, s.detectors)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.watch = watchHits(t, s.stream)
	var err error
	s.load, err = s.stream.StartLoad(ctx, exactness.LoadOptions{
		Events: f.events, Rate: f.rate, Probes: f.probes, Seed: seed, Behind: behind, Last: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.works(time.Now())
	what.harm(s)

	finish, stop := context.WithTimeout(ctx, time.Duration(f.events/f.rate)*time.Second+workTimeout)
	defer stop()
	if r.events, err = s.load.Finish(finish); err != nil {
		t.Fatal(err)
	}
	s.judge(r)
}

// harmed notes that a fault was done now.
func (s *scene) harmed() time.Time {
	now := time.Now()
	s.instants = append(s.instants, now)
	return now
}

// works waits until the whole stream works on what was sent after since.
func (s *scene) works(since time.Time) {
	s.Helper()
	testbed.Eventually(s, workTimeout, func() error { return s.watch.works(since) })
}

// pause lets the load go on for a moment of a random length.
func (s *scene) pause(most time.Duration) { s.sends(time.Duration(s.rnd.Int64N(int64(most)))) }

// sends waits until the load has sent as much as it does in so long.
func (s *scene) sends(long time.Duration) {
	s.Helper()
	goal := s.load.Sent() + int64(long.Seconds()*float64(s.form.rate))
	testbed.Eventually(s, workTimeout, func() error {
		if sent := s.load.Sent(); sent < goal {
			return fmt.Errorf("the load has sent %d events, want %d", sent, goal)
		}
		return nil
	})
}

// judge fills the row. The load has ended.
func (s *scene) judge(r *row) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*workTimeout)
	defer cancel()
	testbed.Eventually(s, workTimeout, func() error {
		routed, err := s.stream.Routed(ctx)
		if err == nil && routed < int64(r.events) {
			err = fmt.Errorf("%d of %d requests are routed%s", routed, r.events, s.stopped(ctx))
		}
		return err
	})
	logs, err := s.stream.ReadLogs(ctx)
	if err != nil {
		s.Fatal(err)
	}
	if s.tellsOf != nil {
		s.tellsOf(logs)
	}
	routing := logs.JudgeRouting()
	if err := routing.Err(); err != nil {
		s.Errorf("routing: %v", err)
	}
	if routing.Requests != r.events || routing.Accepted < r.events {
		s.Errorf("%d events sent, %d requests, %d accepted records: the load proves nothing", r.events, routing.Requests, routing.Accepted)
	}
	hits := s.settle(ctx, logs)
	if err := hits.Err(); err != nil {
		s.Errorf("hits: %v%s", err, s.stopped(ctx))
	}
	if hits.Exact < 20 {
		s.Errorf("only %d episodes were compared by counts and bounds: the load proves nothing", hits.Exact)
	}
	r.named = hits.Named
	r.repeated = routing.Records - routing.Accepted
	r.lost, r.doubled, r.extra = routing.Lost+hits.Lost, routing.Doubled+hits.Doubled, routing.Extra+hits.Extra
	s.measure(ctx, r)
	r.judged = true
	s.Logf("%d events, %d keyed records, %d of them repeated; %d episodes, %d compared by counts and bounds",
		r.events, routing.Records, r.repeated, hits.Episodes, hits.Exact)
}

// settle waits until history agrees with the oracle, or it is clear that it will not, and returns the last verdict.
func (s *scene) settle(ctx context.Context, logs *exactness.Logs) exactness.Hits {
	s.Helper()
	want := logs.Expected()
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	watch := testbed.StartStopwatch()
	defer watch.Stop()
	for start := time.Now(); ; <-ticker.C {
		got, named := s.history(ctx)
		v := want.Judge(got)
		v.Named += named
		if v.Err() == nil {
			s.allKept(ctx)
			return v
		}
		if watch.Since(start) > workTimeout {
			s.allKept(ctx) // which would be why
			return v
		}
	}
}

// history is what history says, completed by what it says that it has not read, and how much that is.
func (s *scene) history(ctx context.Context) ([]exactness.Hit, int) {
	s.Helper()
	got, err := s.stream.ReadHits(ctx)
	if err != nil {
		s.Fatal(err)
	}
	if s.lost == nil {
		return got, 0
	}
	gaps, err := s.stream.Gaps(ctx)
	if err != nil {
		s.Fatal(err)
	}
	return exactness.Complete(got, s.lost, gaps)
}

// allKept holds what the oracle takes for granted: no event was late, and history has left out no row.
func (s *scene) allKept(ctx context.Context) {
	s.Helper()
	for what, sql := range map[string]string{
		"events were late":                  `SELECT coalesce(sum(events), 0)::bigint FROM {ns}.late_sums`,
		"episodes were left out by a bound": `SELECT coalesce(sum(rows), 0)::bigint FROM {ns}.hits_left_out`,
	} {
		var n int64
		if err := s.stream.Query(ctx, sql, func(rows pgx.Rows) error { return rows.Scan(&n) }); err != nil {
			s.Fatal(err)
		}
		if n > 0 {
			s.Errorf("%d %s", n, what)
		}
	}
}

// measure takes the worst times of all instants.
func (s *scene) measure(ctx context.Context, r *row) {
	s.Helper()
	r.instants = len(s.instants)
	for i, at := range s.instants {
		next := time.Now()
		if i+1 < len(s.instants) {
			next = s.instants[i+1]
		}
		first, caughtUp := s.watch.recovery(at, next)
		inHistory, err := recorded(ctx, s.stream, at)
		if err != nil {
			s.Fatal(err)
		}
		s.Logf("instant %d: first hit after %v, caught up after %v, in history after %v", i+1, first, caughtUp, inHistory)
		if i < len(s.parts) && first >= r.first {
			r.parts = s.parts[i].text(first)
		}
		r.first, r.caughtUp, r.recorded = max(r.first, first), max(r.caughtUp, caughtUp), max(r.recorded, inHistory)
	}
}

// stopped says which partitions do not go on, and why.
func (s *scene) stopped(ctx context.Context) string {
	text := ""
	err := s.stream.Query(ctx, `SELECT side, partition, state, reason FROM {ns}.partition_states WHERE state <> 'running'`, func(rows pgx.Rows) error {
		var side, state, reason string
		var partition int
		err := rows.Scan(&side, &partition, &state, &reason)
		text += fmt.Sprintf("; %s partition %d is %s: %s", side, partition, state, reason)
		return err
	})
	if err != nil {
		return "; " + err.Error()
	}
	return text
}
