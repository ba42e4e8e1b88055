package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/clocks"
	"github.com/weirhq/weir/traffic"
)

// How processes are told of that compare their clocks.
const (
	processesWithin = time.Minute // one that has not told of itself for so long does not run
	shownProcesses  = 8           // with a line of their own
	clockRemedy     = "set its machine's clock by NTP, or the store's: see WeirClockApart in docs/runbook.md"
)

// lookAtClocks compares this machine's clock with those of the servers.
func (e *examination) lookAtClocks(ctx context.Context) []Finding {
	var found []Finding
	if e.kafkaUp {
		found = append(found, e.kafkaClock(ctx))
	}
	if e.cache != nil {
		for _, n := range e.cache.Nodes {
			found = append(found, judgeClock("clock redis "+n.Address, clocks.Reading{Theirs: n.Clock, Asked: n.Asked,
				Answered: n.Answered},
				"blocks expire by its clock"))
		}
	}
	if e.database != nil {
		d := e.database
		found = append(found, judgeClock("clock postgres", clocks.Reading{Theirs: d.Clock, Asked: d.Asked,
			Answered: d.Answered}, "reports are dated by its clock"))
	}
	return found
}

// lookAtProcesses says which processes have clocks that differ from those of their stores, by what each has found.
func (h historyUse) lookAtProcesses(ctx context.Context) []Finding {
	if !h.e.migrated() {
		return nil
	}
	all, of, err := h.e.history.Partitions.Processes(ctx, processesWithin)
	if err != nil {
		return []Finding{failed("clocks of processes", err, "see PostgreSQL's log, and the grants in docs/security.md")}
	}
	return judgeProcesses(all, of)
}

// judgeProcesses sums up those that agree with their stores, and gives each other one a line. all are the worst of so
// many.
func judgeProcesses(all []partitions.Process, of int) (found []Finding) {
	const name = "clocks of processes"
	agree, doing, more := 0, map[string]int{}, 0
	for i := range all {
		p := &all[i]
		differ, worst := apartFrom(p)
		switch name := "clock of " + terminal.Cell(p.Instance); {
		case p.Offsets == nil && len(found) < shownProcesses:
			found = append(found, warning(name, "run weir doctor of the newest build that runs here",
				"it (%s) tells of its clock in a way that this build does not read", terminal.Cell(p.Does)))
		case p.Offsets == nil:
			more++
		case len(differ) == 0:
			agree++
			doing[p.Does]++
		case len(found) == shownProcesses:
			more++
		case worst >= clocks.Fails:
			found = append(found, failing(name, clockRemedy,
				"it (%s) is %s: blocks begin and end at wrong moments, or "+
					"none is made", terminal.Cell(p.Does), strings.Join(differ, ", ")))
		default:
			found = append(found, warning(name, clockRemedy, "it (%s) is %s", terminal.Cell(p.Does),
				strings.Join(differ, ", ")))
		}
	}
	if more > 0 {
		found = append(found, failing(name, clockRemedy, "%d more like these", more))
	}
	if left := of - len(all); left > 0 {
		found = append(found, warning(name, "see weir_clock_offset_seconds of each process",
			"%s are not looked at: those that are have the clocks that are the furthest away", workers(left)+" more"))
	}
	if len(all) == 0 {
		return []Finding{fine(name, "none has told of itself within a minute: none runs, or it is of a build before")}
	}
	var parts []string
	for _, does := range slices.Sorted(maps.Keys(doing)) {
		parts = append(parts, fmt.Sprintf("%d %s", doing[does], terminal.Cell(does)))
	}
	text := fmt.Sprintf("%d of %s no second away from their stores'", agree, workers(len(all)))
	if agree > 0 {
		text += " (" + strings.Join(parts, "; ") + ")"
	}
	return append([]Finding{fine(name, "%s", text)}, found...)
}

// apartFrom lists the stores that a process's clock differs from, and by how much at the most.
func apartFrom(p *partitions.Process) (differ []string, worst time.Duration) {
	for _, store := range slices.Sorted(maps.Keys(p.Offsets)) {
		o := clocks.Offset{Store: terminal.Cell(store), Apart: clocks.Seconds(p.Offsets[store])}
		if size := clocks.Size(o.Apart); size >= clocks.Warns {
			differ, worst = append(differ, o.String()), max(worst, size)
		}
	}
	return differ, worst
}

// judgeClock says by how much a clock differs, as far as that is certain.
func judgeClock(name string, r clocks.Reading, matter string) Finding {
	apart := r.Apart()
	remedy := "set both machines' clocks by NTP: " + matter
	least, most := r.Ahead()
	if apart == 0 {
		return fine(name, "no difference to this machine's that shows (at most %s)", terminal.Roughly(max(most, -least)))
	}
	text := fmt.Sprintf("at least %s ahead of this machine's", terminal.Roughly(apart))
	if apart < 0 {
		text = fmt.Sprintf("at least %s behind this machine's", terminal.Roughly(-apart))
	}
	switch size := max(apart, -apart); {
	case size >= clocks.Fails:
		return failing(name, remedy, "%s", text)
	case size >= clocks.Warns:
		return warning(name, remedy, "%s", text)
	}
	return fine(name, "%s", text)
}

// kafkaClockWait is how long to wait for a record to come: routers append ticks to keyed every second.
const kafkaClockWait = 2500 * time.Millisecond

// kafkaClock reads the broker's clock from a record that is appended during the examination, such as a tick of ROUTE. Where no
// record is appended, older ones can only show that the broker's clock is ahead.
func (e *examination) kafkaClock(ctx context.Context) Finding {
	const name = "clock kafka"
	const matter = "what comes later than its clock gets its time"
	if t := e.topics[e.names.Keyed]; !t.Exists || len(t.Leaderless) > 0 {
		return fine(name, "not compared: there is nothing to read it off")
	}
	wait := kafkaClockWait
	if g, err := e.kafka.InspectGroup(ctx, ingest.Live.Group(e.conf.Namespace, ingest.StageRoute)); err == nil && g.Members == 0 {
		wait = 0 // nobody ticks
	}
	reading, news, err := watchAppend(ctx, e.kafka.Log(e.names.Keyed), wait, e.clock)
	switch {
	case err != nil:
		return failed(name, err, "see the lines about Kafka")
	case news:
		return judgeClock(name, reading, matter)
	case reading.Theirs != 0 && reading.Apart() > 0:
		return judgeClock(name, reading, matter)
	}
	return fine(name, "not compared: nothing is being appended to %s; weir run, with route, appends every second", e.names.Keyed)
}

// watchAppend waits for a record to be appended to partition 0 of log. If both clocks agree, its append time lies between asked
// and answered. Without a new record (news is false) the reading is of the newest one there is, appended at some time before
// answered, so that it only shows whether the broker is ahead; theirs is 0 where there is no record.
func watchAppend(ctx context.Context, log ingest.Log, wait time.Duration,
	clock func() traffic.Time) (r clocks.Reading, news bool, err error) {
	r.Asked = clock() // before the end of the log is known: what is behind it was appended later
	bounds, err := log.Bounds(ctx, []int{0})
	if err != nil {
		return r, false, err
	}
	end := bounds[0].End
	answers, err := log.Fetch(ctx, []ingest.Position{{Partition: 0, Offset: end}}, wait)
	if err != nil {
		return r, false, err
	}
	r.Answered = clock()
	for _, f := range answers {
		if len(f.Messages) > 0 {
			r.Theirs = f.Messages[0].Appended
			return r, true, nil
		}
	}
	last, err := ingest.Tail(ctx, log, bounds, 1)
	if err != nil || len(last) == 0 {
		return r, false, err
	}
	r.Theirs = last[len(last)-1].Appended
	return clocks.Reading{Theirs: r.Theirs, Asked: traffic.BeforeTime, Answered: r.Answered}, false, nil
}
