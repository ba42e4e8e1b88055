package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/detectors"
)

func migrateCommand(a *app) *cobra.Command {
	var o stream.MigrateOptions
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Make or update topics and schema; safe to run again",
		Long: `Make what an installation needs, or bring it to the form of this build, and say what was done:
the schema in PostgreSQL with the deployment secret, the topics in Kafka, the first routing version, and the first commit
of each partition of requests, without which nothing is routed. identity and events of the configuration take effect here.

What the processes of an installation write for each other keeps its form until --record-format raises it: while processes
of two builds run, the older ones must be able to read all of it. So an upgrade is weir migrate with the new build, then
one process after the other, then weir migrate --record-format.

Run it before the first start, after an upgrade, after a change of identity or events, and after the requests topic was
deleted and made anew: then the stream gets a new generation, so that old offsets are not taken for new ones, and all
that the topic holds is counted.
After a restore of PostgreSQL it numbers rules and modes above what Redis and Kafka remember. A Redis that belongs to
another installation is refused; --take-redis is for one that was moved here.`,
		Example: "  weir migrate\n  weir migrate --config /etc/weir/weir.yaml --output json\n  weir migrate --record-format 4",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if o.CountAgain && !o.Recreated {
				return usage.Errorf("--count-again is about --recreated: allowed together only")
			}
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			return runMigrate(cmd.Context(), a, conf, o)
		}),
	}
	c.Flags().BoolVar(&o.Recreated, "recreated", false,
		"the requests topic was deleted and made anew, although nothing shows it: begin a new generation at its start")
	c.Flags().BoolVar(&o.CountAgain, "count-again", false,
		"with --recreated, although requests may be the topic that it was: count all that it holds from its start")
	c.Flags().BoolVar(&o.TakeRedis, "take-redis", false,
		"Redis is to be this installation's from now on, although it belongs to another one")
	c.Flags().IntVar(&o.RecordFormat, "record-format", 0,
		fmt.Sprintf("record format of the stream from now on, %s; all running processes must know it (default: as it is; the newest for a new stream)",
			detectors.KnownRecordFormats()))
	return c
}

func runMigrate(ctx context.Context, a *app, c *config.Config, o stream.MigrateOptions) error {
	did, err := stream.Migrate(ctx, c, a.quietLogger(c), whoami(a.environ), o)
	if err != nil && len(did) == 0 {
		return err
	}
	if a.Format == "json" {
		err = errors.Join(err, a.WriteJSON(map[string]any{"done": append([]string{}, did...)}))
		return err
	}
	for _, line := range did {
		fmt.Fprintln(a.Stdout, line)
	}
	if err == nil {
		_, err = io.WriteString(a.Stdout, "ready: start weir run\n")
	}
	return err
}
