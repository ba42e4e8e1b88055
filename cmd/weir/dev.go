package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/internal/demo"
)

// Where weir dev listens unless told otherwise.
const (
	devConsole = "127.0.0.1:9466"
	devGateway = "127.0.0.1:9467"
)

// devNamespace is weir dev's own in a PostgreSQL of the user's.
const devNamespace = "weir_dev"

// demoLeast is the shortest demo in which everybody can play their part, in seconds.
const demoLeast = int(demo.MinDuration / time.Second)

// devOptions are the flags of weir dev.
type devOptions struct {
	dataDir       string // "": see defaultDataDir
	fresh         bool
	consoleListen string
	gatewayListen string
	noDemo        bool
	noPromote     bool
	exit          bool
	demoSeconds   int // 0: until stopped
	seed          uint64
}

func (a *app) devCommand() *cobra.Command {
	var o devOptions
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in this process, with a demo and the console",
		Long: `Run all of weir in this process: Kafka and Redis in the process, a PostgreSQL of its own (its programs are found on this
machine, or fetched unless this is root), all stages, a gateway in front of a sample
API, demo traffic through it, and the console. The demo's rules begin in shadow and are promoted after some seconds, in
the way of weir rules promote.

Everything is kept in one directory and survives Ctrl-C and kill -9; --fresh starts anew. What weir dev prints tells how to
reach it with other commands and with curl. Of the configuration it takes namespace, postgres, http and log; the rest is
its own.

With --demo-seconds N --exit the demo runs that long in a directory that is thrown away, and is then judged: a table shows
what should have happened, by the requests' own times, and what the demo's clients were answered. The exit code is 0 if
both agree, and 1 if not.`,
		Example: `  weir dev
  weir dev --fresh --data-dir ./.weir-dev
  weir dev --demo-seconds 20 --seed 7 --exit
  weir dev --no-demo --postgres-url postgres://weir@127.0.0.1:5432/weir`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			return a.runDev(cmd.Context(), conf, o)
		}),
	}
	f := c.Flags()
	f.StringVar(&o.dataDir, "data-dir", "", "where everything is kept (default: weir/dev in the user's cache directory, for root /var/lib/weir/dev)")
	f.BoolVar(&o.fresh, "fresh", false, "erase what earlier runs left in the data directory")
	f.StringVar(&o.consoleListen, "console-listen", devConsole, "where the console is served")
	f.StringVar(&o.gatewayListen, "gateway-listen", devGateway, "where the demo's gateway answers")
	f.BoolVar(&o.noDemo, "no-demo", false, "no gateway, rules and traffic of the demo")
	f.BoolVar(&o.noPromote, "no-promote", false, "leave the demo's rules in shadow: nobody is refused")
	f.IntVar(&o.demoSeconds, "demo-seconds", 0, "how long demo traffic is sent (default: until stopped)")
	f.Uint64Var(&o.seed, "seed", 1, "what the demo's clients do; the same seed, the same clients")
	f.BoolVar(&o.exit, "exit", false, "end after --demo-seconds and judge the demo")
	return c
}

// check refuses flags that make no sense together.
func (o *devOptions) check() error {
	switch {
	case o.demoSeconds != 0 && (o.demoSeconds < demoLeast || o.demoSeconds > 3600):
		return usage.Errorf("--demo-seconds: got %d; allowed: 0 (until stopped), or %d to 3600", o.demoSeconds, demoLeast)
	case o.exit && o.demoSeconds == 0:
		return usage.Errorf("--exit needs --demo-seconds: how long the demo runs before it is judged")
	case o.exit && o.noDemo:
		return usage.Errorf("--exit judges the demo, and --no-demo leaves it out; allowed: one of them")
	}
	return nil
}

// ownFields are the settings that weir dev takes; what else a configuration says holds for the servers of others.
var ownFields = [...]string{"namespace", "postgres.", "http.", "log."}

// devConfig makes the configuration of the installation within the process: what the user may set of it, the demo's
// identity map, few partitions, and short retention, since nobody comes back for the demo's requests. The servers'
// addresses are set when they run. ignored names the settings that were not taken, with their origin.
func devConfig(given *config.Config, o devOptions) (c *config.Config, ignored []string) {
	c = config.Default()
	if !o.noDemo {
		c.Identity = demo.IdentityMap()
	}
	c.Namespace, c.Postgres, c.Log = given.Namespace, given.Postgres, given.Log
	if !given.Origins.Has("namespace") && !ownPostgres(given) {
		// The default is the namespace of the user's own installation, which may be in that PostgreSQL too.
		c.Namespace = devNamespace
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

// devListeners are bound before anything is started, so that a taken port is found at once. The data directory is locked
// before: of a second weir dev, it says that there is a first one, which has the ports too.
type devListeners struct {
	console, gateway net.Listener
}

func (o *devOptions) listen() (l devListeners, err error) {
	if l.console, err = listenHere("--console-listen", o.consoleListen); err != nil {
		return l, err
	}
	if o.noDemo {
		return l, nil
	}
	if l.gateway, err = listenHere("--gateway-listen", o.gatewayListen); err != nil {
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

func (l devListeners) close() {
	_ = l.console.Close() // closed before: no harm
	if l.gateway != nil {
		_ = l.gateway.Close()
	}
}

// narrator prints what is being done while it is done, each line with the seconds since the start.
type narrator struct {
	a     *app
	begun time.Time
}

func (n *narrator) say(format string, args ...any) {
	fmt.Fprintf(n.a.Stdout, "%6.1f s  %s\n", time.Since(n.begun).Seconds(), fmt.Sprintf(format, args...))
}

// runDev is weir dev.
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
func (a *app) runDev(parent context.Context, given *config.Config, o devOptions) error {
	conf, ignored := devConfig(given, o)
	log := service.NewLogger(conf.Log, a.Stderr)
	ctx, forget := service.UntilSignal(parent, log)
	defer forget()
	d := &dev{app: a, o: o, conf: conf, log: log, registry: service.NewRegistry(readBuildVersion().Version), narrator: narrator{a, time.Now()}, hooks: a.devHooks}
	defer d.close()
	if len(ignored) > 0 {
		d.say("weir dev brings its own servers; not used: %s", strings.Join(ignored, ", "))
	}
	for _, step := range []func(context.Context) error{
		d.openDirectory, d.listen, d.takeDirectory, d.startServers, d.migrate, d.applyRules, d.connect,
	} {
		if err := step(ctx); err != nil {
			if ctx.Err() == nil || o.exit {
				return err
			}
			d.say("stopped before everything ran")
			return nil
		}
	}
	return d.serve(ctx)
}
