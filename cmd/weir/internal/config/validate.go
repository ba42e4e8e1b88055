package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/blocklist/signing"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/traffic/format"
)

// checks collects what is wrong with a configuration.
type checks struct {
	origins Origins
	errs    []error
}

// fail records one wrong field: where it was set, its path, what it got and what is allowed.
func (k *checks) fail(path, got, allowed string) {
	k.errs = append(k.errs, fmt.Errorf("%s: %s: got %s; allowed: %s", k.where(path), path, got, allowed))
}

func (k *checks) where(path string) string {
	return k.origins[path].String()
}

func (k *checks) between(path string, n, low, high int) {
	if n < low || n > high {
		k.fail(path, fmt.Sprint(n), fmt.Sprintf("%d to %d", low, high))
	}
}

func (k *checks) oneOf(path, got string, allowed ...string) {
	if !slices.Contains(allowed, got) {
		words := slices.Clone(allowed)
		if i := slices.Index(words, ""); i >= 0 {
			words[i] = `"" (none)`
		}
		k.fail(path, fmt.Sprintf("%q", got), strings.Join(words, ", "))
	}
}

// address checks host:port; the port may be 0 where one listens.
func (k *checks) address(path, got string) {
	if _, port, err := net.SplitHostPort(got); err != nil || port == "" {
		k.fail(path, fmt.Sprintf("%q", got), "host:port, like 127.0.0.1:9092")
	}
}

// namespacePattern allows what means nothing in PostgreSQL schemas, Kafka topics and Redis keys alike.
var namespacePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

// Validate checks what a type alone cannot. Its errors say where each field was set.
func (c *Config) Validate() error {
	k := &checks{origins: c.Origins}
	if !namespacePattern.MatchString(c.Namespace) || strings.HasPrefix(c.Namespace, "pg_") {
		k.fail("namespace", fmt.Sprintf("%q", c.Namespace), "a letter, then up to 39 of a-z, 0-9 and _, not starting with pg_")
	}
	c.Kafka.check(k)
	c.Redis.check(k)
	k.url("postgres.url", c.Postgres.URL, "postgres", "postgresql")
	c.checkIdentity(k)
	c.checkEvents(k)
	if n := c.Blocks.PerAddress; n < 1 {
		k.fail("blocks.per_address", strconv.Itoa(n), "1 or more")
	}
	if b := c.Detect.BudgetPerPartition; b < LeastBudget {
		k.fail("detect.budget_per_partition", b.String(), Size(LeastBudget).String()+" or more")
	}
	if m := time.Duration(c.Detect.IdleMargin); m < leastIdleMargin || m > mostIdleMargin {
		k.fail("detect.idle_margin", c.Detect.IdleMargin.String(), "1s to 10m")
	}
	if r := time.Duration(c.History.Retention); r != 0 && r < retention.LeastKeep {
		k.fail("history.retention", c.History.Retention.String(), "0 (for ever), and "+Duration(retention.LeastKeep).String()+" or more")
	}
	c.History.checkBounds(k)
	k.address("http.listen", c.HTTP.Listen)
	k.address("gate.listen", c.Gate.Listen)
	if f := c.Gate.ObserveFile; f != "" && !filepath.IsAbs(f) {
		k.fail("gate.observe_file", fmt.Sprintf("%q", f), "an absolute path, or none: where the process was started must make no difference")
	}
	if _, err := signing.ParseTrust(c.Gate.ModesKey, c.Namespace); c.Gate.ModesKey != "" && err != nil {
		k.fail("gate.modes_key", fmt.Sprintf("%q", c.Gate.ModesKey), `"" (none), and what weir gate trust prints`)
	}
	c.Console.check(k)
	k.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	k.oneOf("log.format", c.Log.Format, "text", "json")
	return errors.Join(k.errs...)
}

func (h *History) checkBounds(k *checks) {
	if h.RowsPerMinute < 0 || h.RowsPerMinute > mostRowsPerMinute {
		k.fail("history.rows_per_minute", strconv.Itoa(h.RowsPerMinute), fmt.Sprintf("0 (all), and 1 to %d", mostRowsPerMinute))
	}
	if n := h.SamplesPerMinute; n < 1 || h.RowsPerMinute > 0 && n > h.RowsPerMinute {
		k.fail("history.samples_per_minute", strconv.Itoa(n), "1 to the number of history.rows_per_minute")
	}
}

// mostRowsPerMinute bounds what RECORD holds in memory of the ids of a minute.
const mostRowsPerMinute = 100_000

// LeastBudget holds some ten thousand keys.
const LeastBudget = 1 << 20

// Bounds of detect.idle_margin. Ticks come once a second, so less than that would change nothing but the events that are late.
const (
	leastIdleMargin = time.Second
	mostIdleMargin  = 10 * time.Minute
)

// instanceID is what Kafka takes as group.instance.id (Topic.validate), or nothing.
var instanceID = regexp.MustCompile(`^[a-zA-Z0-9._-]{0,249}$`)

func (c *Kafka) check(k *checks) {
	if len(c.Brokers) == 0 {
		k.fail("kafka.brokers", "none", "at least one host:port")
	}
	for _, b := range c.Brokers {
		k.address("kafka.brokers", b)
	}
	c.TLS.check(k, "kafka.tls")
	k.oneOf("kafka.sasl.mechanism", c.SASL.Mechanism, "", "plain", "scram-sha-256", "scram-sha-512")
	if c.SASL.Mechanism != "" && (c.SASL.Username == "" || c.SASL.Password == "") {
		k.fail("kafka.sasl.mechanism", c.SASL.Mechanism+" without username or password", "a mechanism with both")
	}
	if !instanceID.MatchString(c.InstanceID) {
		k.fail("kafka.instance_id", strconv.Quote(c.InstanceID), "up to 249 letters, digits, '.', '_' and '-', like no other process of the installation has")
	}
	k.oneOf("kafka.requests_isolation_level", c.RequestsIsolation, ReadCommitted, ReadUncommitted)
	k.between("kafka.replication", c.Replication, 1, 32)
	k.between("kafka.partitions.requests", c.Partitions.Requests, 1, 1024)
	k.between("kafka.partitions.keyed", c.Partitions.Keyed, 1, 1024)
	k.between("kafka.partitions.hits", c.Partitions.Hits, 1, 1024)
	for path, s := range map[string]Duration{
		"requests": c.Retention.Requests, "keyed": c.Retention.Keyed, "hits": c.Retention.Hits,
		"blocks": c.Retention.Blocks, "dead": c.Retention.Dead,
	} {
		if time.Duration(s) < time.Hour {
			k.fail("kafka.retention."+path, s.String(), "1h or more: a stage that was away must find its records")
		}
	}
}

func (c *TLS) check(k *checks, path string) {
	if (c.CertFile == "") != (c.KeyFile == "") {
		k.fail(path+".cert_file", "one of cert_file and key_file", "both or none")
	}
}

func (c *Redis) check(k *checks) {
	c.TLS.check(k, "redis.tls")
	if len(c.Addresses) == 0 {
		k.url("redis.url", c.URL, "redis", "rediss")
		return
	}
	if k.origins.Has("redis.url") && c.URL != "" {
		k.fail("redis.addresses", "redis.url as well", "url for one server or addresses for a cluster")
	}
	for _, a := range c.Addresses {
		k.address("redis.addresses", a)
	}
}

// url checks a connection URL without ever showing it: it may hold a password.
func (k *checks) url(path string, s Secret, schemes ...string) {
	u, err := url.Parse(s.Reveal())
	if err != nil || !slices.Contains(schemes, u.Scheme) {
		k.fail(path, "a text that is no such URL (not shown: it may hold a password)", strings.Join(schemes, ":// or ")+"://…")
	}
}

func (c *Config) checkIdentity(k *checks) {
	k.between("identity.ip.v4", int(c.Identity.IP.V4), 1, 32)
	k.between("identity.ip.v6", int(c.Identity.IP.V6), 1, 128)
	if err := c.Identity.Validate(); err != nil && len(k.errs) == 0 {
		k.errs = append(k.errs, fmt.Errorf("identity: %w", err))
	}
}

func (c *Config) checkEvents(k *checks) {
	k.between("events.max_event_bytes", c.Events.MaxEventBytes, 1<<10, 16<<20)
	if !slices.Contains(eventFormats(), c.Events.Format) {
		k.oneOf("events.format", c.Events.Format, eventFormats()...)
		return
	}
	if _, err := format.NewDecoder(c.Events.Format, c.Events.Map, 0); err != nil {
		k.errs = append(k.errs, fmt.Errorf("%s: events.%w", k.where("events.map"), err))
	}
}

// eventFormats are the formats that events may have.
func eventFormats() []string { return format.Names() }

// LineFormats are the formats that files of events may have: one event a line.
func LineFormats() []string { return format.LineNames() }
