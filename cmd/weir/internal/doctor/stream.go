package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// lookAtStream loads what the live stream is made of: its partitions, routing version and modes.
func (e *examination) lookAtStream(ctx context.Context) []Finding {
	if !e.migrated() {
		return nil
	}
	stream, err := e.history.Streams.Find(ctx, history.Live)
	if errors.Is(err, postgres.ErrNotFound) {
		return []Finding{failing("stream live", "run weir migrate", "it has not been made")}
	}
	if err != nil {
		return []Finding{failed("stream live", err, "see PostgreSQL's log")}
	}
	e.stream = &stream
	number, err := e.history.Rules.Newest(ctx, history.Live)
	if err == nil && number == 0 {
		return []Finding{failing("stream live", "run weir migrate", "it has no routing version")}
	}
	if err != nil {
		return []Finding{failed("routing", err, "see PostgreSQL's log")}
	}
	routing, err := e.history.Rules.Routing(ctx, history.Live, number)
	if err != nil {
		return []Finding{failed("routing", err, "use the build of weir that wrote it, or a newer one")}
	}
	if _, err := e.history.Streams.SecretByID(ctx, routing.SecretID); err != nil {
		return []Finding{failed("routing", err, "restore the table secrets from a backup: keyed records were made with it")}
	}
	modes, err := e.history.Rules.Modes(ctx)
	if err != nil {
		return []Finding{failed("rules", err, "see PostgreSQL's log")}
	}
	e.routing, e.modes = routing, map[string]rules.ModeState{}
	for _, m := range modes {
		e.modes[m.Rule] = m
	}
	return []Finding{e.judgeStream(), e.judgeRouting()}
}

// judgeStream holds the partition counts of the topics against those that the stream was made with.
func (e *examination) judgeStream() Finding {
	n := e.stream.Partitions
	text := fmt.Sprintf("generation %d, made with %d, %d and %d partitions of requests, keyed and hits", e.stream.Generation, n.Requests, n.Keyed, n.Hits)
	if e.conf.Kafka.Partitions.Keyed != n.Keyed {
		return failing("stream live", "correct kafka.partitions.keyed: the number is fixed", "%s; the configuration says %d keyed ones", text,
			e.conf.Kafka.Partitions.Keyed)
	}
	return fine("stream live", "%s", text)
}

// judgeRouting says which rules count, and whether the configuration's identity map and event format are in effect.
func (e *examination) judgeRouting() Finding {
	blocking := 0
	for _, m := range e.modes {
		if m.Mode.Blocks() {
			blocking++
		}
	}
	text := fmt.Sprintf("version %d: %s, %d of them blocking; format %s", e.routing.Number, plural.Of(len(e.routing.Rules), "rule"), blocking, e.routing.Format.Name)
	want := e.conf.EventFormat()
	switch {
	case !detectors.KnowsRecordFormat(e.routing.RecordFormat):
		return failing("routing", "upgrade this process", "%s; record format %d, this build writes %s", text,
			e.routing.RecordFormat, detectors.KnownRecordFormats())
	case e.routing.RecordFormat < detectors.RecordFormat:
		return warning("routing", fmt.Sprintf("weir migrate --record-format %d, when all processes are of this build", detectors.RecordFormat),
			"%s; record format %d, this build also writes %d", text, e.routing.RecordFormat, detectors.RecordFormat)
	case !e.routing.Identity.Equal(&e.conf.Identity):
		return warning("routing", "run weir migrate", "%s; identity of the configuration is not in effect yet: %s", text,
			strings.Join(identityDifferences(&e.routing.Identity, &e.conf.Identity), "; "))
	case e.routing.Format.Name != want.Name || config.JoinMap(e.routing.Format.Map) != config.JoinMap(want.Map) || e.routing.Format.MaxEventBytes != want.MaxEventBytes:
		return warning("routing", "run weir migrate", "%s; events of the configuration is not in effect yet", text)
	case e.routing.KnownGood != string(e.conf.KnownGood):
		return warning("routing", "run weir migrate", "%s; known_good of the configuration is not in effect yet", text)
	case len(e.routing.Rules) == 0:
		return warning("routing", "weir rules apply -f DIR", "%s; nothing is watched", text)
	}
	return fine("routing", "%s", text)
}

// reportSilence is how long a partition may go unreported; stages report every two seconds.
const reportSilence = 30 * time.Second

// shownPartitions is how many partitions that stopped get a line of their own.
const shownPartitions = 8

// lookAtPartitions says which partitions have stopped, and whether somebody works on the others.
func (e *examination) lookAtPartitions(ctx context.Context) []Finding {
	if e.stream == nil {
		return nil
	}
	states, err := e.history.Partitions.PartitionStates(ctx, history.Live)
	if err != nil {
		return []Finding{failed("partitions", err, "see PostgreSQL's log")}
	}
	return e.judgePartitions(states)
}

// judgePartitions has a line for each partition that stopped, up to some, and one for those that run.
func (e *examination) judgePartitions(states []partitions.ReportedPartition) (found []Finding) {
	stopped, late, running := 0, 0, map[ingest.Side]int{}
	oldest := time.Time{}
	for i := range states {
		p := &states[i]
		if p.State == ingest.Running {
			running[p.Side]++
			if oldest.IsZero() || p.Reported.Before(oldest) {
				oldest = p.Reported
			}
			if p.Reason == "" {
				continue
			}
			if late++; late <= shownPartitions {
				found = append(found, warning(fmt.Sprintf("partition %s/%d", p.Side, p.Partition),
					"have whoever writes there end its transactions sooner; see docs/deploy.md, When a partition stops",
					"it %s", p.Reason))
			}
			continue
		}
		if stopped++; stopped <= shownPartitions {
			found = append(found, judgeStopped(p))
		}
	}
	if stopped > shownPartitions {
		found = append(found, failing("partitions", "weir partitions list --stopped", "%d more have stopped", stopped-shownPartitions))
	}
	if late > shownPartitions {
		found = append(found, warning("partitions", "weir partitions list", "%d more are late", late-shownPartitions))
	}
	return append(found, e.judgeRunning(running, oldest, stopped))
}

func judgeStopped(p *partitions.ReportedPartition) Finding {
	remedy := "weir partitions list says more; it goes on by itself when that is remedied"
	if p.GapAcceptable() {
		remedy = fmt.Sprintf("find out what is missing, then weir partitions resume --%s %d --accept-gap --reason TEXT", p.Side, p.Partition)
	}
	return failing(fmt.Sprintf("partition %s/%d", p.Side, p.Partition), remedy, "%s since %s or before: %s", p.State, terminal.Stamp(p.Reported), p.Reason)
}

func (e *examination) judgeRunning(running map[ingest.Side]int, oldest time.Time, stopped int) Finding {
	n := e.stream.Partitions
	n.Requests = max(n.Requests, e.topics[e.names.Requests].Partitions) // some may have been added
	text := fmt.Sprintf("%d of %d of requests and %d of %d of keyed at work", running[ingest.SideRequests], n.Requests, running[ingest.SideKeyed], n.Keyed)
	silence := e.database.Clock.Std().Sub(oldest) // both by PostgreSQL's clock
	switch {
	case len(running) == 0 && stopped == 0:
		return warning("partitions", "start weir run", "no stage has ever worked on them")
	case len(running) > 0 && silence > reportSilence:
		return warning("partitions", "start weir run, or see the log of the stages", "%s, but one was last reported %s ago", text, terminal.Roughly(silence))
	case running[ingest.SideRequests] < n.Requests || running[ingest.SideKeyed] < n.Keyed:
		return warning("partitions", "see the lines of those that stopped; start weir run with route and detect where there are none", "%s", text)
	}
	return fine("partitions", "%s, reported %s ago at most", text, terminal.Roughly(max(silence, 0)))
}

// identityDifferences says field by field what the stream has and what the configuration wants.
func identityDifferences(has, want *traffic.IdentityMap) (differences []string) {
	hasFields, wantFields := identityFields(has), identityFields(want)
	for _, name := range slices.Sorted(maps.Keys(wantFields)) {
		if hasFields[name] != wantFields[name] {
			differences = append(differences, fmt.Sprintf("identity.%s is %s, want %s", name, hasFields[name], wantFields[name]))
		}
	}
	return differences
}

// identityFields are the fields of an identity map as the configuration names them.
func identityFields(m *traffic.IdentityMap) map[string]string {
	fields := map[string]string{
		"ip.trusted_proxies": m.IP.TrustedProxies.String(), "ip.header": quoted(m.IP.Header), "ip.v4": fmt.Sprint(m.IP.V4), "ip.v6": fmt.Sprint(m.IP.V6),
		"ip.claimed": fmt.Sprint(m.IP.Claimed),
	}
	for name, s := range map[string]traffic.FieldSource{"device": m.Device, "user": m.User, "api_key": m.APIKey, "session": m.Session} {
		fields[name+".header"], fields[name+".cookie"] = quoted(s.Header), quoted(s.Cookie)
		fields[name+".vouched"], fields[name+".commas"] = fmt.Sprint(s.Vouched), fmt.Sprint(s.Commas)
	}
	return fields
}

func quoted(name string) string {
	if name == "" {
		return "none"
	}
	return terminal.Safe(name)
}
