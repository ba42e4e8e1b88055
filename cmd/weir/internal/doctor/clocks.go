package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/traffic"
)

// Differences of clocks. From clockFails on, event times are corrected or blocks begin and end at wrong moments.
const (
	clockWarns = time.Second
	clockFails = route.FutureTolerance
)

// lookAtClocks compares this machine's clock with those of the servers.
func (e *examination) lookAtClocks(ctx context.Context) []Finding {
	var found []Finding
	if e.kafkaUp {
		found = append(found, e.kafkaClock(ctx))
	}
	if e.cache != nil {
		for _, n := range e.cache.Nodes {
			found = append(found, judgeClock("clock redis "+n.Address, clockReading{n.Clock, n.Asked, n.Answered},
				"blocks expire by its clock"))
		}
	}
	if e.database != nil {
		d := e.database
		found = append(found, judgeClock("clock postgres", clockReading{d.Clock, d.Asked, d.Answered}, "reports are dated by its clock"))
	}
	return found
}

// judgeClock says by how much a clock differs, as far as that is certain.
func judgeClock(name string, r clockReading, matter string) Finding {
	apart := r.apart()
	remedy := "set both machines' clocks by NTP: " + matter
	least, most := r.ahead()
	if apart == 0 {
		return fine(name, "no difference to this machine's that shows (at most %s)", terminal.Roughly(max(most, -least)))
	}
	text := fmt.Sprintf("at least %s ahead of this machine's", terminal.Roughly(apart))
	if apart < 0 {
		text = fmt.Sprintf("at least %s behind this machine's", terminal.Roughly(-apart))
	}
	switch size := max(apart, -apart); {
	case size >= clockFails:
		return failing(name, remedy, "%s", text)
	case size >= clockWarns:
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
	case reading.theirs != 0 && reading.apart() > 0:
		return judgeClock(name, reading, matter)
	}
	return fine(name, "not compared: nothing is being appended to %s; weir run, with route, appends every second", e.names.Keyed)
}

// watchAppend waits for a record to be appended to partition 0 of log. If both clocks agree, its append time lies between asked
// and answered. Without a new record (news is false) the reading is of the newest one there is, appended at some time before
// answered, so that it only shows whether the broker is ahead; theirs is 0 where there is no record.
func watchAppend(ctx context.Context, log ingest.Log, wait time.Duration, clock func() traffic.Time) (r clockReading, news bool, err error) {
	r.asked = clock() // before the end of the log is known: what is behind it was appended later
	bounds, err := log.Bounds(ctx, []int{0})
	if err != nil {
		return r, false, err
	}
	end := bounds[0].End
	answers, err := log.Fetch(ctx, []ingest.Position{{Partition: 0, Offset: end}}, wait)
	if err != nil {
		return r, false, err
	}
	r.answered = clock()
	for _, f := range answers {
		if len(f.Messages) > 0 {
			r.theirs = f.Messages[0].Appended
			return r, true, nil
		}
	}
	last, err := ingest.Tail(ctx, log, bounds, 1)
	if err != nil || len(last) == 0 {
		return r, false, err
	}
	r.theirs = last[len(last)-1].Appended
	return clockReading{theirs: r.theirs, asked: traffic.BeforeTime, answered: r.answered}, false, nil
}

// clockReading is what another machine's clock said between two readings of this one's.
type clockReading struct {
	theirs, asked, answered traffic.Time
}

// ahead bounds by how much their clock is ahead of this machine's: at least least, at most most. Negative is behind.
func (r clockReading) ahead() (least, most time.Duration) {
	return r.theirs.Sub(r.answered), r.theirs.Sub(r.asked)
}

// apart is by how much the clocks differ at the least, whatever the way of question and answer took.
func (r clockReading) apart() time.Duration {
	least, most := r.ahead()
	switch {
	case least > 0:
		return least
	case most < 0:
		return most
	}
	return 0
}
