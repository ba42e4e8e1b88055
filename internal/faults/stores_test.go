package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/testbed"
)

// goingBack is a row of the table of stores that go back.
type goingBack struct {
	name string
	// servers prepares those servers that go back and are not Redis, of which each row has its own.
	servers func(*stores)
	// harm does it, under load, and returns when everything agrees again.
	harm func(*stores)
	// first is what comes before agreesWithin: a broker that restarts makes every member wait for its session's end.
	first time.Duration
}

func storesThatGoBack() []goingBack {
	return []goingBack{
		{name: "PostgreSQL put back to an older dump", harm: (*stores).restoreDump},
		{name: "PostgreSQL failed over, the last edit lost", servers: (*stores).ownStandby, harm: (*stores).failOver},
		{name: "Redis flushed", harm: (*stores).flushRedis},
		{name: "Redis put back to an older file", harm: (*stores).olderRedis},
		{name: "Redis shared by mistake", harm: (*stores).shareRedis},
		{name: "hits cut by a power cut", servers: (*stores).ownKafka, harm: (*stores).cutHits, first: sessionTimeout},
		{name: "hits deleted and made anew", harm: (*stores).recreateHits},
	}
}

// TestStoresThatGoBack puts one store after the other back to what it was, under load, while rules that block are
// promoted and demoted. What comes of each is judged as TestFaults does it, and by who is held: gates, console,
// command and rule store must agree with what the test has promoted, within agreesWithin.
func TestStoresThatGoBack(t *testing.T) {
	testbed.Night(t, "servers are stopped, put back and started again for minutes")
	form, seed := chooseForm(), seedOf(t)
	all := storesThatGoBack()
	rows := make([]storeRow, len(all))
	t.Run("each", func(t *testing.T) {
		for i := range all {
			t.Run(all[i].name, func(t *testing.T) {
				rows[i].name = all[i].name
				goBack(t, form, seed+uint64(i), &all[i], &rows[i])
			})
		}
	})
	fmt.Print(storeTable(form, seed, rows))
}

// storeRow is what came of one store that went back.
type storeRow struct {
	row
	name   string
	agreed time.Duration // the longest time until all answers were those that they should be
	wrong  int           // answers that were not those that they should be
}

func storeTable(f form, seed uint64, rows []storeRow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nstores that go back, %s form, seed %d\n", f.name, seed)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight|tabwriter.Debug)
	fmt.Fprintln(w, "store\tevents\tagreed after\tnamed in losses\tlost\tdoubled\textra\twrong\t")
	for _, r := range rows {
		switch {
		case r.name == "": // left out by -run
		case !r.judged:
			fmt.Fprintf(w, "%s\tFAILED\t\t\t\t\t\t\t\n", r.name)
		default:
			fmt.Fprintf(w, "%s\t%d\t%.1f s\t%d\t%d\t%d\t%d\t%d\t\n", r.name, r.events, r.agreed.Seconds(), r.named,
				r.lost, r.doubled, r.extra, r.wrong)
		}
	}
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

// agreesWithin is what weir promises: so long after a store is back, or after an act, everything tells the same.
const (
	agreesWithin   = 10 * time.Second
	sessionTimeout = 10 * time.Second
)

// stores is one row's stage: that of a fault, and what blocks and tells of blocks.
//
//	load, abusers ──▶ route ──▶ detect ──▶ record ──▶ PostgreSQL ──▶ console
//	                                 └───▶ enforce ──▶ Redis ──▶ 2 gates, weir blocks list
type stores struct {
	*scene
	r        *storeRow
	redis    *ownRedis
	standby  *standby
	stages   []*process
	gates    []*door
	console  *door
	within   time.Duration // see agreesWithin
	who      *expectations
	constant *constant
}

// theRules are those of the faults, and three that block who comes thrice.
func theRules() string {
	all := rules
	for _, id := range []string{steady, risen, fallen} {
		all += "---" + blockingRule(id)
	}
	return all
}

const (
	steady = "steady" // blocks all the time
	risen  = "risen"  // is promoted after the moment to which the store goes back
	fallen = "fallen" // is demoted after that moment
	edited = "edited" // comes with an edit after that moment
)

func blockingRule(id string) string {
	return fmt.Sprintf(`
id: %s
owner: tests
match: {method: POST, path: /v1/%[1]s}
key: [ip]
limit: 2
algorithm: sliding-log
window: 5s
lateness: 5s
block: {ttl: 1h}
`, id)
}

// goBack plays one row from an empty installation to the verdict.
func goBack(t *testing.T, f form, seed uint64, what *goingBack, r *storeRow) {
	s := &scene{T: t, form: f, rnd: rand.New(rand.NewPCG(seed, 9)), replication: 1}
	s.stream = &exactness.Stream{Namespace: testbed.Namespace(t), Requests: 4, Keyed: 6, Hits: 4}
	b := &stores{scene: s, r: r, redis: startOwnRedis(t), who: newExpectations(), within: what.first + agreesWithin}
	if what.servers != nil {
		what.servers(b)
	}
	if s.stream.Brokers == nil {
		s.stream.Brokers = testbed.Kafka(t)
	}
	if s.stream.Postgres == "" {
		s.stream.Postgres = testbed.Postgres(t)
	}
	s.in = configure(t, s.stream, s.replication, fmt.Sprintf("redis: {url: %q}\ndetect: {idle_margin: 5m}\n"+
		"history: {rows_per_minute: 0}\n", b.redis.url()))
	s.in.Weir("migrate")
	s.in.Weir("rules", "apply", "-f", s.in.Write("rules.yaml", theRules()), "--reason", "tests")
	b.open()
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
	b.promote(steady)
	b.promote(fallen)
	for _, rule := range []string{steady, risen, fallen} {
		b.abuse(rule)
	}
	b.agree()
	b.constant = b.watchConstant()
	what.harm(b)
	b.actsHold()
	b.end(ctx)
}

// actsHold holds that whatever was done to a store, the next promotions and demotions take effect.
func (b *stores) actsHold() {
	b.Helper()
	b.constant.end()
	b.promote(risen)
	b.demote(steady)
	b.abuse(risen)
	b.abuse(steady)
	b.agree()
	b.promote(steady)
	b.abuse(steady)
	b.agree()
}

// end ends the load and judges.
func (b *stores) end(ctx context.Context) {
	b.Helper()
	finish, stop := context.WithTimeout(ctx, time.Duration(b.form.events/b.form.rate)*time.Second+workTimeout)
	defer stop()
	events, err := b.load.Finish(finish)
	if err != nil {
		b.Fatal(err)
	}
	b.r.events = events + b.who.sent
	b.tellsOf = b.tellsLost
	b.judge(&b.r.row)
	if b.r.lost+b.r.doubled+b.r.extra+b.r.wrong > 0 {
		b.Errorf("%d lost, %d doubled, %d extra, %d wrong", b.r.lost, b.r.doubled, b.r.extra, b.r.wrong)
	}
	if b.lost != nil && b.r.named == 0 {
		b.Error("history does not say that it lacks what RECORD had not read")
	}
	b.agree()
}

// tellsLost tells the judge of which lost routing versions history says that nobody counts their events.
func (b *stores) tellsLost(logs *exactness.Logs) {
	b.Helper()
	const lost = `SELECT substring(reason FROM 'the rule store has lost routing version ([0-9]+)')::bigint,
		keyed_partition FROM {ns}.losses_v WHERE reason LIKE 'the rule store has lost routing version %'`
	err := b.stream.Query(b.Context(), lost, func(rows pgx.Rows) error {
		var version int64
		var keyed int
		err := rows.Scan(&version, &keyed)
		if err == nil {
			logs.Lost(version, keyed)
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}
