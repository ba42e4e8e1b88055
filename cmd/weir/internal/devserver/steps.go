package devserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/demo"
	"github.com/weirhq/weir/internal/local"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
)

const (
	// leastFree is what a data directory must have free at the start: a new database and some hours of demo traffic.
	leastFree = 256 << 20
	// fullBelow is what must stay free while it runs: below it, weir dev ends before a server fails in the middle of a write.
	fullBelow = 32 << 20
	// closeTimeout is how long the servers may take to end. PostgreSQL's watcher goes on when this process has ended.
	closeTimeout = 2 * time.Second
)

// server is a run of weir dev.
type server struct {
	narrator
	o        Options
	conf     *config.Config
	log      *slog.Logger
	registry *service.Registry

	listeners listeners
	directory *local.Directory
	in        *service.Installation
	names     ingest.TopicNames // of the live stream's topics
	closers   []func()

	report atomic.Pointer[demo.Report] // the judge's
}

func (d *server) close() {
	limit := closeTimeout
	if d.o.Exit {
		limit = time.Minute // nobody waits for it, and what it leaves behind would stay
	}
	service.CloseWithin(limit, d.closers)
}

// closing has something closed at the end; what goes wrong then is worth a line and no more.
func (d *server) closing(what string, end func() error) {
	d.closers = append(d.closers, func() {
		if err := end(); err != nil {
			d.log.Warn("did not end cleanly", "part", what, "error", err)
		}
	})
}

func (d *server) listen(context.Context) (err error) {
	if d.listeners, err = d.o.listen(); err != nil {
		return err
	}
	d.closers = append(d.closers, d.listeners.close)
	return d.directory.Announce(fmt.Sprintf("console http://%s", d.listeners.console.Addr()))
}

// defaultDataDir is in the user's cache directory. Root's own is closed to the user that PostgreSQL runs as then.
func defaultDataDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/weir/dev", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no directory to keep things in (%w): name one with --data-dir", err)
	}
	return filepath.Join(cache, "weir", "dev"), nil
}

// openDirectory locks the data directory. A run that is judged has one of its own, since what an earlier run blocked
// would be none of its truth.
func (d *server) openDirectory(context.Context) error {
	path := d.o.DataDir
	var err error
	switch {
	case path != "":
	case d.o.Exit:
		if path, err = os.MkdirTemp("", "weir-dev-"); err != nil {
			return fmt.Errorf("%w: name another place with --data-dir", err)
		}
		d.closing("data directory", func() error { return os.RemoveAll(path) })
		// As with a directory that is kept: PostgreSQL of another user has to get in.
		if err = os.Chmod(path, 0o755); err != nil {
			return err
		}
	default:
		if path, err = defaultDataDir(); err != nil {
			return err
		}
	}
	d.directory, err = local.OpenDirectory(path, leastFree)
	switch {
	case errors.Is(err, local.ErrInUse):
		return fmt.Errorf("weir dev is running already: %w; stop that one, or give this one another place with --data-dir", err)
	case err != nil:
		return fmt.Errorf("%w; --data-dir names another place", err)
	}
	d.closing("data directory", d.directory.Close)
	return nil
}

// What weir dev makes in its data directory.
const (
	kafkaFolder    = "kafka"
	postgresFolder = "postgres"
	schemaFile     = "schema" // see schemaClaim
)

func madeHere() []string {
	return []string{kafkaFolder, postgresFolder, schemaFile, config.DefaultFile}
}

// takeDirectory looks at what earlier runs left, and says what becomes of it.
func (d *server) takeDirectory(ctx context.Context) error {
	empty, err := d.directory.Empty()
	switch {
	case err != nil:
		return err
	case empty:
		d.say("data directory %s", d.directory.Path())
	case d.o.Fresh && d.ownPostgres():
		d.say("erasing what is in %s", d.directory.Path())
		if err := d.directory.Erase(ctx, madeHere()...); err != nil {
			return fmt.Errorf("--fresh: %w", err)
		}
		return nil
	case d.o.Fresh:
		return fmt.Errorf("--fresh does not erase what is in your PostgreSQL: drop schema %s there and the directory %s, or set another --namespace",
			d.conf.Namespace, d.directory.Path())
	case d.o.Exit:
		return fmt.Errorf("%s holds an earlier run, whose blocks would be none of this run's truth: with --exit add --fresh, or leave --data-dir out",
			d.directory.Path())
	default:
		d.say("going on in %s (--fresh starts anew)", d.directory.Path())
	}
	return nil
}

// ownPostgres reports whether weir dev starts PostgreSQL itself.
func (d *server) ownPostgres() bool { return ownPostgres(d.conf) }

func ownPostgres(c *config.Config) bool {
	return !c.Origins.Has("postgres.url") && !c.Origins.Has("postgres.url_file")
}

// startServers starts what is not there, and tells the configuration where it is.
func (d *server) startServers(ctx context.Context) error {
	if d.ownPostgres() {
		if err := d.startPostgres(ctx); err != nil {
			return err
		}
	} else {
		d.say("using PostgreSQL at %s, schema %s", d.conf.Postgres.URL.Server(), d.conf.Namespace)
	}
	d.say("starting Kafka and Redis")
	kafka, err := local.StartKafka(ctx, local.KafkaOptions{Dir: d.directory.Path(kafkaFolder), Logger: d.log})
	if err != nil {
		return err
	}
	d.closing("Kafka", hooked(d.o.Hooks.Kafka, kafka).Close)
	redis, err := local.StartRedis(ctx, local.RedisOptions{})
	if err != nil {
		return err
	}
	d.closing("Redis", redis.Close)
	d.conf.Kafka.Brokers = kafka.Addresses()
	d.conf.Redis.URL = config.Secret(redis.URL())
	return d.conf.Validate()
}

func (d *server) startPostgres(ctx context.Context) error {
	d.say("starting PostgreSQL")
	programs := local.Programs{}
	if cache, err := os.UserCacheDir(); err == nil { // without one nothing is fetched, and the error says what else can be done
		programs.FetchInto = filepath.Join(cache, "weir", "programs")
	}
	postgres, err := local.StartPostgres(ctx, local.PostgresOptions{
		Dir: d.directory.Path(postgresFolder), Programs: programs, Say: func(what string) { d.say("PostgreSQL: %s", what) },
	})
	if err != nil {
		return err
	}
	d.closing("PostgreSQL", postgres.Close)
	d.conf.Postgres.URL = config.Secret(postgres.URL())
	return nil
}

// migrate does what weir migrate does, in a schema that is weir dev's own.
func (d *server) migrate(ctx context.Context) error {
	schema := &schemaClaim{conf: d.conf, log: d.log, directory: d.directory}
	if err := schema.claim(ctx); err != nil {
		return err
	}
	d.say("making schema and topics")
	// No process of another build runs beside this one.
	newest := stream.MigrateOptions{RecordFormat: detectors.RecordFormat}
	if _, err := stream.Migrate(ctx, d.conf, d.log, d.o.By, newest); err != nil {
		return err
	}
	return schema.sign(ctx)
}

// applyRules does what weir rules apply does. Rules of the demo that an earlier run applied and promoted stay as they are.
func (d *server) applyRules(ctx context.Context) error {
	if d.o.NoDemo {
		return nil
	}
	conditions, err := condition.New()
	if err != nil {
		return err
	}
	set, err := rules.ParseSet((&demoRun{d}).rules(), rules.Environment{Identity: d.conf.Identity, Conditions: conditions, AllowLists: []string{}})
	if err != nil {
		return fmt.Errorf("rules of the demo: %w", err)
	}
	s, err := service.OpenHistory(ctx, d.conf, d.log)
	if err != nil {
		return err
	}
	defer s.Close()
	d.say("applying %s of the demo; new ones begin in shadow", plural.Of(len(set.Rules), "rule"))
	_, err = s.Rules.Apply(ctx, rulestore.WithSources(set), d.o.By, "weir dev: the demo's rules", rulestore.ApplyOptions{AllowLists: set.AllowLists})
	if err != nil {
		return fmt.Errorf("rules of the demo: %w (weir dev --fresh starts anew)", err)
	}
	return nil
}

// connect makes the clients of all stages and writes down how others find the servers.
func (d *server) connect(ctx context.Context) error {
	var err error
	if d.in, err = service.Open(ctx, d.conf, d.log, d.registry, true); err != nil {
		return err
	}
	d.closers = append(d.closers, d.in.Close)
	d.names = ingest.Live.Topics(d.conf.Namespace)
	return d.writeConfig()
}

// schemaPending is in the mark of a schema that is being made.
const schemaPending = "pending"

// schemaClaim holds that weir dev works in no schema but its own.
type schemaClaim struct {
	conf      *config.Config
	log       *slog.Logger
	directory *local.Directory
}

// claim makes sure that weir dev works only in a schema that it has made from this data directory: its topics begin anew with
// the directory, which a schema of another installation would take for a requests topic that was made anew. The mark in the
// directory names the schema and its origin; before the schema is made, it announces it.
func (s *schemaClaim) claim(ctx context.Context) error {
	if ownPostgres(s.conf) {
		return nil // it lies in the directory itself
	}
	found, err := s.origin(ctx)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(s.directory.Path(schemaFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	schema, origin, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	switch {
	case found == "":
		return s.mark(schemaPending)
	case schema == s.conf.Namespace && (origin == found || origin == schemaPending):
		return nil
	}
	return fmt.Errorf("schema %s in PostgreSQL at %s was not made by weir dev in %s: it may be an installation of yours, or what is left of another "+
		"weir dev; name another --namespace, or drop that schema", s.conf.Namespace, s.conf.Postgres.URL.Server(), s.directory.Path())
}

// sign marks the schema as made from this data directory.
func (s *schemaClaim) sign(ctx context.Context) error {
	if ownPostgres(s.conf) {
		return nil
	}
	origin, err := s.origin(ctx)
	if err != nil {
		return err
	}
	return s.mark(origin)
}

func (s *schemaClaim) mark(origin string) error {
	return os.WriteFile(s.directory.Path(schemaFile), []byte(s.conf.Namespace+" "+origin+"\n"), 0o600)
}

// origin tells this making of the schema from any other; "" where there is none yet.
func (s *schemaClaim) origin(ctx context.Context) (string, error) {
	h, err := service.OpenHistory(ctx, s.conf, s.log)
	if err != nil {
		return "", err
	}
	defer h.Close()
	return h.Origin(ctx)
}
