package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/demo"
	"github.com/weirhq/weir/internal/local"
	"github.com/weirhq/weir/rules"
)

const (
	// devSpace is what a data directory must have free at the start: a new database and some hours of demo traffic.
	devSpace = 256 << 20
	// devFull is what must stay free while it runs: below it, weir dev ends before a server fails in the middle of a write.
	devFull = 32 << 20
	// devClosing is how long the servers may take to end. PostgreSQL's watcher goes on when this process has ended.
	devClosing = 2 * time.Second
)

// dev is a run of weir dev.
type dev struct {
	*app
	narrator
	o        devOptions
	conf     *config.Config
	log      *slog.Logger
	registry *prometheus.Registry

	listeners devListeners
	directory *local.Directory
	in        *service.Installation
	names     ingest.TopicNames // of the live stream's topics
	closers   []func()

	hooks  devHooks
	report atomic.Pointer[demo.Report] // the judge's
}

func (d *dev) close() {
	limit := devClosing
	if d.o.exit {
		limit = time.Minute // nobody waits for it, and what it leaves behind would stay
	}
	service.CloseWithin(limit, d.closers)
}

// closing has something closed at the end; what goes wrong then is worth a line and no more.
func (d *dev) closing(what string, end func() error) {
	d.closers = append(d.closers, func() {
		if err := end(); err != nil {
			d.log.Warn("did not end cleanly", "part", what, "error", err)
		}
	})
}

func (d *dev) listen(context.Context) (err error) {
	d.listeners, err = d.o.listen()
	if err == nil {
		d.closers = append(d.closers, d.listeners.close)
	}
	return err
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
func (d *dev) openDirectory(context.Context) error {
	path := d.o.dataDir
	var err error
	switch {
	case path != "":
	case d.o.exit:
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
	d.directory, err = local.OpenDirectory(path, devSpace)
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
	devKafka    = "kafka"
	devPostgres = "postgres"
	devSchema   = "schema" // see claimSchema
)

func devMade() []string { return []string{devKafka, devPostgres, devSchema, config.DefaultFile} }

// takeDirectory looks at what earlier runs left, and says what becomes of it.
func (d *dev) takeDirectory(ctx context.Context) error {
	empty, err := d.directory.Empty()
	switch {
	case err != nil:
		return err
	case empty:
		d.say("data directory %s", d.directory.Path())
	case d.o.fresh && d.ownPostgres():
		d.say("erasing what is in %s", d.directory.Path())
		if err := d.directory.Erase(ctx, devMade()...); err != nil {
			return fmt.Errorf("--fresh: %w", err)
		}
		return nil
	case d.o.fresh:
		return fmt.Errorf("--fresh does not erase what is in your PostgreSQL: drop schema %s there and the directory %s, or set another --namespace",
			d.conf.Namespace, d.directory.Path())
	case d.o.exit:
		return fmt.Errorf("%s holds an earlier run, whose blocks would be none of this run's truth: with --exit add --fresh, or leave --data-dir out",
			d.directory.Path())
	default:
		d.say("going on in %s (--fresh starts anew)", d.directory.Path())
	}
	return nil
}

// ownPostgres reports whether weir dev starts PostgreSQL itself.
func (d *dev) ownPostgres() bool { return ownPostgres(d.conf) }

func ownPostgres(c *config.Config) bool {
	return !c.Origins.Has("postgres.url") && !c.Origins.Has("postgres.url_file")
}

// startServers starts what is not there, and tells the configuration where it is.
func (d *dev) startServers(ctx context.Context) error {
	if d.ownPostgres() {
		if err := d.startPostgres(ctx); err != nil {
			return err
		}
	} else {
		d.say("using PostgreSQL at %s, schema %s", d.conf.Postgres.URL.Server(), d.conf.Namespace)
	}
	d.say("starting Kafka and Redis")
	kafka, err := local.StartKafka(ctx, local.KafkaOptions{Dir: d.directory.Path(devKafka), Logger: d.log})
	if err != nil {
		return err
	}
	d.closing("Kafka", kafka.Close)
	redis, err := local.StartRedis(ctx, local.RedisOptions{})
	if err != nil {
		return err
	}
	d.closing("Redis", redis.Close)
	d.conf.Kafka.Brokers = kafka.Addresses()
	d.conf.Redis.URL = config.Secret(redis.URL())
	return d.conf.Validate()
}

func (d *dev) startPostgres(ctx context.Context) error {
	d.say("starting PostgreSQL")
	programs := local.Programs{}
	if cache, err := os.UserCacheDir(); err == nil { // without one nothing is fetched, and the error says what else can be done
		programs.FetchInto = filepath.Join(cache, "weir", "programs")
	}
	postgres, err := local.StartPostgres(ctx, local.PostgresOptions{
		Dir: d.directory.Path(devPostgres), Programs: programs, Say: func(what string) { d.say("PostgreSQL: %s", what) },
	})
	if err != nil {
		return err
	}
	d.closing("PostgreSQL", postgres.Close)
	d.conf.Postgres.URL = config.Secret(postgres.URL())
	return nil
}

// migrate does what weir migrate does, in a schema that is weir dev's own.
func (d *dev) migrate(ctx context.Context) error {
	if err := d.claimSchema(ctx); err != nil {
		return err
	}
	d.say("making schema and topics")
	// No process of another build runs beside this one.
	newest := stream.MigrateOptions{RecordFormat: detectors.RecordFormat}
	if _, err := stream.Migrate(ctx, d.conf, d.log, whoami(d.environ), newest); err != nil {
		return err
	}
	return d.signSchema(ctx)
}

// applyRules does what weir rules apply does. Rules of the demo that an earlier run applied and promoted stay as they are.
func (d *dev) applyRules(ctx context.Context) error {
	if d.o.noDemo {
		return nil
	}
	docs, err := rules.ParseFiles(d.demoRules(), rules.Environment{Identity: d.conf.Identity})
	if err != nil {
		return fmt.Errorf("rules of the demo: %w", err)
	}
	s, err := service.OpenHistory(ctx, d.conf, d.log)
	if err != nil {
		return err
	}
	defer s.Close()
	d.say("applying %s of the demo; new ones begin in shadow", terminal.Plural(len(docs), "rule"))
	_, err = s.ApplyRules(ctx, withSources(docs), whoami(d.environ), "weir dev: the demo's rules", history.ApplyOptions{})
	if err != nil {
		return fmt.Errorf("rules of the demo: %w (weir dev --fresh starts anew)", err)
	}
	return nil
}

// connect makes the clients of all stages and writes down how others find the servers.
func (d *dev) connect(ctx context.Context) error {
	var err error
	if d.in, err = service.Open(ctx, d.conf, d.log, d.registry, true); err != nil {
		return err
	}
	d.closers = append(d.closers, d.in.Close)
	d.names = ingest.Live.Topics(d.conf.Namespace)
	return d.writeConfig()
}
