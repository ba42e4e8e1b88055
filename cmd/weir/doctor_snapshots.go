package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/ingest/detect"
)

// lookAtSnapshots says whether the snapshots of all partitions, with their budgets used up, can be stored before the log
// that they need is gone.
func (e *examination) lookAtSnapshots(context.Context) []finding {
	if e.stream == nil || !e.topics[e.names.Keyed].Exists {
		return nil
	}
	n := e.stream.Partitions
	return []finding{judgeSnapshots(detect.SnapshotRoom{Budget: n.Budget, Partitions: n.Keyed, Retention: e.topics[e.names.Keyed].Retention}, e.names.Keyed)}
}

func judgeSnapshots(room detect.SnapshotRoom, topic string) finding {
	const name = "snapshots"
	if !room.Fits() {
		problem, mend := lacksRoom(room, topic)
		return failing(name, mend, "%s", problem)
	}
	text := fmt.Sprintf("one process stores those of all %d keyed partitions, %s each at most, in %s", room.Partitions, size(room.Budget),
		roughly(room.WriteTime()))
	switch r := room.Retention; {
	case r.Bytes > 0 && r.Bytes < room.Budget:
		return warning(name, fmt.Sprintf("set retention.bytes of %s to %s or more, or to -1", topic, size(room.Budget)),
			"%s; %s keeps %s of a partition, less than a snapshot may have: with full budgets they are written all the time", text, topic, size(r.Bytes))
	case r.Time > 0:
		return fine(name, "%s; %s keeps %s, a third of which they may take", text, topic, span(r.Time))
	}
	return fine(name, "%s", text)
}

// lacksRoom says why snapshots do not fit what the keyed topic keeps, and what to change.
func lacksRoom(room detect.SnapshotRoom, topic string) (problem, mend string) {
	problem = fmt.Sprintf("%s for each of %d keyed partitions: one process that owns them all stores their snapshots in %s; allowed: %s, a third of "+
		"what topic %s keeps", size(room.Budget), room.Partitions, roughly(room.WriteTime()), roughly(room.MostTime()), topic)
	// Rounded to what a person would write, in the direction that fits.
	budget := room.MostBudget() >> 20 << 20
	hours := (room.LeastRetention() + time.Hour - 1) / time.Hour * time.Hour
	mend = fmt.Sprintf("set kafka.retention.keyed to %s or more, or detect.budget_per_partition to %s or less, and run weir migrate", span(hours), size(budget))
	if budget < leastBudget {
		mend = fmt.Sprintf("set kafka.retention.keyed to %s or more and run weir migrate", span(hours))
	}
	return problem, mend
}
