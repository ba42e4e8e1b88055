// Package config is everything that can be set: what there is, where it is read from, and what is allowed.
package config

import (
	"net/netip"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Config is everything that can be set, from flags, environment, one YAML file and defaults, in that order of
// precedence. Its yaml tags are the field names of docs/configuration.md; a field's environment variable is WEIR_ and
// its path in upper case with _ for each dot. Load it with Load.
type Config struct {
	// Namespace prefixes every topic, consumer group, schema and block key, so that installations can share servers.
	Namespace string              `yaml:"namespace"`
	Kafka     Kafka               `yaml:"kafka"`
	Redis     Redis               `yaml:"redis"`
	Postgres  Postgres            `yaml:"postgres"`
	Identity  traffic.IdentityMap `yaml:"identity"`
	Events    Events              `yaml:"events"`
	// KnownGood holds for events of sources that the deployment knows to be good; empty: it knows nobody. It takes effect with the next
	// routing version.
	KnownGood  Expression     `yaml:"known_good"`
	Detect     Detect         `yaml:"detect"`
	Blocks     Blocks         `yaml:"blocks"`
	History    History        `yaml:"history"`
	NeverBlock []netip.Prefix `yaml:"never_block"`
	HTTP       HTTP           `yaml:"http"`
	Gate       Gate           `yaml:"gate"`
	Console    Console        `yaml:"console"`
	Log        Log            `yaml:"log"`

	Origins Origins // of its fields
}

// Kafka is where the topics are, and how migrate makes them.
type Kafka struct {
	Brokers    []string `yaml:"brokers"`
	TLS        TLS      `yaml:"tls"`
	SASL       SASL     `yaml:"sasl"`
	InstanceID string   `yaml:"instance_id"` // group.instance.id of this process in the consumer groups; empty: none
	// RequestsIsolation says whether events wait for the transactions that they were written in: ReadCommitted or
	// ReadUncommitted.
	RequestsIsolation string `yaml:"requests_isolation_level"`

	Replication int        `yaml:"replication"` // of the topics that migrate creates
	Partitions  Partitions `yaml:"partitions"`
	Retention   Retention  `yaml:"retention"`
}

// The values of Kafka's isolation.level.
const (
	ReadCommitted   = "read_committed"
	ReadUncommitted = "read_uncommitted"
)

// TLS is how a connection is encrypted.
type TLS struct {
	Enabled    bool   `yaml:"enabled"`
	CAFile     string `yaml:"ca_file"`   // PEM; empty: the system's roots
	CertFile   string `yaml:"cert_file"` // PEM; client certificate, with key_file
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"` // empty: the host of the address
}

// SASL is who weir is to Kafka.
type SASL struct {
	Mechanism    string `yaml:"mechanism"` // empty: none; plain, scram-sha-256 or scram-sha-512
	Username     string `yaml:"username"`
	Password     Secret `yaml:"password"`
	PasswordFile string `yaml:"password_file"`
}

// Partitions is fixed when migrate creates the topics and checked at every start.
type Partitions struct {
	Requests int `yaml:"requests"`
	Keyed    int `yaml:"keyed"`
	Hits     int `yaml:"hits"`
}

// Retention is how long Kafka keeps the records of each topic.
type Retention struct {
	Requests Duration `yaml:"requests"`
	Keyed    Duration `yaml:"keyed"`
	Hits     Duration `yaml:"hits"`
	Blocks   Duration `yaml:"blocks"`
	Dead     Duration `yaml:"dead"`
}

// Redis is where the blocks are: one server or a cluster.
type Redis struct {
	URL          Secret   `yaml:"url"` // redis://… or rediss://…, one server
	URLFile      string   `yaml:"url_file"`
	Addresses    []string `yaml:"addresses"` // of a Redis Cluster; instead of url
	Username     string   `yaml:"username"`
	Password     Secret   `yaml:"password"`
	PasswordFile string   `yaml:"password_file"`
	TLS          TLS      `yaml:"tls"`
}

// Postgres is where history and rules are.
type Postgres struct {
	URL     Secret `yaml:"url"` // postgres://user:password@host:5432/database
	URLFile string `yaml:"url_file"`
}

// Events is how gateways write the events of the live stream. It takes effect with the next routing version.
type Events struct {
	Format        string            `yaml:"format"` // one of traffic.Formats
	Map           map[string]string `yaml:"map"`    // event field → member, for json
	MaxEventBytes int               `yaml:"max_event_bytes"`
}

// Detect is what all processes that detect must have alike.
type Detect struct {
	// BudgetPerPartition bounds the windows of one keyed partition: a process needs it times the partitions that it owns. It
	// is kept by migrate and checked at every start.
	BudgetPerPartition Size `yaml:"budget_per_partition"`
	// IdleMargin is how far the progress of an idle partition of the requests topic stays behind the clock.
	IdleMargin Duration `yaml:"idle_margin"`
}

// Blocks bounds what ENFORCE writes to Redis.
type Blocks struct {
	// PerAddress is how many blocks of one address and rule may be in force where clients choose a part of the block key.
	PerAddress int `yaml:"per_address"`
}

// History bounds what PostgreSQL keeps of what was found.
type History struct {
	// Retention is how long hits, decisions and sums are kept; 0: for ever.
	Retention Duration `yaml:"retention"`
	// RowsPerMinute is how many rows of episodes are kept that one rule opened in one minute; 0: all.
	RowsPerMinute int `yaml:"rows_per_minute"`
	// SamplesPerMinute is how many of them keep their samples.
	SamplesPerMinute int `yaml:"samples_per_minute"`
}

// HTTP is where a long-running process serves /metrics, /livez and /readyz, and weir run /v1/counters.
type HTTP struct {
	Listen string `yaml:"listen"`
}

// Gate is how weir gate answers.
type Gate struct {
	Listen  string `yaml:"listen"`  // where weir gate answers the checks of proxies
	Observe bool   `yaml:"observe"` // let everything pass and say what it would have done
	// ObserveFile makes the gate observe while it exists, whatever is down; none when empty.
	ObserveFile string `yaml:"observe_file"`
	// ModesKey is whose signature modes in Redis need to be acted on; none when empty.
	ModesKey string `yaml:"modes_key"`
	// Installation is whose Redis the gate reads; that which it meets first when empty.
	Installation string `yaml:"installation"`
}

// Log is what a process logs, and how.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // text or json
}

// Day is the longest unit of durations here.
const Day = 24 * time.Hour

// Default is what holds for fields that nobody set.
func Default() *Config {
	return &Config{
		Namespace: "weir",
		Kafka: Kafka{
			Brokers:           []string{"127.0.0.1:9092"},
			RequestsIsolation: ReadCommitted,
			Replication:       1,
			Partitions:        Partitions{Requests: 8, Keyed: 64, Hits: 8},
			Retention: Retention{
				Requests: Duration(Day), Keyed: Duration(Day), Hits: Duration(7 * Day), Blocks: Duration(7 * Day), Dead: Duration(7 * Day),
			},
		},
		Redis:    Redis{URL: "redis://127.0.0.1:6379/0"},
		Postgres: Postgres{URL: "postgres://127.0.0.1:5432/weir"},
		Identity: traffic.DefaultIdentityMap(),
		Events:   Events{Format: "weir", MaxEventBytes: 1 << 20},
		Detect:   Detect{BudgetPerPartition: detectors.DefaultBudget, IdleMargin: Duration(detectors.DefaultIdleMargin)},
		Blocks:   Blocks{PerAddress: blocklist.DefaultPerAddress},
		History:  History{Retention: Duration(retention.DefaultKeep), RowsPerMinute: 5000, SamplesPerMinute: 500},
		HTTP:     HTTP{Listen: "127.0.0.1:9464"},
		Gate:     Gate{Listen: "127.0.0.1:9465"},
		Console:  defaultConsole(),
		Log:      Log{Level: "info", Format: "text"},
	}
}

// TopicSettings is what the configuration says about topics.
func (c *Config) TopicSettings() ingest.TopicSettings {
	p, r := c.Kafka.Partitions, c.Kafka.Retention
	return ingest.TopicSettings{
		RequestsPartitions: p.Requests, KeyedPartitions: p.Keyed, HitsPartitions: p.Hits, BlocksPartitions: p.Hits,
		DeadPartitions: 1, Replication: c.Kafka.Replication,
		RequestsRetention: time.Duration(r.Requests), KeyedRetention: time.Duration(r.Keyed), HitsRetention: time.Duration(r.Hits),
		BlocksRetention: time.Duration(r.Blocks), DeadRetention: time.Duration(r.Dead),
	}
}

// EventFormat is how the live stream's events are decoded.
func (c *Config) EventFormat() rules.Format {
	return rules.Format{Name: c.Events.Format, Map: c.Events.Map, MaxEventBytes: c.Events.MaxEventBytes}
}
