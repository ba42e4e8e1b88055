package devserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/blocklist/replica"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	webserver "github.com/weirhq/weir/cmd/weir/internal/server"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
)

// stopTimeout is how long all parts may take to end; with closeTimeout it stays below the 10 s of a process.
const stopTimeout = 7500 * time.Millisecond

// serve runs all parts until a signal comes, or the demo has been judged.
func (d *server) serve(ctx context.Context) error {
	d.say("starting stages, gate and console")
	var started atomic.Bool
	o, err := service.NewHealth(d.conf, d.registry, d.log, d.in.Probes()...)
	if err != nil {
		return err
	}
	if err := d.in.AnswerCounters(o); err != nil {
		return errors.Join(err, o.Listener.Close())
	}
	closeLate := func() { _ = o.Listener.Close() } // closed before: no harm
	d.closers = append(d.closers, closeLate)
	guard, blocks, err := service.NewGate(d.conf, d.in.Redis, d.log, d.registry)
	if err != nil {
		return err
	}
	beat, err := service.Heartbeat(d.conf, d.in.Redis, guard, blocks, nil, d.o.Version)
	if err != nil {
		return err
	}
	clock, err := service.WatchClocks(d.in, d.o.Version, service.DoesStages, service.DoesConsole)
	if err != nil {
		return err
	}
	page, err := d.console(ctx)
	if err != nil {
		return err
	}
	groups := [][]service.Part{
		{{Name: "stages", Run: func(ctx context.Context) error { return d.in.RunStages(ctx, service.AllStages(), &started) }}},
		{{Name: "replica", Run: blocks.Run}, beat, clock},
		{
			{Name: "disk", Run: d.watchDisk},
			{Name: "PostgreSQL", Run: d.watchPostgres},
			o.Part(),
		},
	}
	groups[2] = append(page.Parts(d.listeners.console), groups[2]...)
	ready := func(ctx context.Context) error {
		if err := d.awaitReady(ctx, blocks); err != nil {
			return err
		}
		d.say("everything runs")
		return d.welcome(o.Listener.Addr().String())
	}
	if d.o.NoDemo {
		return d.end(service.Serve(ctx, d.log, stopTimeout, append([][]service.Part{{{Name: "start", Run: once(ready)}}}, groups...)...))
	}
	return (&demoRun{d}).serve(ctx, guard, ready, groups)
}

// console makes pages and API. Whoever reaches them is on this machine, and is taken for who has started weir dev.
func (d *server) console(ctx context.Context) (*webserver.Server, error) {
	here := access.Actor{Name: d.o.By, Role: access.Admin, Via: access.ViaLocal}
	s, err := webserver.New(ctx, webserver.Options{
		Config: d.conf, Log: d.log, Registerer: d.registry, Redis: d.in.Redis, Kafka: d.in.Kafka,
		Environment: func(warn func(rules.Problem)) (rules.Environment, error) { return d.o.Environment(d.conf, warn) },
		Pulse:       d.in.Pulse, Local: &here, Command: d.commandLine(), Version: d.o.Version,
	})
	if err == nil {
		d.closers = append(d.closers, s.Close)
	}
	return s, err
}

// once makes a part of work that ends by itself.
func once(work func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if err := work(ctx); err != nil {
			return service.UnlessStopped(ctx, err)
		}
		<-ctx.Done()
		return nil
	}
}

// end reports how the run ended. Parts that were stuck are no failure of the run: what they had under way is done again
// at the next start. What made them end may be one.
func (d *server) end(err error) error {
	var stuck *service.StuckError
	if err != nil && (!errors.As(err, &stuck) || stuck.Unwrap() != nil) {
		return err
	}
	if stuck != nil {
		d.log.Warn("stopped", "error", stuck)
	}
	d.say("stopped")
	return nil
}

// writeConfig writes a configuration with which other commands find the servers: weir --config FILE rules list.
func (d *server) writeConfig() error {
	c := d.conf
	text, err := yaml.Marshal(map[string]any{
		"namespace":  c.Namespace,
		"kafka":      map[string]any{"brokers": c.Kafka.Brokers, "partitions": c.Kafka.Partitions, "retention": c.Kafka.Retention},
		"redis":      map[string]any{"url": c.Redis.URL.Reveal()},
		"postgres":   map[string]any{"url": c.Postgres.URL.Reveal()},
		"detect":     c.Detect,
		"identity":   c.Identity,
		"known_good": c.KnownGood,
	})
	if err != nil {
		return fmt.Errorf("configuration for other commands: %w", err)
	}
	head := "# Written by weir dev at each start: where its servers are, for other commands while it runs.\n"
	// It holds a password.
	return os.WriteFile(d.configFile(), append([]byte(head), text...), 0o600)
}

func (d *server) configFile() string { return d.directory.Path(config.DefaultFile) }

// commandLine is how other commands of this program are called to reach this installation.
func (d *server) commandLine() string {
	program := "weir"
	if len(os.Args) > 0 && strings.HasSuffix(os.Args[0], "/weir") {
		program = os.Args[0] // as the user has called it
	}
	return shellWord(program) + " --config " + shellWord(d.configFile())
}

// shellWord is s as one word of a shell, in quotes where it needs them.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%,=", r)
	}
	if s != "" && strings.TrimFunc(s, plain) == "" {
		return s
	}
	return subject.Quoted(s)
}

// awaitReady waits until every partition is owned and the gate has its blocklist: the first request of the demo is not
// to wait for a rebalance.
func (d *server) awaitReady(ctx context.Context, blocks *replica.Replica) error {
	tick, tell := time.NewTicker(20*time.Millisecond), time.NewTicker(10*time.Second)
	defer tick.Stop()
	defer tell.Stop()
	for {
		why := d.unready(blocks)
		var stopped *stoppedError
		if why == nil || errors.As(why, &stopped) {
			return why
		}
		select {
		case <-ctx.Done():
			return why
		case <-tell.C:
			d.say("still waiting: %v; %s partitions list says more, --fresh starts anew", why, d.commandLine())
		case <-tick.C:
		}
	}
}

// unready says what is still missing, as the stages tell it.
func (d *server) unready(blocks *replica.Replica) error {
	if err := blocks.Unready(); err != nil {
		return err
	}
	progress := d.in.Progress()
	if progress.Halted > 0 {
		return &stoppedError{partitions: progress.Halted, command: d.commandLine() + " partitions list", own: d.ownPostgres()}
	}
	p := d.conf.Kafka.Partitions
	for _, stage := range []struct {
		name string
		want int
	}{
		{ingest.StageRoute, p.Requests}, {ingest.StageDetect, p.Keyed}, {ingest.StageRecord, p.Hits}, {ingest.StageEnforce, p.Hits},
		{ingest.StageRecordBlocks, p.Hits}, // blocks has as many as hits
	} {
		if owned := progress.Owned[stage.name]; owned < stage.want {
			return fmt.Errorf("stage %s has %d of %d partitions", stage.name, owned, stage.want)
		}
	}
	return nil
}

// stoppedError says that partitions do not go on, and will not by waiting.
type stoppedError struct {
	partitions int
	command    string // that tells why
	own        bool   // PostgreSQL is weir dev's own
}

func (e *stoppedError) Error() string {
	remedy := "weir dev --fresh starts anew"
	if !e.own {
		remedy = "another --namespace, or that schema dropped, starts anew"
	}
	return fmt.Sprintf("%s of the keyed topic stopped: what PostgreSQL and the data directory hold does not belong together (while weir dev runs, "+
		"%s says more); %s", plural.Of(e.partitions, "partition"), e.command, remedy)
}

// watchPostgres ends weir dev with a clear word when the PostgreSQL that it has started ends: nobody else can start it.
func (d *server) watchPostgres(ctx context.Context) error {
	if !d.ownPostgres() {
		<-ctx.Done()
		return nil
	}
	at, err := url.Parse(d.conf.Postgres.URL.Reveal())
	if err != nil {
		return errors.New("the address of weir dev's own PostgreSQL is no URL") // it holds a password
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for refused := 0; refused < 3; { // a server that is only busy refuses nobody
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		dialer := net.Dialer{Timeout: time.Second}
		conn, err := dialer.DialContext(ctx, "tcp", at.Host)
		switch {
		case err == nil:
			refused = 0
			_ = conn.Close() // nothing was said
		case errors.Is(err, syscall.ECONNREFUSED):
			refused++
		}
	}
	return fmt.Errorf("PostgreSQL, which weir dev had started, has ended: %s says why; start weir dev again", d.directory.Path(postgresFolder, "log"))
}

// watchDisk ends weir dev with a clear word before its servers run out of space in the middle of a write.
func (d *server) watchDisk(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		free, err := d.directory.Free()
		if err != nil {
			return err
		}
		if free < fullBelow {
			return fmt.Errorf("%d MB free on the disk of %s, at least %d MB are needed: free some space and start again, or use --data-dir",
				free>>20, d.directory.Path(), fullBelow>>20)
		}
	}
}

// welcome says how to reach everything.
func (d *server) welcome(metrics string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n  console   http://%s   no sign-in: whoever is at this machine may do everything\n", d.listeners.console.Addr())
	if d.listeners.gateway != nil {
		fmt.Fprintf(&b, "  gateway   http://%s   curl -i -X POST http://%[1]s/v1/guest-tokens\n", d.listeners.gateway.Addr())
	}
	fmt.Fprintf(&b, "  metrics   http://%s/metrics\n", metrics)
	fmt.Fprintf(&b, "  commands  %s rules list\n\n", d.commandLine())
	if !d.o.Exit {
		b.WriteString("  Ctrl-C stops everything; the next weir dev goes on from here.\n\n")
	}
	_, err := io.WriteString(d.o.Stdout, b.String())
	return err
}
