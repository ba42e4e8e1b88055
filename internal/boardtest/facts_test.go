package boardtest

import (
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/exactness"
)

// facts are what has happened, as Kafka's logs, PostgreSQL, Redis and the test itself know it: what panels say is
// held against them.
type facts struct {
	in       *installation
	load     *load
	postgres *pgx.Conn

	topics map[string][]told
	blocks float64 // in Redis
}

// told is a record of a topic, as far as its JSON is looked at here.
type told struct {
	Kind, Phase, Action string
	Gateway             string
	Verdict             struct{ Rule string }
}

// gather reads them anew.
func (f *facts) gather() error {
	ctx := f.in.t.Context()
	stream := &exactness.Stream{Brokers: f.in.brokers, Postgres: f.in.postgres, Namespace: f.in.schema}
	f.topics = map[string][]told{}
	for _, topic := range []string{"requests", "hits", "blocks"} {
		err := stream.EachRecord(ctx, stream.Topic(topic), 2, func(r *kgo.Record) error {
			var one told
			if err := json.Unmarshal(r.Value, &one); err != nil && topic != "requests" { // which has what is no event, too
				return err
			}
			f.topics[topic] = append(f.topics[topic], one)
			return nil
		})
		if err != nil {
			return err
		}
	}
	options, err := redis.ParseURL(f.in.redis)
	if err != nil {
		return err
	}
	c := redis.NewClient(options)
	defer func() { _ = c.Close() }()
	keys, err := c.Keys(ctx, f.in.schema+":v1:block:*").Result()
	f.blocks = float64(len(keys))
	return err
}

// by counts the records of a topic that are wanted, by what key says of them.
func (f *facts) by(topic string, wanted func(*told) bool, key func(*told) string) map[string]float64 {
	counts := map[string]float64{}
	for i := range f.topics[topic] {
		if r := &f.topics[topic][i]; wanted == nil || wanted(r) {
			counts[key(r)]++
		}
	}
	return counts
}

func (f *facts) count(topic string, wanted func(*told) bool) float64 {
	return f.by(topic, wanted, func(*told) string { return "" })[""]
}

// checks are the answers of all gates: those that the test was given, and those of the demo's, which reports each
// request with what its gate said.
func (f *facts) checks() map[string]float64 {
	counts := f.by("requests", func(r *told) bool { return r.Gateway == "demo" }, func(r *told) string {
		if r.Verdict.Rule != "" {
			return "refuse"
		}
		return "pass"
	})
	for decision, n := range f.load.decisions {
		counts[decision] += float64(n)
	}
	return counts
}

// share is that of a decision among all checks.
func (f *facts) share(decision string) float64 {
	all := 0.0
	for _, n := range f.checks() {
		all += n
	}
	return f.checks()[decision] / all
}

// number is the one that a query finds, asked as who may read everything.
func (f *facts) number(sql string) float64 {
	var n int64
	sql = strings.ReplaceAll(sql, "{}", `"`+f.in.schema+`"`)
	if err := f.postgres.QueryRow(f.in.t.Context(), sql).Scan(&n); err != nil {
		f.in.t.Fatalf("%v\n%s", err, sql)
	}
	return float64(n)
}
