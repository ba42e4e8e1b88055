package main

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
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
		problem, mend := service.SnapshotAdvice(room, topic)
		return failing(name, mend, "%s", problem)
	}
	text := fmt.Sprintf("one process stores those of all %d keyed partitions, %s each at most, in %s", room.Partitions, config.Size(room.Budget),
		terminal.Roughly(room.WriteTime()))
	switch r := room.Retention; {
	case r.Bytes > 0 && r.Bytes < room.Budget:
		return warning(name, fmt.Sprintf("set retention.bytes of %s to %s or more, or to -1", topic, config.Size(room.Budget)),
			"%s; %s keeps %s of a partition, less than a snapshot may have: with full budgets they are written all the time", text, topic, config.Size(r.Bytes))
	case r.Time > 0:
		return fine(name, "%s; %s keeps %s, a third of which they may take", text, topic, config.Duration(r.Time))
	}
	return fine(name, "%s", text)
}
