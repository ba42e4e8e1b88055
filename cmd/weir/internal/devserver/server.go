// Package devserver is weir dev: all of weir in one process, with servers of its own, a demo through it, and a judge of the demo.
package devserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/internal/demo"
	"github.com/weirhq/weir/internal/local"
	"github.com/weirhq/weir/rules"
)

// Namespace is weir dev's own in a PostgreSQL of the user's.
const Namespace = "weir_dev"

// minDemo is the shortest demo in which everybody can play their part, in seconds.
const minDemo = int(demo.MinDuration / time.Second)

// ErrDemoFailed says that the judge of a demo found a mistake; the report that was printed says which.
var ErrDemoFailed = errors.New("the demo's outcome is not the truth")

// ErrDemoUnsure says that the judge of a demo found no mistake, and that the machine stood still for too long to tell
// that there is none.
var ErrDemoUnsure = errors.New("whether the demo's outcome is the truth is not known: the machine stood still")

// Options say what Run runs.
type Options struct {
	DataDir       string // "": weir/dev in the user's cache directory, for root /var/lib/weir/dev
	Fresh         bool
	ConsoleListen string
	GatewayListen string
	NoDemo        bool
	NoPromote     bool
	Exit          bool
	DemoSeconds   int // 0: until stopped
	Seed          uint64

	Version        string // of the program
	By             string // who applies and promotes the demo's rules
	Stdout, Stderr io.Writer
	// Environment is what documents are judged against that come by the API.
	Environment func(c *config.Config, warn func(rules.Problem)) (rules.Environment, error)
	Hooks       Hooks // of tests
}

// Hooks break weir dev on purpose, for the tests that show that the demo's judge notices, or the console. The program
// has none.
type Hooks struct {
	Rules func(documents []byte) []byte
	Guard func(demo.Guard) demo.Guard
	Emit  func(demo.EmitFunc) demo.EmitFunc
	Kafka func(*local.Kafka) *local.Kafka
}

// hooked gives value, or what the hook makes of it.
func hooked[T any](hook func(T) T, value T) T {
	if hook == nil {
		return value
	}
	return hook(value)
}

// Check refuses flags that make no sense together.
func (o *Options) Check() error {
	switch {
	case o.DemoSeconds != 0 && (o.DemoSeconds < minDemo || o.DemoSeconds > 3600):
		return usage.Errorf("--demo-seconds: got %d; allowed: 0 (until stopped), or %d to 3600", o.DemoSeconds, minDemo)
	case o.Exit && o.DemoSeconds == 0:
		return usage.Errorf("--exit needs --demo-seconds: how long the demo runs before it is judged")
	case o.Exit && o.NoDemo:
		return usage.Errorf("--exit judges the demo, and --no-demo leaves it out; allowed: one of them")
	}
	return nil
}

// ownFields are the settings that weir dev takes; what else a configuration says holds for the servers of others.
var ownFields = [...]string{"namespace", "postgres.", "detect.", "http.", "log."}

// configure makes the configuration of the installation within the process: what the user may set of it, the demo's
// identity map, few partitions, and short retention, since nobody comes back for the demo's requests. The servers'
// addresses are set when they run. ignored names the settings that were not taken, with their origin.
func configure(given *config.Config, o Options) (c *config.Config, ignored []string) {
	c = config.Default()
	if !o.NoDemo {
		c.Identity, c.KnownGood = demo.IdentityMap(), demo.KnownGood
	}
	c.Namespace, c.Postgres, c.Detect, c.Log = given.Namespace, given.Postgres, given.Detect, given.Log
	if !given.Origins.Has("namespace") && !ownPostgres(given) {
		// The default is the namespace of the user's own installation, which may be in that PostgreSQL too.
		c.Namespace = Namespace
	}
	c.Origins = given.Origins
	if c.HTTP.Listen = "127.0.0.1:0"; given.Origins.Has("http.listen") {
		c.HTTP.Listen = given.HTTP.Listen
	}
	if !given.Origins.Has("log.level") {
		c.Log.Level = "warn"
	}
	c.Kafka.Partitions = config.Partitions{Requests: 2, Keyed: 8, Hits: 2}
	c.Kafka.Retention.Requests, c.Kafka.Retention.Keyed = config.Duration(3*time.Hour), config.Duration(3*time.Hour)
	for _, f := range given.Fields() {
		if origin, set := given.Origins[f.Path]; set && !isOwnField(f.Path) {
			ignored = append(ignored, fmt.Sprintf("%s (%s)", f.Path, origin))
		}
	}
	return c, ignored
}

func isOwnField(path string) bool {
	for _, own := range ownFields {
		if path == own || strings.HasSuffix(own, ".") && strings.HasPrefix(path, own) {
			return true
		}
	}
	return false
}

// listeners are bound before anything is started, so that a taken port is found at once. The data directory is locked before
// them: a second weir dev is told that there is a first one, rather than that its ports are taken.
type listeners struct {
	console, gateway net.Listener
}

func (o *Options) listen() (l listeners, err error) {
	if l.console, err = listenHere("--console-listen", o.ConsoleListen); err != nil {
		return l, err
	}
	if o.NoDemo {
		return l, nil
	}
	if l.gateway, err = listenHere("--gateway-listen", o.GatewayListen); err != nil {
		_ = l.console.Close() // nobody has connected yet
	}
	return l, err
}

// listenHere listens where nobody but this machine's users come: the console asks for no password, and the demo's gateway
// believes what it is told about addresses.
func listenHere(flag, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if ip, bad := netip.ParseAddr(host); err != nil || host != "localhost" && (bad != nil || !ip.IsLoopback()) {
		return nil, usage.Errorf("%s: got %q; allowed: an address of this machine alone, such as 127.0.0.1:9466, [::1]:9466 or localhost:0", flag, address)
	}
	return service.Listen(flag, address)
}

func (l listeners) close() {
	_ = l.console.Close() // closed before: no harm
	if l.gateway != nil {
		_ = l.gateway.Close()
	}
}

// narrator prints what is being done while it is done, each line with the seconds since the start.
type narrator struct {
	to    io.Writer
	begun time.Time
}

func (n *narrator) say(format string, args ...any) {
	fmt.Fprintf(n.to, "%6.1f s  %s\n", time.Since(n.begun).Seconds(), fmt.Sprintf(format, args...))
}

// Run is weir dev. It returns ErrDemoFailed where the demo was judged and the judge found a mistake, which the report
// tells, and ErrDemoUnsure where he could not tell.
//
//	          ┌───────────────────────────── this process ──────────────────────────────┐
//	          │ 1 demo traffic ─▶ 2 gateway ─▶ sample API                                │
//	curl ─────┼──────────────────▶   │  ▲                                                │
//	          │             events   │  └── gate ◀─ replica 5 ◀─────────────┐            │
//	          │                      ▼                                      │            │
//	          │        3 emitter ─▶ Kafka ◀─▶ 4 route, detect, record, enforce ─▶ Redis  │
//	          │                                        │                                 │
//	browser ──┼─▶ 6 console ◀─────────────────────── Postgres  (another process, private) │
//	          └──────────────────────────────────────────────────────────────────────────┘
//
// The numbers are the order in which the parts are stopped; the servers come last.
func Run(parent context.Context, given *config.Config, o Options) error {
	conf, ignored := configure(given, o)
	log := service.NewLogger(conf.Log, o.Stderr)
	ctx, forget := service.UntilSignal(parent, log)
	defer forget()
	d := &server{o: o, conf: conf, log: log, registry: service.NewRegistry(o.Version, conf.Namespace), narrator: narrator{o.Stdout, time.Now()}}
	defer d.close()
	if len(ignored) > 0 {
		d.say("weir dev brings its own servers; not used: %s", strings.Join(ignored, ", "))
	}
	for _, step := range []func(context.Context) error{
		d.openDirectory, d.listen, d.takeDirectory, d.startServers, d.migrate, d.applyRules, d.connect,
	} {
		if err := step(ctx); err != nil {
			if ctx.Err() == nil || o.Exit {
				return err
			}
			d.say("stopped before everything ran")
			return nil
		}
	}
	return d.serve(ctx)
}
