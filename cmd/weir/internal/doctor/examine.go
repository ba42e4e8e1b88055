package doctor

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// examination is one run of weir doctor. Its checks come in rounds: those of one round run at the same time, and know
// what the rounds before have found.
//
//	configuration   Kafka   Redis   PostgreSQL      who is there?
//	topics   stream, rules, modes   whose Redis?    what do they hold?
//	gates   stages   partitions   events   dead letters     does it work?
//	                 clocks
type examination struct {
	conf    *config.Config
	build   string              // of this program
	events  int                 // of each partition
	clock   func() traffic.Time // this machine's
	names   ingest.TopicNames
	kafka   *kafka.Client
	redis   *blocklist.Store
	history *history.Store
	closers []func()

	// What the rounds have found. Each is written by one check, and read in later rounds only.
	kafkaUp  bool
	brokers  int // of Kafka
	topics   map[string]kafka.InspectedTopic
	cache    *blocklist.Inspected // nil: Redis is away
	database *postgres.Inspected  // nil: PostgreSQL is away
	stream   *streams.Stream      // nil: not known
	routing  *rules.Routing       // nil: not known
	modes    map[string]rules.ModeState
	foreign  *blocklist.ForeignError // Redis is another installation's; nil: it is not, as far as that is known
}

// doctorCheck is one thing to look at.
type doctorCheck struct {
	name string
	look func(ctx context.Context) []Finding
}

// Bounds within a run. A round may take six seconds, and more where the run may: three tenths of that, so that the others have time, too. The
// last part of a run's time is kept for saying what was found.
const (
	roundTimeout = 6 * time.Second
	roundTenths  = 3
	sayingTime   = 250 * time.Millisecond
)

// roundTime is how long a round of a run may take that ends with ctx.
func roundTime(ctx context.Context) time.Duration {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return roundTimeout
	}
	return max(roundTimeout, time.Until(deadline)/10*roundTenths)
}

// newExamination makes the clients, which connect nowhere yet. They are silent: what they would log is a Finding.
func newExamination(ctx context.Context, c *config.Config, build string, events int) (*examination, error) {
	e := &examination{conf: c, build: build, events: events, clock: service.Now, names: ingest.Live.Topics(c.Namespace)}
	silent := slog.New(slog.DiscardHandler)
	var err error
	if e.history, err = service.OpenHistory(ctx, c, silent); err != nil {
		return nil, err
	}
	e.closers = append(e.closers, e.history.Close)
	if e.kafka, err = service.OpenKafka(c, silent, nil); err != nil {
		service.CloseAll(e.closers)
		return nil, err
	}
	e.closers = append(e.closers, func() { _ = e.kafka.Close() })
	if e.redis, err = service.OpenRedis(c); err != nil {
		service.CloseAll(e.closers)
		return nil, err
	}
	e.closers = append(e.closers, func() { _ = e.redis.Close() })
	return e, nil
}

// Examine runs all checks for a program of this build, and samples as many of the newest events of each partition as
// asked. Findings are in the order of the checks. It ends with ctx; a check that had not ended by then is a finding.
func Examine(ctx context.Context, c *config.Config, build string, events int) ([]Finding, error) {
	e, err := newExamination(ctx, c, build, events)
	if err != nil {
		return nil, err
	}
	defer service.CloseAll(e.closers)
	return e.run(ctx), nil
}

func (e *examination) run(ctx context.Context) []Finding {
	return inRounds(ctx, [][]doctorCheck{
		{{"configuration", e.lookAtConfiguration}, {"kafka", e.lookAtKafka}, {"redis", e.lookAtRedis}, {"postgres", e.lookAtPostgres}},
		{{"topics", e.lookAtTopics}, {"stream", e.lookAtStream}, {redisNamespace, redisUse{e}.lookAtOwner}},
		{
			{redisNamespace, redisUse{e}.lookAtEpoch}, {"modes in redis", redisUse{e}.lookAtModes}, {"gates",
				redisUse{e}.lookAtGates},
			{"identities", e.lookAtIdentities}, {"clocks", e.lookAtClocks},
			{"clocks of processes", historyUse{e}.lookAtProcesses}, {"stages", e.lookAtStages},
			{"partitions", e.lookAtPartitions}, {"snapshots", e.lookAtSnapshots}, {"windows",
				e.lookAtWindows}, {"roles", e.lookAtRoles}, {"days", e.lookAtDays},
			{"losses", historyUse{e}.lookAtLosses}, {"events", e.lookAtEvents}, {"dead letters", e.lookAtDeadLetters},
		},
	})
}

// inRounds makes the checks round by round. A round that does not come to its end is the last one.
func inRounds(ctx context.Context, rounds [][]doctorCheck) (found []Finding) {
	limit := roundTime(ctx)
	for _, round := range rounds {
		findings, whole := together(ctx, limit, round)
		found = append(found, findings...)
		if !whole {
			break // what the next round reads might still be written
		}
	}
	return found
}

// together makes the checks at the same time, and gives their findings in the order of the checks. A check that does not
// end within limit is a failing line and is not waited for; whole is false then.
func together(ctx context.Context, limit time.Duration, checks []doctorCheck) (found []Finding, whole bool) {
	type result struct {
		at       int
		findings []Finding
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	results := make(chan result, len(checks))
	for i, c := range checks {
		go func() { results <- result{i, c.look(bounded)} }()
	}
	over, stop := graceAfter(bounded)
	defer stop()
	byCheck, ended := make([][]Finding, len(checks)), make([]bool, len(checks))
	whole = true
	for range checks {
		select {
		case r := <-results:
			byCheck[r.at], ended[r.at] = r.findings, true
			continue
		case <-over:
			whole = false
		}
		break
	}
	for i, c := range checks {
		if !ended[i] {
			byCheck[i] = []Finding{failing(c.name, "try again with more --timeout", "it could not be looked at in time")}
		}
		found = append(found, byCheck[i]...)
	}
	return found, whole
}

// graceAfter is closed a moment after ctx has ended: checks that look at ctx get that long to come back.
func graceAfter(ctx context.Context) (<-chan struct{}, func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(sayingTime, func() { close(over) }) })
	return over, func() { stop() }
}

// lookAtConfiguration says where the configuration comes from; that it can be read is known already.
func (e *examination) lookAtConfiguration(context.Context) []Finding {
	return []Finding{fine("configuration", "%s; namespace %s", e.conf.Origins, e.conf.Namespace)}
}

// lookAtIdentities says which identities nobody vouches for, and which rules believe them all the same.
func (e *examination) lookAtIdentities(context.Context) []Finding {
	identity, known := e.conf.Identity, []rules.Version(nil)
	if e.routing != nil {
		identity, known = e.routing.Identity, e.routing.Rules
	}
	var claimed []string
	believers := map[string]bool{}
	for f := range traffic.NumFields {
		if identity.Vouched(f) {
			continue
		}
		claimed = append(claimed, f.String())
		for i := range known {
			if keyedOn(&known[i], f) {
				believers[known[i].ID] = true
			}
		}
	}
	trusted := judgeTrustedProxies(identity.IP.TrustedProxies, cmp.Or(identity.IP.Header, "X-Forwarded-For"))
	switch {
	case len(claimed) == 0:
		return []Finding{fine("identities", "the gateway vouches for all of them"), trusted}
	case len(believers) == 0:
		return []Finding{fine("identities", "claimed by the client, not vouched for: %s; no rule counts by them", strings.Join(claimed, ", ")), trusted}
	}
	return []Finding{warning("identities",
		"let the gateway verify them and set identity.FIELD.vouched, or count by what it vouches for as well: who makes up a new one each time is never over",
		"claimed by the client, not vouched for: %s; counted by all the same: %s", strings.Join(claimed, ", "), terminal.FirstFew(sorted(believers))), trusted}
}

// judgeTrustedProxies warns where the proxies in front are counted, and not known.
func judgeTrustedProxies(p traffic.TrustedProxies, header string) Finding {
	const name = "trusted proxies"
	switch {
	case len(p.Prefixes) > 0:
		return fine(name, "%s is believed of %s", header, p)
	case p.Hops == 0:
		return fine(name, "none: a client's address is that of the connection")
	}
	return warning(name, "name them, with identity.ip.trusted_proxies: [10.0.0.0/8, 192.0.2.7], or whatever their addresses are",
		"as many as %d, whoever they are: who reaches the gateway past them is taken for any address that X-Forwarded-For claims", p.Hops)
}

// keyedOn reports whether a rule's key has the field, alone or to fall back on.
func keyedOn(v *rules.Version, f traffic.Field) bool {
	for _, k := range v.Key {
		for alternative := range k.Alternatives() {
			if alternative.Field == f {
				return true
			}
		}
	}
	return false
}

func sorted(set map[string]bool) []string {
	names := make([]string, 0, len(set))
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
