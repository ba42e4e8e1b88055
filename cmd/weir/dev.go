package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/devserver"
)

// Where weir dev listens unless told otherwise.
const (
	devConsole = "127.0.0.1:9466"
	devGateway = "127.0.0.1:9467"
)

func devCommand(a *app) *cobra.Command {
	var o devserver.Options
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in this process, with a demo and the console",
		Long: `Run all of weir in this process: Kafka and Redis in the process, a PostgreSQL of its own (its programs are found on this
machine, or fetched unless this is root), all stages, a gateway in front of a sample
API, demo traffic through it, and the console. The demo's rules begin in shadow; two are promoted within the first
minutes, in the way of weir rules promote, and two are left for you to decide about, with their evidence.

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
			if err := o.Check(); err != nil {
				return err
			}
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			o.Version, o.By, o.Stdout, o.Stderr, o.Hooks = readBuildVersion().Version, whoami(a.environ), a.Stdout, a.Stderr, a.devHooks
			o.Environment = ruleEnvironment
			err = devserver.Run(cmd.Context(), conf, o)
			if errors.Is(err, devserver.ErrDemoFailed) || errors.Is(err, devserver.ErrDemoUnsure) {
				return errSaid
			}
			return err
		}),
	}
	f := c.Flags()
	f.StringVar(&o.DataDir, "data-dir", "", "where everything is kept (default: weir/dev in the user's cache directory, for root /var/lib/weir/dev)")
	f.BoolVar(&o.Fresh, "fresh", false, "erase what earlier runs left in the data directory")
	f.StringVar(&o.ConsoleListen, "console-listen", devConsole, "where the console is served")
	f.StringVar(&o.GatewayListen, "gateway-listen", devGateway, "where the demo's gateway answers")
	f.BoolVar(&o.NoDemo, "no-demo", false, "no gateway, rules and traffic of the demo")
	f.BoolVar(&o.NoPromote, "no-promote", false, "leave the demo's rules in shadow: nobody is refused")
	f.IntVar(&o.DemoSeconds, "demo-seconds", 0, "how long demo traffic is sent (default: until stopped)")
	f.Uint64Var(&o.Seed, "seed", 1, "what the demo's clients do; the same seed, the same clients")
	f.BoolVar(&o.Exit, "exit", false, "end after --demo-seconds and judge the demo")
	return c
}
