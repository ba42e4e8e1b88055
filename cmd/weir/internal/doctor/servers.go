package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/plural"
)

// The oldest servers that weir is made for.
const (
	oldestRedis    = 7
	oldestPostgres = 130000
)

func (e *examination) lookAtRedis(ctx context.Context) []Finding {
	r, err := e.redis.Inspect(ctx, e.clock)
	if err != nil {
		return []Finding{failed("redis", err, "start it, or correct redis.url or redis.addresses")}
	}
	e.cache = &r
	return judgeCache(&r)
}

// judgeCache says how a Redis is, or a cluster and each of its masters.
func judgeCache(r *blocklist.Inspected) (found []Finding) {
	if r.Cluster && r.State != "" && r.State != "ok" {
		found = append(found, failing("redis", "see redis-cli --cluster check", "the cluster's state is %s: it does not take all keys", r.State))
	} else if r.Cluster {
		found = append(found, fine("redis", "a cluster of %s", plural.Of(len(r.Nodes), "master")))
	}
	for i := range r.Nodes {
		found = append(found, judgeRedis(&r.Nodes[i], r.Cluster))
	}
	return found
}

// judgeRedis reports the worst problem of one server. Losing keys is the worst of all: an evicted block lets an abuser in, and
// an evicted tombstone blocks a released client again.
func judgeRedis(n *blocklist.InspectedNode, cluster bool) Finding {
	name := "redis " + n.Address
	text := describeRedis(n, cluster)
	major, _, _ := strings.Cut(n.Version, ".")
	version, err := strconv.Atoi(major)
	policy := "set maxmemory-policy noeviction"
	switch {
	case n.Role == "slave":
		return failing(name, "name its master in redis.url", "%s; it is a replica and takes no writes", text)
	case n.MaxMemory > 0 && n.Policy == "volatile-ttl":
		return warning(name, policy, "%s; when memory is full, the blocks that end soonest are lifted early", text)
	case n.MaxMemory > 0 && n.Policy != "" && n.Policy != "noeviction":
		return failing(name, policy, "%s; when memory is full, it drops blocks and releases: abusers get in, and released clients are blocked again", text)
	case n.EvictedKeys > 0:
		return warning(name, "give it more memory", "%s; it has evicted %s since it was started", text, plural.Of(n.EvictedKeys, "key"))
	case n.MaxMemory > 0 && n.UsedMemory > n.MaxMemory/10*9:
		return warning(name, "raise maxmemory: when it is full, no block can be written", "%s; nine tenths of its memory are used", text)
	case err == nil && version < oldestRedis:
		return warning(name, "upgrade it", "%s; weir is made for Redis %d and newer", text, oldestRedis)
	case n.AppendsFail:
		return failing(name, "see its log, and give it room on its disk", "%s; it cannot write its append-only file, and takes no blocks until it can", text)
	case n.LastSave == "err":
		return warning(name, "see its log; with stop-writes-on-bgsave-error it takes no blocks", "%s; its last snapshot failed", text)
	}
	return fine(name, "%s", text)
}

func describeRedis(n *blocklist.InspectedNode, cluster bool) string {
	parts := []string{"standalone"}
	if cluster {
		parts[0] = "master of the cluster"
	}
	if n.Version == "" {
		return parts[0] + "; it tells nothing about itself"
	}
	parts = append(parts, "version "+n.Version, "maxmemory-policy "+n.Policy)
	if n.MaxMemory > 0 {
		parts = append(parts, fmt.Sprintf("%sB of %sB used", terminal.Amount(float64(n.UsedMemory)), terminal.Amount(float64(n.MaxMemory))))
	} else {
		parts = append(parts, fmt.Sprintf("%sB used, no maxmemory", terminal.Amount(float64(n.UsedMemory))))
	}
	if n.AppendOnly {
		parts = append(parts, "append-only file on")
	} else {
		parts = append(parts, "no append-only file: after a restart blocks are put back from history")
	}
	return strings.Join(parts, ", ")
}

func (e *examination) lookAtPostgres(ctx context.Context) []Finding {
	d, err := e.history.Inspect(ctx, e.clock)
	var away *postgres.UnreachableError
	switch {
	case errors.As(err, &away):
		return []Finding{failing("postgres", away.Advice, "PostgreSQL at %s cannot be reached: %s", away.Address, away.Cause)}
	case err != nil:
		return []Finding{failed("postgres", err, "start it, or correct postgres.url")}
	}
	e.database = &d
	return []Finding{judgePostgres(&d), judgeSchema(&d, e.conf.Namespace)}
}

func judgePostgres(d *postgres.Inspected) Finding {
	text := fmt.Sprintf("version %s at %s", d.Version, d.Address)
	switch {
	case d.Replica:
		return failing("postgres", "name its primary in postgres.url", "%s; it is a standby and takes no writes", text)
	case d.Number < oldestPostgres:
		return warning("postgres", "upgrade it", "%s; weir is made for %d and newer", text, oldestPostgres/10_000)
	}
	return fine("postgres", "%s", text)
}

func judgeSchema(d *postgres.Inspected, schema string) Finding {
	switch pending := d.Pending(); {
	case d.SchemaErr != nil:
		return failing("schema "+schema, "use the build of weir that made it, or a newer one", "%s", problems(d.SchemaErr))
	case pending > 0:
		return failing("schema "+schema, "run weir migrate", "it lacks %d of %s", pending, plural.Of(len(d.Steps), "migration"))
	}
	return fine("schema "+schema, "all %s applied", plural.Of(len(d.Steps), "migration"))
}

// migrated reports whether the schema can be asked.
func (e *examination) migrated() bool {
	return e.database != nil && e.database.SchemaErr == nil && e.database.Pending() == 0
}

func (e *examination) lookAtKafka(ctx context.Context) []Finding {
	c, err := e.kafka.InspectCluster(ctx)
	if err != nil {
		return []Finding{failed("kafka", err, "start Kafka, or correct kafka.brokers")}
	}
	e.kafkaUp, e.brokers = true, len(c.Brokers)
	return []Finding{judgeKafka(&c)}
}

// judgeKafka says who the brokers are, and whether they take what weir sends.
func judgeKafka(c *kafka.InspectedCluster) Finding {
	text := fmt.Sprintf("%s (%s); it speaks %s", plural.Of(len(c.Brokers), "broker"), terminal.FirstFew(c.Brokers), c.Speaks)
	if len(c.Lacks) > 0 {
		return failing("kafka", "use Apache Kafka 2.3 or newer, or a build of weir that speaks what it takes",
			"%s; it does not take what weir sends: %s", text, strings.Join(c.Lacks, ", "))
	}
	return fine("kafka", "%s", text)
}

// lookAtSnapshots says whether the snapshots of all partitions, with their budgets used up, can be stored before the log
// that they need is gone.
func (e *examination) lookAtSnapshots(context.Context) []Finding {
	if e.stream == nil || !e.topics[e.names.Keyed].Exists {
		return nil
	}
	return []Finding{judgeSnapshots(e.snapshotRoom(), e.names.Keyed)}
}

// snapshotRoom is what snapshots may take; nothing where the stream is not known.
func (e *examination) snapshotRoom() detect.SnapshotRoom {
	if e.stream == nil {
		return detect.SnapshotRoom{}
	}
	n := e.stream.Partitions
	return detect.SnapshotRoom{Budget: n.Budget, Partitions: n.Keyed, Retention: e.topics[e.names.Keyed].Retention}
}

func judgeSnapshots(room detect.SnapshotRoom, topic string) Finding {
	const name = "snapshots"
	if !room.Fits() {
		problem, remedy := service.SnapshotAdvice(room, topic)
		return failing(name, remedy, "%s", problem)
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
