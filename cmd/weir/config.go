package main

import (
	"net/netip"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// config is everything that can be set, from flags, environment, one YAML file and defaults, in that order of
// precedence. Its yaml tags are the field names of docs/configuration.md; a field's environment variable is WEIR_ and
// its path in upper case with _ for each dot. Load it with loadConfig.
type config struct {
	// Namespace prefixes every topic, consumer group, schema and block key, so that installations can share servers.
	Namespace  string              `yaml:"namespace"`
	Kafka      kafkaConfig         `yaml:"kafka"`
	Redis      redisConfig         `yaml:"redis"`
	Postgres   postgresConfig      `yaml:"postgres"`
	Identity   traffic.IdentityMap `yaml:"identity"`
	Events     eventsConfig        `yaml:"events"`
	Detect     detectConfig        `yaml:"detect"`
	Blocks     blocksConfig        `yaml:"blocks"`
	NeverBlock []netip.Prefix      `yaml:"never_block"`
	HTTP       httpConfig          `yaml:"http"`
	Gate       gateConfig          `yaml:"gate"`
	Log        logConfig           `yaml:"log"`

	origin map[string]string // path → where it was set: file:line, variable or flag; absent: default
}

type kafkaConfig struct {
	Brokers     []string         `yaml:"brokers"`
	TLS         tlsConfig        `yaml:"tls"`
	SASL        saslConfig       `yaml:"sasl"`
	Replication int              `yaml:"replication"` // of the topics that migrate creates
	Partitions  partitionsConfig `yaml:"partitions"`
	Retention   retentionConfig  `yaml:"retention"`
}

type tlsConfig struct {
	Enabled    bool   `yaml:"enabled"`
	CAFile     string `yaml:"ca_file"`   // PEM; empty: the system's roots
	CertFile   string `yaml:"cert_file"` // PEM; client certificate, with key_file
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"` // empty: the host of the address
}

type saslConfig struct {
	Mechanism    string `yaml:"mechanism"` // empty: none; plain, scram-sha-256 or scram-sha-512
	Username     string `yaml:"username"`
	Password     secret `yaml:"password"`
	PasswordFile string `yaml:"password_file"`
}

// partitionsConfig is fixed when migrate creates the topics and checked at every start.
type partitionsConfig struct {
	Requests int `yaml:"requests"`
	Keyed    int `yaml:"keyed"`
	Hits     int `yaml:"hits"`
}

// retentionConfig is how long Kafka keeps the records of each topic.
type retentionConfig struct {
	Requests span `yaml:"requests"`
	Keyed    span `yaml:"keyed"`
	Hits     span `yaml:"hits"`
	Blocks   span `yaml:"blocks"`
	Dead     span `yaml:"dead"`
}

type redisConfig struct {
	URL          secret    `yaml:"url"` // redis://… or rediss://…, one server
	URLFile      string    `yaml:"url_file"`
	Addresses    []string  `yaml:"addresses"` // of a Redis Cluster; instead of url
	Username     string    `yaml:"username"`
	Password     secret    `yaml:"password"`
	PasswordFile string    `yaml:"password_file"`
	TLS          tlsConfig `yaml:"tls"`
}

type postgresConfig struct {
	URL     secret `yaml:"url"` // postgres://user:password@host:5432/database
	URLFile string `yaml:"url_file"`
}

// eventsConfig is how gateways write the events of the live stream. It takes effect with the next routing version.
type eventsConfig struct {
	Format        string            `yaml:"format"` // one of format.Names
	Map           map[string]string `yaml:"map"`    // event field → member, for json
	MaxEventBytes int               `yaml:"max_event_bytes"`
}

// detectConfig is kept by migrate and checked at every start.
type detectConfig struct {
	// BudgetPerPartition bounds the windows of one keyed partition: a process needs it times the partitions that it owns.
	BudgetPerPartition size `yaml:"budget_per_partition"`
}

// blocksConfig bounds what ENFORCE writes to Redis.
type blocksConfig struct {
	// PerAddress is how many blocks of one address and rule may be in force where clients choose a part of the block key.
	PerAddress int `yaml:"per_address"`
}

// httpConfig is where a long-running process serves /metrics, /livez and /readyz.
type httpConfig struct {
	Listen string `yaml:"listen"`
}

type gateConfig struct {
	Listen  string `yaml:"listen"`  // where weir gate answers the checks of proxies
	Observe bool   `yaml:"observe"` // let everything pass and say what it would have done
	// ObserveFile makes the gate observe while it exists, whatever is down; none when empty.
	ObserveFile string `yaml:"observe_file"`
}

type logConfig struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // text or json
}

const day = 24 * time.Hour

// defaultConfig is what holds for fields that nobody set.
func defaultConfig() *config {
	return &config{
		Namespace: "weir",
		Kafka: kafkaConfig{
			Brokers:     []string{"127.0.0.1:9092"},
			Replication: 1,
			Partitions:  partitionsConfig{Requests: 8, Keyed: 64, Hits: 8},
			Retention: retentionConfig{
				Requests: span(day), Keyed: span(day), Hits: span(7 * day), Blocks: span(7 * day), Dead: span(7 * day),
			},
		},
		Redis:    redisConfig{URL: "redis://127.0.0.1:6379/0"},
		Postgres: postgresConfig{URL: "postgres://127.0.0.1:5432/weir"},
		Identity: traffic.DefaultIdentityMap(),
		Events:   eventsConfig{Format: "weir", MaxEventBytes: 1 << 20},
		Detect:   detectConfig{BudgetPerPartition: detectors.DefaultBudget},
		Blocks:   blocksConfig{PerAddress: blocklist.DefaultPerAddress},
		HTTP:     httpConfig{Listen: "127.0.0.1:9464"},
		Gate:     gateConfig{Listen: "127.0.0.1:9465"},
		Log:      logConfig{Level: "info", Format: "text"},
	}
}
