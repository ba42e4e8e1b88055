package boardtest

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/internal/testbed"
)

// process is one that runs, with the moments between which it was started, and what it had taken before the load and after.
type process struct {
	*testbed.Running
	after, before time.Time
	serves        time.Time // of a gate: it has answered by then
	begin, end    measure
}

// measure is what the operating system says that a process takes.
type measure struct {
	at     time.Time
	cpu    float64 // seconds
	memory float64 // bytes
}

const (
	ticksPerSecond = 100 // of Linux, whatever its kernel's own
	comm           = `^\d+ \(.*\) `
)

// measure looks at all processes.
func (in *installation) measure(into func(*process) *measure) {
	in.t.Helper()
	for role, p := range in.processes {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
		if err != nil {
			in.t.Fatalf("%s: %v", role, err)
		}
		fields := strings.Fields(regexp.MustCompile(comm).ReplaceAllString(string(stat), ""))
		number := func(i int) float64 { // as proc(5) counts the fields
			n, err := strconv.ParseFloat(fields[i-3], 64)
			if err != nil {
				in.t.Fatalf("%s: %v", role, err)
			}
			return n
		}
		*into(p) = measure{time.Now(), (number(14) + number(15)) / ticksPerSecond, number(24) * float64(os.Getpagesize())}
	}
}

// byProcess gives a value to each process, labelled as Prometheus labels what it scrapes.
func (f *facts) byProcess(of func(*process) (low, high float64)) (values []value) {
	for role, p := range f.in.processes {
		low, high := of(p)
		values = append(values, between(low, high, "instance", f.in.metrics[role], "job", "weir", "role", role))
	}
	return values
}

// blocksInRedis counts the blocks that stand, by rule.
func (in *installation) blocksInRedis() map[string]int {
	in.t.Helper()
	c := in.redisClient()
	defer func() { _ = c.Close() }()
	keys, err := c.Keys(in.t.Context(), in.schema+":v1:block:*").Result()
	if err != nil {
		in.t.Fatal(err)
	}
	blocks := map[string]int{}
	for _, key := range keys {
		blocks[key[strings.LastIndexByte(key, ':')+1:]]++
	}
	return blocks
}

func (in *installation) redisClient() *redis.Client {
	in.t.Helper()
	options, err := redis.ParseURL(in.redis)
	if err != nil {
		in.t.Fatal(err)
	}
	return redis.NewClient(options)
}

// telling is what makes a block that gates were told of another one.
type telling struct{ Rule, Hit, Until string }

// wantToldOnce holds what lies in Redis' delta streams against the decisions: no block was told to gates that was not decided, and none twice. What
// is minutes old lies there no more; that each was told is what the gates count.
func (f *facts) wantToldOnce() {
	t := f.in.t
	t.Helper()
	c := f.in.redisClient()
	defer func() { _ = c.Close() }()
	lists, err := c.Keys(t.Context(), f.in.schema+":v1:delta:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	untold := map[telling]int{}
	for _, d := range f.decisions {
		if d.Action == "written" || d.Action == "extended" {
			untold[telling{d.Rule, d.Hit, d.Until}]++
		}
	}
	for _, key := range lists {
		if kind, err := c.Type(t.Context(), key).Result(); err != nil || kind != "stream" {
			continue // the set of their names, or the last id of one
		}
		entries, err := c.XRange(t.Context(), key, "-", "+").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			var value telling
			if e.Values["op"] != "block" {
				continue
			}
			if err := json.Unmarshal([]byte(fmt.Sprint(e.Values["value"])), &value); err != nil {
				t.Fatal(err)
			}
			if untold[value]--; untold[value] < 0 {
				t.Errorf("%s tells gates of a block of which there is no decision, or once more: %v", key, e)
			}
		}
	}
}

// sizesOfTables are those of all tables of the schema, with their indexes and partitions.
func (f *facts) sizesOfTables() map[string]float64 {
	sizes := map[string]float64{}
	for _, row := range f.sql(`SELECT coalesce(i.inhparent, c.oid)::regclass::text, sum(pg_total_relation_size(c.oid))::bigint
		FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid WHERE c.relnamespace = '{}'::regnamespace AND c.relkind IN ('r', 'p') GROUP BY 1`) {
		name := row[0].(string)
		sizes[name[strings.LastIndexByte(name, '.')+1:]] += float64(row[1].(int64))
	}
	return sizes
}
