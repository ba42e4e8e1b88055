package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/traffic"
)

// backlogWarns is the age from which on the oldest record that a stage has not processed is a warning. Rules withhold new
// blocks from evidence that is older than their max_lag, a minute by default.
const backlogWarns = time.Minute

// stageWork is a consumer group and the topic that it works through.
type stageWork struct {
	stage, run, topic string // run: what --stages calls it
}

// lookAtStages asks each stage's consumer group who works, and how far it has come.
func (e *examination) lookAtStages(ctx context.Context) []Finding {
	if !e.kafkaUp {
		return nil
	}
	var found []Finding
	for _, w := range []stageWork{
		{ingest.StageRoute, ingest.StageRoute, e.names.Requests}, {ingest.StageDetect, ingest.StageDetect, e.names.Keyed}, {ingest.StageRecord, ingest.StageRecord, e.names.Hits},
		{ingest.StageRecordBlocks, ingest.StageRecord, e.names.Blocks}, {ingest.StageEnforce, ingest.StageEnforce, e.names.Hits},
	} {
		if t := e.topics[w.topic]; !t.Exists || len(t.Leaderless) > 0 {
			continue // its topic's line says so
		}
		found = append(found, e.lookAtStage(ctx, w))
	}
	return found
}

// progressOf is how far a group has come in its topic.
type progressOf struct {
	group     kafka.InspectedGroup
	commits   map[int]ingest.Commit
	bounds    map[int]ingest.Bounds
	records   int64        // not done yet
	oldest    traffic.Time // append time of the oldest of them; 0: none
	stored    int64        // of ROUTE: the newest routing version that the rule store has; 0: not known
	uncovered []int        // partitions whose commit lies before the log's start: what is between was never read
	beyond    []int        // partitions whose commit lies beyond the log's end
}

func (e *examination) lookAtStage(ctx context.Context, w stageWork) Finding {
	name := "stage " + w.stage
	p, err := e.progress(ctx, w)
	if err != nil {
		return failed(name, err, "see the brokers' logs")
	}
	if w.stage == ingest.StageRoute {
		p.stored = storedRouting(ctx, e)
	}
	return e.judgeStage(name, w, p)
}

// judgeStage says the worst about how far a stage has come.
func (e *examination) judgeStage(name string, w stageWork, p progressOf) Finding {
	if w.stage == ingest.StageRoute && e.stream != nil {
		if f := judgeRouteCommits(name, p, e.stream); f.Status != OK {
			return f
		}
	}
	if w.stage == ingest.StageEnforce && e.foreign != nil && p.group.Members == 0 {
		return failing(name, "see "+redisNamespace,
			"it stands still, if it runs, as Redis is another installation's; %s left to do",
			plural.Of(p.records, "record"))
	}
	patience := backlogWarns
	if w.stage == ingest.StageDetect {
		age := judgeSnapshotAge(name, p, e.topics[w.topic].Retention.Time, e.clock())
		if age.Status != OK {
			return age
		}
		patience = max(patience, e.snapshotRoom().WriteTime()) // it commits with snapshots only, and they may come so seldom
	}
	return judgeProgress(name, w, p, patience, e.clock())
}

func (e *examination) progress(ctx context.Context, w stageWork) (progressOf, error) {
	var p progressOf
	var err error
	id := ingest.Live.Group(e.conf.Namespace, w.stage)
	partitions := ingest.AllPartitions(e.topics[w.topic].Partitions)
	if p.group, err = e.kafka.InspectGroup(ctx, id); err != nil {
		return p, err
	}
	if p.commits, err = e.kafka.FetchCommits(ctx, id, w.topic, partitions); err != nil {
		return p, err
	}
	log := e.kafka.Log(w.topic)
	if p.bounds, err = log.Bounds(ctx, partitions); err != nil {
		return p, err
	}
	open := map[int]ingest.Bounds{}
	for n, b := range p.bounds {
		from := b.Start
		if c, ok := p.commits[n]; ok {
			if c.Offset < b.Start {
				p.uncovered = append(p.uncovered, n)
			}
			if c.Offset > b.End {
				p.beyond = append(p.beyond, n)
			}
			from = max(from, c.Offset)
		}
		if from < b.End {
			p.records += b.End - from
			open[n] = ingest.Bounds{Start: from, End: from + 1}
		}
	}
	slices.Sort(p.uncovered)
	slices.Sort(p.beyond)
	first, err := ingest.Tail(ctx, log, open, 1)
	for _, m := range first {
		if p.oldest == 0 || m.Appended < p.oldest {
			p.oldest = m.Appended
		}
	}
	return p, err
}

// storedRouting is the newest routing version now, after the commits were read; 0 where it is not known.
func storedRouting(ctx context.Context, e *examination) int64 {
	number, err := e.history.Rules.Newest(ctx, history.Live)
	if err != nil {
		return 0 // the lines of PostgreSQL and of the stream say why
	}
	return number
}

// judgeRouteCommits looks at the commits that say where routing stands: without a good one, a partition is refused.
func judgeRouteCommits(name string, p progressOf, stream *streams.Stream) Finding {
	var lost int64 // greatest version that a commit names
	var absent, foreign, older, beyond []int
	for n := range p.bounds {
		c, has := p.commits[n]
		if !has {
			absent = append(absent, n)
			continue
		}
		a, err := ingest.DecodeAnnouncement(c.Metadata)
		if err == nil {
			lost = max(lost, a.Version)
		}
		switch {
		case err != nil:
			foreign = append(foreign, n)
		case a.Generation != stream.Generation:
			older = append(older, n)
		case a.Offset > p.bounds[n].End:
			beyond = append(beyond, n)
		}
	}
	for _, list := range [][]int{absent, foreign, older, beyond} {
		slices.Sort(list)
	}
	resume := "weir partitions list says what weir partitions resume would accept"
	switch {
	case len(absent) > 0:
		return failing(name, "start weir run, which routes partitions that were added to requests; if it runs, see weir partitions list, or run weir migrate",
			"no commit for partitions %s of requests, so they are not routed", numbered(absent))
	case len(foreign) > 0:
		return failing(name, resume, "the commits of partitions %s were not written by weir: another tool has moved them", numbered(foreign))
	case p.stored > 0 && lost > p.stored:
		return failing(name, "run weir migrate, which numbers routing versions above; then apply what was lost again",
			"a commit names routing version %d, and the rule store's newest is %d: PostgreSQL has come back older",
			lost, p.stored)
	case len(older) > 0:
		return failing(name, "stop all of weir run, run weir migrate, start it again",
			"the commits of partitions %s are of another life of requests than generation %d", numbered(older),
			stream.Generation)
	case len(beyond) > 0:
		return failing(name, "if requests was made anew: stop all of weir run, run weir migrate --recreated, start it "+
			"again; else "+resume,
			"the commits of partitions %s lie beyond the end of requests: it has lost records", numbered(beyond))
	}
	return Finding{Status: OK}
}

// Ages of a snapshot, in parts of what the keyed topic keeps: DETECT wants them below a third, and at half of it somebody must see to it.
const (
	snapshotWarns = 3
	snapshotFails = 2
)

// judgeSnapshotAge holds the oldest record that a take-over has to count again against how long Kafka keeps it; keeps is 0 for ever.
func judgeSnapshotAge(name string, p progressOf, keeps time.Duration, at traffic.Time) Finding {
	if p.records == 0 || p.oldest == 0 || keeps == 0 {
		return Finding{Status: OK}
	}
	age := max(0, at.Sub(p.oldest))
	const text = "the newest snapshot of a partition is %s old, and Kafka keeps what came since for %s; wanted: below %s"
	remedy := "see the log of weir run with detect for snapshots that fail, and start more of them; a longer kafka.retention.keyed with weir migrate gains time"
	switch wanted := keeps / snapshotWarns; {
	case age > keeps/snapshotFails:
		return failing(name, remedy, text, terminal.Roughly(age), config.Duration(keeps), config.Duration(wanted))
	case age > wanted:
		return warning(name, remedy, text, terminal.Roughly(age), config.Duration(keeps), config.Duration(wanted))
	}
	return Finding{Status: OK}
}

// judgeProgress is about a stage whose oldest open record may be as old as patience.
func judgeProgress(name string, w stageWork, p progressOf, patience time.Duration, at traffic.Time) Finding {
	left := "nothing left to do"
	age := time.Duration(0)
	if p.records > 0 {
		left = plural.Of(p.records, "record") + " left to do"
		if w.stage == ingest.StageDetect {
			left = plural.Of(p.records, "record") + " since its last snapshot" // it commits with snapshots only
		}
		if p.oldest != 0 {
			age = max(0, at.Sub(p.oldest))
			left += fmt.Sprintf(", the oldest of %s ago", terminal.Roughly(age))
		}
	}
	text := workers(p.group.Members) + ", " + left
	switch {
	case len(p.uncovered) > 0:
		return failing(name, "raise the retention of the topic; weir history shows what was lost",
			"%s; of partitions %s records went before they were read", text, numbered(p.uncovered))
	case len(p.beyond) > 0 && w.stage != ingest.StageRoute && w.stage != ingest.StageDetect:
		return failing(name, "run it: within seconds it goes on at what the log holds and may not have been read; "+
			"see WeirPartitionStranded in docs/runbook.md",
			"%s; of partitions %s it has read more than the log holds: the topic lost its end or was made anew", text,
			numbered(p.beyond))
	case p.group.Members == 0:
		return warning(name, "start weir run --stages "+w.run, "nobody runs it; %s", left)
	case age > patience:
		return warning(name, "start more of weir run --stages "+w.run+", or see its log; evidence older than max_lag blocks nobody", "%s", text)
	}
	return fine(name, "%s", text)
}

func workers(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
