package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history/postgres"
)

// The oldest servers that weir is made for.
const (
	oldestRedis    = 7
	oldestPostgres = 130000
)

func (e *examination) lookAtRedis(ctx context.Context) []finding {
	r, err := e.redis.Inspect(ctx, service.Now)
	if err != nil {
		return []finding{failed("redis", err, "start it, or correct redis.url or redis.addresses")}
	}
	e.cache = &r
	var found []finding
	if r.Cluster && r.State != "" && r.State != "ok" {
		found = append(found, failing("redis", "see redis-cli --cluster check", "the cluster's state is %s: it does not take all keys", r.State))
	} else if r.Cluster {
		found = append(found, fine("redis", "a cluster of %s", terminal.Plural(len(r.Nodes), "master")))
	}
	for i := range r.Nodes {
		found = append(found, judgeRedis(&r.Nodes[i], r.Cluster))
	}
	return found
}

// judgeRedis says the worst about one server. Losing keys matters more than anything else: an evicted block lets an
// abuser in, and an evicted tombstone blocks a released client again.
func judgeRedis(n *blocklist.InspectedNode, cluster bool) finding {
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
		return warning(name, "give it more memory", "%s; it has evicted %s since it was started", text, terminal.Plural(n.EvictedKeys, "key"))
	case n.MaxMemory > 0 && n.UsedMemory > n.MaxMemory/10*9:
		return warning(name, "raise maxmemory: when it is full, no block can be written", "%s; nine tenths of its memory are used", text)
	case err == nil && version < oldestRedis:
		return warning(name, "upgrade it", "%s; weir is made for Redis %d and newer", text, oldestRedis)
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

func (e *examination) lookAtPostgres(ctx context.Context) []finding {
	d, err := e.history.Inspect(ctx, service.Now)
	var away *postgres.UnreachableError
	switch {
	case errors.As(err, &away):
		return []finding{failing("postgres", away.Advice, "PostgreSQL at %s cannot be reached: %s", away.Address, away.Cause)}
	case err != nil:
		return []finding{failed("postgres", err, "start it, or correct postgres.url")}
	}
	e.database = &d
	return []finding{judgePostgres(&d), judgeSchema(&d, e.conf.Namespace)}
}

func judgePostgres(d *postgres.Inspected) finding {
	text := fmt.Sprintf("version %s at %s", d.Version, d.Address)
	switch {
	case d.Replica:
		return failing("postgres", "name its primary in postgres.url", "%s; it is a standby and takes no writes", text)
	case d.Number < oldestPostgres:
		return warning("postgres", "upgrade it", "%s; weir is made for %d and newer", text, oldestPostgres/10_000)
	}
	return fine("postgres", "%s", text)
}

func judgeSchema(d *postgres.Inspected, schema string) finding {
	switch pending := d.Pending(); {
	case d.SchemaErr != nil:
		return failing("schema "+schema, "use the build of weir that made it, or a newer one", "%s", oneProblem(d.SchemaErr))
	case pending > 0:
		return failing("schema "+schema, "run weir migrate", "it lacks %d of %s", pending, terminal.Plural(len(d.Steps), "migration"))
	}
	return fine("schema "+schema, "all %s applied", terminal.Plural(len(d.Steps), "migration"))
}

// migrated reports whether the schema can be asked.
func (e *examination) migrated() bool {
	return e.database != nil && e.database.SchemaErr == nil && e.database.Pending() == 0
}
