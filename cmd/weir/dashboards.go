package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/dashboards"
	"github.com/weirhq/weir/dashboards/alerts"
	"github.com/weirhq/weir/dashboards/grafana"
)

func dashboardsCommand(a *app) *cobra.Command {
	return family("dashboards", "Grafana's dashboards and Prometheus' alerts of weir",
		"  weir dashboards generate\n  weir dashboards push --grafana https://grafana.example.com --dry-run",
		dashboardsGenerateCommand(a), dashboardsPushCommand(a))
}

func dashboardsGenerateCommand(a *app) *cobra.Command {
	var dir, runbook string
	c := &cobra.Command{
		Use:   "generate",
		Short: "Write dashboards and alerts as files",
		Long: `Write what Grafana and Prometheus are provisioned with, as this build has it: a JSON file for each dashboard, in json/ of
the directory, and the recording and alerting rules, alerts/rules.yaml. Files that are as they should be are left alone; others
are replaced. The command needs no server.`,
		Example: "  weir dashboards generate\n  weir dashboards generate --dir /etc/weir/dashboards --runbook-url https://wiki.example/weir-runbook",
		Args:    cobra.NoArgs,
		RunE:    a.does(func(*cobra.Command, []string) error { return dashboardsGenerate(a, dir, runbook) }),
	}
	c.Flags().StringVar(&dir, "dir", "dashboards", "where to write; made if it is not there, in a directory that is")
	c.Flags().StringVar(&runbook, "runbook-url", alerts.RunbookURL, "the page that alerts link to, with a section for each")
	return c
}

// writtenFile is one line of weir dashboards generate.
type writtenFile struct {
	File   string `json:"file"`
	Result string `json:"result"`
}

func dashboardsGenerate(a *app, dir, runbook string) error {
	if dir == "" {
		return usage.Errorf("--dir: got nothing; allowed: a directory")
	}
	boards, err := dashboards.All()
	if err != nil {
		return err
	}
	rules, err := alerts.Generate(runbook)
	if err != nil {
		return err
	}
	for _, d := range []string{dir, filepath.Join(dir, "json"), filepath.Join(dir, "alerts")} {
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("--dir: %w", err)
		}
	}
	var written []writtenFile
	write := func(name string, content []byte) {
		if err != nil {
			return
		}
		file := writtenFile{File: filepath.Join(dir, name)}
		if file.Result, err = replace(file.File, content); err == nil {
			written = append(written, file)
		}
	}
	for _, b := range boards {
		write(filepath.Join("json", b.UID+".json"), b.JSON)
	}
	write(filepath.Join("alerts", alerts.FileName), rules)
	return errors.Join(err, terminal.List(&a.Output, written, []string{"FILE", "RESULT"}, func(f writtenFile) []string {
		return []string{f.File, f.Result}
	}))
}

// replace puts content where a file is, or none, so that who watches the file never reads half of it.
func replace(file string, content []byte) (string, error) {
	there, err := os.ReadFile(file)
	switch {
	case err == nil && string(there) == string(content):
		return "unchanged", nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	unfinished := file + ".new"
	if err := os.WriteFile(unfinished, content, 0o644); err != nil {
		return "", err
	}
	return "written", os.Rename(unfinished, file)
}

// pushFlags are what weir dashboards push is told.
type pushFlags struct {
	grafana, folder     string
	tokenEnv, tokenFile string
	dry                 bool
}

func dashboardsPushCommand(a *app) *cobra.Command {
	var f pushFlags
	c := &cobra.Command{
		Use:   "push",
		Short: "Put the dashboards into a Grafana",
		Long: `Put the dashboards of this build into a folder of Grafana, which is made if it is not there, and say of each whether it was
created, updated or unchanged. A dashboard is known by its uid; what somebody changed in it by hand is put back, and
Grafana keeps that as a version. Run again, it changes nothing. Dashboards that Grafana has from files are refused.

The token is that of a service account with the role Editor. It is read from $GRAFANA_TOKEN unless another variable or a file
is named. Without a token the name and password in the address are used, if there are any.

Alerts are no part of it: Prometheus reads them from a file, see weir dashboards generate.`,
		Example: `  weir dashboards push --grafana https://grafana.example.com --dry-run
  weir dashboards push --grafana https://example.com/grafana --folder Gateways --token-file /run/secrets/grafana`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			token, err := f.token(a, cmd.Flags().Changed("token-env"))
			if err != nil {
				return err
			}
			return dashboardsPush(cmd.Context(), a, &f, token)
		}),
	}
	c.Flags().StringVar(&f.grafana, "grafana", "", "address of Grafana; required")
	c.Flags().StringVar(&f.folder, "folder", "weir", "title of the folder; empty: General")
	c.Flags().StringVar(&f.tokenEnv, "token-env", "GRAFANA_TOKEN", "environment variable with the token")
	c.Flags().StringVar(&f.tokenFile, "token-file", "", "file with the token")
	c.Flags().BoolVar(&f.dry, "dry-run", false, "only say what would be done")
	return c
}

// token reads it. Its errors name no variable and no file: somebody may have given the token itself.
func (f *pushFlags) token(a *app, named bool) (string, error) {
	if f.tokenFile != "" {
		if named {
			return "", usage.Errorf("--token-env and --token-file both say where the token is; allowed: one of them")
		}
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			var at *fs.PathError
			if errors.As(err, &at) {
				err = at.Err
			}
			return "", usage.Errorf("--token-file: %w; allowed: a file with the token of a service account", err)
		}
		token := strings.TrimSpace(string(text))
		if token == "" {
			return "", usage.Errorf("--token-file: the file is empty; allowed: one with the token of a service account")
		}
		return token, nil
	}
	token, _ := config.LookupEnv(a.environ, f.tokenEnv)
	if token = strings.TrimSpace(token); token == "" && named {
		return "", usage.Errorf("--token-env: the environment has no such variable; allowed: the name of one that holds the token")
	}
	return token, nil
}

// pushed is one line of weir dashboards push.
type pushed struct {
	Kind   string `json:"kind"` // folder or dashboard
	Title  string `json:"title"`
	UID    string `json:"uid,omitempty"`
	Result string `json:"result"`
	URL    string `json:"url,omitempty"`
}

func dashboardsPush(parent context.Context, a *app, f *pushFlags, token string) error {
	client, err := grafana.New(f.grafana, token)
	if err != nil {
		return usage.Errorf("--grafana: %w", err)
	}
	boards, err := dashboards.All()
	if err != nil {
		return err
	}
	ctx, forget := service.UntilSignal(parent, service.NewLogger(config.Log{Level: "warn", Format: "text"}, a.Stderr))
	defer forget()
	folder, results, err := client.Push(ctx, boards, f.folder, f.dry)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("stopped after %d of %d dashboards; run it again for the others", len(results), len(boards))
	}
	if folder == "" {
		return err
	}
	title := f.folder
	if title == "" {
		title = "General"
	}
	lines := []pushed{{Kind: "folder", Title: title, Result: f.result(folder)}}
	for _, r := range results {
		lines = append(lines, pushed{Kind: "dashboard", Title: r.Board.Title, UID: r.Board.UID, Result: f.result(r.Outcome), URL: r.URL})
	}
	return errors.Join(err, terminal.List(&a.Output, lines, []string{"KIND", "TITLE", "RESULT", "URL"}, func(p pushed) []string {
		return []string{p.Kind, p.Title, p.Result, p.URL}
	}))
}

// result says of a dry run what would be.
func (f *pushFlags) result(o grafana.Outcome) string {
	switch {
	case !f.dry || o == grafana.Unchanged:
		return string(o)
	case o == grafana.Created:
		return "would be created"
	}
	return "would be updated"
}
