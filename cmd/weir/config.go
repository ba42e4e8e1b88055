package main

import (
	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

func configCommand(a *app) *cobra.Command {
	show := &cobra.Command{
		Use:   "show",
		Short: "Show the configuration that holds, secrets masked",
		Long: `Show every field of the configuration with the value that holds, where it was set, and its environment variable.
Secrets are masked. The command needs no server.`,
		Example: `  weir config show
  WEIR_KAFKA_BROKERS=kafka-1:9092,kafka-2:9092 weir config show --output json`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error { return configShow(a, cmd) }),
	}
	return family("config", "Look at the configuration", "  weir config show", show)
}

// shownField is one line of weir config show.
type shownField struct {
	Field       string `json:"field"`
	Value       string `json:"value"`
	Source      string `json:"source"`
	Environment string `json:"environment"`
}

func configShow(a *app, cmd *cobra.Command) error {
	c, err := a.config(cmd)
	if err != nil {
		return err
	}
	rows := make([]shownField, 0, 64)
	for _, f := range c.Fields() {
		rows = append(rows, shownField{Field: f.Path, Value: f.Text(), Source: c.Origins[f.Path].String(), Environment: f.Env()})
	}
	return terminal.List(&a.Output, rows, []string{"FIELD", "VALUE", "SOURCE", "ENVIRONMENT"}, func(r shownField) []string {
		return []string{r.Field, terminal.Brief(r.Value), r.Source, r.Environment}
	})
}
